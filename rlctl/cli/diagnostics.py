"""The only writer of stderr: findings, the report of a conversion, progress and errors.

On a terminal entries are aligned and wrapped; elsewhere a finding is ``file:line: level: message [code]``, which editors and
``grep`` understand, and what to do about it is in the line below.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from rlctl.cli import layout
from rlctl.common.errors import (
    ConfigError,
    DocumentError,
    Location,
    MissingDependency,
    PlanError,
    RlctlError,
    TranslationError,
    UsageError,
)
from rlctl.common.filenames import SCRIPT_ENDINGS
from rlctl.common.messages import text
from rlctl.common.messages.reasons import parts_of, spoken, together, translated
from rlctl.common.ranks import Rank
from rlctl.common.report import (
    ALWAYS,
    UNWRITTEN,
    Bucket,
    Entry,
    Finding,
    Level,
    Origin,
    OriginEntry,
    Report,
    without_requests,
)
from rlctl.common.report_lines import (
    OF_THE_READING,
    Cause,
    Line,
    Part,
    causes,
    framework,
    lines,
    release,
    without_runtime,
)
from rlctl.common.terminal import safe

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from rlctl.checks.coverage import Subject

_STYLES = {Level.ERROR: layout.RED, Level.WARNING: layout.YELLOW, Level.NOTE: layout.CYAN}
_LEVEL_MARKS = {
    Level.ERROR: ("✗", layout.RED),
    Level.WARNING: ("!", layout.YELLOW),
    Level.NOTE: ("·", layout.CYAN),
}
_BUCKET_MARKS = {
    Bucket.UNKNOWN: ("?", layout.RED),
    Bucket.UNSUPPORTED: ("✗", layout.RED),
    Bucket.APPROXIMATED: ("≈", layout.YELLOW),
    Bucket.DERIVED: ("=", layout.CYAN),
    Bucket.MAPPED: ("·", layout.DIM),
    Bucket.CARRIED: ("·", layout.DIM),
    Bucket.DEAD: ("·", layout.DIM),
}
_SHARES = {
    Bucket.APPROXIMATED: "rounded",
    Bucket.UNSUPPORTED: "lost",
    Bucket.CARRIED: "kept",
    Bucket.DEAD: "ignored",
    Bucket.UNKNOWN: "unknown",
}
_LONGEST_VALUE = 40
_LEAST_MESSAGE = 40
"""Columns beside level and place below which a message goes under them."""
SHOWN_TARGETS = 2
"""Keys of the target that an entry names."""
SHOWN_LOST = 6
"""Lost keys that are named although nothing in training depends on them."""


class _Stderr:
    """stderr as it is now, made to outlive its reader: a closed pipe must not end a run.

    Bound once: a live display puts a stand-in at ``sys.stderr`` that writes through the console made here.
    """

    def __init__(self) -> None:
        self._stream = sys.stderr
        self.encoding = sys.stderr.encoding

    def write(self, content: str) -> int:
        return self._guard(lambda: self._stream.write(content))

    def flush(self) -> None:
        self._guard(self._stream.flush)

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def _guard(self, action: Callable[[], Any]) -> int:
        try:
            return action() or 0
        except (OSError, ValueError):  # its reader is gone, its disk is full, or (ValueError) it is closed
            return 0


def console(*, width: int | None = None) -> Console:
    """A console on stderr, as wide as asked for; without colour where NO_COLOR is set or stderr is no terminal."""
    from rlctl.cli.console import SafeConsole

    return SafeConsole(file=cast(TextIO, _Stderr()), highlight=False, width=width)


def is_terminal() -> bool:
    """Whether somebody watches stderr."""
    return sys.stderr is not None and sys.stderr.isatty()


def can_ask() -> bool:
    """Whether a question on stderr can be answered on stdin."""
    return is_terminal() and sys.stdin is not None and sys.stdin.isatty()


def note(message: str) -> None:
    """Tell something in passing, in the reader's language if it has a translation."""
    _line(translated(message))


def passage(text: str) -> None:
    """Pass on text as it comes, lines or parts of them."""
    stream = _Stderr()
    stream.write(safe(text.replace("\r\n", "\n").replace("\r", "\n")))
    stream.flush()


def _line(content: str, head: str = "") -> None:
    stream = _Stderr()
    stream.write(head + safe(content) + "\n")
    stream.flush()


