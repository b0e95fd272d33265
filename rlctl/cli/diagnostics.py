"""The only writer of stderr: findings, the accounting of a translation, progress and errors.

On a terminal findings are a table; elsewhere they are one line each, ``file:line: level: message [code]``, which editors
and ``grep`` understand. A line that names a place is never wrapped, so that it can be copied.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from rlctl.common.messages import text
from rlctl.common.report import Bucket, Entry, Finding, Level, OriginEntry, Report
from rlctl.common.report_lines import Line, lines
from rlctl.common.terminal import safe

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from rlctl.common.errors import RlctlError

_STYLES = {Level.ERROR: "red", Level.WARNING: "yellow", Level.NOTE: "cyan"}
_BUCKET_STYLES = {
    Bucket.UNSUPPORTED: "yellow",
    Bucket.UNKNOWN: "red",
    Bucket.APPROXIMATED: "yellow",
    Bucket.DEAD: "dim",
    Bucket.CARRIED: "cyan",
}
_ORDER = {Level.ERROR: 0, Level.WARNING: 1, Level.NOTE: 2}
_LONGEST_VALUE = 40
_LAST_COLUMN = 40
"""Columns that the text of a row keeps on a narrow terminal: a row grows past the edge before it gets narrower."""

Row = tuple[tuple[str, str], ...]
"""The cells of a row, each its text and its style."""


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
    """Tell something in passing."""
    _line(message)


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
    head, *more = problem.message.splitlines() or [""]
    _line(where + head, _coloured("error: ", "31;1"))
    for line in [*more, *problem.hint.splitlines()]:
        _line(f"  {line}")


def bug(problem: BaseException) -> Path | None:
    """Say that rlctl itself is wrong, and keep the traceback in a file; returns the file."""
    content = "".join(traceback.format_exception(problem))
    path: Path | None
    try:
        descriptor, name = tempfile.mkstemp(prefix="rlctl-bug-", suffix=".txt", text=True)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(content)
        path = Path(name)
    except OSError:  # nowhere to write to: the summary is still shown
        path = None
    summary = " ".join(f"{type(problem).__name__}: {problem}".split())
    _line("this is a bug in rlctl, not in your config", _coloured("error: ", "31;1"))
    _line(f"  {summary[:300]}")
    _line(f"  the traceback is in {path}" if path else "  RLCTL_DEBUG=1 shows the traceback")
    _line("  please report it with the command and the file that led here")
    return path


def _coloured(content: str, code: str) -> str:
    colours = is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\x1b[{code}m{content}\x1b[0m" if colours else content


def findings(found: Sequence[Finding]) -> None:
    """Show findings, the gravest first, in the order of the text within a level."""
    ordered = sorted(found, key=lambda finding: _ORDER[finding.level])
    if is_terminal():
        _table(("where", "level", "code", "what"), [_finding_cells(finding) for finding in ordered])
    else:
        for finding in ordered:
            _line(finding_line(finding))


def finding_line(finding: Finding) -> str:
    """One finding as one line, the way compilers write them."""
    where = f"{finding.at}: " if finding.at else ""
    hint = f" ({finding.advice})" if finding.advice else ""
    return " ".join(f"{where}{finding.level}: {finding.message}{hint} [{finding.code}]".splitlines())


def _finding_cells(finding: Finding) -> Row:
    what = finding.message + (f"\n-> {finding.advice}" if finding.advice else "")
    where = str(finding.at) if finding.at else ""
    level = text(f"level-{finding.level}")
    return ((where, ""), (level, _STYLES[finding.level]), (finding.code, ""), (what, ""))


def accounting(report: Report, *, verbose: bool = False) -> None:
    """Show where every source leaf went, and what was found on the way, such as what the target had to assume.

    Args:
        report: of a translation.
        verbose: every key in a line, and where every leaf of the target came from; otherwise what was not simply converted,
            with one line for keys that have one reason.
    """
    _line(headline(report))
    if verbose and report.reason:
        _line(text("detected", framework=report.dialect, reason=report.reason))
    if report.errors:
        findings(report.findings)
        return
    told = lines(report, every=verbose)
    for heading in dict.fromkeys(line.heading for line in told):
        _section(heading, [_line_cells(line) for line in told if line.heading == heading])
    if verbose and report.origins:
        _section(text("rank-written"), [_origin_cells(entry) for entry in report.origins])


def _section(heading: str, rows: Sequence[Row]) -> None:
    """The lines of one rank under its heading."""
    _line(_coloured(f"{heading}:", "1"))
    if is_terminal():
        _table(("where", "", "what"), rows)
    else:
        for row in rows:
            _line(_row_line(*(content for content, _ in row)))


def headline(report: Report) -> str:
    """The shares of the buckets in one line; of a failure only that it is one."""
    total = len(report.accounting)
    way = " -> ".join(part for part in (report.dialect, report.target) if part)
    if report.errors:
        count = len(report.errors)
        return text("report-failed", way=way, count=count) if way else text("report-unreadable")
    shares = [
        text("report-share", count=count, bucket=bucket, share=f"{count / total:.0%}")
        for bucket, count in report.shares().items()
        if count
    ]
    keys = text("report-keys", way=way, count=total)
    return text("report-shares", keys=keys, shares=", ".join(shares)) if shares else keys


def _line_cells(line: Line) -> Row:
    """The place, the kind, and the text of a line."""
    advice = f" ({line.advice})" if line.advice and line.advice not in line.note else ""
    if line.finding is not None:
        style = _STYLES[line.finding.level]
        content = f"{line.note}{advice} [{line.finding.code}]"
    else:
        style = _BUCKET_STYLES.get(line.entries[0].bucket, "")
        content = f"{line.keys}{_values(line.entries)}" + (f": {line.note}" if line.note else "") + advice
    return ((str(line.at) if line.at else "", ""), (line.kind, style), (content, ""))


def _values(entries: Sequence[Entry]) -> str:
    """What one key became; of several only the reason is shown."""
    if len(entries) > 1:
        return ""
    targets = ", ".join(f"{key}: {shown(value)}" for key, value in entries[0].targets)
    return f" = {shown(entries[0].value)}" + (f" -> {targets}" if targets else "")


def _origin_cells(entry: OriginEntry) -> Row:
    content = f"{entry.key} = {shown(entry.value)}" + (f": {entry.note}" if entry.note else "")
    return (("", ""), (str(entry.origin), "magenta"), (content, ""))


def _row_line(where: str, kind: str, content: str) -> str:
    place = f"{where}: " if where else ""
    return " ".join(f"{place}{kind}: {content}".splitlines())


def shown(value: Any) -> str:
    """A value in one short line, as YAML spells it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    content = " ".join(str(value).split())
    return content if len(content) <= _LONGEST_VALUE else content[: _LONGEST_VALUE - 3] + "..."


