"""A conversion report as lines: the gravest first, and what has one reason in one line. Front ends print or list them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlctl.common.errors import Location
from rlctl.common.messages import text
from rlctl.common.ranks import Rank
from rlctl.common.report import Bucket, Entry, Finding, Level, Report

SHOWN_KEYS = 3
"""Keys that a line names of several."""
CHANGED = (Bucket.UNKNOWN, Bucket.UNSUPPORTED, Bucket.APPROXIMATED)
"""Buckets of keys that the target does not say as they are, the gravest first."""
WITHOUT_EFFECT = (Bucket.DEAD, Bucket.CARRIED)
CONVERTED = (Bucket.DERIVED, Bucket.MAPPED)
_LEVELS = {Level.ERROR: 0, Level.WARNING: 1, Level.NOTE: 2}
_CODES: Mapping[str, Bucket] = {"unsupported": Bucket.UNSUPPORTED, "unknown-key": Bucket.UNKNOWN}
"""Findings that repeat an entry of the ledger, and its bucket."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a report: a finding, an entry of the ledger, or several entries that have one reason."""

    heading: str
    entries: tuple[Entry, ...] = ()
    finding: Finding | None = None
    advice: str = ""
    """What to do, on a command line."""

    @property
    def at(self) -> Location | None:
        return self.finding.at if self.finding is not None else self.entries[0].at

    @property
    def kind(self) -> str:
        """The level of a finding, or the bucket of entries."""
        return str(self.finding.level if self.finding is not None else self.entries[0].bucket)

    @property
    def keys(self) -> str:
        """The key, or how many there are and which, as ``17 keys of custom_envs``."""
        names = [entry.key for entry in self.entries]
        if len(names) < 2:
            return names[0] if names else ""
        if section := _section(names):
            return text("keys-section", count=len(names), section=section)
        more = ", ..." if len(names) > SHOWN_KEYS else ""
        return text("keys-several", count=len(names), names=", ".join(names[:SHOWN_KEYS]) + more)

    @property
    def note(self) -> str:
        return self.finding.message if self.finding is not None else self.entries[0].note


def lines(report: Report, *, every: bool = False) -> list[Line]:
    """The lines of a report in the order of its ranks.

    Args:
        report: of a conversion.
        every: also list keys that were simply converted, and each key in a line.
    """
    found: list[tuple[tuple[int, int], Line]] = []
    advice = {(item.code, item.key, item.at): item.advice for item in report.findings}
    for group in _groups(report.accounting, every=every):
        rank = min((entry.rank for entry in group), key=lambda rank: rank.place)
        first, place = group[0], rank.place
        if first.bucket in CHANGED:
            code = next((code for code, bucket in _CODES.items() if bucket is first.bucket), "")
            hints = [advice.get((code, entry.key, entry.at), "") for entry in group]
            hint = next(filter(None, hints), "")
            found.append(((place, CHANGED.index(first.bucket)), Line(rank.heading, group, advice=hint)))
        elif first.bucket in WITHOUT_EFFECT:
            found.append(((len(Rank), WITHOUT_EFFECT.index(first.bucket)), Line(text("rank-none"), group)))
        elif every:
            found.append(((len(Rank) + 1, 0), Line(text("rank-converted"), group)))
    for finding in _findings(report):
        line = Line(finding.rank.heading, finding=finding, advice=finding.advice)
        found.append(((finding.rank.place, len(CHANGED) + _LEVELS[finding.level]), line))
    return [line for _, line in sorted(found, key=lambda pair: pair[0])]


def _groups(entries: Iterable[Entry], *, every: bool) -> Iterator[tuple[Entry, ...]]:
    """Entries of one bucket and reason together, in the order of the first of each."""
    found: dict[tuple[Bucket, str, str], list[Entry]] = {}
    for entry in entries:
        alone = every or not entry.note or entry.bucket in CONVERTED
        found.setdefault((entry.bucket, entry.note, entry.key if alone else ""), []).append(entry)
    yield from map(tuple, found.values())


def _findings(report: Report) -> Iterator[Finding]:
    """Each finding once, without those that repeat an entry."""
    entries = {(entry.bucket, entry.key) for entry in report.accounting}
    told: set[str] = set()
    for finding in report.findings:
        repeats = (_CODES.get(finding.code), finding.key) in entries
        if not repeats and finding.message not in told:
            told.add(finding.message)
            yield finding


def _section(names: Sequence[str]) -> str:
    """The section that all keys are in; empty if there is none."""
    parts = [name.split(".")[:-1] for name in names]
    shared = []
    for at_place in zip(*parts, strict=False):
        if len(set(at_place)) > 1:
            break
        shared.append(at_place[0])
    return ".".join(shared)
