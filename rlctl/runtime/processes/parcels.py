"""Large arguments that differ by worker, in one object of Ray's store: every worker fetches it and unpacks its own part.

    controller ── ray.put(part 0 ‖ part 1 ‖ …) ──▶ store ── fetch ──▶ worker i unpacks part i

An object costs the controller some milliseconds, however many workers fetch it, and Ray copies it to each machine once.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Parcel:
    """One worker's part of an object in Ray's store."""

    handle: Any
    """Ray's, on the bytes of all parts."""
    start: int
    stop: int

    def fetch(self) -> Any:
        """Unpack this part, in the worker that it is for."""
        import ray

        return pickle.loads(ray.get(self.handle)[self.start : self.stop])


def parcels(values: Sequence[Any]) -> list[Parcel]:
    """Put values into Ray's store as one object, and return a parcel for each."""
    import ray

    packed = [pickle.dumps(value, protocol=5) for value in values]
    handle = ray.put(np.frombuffer(b"".join(packed), np.uint8))  # an array, which workers of a machine read in place
    bounds = pairwise(accumulate(map(len, packed), initial=0))
    return [Parcel(handle, start, stop) for start, stop in bounds]
