"""What the dialects call a key of the canonical config."""

from __future__ import annotations

import re
from functools import cache

from rlctl.adapters.matrix import spellings


@cache
def names_of(pattern: str) -> dict[str, tuple[str, ...]]:
    """What each dialect that has the key calls it; ``pattern`` as a field has it."""
    found: dict[str, dict[str, None]] = {}
    for said in spellings(re.sub(r"<[^<>]*>", "", pattern)):
        found.setdefault(said.dialect, {}).update(dict.fromkeys(key.name for key in said.keys))
    return {dialect: tuple(keys) for dialect, keys in found.items() if keys}


@cache
def all_names(pattern: str) -> tuple[str, ...]:
    """What any dialect calls the key."""
    return tuple(name for names in names_of(pattern).values() for name in names)
