"""An estimate of memory: what takes how much of one device."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 2**30
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
LEAST_SHOWN = 0.05
"""GiB of the smallest part that is named: a smaller one would be shown as 0.0."""


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

    @property
    def least(self) -> float:
        """GiB that it cannot do without: the KV cache takes what is left of a device."""
        return self.gib - self.part("cache")

    @property
    def is_little(self) -> bool:
        """Whether it is too little to be shown as a number with its parts."""
        return self.gib < 2 * LEAST_SHOWN

    @property
    def shown_parts(self) -> tuple[MemoryPart, ...]:
        """The parts that are named."""
        return tuple(part for part in self.parts if part.gib >= LEAST_SHOWN)

    def part(self, name: str) -> float:
        """GiB of one part, 0 where there is none."""
        return sum(part.gib for part in self.parts if part.name == name)
