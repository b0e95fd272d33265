"""This machine and the services of a run against its config: what ``rlctl check --here`` asks beside the other rules.

    probing.py    runs probes side by side, each with a time limit; asks a server over HTTP
    machine.py    GPUs and driver, /dev/shm, disk, folders, ports, the sandbox
    services.py   Ray, the hub, trackers, endpoints of models, tools and sandboxes

A probe reads, connects and asks; it starts nothing, writes no file that stays and sends a key to nobody but the service that
it is for. What it finds names hosts and keys of the config, never a credential.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.checks.here import machine, services
from rlctl.checks.here.probing import answered
from rlctl.checks.problem import CheckContext, Problem
from rlctl.config import Config
from rlctl.config.reveal import revealed


def here(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """What of this machine and of the services that the run needs is not as the config has it."""
    config = revealed(config)  # reading it reported variables that are not set
    yield from answered([*machine.probes(config), *services.probes(config)])


RULES = (here,)
