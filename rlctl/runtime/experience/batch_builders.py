"""A step's training samples: groups of responses with what the loss reads of them, sequences of the data set, or both."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, islice
from operator import itemgetter
from typing import Any, Protocol

import torch

from rlctl.runtime.data.open import PairStream, SftStream
from rlctl.runtime.experience.explore import GroupSource, Phase, StepRollouts
from rlctl.runtime.experience.samples import samples_of
from rlctl.runtime.experience.shaping import Shaping
from rlctl.runtime.reporting.shown_samples import add_training, chosen, shown_group, spans_by, texts_of
from rlctl.runtime.roles import Policy, ReferencePolicy, ValueModel
from rlctl.runtime.train.distillation import Teaching, into_advantages
from rlctl.runtime.types import Sample, trajectories_of

SHOWN_SAMPLES = 4
"""Sequences or pairs of the data set that people are shown."""


@dataclass(frozen=True, slots=True)
class BuiltBatch:
    """What a step trains on."""

    samples: Sequence[Sample]
    metrics: dict[str, float]
    shown: list[dict[str, Any]]
    """Some responses with their rewards, for people."""
    versions: Sequence[int] = ()
    """Of the weights that drew each response."""


class BatchBuilder(Protocol):
    """A source of training samples whose position can be saved; ``phase(name)`` is a context that times a part of the work."""

    def take(self, step: int, phase: Phase) -> Any:
        """What a step is trained on: groups of scored responses, or sequences or pairs of the data set."""
        ...

    def build(self, taken: Any, step: int, phase: Phase) -> BuiltBatch:
        """The samples of a step, with all that the loss reads of them."""
        ...

    def state(self) -> dict[str, Any]:
        """The data position, as plain data."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved position."""
        ...


class NoBatchBuilder:
    """Of a stage without steps (evaluate_only)."""

    def take(self, step: int, phase: Phase) -> None:
        raise AssertionError("an evaluation-only stage has no steps")

    def build(self, taken: None, step: int, phase: Phase) -> BuiltBatch:
        raise AssertionError("an evaluation-only stage has no steps")

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """There is no position to go to."""


@dataclass(frozen=True)
class DataBatchBuilder:
    """Training sequences straight from the data set (sft)."""

    stream: SftStream
    tokenizer: Any
    on_prompt: bool = False
    """Whether prompts are learnt too (distillation)."""

    def take(self, step: int, phase: Phase) -> list[Sample]:
        with phase("data"):
            return self.stream.next_batch()

    def build(self, samples: list[Sample], step: int, phase: Phase) -> BuiltBatch:
        for sample in samples if self.on_prompt else ():
            sample.mask = torch.arange(len(sample)) > 0
        shown = [self._shown(sample) for sample in samples[:SHOWN_SAMPLES]] if step == 1 else []
        return BuiltBatch(samples, {"data/epoch": float(self.stream.epoch)}, shown)

    def _shown(self, sample: Sample) -> dict[str, Any]:
        trained = sample.token_ids[sample.mask]
        return {"sequence": self.tokenizer.decode(sample.token_ids), "trained_on": self.tokenizer.decode(trained)}

    def state(self) -> dict[str, Any]:
        return self.stream.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.stream.restore(state)


@dataclass(frozen=True)
class PairBatchBuilder:
    """Preference pairs from the data set, with the reference's log-probs (dpo): chosen, rejected, chosen, ..."""

    stream: PairStream
    tokenizer: Any
    reference: ReferencePolicy

    def take(self, step: int, phase: Phase) -> list[tuple[Sample, Sample]]:
        with phase("data"):
            return self.stream.next_batch()

    def build(self, pairs: list[tuple[Sample, Sample]], step: int, phase: Phase) -> BuiltBatch:
        samples = [sample for pair in pairs for sample in pair]
        with phase("reference"):
            self.reference.add_log_probs(samples)
        shown = [self._shown(*pair) for pair in pairs[:SHOWN_SAMPLES]] if step == 1 else []
        return BuiltBatch(samples, {"data/epoch": float(self.stream.epoch)}, shown)

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


@dataclass(frozen=True, slots=True)
class RolloutBatchSpec:
    """What is measured of groups of responses before they are trained on."""

    old_log_probs: str
    """The key ``algorithm.old_log_probs``."""
    old_is_current: bool
    """Whether the pass for the old policy's log-probs is left out (see ``specs.experience.old_is_current``)."""
    whole_kl: bool
    """Whether the KL in the reward is of whole distributions."""
    teaching: Teaching | None
    train_on_truncated_prompts: bool
    shows_responses: bool


