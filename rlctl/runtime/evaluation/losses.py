"""The loss of sft on held-out answers: evaluation of sources whose rows contain the answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.roles import Policy
from rlctl.runtime.types import Sample

SAMPLES_AT_ONCE = 1024
"""Sequences that the workers get in one call if ``data.evaluation_batch_prompts`` is null."""


@dataclass(frozen=True, slots=True)
class HeldOutAnswers:
    """The sequences of one source."""

    name: str
    samples: Sequence[Sample]


@dataclass(frozen=True)
class HeldOutLosses:
    """Measures every source under the policy's current weights."""

    sources: Sequence[HeldOutAnswers]
    policy: Policy
    at_once: int

    def run(self) -> dict[str, float]:
        """``evaluation/<source>/loss``: the mean negative log-likelihood of the tokens that training would learn.

        Raises:
            RunError: a source has no such token.
        """
        return {f"evaluation/{source.name}/loss": self._loss(source) for source in self.sources}

    def _loss(self, source: HeldOutAnswers) -> float:
        total, count = 0.0, 0
        for part in self._parts(source.samples):
            for log_probs, sample in zip(self.policy.log_probs(part), part, strict=True):
                total -= float(log_probs[sample.mask].double().sum())
                count += int(sample.mask.sum())
        if not count:
            raise RunError(
                said("dataset {name!r}: no answer has a token within data.max_sequence_tokens", name=source.name),
                hint="raise data.max_sequence_tokens, or set data.sequence_truncation to left",
            )
        return total / count

    def _parts(self, samples: Sequence[Sample]) -> Iterator[Sequence[Sample]]:
        for start in range(0, len(samples), self.at_once):
            yield samples[start : start + self.at_once]


def make_losses(answers: Sequence[HeldOutAnswers], policy: Policy | None, at_once: int | None) -> HeldOutLosses | None:
    """What measures the opened sources, ``at_once`` sequences in one call; None if there are none."""
    if not answers or policy is None:
        return None
    return HeldOutLosses(answers, policy, at_once or SAMPLES_AT_ONCE)
