"""The real scheduler and exploration on simulated engines, whose responses take a known time on a clock of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlctl.config import Config, config_from
from rlctl.runtime.data.stream import Ordering, Stream
from rlctl.runtime.experience.samples import RolloutGroup
from rlctl.runtime.experience.shaping import Shaping
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.rollout.interface import Finished
from rlctl.runtime.schedules.draws import Draws
from rlctl.runtime.schedules.scheduler import Scheduler
from rlctl.runtime.specs.experience import failures_of, generation_spec, scheduler_spec, shaping_spec
from rlctl.runtime.types import Prompt, Request, Response

ROWS = 48
Takes = Callable[[int, int], float]
"""Seconds that a response takes, by the row of its prompt and its place in the group."""


@dataclass
class Engines:
    """Engines that work on all that they are given at once."""

    takes: Takes = lambda row, place: 1.0
    count: int = 1
    version: int = 0
    now: float = 0.0
    begun: list[int] = field(default_factory=list)
    """Rows, in the order in which they were asked for first."""
    given_up: list[int] = field(default_factory=list)
    lose: set[int] = field(default_factory=set)
    """Engines that lose their work at the next call."""
    most: int = 0
    """Responses under way at once, at most."""
    requests: int = 0
    slept: int = 0
    wall_seconds: float = 0.0
    """Real time that a call takes."""
    _under_way: list[dict[tuple[int, int], tuple[float, int, int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._under_way = [{} for _ in range(self.count)]

    def __len__(self) -> int:
        return self.count

    def clock(self) -> float:
        return self.now

    def stream(
        self, requests: Sequence[dict[int, Request]], aborted: Sequence[int], seconds: float
    ) -> list[list[Finished] | None]:
        for engine, asked in enumerate(requests):
            mine = self._under_way[engine]
            for key in [key for key in mine if key[0] in aborted]:
                self.given_up.append(mine.pop(key)[2])
            for ticket, request in asked.items():
                self.requests += 1
                row = request.token_ids[0]
                self.begun += [row] * (row not in self.begun)
                for place in range(request.first, request.first + request.n):
                    mine[ticket, place] = (self.now + self.takes(row, place), self.version, row)
        self.most = max(self.most, sum(map(len, self._under_way)))
        self.now += seconds
        time.sleep(self.wall_seconds)
        return [self._finished(engine) for engine in range(self.count)]

    def sleep(self) -> None:
        self.slept += 1

    def _finished(self, engine: int) -> list[Finished] | None:
        mine = self._under_way[engine]
        if engine in self.lose:
            self.lose.discard(engine)
            mine.clear()
            return None
        done = sorted(key for key, (until, _, _) in mine.items() if until <= self.now)
        return [Finished(ticket, place, self._response(mine.pop((ticket, place)))) for ticket, place in done]

    def _response(self, of: tuple[float, int, int]) -> Response:
        _, version, row = of
        first = None if version == self.version else version
        return Response((row,), (-0.5,), "stop", self.version, first)


def score(prompts: Sequence[Prompt], answers: Sequence[Sequence[Response]]) -> list[list[Score]]:
    """Responses to rows that 3 divides are all right, others differ."""
    return [
        [Score(1.0 if prompt.index % 3 == 0 else float(place)) for place, _ in enumerate(responses)]
        for prompt, responses in zip(prompts, answers, strict=True)
    ]


def stream(per_step: int) -> Any:
    rows = [Prompt(index=row, source="s", token_ids=(row,), text="") for row in range(ROWS)]
    return Stream([rows], per_step=per_step, ordering=Ordering(order="sequential", last_batch="carry"))


def configured(**sections: Any) -> Config:
    """Two prompts a step, two responses each."""
    base: dict[str, Any] = {"batch": {"prompts_per_step": 2, "responses_per_prompt": 2}, "model": {"path": "m"}}
    return config_from({**base, **sections})


@dataclass
class Simulation:
    """A scheduler, driven by hand."""

    config: Config
    engines: Engines
    groups: list[RolloutGroup] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draws = Draws(stream(self.config.batch.prompts_per_step))
        self.scheduler = Scheduler(
            scheduler_spec(self.config, generation_spec(self.config, "main", ())),
            self.draws,
            self.engines,
            score,
            Shaping.of(shaping_spec(self.config)),
            failures_of(self.config, self.told.append),
            self.groups.append,
            tell=self.told.append,
            clock=self.engines.clock,
        )

    @property
    def rows(self) -> list[int]:
        """Those whose groups were handed on, in order."""
        return [group.prompt.index for group in self.groups]

    def until(self, there: int, *, horizon: int = 0) -> None:
        """Let as many groups be begun as there shall be, or more, and time pass until they are there."""
        end = self.engines.now + 100.0
        while self.scheduler.there < there and self.engines.now < end:
            self.scheduler.begin(max(there, horizon) - self.scheduler.there)
            self.scheduler.pump(0.5)
            self.scheduler.finish_scoring()