@dataclass(frozen=True)
class RolloutBatchBuilder:
    """Groups of responses to prompts of the data set, as training samples with their advantages (rl)."""

    spec: RolloutBatchSpec
    groups: GroupSource
    tokenizer: Any
    policy: Policy
    reference: ReferencePolicy | None
    shaping: Shaping
    critic: ValueModel | None = None

    def take(self, step: int, phase: Phase) -> StepRollouts:
        return self.groups.take(step, phase)

    def build(self, explored: StepRollouts, step: int, phase: Phase) -> BuiltBatch:
        samples = samples_of(explored.kept, train_on_cut_prompts=self.spec.train_on_truncated_prompts)
        if not self.spec.old_is_current:
            with phase("old_log_probs"):
                self._add_old_log_probs(samples)
        if self.reference is not None:
            with phase("reference"):
                self.reference.add_log_probs(samples)
        if self.spec.whole_kl:
            with phase("reference"):
                self.policy.add_whole_kl(samples)
        if self.critic is not None:
            with phase("values"):
                self.critic.add_values(samples)
        teaching = self.spec.teaching
        if teaching is not None and not teaching.compares:
            with phase("teacher"):
                self.policy.add_teacher_log_probs(samples)
        with phase("advantages"):
            shaped = self.shaping.shape(samples, explored.kept)
            if teaching is not None and teaching.policy_gradient:
                shaped |= into_advantages(teaching, samples)
            recomputed = not self.spec.old_is_current and self.spec.old_log_probs == "recompute"
            shown = self._shown(explored, samples, trainer=recomputed)
            samples = self.shaping.redrawn(samples, explored.kept, step=step)
        versions = [response.oldest_version for item in explored.kept for response in item.responses]
        return BuiltBatch(samples, explored.metrics | shaped, shown, versions)

    def _shown(self, explored: StepRollouts, samples: Sequence[Sample], *, trainer: bool) -> list[dict[str, Any]]:
        if not self.spec.shows_responses:
            return []
        return shown_groups(explored, self.tokenizer, samples, trainer=trainer)

    def _add_old_log_probs(self, samples: Sequence[Sample]) -> None:
        if self.spec.old_log_probs == "rollout":
            for sample in samples:
                sample.columns["old_log_probs"] = sample.columns["rollout_log_probs"]
        else:
            self.policy.add_old_log_probs(samples)

    def state(self) -> dict[str, Any]:
        return {**self.groups.state(), "shaping": self.shaping.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.groups.restore({name: value for name, value in state.items() if name != "shaping"})
        self.shaping.restore(state["shaping"])


@dataclass(frozen=True)
class ExploreBatchBuilder:
    """Groups of responses that are not trained on here (rollout_only)."""

    groups: GroupSource
    tokenizer: Any

    def take(self, step: int, phase: Phase) -> StepRollouts:
        return self.groups.take(step, phase)

    def build(self, explored: StepRollouts, step: int, phase: Phase) -> BuiltBatch:
        samples = samples_of(explored.kept, train_on_cut_prompts=True)
        return BuiltBatch(samples, explored.metrics, shown_groups(explored, self.tokenizer))

    def state(self) -> dict[str, Any]:
        return self.groups.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self.groups.restore(state)


def shown_groups(
    explored: StepRollouts, tokenizer: Any, samples: Sequence[Sample] = (), *, trainer: bool = False
) -> list[dict[str, Any]]:
    """Some groups as people read them.

    Args:
        explored: the groups of the step.
        tokenizer: of the responses.
        samples: what training makes of the kept ones, group after group; empty where nothing is trained.
        trainer: whether they have log-probs that the trainer computed.
    """
    groups = explored.kept or explored.drawn
    ends = list(accumulate(len(group.responses) for group in groups))
    owners = trajectories_of(samples)
    places = chosen(groups)
    told = [groups[place] for place in places]
    spans = spans_by(tokenizer, told)
    decoded = iter(texts_of([response for item in told for response in item.responses], tokenizer))
    shown = []
    for place, item in zip(places, told, strict=True):
        texts = list(islice(decoded, len(item.responses)))
        group = shown_group(
            item.prompt, texts, item.rewards, item.scores, item.responses, spans=spans, tokenizer=tokenizer
        )
        if samples:
            first, last = (bisect_left(owners, number) for number in (ends[place] - len(texts), ends[place]))
            own = zip(owners[first:last], samples[first:last], strict=True)
            rows = [[sample for _, sample in of_one] for _, of_one in groupby(own, itemgetter(0))]
            add_training(group["details"], rows, trainer=trainer)
        shown.append(group)
    return shown


@dataclass(frozen=True)
class MixBatchBuilder:
    """Responses of the policy, and after them those of experts from a data set (mix)."""

    rollout: RolloutBatchBuilder
    experts: SftStream
    """A batch is what a step takes."""

    def take(self, step: int, phase: Phase) -> StepRollouts:
        return self.rollout.take(step, phase)

    def build(self, explored: StepRollouts, step: int, phase: Phase) -> BuiltBatch:
        built = self.rollout.build(explored, step, phase)
        with phase("data"):
            experts = self.experts.next_batch()
        names = {name for sample in built.samples for name in sample.columns} - {"reference_log_probs"}
        for sample in experts:
            sample.expert = True
            sample.columns |= {name: torch.zeros(len(sample)) for name in sorted(names)}
        if self.rollout.reference is not None:
            with phase("reference"):
                self.rollout.reference.add_log_probs(experts)
        samples = [*built.samples, *experts]
        for sample in samples:
            sample.columns["expert"] = torch.full((len(sample),), float(sample.expert))
        metrics = built.metrics | {"data/expert_epoch": float(self.experts.epoch)}
        return BuiltBatch(samples, metrics, built.shown, built.versions)

    def state(self) -> dict[str, Any]:
        return {"rollout": self.rollout.state(), "experts": self.experts.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.rollout.restore(state["rollout"])
        self.experts.restore(dict(state["experts"]))
