"""A change of a YAML text by ruamel.yaml, which keeps quotes, anchors, blank lines and comments while it writes a whole document.

It is for changes that replace more than the characters of one value. The caller reads each text again and takes none that says
something else: ruamel.yaml reads YAML 1.2, and the frameworks' loaders read YAML 1.1.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.documents.paths import KeyPath
from rlctl.documents.scalars import needs_quotes

DASHES = (0, 2)
"""Columns that the dashes of a list may be indented by, below their key."""
GONE = object()


def round_trips(text: str, path: KeyPath, value: Any = GONE) -> Iterator[str]:
    """The text with another value at a path, or without it, in each usual indentation; nothing if ruamel.yaml cannot do it."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    newline = "\r\n" if "\r\n" in text else "\n"
    for dash in DASHES:
        yaml = YAML()
        yaml.preserve_quotes = True
        yaml.width = 1 << 20
        yaml.indent(mapping=2, sequence=2 + dash, offset=dash)
        written = io.StringIO()
        try:
            tree = yaml.load(text.replace("\r\n", "\n"))
            _change(tree, path, value)
            yaml.dump(tree, written)
        except (YAMLError, ValueError, TypeError, KeyError, IndexError, AttributeError, NotImplementedError):
            return
        yield written.getvalue().replace("\n", newline)


def _change(tree: Any, path: KeyPath, value: Any) -> None:
    for part in path[:-1]:
        if isinstance(tree, dict) and tree.get(part) is None:
            tree[part] = {}
        tree = tree[part]
    if value is GONE:
        del tree[path[-1]]
    elif isinstance(tree, list) and path[-1] == len(tree):
        tree.append(_quoted(value))
    else:
        tree[path[-1]] = _quoted(value)


def _quoted(value: Any) -> Any:
    """A value whose strings are quoted if a loader would read something else in them."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(value, str):
        return DoubleQuotedScalarString(value) if needs_quotes(value) else value
    if isinstance(value, Mapping):
        return {_quoted(key): _quoted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_quoted(item) for item in value]
    return value
