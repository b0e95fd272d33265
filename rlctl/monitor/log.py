"""New events of a run, read bit by bit from its ``events.jsonl``, also while it is written."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from rlctl.common.messages.recorded import with_reasons
from rlctl.common.regular_files import LONGEST_LINE, open_regular

CHUNK = 1 << 20
"""Bytes read at a time, so that a long log is taken up in turns with other work, out of the processor's cache."""
KIND_WITHIN = 80
"""Bytes of a line in which its kind stands, as the runtime writes it: ``{"time": 1763712000.1, "kind": "step", ...``."""
HEAD = 64
"""Bytes by which a log is known again."""


class EventLog:
    """Reads on where it was. A line that is not whole yet comes when it is; a log that was begun anew is read anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        """Bytes read, whole lines only."""
        self._head = b""
        """How the log begins, with the time of its first event: what another one in its place does not share."""

    @property
    def size(self) -> int:
        """Bytes of the file; 0 where there is none."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def begun_anew(self) -> bool:
        """Whether another log is there now, or a shorter one; reading then starts over.

        Raises:
            OSError: the file is there and cannot be read.
        """
        if not self.path.exists():
            return False
        with open_regular(self.path) as file:
            head = file.read(HEAD)
        anew = not head.startswith(self._head) or self.size < self.position
        if anew:
            self.position = 0
        self._head = head
        return anew

    def skip_to(self, position: int) -> None:
        """Pass over what stands before the first line that begins at or after a byte.

        Raises:
            OSError: the file cannot be read.
        """
        with open_regular(self.path) as file:
            file.seek(max(0, position - 1))
            if position > 0:
                file.readline()
            self.position = file.tell()

    def read(self, most: int = CHUNK, *, passing_over: str = "", before: int = 0) -> list[dict[str, Any]]:
        """The events after the last one, of whole lines, of about ``most`` bytes; none where nothing is new.

        Events of the kind ``passing_over`` that stand before the byte ``before`` are not among them.

        Raises:
            OSError: the file is there and cannot be read.
        """
        if not self.path.exists():
            return []
        with open_regular(self.path) as file:
            file.seek(self.position)
            block = file.read(most)
            if block and not block.endswith(b"\n"):
                block += file.readline(LONGEST_LINE)  # a line longer than a chunk comes whole too
        whole = block.rfind(b"\n") + 1
        if not whole and len(block) >= LONGEST_LINE:
            self.position += len(block)
            return self.read(most, passing_over=passing_over, before=before)
        cut = block.find(b"\n", before - self.position - 1, whole) + 1 or whole if before > self.position else 0
        self.position += whole
        kind = b'"kind": "%s"' % passing_over.encode()
        lines = [line for line in block[:cut].splitlines() if line.find(kind, 0, KIND_WITHIN) < 0]
        lines += block[cut:whole].splitlines()
        events = (event for event in _parsed(lines) if isinstance(event, dict) and isinstance(event.get("kind"), str))
        return [with_reasons(event) for event in events]


def _parsed(lines: list[bytes]) -> list[Any]:
    """Parse JSON lines: together, or one by one where one is damaged, as after a crash or on a full disk."""
    with suppress(ValueError):
        together = orjson.loads(b"[%b]" % b",".join(lines))
        if len(together) == len(lines):
            return list(together)
    found = []
    for line in lines:
        with suppress(ValueError):
            found.append(orjson.loads(line))
    return found
