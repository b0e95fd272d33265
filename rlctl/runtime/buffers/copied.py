"""A buffer whose groups are written down elsewhere too as they go in (``buffer<memory>.log_path``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlctl.runtime.buffers.interface import Buffer, Statistics
from rlctl.runtime.experience.samples import RolloutGroup


@dataclass(frozen=True)
class Copied:
    """A buffer, and another one that gets a copy of all that is put; what is put again after a resume is there once."""

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
