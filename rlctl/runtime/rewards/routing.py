"""Which rewards score which prompt, and what their scores add up to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from rlctl.common.errors import RunError, nearest_and
from rlctl.common.messages.reasons import lines_of, said
from rlctl.config.sections.rewards import Reward
from rlctl.runtime.rewards.interface import Failure, Outcome
from rlctl.runtime.types import Prompt


@dataclass(frozen=True, slots=True)
class Score:
    """The reward of one response.

    Example: ``Score(total=1.1, components={"math": 1.0, "format": 0.2}, correct=True)`` with weights 1 and 0.5.
    """

    total: float
    """Sum of weight times score over the rewards that apply."""
    components: dict[str, float] = field(default_factory=dict)
    """Every reward's score by its name, not weighted, and its further numbers as ``<name>/<number>``."""
    correct: bool | None = None
    """Whether every reward that can tell says that the answer is right; None where none can."""
    error: str | None = None
    """Why a reward that failed counts as 0 (``on_error: zero``)."""
    vote: str | None = None
    """What the response answers, as the first reward that tells says."""


def rewards_for(prompt: Prompt, rewards: Sequence[Reward], *, required: bool = True) -> list[int]:
    """Which rewards score a prompt: the one its source names, else those whose ``applies_to`` has its source or tag.

    Args:
        prompt: ``extra["reward"]`` names the reward, ``extra["tag"]`` is the tag.
        rewards: all of the config.
        required: whether one must apply.

    Returns:
        Their positions, at least one if ``required``.

    Raises:
        RunError: none applies, or there is none of that name.
    """
    named = prompt.extra.get("reward")
    if named is not None:
        found = [i for i, reward in enumerate(rewards) if reward.name == named]
        if not found:
            names = [reward.name for reward in rewards]
            raise RunError(
                said(
                    "the data source {source!r} names the reward {named!r}; expected one of {names}",
                    source=prompt.source,
                    named=named,
                    names=", ".join(names),
                ),
                hint=nearest_and(named, names, "set data.train[].reward to one of these"),
            )
        return found
    labels = (prompt.source, str(prompt.extra.get("tag")))
    found = [i for i, reward in enumerate(rewards) if _covers(reward.applies_to, labels)]
    if not found and required:
        covered = "; ".join(
            said("{name} applies to {names}", name=reward.name, names=", ".join(reward.applies_to or ()))
            for reward in rewards
        )
        tag = said(" with the tag {extra!r}", extra=prompt.extra["tag"]) if "tag" in prompt.extra else ""
        raise RunError(
            said(
                "no reward scores prompts of the data source {source!r}{tag}: {value}",
                source=prompt.source,
                tag=tag,
                value=covered or "the config has no rewards",
            ),
            hint="add it to the applies_to of a reward, or add a reward without applies_to",
        )
    return found


def _covers(names: Sequence[str] | None, labels: Sequence[str]) -> bool:
    """Whether one of the names is one of the labels; a ``*`` in a name stands for any text."""
    if names is None:
        return True
    return any(name == label or ("*" in name and _pattern(name).fullmatch(label)) for name in names for label in labels)


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in name.split("*")), re.DOTALL)


def combine(outcomes: Mapping[int, Outcome | Failure], rewards: Sequence[Reward]) -> Score:
    """Add up what the rewards say of one response; a failure counts as 0.

    Args:
        outcomes: by the reward's position.
        rewards: all of the config.
    """
    total, components, verdicts, errors, votes = 0.0, {}, [], [], []
    for i, outcome in outcomes.items():
        name = rewards[i].name
        if isinstance(outcome, Failure):
            errors.append(said("{name}: {message}", name=name, message=outcome.message))
            components[name] = 0.0
            continue
        total += rewards[i].weight * outcome.score
        components[name] = outcome.score
        components |= {f"{name}/{key}": value for key, value in outcome.metrics.items()}
        verdicts += [outcome.correct] if outcome.correct is not None else []
        votes += [outcome.vote] if outcome.vote is not None else []
    correct = all(verdicts) if verdicts else None
    return Score(total, components, correct, lines_of(errors) or None, votes[0] if votes else None)
