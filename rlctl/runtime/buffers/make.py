"""The buffer that the section ``buffer`` describes, opened for one stage of a run."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.common.whole_files import write_whole
from rlctl.config.sections.execution import Buffer as Section
from rlctl.config.sections.execution import FileBuffer as FileSection
from rlctl.config.sections.execution import MemoryBuffer as MemorySection
from rlctl.config.sections.execution import SqlBuffer as SqlSection
from rlctl.runtime.buffers.files import FileBuffer
from rlctl.runtime.buffers.interface import Buffer, SharedBuffer, Statistics, never
from rlctl.runtime.buffers.memory import MemoryBuffer
from rlctl.runtime.buffers.replay import Reuse
from rlctl.runtime.experience.samples import RolloutGroup

LABEL = "responses"
"""Name of a buffer whose section gives none."""


def check_buffer(section: Section) -> None:
    """Refuse a buffer that cannot be used, before a worker is started.

    Raises:
        RunError: its database cannot be used.
        PlanError: no rule replays as the section asks.
    """
    Reuse.of(section.replay)
    if isinstance(section, SqlSection) and section.url is not None and not section.url.startswith("sqlite"):
        _database(section.url, section.label or LABEL, "").close()


def make_buffer(section: Section, place: Path, *, seed: int, stopped: Callable[[], bool] = never) -> Buffer:
    """The buffer of a stage, at its beginning.

    Args:
        section: of the stage.
        place: where the stage keeps its checkpoints; this member's name is kept there too.
        seed: of the run; groups that are replayed are drawn by it.
        stopped: tells that the run is asked to end.

    Raises:
        RunError: it cannot be used.
        PlanError: no rule replays as the section asks.
    """
    if not isinstance(section, MemorySection):
        return shared_buffer(section, place, seed=seed, stopped=stopped)
    memory = MemoryBuffer(
        capacity=section.capacity,
        read_timeout=section.read_timeout,
        reuse=Reuse.of(section.replay),
        seed=seed,
        stopped=stopped,
    )
    if section.log_path is None:
        return memory
    return Copied(memory, shared_buffer(section, place, seed=seed, stopped=stopped))


def shared_buffer(section: Section, place: Path, *, seed: int, stopped: Callable[[], bool] = never) -> SharedBuffer:
    """A buffer in a database or in files, or the copy of one in memory.

    Arguments and raises as ``make_buffer``.
    """
    member = member_of(place)
    if isinstance(section, MemorySection):
        assert section.log_path is not None, "only a buffer in memory is not shared"
        if "://" in section.log_path:
            return _database(section.log_path, section.label or LABEL, member, stopped=stopped)
        return FileBuffer(Path(section.log_path).expanduser(), member, stopped=stopped)
    if isinstance(section, SqlSection):
        return _database(
            section.url or f"sqlite:///{place / 'buffer.db'}",
            section.label or LABEL,
            member,
            capacity=section.capacity,
            read_timeout=section.read_timeout,
            reuse=Reuse.of(section.replay),
            seed=seed,
            stopped=stopped,
        )
    assert isinstance(section, FileSection), "there are three kinds of buffers"
    path = Path(section.path).expanduser() if section.path else place / "buffer.jsonl"
    return FileBuffer(path, member, read_timeout=section.read_timeout, stopped=stopped)


def _database(url: str, label: str, member: str, **settings: Any) -> SharedBuffer:
    from rlctl.runtime.buffers.sql import SqlBuffer

    return SqlBuffer(url, label, member, **settings)


def member_of(place: Path) -> str:
    """The name of a stage in the buffers that it writes or reads: made once, and the same whenever it is resumed.

    Raises:
        RunError: it cannot be written down.
    """
    file = place / "buffer-member"
    try:
        if not file.exists():
            place.mkdir(parents=True, exist_ok=True)
            write_whole(file, f"{place.parent.parent.name}-{place.name}-{uuid.uuid4().hex[:12]}")
        return file.read_text()
    except OSError as error:
        raise RunError(
            said("{file} cannot be written: {value}", file=file, value=error.strerror or error),
            hint="set run.folder to a folder that this user can write to",
        ) from error


@dataclass(frozen=True)
class Copied:
    """A buffer, and a copy of all that is put (``log_path``); what is put again after a resume is there once."""

    buffer: Buffer
    copy: Buffer

    def put(self, groups: Sequence[RolloutGroup]) -> None:
        self.copy.put(groups)
        self.buffer.put(groups)

    def take(self, count: int, *, oldest_version: int = 0) -> list[RolloutGroup]:
        return self.buffer.take(count, oldest_version=oldest_version)

    def end_writing(self) -> None:
        self.copy.end_writing()
        self.buffer.end_writing()

    def statistics(self) -> Statistics:
        return self.buffer.statistics()

    def state(self) -> dict[str, Any]:
        return {"buffer": self.buffer.state(), "copy": self.copy.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.buffer.restore(state.get("buffer", {}))
        self.copy.restore(state.get("copy", {}))

    def acknowledge(self, state: dict[str, Any]) -> None:
        self.buffer.acknowledge(state["buffer"])

    def close(self) -> None:
        self.copy.close()
        self.buffer.close()
