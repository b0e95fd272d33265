"""Where a step's training samples come from: rollout, the data set, or both."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from rlctl.config import Config
from rlctl.errors import RunError
from rlctl.runtime.data.open import PairStream, PromptStream, SftStream
from rlctl.runtime.experience import Answered, requests_for, samples_of
from rlctl.runtime.keeping import Keeper, Shown
from rlctl.runtime.metrics import group_metrics, response_metrics, reward_metrics
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.roles import Policy, ReferencePolicy, Rewards, RolloutEngines, texts_of
from rlctl.runtime.selection import needs_greedy
from rlctl.runtime.shaping import Shaping
from rlctl.runtime.train.distillation import Teaching, into_advantages
from rlctl.runtime.types import Prompt, Request, Response, Sample, Sampling
from rlctl.runtime.value_model import ValueModel

Phase = Callable[[str], AbstractContextManager[None]]
SHOWN_SAMPLES = 4
"""Groups of each step whose responses go to the event log."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a step trains on."""

    samples: list[Sample]
    metrics: dict[str, float]
    shown: list[dict[str, Any]]
    """A few responses with their rewards, for people."""


class Gather(Protocol):
    """A source of training samples whose position can be saved."""

    def gather(self, step: int, phase: Phase) -> Gathered:
        """The samples of a step; ``phase(name)`` is a context that times a part of the work."""
        ...

    def state(self) -> dict[str, Any]:
        """The data position, as plain data."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved position."""
        ...


class NoGather:
    """Of a stage without steps (evaluate_only)."""

    def gather(self, step: int, phase: Phase) -> Gathered:
        raise AssertionError("a stage that only evaluates has no steps")

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """There is no position to go to."""


@dataclass(frozen=True)
class DataGather:
    """Training sequences straight from the data set (sft)."""

    stream: SftStream
    tokenizer: Any
    on_prompt: bool = False
    """Whether prompts are learnt too (distillation)."""

    def gather(self, step: int, phase: Phase) -> Gathered:
        with phase("data"):
            samples = self.stream.next_batch()
        for sample in samples if self.on_prompt else ():
            sample.mask = torch.arange(len(sample)) > 0
        shown = [self._shown(sample) for sample in samples[:SHOWN_SAMPLES]] if step == 1 else []
        return Gathered(samples, {"data/epoch": float(self.stream.epoch)}, shown)

    def _shown(self, sample: Sample) -> dict[str, Any]:
        trained = sample.token_ids[sample.mask]
        return {"sequence": self.tokenizer.decode(sample.token_ids), "trained_on": self.tokenizer.decode(trained)}

    def state(self) -> dict[str, Any]:
        return self.stream.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.stream.restore(state)


@dataclass(frozen=True)
class PairGather:
    """Preference pairs from the data set, with the reference's log-probs (dpo): chosen, rejected, chosen, ..."""

    stream: PairStream
    tokenizer: Any
    reference: ReferencePolicy

    def gather(self, step: int, phase: Phase) -> Gathered:
        with phase("data"):
            pairs = self.stream.next_batch()
        samples = [sample for pair in pairs for sample in pair]
        with phase("reference"):
            self.reference.add_log_probs(samples)
        shown = [self._shown(*pair) for pair in pairs[:SHOWN_SAMPLES]] if step == 1 else []
        return Gathered(samples, {"data/epoch": float(self.stream.epoch)}, shown)

    def _shown(self, chosen: Sample, rejected: Sample) -> dict[str, Any]:
        decode = self.tokenizer.decode
        responses = {
            name: decode(each.token_ids[each.mask]) for name, each in (("chosen", chosen), ("rejected", rejected))
        }
        return {"prompt": decode(chosen.token_ids[: int(chosen.mask.int().argmax())]), **responses}

    def state(self) -> dict[str, Any]:
        return self.stream.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.stream.restore(state)


