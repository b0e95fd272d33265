"""A report as lines: the most harmful first, one line for one cause. Front ends print or list them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import takewhile

from rlctl.common.errors import Location
from rlctl.common.messages import has, text
from rlctl.common.messages.reasons import parts_of
from rlctl.common.ranks import Rank
from rlctl.common.records import record
from rlctl.common.report import Bucket, Entry, Finding, Level, Report

FRAMEWORKS: Mapping[str, str] = {"trinity": "Trinity-RFT", "roll": "ROLL"}
"""Names of frameworks that are not those of their dialects."""
SHOWN_NAMES = 8
"""Keys or paths that a finding names of several."""
SHOWN_KEYS = 3
"""Keys that a line names of several."""
RUNTIME_CODES = frozenset({"no-equivalent"})
"""Findings on what ``rlctl launch`` does with a key; the key may be right for the framework that the file is for."""
OF_THE_READING = frozenset({"release-assumed", "releases-differ", "rows-of-steps", "hybrid-replicas"})
"""Notes on a guess of rlctl about the source that only the user can settle; they come last."""
CHANGED = (Bucket.UNKNOWN, Bucket.UNSUPPORTED, Bucket.APPROXIMATED)
"""Buckets of keys that the target does not say as they are, the gravest first."""
WITHOUT_EFFECT = (Bucket.DEAD, Bucket.CARRIED)
CONVERTED = (Bucket.DERIVED, Bucket.MAPPED)
_LEVELS = {Level.ERROR: 0, Level.WARNING: 1, Level.NOTE: 2}
_CODES: Mapping[str, Bucket] = {"unsupported": Bucket.UNSUPPORTED, "unknown-key": Bucket.UNKNOWN}
"""Findings that repeat an entry of the ledger, and its bucket."""
_WORD = re.compile(r"[^\s：，、]+|[：，、]|\s+")
_OWN = ("rlctl's ", "rlctl 的 ")
"""Before keys that the file's framework does not have."""
_OPENING = re.compile(r"(?<= )'(?=\S+$)")
_STAGE = re.compile(r"\bstages\[(\d+)\](?=\.)")
_PLACE_OF_STAGE = re.compile(r"\bstages\[\d+\]\.")


class Part(StrEnum):
    """Parts of a conversion report by what the reader has to do, the most urgent first."""

    DECIDE = "decide"
    """The user wrote it and it is lost, or only the user knows what it should be."""
    CHANGES = "changes"
    """The run trains differently."""
    COMPUTED = "computed"
    """The target's value was computed."""
    REST = "rest"
    """Nothing to do."""


@record
class Line:
    """A line of a report: a finding, an entry of the ledger, or several entries with the same reason."""

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
        """The keys, or how many there are and which, as ``17 keys of custom_envs``."""
        names = [entry.key for entry in self.entries]
        if len(names) <= SHOWN_KEYS:
            return ", ".join(names)
        if section := _section(names):
            return text("keys-section", count=len(names), section=section)
        more = ", ..." if len(names) > SHOWN_KEYS else ""
        return text("keys-several", count=len(names), names=", ".join(names[:SHOWN_KEYS]) + more)

    @property
    def note(self) -> str:
        """The reason; of entries that share some reasons, that with the most."""
        if self.finding is not None:
            return self.finding.message
        return max(self.entries, key=lambda entry: len(parts_of(entry.note))).why

    @property
    def part(self) -> Part:
        if self.finding is not None:
            return _part_of_finding(self.finding)
        bucket, rank = self.entries[0].bucket, min((entry.rank for entry in self.entries), key=lambda rank: rank.place)
        trains = rank.place <= Rank.DATA.place
        if bucket is Bucket.UNKNOWN or (bucket is Bucket.UNSUPPORTED and (trains or self.advice)):
            return Part.DECIDE
        if bucket is Bucket.APPROXIMATED and trains:
            return Part.CHANGES
        return Part.COMPUTED if bucket in (Bucket.APPROXIMATED, Bucket.DERIVED) else Part.REST


