"""Asynchronous against synchronous training on responses whose lengths have a long tail; generation and training are simulated.

    python benchmarks/asynchronous.py [--steps 8] [--devices 8] [--rollout-devices 2]

Scheduling is rlctl's own: the same exploration, scheduler and buffer as in a run. An engine decodes up to ROWS responses at
once, each a token every TOKEN seconds, and takes the next when one ends; a step of training sleeps for what its tokens cost.

    synchronous    all devices draw a step, then all devices train on it
    asynchronous   some devices draw, the others train; responses under way go on under new weights
"""

from __future__ import annotations

import argparse
import math
import random
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any

from rlctl.config import config_from
from rlctl.runtime.buffers.memory import MemoryBuffer
from rlctl.runtime.data.stream import Ordering, Stream
from rlctl.runtime.experience.samples import training_sampling
from rlctl.runtime.experience.shaping import Shaping
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.rollout.interface import Finished
from rlctl.runtime.schedules.draws import Draws
from rlctl.runtime.schedules.exploration import Exploration
from rlctl.runtime.schedules.scheduler import Scheduler
from rlctl.runtime.types import Prompt, Request, Response

PROMPTS, RESPONSES = 64, 8
ROWS = 64
TOKEN = 2e-4
LONGEST = 16_384
TRAINING_SHARE = 0.25
"""Of a synchronous step, as long as all devices generate and train in turns."""


def length_of(row: int, place: int) -> int:
    """Log-normal: a median of 1,000 tokens, one response in forty above 7,000, none above ``LONGEST``."""
    return min(LONGEST, round(1_000 * math.exp(random.Random(f"{row}/{place}").gauss(0.0, 1.0))))


class Engine:
    """Rows that each give a token every ``TOKEN`` seconds."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, int, int]] = deque()
        self.running: dict[tuple[int, int], tuple[float, int]] = {}
        """By ticket and place, when it ends, and its version."""

    def take(self, ticket: int, request: Request) -> None:
        for place in range(request.first, request.first + request.n):
            self.waiting.append((ticket, place, length_of(request.token_ids[0], place)))

    def work(self, now: float, version: int) -> list[Finished]:
        done: list[Finished] = []
        while True:
            free_at = min((until for until, _ in self.running.values()), default=now)
            began = now if len(self.running) < ROWS and free_at > now else min(free_at, now)
            while self.waiting and len(self.running) < ROWS:
                ticket, place, length = self.waiting.popleft()
                self.running[ticket, place] = (began + length * TOKEN, version)
            over = [key for key, (until, _) in self.running.items() if until <= now]
            if not over:
                return done
            first = min(over, key=lambda key: self.running[key][0])
            _, begun = self.running.pop(first)
            response = Response((1,), (0.0,), "stop", version, None if begun == version else begun)
            done.append(Finished(*first, response))


class Engines:
    """All engines, on the clock of the wall."""

    def __init__(self, count: int) -> None:
        self.engines, self.version = [Engine() for _ in range(count)], 0

    def __len__(self) -> int:
        return len(self.engines)

    def stream(
        self, requests: Sequence[dict[int, Request]], aborted: Sequence[int], seconds: float
    ) -> list[list[Finished] | None]:
        for engine, asked in zip(self.engines, requests, strict=True):
            for ticket, request in asked.items():
                engine.take(ticket, request)
        time.sleep(seconds)
        return [engine.work(time.monotonic(), self.version) for engine in self.engines]

    def sleep(self) -> None:
        """They have no memory to give back."""


def score(prompts: Sequence[Prompt], answers: Sequence[Sequence[Response]]) -> list[list[Score]]:
    return [[Score(float(place)) for place, _ in enumerate(group)] for group in answers]


@contextmanager
def phase(name: str) -> Iterator[None]:
    yield


def seconds_a_step(schedule: dict[str, Any], engines: int, train_seconds: float, steps: int) -> tuple[float, float]:
    """Seconds of a step, the first two left out, and the mean staleness in steps."""
    batch = {"prompts_per_step": PROMPTS, "responses_per_prompt": RESPONSES}
    config = config_from({"batch": batch, "model": {"path": "m"}, **schedule})
    drawn = [Prompt(index=row, source="s", token_ids=(row,), text="") for row in range(PROMPTS * (steps + 8))]
    draws = Draws(Stream([drawn], per_step=PROMPTS, ordering=Ordering(order="sequential")))
    buffer, simulated, shaping = MemoryBuffer(stopped=threading.Event().is_set), Engines(engines), Shaping.of(config)
    scheduler = Scheduler(
        config, "main", draws, training_sampling(config, ()), simulated, score, shaping, lambda one: buffer.put([one])
    )
    source = Exploration(config, scheduler, draws, buffer, shaping, None, total_steps=steps + 4)
    ends, staleness = [], []
    for step in range(steps + 1):
        if step:
            explored = source.take(step, phase)
            ages = [step - 1 - each.oldest_version for group in explored.kept for each in group.responses]
            staleness.append(fmean(ages))
            time.sleep(train_seconds)
            source.trained(step)
        with source.new_weights(step, step, phase):
            simulated.version = step
        ends.append(time.monotonic())
    source.close()
    return (ends[-1] - ends[2]) / (steps - 2), fmean(staleness[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--rollout-devices", type=int, default=2, help="of them, where rollout has its own")
    chosen = parser.parse_args()
    longest = [
        max(length_of(row, place) for row in range(step * PROMPTS, (step + 1) * PROMPTS) for place in range(RESPONSES))
        for step in range(chosen.steps)
    ]
    train = fmean(longest) * TOKEN * TRAINING_SHARE / (1 - TRAINING_SHARE)
    training = chosen.devices - chosen.rollout_devices
    train_apart = train * chosen.devices / training
    together = {"reward_loop": {"overlap_with_rollout": True}}
    apart = {
        "placement": {"layout": "split"},
        "weight_sync": {"max_steps_ahead": 2, "max_staleness_steps": 8, "in_flight_requests": "continue"},
    }
    before, fresh = seconds_a_step(together, chosen.devices, train, chosen.steps)
    after, stale = seconds_a_step(apart, chosen.rollout_devices, train_apart, chosen.steps)
    for name, seconds, age, trains, count in (
        ("synchronous", before, fresh, train, chosen.devices),
        ("asynchronous", after, stale, train_apart, training),
    ):
        print(
            f"{name:13} {seconds:5.2f} s a step, {trains:.2f} s of them training on {count}; responses {age:.1f} steps old"
        )
    print(f"ratio {before / after:.2f}")


if __name__ == "__main__":
    main()
