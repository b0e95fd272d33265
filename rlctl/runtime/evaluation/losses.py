"""The loss on held-out answers: what supervised training measures, where held-out rows bring the answers they should get."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlctl.config import Config
from rlctl.planning import arithmetic
from rlctl.runtime.roles import Policy
from rlctl.runtime.types import Sample

SAMPLES_AT_ONCE = 1024
"""Sequences that are handed to the workers in one call where the config names no number."""


@dataclass(frozen=True, slots=True)
class HeldOutAnswers:
    """The sequences of one source."""

    name: str
    samples: Sequence[Sample]


@dataclass(frozen=True)
class HeldOutLosses:
    """Measures every source under the policy's weights of now."""

    sources: Sequence[HeldOutAnswers]
    policy: Policy
    at_once: int

    def run(self) -> dict[str, float]:
        """``evaluation/<source>/loss``: the mean negative log-likelihood of the tokens that training would learn."""
        return {f"evaluation/{source.name}/loss": self._loss(source.samples) for source in self.sources}

    def _loss(self, samples: Sequence[Sample]) -> float:
        total, count = 0.0, 0
        for part in self._parts(samples):
            for log_probs, sample in zip(self.policy.log_probs(part), part, strict=True):
                total -= float(log_probs[sample.mask].double().sum())
                count += int(sample.mask.sum())
        return total / count if count else 0.0

    def _parts(self, samples: Sequence[Sample]) -> Iterator[Sequence[Sample]]:
        for start in range(0, len(samples), self.at_once):
            yield samples[start : start + self.at_once]


def make_losses(config: Config, answers: Sequence[HeldOutAnswers], policy: Policy | None) -> HeldOutLosses | None:
    """What measures the opened sources; None where there are none."""
    if not answers or policy is None or not arithmetic.evaluates(config):
        return None
    return HeldOutLosses(answers, policy, config.data.evaluation_batch_prompts or SAMPLES_AT_ONCE)
