"""The account of a translation as comments in what was written: beside each key where it came from, then what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rlctl.common.report import Bucket, Entry, Origin, OriginEntry, Report
from rlctl.documents import Comment, KeyPath, parse_dotted

_LOST = (Bucket.UNSUPPORTED, Bucket.UNKNOWN, Bucket.DEAD)


def annotated(comments: Mapping[KeyPath, Comment], report: Report) -> dict[KeyPath, Comment]:
    """The comments of a text, and for each of its keys where it came from; beside it, or above where a comment is there."""
    found = dict(comments)
    sources = _sources(report.accounting)
    for origin in report.origins:
        path, line = parse_dotted(origin.key), _line(origin, sources.get(origin.key, ()), report.dialect)
        before = found.get(path, Comment())
        if before.beside:
            found[path] = Comment((*before.above, line), before.beside)
        else:
            found[path] = Comment(before.above, line)
    return found


def missing(report: Report) -> list[str]:
    """What of the source is not in the text, a line each; nothing where all of it is."""
    lost = [entry for entry in report.accounting if entry.bucket in _LOST]
    lines = [_place(entry, str(entry.bucket)) + _why(entry.note) for entry in lost]
    return ["rlctl: not in this file", *lines] if lines else []


def _sources(accounting: Sequence[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in accounting:
        for key, _ in entry.targets:
            found.setdefault(key, []).append(entry)
    return found


def _line(origin: OriginEntry, entries: Sequence[Entry], dialect: str) -> str:
    return " ".join(_words(origin, entries, dialect))


def _words(origin: OriginEntry, entries: Sequence[Entry], dialect: str) -> Iterator[str]:
    if origin.origin is Origin.DEFAULTED:
        yield f"default of {dialect}, made explicit{_why(origin.note)}"
    elif origin.origin is Origin.ASSUMED:
        yield f"assumed{_why(origin.note)}"
    elif not entries:
        yield f"{origin.origin}{_why(origin.note)}"
    else:
        yield _place(entries[0], str(origin.origin))
        yield from (f"and {entry.key}" for entry in entries[1:3])
        if origin.origin is Origin.DERIVED and origin.note:
            yield f"({origin.note})"


def _place(entry: Entry, what: str) -> str:
    return f"{what}: {entry.at} {entry.key}" if entry.at else f"{what}: {entry.key}"


def _why(note: str) -> str:
    return f": {note}" if note else ""
