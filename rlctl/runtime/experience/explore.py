"""Exploration: prompts of the data set become groups of scored responses, the ones to train on chosen by filters.

    prompts ──▶ requests ──▶ responses ──▶ rewards ──▶ filters ──▶ groups
       ▲                                                  │
       └───────────── further prompts, where too few are left

Training takes groups from a ``GroupSource`` and does not know how they were made: ``Explorer`` makes a step's when asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.batch import Oversampling
from rlctl.planning.rollout_schedule import SyncSchedule
from rlctl.runtime.data.open import PromptStream
from rlctl.runtime.evaluation.response_files import Keeper, Shown
from rlctl.runtime.experience.failures import Failures
from rlctl.runtime.experience.recorded import Generates
from rlctl.runtime.experience.samples import RolloutGroup, requests_for
from rlctl.runtime.experience.shaping import Shaping
from rlctl.runtime.reporting.metrics import agent_metrics, group_metrics, response_metrics, reward_metrics
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.roles import Rewards, texts_of
from rlctl.runtime.types import Prompt, Request, Response, Sampling

MOST_REPLACED = 10
"""How often the prompts of failed groups are replaced in a round."""
Phase = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class StepRollouts:
    """The groups of a step."""

    kept: list[RolloutGroup]
    """Those to train on."""
    drawn: list[RolloutGroup]
    """All that were drawn for them: the kept ones, and those that a filter left out."""
    metrics: dict[str, float]


class GroupSource(Protocol):
    """Where training takes its groups from, and what keeps rollout and training in step."""

    failure: Exception | None
    """What work in the background failed of; raised by whatever is called next too."""

    def more(self, step: int, phase: Phase) -> bool:
        """Whether there is anything to take for a step; waits until that is known."""
        ...

    def take(self, step: int, phase: Phase) -> StepRollouts:
        """The groups of a step; ``phase(name)`` is a context that times a part of the work."""
        ...

    def trained(self, version: int) -> None:
        """The policy has new weights."""
        ...

    def sync_due(self, step: int) -> bool:
        """Whether rollout gets new weights after a step."""
        ...

    def new_weights(self, step: int, version: int, phase: Phase) -> AbstractContextManager[None]:
        """Within, engines can be given the weights of a step; what is under way is as ``weight_sync.in_flight_requests`` says."""
        ...

    def paused(self) -> AbstractContextManager[None]:
        """Within, nothing is drawn: engines and rewards are free for others."""
        ...

    def state(self) -> dict[str, Any]:
        """Its position, as plain data."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved position."""
        ...

    def saved(self) -> None:
        """The checkpoint with the last ``state`` is on the disk."""
        ...

    def finished(self) -> None:
        """The stage is over."""
        ...

    def close(self) -> None:
        """End work in the background."""
        ...


class SynchronousSource:
    """The part of a source that draws in ``take`` only."""

    schedule: SyncSchedule
    failure: Exception | None = None

    def more(self, step: int, phase: Phase) -> bool:
        return True

    def trained(self, version: int) -> None:
        """Nothing depends on it: all that is drawn is trained on at once."""

    def sync_due(self, step: int) -> bool:
        return self.schedule.due(step)

    def new_weights(self, step: int, version: int, phase: Phase) -> AbstractContextManager[None]:
        return nullcontext()

    def paused(self) -> AbstractContextManager[None]:
        return nullcontext()

    def saved(self) -> None:
        """Nothing was taken from others."""

    def finished(self) -> None:
        """Nobody waits for more."""

    def close(self) -> None:
        """Nothing goes on."""


@dataclass(frozen=True, slots=True)
class GenerationSpec:
    """What is generated for the steps of a stage."""

    stage: str
    """Its name: responses are random by it, by the step and by the place of their prompt."""
    sampling: Sampling
    prompts_per_step: int
    responses_per_prompt: int
    oversampling: Oversampling
    greedy: bool
    """Whether the estimator compares with a greedy response to each prompt."""
    seed: int

    def requests(self, prompts: list[Prompt], purpose: str, *, further: int = 0, first: int = 0) -> list[Request]:
        """For the group of each prompt, and ``further`` responses; ``first`` is the place of the first prompt."""
        n = self.responses_per_prompt + further
        return requests_for(prompts, self.sampling, n=n, seed=self.seed, purpose=purpose, first=first)

    def greedy_requests(self, prompts: list[Prompt], purpose: str, *, first: int = 0) -> list[Request]:
        """For a greedy response to each prompt."""
        purpose = f"{purpose}:greedy"
        return requests_for(prompts, self.sampling, n=1, seed=self.seed, purpose=purpose, first=first, greedy=True)


