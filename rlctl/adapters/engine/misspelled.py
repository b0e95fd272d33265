"""The known key that an unknown one is probably a misspelling of, or that stands elsewhere in its section."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlctl.adapters.engine.table import Table, generic
from rlctl.documents.paths import KeyPath

SHORT = 3
"""Letters of a last name from which on one edit of it is a slip: ``lr`` and ``lm`` are two names."""


class NearestKeys:
    """The keys of one table in one release, by what a misspelling of them has in common with them.

    A key is near if one edit makes it the other, or if the other is in the same section by the same last name: whole names
    that are merely alike are mostly keys of a fork. A key that the file sets as well was not meant, unless by a slip.
    """

    def __init__(self, table: Table, release: str, written: Iterable[KeyPath] = ()) -> None:
        self._written = {_dotted(generic(path)) for path in written}
        listed = (path for path, releases in table.schema.items() if release in releases)
        self._names = [name for name in dict.fromkeys(map(_dotted, (*table.index, *listed))) if "**" not in name]
        self._ending: dict[str, list[str]] = {}
        self._as_long: dict[int, list[tuple[int, str]]] = {}
        for place, name in enumerate(self._names):
            self._ending.setdefault(name.rpartition(".")[2], []).append(name)
            self._as_long.setdefault(len(name), []).append((place, name))

    def misspelled(self, leaf: KeyPath) -> str:
        """The key that a leaf is a near miss of: a slip in its name, or a section left off; else empty."""
        name = _dotted(generic(leaf))
        alike = (key for key in self._alike(name) if is_one_edit(key, name))
        last = str(leaf[-1])
        if slip := next((key for key in alike if len(last) >= SHORT or key.rpartition(".")[2] == last), ""):
            return slip
        return next((key for key in self._others(leaf) if "." in name and key.endswith(f".{name}")), "")

    def _alike(self, name: str) -> list[str]:
        """The keys, in their order, that one edit may make a name: it leaves the beginning or the end as it is."""
        half = max(0, len(name) - 3) // 2
        head, tail = name[:half], name[len(name) - half :]
        near = (each for size in (-1, 0, 1) for each in self._as_long.get(len(name) + size, ()))
        return [key for _, key in sorted(each for each in near if each[1].startswith(head) or each[1].endswith(tail))]

    def suggestion(self, leaf: KeyPath) -> str:
        """The key that was meant, or, less surely, the only one of its top-level section with its last name; else empty."""
        inside = [key for key in self._others(leaf) if key.partition(".")[0] == str(leaf[0])]
        return self.misspelled(leaf) or (inside[0] if len(inside) == 1 else "")

    def _others(self, leaf: KeyPath) -> Sequence[str]:
        """The keys with the last name of a leaf that the file does not set."""
        return [key for key in self._ending.get(str(leaf[-1]), ()) if key not in self._written]


def is_one_edit(one: str, other: str) -> bool:
    """Whether one letter more, less or another, or two that changed places, make one text the other."""
    if abs(len(one) - len(other)) > 1 or one == other:
        return False
    start = next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(map(len, (one, other)))
    )
    a, b = one[start:], other[start:]
    swapped = a[:2] == b[1::-1] and a[2:] == b[2:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (len(a) > 1 and swapped)


def _dotted(path: KeyPath) -> str:
    return ".".join(map(str, path))