def error(problem: RlctlError) -> None:
    """Say what is wrong, where, and what to do."""
    where = f"{problem.at}: " if problem.at else ""
    head, *more = translated(problem.message).splitlines() or [""]
    _line(where + head, _coloured(f"{text('level-error')}: ", "31;1"))
    for line in [*more, *(translated(problem.hint) or next_step(problem)).splitlines()]:
        _line(f"  {line}")


def next_step(problem: RlctlError) -> str:
    """What to do about an error that gives no advice of its own."""
    file = problem.at.file if problem.at is not None else ""
    if isinstance(problem, UsageError):
        word = next((word for word in sys.argv[1:] if word.isalpha()), "")
        return text("next-usage", command=f"rlctl {word} --help" if word else "rlctl --help")
    if isinstance(problem, DocumentError):
        return text("next-script" if file.endswith(SCRIPT_ENDINGS) else "next-document", file=file or "-")
    if isinstance(problem, ConfigError | PlanError | TranslationError):
        return text("next-config")
    return text("next-packages" if isinstance(problem, MissingDependency) else "next-run")


def bug(problem: BaseException) -> Path | None:
    """Say that rlctl itself is wrong, and keep the traceback in a file; returns the file."""
    content = "".join(traceback.format_exception(problem))
    path: Path | None
    try:
        import tempfile

        descriptor, name = tempfile.mkstemp(prefix="rlctl-bug-", suffix=".txt", text=True)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(content)
        path = Path(name)
    except OSError:  # nowhere to write to: the summary is still shown
        path = None
    summary = " ".join(f"{type(problem).__name__}: {problem}".split())
    _line(spoken("this is a bug in rlctl, not in your config"), _coloured(f"{text('level-error')}: ", "31;1"))
    _line(f"  {summary[:300]}")
    _line(
        "  "
        + (spoken("the traceback is in {path}", path=path) if path else spoken("RLCTL_DEBUG=1 shows the traceback"))
    )
    _line("  " + spoken("please report it with the command and the input file"))
    return path


