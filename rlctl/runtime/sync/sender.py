"""The train worker's side of a weight sync: gather tensors, send them, one bucket a call."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from rlctl.runtime.sync.bucket import Named, parts_and_last
from rlctl.runtime.sync.transport import WeightSender


class Message(NamedTuple):
    """A bucket as engines get it."""

    content: Any
    """Of the transport."""
    last: bool
    """Whether the engines then have all weights."""


class Sender:
    """Gives the weights of now out, bucket by bucket."""

    def __init__(self, tensors: Iterator[Named], outlet: WeightSender, *, bucket_bytes: int) -> None:
        """
        Args:
            tensors: as ``TrainEngine.export_weights`` yields them; run to their end, as the other workers wait for it.
            outlet: the end that sends.
            bucket_bytes: of a bucket at most; a larger tensor is alone in its own.
        """
        self._tensors = tensors
        self._parts = parts_and_last(tensors, bucket_bytes)
        self._outlet = outlet

    def next(self) -> Message | None:
        """The message of the next bucket; None where all were sent."""
        part, last = next(self._parts, (None, True))
        return None if part is None else Message(self._outlet.send(part), last)

    def end(self) -> None:
        """Nothing more is asked for: run to the end what was not, and keep nothing."""
        deque(self._tensors, maxlen=0)
        self._outlet.clear()