@record
class Cause:
    """Findings that have one cause, such as several files that are missing, or one problem of several stages."""

    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        return self.findings[0]

    @property
    def level(self) -> Level:
        return self.first.level

    @property
    def at(self) -> Location | None:
        return self.first.at

    @property
    def advice(self) -> str:
        return self.first.advice

    @property
    def message(self) -> str:
        """The message, with what differs between the findings as a list, and the stages that have it."""
        messages = list(dict.fromkeys(item.message for item in self.findings))
        told = messages[0]
        names = _named(self.findings) or _varied(messages) if len(messages) > 1 else []
        if len(names) > 1:  # one path that two keys name is not several
            more = text("and-more", count=len(names) - SHOWN_NAMES) if len(names) > SHOWN_NAMES else ""
            listed = text("name-separator").join(names[:SHOWN_NAMES]) + more
            told = text(f"{self.first.id}.several", **{**self.first.params, "count": len(names), "names": listed})
        stages = list(dict.fromkeys(item.stage for item in self.findings if item.stage))
        return (
            text("in-stages", count=len(stages), names=text("name-separator").join(stages), message=told)
            if stages
            else told
        )


def without_runtime(found: Iterable[Finding], dialect: str) -> tuple[list[Finding], list[Finding]]:
    """Findings on the config, and those on what only ``rlctl launch`` does with it, which give no advice to change it.

    Args:
        found: of a check.
        dialect: what the file was read as, as ``verl@0.9``; rlctl's own files have no findings of the second kind.
    """
    if dialect.partition("@")[0] in ("", "rlctl"):
        return list(found), []
    own: list[Finding] = []
    runtime: list[Finding] = []
    for item in found:
        (runtime if item.code in RUNTIME_CODES or item.runners == ("rlctl",) else own).append(item)
    return own, [replace(item, hint="", option="") for item in runtime]


def causes(found: Iterable[Finding]) -> list[Cause]:
    """Findings by their cause, errors first, in the order of the text within a level."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for item in sorted(found, key=lambda item: _LEVELS[item.level]):
        groups.setdefault(_cause(item), []).append(item)
    return [Cause(tuple(items)) for items in groups.values()]


def _cause(item: Finding) -> tuple[object, ...]:
    """The key by which findings are grouped: the message, without the keys and paths that a joint message lists."""
    if not has(f"{item.id}.several"):
        return (item.code, item.level, item.message, _PLACE_OF_STAGE.sub("", item.advice))
    shared = {name: value for name, value in item.params.items() if name not in ("key", "path", "value")}
    return (item.id, item.level, bool(item.stage), *sorted(map(str, shared.items())))


def _named(findings: Sequence[Finding]) -> list[str]:
    """The paths or unknown keys that findings are about, each with its line; empty if they are about something else."""
    names = [item.key if item.code == "unknown-key" else str(item.params.get("path") or "") for item in findings]
    if not all(names):
        return []
    lines = {name: item.at.line if item.at else 0 for name, item in zip(names, findings, strict=True)}
    ordered = sorted(lines.items(), key=lambda item: item[1])
    return [text("name-place", name=name, line=line) if line else name for name, line in ordered]


def _varied(messages: Sequence[str]) -> list[str]:
    """The words in which messages differ."""
    words = [_WORD.findall(message) for message in messages]
    before = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*words, strict=False)))
    backwards = [list(reversed(line[before:])) for line in words]
    after = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*backwards, strict=False)))
    own = next((own for own in _OWN if "".join(words[0][:before]).endswith(own)), "")
    varied = ("".join(line[before : len(line) - after]).strip(" :：'，,") for line in words)
    return [own + _OPENING.sub("", name) for name in varied]


def framework(dialect: str) -> str:
    """A framework's own name: ``Trinity-RFT`` for ``trinity@0.6``."""
    name = dialect.partition("@")[0]
    return FRAMEWORKS.get(name, name)