def _coloured(content: str, code: str) -> str:
    colours = is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\x1b[{code}m{content}\x1b[0m" if colours else content


def findings(found: Sequence[Finding], *, file: str = "", notes: bool = True) -> None:
    """Show findings, errors first, one entry for one cause.

    Args:
        found: in the order of the text.
        file: the one that is checked, of which a terminal shows the line alone.
        notes: show notes too, rather than their number.
    """
    to = layout.screen(_stream())
    told = [item for item in found if notes or _is_always_shown(item)]
    _write(_cause_lines(causes(told), file, to))
    hidden = len(found) - len(told)
    if hidden:
        _write([to.styled(text("check-notes", count=hidden), layout.DIM)])


def _is_always_shown(item: Finding) -> bool:
    """Whether a finding is shown without ``-v``: all but notes, and the notes on which release the file was read as."""
    return item.level is not Level.NOTE or item.code in OF_THE_READING


def checked(
    report: Report,
    scope: Sequence[Subject],
    *,
    file: str,
    runner: str,
    notes: bool,
    brief: bool = False,
    silenced: Sequence[Finding] = (),
) -> None:
    """Show what was found in a file: the counts, its problems, then the keys that only ``rlctl launch`` treats differently.

    Args:
        report: of the check.
        scope: what was checked, and what was not; shown if nothing was found, and with notes.
        file: its name; empty if the config comes from the command line.
        runner: who runs the config.
        notes: show notes too, rather than their number.
        brief: show the counts alone.
        silenced: findings that the user does not want to see, of which only the number is shown.
    """
    to = layout.screen(_stream())
    head = verdict(report, runner)
    _write([f"{to.styled(layout.clean(file), layout.BOLD)}: {head}" if file else head])
    if brief:
        return
    shown = [item for item in report.findings if notes or _is_always_shown(item)]
    found, runtime = without_runtime(shown, report.dialect)
    _write(_cause_lines(causes(found), file, to))
    if runtime:
        _write([to.styled(text("check-runtime", framework=framework(report.dialect)), layout.BOLD)])
        _write(_cause_lines(causes(runtime), file, to))
    hidden = len(report.findings) - len(shown)
    if hidden:
        _write([to.styled(text("check-notes", count=hidden), layout.DIM)])
    if silenced:
        codes = ", ".join(sorted({item.code for item in silenced}))
        _write([to.styled(text("check-ignored", count=len(silenced), codes=codes), layout.DIM)])
    if scope and (notes or not shown):
        _write(to.styled(line, layout.DIM) for line in _scope_lines(scope))


def _scope_lines(scope: Sequence[Subject]) -> Iterator[str]:
    for name, unchecked in (("check-checked", False), ("check-unchecked", True)):
        subjects = [str(subject) for subject in scope if bool(subject.reason) is unchecked]
        if subjects:
            yield text(name, subjects=text("scope-separator").join(subjects))


def verdict(report: Report, runner: str) -> str:
    """The release that a file was read as, who runs it if that is another framework, and how many problems it has."""
    if not report.dialect:
        return text("report-unreadable")
    errors, warnings = (len(causes(report.at_level(level))) for level in (Level.ERROR, Level.WARNING))
    told = [text("check-errors", count=errors)] * bool(errors) + [text("check-warnings", count=warnings)] * bool(
        warnings
    )
    read_as = release(report.dialect)
    if runner and runner != report.dialect.partition("@")[0]:
        read_as = text("check-run-by", release=read_as, runner=framework(runner))
    return f"{read_as}: {text('separator').join(told) or text('check-clean')}"


def _cause_lines(found: Sequence[Cause], file: str, to: layout.Screen) -> Iterator[str]:
    """Entries in aligned columns on a terminal; elsewhere ``file:line: level: message``, as compilers write them."""
    words = {level: text(f"level-{level}") for level in Level}
    places = [_place(cause.at, file if to.width is not None else "") for cause in found]
    widest = max((layout.cells(words[cause.level]) for cause in found), default=0)
    column = 2 + widest + 2 + max((layout.cells(place) + 2 for place in places if place), default=0)
    for cause, place in zip(found, places, strict=True):
        plain = f"[{layout.clean(_code(cause.first))}]"
        code = to.styled(plain, layout.DIM)
        word = to.styled(words[cause.level], _STYLES[cause.level])
        if to.width is None:
            yield f"{f'{place}: ' if place else ''}{word}: {layout.clean(cause.message)} {code}"
            indent = 4
        else:
            beside = to.width - column >= _LEAST_MESSAGE
            gap = " " * (widest - layout.cells(words[cause.level]))
            head = f"  {word}{gap}  {place}"
            indent = column if beside else 4
            *lines, last = to.wrapped(f"{cause.message} {plain}", indent)
            lines.append(last.replace(plain, code))
            if beside:
                yield head + " " * (column - 4 - widest - layout.cells(place)) + lines.pop(0)
            else:
                yield head.rstrip()
            yield from (" " * indent + line for line in lines)
        if cause.advice:
            yield from layout.advice_lines(cause.advice, indent, to)


def _code(item: Finding) -> str:
    """The code of a finding, and when its error would strike."""
    return text("code-when", code=item.code, when=text(f"when-{item.when}")) if item.when else item.code


def _place(at: Location | None, file: str) -> str:
    if at is None:
        return ""
    return text("place-line", line=at.line) if file and at.file == file and at.line else layout.clean(str(at))


def accounting(report: Report, *, verbose: bool = False) -> None:
    """Show how a conversion went, what needs a decision, how training changes, what was computed, and counts of the rest.

    Args:
        report: of a conversion.
        verbose: every key in a line, and where every leaf of the target came from.
    """
    to = layout.screen(_stream())
    _write([to.styled(headline(report), layout.BOLD)])
    if verbose and report.reason:
        _write([layout.clean(text("detected", framework=report.dialect, reason=report.reason))])
    if report.errors:
        findings(report.findings, notes=verbose)
        return
    told = sorted(lines(report, every=verbose, computed=True), key=_harm)
    parts = {part: [line for line in told if line.part is part] for part in Part}
    for part in (Part.DECIDE, Part.CHANGES):
        _ranked(text(f"part-{part}"), parts[part], report, to, every=verbose)
    computed = [entry for line in parts[Part.COMPUTED] for entry in line.entries]
    items = _items(parts[Part.COMPUTED], report, every=True) if verbose else [*_computed(computed)]
    _section(text(f"part-{Part.COMPUTED}"), items, to)
    if verbose:
        for heading in dict.fromkeys(line.heading for line in parts[Part.REST]):
            found = [line for line in parts[Part.REST] if line.heading == heading]
            _section(heading, _items(found, report, every=True), to)
        _section(text("rank-written"), [_origin_item(entry) for entry in report.origins], to)
    else:
        _write(f"  {line}" for line in _rest(report, parts[Part.REST], to))


def _harm(line: Line) -> int:
    """How soon a line comes: by rank."""
    if line.finding is not None:
        return len(Rank) if line.finding.code in OF_THE_READING else line.finding.rank.place
    return min(entry.rank.place for entry in line.entries)


def _ranked(heading: str, found: Sequence[Line], report: Report, to: layout.Screen, *, every: bool) -> None:
    """Lines under a heading, with the name of each rank above its own; nothing if there are none."""
    if found:
        _write(["", to.styled(heading, layout.BOLD)])
    for place, group in groupby(found, _harm):
        name = tuple(Rank)[place].heading if place < len(Rank) else text("rank-reading")
        _write([f"  {to.styled(name, layout.DIM)}"])
        for item in _items([*group], report, every=every):
            _write(item.lines(to))


def _section(heading: str, items: Sequence[layout.Item], to: layout.Screen) -> None:
    """Entries under a heading; nothing if there are none."""
    if items:
        _write(["", to.styled(heading, layout.BOLD)])
        for item in items:
            _write(item.lines(to))


def _rest(report: Report, rest: Sequence[Line], to: layout.Screen) -> Iterator[str]:
    """What needs no attention, in numbers; a key that is lost is also named."""
    source, target = framework(report.dialect), framework(report.target)
    lost = [entry for line in rest for entry in line.entries if entry.loses]
    if lost:
        yield ""
        named = ", ".join(entry.key for entry in lost[:SHOWN_LOST]) + (", ..." if len(lost) > SHOWN_LOST else "")
        yield from to.wrapped(text("rest-lost", count=len(lost), keys=named, target=target), 2)
    buckets = Counter(entry.bucket for line in rest for entry in line.entries)
    counts = {
        "rest-carried": buckets[Bucket.CARRIED],
        "rest-dead": buckets[Bucket.DEAD],
        "rest-defaults": sum(entry.origin is Origin.DEFAULTED for entry in report.origins),
        "rest-notes": sum(line.finding is not None for line in rest),
    }
    told = [text(name, count=count, source=source, target=target) for name, count in counts.items() if count]
    if told:
        if not lost:
            yield ""
        yield from (
            to.styled(line, layout.DIM) for line in to.wrapped(text("rest", counts=text("separator").join(told)), 2)
        )


def headline(report: Report) -> str:
    """From which release to which, and what became of how many keys; of a failure only that it is one."""
    way = " -> ".join(release(part) for part in (report.dialect, report.target) if part)
    if report.errors:
        return text("report-failed", way=way, count=len(causes(report.errors))) if way else text("report-unreadable")
    return text("report-keys", way=way, count=len(report.accounting), shares=shares(report))


def shares(report: Report) -> str:
    """How many keys of the source were converted, and what became of the others."""
    found = Counter(_SHARES.get(entry.bucket, "converted") for entry in report.accounting)
    source, target = framework(report.dialect), framework(report.target)
    names = ("converted", "rounded", "lost", "kept", "ignored", "unknown")
    return text("separator").join(
        text(f"share-{name}", count=found[name], source=source, target=target) for name in names if found[name]
    )


def _computed(entries: Iterable[Entry]) -> Iterator[layout.Item]:
    """Keys with the values that were computed of them.

    Keys with one formula or with the same targets are one entry; copies and formulas that an entry above has are omitted.
    """
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        if targets := [target for target in entry.targets if _is_new(entry, target[1])]:
            same = next(
                (name for name, group in groups.items() if _has_targets(group[0], targets)), entry.note or entry.key
            )
            groups.setdefault(same, []).append(entry)
    told: set[str] = set()
    for group in groups.values():
        notes = [
            note
            for entry in group
            for note in parts_of(entry.note)
            if note not in told and note not in (ALWAYS, UNWRITTEN)
        ]
        told.update(notes)
        mark, style = _BUCKET_MARKS[group[0].bucket]
        shared = [target for target in group[0].targets if all(target in entry.targets for entry in group)]
        targets = [
            (key, value) for key, value in shared or group[0].targets if any(_is_new(entry, value) for entry in group)
        ]
        keys = ", ".join(
            dict.fromkeys(f"{entry.key} = {shown(entry.value)}" for entry in group)
        )  # stages may share one
        at = str(group[0].at) if group[0].at else ""
        title = f"{keys} -> {_listed(targets, SHOWN_TARGETS)}"
        yield layout.Item(mark, style, title, at, without_requests(translated(together(notes))), brief=True)


def _has_targets(entry: Entry, targets: Sequence[tuple[str, Any]]) -> bool:
    """Whether exactly these values were computed of an entry."""
    return [target for target in entry.targets if _is_new(entry, target[1])] == targets


def _is_new(entry: Entry, value: Any) -> bool:
    """Whether a value of the target is another one than that of the source, and not a reference to it."""
    return value != entry.value and not str(value).startswith("${")


def _items(found: Sequence[Line], report: Report, *, every: bool) -> list[layout.Item]:
    """Lines as entries; unknown keys are one entry, and of ``every`` key those with one reason and the same targets."""
    groups: dict[object, list[Line]] = {}
    for line in found:
        place: object = id(line)
        entry = line.entries[0] if len(line.entries) == 1 else None
        if entry and (entry.bucket is Bucket.UNKNOWN or (every and entry.note)):
            place = (entry.bucket, entry.note, repr(entry.targets), line.advice)
        groups.setdefault(place, []).append(line)
    return [
        _shared_item(group, report) if len(group) > 1 else _item(group[0], report, every=every)
        for group in groups.values()
    ]


def _shared_item(group: Sequence[Line], report: Report) -> layout.Item:
    """An entry for keys that one reason is about, each with its value and its line."""
    entries = [entry for line in group for entry in line.entries]
    one = _item(group[0], report, every=True)
    keys = [f"{entry.key} = {shown(entry.value)}" for entry in entries]
    named = [
        text("name-place", name=key, line=entry.at.line) if entry.at and entry.at.line else key
        for key, entry in zip(keys[1:], entries[1:], strict=True)
    ]
    return replace(one, title=one.title.replace(keys[0], ", ".join([keys[0], *named]), 1))


def _item(line: Line, report: Report, *, every: bool) -> layout.Item:
    """A line of a conversion report as an entry."""
    at = str(line.at) if line.at else ""
    if line.finding is not None:
        mark, style = _LEVEL_MARKS[line.finding.level]
        return layout.Item(
            mark, style, f"{without_requests(line.note)} [{line.finding.code}]", at, advice=_advice(line)
        )
    mark, style = _BUCKET_MARKS[line.entries[0].bucket]
    note = without_requests(line.note)
    if line.entries[0].bucket is Bucket.UNKNOWN:
        note = text("entry-unknown", source=framework(report.dialect), near=note or "none")
    values = _values(line.entries, len(line.entries[0].targets) if every else SHOWN_TARGETS)
    return layout.Item(mark, style, f"{line.keys}{values}", at, note, _advice(line))


def _advice(line: Line) -> str:
    return line.advice if line.advice not in line.note else ""


def _values(entries: Sequence[Entry], most: int) -> str:
    """What one key became; of several only the reason is shown."""
    if len(entries) > 1:
        return ""
    targets = _listed(entries[0].targets, most)
    return f" = {shown(entries[0].value)}" + (f" -> {targets}" if targets else "")


def _listed(targets: Sequence[tuple[str, Any]], most: int) -> str:
    """Keys of the target with their values, and how many more there are."""
    more = text("and-more", count=len(targets) - most) if len(targets) > most else ""
    return ", ".join(f"{key} = {shown(value)}" for key, value in targets[:most]) + more


def _origin_item(entry: OriginEntry) -> layout.Item:
    content = f"{entry.key} = {shown(entry.value)} ({text(f'origin-{entry.origin}')})"
    return layout.Item("·", layout.DIM, content, body=entry.why)


def shown(value: Any) -> str:
    """A value in one short line, as YAML spells it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    content = " ".join(str(value).split())
    return content if len(content) <= _LONGEST_VALUE else content[: _LONGEST_VALUE - 3] + "..."


def _write(content: Iterable[str]) -> None:
    """Lines that are laid out: safe and coloured already."""
    told = "".join(f"{line.rstrip()}\n" for line in content)
    if told:
        stream = _Stderr()
        stream.write(told)
        stream.flush()


def _stream() -> TextIO:
    return sys.stderr if sys.stderr is not None else io.StringIO()


def show(*renderables: RenderableType, at_least: int = 0) -> None:
    """Print renderables on stderr, on lines of at least so many columns."""
    screen = console()
    if screen.width < at_least:
        screen = console(width=at_least)
    screen.print(*renderables, sep="\n")
