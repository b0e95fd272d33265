"""The field of the config that a line of a translation's account speaks of, be it of the source, of the target, or of both."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import takewhile
from typing import Any

from rlctl.adapters.engine.meanings import meanings
from rlctl.common.report import Entry, Finding
from rlctl.config import to_plain
from rlctl.documents import KeyPath, parse_dotted
from rlctl.editing.session import Session
from rlctl.translation.translate import Translation

_KEY = re.compile(r"[a-z_]+(?:\[\d+\])?(?:\.[a-z_0-9]+(?:\[\d+\])?)+")


class Leads:
    """Finds the field that explains a line of a translation's report."""

    def __init__(self, session: Session, found: Translation) -> None:
        self._plain = to_plain(session.config)
        self._dialect = found.report.target.partition("@")[0]
        read = session.report.accounting
        self._fields = {entry.key: parse_dotted(entry.targets[0][0]) for entry in read if entry.targets}
        self._sources = {key: entry.key for entry in found.report.accounting for key, _ in entry.targets}

    def of_entry(self, entry: Entry) -> KeyPath:
        """The field that a key of the source fills; empty where it fills none."""
        return self._fields.get(entry.key) or self._known(entry.key)

    def of_finding(self, finding: Finding) -> KeyPath:
        """The field behind the key of either file that the writer warns of, else the one that its words name; empty for
        none."""
        told = finding.key
        source = next((self._sources[key] for key in self._sources if key == told or _is_in(key, told)), told)
        if told and (path := self._fields.get(source) or self._known(source)):
            return path
        return _called(self._dialect, told) or self._named_in(f"{finding.message} {finding.hint}")

    def _named_in(self, text: str) -> KeyPath:
        return next((path for word in _KEY.findall(text) if (path := self._known(word))), ())

    def _known(self, key: str) -> KeyPath:
        """A canonical key of this config as a path; empty for what is none."""
        try:
            path = parse_dotted(key)
            value: Any = self._plain
            for part in path:
                value = value[part]
        except (ValueError, LookupError, TypeError):
            return ()
        return path


def _is_in(key: str, section: str) -> bool:
    return key.startswith((f"{section}.", f"{section}["))


@cache
def _called(dialect: str, key: str) -> KeyPath:
    """The canonical path of a dialect's key: the section shared by all keys that it fills, or else the first of these."""
    filled = [path for meaning in meanings(f"{dialect}:{key}") for path in meaning.canonical] if dialect and key else []
    found = [parse_dotted(re.split(r"[\[{]", path, maxsplit=1)[0]) for path in filled]
    return (_shared(found) or found[0]) if found else ()


def _shared(paths: Sequence[KeyPath]) -> KeyPath:
    """The longest common prefix of paths."""
    return tuple(parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False)))
