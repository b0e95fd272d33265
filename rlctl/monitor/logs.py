"""The logs of a run's processes: read from their ends, then bit by bit as they grow, with what looks like an error known."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlctl.common.regular_files import LONGEST_LINE, open_regular
from rlctl.common.terminal import without_controls

TAIL = 256 << 10
"""Bytes of a log that are read when it is opened; what stands before them is read when it is asked for."""
CHUNK = 1 << 20
"""Bytes that are read at a time afterwards."""
KEPT = 20_000
"""Lines that are kept, the last ones."""
LONGEST = 2000
"""Characters of a line that are kept."""

_ERROR = re.compile(
    r"traceback \(most recent call last\)|\b(error|exception|critical|fatal|panic|segmentation fault)\b|^\s*raise "
    r"|(?-i:\b[A-Z]\w*(Error|Exception)\b)|out of memory|\bOOM\b|\bkilled\b",
    re.IGNORECASE,
)
_WARNING = re.compile(r"\bwarn(ing)?\b|(?-i:\b[A-Z]\w*Warning\b)", re.IGNORECASE)
_NO_ERROR = re.compile(r"\b(0|no) (errors?|exceptions?|failures?)\b|logging_level|log_level", re.IGNORECASE)
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log of a run."""

    name: str
    """``policy-0``; of logs by node, with the node before it."""
    path: Path
    size: int


def logs_of(run: Path) -> list[LogFile]:
    """The logs in a run folder, the controller's first; without those that are empty."""
    folder = run / "logs"
    found = []
    for path in folder.rglob("*.log"):
        try:
            size = path.stat().st_size
        except OSError:
            continue
        if size:
            found.append(LogFile(str(path.relative_to(folder).with_suffix("")), path, size))
    return sorted(found, key=lambda log: (log.name != "controller", log.name))


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line, without colors and controls of a terminal."""

    text: str
    level: str
    """``error``, ``warning``, or empty."""


def line_of(text: str) -> LogLine:
    """A line with what it looks like."""
    shown = without_controls(_SEQUENCE.sub("", text.rsplit("\r", 1)[-1].expandtabs(4)))[:LONGEST]
    if _ERROR.search(shown) and not _NO_ERROR.search(shown):
        return LogLine(shown, "error")
    return LogLine(shown, "warning" if _WARNING.search(shown) else "")


def readable(text: str) -> str:
    """A text of several lines, as ``line_of`` has each."""
    return "\n".join(line_of(line).text for line in text.split("\n"))


class LogTail:
    """The end of a log, and what comes after it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: deque[LogLine] = deque(maxlen=KEPT)
        self.told = 0
        """Lines read so far, also those that are not kept any more."""
        self.skipped = 0
        """Bytes before what was read."""
        self._position: int | None = None
        self._rest = b""

    def poll(self) -> bool:
        """Read what is new, about ``CHUNK`` bytes at most; whether there was something.

        A file that has become shorter was begun anew, and is read anew.

        Raises:
            OSError: the file cannot be read.
        """
        size = self.path.stat().st_size
        if self._position is None or size < self._position:
            self._begin(max(0, size - TAIL))
        with open_regular(self.path) as file:
            file.seek(self._position or 0)
            block = file.read(CHUNK)
        self._position = (self._position or 0) + len(block)
        whole, newline, rest = (self._rest + block).rpartition(b"\n")
        self._rest = rest[-CHUNK:]  # a bar of progress may go on without an end
        if newline:
            self._take(whole.split(b"\n"))
        return bool(block)

    def earlier(self) -> None:
        """Begin again further before the end, twice as far as now.

        Raises:
            OSError: the file cannot be read.
        """
        size = self.path.stat().st_size
        back = max(TAIL, 2 * (size - self.skipped))
        self._begin(max(0, size - back))
        while self.poll():
            pass

    def _begin(self, position: int) -> None:
        self.lines.clear()
        self.told, self._rest, self._position, self.skipped = 0, b"", 0, 0
        if position:
            with open_regular(self.path) as file:
                file.seek(position)
                file.readline(LONGEST_LINE)  # the line in the middle of which that is
                self._position = self.skipped = file.tell()

    def _take(self, lines: list[bytes]) -> None:
        self.lines.extend(line_of(line.decode(errors="replace").rstrip("\r")) for line in lines[-KEPT:])
        self.told += len(lines)

    def matching(self, wanted: str, *, level: str = "") -> list[LogLine]:
        """The lines that are kept in which an expression is found, or these letters; of one level where it is named."""
        passes = finder(wanted)
        return [line for line in self.lines if level in ("", line.level) and passes(line.text)]


def finder(wanted: str) -> Callable[[str], object]:
    """Whether a text has an expression in it; letters as they are where it is none."""
    try:
        return re.compile(wanted, re.IGNORECASE).search
    except re.error:
        return re.compile(re.escape(wanted), re.IGNORECASE).search
