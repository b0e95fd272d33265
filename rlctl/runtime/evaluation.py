"""Answering held-out prompts and scoring the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlctl.runtime.experience import requests_for
from rlctl.runtime.metrics import evaluation_metrics
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.roles import Rewards, RolloutEngines
from rlctl.runtime.types import Prompt, Response, Sampling


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One held-out source."""

    name: str
    prompts: Sequence[Prompt]
    sampling: Sampling
    responses_per_prompt: int


@dataclass(frozen=True)
class Evaluator:
    """Runs every held-out source."""

    sources: Sequence[HeldOut]
    rollout: RolloutEngines
    rewards: Rewards
    seed: int
    batch_prompts: int | None
    """Prompts answered at once; None is a whole source."""

    def run(self) -> dict[str, float]:
        """Metrics of every source, ``evaluation/<source>/...``.

        The random streams depend on neither the step nor the size of a batch, so two evaluations of the same weights give
        the same numbers.
        """
        return {name: value for source in self.sources for name, value in self._one(source).items()}

    def _one(self, source: HeldOut) -> dict[str, float]:
        size = self.batch_prompts or len(source.prompts)
        purpose = f"evaluation:{source.name}"
        requests = requests_for(
            source.prompts, source.sampling, n=source.responses_per_prompt, seed=self.seed, purpose=purpose
        )
        answers: list[list[Response]] = []
        scores: list[list[Score]] = []
        for start in range(0, len(source.prompts), size):
            answers += self.rollout.generate(requests[start : start + size])
            scores += self.rewards.score(source.prompts[start : start + size], answers[start:])
        flat = [score for group in scores for score in group]
        return evaluation_metrics(
            source.name,
            [score.total for score in flat],
            [score.correct for score in flat],
            [len(response.token_ids) for group in answers for response in group],
            [prompt for prompt, group in enumerate(scores) for _ in group],
        )
