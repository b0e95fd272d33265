"""An estimate of memory: what takes how much of one device."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 2**30
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One thing that takes memory."""

    name: str
    gib: float


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Memory of one role on one of its devices, at its peak."""

    role: str
    parts: tuple[MemoryPart, ...]

    @property
    def gib(self) -> float:
        """Their sum."""
        return sum(part.gib for part in self.parts)

    def part(self, name: str) -> float:
        """GiB of one part, 0 where there is none."""
        return sum(part.gib for part in self.parts if part.name == name)
