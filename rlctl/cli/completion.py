"""What the shell offers while a command is typed: dialects, presets, runs and canonical keys.

Nothing is printed and nothing fails here: where a list cannot be made, nothing is offered.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rlctl.common.terminal import safe

if TYPE_CHECKING:
    from rlctl.translation.translate import Known


def dialects(incomplete: str) -> list[str]:
    """Dialects, with and without a version."""
    from rlctl.translation.translate import dialects as known

    return _starting((name for dialect in known() for name in names_of(dialect)), incomplete)


def names_of(dialect: Known) -> list[str]:
    """A dialect's name, and its name with each version, newest first."""
    return [dialect.name, *(f"{dialect.name}@{version}" for version in reversed(dialect.versions))]


def keys(incomplete: str) -> list[str]:
    """Canonical keys, as written after ``--set``."""
    from rlctl.config import Config
    from rlctl.config.inspect import walk

    return _starting((key.path for key in walk(Config)), incomplete)


def assignments(incomplete: str) -> list[str]:
    """Canonical keys with the ``=`` that a value follows."""
    return [] if "=" in incomplete else [f"{key}=" for key in keys(incomplete)]


def presets(incomplete: str) -> list[str]:
    """Names of presets."""
    from rlctl.config.presets import names, published

    return _starting((preset.name for preset in (*names(), *published())), incomplete)


def runs(incomplete: str) -> list[str]:
    """Names of the runs in ``./runs``."""
    return _starting((safe(path.parent.name) for path in Path("runs").glob("*/run.json")), incomplete)


def _starting(names: Iterable[str], start: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(start)]
