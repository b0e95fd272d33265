"""Where a step's training samples come from: rollout, or the data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from rlctl.config import Config
from rlctl.runtime.data.open import PromptStream, SftStream
from rlctl.runtime.experience import Answered, add_advantages, requests_for, samples_of
from rlctl.runtime.metrics import group_metrics, response_metrics, reward_metrics
from rlctl.runtime.roles import Policy, ReferencePolicy, Rewards, RolloutEngines
from rlctl.runtime.types import Sample, Sampling

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

    def gather(self, step: int, phase: Phase) -> Gathered:
        with phase("data"):
            samples = self.stream.next_batch()
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

    def gather(self, step: int, phase: Phase) -> Gathered:
        with phase("rollout"):
            prompts = self.stream.next_batch()
            answers = self.rollout.generate(self._requests(prompts, step))
        with phase("reward"):
            scores = self.rewards.score(prompts, answers)
        answered = [
            Answered(prompt, responses, [score.total for score in group])
            for prompt, responses, group in zip(prompts, answers, scores, strict=True)
        ]
        samples = samples_of(answered, train_on_cut_prompts=self.config.data.truncated_prompts_train)
        if not self.old_is_current:
            with phase("old_log_probs"):
                self._add_old_log_probs(samples)
        if self.reference is not None:
            with phase("reference"):
                self.reference.add_log_probs(samples)
        with phase("advantages"):
            add_advantages(samples, answered, self.config)
        flat = [score for group in scores for score in group]
        metrics = self._metrics(answered) | reward_metrics(
            [score.total for score in flat], [score.components for score in flat], [score.error for score in flat]
        )
        return Gathered(samples, metrics, self._shown(answered))

    def _requests(self, prompts: list[Any], step: int) -> list[Any]:
        seed = self.config.rollout.sampling.seed
        return requests_for(
            prompts,
            self.sampling,
            n=self.config.batch.responses_per_prompt,
            seed=self.config.run.seed if seed is None else seed,
            purpose=f"{self.stage}:{step}",
        )

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
        return {
            "data/epoch": float(self.stream.epoch),
            **response_metrics(lengths, truncated),
            **group_metrics(rewards, groups),
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
                "weight_version": item.responses[0].weight_version,
            }
            for item in answered[:SHOWN_SAMPLES]
        ]

    def state(self) -> dict[str, Any]:
        return self.stream.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self.stream.restore(dict(state))
