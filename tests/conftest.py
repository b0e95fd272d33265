"""What every test shares: properties are tried on the same examples each time, so that a red run is red again.

``HYPOTHESIS_PROFILE=explore`` tries new examples, as `make soak` does; ``quick`` tries few, as `make test-fast` does.

`make test` runs everything at once. Tests that start a cluster, or need a GPU, are one group: one process runs them one after the
other, from the start, and goes before the others, as what they measure is real time and much of theirs is waiting.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["tests.skips", "tests.again"]

settings.register_profile("repeat", derandomize=True, deadline=None)
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))

os.environ["RLCTL_LANGUAGE"] = "en"  # texts are looked for in English, whatever the locale

# `&` in a script and nohup leave these ignored, and tests send them to what they start.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)

CLUSTER = ("ray", "gpu")
"""Marks of what runs in the cluster's process."""
LONG = ("runtime", "tui")
"""Folders of tests that take seconds each: not left for the end, when the other processes have nothing to do."""
HERE = Path(__file__).parent
freeze, _unfreeze = gc.freeze, gc.unfreeze  # tests put other functions in their place
_thawed = False
"""Whether a run that ended, or a page of the app, has the garbage collector search everything again."""


def _noted_unfreeze() -> None:
    global _thawed
    _thawed = True
    _unfreeze()


gc.unfreeze = _noted_unfreeze  # to count what is frozen takes a third of a second: too long after every test


def _needs_cluster(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(mark) for mark in CLUSTER)


def _group(item: pytest.Item) -> str | None:
    """Whose process a test runs in: the cluster's, or the one that starts process groups, which import PyTorch each."""
    if _needs_cluster(item):
        return "cluster"
    megatron = "megatron" in item.path.relative_to(HERE).parts
    return "processes" if megatron or hasattr(getattr(item, "module", None), "Workers") else None


def _turn(item: pytest.Item) -> int:
    """Groups first, that of the cluster before all; then what takes long."""
    if _needs_cluster(item):
        return 0
    if item.get_closest_marker("xdist_group"):
        return 1
    return 2 if item.path.relative_to(HERE).parts[0] in LONG else 3


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    for item in items:  # before the plugin reads the groups
        if group := _group(item):
            item.add_marker(pytest.mark.xdist_group(group))
    yield
    if items and getattr(config.option, "loadgroup", False):
        items.sort(key=_turn)
        if _turn(items[0]) < 2 and "@" not in items[0].nodeid:
            raise pytest.UsageError("pytest-xdist does not group tests with this pytest: see pyproject.toml")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the garbage collector pass over what lives to the end: a million objects, which take it a second each time."""
    freeze()


def pytest_runtest_teardown() -> None:
    global _thawed
    if _thawed:
        _thawed = False
        freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """One of several processes gives way once it runs what needs no cluster."""
    if "PYTEST_XDIST_WORKER" in os.environ and not _needs_cluster(item):
        os.setpriority(os.PRIO_PROCESS, 0, 5)
