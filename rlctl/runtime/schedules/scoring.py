"""Complete groups are scored: at once, or in a thread of their own while the engines go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlctl.runtime.experience.samples import RolloutGroup
from rlctl.runtime.rewards import routing
from rlctl.runtime.types import Prompt, Response

Score = Callable[[Sequence[Prompt], Sequence[Sequence[Response]]], list[list[routing.Score]]]
"""Gives the scores of each prompt's responses (``roles.Rewards.score``)."""


@dataclass(slots=True)
class Flight:
    """A prompt under way."""

    number: int
    prompt: Prompt
    began: float
    """Seconds that engines had worked by then."""
    tickets: set[int] = field(default_factory=set)
    """Requests that are not answered yet."""
    responses: dict[int, Response] = field(default_factory=dict)
    best: Response | None = None
    """The greedy response."""

    @property
    def group(self) -> list[Response]:
        """Its responses, in order."""
        return [self.responses[index] for index in sorted(self.responses)]


class Scoring:
    """One scoring at a time, of all groups that are complete then."""

    def __init__(self, score: Score, *, in_thread: bool) -> None:
        self._score, self._in_thread = score, in_thread
        self._done = threading.Event()
        self._flights: Sequence[Flight] = ()
        self._groups: list[RolloutGroup] = []
        self._error: Exception | None = None

    @property
    def busy(self) -> bool:
        """Whether something is scored, or is and was not taken away."""
        return bool(self._flights)

    def start(self, flights: Sequence[Flight]) -> None:
        """Score groups; nothing else may be under way."""
        self._flights = flights
        self._done.clear()
        if self._in_thread:
            threading.Thread(target=self._run, name="scoring", daemon=True).start()
        else:
            self._run()

    def _run(self) -> None:
        try:
            prompts = [flight.prompt for flight in self._flights]
            scores = self._score(prompts, [flight.group for flight in self._flights])
            greedy = [flight for flight in self._flights if flight.best is not None]
            best = self._score([each.prompt for each in greedy], [[each.best] for each in greedy]) if greedy else []  # type: ignore[list-item]
            baselines: dict[int, Any] = {
                each.number: (each.best, found[0]) for each, found in zip(greedy, best, strict=True)
            }
            self._groups = [
                RolloutGroup(
                    each.prompt, each.group, [score.total for score in found], found, baselines.get(each.number)
                )
                for each, found in zip(self._flights, scores, strict=True)
            ]
        except Exception as error:  # noqa: BLE001 - it is raised where the groups are waited for
            self._error = error
        finally:
            self._done.set()

    def finished(self, *, wait: bool) -> list[tuple[Flight, RolloutGroup]]:
        """The groups that are scored, once all are; none before. What scoring raised is raised here."""
        if not self._flights or not (self._done.wait() if wait else self._done.is_set()):
            return []
        error, self._error = self._error, None
        found, self._flights = list(zip(self._flights, self._groups, strict=False)), ()
        if error is not None:
            raise error
        return found
