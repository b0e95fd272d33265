"""Conditions under which a row is read or written: functions of a view, and how they combine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlctl.adapters.engine.rules import Reading, Writing, version_of


def always(view: Reading | Writing) -> bool:
    """A condition that always holds."""
    return True


def never(view: Reading | Writing) -> bool:
    """A condition that never holds."""
    return False


def since(release: str) -> Callable[[Reading | Writing], bool]:
    """A condition: the release, or a newer one."""
    first = version_of(release)
    return lambda view: view.version >= first


def before(release: str) -> Callable[[Reading | Writing], bool]:
    """A condition: a release before this one."""
    first = version_of(release)
    return lambda view: view.version < first


def negated(condition: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A condition: the other does not hold."""
    return lambda view: not condition(view)


def every(*conditions: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A condition: all of these hold."""
    return lambda view: all(condition(view) for condition in conditions)


def has(canonical: str) -> Callable[[Writing], bool]:
    """A condition: the config has a value at a canonical key, other than null, zero, false and empty."""
    return lambda view: bool(view.get(canonical))
