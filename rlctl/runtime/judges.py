"""What other workers say of responses: reward models, and the judge that the run serves, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from rlctl.config.sections.rewards import Reward
from rlctl.planning import arithmetic
from rlctl.runtime.processes.group import Group, RetryPolicy
from rlctl.runtime.rewards.interface import Failure, Outcome
from rlctl.runtime.workers.judge import JudgeWorker
from rlctl.runtime.workers.reward import RewardItem


class Modelled(Protocol):
    """Workers that compute some of the rewards."""

    def score(self, items: Sequence[RewardItem]) -> dict[int, list[Outcome | Failure]]:
        """What each of these rewards says of the responses that it applies to, in order, by its position in the config."""
        ...


@dataclass(frozen=True)
class Judges:
    """The judge of a config, on engines that share the prompts."""

    group: Group
    rewards: Sequence[Reward]
    """All of the config."""
    again: RetryPolicy | None = None
    """How an engine that is lost is replaced."""

    def score(self, items: Sequence[RewardItem]) -> dict[int, list[Outcome | Failure]]:
        """See ``Modelled``; the responses of a prompt, which may be compared, go to one engine."""
        count = len(self.group)
        applying = [item.applying(self.rewards) for item in items]
        shares: list[dict[int, list[RewardItem]]] = [{} for _ in range(count)]
        turns: dict[int, list[int]] = {}
        for i, reward in enumerate(self.rewards):
            if not arithmetic.is_served_here(reward):
                continue
            own = [item for item, applies in zip(items, applying, strict=True) if i in applies]
            turns[i] = [item.group % count for item in own]
            for rank, share in enumerate(shares):
                share[i] = [item for item, turn in zip(own, turns[i], strict=True) if turn == rank]
        calls = [({i: [item.call for item in own] for i, own in share.items()},) for share in shares]
        parts = self.group.each(JudgeWorker.score, calls, again=self.again)
        found = {i: [iter(part[i]) for part in parts] for i in turns}
        return {i: [next(found[i][turn]) for turn in order] for i, order in turns.items()}


@dataclass(frozen=True)
class SideBySide:
    """Several of them at the same time."""

    parts: Sequence[Modelled]

    def score(self, items: Sequence[RewardItem]) -> dict[int, list[Outcome | Failure]]:
        """See ``Modelled``."""
        with ThreadPoolExecutor(max_workers=len(self.parts)) as threads:
            found = list(threads.map(lambda part: part.score(items), self.parts))
        return {i: outcomes for part in found for i, outcomes in part.items()}
