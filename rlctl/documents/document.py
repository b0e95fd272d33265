"""What every reader returns: the values of a text, where each of them stands, and the comments around them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rlctl.common.errors import Location
from rlctl.common.records import record
from rlctl.documents.paths import KeyPath


@record
class Comment:
    """The comments of one key, each line without its ``#`` and the blank after it."""

    above: tuple[str, ...] = ()
    """The comment lines directly above the key; under the empty path the head of the document."""
    beside: str = ""
    """The comment at the end of the key's line."""
    below: tuple[str, ...] = ()
    """Only under the empty path: the block that ends the document."""

    def about(self, key: str) -> Comment:
        """The comment for another key than its own: what stood beside ``key`` names it."""
        return Comment((*self.above, f"{key}: {self.beside}")) if self.beside else self

    def at(self, key: str) -> Comment:
        """The comment at ``key``: one that names this key stands beside it again."""
        named = f"{key}: "
        if self.beside or not self.above or not self.above[-1].startswith(named):
            return self
        return Comment(self.above[:-1], self.above[-1].removeprefix(named))


@dataclass
class Document:
    """A text as values, with positions and comments."""

    name: str
    """The file's name, for messages; ``<stdin>`` for standard input."""
    values: dict[Any, Any]
    """Plain dict, list, str, int, float, bool and None; interpolations stay the strings they are.

    Keys are strings, or integers in the free mappings that frameworks index by number."""
    marks: dict[KeyPath, Location] = field(default_factory=dict)
    """Where each key stands, leaf or not, and each item of a list."""
    comments: dict[KeyPath, Comment] = field(default_factory=dict)
    """The comments by key; those of the document itself under ``()``."""
    text: str = ""
    """What was read."""
    explicit: frozenset[KeyPath] | None = None
    """The keys that a person wrote, where the text is a composed config and something beside it says so; None: not known."""
    added: frozenset[KeyPath] = frozenset()
    """The keys that overrides added with ``+`` or ``++``; every part is a string."""
    key_marks: dict[KeyPath, Location] = field(default_factory=dict)
    """Where keys were written whose mark is the place of their value: in a script that may be a variable's."""
    appended: frozenset[KeyPath] = frozenset()
    """Those that they added with ``+``, which Hydra takes only for keys that a config does not have."""
    overridden: frozenset[KeyPath] = frozenset()
    """The keys that overrides set without a prefix, which Hydra takes only for keys that a config has; parts are strings."""

    def at(self, path: KeyPath) -> Location:
        """Return where ``path`` stands, or else its nearest ancestor that has a place."""
        for length in range(len(path), 0, -1):
            if (mark := self.marks.get(path[:length])) is not None:
                return mark
        return self.marks.get((), Location(self.name))

    def key_at(self, path: KeyPath) -> Location:
        """Return where the key of ``path`` was written."""
        return self.key_marks.get(path) or self.at(path)

    def leaves(self) -> Iterator[tuple[KeyPath, Any]]:
        """Yield every leaf in order: scalars, empty collections, and lists without a mapping in them as one leaf."""
        found: list[tuple[KeyPath, Any]] = []
        _add_leaves(found, (), self.values)
        return iter(found)


def _add_leaves(found: list[tuple[KeyPath, Any]], path: KeyPath, value: Any) -> None:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            _add_leaves(found, (*path, key), item)
    elif isinstance(value, list) and holds_mapping(value):
        for index, item in enumerate(value):
            _add_leaves(found, (*path, index), item)
    elif path:
        found.append((path, value))


def holds_mapping(value: list[Any]) -> bool:
    """Return whether a mapping stands anywhere in the list."""
    return any(isinstance(item, dict) or (isinstance(item, list) and holds_mapping(item)) for item in value)