def release(dialect: str) -> str:
    """A framework and its release, as ``verl 0.9``; rlctl's own configs have one schema only."""
    version = dialect.partition("@")[2]
    return framework(dialect) if dialect.startswith("rlctl") else f"{framework(dialect)} {version}".strip()


def lines(report: Report, *, every: bool = False, computed: bool = False) -> list[Line]:
    """The lines of a report in the order of its ranks.

    Args:
        report: of a conversion.
        every: also list keys that were simply converted, and each key in a line.
        computed: also list keys whose value was computed.
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
        elif every or (computed and first.bucket is Bucket.DERIVED):
            found.append(((len(Rank) + 1, 0), Line(text("rank-converted"), group)))
    for finding in _findings(report):
        if finding.code in OF_THE_READING:
            found.append(((len(Rank), -1), Line(text("rank-reading"), finding=finding, advice=finding.advice)))
            continue
        line = Line(finding.rank.heading, finding=finding, advice=finding.advice)
        found.append(((finding.rank.place, len(CHANGED) + _LEVELS[finding.level]), line))
    return [line for _, line in sorted(found, key=lambda pair: pair[0])]


def _part_of_finding(finding: Finding) -> Part:
    """Errors, assumptions and what breaks the run need a decision; other warnings say how training changes."""
    if finding.code in OF_THE_READING:
        return Part.DECIDE
    if finding.level is Level.NOTE:
        return Part.DECIDE if finding.rank is Rank.BREAKS else Part.REST
    if finding.level is Level.ERROR or finding.option or finding.rank in (Rank.BREAKS, Rank.DATA):
        return Part.DECIDE
    if finding.advice and finding.rank is not Rank.RESOURCES:
        return Part.DECIDE
    return Part.CHANGES if finding.rank.changes_training else Part.REST


def _groups(entries: Iterable[Entry], *, every: bool) -> Iterator[tuple[Entry, ...]]:
    """Entries of one bucket and reason together, or of some reasons of another entry, in the order of the first of each."""
    found: dict[tuple[Bucket, frozenset[str], str], list[Entry]] = {}
    for entry in entries:
        alone = every or not entry.note or entry.bucket in CONVERTED
        found.setdefault((entry.bucket, frozenset(parts_of(entry.note)), entry.key if alone else ""), []).append(entry)
    for part in [key for key in found if not key[2]]:
        whole = next((key for key in found if key[0] is part[0] and not key[2] and part[1] < key[1]), None)
        if whole is not None:
            found[whole] = [*found.pop(part), *found[whole]]
    yield from map(tuple, found.values())


def _findings(report: Report) -> Iterator[Finding]:
    """Each finding once, without those that repeat an entry; one that stages share names them together, or lists its paths."""
    entries = {(entry.bucket, entry.key) for entry in report.accounting}
    groups: dict[str | tuple[object, ...], dict[str, Finding]] = {}
    for finding in report.findings:
        if (_CODES.get(finding.code), finding.key) not in entries:
            several = has(f"{finding.id}.several")
            place = _cause(finding) if several else _STAGE.sub("stages", finding.message)
            groups.setdefault(place, {}).setdefault(finding.message, finding)
    for shared, group in groups.items():
        first, *others = group.values()
        numbers = ",".join(found[1] for message in group if (found := _STAGE.search(message)))
        if others and not isinstance(shared, str):
            yield replace(first, message=Cause((first, *others)).message)
        else:
            yield replace(first, message=str(shared).replace("stages.", f"stages[{numbers}].")) if others else first


def _section(names: Sequence[str]) -> str:
    """The section that all keys are in; empty if there is none."""
    parts = [name.split(".")[:-1] for name in names]
    shared = []
    for at_place in zip(*parts, strict=False):
        if len(set(at_place)) > 1:
            break
        shared.append(at_place[0])
    return ".".join(shared)
