"""What a synchronous step loses because engines get equal shares at its start: the same step with requests held back.

    python benchmarks/shares.py [--rounds 5]

Scheduling only, in simulated time. An engine runs up to a number of responses at a time, a token each in every unit of time, and
takes the next one when one ends. Held back, a group goes to the engine with the least to do, once it has less than it runs at a
time. Lengths are log-normal (median 1,000 tokens, at most 16,384); half of their variance is between prompts.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
from collections import deque
from statistics import fmean

LONGEST = 16_384
CASES = (
    (256, 8, 8, 1024),
    (1024, 16, 8, 1024),
    (512, 16, 8, 256),
    (512, 16, 8, 64),
    (2048, 16, 64, 256),
    (1024, 16, 64, 64),
)
"""Prompts, responses to each, engines, and how many responses an engine runs at a time: vLLM's default is 1,024 on an H100 and
256 on an A100, and a full cache of keys and values may leave 64 long ones."""


def make_lengths(prompts: int, responses: int, seed: int) -> list[list[int]]:
    """Tokens of each response, by group."""
    chance, spread = random.Random(seed), math.sqrt(0.5)
    groups = []
    for _ in range(prompts):
        own = chance.gauss(0.0, spread)
        groups.append(
            [min(LONGEST, round(1_000 * math.exp(own + chance.gauss(0.0, spread)))) for _ in range(responses)]
        )
    return groups


def time_of(groups: list[list[int]], engines: int, at_once: int, *, held: bool) -> tuple[float, float]:
    """When the last response ends, and the share of that time until which engines have something to do, in the mean."""
    left, now = deque(groups), 0.0
    waiting: list[deque[int]] = [deque() for _ in range(engines)]
    running: list[list[float]] = [[] for _ in range(engines)]
    ended = [0.0] * engines

    def load(engine: int) -> int:
        return len(waiting[engine]) + len(running[engine])

    def hand_out() -> None:
        while left:
            engine = min(range(engines), key=load)
            if held and load(engine) >= at_once:
                break
            waiting[engine].extend(left.popleft())
        for own, begun in zip(waiting, running, strict=True):
            while own and len(begun) < at_once:
                heapq.heappush(begun, now + own.popleft())

    hand_out()
    while any(running):
        engine = min((each for each in range(engines) if running[each]), key=lambda each: running[each][0])
        now = ended[engine] = heapq.heappop(running[engine])
        hand_out()
    return now, fmean(ended) / now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    for prompts, responses, engines, at_once in CASES:
        found = [make_lengths(prompts, responses, seed) for seed in range(rounds)]
        equal = [time_of(groups, engines, at_once, held=False) for groups in found]
        held = [time_of(groups, engines, at_once, held=True) for groups in found]
        gain = fmean(one / other for (one, _), (other, _) in zip(equal, held, strict=True))
        print(
            f"{prompts} x {responses} on {engines} engines, {at_once} at a time: equal shares take {gain:.3f} times as long; "
            f"their engines are busy until {fmean(share for _, share in equal):.0%} of the time"
        )


if __name__ == "__main__":
    main()
