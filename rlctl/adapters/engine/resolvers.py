"""Expressions that a framework cannot resolve, such as Hydra's own outside Hydra, and what is written instead."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

OMEGACONF = frozenset(
    {"oc.env", "oc.select", "oc.decode", "oc.create", "oc.deprecated", "oc.dict.keys", "oc.dict.values"}
)
COMPOSED = OMEGACONF | {"now", "python_version"}
"""What a config that a program composes itself may name: the settings of Hydra's own command line are not there."""
IN_RLCTL = OMEGACONF | {"now"}
_FOLDER = re.compile(r"(?<!\\)\$\{hydra:runtime\.cwd\}")
"""Where the command was started, which every shell keeps in a variable."""
_RESOLVER = re.compile(r"(?<!\\)\$\{\s*([A-Za-z_][\w.]*):")


def resolvable(value: Any, resolved: Any, known: Collection[str]) -> tuple[Any, str]:
    """A value with expressions of the resolvers that a framework knows.

    Args:
        value: may hold expressions.
        resolved: the same value as it is now.
        known: the framework's resolvers; empty for all.

    Returns:
        The value, and the resolver without which it cannot be written, or an empty text.
    """
    if not known or "${" not in str(value):
        return value, ""
    if isinstance(value, Mapping):
        below = resolved if isinstance(resolved, Mapping) else {}
        found = {name: resolvable(item, below.get(name), known) for name, item in value.items()}
        return {name: item for name, (item, _) in found.items()}, next(
            filter(None, (lost for _, lost in found.values())), ""
        )
    if isinstance(value, (list, tuple)):
        items = resolved if isinstance(resolved, (list, tuple)) and len(resolved) == len(value) else [None] * len(value)
        both = [resolvable(item, now, known) for item, now in zip(value, items, strict=True)]
        return [item for item, _ in both], next(filter(None, (lost for _, lost in both)), "")
    text = _FOLDER.sub("${oc.env:PWD}", value)
    lacking = next((name for name in _RESOLVER.findall(text) if name not in known), "")
    if not lacking:
        return text, ""
    return (value, lacking) if resolved is None or "${" in str(resolved) else (resolved, "")
