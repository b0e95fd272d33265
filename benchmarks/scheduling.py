"""What the scheduler does for each prompt, however many are in flight: it should cost the same.

    python benchmarks/scheduling.py                          # 1,024 and 16,384 prompts in flight, over 64 and 1,024 engines
    python benchmarks/scheduling.py --in-flight 256 4096

The real ``Scheduler`` and ``Draws``, with engines that hold what they are given and finish a few responses a call, in random
order; the first prompt finishes last. Processor time, of which the engines' own is subtracted.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence

from rlctl.config import config_from
from rlctl.runtime.data.stream import Ordering, Stream
from rlctl.runtime.experience.samples import RolloutGroup, training_sampling
from rlctl.runtime.experience.shaping import Shaping
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.rollout.interface import Finished
from rlctl.runtime.schedules.draws import Draws
from rlctl.runtime.schedules.scheduler import Scheduler
from rlctl.runtime.types import Prompt, Request, Response

RESPONSES = 2
PER_CALL = 64
"""Responses that finish in one call of all engines."""


class Engines:
    """Engines that finish what they hold in random order."""

    def __init__(self, count: int) -> None:
        self._count, self._chance = count, random.Random(0)
        self._held: list[tuple[int, int, int]] = []
        """Engine, ticket and place of each response under way."""
        self.away = 0.0

    def __len__(self) -> int:
        return self._count

    def stream(
        self, requests: Sequence[dict[int, Request]], aborted: Sequence[int], seconds: float
    ) -> list[list[Finished] | None]:
        began = time.process_time()
        for engine, asked in enumerate(requests):
            for ticket, request in asked.items():
                self._held += [(engine, ticket, place) for place in range(request.first, request.first + request.n)]
        found: list[list[Finished] | None] = [[] for _ in range(self._count)]
        for _ in range(min(PER_CALL, len(self._held) - RESPONSES)):
            chosen = self._chance.randrange(RESPONSES, len(self._held))  # the first prompt's stay
            self._held[chosen], self._held[-1] = self._held[-1], self._held[chosen]
            engine, ticket, place = self._held.pop()
            of_engine = found[engine]
            assert of_engine is not None
            of_engine.append(Finished(ticket, place, Response((1,), (0.0,), "stop", 0)))
        self.away += time.process_time() - began
        return found

    def sleep(self) -> None:
        """They have no memory to give back."""


def score(prompts: Sequence[Prompt], answers: Sequence[Sequence[Response]]) -> list[list[Score]]:
    return [[Score(float(place)) for place, _ in enumerate(group)] for group in answers]


def microseconds_a_prompt(in_flight: int, engines: int, prompts: int) -> float:
    """Of the controller, with so many prompts in flight all the time."""
    batch = {"prompts_per_step": 64, "responses_per_prompt": RESPONSES}
    ahead = {"weight_sync": {"in_flight_requests": "continue", "max_steps_ahead": in_flight}}
    late = {"rollout": {"timeouts": {"response": 1e6}}}  # so that late prompts are looked for
    config = config_from(
        {"batch": batch, "model": {"path": "m"}, "reward_loop": {"overlap_with_rollout": False}, **ahead, **late}
    )
    rows = [Prompt(index=row, source="s", token_ids=(1,), text="") for row in range(in_flight + 2 * prompts)]
    draws = Draws(Stream([rows], per_step=64, ordering=Ordering(order="sequential")))
    handed: list[RolloutGroup] = []
    simulated = Engines(engines)
    sampling = training_sampling(config, ())
    scheduler = Scheduler(config, "main", draws, sampling, simulated, score, Shaping.of(config), handed.append)
    scheduler.begin(in_flight)
    scheduler.pump(0.0)
    began, away = time.process_time(), simulated.away
    while scheduler.handed_on < prompts:
        scheduler.begin(in_flight)
        scheduler.pump(0.0)
    own = time.process_time() - began - (simulated.away - away)
    return own / prompts * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--in-flight", type=int, nargs=2, default=(1024, 16384))
    parser.add_argument("--engines", type=int, nargs="+", default=(64, 1024))
    parser.add_argument("--prompts", type=int, default=8192, help="finished in each measurement")
    chosen = parser.parse_args()
    for engines in chosen.engines:
        few, many = (microseconds_a_prompt(count, engines, chosen.prompts) for count in chosen.in_flight)
        print(
            f"{engines:5d} engines: {few:.0f} us a prompt with {chosen.in_flight[0]:,} in flight, "
            f"{many:.0f} us with {chosen.in_flight[1]:,}: ratio {many / few:.2f}"
        )


if __name__ == "__main__":
    main()