@dataclass(frozen=True)
class Explorer(SynchronousSource):
    """Draws and scores the groups of a step when they are asked for, whole rounds of prompts at a time."""

    spec: GenerationSpec
    schedule: SyncSchedule
    stream: PromptStream
    rollout: Generates
    rewards: Rewards
    shaping: Shaping
    """Its filters of groups."""
    keeper: Keeper | None = None
    """Gets every response of a step."""
    failures: Failures | None = None
    """Says what becomes of trajectories that failed; None if nothing can fail."""

    def take(self, step: int, phase: Phase) -> StepRollouts:
        """The groups of a step.

        Raises:
            RunError: filters left too few groups in as many rounds as the config allows.
        """
        drawn, kept, rounds = self._explore(step, phase)
        self.rollout.sleep()
        self.stream.feedback(dict(self.shaping.operators.pass_rates(mean_rewards(drawn))))
        if self.keeper is not None:
            keep_responses(step, drawn, self.keeper, self.rewards.tokenizer)
        metrics = {"data/epoch": float(self.stream.epoch), **metrics_of(drawn), **self.shaping.operators.metrics()}
        if self.shaping.drops:
            metrics |= {"filter/kept_groups_share": len(kept) / len(drawn), "filter/rounds": float(rounds)}
        if self.failures is not None:
            metrics |= self.failures.metrics()
        return StepRollouts(kept, drawn, metrics)

    def _explore(self, step: int, phase: Phase) -> tuple[list[RolloutGroup], list[RolloutGroup], int]:
        """All groups of a step, those that its filters keep, and in how many rounds they were drawn."""
        wanted, limits = self.spec.prompts_per_step, self.spec.oversampling
        size = (limits.generation_batch_prompts or wanted) if self.shaping.refills else wanted
        drawn: list[RolloutGroup] = []
        kept: list[RolloutGroup] = []
        for rounds in itertools.count(1):
            found = self._whole_round(size, f"{self.spec.stage}:{step}" + (f":{rounds}" * (rounds > 1)), phase)
            drawn += found
            kept += self.shaping.kept_groups(found)
            if not self.shaping.refills or len(kept) >= wanted:
                return drawn, kept[:wanted], rounds
            if rounds == limits.max_generation_batches:
                break
        raise RunError(
            said(
                "{rounds} rounds of {size} prompts left {count} groups after filtering; a step needs {wanted}",
                rounds=rounds,
                size=size,
                count=len(kept),
                wanted=wanted,
            ),
            hint="raise rollout.oversampling.max_generation_batches, or use prompts that are neither too easy nor too hard",
        )

    def _whole_round(self, size: int, purpose: str, phase: Phase) -> list[RolloutGroup]:
        """The groups of ``size`` prompts, and of others instead of those whose group is dropped because agents failed.

        Raises:
            RunError: prompts were replaced too often.
        """
        found: list[RolloutGroup] = []
        for again in range(MOST_REPLACED):
            more = self.stream.take(size - len(found))
            found += self._round(more, purpose + (f":failed:{again}" * (again > 0)), phase)
            if len(found) == size:
                return found
        raise RunError(
            said(
                "prompts of {purpose} were replaced {most_replaced} times, because trajectories of their groups failed",
                purpose=purpose,
                most_replaced=MOST_REPLACED,
            ),
            hint="fix the cause, lower stop_run_above_failures of the agent, or set its on_failure to drop_response or zero",
        )

    def _round(self, prompts: list[Prompt], purpose: str, phase: Phase) -> list[RolloutGroup]:
        """Answer and score prompts; greedily too where the estimator compares with that."""
        greedy = self.spec.greedy
        with phase("rollout"):
            answers = self.rollout.generate(self.spec.requests(prompts, purpose))
            if self.failures is not None:
                settled = [
                    (prompt, self.failures.kept(prompt, own)) for prompt, own in zip(prompts, answers, strict=True)
                ]
                prompts = [prompt for prompt, own in settled if own is not None]
                answers = [own for _, own in settled if own is not None]
            best = self.rollout.generate(self.spec.greedy_requests(prompts, purpose)) if greedy else []
        with phase("reward"):
            scores = self.rewards.score(prompts, answers)
            best_scores = self.rewards.score(prompts, best) if greedy else []
        baselines: list[tuple[Response, Score] | None] = [None] * len(prompts)
        if greedy:
            baselines = [(responses[0], found[0]) for responses, found in zip(best, best_scores, strict=True)]
        return [
            RolloutGroup(prompt, responses, [score.total for score in group], group, baseline)
            for prompt, responses, group, baseline in zip(prompts, answers, scores, baselines, strict=True)
        ]

    def state(self) -> dict[str, Any]:
        return self.stream.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self.stream.restore(dict(state))


def mean_rewards(drawn: Sequence[RolloutGroup]) -> dict[int, float]:
    """The mean reward of each prompt, by its number in the data."""
    rewards: dict[int, list[float]] = {}
    for item in drawn:
        rewards.setdefault(item.prompt.index, []).extend(item.rewards)
    return {number: sum(found) / len(found) for number, found in rewards.items()}


def keep_responses(step: int, drawn: Sequence[RolloutGroup], keeper: Keeper, tokenizer: Any) -> None:
    """Give every response of a step to a keeper."""
    texts = texts_of([item.responses for item in drawn], tokenizer)
    keeper.keep(step, 0, 0, [Shown(item.prompt, text, item.scores) for item, text in zip(drawn, texts, strict=True)])
    keeper.close()


def metrics_of(drawn: Sequence[RolloutGroup]) -> dict[str, float]:
    """Lengths, groups and rewards of the responses of a step."""
    responses = [response for item in drawn for response in item.responses]
    groups = [group for group, item in enumerate(drawn) for _ in item.responses]
    rewards = [reward for item in drawn for reward in item.rewards]
    lengths = [len(response.token_ids) for response in responses]
    truncated = [response.finish_reason == "length" for response in responses]
    scores = [score for item in drawn for score in item.scores]
    return {
        **response_metrics(lengths, truncated),
        **group_metrics(rewards, groups),
        **reward_metrics(rewards, [s.components for s in scores], [s.error for s in scores]),
        **agent_metrics([response.counts for response in responses if response.turns]),
    }
