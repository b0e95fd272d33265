"""What every buffer does, wherever it keeps what it holds.

    explorer ── put(groups) ──▶ Buffer ── take(count) ──▶ trainer

A prompt's group of responses (``RolloutGroup``) goes in whole and comes out whole. ``capacity`` counts responses. All methods
may be called from several threads; buffers in a database or in files may be used by several processes too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rlctl.common.errors import RunError
from rlctl.runtime.experience.samples import RolloutGroup


class BufferTimeout(RunError):
    """A reader waited as long as it may."""


class Buffer(Protocol):
    """Where groups wait between exploration and training."""

    def put(self, groups: Sequence[RolloutGroup]) -> None:
        """Add groups in order; while there is no room, wait for as long as it takes.

        There is room where a reader waits for more groups than are there, whatever the capacity.

        Raises:
            StopRequested: the run is asked to end.
        """
        ...

    def take(self, count: int, *, oldest_version: int = 0) -> list[RolloutGroup]:
        """Take ``count`` groups, waiting for them where need be; fewer only where writing has ended and no more will come.

        Args:
            count: groups.
            oldest_version: groups with a response of an older weight version are left out, and counted as dropped.

        Raises:
            BufferTimeout: nothing came for ``buffer.read_timeout``; the message says what was waited for and what is there.
            StopRequested: the run is asked to end.
        """
        ...

    def end_writing(self) -> None:
        """This writer puts no more; readers that find the buffer empty wait no longer once every writer has said so."""
        ...

    def statistics(self) -> Statistics:
        """What waits, and what went through."""
        ...

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds of the buffer, as plain data: contents (memory), or this side's position (database, files)."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a state; a buffer that no state is given to is at its first.

        What was taken after it can be taken again; what was put after it, and is put again, is there once.
        """
        ...

    def acknowledge(self, state: dict[str, Any]) -> None:
        """The checkpoint with this state is on the disk: what was taken before it never comes back."""
        ...

    def close(self) -> None:
        """Leave; what is not acknowledged can be taken by others."""
        ...


class SharedBuffer(Buffer, Protocol):
    """A buffer that outlives its processes, by which a run that explores and a run that trains know each other."""

    def listened(self) -> bool:
        """Whether somebody who writes has yet to end, and so wants new weights."""
        ...

    def announce(self, version: int, folder: Path) -> None:
        """New weights are in a folder, in Hugging Face format."""
        ...

    def announced(self) -> tuple[int, Path] | None:
        """Version and folder of the newest weights; None where nobody announced any."""
        ...


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a buffer holds, and what this process put and took."""

    waiting: int
    """Responses that can be taken."""
    put: int
    """Groups."""
    taken: int
    """Groups."""
    dropped: int
    """Groups that were too old when they would have been taken, or had no place."""
    reused: int
    """Groups taken that had been taken before."""

    def metrics(self) -> dict[str, float]:
        """The same as a step's metrics."""
        return {
            "buffer/responses_waiting": float(self.waiting),
            "buffer/groups_dropped": float(self.dropped),
            "buffer/groups_reused": float(self.reused),
        }


POLL_SECONDS = 0.2
"""How often who waits looks whether the run is asked to end."""


def never() -> bool:
    """Nobody asks to end."""
    return False


def responses_in(group: RolloutGroup) -> int:
    """The room that a group takes."""
    return len(group.responses)


def number_of(group: RolloutGroup, place: int) -> int:
    """By which a group that is put again is known: its own number, or the writer's count of groups before it."""
    return place if group.draw is None else group.draw


def version_of(group: RolloutGroup) -> int:
    """The oldest weight version that drew a response of a group."""
    return min((response.oldest_version for response in group.responses), default=0)
