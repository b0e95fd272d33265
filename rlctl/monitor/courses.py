"""The rewards of prompts over the steps that show them, and the worst responses of a whole run.

Only the first line of each file is read, which has the prompts and their rewards.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

WORST = 50
"""Most responses of the list of a run's worst."""

PromptKey = tuple[str, int]
"""The source of a prompt and its number in it."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The rewards of a prompt's responses at a step; ``place`` is that of its group in the file."""

    step: int
    prompt: PromptKey
    place: int
    rewards: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean of the rewards that are known."""
        return fmean(reward for reward in self.rewards if not math.isnan(reward))


@dataclass(frozen=True, slots=True)
class Courses:
    """The rewards of each prompt of a stage, in the order of the steps."""

    by_prompt: Mapping[PromptKey, tuple[Shown, ...]]

    def of(self, source: str, prompt_id: int | None) -> tuple[Shown, ...]:
        """The rewards of one prompt over the steps; nothing of a prompt without a number."""
        return () if prompt_id is None else self.by_prompt.get((source, prompt_id), ())

    def extremes(self) -> tuple[float, float]:
        """The lowest and highest mean reward of a prompt at a step, so that strips of several prompts share one scale."""
        means = [shown.mean for course in self.by_prompt.values() for shown in course]
        return min(means, default=0.0), max(means, default=0.0)

    def worst(self, most: int = WORST) -> list[tuple[int, int, int]]:
        """Step, place of the group and place in the group of the responses with the lowest rewards; of equal ones the
        newest."""
        each = (
            (reward, -shown.step, shown.place, place)
            for course in self.by_prompt.values()
            for shown in course
            for place, reward in enumerate(shown.rewards)
            if not math.isnan(reward)
        )
        return [(-step, group, place) for _, step, group, place in sorted(each)[:most]]


def courses(heads: Iterable[tuple[int, Mapping[str, Any]]]) -> Courses:
    """The courses of the steps whose first lines are given."""
    found: dict[PromptKey, list[Shown]] = {}
    for step, head in heads:
        for shown in _shown(step, head):
            found.setdefault(shown.prompt, []).append(shown)
    return Courses({prompt: tuple(course) for prompt, course in found.items()})


def _shown(step: int, head: Mapping[str, Any]) -> Iterator[Shown]:
    groups = head.get("groups")
    for place, group in enumerate(groups if isinstance(groups, list) else []):
        told = group if isinstance(group, dict) else {}
        number, rewards = told.get("prompt_id"), told.get("rewards")
        if not isinstance(number, int) or not isinstance(rewards, list) or not rewards:
            continue
        values = tuple(float(value) if isinstance(value, (int, float)) else math.nan for value in rewards)
        if not all(map(math.isnan, values)):
            yield Shown(step, (str(told.get("source", "")), number), place, values)
