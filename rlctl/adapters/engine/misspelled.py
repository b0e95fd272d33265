"""The known key that an unknown one is probably a misspelling of."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

from rlctl.adapters.engine.table import Table, generic
from rlctl.documents.paths import KeyPath

SAME_SECTION = 0.75
"""How alike two keys of one section must be: ``train_batchsize`` and ``train_batch_size`` are, ``lr`` and ``lora`` are not."""
WHOLE_KEY = 0.85
"""How alike two keys must be that differ in their sections."""
SUGGESTED = 0.3
"""How alike two keys of the same last name must be for one to be suggested for the other."""
LAST_NAME = 0.6
"""How alike the last names must be for one key to be suggested for another: whole keys are alike by their sections alone."""
NEARLY_THE_SAME = 0.9
"""How alike the last names must be if the file sets both keys: a fork's ``max_start_length`` is no ``max_prompt_length``."""


class NearestKeys:
    """The keys of one table in one release, by what a misspelling of them has in common with them.

    A key that the file sets as well was meant only by one that is nearly the same.
    """

    def __init__(self, table: Table, release: str, written: Iterable[KeyPath] = ()) -> None:
        self._written = {_dotted(generic(path)) for path in written}
        listed = (path for path, releases in table.known.items() if release in releases)
        names = dict.fromkeys(_dotted(path) for path in (*table.index, *listed) if "**" not in path)
        self._ruled = [_dotted(path) for path in table.index if "**" not in path]
        self._in_section: dict[str, list[str]] = {}
        self._ending: dict[str, list[str]] = {}
        for name in names:
            section, _, last = name.rpartition(".")
            self._in_section.setdefault(section, []).append(name)
            self._ending.setdefault(last, []).append(name)

    def misspelled(self, leaf: KeyPath) -> str:
        """The key that a leaf is a near miss of: a slip in its last name, in a section, or a section left off; else empty."""
        name = _dotted(generic(leaf))
        section, _, last = name.rpartition(".")
        found = _closest(last, {key.rpartition(".")[2]: key for key in self._in_section.get(section, ())}, SAME_SECTION)
        same_last = self._ending.get(last, [])
        found = found or next((key for key in same_last if section and key.endswith(f".{name}")), "")
        return self._unless_set(found or _closest(name, {key: key for key in same_last if section}, WHOLE_KEY), name)

    def suggestion(self, leaf: KeyPath) -> str:
        """The key that was meant, or, less surely, the closest one; empty where none is alike."""
        if found := self.misspelled(leaf):
            return found
        name = _dotted(generic(leaf))
        same_last = [key for key in self._ruled if key.rpartition(".")[2] == str(leaf[-1])]
        found = _closest(name, {key: key for key in same_last}, SUGGESTED)
        alike = {key: key for key in self._ruled if _likeness(key, name) >= LAST_NAME}
        return self._unless_set(found or _closest(name, alike, SAME_SECTION), name)

    def _unless_set(self, found: str, name: str) -> str:
        return "" if found in self._written and _likeness(found, name) < NEARLY_THE_SAME else found


def _likeness(key: str, name: str) -> float:
    """How alike the last names of two keys are."""
    return SequenceMatcher(None, key.rpartition(".")[2], name.rpartition(".")[2]).ratio()


def _closest(name: str, known: dict[str, str], cutoff: float) -> str:
    return next((known[match] for match in get_close_matches(name, known, n=1, cutoff=cutoff)), "")


def _dotted(path: KeyPath) -> str:
    return ".".join(map(str, path))