@dataclass(frozen=True)
class RolloutGather:
    """Responses of the policy to prompts of the data set, with their advantages (rl)."""

    config: Config
    stage: str
    stream: PromptStream
    sampling: Sampling
    rollout: RolloutEngines
    rewards: Rewards
    policy: Policy
    reference: ReferencePolicy | None
    old_is_current: bool
    """Whether the pass for the old policy's log-probs is left out (see ``build.old_is_current``)."""
    shaping: Shaping
    critic: ValueModel | None = None
    keeper: Keeper | None = None
    """Gets every response of a step."""

    def gather(self, step: int, phase: Phase) -> Gathered:
        answered, kept, rounds = self._answered(step, phase)
        if self.keeper is not None:
            self._keep(step, answered, self.keeper)
        samples = samples_of(kept, train_on_cut_prompts=self.config.data.truncated_prompts_train)
        if not self.old_is_current:
            with phase("old_log_probs"):
                self._add_old_log_probs(samples)
        if self.reference is not None:
            with phase("reference"):
                self.reference.add_log_probs(samples)
        if self.critic is not None:
            with phase("values"):
                self.critic.add_values(samples)
        teaching = Teaching.of(self.config)
        if teaching is not None and not teaching.compares:
            with phase("teacher"):
                self.policy.add_teacher_log_probs(samples)
        with phase("advantages"):
            shaped = self.shaping.shape(samples, kept)
            if teaching is not None and teaching.policy_gradient:
                shaped |= into_advantages(teaching, samples)
            samples = self.shaping.redrawn(samples, kept, step=step)
        metrics = self._metrics(answered) | shaped
        if self.config.algorithm.filters:
            metrics |= {"filter/kept_groups_share": len(kept) / len(answered), "filter/rounds": float(rounds)}
        return Gathered(samples, metrics, self._shown(kept or answered))

    def _keep(self, step: int, answered: list[Answered], keeper: Keeper) -> None:
        texts = texts_of([item.responses for item in answered], self.rewards.tokenizer)
        keeper.keep(
            step, 0, 0, [Shown(item.prompt, text, item.scores) for item, text in zip(answered, texts, strict=True)]
        )
        keeper.close()

    def _answered(self, step: int, phase: Phase) -> tuple[list[Answered], list[Answered], int]:
        """All groups of a step, those that its filters keep, and in how many rounds they were drawn.

        Raises:
            RunError: filters left too few groups in as many rounds as the config allows.
        """
        wanted, limits = self.config.batch.prompts_per_step, self.config.rollout.over_rollout
        size = (limits.generation_batch_prompts or wanted) if self.shaping.refills else wanted
        answered: list[Answered] = []
        kept: list[Answered] = []
        for rounds in itertools.count(1):
            found = self._round(self.stream.take(size), f"{self.stage}:{step}" + (f":{rounds}" * (rounds > 1)), phase)
            answered += found
            kept += self.shaping.kept_groups(found)
            if not self.shaping.refills or len(kept) >= wanted:
                return answered, kept[:wanted], rounds
            if rounds == limits.max_generation_batches:
                break
        raise RunError(
            f"{rounds} rounds of {size} prompts left {len(kept)} groups after filtering; a step takes {wanted}",
            hint="raise rollout.over_rollout.max_generation_batches, or take prompts that are neither too easy nor too hard",
        )

    def _round(self, prompts: list[Prompt], purpose: str, phase: Phase) -> list[Answered]:
        """Answer and score prompts; greedily too where the estimator compares with that."""
        greedy = needs_greedy(self.config.algorithm)
        with phase("rollout"):
            answers = self.rollout.generate(self._requests(prompts, purpose))
            best = self.rollout.generate(self._greedy_requests(prompts, purpose)) if greedy else []
        with phase("reward"):
            scores = self.rewards.score(prompts, answers)
            best_scores = self.rewards.score(prompts, best) if greedy else []
        baselines: list[tuple[Response, Score] | None] = [None] * len(prompts)
        if greedy:
            baselines = [(responses[0], found[0]) for responses, found in zip(best, best_scores, strict=True)]
        return [
            Answered(prompt, responses, [score.total for score in group], group, baseline)
            for prompt, responses, group, baseline in zip(prompts, answers, scores, baselines, strict=True)
        ]

    def _requests(self, prompts: list[Prompt], purpose: str) -> list[Request]:
        n = self.config.batch.responses_per_prompt
        return requests_for(prompts, self.sampling, n=n, seed=self._seed, purpose=purpose)

    def _greedy_requests(self, prompts: list[Prompt], purpose: str) -> list[Request]:
        purpose = f"{purpose}:greedy"
        return requests_for(prompts, self.sampling, n=1, seed=self._seed, purpose=purpose, greedy=True)

    @property
    def _seed(self) -> int:
        seed = self.config.rollout.sampling.seed
        return self.config.run.seed if seed is None else seed

    def _add_old_log_probs(self, samples: list[Sample]) -> None:
        if self.config.algorithm.old_log_probs == "rollout":
            for sample in samples:
                sample.columns["old_log_probs"] = sample.columns["rollout_log_probs"]
        else:
            self.policy.add_old_log_probs(samples)

    def _metrics(self, answered: list[Answered]) -> dict[str, float]:
        responses = [response for item in answered for response in item.responses]
        groups = [group for group, item in enumerate(answered) for _ in item.responses]
        rewards = [reward for item in answered for reward in item.rewards]
        lengths = [len(response.token_ids) for response in responses]
        truncated = [response.finish_reason == "length" for response in responses]
        scores = [score for item in answered for score in item.scores]
        return {
            "data/epoch": float(self.stream.epoch),
            **response_metrics(lengths, truncated),
            **group_metrics(rewards, groups),
            **reward_metrics(rewards, [s.components for s in scores], [s.error for s in scores]),
        }

    def _shown(self, answered: list[Answered]) -> list[dict[str, Any]]:
        """A few groups as people read them."""
        decode = self.rewards.tokenizer.decode
        return [
            {
                "prompt": item.prompt.text,
                "answer": item.prompt.answer,
                "responses": [decode(response.token_ids) for response in item.responses],
                "rewards": list(item.rewards),
                "components": [score.components for score in item.scores],
                "weight_version": item.responses[0].weight_version,
            }
            for item in answered[:SHOWN_SAMPLES]
        ]

    def state(self) -> dict[str, Any]:
        return {**self.stream.state(), "shaping": self.shaping.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.stream.restore(dict(state))
        self.shaping.restore(state["shaping"])


@dataclass(frozen=True)
class MixGather:
    """Responses of the policy, and after them those of experts from a data set (mix)."""

    rollout: RolloutGather
    experts: SftStream
    """A batch is what a step takes."""

    def gather(self, step: int, phase: Phase) -> Gathered:
        gathered = self.rollout.gather(step, phase)
        with phase("data"):
            experts = self.experts.next_batch()
        names = {name for sample in gathered.samples for name in sample.columns} - {"reference_log_probs"}
        for sample in experts:
            sample.expert = True
            sample.columns |= {name: torch.zeros(len(sample)) for name in sorted(names)}
        if self.rollout.reference is not None:
            with phase("reference"):
                self.rollout.reference.add_log_probs(experts)
        samples = [*gathered.samples, *experts]
        for sample in samples:
            sample.columns["expert"] = torch.full((len(sample),), float(sample.expert))
        metrics = gathered.metrics | {"data/expert_epoch": float(self.experts.epoch)}
        return Gathered(samples, metrics, gathered.shown)

    def state(self) -> dict[str, Any]:
        return {"rollout": self.rollout.state(), "experts": self.experts.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.rollout.restore(state["rollout"])
        self.experts.restore(dict(state["experts"]))