def _table(titles: Sequence[str], rows: Sequence[Row]) -> None:
    """A table whose last column wraps and whose others do not; the place is left off where no row has one."""
    if not rows:
        return
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    if not any(row[0][0] for row in rows):
        titles, rows = titles[1:], [row[1:] for row in rows]
    titles = [text(f"column-{title}") if title else "" for title in titles]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    widths = [
        max(cell_len(content) for content in (title, *lines))
        for title, lines in zip(titles, _columns(rows), strict=True)
    ]
    for title, width in zip(titles[:-1], widths[:-1], strict=True):
        table.add_column(title, no_wrap=True, min_width=width)
    table.add_column(titles[-1], overflow="fold")
    for row in rows:
        table.add_row(*(Text(content, style) for content, style in row))
    show(table, at_least=sum(widths[:-1]) + 2 * len(titles) + _LAST_COLUMN)


def _columns(rows: Sequence[Row]) -> list[list[str]]:
    return [[row[index][0] for row in rows] for index in range(len(rows[0]))]


def show(*renderables: RenderableType, at_least: int = 0) -> None:
    """Print renderables on stderr, on lines of at least so many columns."""
    screen = console()
    if screen.width < at_least:
        screen = console(width=at_least)
    screen.print(*renderables, sep="\n")
