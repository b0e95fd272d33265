"""Small groups for tests of buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlctl.runtime.buffers.interface import Buffer
from rlctl.runtime.experience.samples import RolloutGroup
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.types import Prompt, Response


def group(index: int, *, n: int = 2, version: int = 0) -> RolloutGroup:
    """A group that its prompt's index tells from others."""
    responses = [Response((index, j, 2), (-0.1, -0.2 - j, -1 / 3), "stop", version) for j in range(n)]
    rewards = [float(j % 2) for j in range(n)]
    scores = [Score(reward, {"rule": reward}, bool(reward)) for reward in rewards]
    return RolloutGroup(Prompt(index, "sums", (1, 40), "1+1=", "2", {"tag": "a"}), responses, rewards, scores)


def indices(groups: Sequence[RolloutGroup]) -> list[int]:
    """Which groups these are."""
    return [each.prompt.index for each in groups]


def put_in_order(buffer: Buffer, numbers: Sequence[int]) -> None:
    """Put groups one by one, as they finish; each has its index as its number among all that are drawn."""
    for number in numbers:
        buffer.put([replace(group(number), draw=number)])
