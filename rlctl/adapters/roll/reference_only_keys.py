"""ROLL: keys of a file that only other keys name, by ``${...}``: templates of environments, patterns, shared numbers.

ROLL drops them like every key that its dataclasses do not have, once the others have taken their values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rlctl.adapters.engine.tree import find
from rlctl.common.errors import Location
from rlctl.common.messages.reasons import said
from rlctl.common.report import Bucket, Entry, Report
from rlctl.documents import Document, KeyPath, dotted, parse_dotted

UNNAMED = "not a ROLL key, and no interpolation refers to it"
_NODE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")


def named_by_others(document: Document) -> frozenset[KeyPath]:
    """The places that interpolations in the document name."""
    found = {name for _, value in document.leaves() for text in _texts(value) for name in _NODE.findall(text)}
    return frozenset(tuple(name.split(".")) for name in found)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def unexplained(document: Document) -> list[KeyPath]:
    """The places that would be unknown keys if ROLL did not have them: no helper of others, and not of an included file."""
    named = named_by_others(document)
    return [
        path
        for path, value in document.leaves()
        if _name(path, named) is None and not _stands(value, document) and not _is_included(document.at(path), document)
    ]


def _name(path: KeyPath, named: frozenset[KeyPath]) -> KeyPath | None:
    return next((path[:length] for length in range(1, len(path) + 1) if path[:length] in named), None)


def _stands(value: Any, document: Document) -> str:
    """The mapping that a value stands for whole; empty where it stands for none."""
    stands = _NODE.fullmatch(str(value))
    there = stands and isinstance(find(document.values, tuple(stands[1].split("."))), Mapping)
    return stands[1] if stands and there else ""


def _is_included(at: Location | None, document: Document) -> bool:
    """Whether a key stands in another file; an override on a command line does not."""
    return at is not None and bool(document.name) and at.file != document.name and at.file.endswith((".yaml", ".yml"))


def explained(report: Report, document: Document) -> None:
    """Give keys that other keys name, and those of an included file that none names, their bucket instead of unknown."""
    named = named_by_others(document)
    entries = [_explained(entry, named, document) for entry in report.accounting]
    known = {entry.key for before, entry in zip(report.accounting, entries, strict=True) if before is not entry}
    report.accounting[:] = entries
    report.findings[:] = [
        finding for finding in report.findings if finding.code != "unknown-key" or finding.key not in known
    ]


def _taken(name: KeyPath) -> str:
    return said("other keys refer to it as ${{{name}}}", name=dotted(name))


def _explained(entry: Entry, named: frozenset[KeyPath], document: Document) -> Entry:
    if entry.bucket not in (Bucket.UNKNOWN, Bucket.DEAD):
        return entry
    name = _name(parse_dotted(entry.key), named)
    if entry.bucket is Bucket.DEAD and entry.note != UNNAMED:
        return (
            replace(entry, bucket=Bucket.MAPPED, note=said("{note}, but {taken}", note=entry.note, taken=_taken(name)))
            if name
            else entry
        )
    if name is not None:
        return replace(
            entry, bucket=Bucket.MAPPED, targets=(), note=said("not a ROLL key: {taken}", taken=_taken(name))
        )
    if whole := _stands(entry.value, document):
        return replace(entry, bucket=Bucket.MAPPED, targets=(), note=said("merged into {whole}", whole=whole))
    if _is_included(entry.at, document):
        return replace(
            entry, bucket=Bucket.DEAD, note="not a ROLL key, in an included file, and no interpolation refers to it"
        )
    return entry
