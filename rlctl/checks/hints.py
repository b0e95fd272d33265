"""How a hint names what to set: ``{fix}`` in a hint stands for the values that mend a finding, ``{first}`` for the nearest one.

A rule gives the canonical keys and values. Here they become words in canonical names; ``rlctl.translation.advice`` says the same
in the names and units of the framework that a file is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from rlctl.common.messages import text
from rlctl.common.report import Fix
from rlctl.documents.paths import dotted

SHOWN = {"{fix}": 2, "{first}": 1}
"""What stands for the fixes in a hint, and how many values of a key it names."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A key of a file, the values that it may take (none: the key is removed), and what they count where that differs."""

    key: str
    values: tuple[Any, ...]
    unit: str = ""
    beside: tuple[Setting, ...] = ()
    """What has to be set with it."""
    keeping: tuple[Setting, ...] = ()
    """What keeps the rest of the config as it is."""

    def __str__(self) -> str:
        values = joined("either-value", map(shown, self.values))
        own = text("set-key", key=self.key, values=values) if self.values else text("remove-key", key=self.key)
        return joined("both-keys", [own, *map(str, self.beside)])


def own_hint(other: str) -> str:
    """A hint that names a value, or another key that may be changed instead."""
    return text("or-change", hint="{fix}", key=other) if other else "{fix}"


def without_fix(template: str, key: str, *, is_number: bool) -> str:
    """A hint of a key of which no value is known to help; a number often has to fit others."""
    return template.replace("{fix}", text("no-single-fix" if is_number else "change-key", key=key))


def by_key(fixes: Iterable[Fix]) -> list[tuple[tuple[str | int, ...], list[Any]]]:
    """The values that each key may take, in the order of the fixes."""
    found: dict[tuple[str | int, ...], list[Any]] = {}
    for key, value in fixes:
        values = found.setdefault(key, [])
        if value not in values:
            values.append(value)
    return list(found.items())


def count_shown(hint: str) -> int:
    """How many values of a key a hint names."""
    return next((count for mark, count in SHOWN.items() if mark in hint), max(SHOWN.values()))


def nearest_fixes(hint: str, fixes: Iterable[Fix]) -> tuple[Fix, ...]:
    """The fixes that are shown: the first values of each key, numbers from low to high."""
    return tuple((key, value) for key, values in by_key(fixes) for value in ascending(values[: count_shown(hint)]))


def ascending(values: Sequence[Any]) -> list[Any]:
    """Numbers from low to high; other values as they are."""
    return sorted(values) if all(type(value) in (int, float) for value in values) else list(values)


def worded(hint: str, settings: Sequence[Setting]) -> str:
    """A hint with its values in words."""
    if not has_values(hint):
        return hint
    for mark in SHOWN:
        hint = hint.replace(mark, joined("either-key", map(str, settings)))
    units = "; ".join(dict.fromkeys(setting.unit for setting in settings if setting.unit))
    hint = text("in-units", hint=hint, units=units) if units else hint
    keeping = dict.fromkeys(str(kept) for setting in settings for kept in setting.keeping)
    return text("keeping-rest", hint=hint, keys=joined("both-keys", keeping)) if keeping else hint


def joined(message: str, parts: Iterable[str]) -> str:
    """Parts put together two by two by a message with ``$first`` and ``$second``; empty if there are none."""
    found = list(parts)
    return reduce(lambda first, second: text(message, first=first, second=second), found) if found else ""


def has_values(hint: str) -> bool:
    """Whether a hint names values."""
    return any(mark in hint for mark in SHOWN)


def in_canonical_words(hint: str, fixes: Iterable[Fix]) -> str:
    """A hint in canonical keys."""
    return worded(hint, [Setting(dotted(key), tuple(values)) for key, values in by_key(nearest_fixes(hint, fixes))])


def shown(value: Any) -> str:
    """A value as YAML spells it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shown(item)}" for key, item in value.items()) + "}"
    return str(value)
