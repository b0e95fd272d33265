"""New events of a run, read bit by bit from its ``events.jsonl``, also while it is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

CHUNK = 4 << 20
"""Bytes read at a time, so that a long log is taken up in turns with other work."""
KIND_WITHIN = 80
"""Bytes of a line in which its kind stands, as the runtime writes it: ``{"time": 1763712000.1, "kind": "step", ...``."""


@dataclass(frozen=True, slots=True)
class Line:
    """A whole line of the log."""

    offset: int
    """Of its first byte in the file."""
    text: bytes

    def event(self) -> dict[str, Any] | None:
        """The event; None for what is no event: a line damaged by a crash or by a disk that was full."""
        try:
            found = orjson.loads(self.text)
        except ValueError:
            return None
        return found if isinstance(found, dict) and isinstance(found.get("kind"), str) else None


class EventLog:
    """Reads on where it was. A line that is not whole yet comes when it is; a log that was begun anew is read anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        """Bytes read, whole lines only."""
        self._identity: tuple[int, int] | None = None

    @property
    def size(self) -> int:
        """Bytes of the file; 0 where there is none."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def begun_anew(self) -> bool:
        """Whether another file is there now, or a shorter one; reading then starts over."""
        try:
            found = self.path.stat()
        except OSError:
            return False
        identity = (found.st_dev, found.st_ino)
        anew = self._identity is not None and (identity != self._identity or found.st_size < self.position)
        if anew:
            self.position = 0
        self._identity = identity
        return anew

    def read(self, most: int = CHUNK, *, passing_over: str = "", before: int = 0) -> Iterator[Line]:
        """The whole lines after the last one, of about ``most`` bytes; none where nothing is new.

        Events of the kind ``passing_over`` that stand before the byte ``before`` are not among them.

        Raises:
            OSError: the file is there and cannot be read.
        """
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self.position)
            block = file.read(most)
            if block and not block.endswith(b"\n"):
                block += file.readline()  # a line longer than a chunk comes whole too
        old = b'"kind": "%s"' % passing_over.encode()
        whole, newline, _ = block.rpartition(b"\n")
        for text in (whole + newline).splitlines(keepends=True):
            offset, self.position = self.position, self.position + len(text)
            if offset >= before or old not in text[:KIND_WITHIN]:
                yield Line(offset, text)
