"""Prompts drawn one by one, with numbers, from a stream that gives batches; a position from which none is lost or doubled."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from typing import Any

from rlctl.runtime.data.open import PromptStream
from rlctl.runtime.types import Prompt


class Draws:
    """The prompts of a stage, numbered from 0 in the order of the stream.

    A prompt is open from when it is drawn until it is told to be over. What a checkpoint holds is the stream before the
    first batch with an open prompt and the numbers that are open: they are drawn again.
    """

    def __init__(self, stream: PromptStream) -> None:
        self._stream = stream
        self._drawn = 0
        self._marks: deque[tuple[int, dict[str, Any]]] = deque()
        """The first number of each batch that may have open prompts, and the stream before it."""
        self._open: dict[int, Prompt] = {}
        self._lowest = 0
        """At most the lowest open number: it only moves up, so that finding that number costs nothing."""
        self._next: list[int] = []
        """Open prompts that nobody works on, lowest number first."""

    @property
    def epoch(self) -> int:
        """Epochs that are over."""
        return self._stream.epoch

    @property
    def first_open(self) -> int:
        """The lowest number that is not over."""
        while self._lowest < self._drawn and self._lowest not in self._open:
            self._lowest += 1
        return self._lowest

    def feedback(self, mean_rewards: Mapping[int, float]) -> None:
        """What each prompt's responses were worth, for an order that goes by it."""
        self._stream.feedback(mean_rewards)

    def next(self) -> tuple[int, Prompt]:
        """The next prompt, those given back first, and its number."""
        if not self._next:
            self._draw()
        number = heapq.heappop(self._next)
        return number, self._open[number]

    def _draw(self) -> None:
        self._marks.append((self._drawn, self._stream.state()))
        for prompt in self._stream.next_batch():
            self._open[self._drawn] = prompt
            heapq.heappush(self._next, self._drawn)
            self._drawn += 1

    def give_back(self, number: int) -> None:
        """Nobody works on a prompt any more; it is drawn again."""
        heapq.heappush(self._next, number)

    def over(self, number: int) -> None:
        """A prompt is over: its group is in the buffer, or is left out for good."""
        del self._open[number]
        first = self.first_open
        while self._marks and (self._marks[1][0] if len(self._marks) > 1 else self._drawn) <= first:
            self._marks.popleft()

    def state(self) -> dict[str, Any]:
        """The position, as plain data."""
        first, stream = self._marks[0] if self._marks else (self._drawn, self._stream.state())
        return {"stream": stream, "first": first, "drawn": self._drawn, "open": sorted(self._open)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a position."""
        self._stream.restore(dict(state["stream"]))
        self._drawn, still_open = state["first"], set(state["open"])
        self._lowest = self._drawn
        self._marks.clear()
        self._open, self._next = {}, []
        while self._drawn < state["drawn"]:
            self._draw()
        self._open = {number: prompt for number, prompt in self._open.items() if number in still_open}
        self._next = sorted(self._open)
