"""The model roles as the controller sees them: whole, whatever number of workers stands behind one.

Each splits what it is given over its workers, calls them, and puts the results back in order.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import torch

from rlctl.common.messages.reasons import said
from rlctl.config.sections.algorithm import Algorithm
from rlctl.config.sections.batch import Batch
from rlctl.config.sections.output import Checkpoint
from rlctl.config.sections.rewards import ModelReward, Reward
from rlctl.runtime.algorithms.advantages import measured_column
from rlctl.runtime.algorithms.distributions import LOG_PROBS
from rlctl.runtime.algorithms.divergence import WHOLE_KL
from rlctl.runtime.algorithms.preference import PAIR
from rlctl.runtime.experience.selection import measured_by
from rlctl.runtime.judges import Modelled
from rlctl.runtime.processes.group import Group, RetryPolicy, Waiting
from rlctl.runtime.processes.sessions import Sessions
from rlctl.runtime.rewards import late
from rlctl.runtime.rewards.interface import Failure, Outcome
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.rollout.interface import Finished
from rlctl.runtime.rollout.texts import decoded
from rlctl.runtime.serialization.records import Records
from rlctl.runtime.serialization.sequences import Values, joined_by_name, shares_of
from rlctl.runtime.sync.machine import Source, TrainWorkers, WeightSync
from rlctl.runtime.sync.transport import HostMemory, Transport
from rlctl.runtime.train.losses import add_trajectory_tokens, counts_trajectories, totals_of
from rlctl.runtime.train.microbatch import spread
from rlctl.runtime.types import Prompt, Request, Response, Sample
from rlctl.runtime.workers.critic import Critic
from rlctl.runtime.workers.engine import EngineWorker
from rlctl.runtime.workers.reference import Reference
from rlctl.runtime.workers.reward import RewardItem, RewardWorker
from rlctl.runtime.workers.reward_model import RewardModels
from rlctl.runtime.workers.rollout import RolloutWorker
from rlctl.runtime.workers.sharding import (
    cost,
    linear_tokens,
    mini_batches,
    mini_batches_of,
    mixed_mini_batches,
    split_over_replicas,
    split_pairs,
)
from rlctl.runtime.workers.trainer import Part, Trainer, shard_mini_batches


@dataclass(frozen=True, slots=True)
class TrainedSpec:
    """What the controller needs to have a model trained and saved."""

    batch: Batch
    seed: int
    """Of the run."""
    checkpoint: Checkpoint
    model_path: str
    """Of the model by whose shape the work of a sequence is estimated."""


@dataclass(frozen=True, slots=True)
class PolicySpec(TrainedSpec):
    """As ``TrainedSpec``, and what only the policy has."""

    algorithm: Algorithm
    mini_batches_per_epoch: int
    experts_per_mini_batch: int
    bucket_bytes: int
    """Of weights that travel together to the rollout engines."""
    tokenizer: str


class TrainedRole:
    """A model that is trained: the policy, and the critic."""

    name: ClassVar[str]

    def __init__(self, group: Group, spec: TrainedSpec) -> None:
        self._group = group
        self._batch, self._seed, self._checkpoint = spec.batch, spec.seed, spec.checkpoint
        self._linear = linear_tokens(spec.model_path)

    def _train(
        self, method: Callable[..., Any], samples: Sequence[Sample], parts: Sequence[Sequence[Part]], *arguments: Any
    ) -> dict[str, float]:
        """One optimizer step for each of ``parts``, which are the workers' shares; the means of their metrics."""
        shares = self._group.shares(shard_mini_batches(samples, parts, len(self._group)))
        metrics: list[dict[str, float]] = self._group.each(method, [(share, *arguments) for share in shares])[0]
        return {f"{self.name}/{key}": fmean(each[key] for each in metrics) for key in (metrics[0] if metrics else ())}

    def _split(
        self, chosen: Sequence[Sample], split: Callable[..., list[list[int]]] = split_over_replicas
    ) -> list[list[int]]:
        """The share of every worker in the samples of a mini-batch, as indices."""
        costs = [cost(length, self._linear) for length in map(len, chosen)]
        return split(costs, len(self._group), balance=self._batch.balance)

    def save(self, folder: Path) -> None:
        """Write what the config says of everything that training goes on from; under ``asynchronous`` begin to."""
        self._group.all(EngineWorker.save, folder, self._checkpoint)

    def is_saved(self, *, wait: bool = False) -> bool:
        """Whether it is written; ``wait`` until it is."""
        return all(self._group.all(EngineWorker.is_saved, wait))

    def load(self, folder: Path) -> None:
        """Go on from what ``save`` wrote."""
        self._group.all(EngineWorker.load, folder, self._checkpoint)


class Policy(TrainedRole):
    """The model that answers prompts."""

    name = "policy"

    def __init__(self, group: Group, spec: PolicySpec, transport: Transport | None = None) -> None:
        """``transport``: how weights get to the rollout engines."""
        super().__init__(group, spec)
        self._spec = spec
        self._transport = transport or HostMemory()

    def add_old_log_probs(self, samples: Sequence[Sample]) -> None:
        """Write the column ``old_log_probs``, the log-probs under the weights of now, and what the estimator reads beside it."""
        measured = measured_by(self._spec.algorithm)
        names = (LOG_PROBS, *measured)
        split, parts = _asked(self._group, Trainer.statistics, samples, names)
        found = joined_by_name(parts)
        for column, values in zip(("old_log_probs", *map(measured_column, measured)), found, strict=True):
            _write(column, samples, split, values)
        if self._spec.algorithm.router_replay == "recompute":
            self._add_experts(samples, split)

    def log_probs(self, samples: Sequence[Sample]) -> list[torch.Tensor]:
        """Log-probs of the counted tokens under the current weights: float32 [T] a sample, 0 where no token is counted."""
        split, parts = _asked(self._group, Trainer.statistics, samples, (LOG_PROBS,))
        (found,) = joined_by_name(parts)
        told = dict(zip(itertools.chain.from_iterable(split), found, strict=True))
        return [told[index] for index in range(len(samples))]

    def _add_experts(self, samples: Sequence[Sample], split: Sequence[Sequence[int]]) -> None:
        """Write down the experts that the pass before chose; ``split`` as it was for that."""
        found = itertools.chain.from_iterable(self._group.all(Trainer.routed_experts))
        for index, own in zip(itertools.chain.from_iterable(split), found, strict=True):
            samples[index].routed_experts = own

    def add_whole_kl(self, samples: Sequence[Sample]) -> None:
        """Write the column ``whole_kl``: the KL to the reference that the policy's workers hold, over the whole vocabulary."""
        add_column(self._group, Trainer.whole_kl, samples, WHOLE_KL)

    def add_teacher_log_probs(self, samples: Sequence[Sample]) -> None:
        """Write the column ``teacher_log_probs``: those of the teacher that the policy's workers hold."""
        add_column(self._group, Trainer.teacher_log_probs, samples, "teacher_log_probs")

    def train(self, samples: Sequence[Sample], *, step: int, old_is_current: bool) -> dict[str, float]:
        """All optimizer steps on a step's samples, none where there are none. Returns the means of their metrics."""
        if counts_trajectories(self._spec.algorithm):
            add_trajectory_tokens(samples)
        each, before = self._spec.mini_batches_per_epoch, step - 1
        parts = [
            self._shares(samples, part, number=before * each + place % each + 1)
            for place, part in enumerate(self._mini_batches(samples, step))
        ]
        return self._train(Trainer.train_step, samples, parts, old_is_current)

    def _mini_batches(self, samples: Sequence[Sample], step: int) -> list[list[int]]:
        """The samples of every optimizer step, as indices."""
        batch, seed = self._batch, self._seed
        if self._spec.algorithm.objective.choice == "dpo":
            pairs = mini_batches(len(samples) // PAIR, batch, seed=seed, step=step)
            return [spread(part, len(samples), PAIR) for part in pairs]
        experts = sum(sample.expert for sample in samples)
        if not experts:
            return mini_batches_of(samples, batch, seed=seed, step=step)
        each = self._spec.experts_per_mini_batch
        return mixed_mini_batches(len(samples) - experts, experts, each, batch, seed=seed, step=step)

    def _shares(self, samples: Sequence[Sample], members: Sequence[int], number: int) -> list[Part]:
        """The share of every worker in one mini-batch, which has the samples ``members``; the stage's ``number``-th."""
        chosen, algorithm = [samples[index] for index in members], self._spec.algorithm
        totals = totals_of(chosen, by_trajectory=counts_trajectories(algorithm))
        split = self._split(chosen, split_pairs if algorithm.objective.choice == "dpo" else split_over_replicas)
        return [Part([members[place] for place in places], totals, places, number) for places in split]

    def weights(self) -> Source:
        """The weights of now, in Hugging Face names, for ``RolloutEngines.load_weights``."""
        return TrainWorkers(self._group, self._transport, self._spec.bucket_bytes)

    def export(self, folder: Path, *, asynchronous: bool = False) -> None:
        """Write the weights, config and tokenizer in Hugging Face format; under ``asynchronous`` as a part of the checkpoint
        that is being written."""
        self._group.all(Trainer.export_hf, folder, self._spec.tokenizer, asynchronous)


class ReferencePolicy:
    """The frozen model that KL is measured against."""

    def __init__(self, group: Group, log_probs: Callable[..., Any] = Reference.log_probs) -> None:
        """``log_probs``: the method of the group's workers that says what the reference finds."""
        self._group = group
        self._log_probs = log_probs

    def add_log_probs(self, samples: Sequence[Sample]) -> None:
        """Write the column ``reference_log_probs``."""
        add_column(self._group, self._log_probs, samples, "reference_log_probs")


def add_column(group: Group, method: Callable[..., Any], samples: Sequence[Sample], column: str) -> None:
    """Write a column of every sample that ``method`` of the workers gives, a tensor [T] a sample."""
    split, parts = _asked(group, method, samples)
    _write(column, samples, split, Values.joined(parts))


def _asked(
    group: Group, method: Callable[..., Any], samples: Sequence[Sample], *further: Any
) -> tuple[Sequence[Sequence[int]], list[Any]]:
    """The share of each worker, as indices, and what ``method`` of each says of its share, of which it gets no column."""
    split = _balanced(tuple(map(len, samples)), len(group))
    shares = group.shares(shares_of(samples, split, with_columns=False))
    return split, group.each(method, [(share, *further) for share in shares])


@lru_cache(maxsize=4)  # a step asks several roles of equal size about the same samples
def _balanced(lengths: tuple[int, ...], workers: int) -> Sequence[Sequence[int]]:
    return split_over_replicas(lengths, workers, balance=True)


def _write(column: str, samples: Sequence[Sample], split: Sequence[Sequence[int]], found: Values) -> None:
    for index, values in zip(itertools.chain.from_iterable(split), found, strict=True):
        samples[index].columns[column] = values


class ValueModel(TrainedRole):
    """Expects what is still to come of a response."""

    name = "critic"

    def add_values(self, samples: Sequence[Sample]) -> None:
        """Write the column ``old_values``: the values under the weights of now."""
        add_column(self._group, Critic.values, samples, "old_values")

    def train(self, samples: Sequence[Sample], *, step: int) -> dict[str, float]:
        """All optimizer steps on a step's samples, none where there are none. Returns the means of their metrics."""
        samples = [_learned(sample) for sample in samples]
        mini_batches = mini_batches_of(samples, self._batch, seed=self._seed, step=step)
        return self._train(Critic.train_step, samples, [self._shares(samples, part) for part in mini_batches])

    def _shares(self, samples: Sequence[Sample], members: Sequence[int]) -> list[Part]:
        """The share of every worker in one mini-batch, which has the samples ``members``."""
        chosen = [samples[index] for index in members]
        totals = totals_of(chosen)
        return [Part([members[place] for place in places], totals) for places in self._split(chosen)]


def _learned(sample: Sample) -> Sample:
    """What the critic learns of a sample: every response is a sequence, those too that the policy is not trained on."""
    columns = {name: sample.columns[name] for name in ("old_values", "returns")}
    mask = sample.columns["critic_tokens"] > 0
    return Sample(sample.token_ids, mask, columns, trajectory=sample.trajectory)


IDLE_SECONDS = 0.005
"""How long a caller waits that has nothing under way in any engine."""


class RolloutEngines:
    """All rollout engines together."""

    def __init__(
        self,
        group: Group,
        again: RetryPolicy | None = None,
        sync_timeout: float = math.inf,
        *,
        gives_memory: bool = True,
    ) -> None:
        """
        Args:
            group: of the workers.
            again: how an engine that is lost is replaced, so that its prompts are rolled out again, with the same seeds.
            sync_timeout: seconds that a weight sync waits for a bucket.
            gives_memory: whether an engine that sleeps gives memory to training; without, one that is idle needn't sleep.
        """
        self._gives_memory = gives_memory
        self._group = group
        self._sync = WeightSync(group, sync_timeout, again)
        self._again = again
        self._sessions = Sessions(group, RolloutWorker.submit, RolloutWorker.collect, again)
        self.resting = False
        """Whether the engines were put to sleep, which only ``submit`` ends."""
        self._missing: list[dict[int, int]] = [{} for _ in range(len(group))]
        """Responses that each engine has still to give, by ticket."""

    def __len__(self) -> int:
        return len(self._group)

    def generate(self, requests: Sequence[Request]) -> list[list[Response]]:
        """Answer requests, in order; each engine gets every k-th, so that long prompts spread."""
        count = len(self._group)
        requests = [dataclasses.replace(request, row=None) for request in requests]
        shares = {index: (Records(requests[index::count]),) for index in range(min(count, len(requests)))}
        with self._group.turn:
            found = self._group.begin(RolloutWorker.generate, shares, again=self._again).wait()
        answers: list[list[Response]] = [[] for _ in requests]
        for index, part in zip(shares, found, strict=True):
            answers[index::count] = part
        return answers

    def stream(
        self, requests: Sequence[Mapping[int, Request]], aborted: Sequence[int], seconds: float
    ) -> list[list[Finished] | None]:
        """Give each engine requests by their tickets, give up others, and return what has finished.

        Engines work whether or not anything waits for them. This returns as soon as one engine has finished a response, and
        after ``seconds`` at most.

        Returns:
            Responses by engine; None for one that replaced an engine, and has neither the earlier requests nor these.
        """
        lost = self.submit(requests, aborted)
        working = self.working
        waiting = self._sessions.collecting(working)
        if not working and not lost:
            time.sleep(min(seconds, IDLE_SECONDS))
        found: list[list[Finished] | None] = [None if engine in lost else [] for engine in range(len(self))]
        for place in self._sessions.first(waiting, 0.0 if lost else seconds) if waiting else ():
            found[working[place]] = self.finished(working[place])
        return found

    @property
    def working(self) -> list[int]:
        """The engines that have requests."""
        return [engine for engine, missing in enumerate(self._missing) if missing]

    def collecting(self) -> list[Waiting]:
        """A call of each engine that works, whose result ``finished`` gives."""
        return self._sessions.collecting(self.working)

    def submit(self, requests: Sequence[Mapping[int, Request]], aborted: Sequence[int]) -> list[int]:
        """Hand over requests by engine, and tickets to give up; the engines that have lost earlier requests and took none."""
        work: dict[int, tuple[Any, ...]] = {}
        for engine, own in enumerate(requests):
            gone = tuple(ticket for ticket in aborted if self._missing[engine].pop(ticket, None) is not None)
            if own or gone or (self.resting and self._missing[engine]):
                bare = {ticket: dataclasses.replace(request, row=None) for ticket, request in own.items()}
                work[engine] = (bare, gone)
        self.resting = False
        lost = self._sessions.submit(work)
        for engine in work:
            if engine in lost:
                self._missing[engine].clear()
            else:
                self._missing[engine] |= {ticket: request.n for ticket, request in requests[engine].items()}
        return lost

    def finished(self, engine: int) -> list[Finished] | None:
        """What an engine has finished, waited for; None if it has lost its requests."""
        found: list[Finished] | None = self._sessions.take(engine)
        if found is None:
            self._missing[engine].clear()
            return None
        self._note(engine, found)
        return found

    def _note(self, engine: int, finished: Sequence[Finished]) -> None:
        missing = self._missing[engine]
        for each in finished:
            if each.ticket in missing:
                missing[each.ticket] -= 1
                if not missing[each.ticket]:
                    del missing[each.ticket]

    def load_weights(self, weights: Source, version: int, only: Collection[int] = ()) -> None:
        """Put new weights into the engines, by default all; ``version`` is on every later response. See ``WeightSync``."""
        self._sync.run(weights, version, only)

    def share(self, value: Any) -> Any:
        """A handle on a value for the engines."""
        return self._group.share(value)

    def sleep(self) -> None:
        """Stop the engines, and leave the devices' memory to training if they are shared, until they are next asked to
        generate."""
        self.resting = True
        if self._gives_memory:
            self._group.all(RolloutWorker.sleep)
        elif working := self.working:
            self._group.begin(RolloutWorker.sleep, dict.fromkeys(working, ())).wait()


@dataclass(frozen=True)
class RewardModel:
    """The reward models of a config, on workers that share the responses."""

    group: Group
    rewards: Sequence[Reward]
    """All of the config."""
    again: RetryPolicy | None = None
    """How a worker that is lost is replaced."""

    def score(self, items: Sequence[RewardItem]) -> dict[int, list[Outcome | Failure]]:
        """What each model says of the responses that it applies to, in order, by its position in the config."""
        applying = [item.applying(self.rewards) for item in items]
        calls = {
            i: [item.call for item, applies in zip(items, applying, strict=True) if i in applies]
            for i, reward in enumerate(self.rewards)
            if isinstance(reward, ModelReward)
        }
        count = len(self.group)
        shares = [{i: found[rank::count] for i, found in calls.items()} for rank in range(count)]
        parts = self.group.each(RewardModels.score, [(share,) for share in shares], again=self.again)
        outcomes: dict[int, list[Outcome | Failure]] = {}
        for i, found in calls.items():
            outcomes[i] = [parts[place % count][i][place // count] for place in range(len(found))]
        return outcomes


@dataclass(frozen=True)
class Rewards:
    """Scores responses, as text."""

    group: Group
    tokenizer: Any
    models: Modelled | None = None
    tell: Callable[[str], None] = lambda message: None
    """Gets what went wrong, for people."""
    again: RetryPolicy | None = None
    """How a worker that is lost is replaced."""
    logs: Path | None = None
    """Where workers note calls that take too long."""

    def score(self, prompts: Sequence[Prompt], answers: Sequence[Sequence[Response]]) -> list[list[Score]]:
        """The scores of each prompt's responses, in order."""
        flat = [response for responses in answers for response in responses]
        texts = iter(decoded(flat, self.tokenizer))
        return self._scored(
            [
                [RewardItem.of(prompt, next(texts), response, number) for response in responses]
                for number, (prompt, responses) in enumerate(zip(prompts, answers, strict=True))
            ]
        )

    def score_texts(self, prompts: Sequence[Prompt], texts: Sequence[Sequence[str]]) -> list[list[Score]]:
        """The scores of responses that are there as text, in order; where there is no tokenizer, their lengths count as 0."""
        return self._scored(
            [
                [RewardItem(prompt, text, self._tokens(text), group=number) for text in group]
                for number, (prompt, group) in enumerate(zip(prompts, texts, strict=True))
            ]
        )

    def _tokens(self, text: str) -> int:
        return 0 if self.tokenizer is None else len(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _scored(self, groups: Sequence[Sequence[RewardItem]]) -> list[list[Score]]:
        """The scores of items."""
        items = list(itertools.chain.from_iterable(groups))
        modelled = self.models.score(items) if self.models is not None else None
        call = (Records(items), modelled)
        with late.told(self.logs, self.tell):
            found: list[Score] = self.group.each(RewardWorker.score, [call], again=self.again)[0]
        failed = [score.error for score in found if score.error is not None]
        if failed:
            self.tell(
                said(
                    "{count} of {found_count} responses were not scored by every reward; the first: {failed}",
                    count=len(failed),
                    found_count=len(found),
                    failed=failed[0],
                )
            )
        scores = iter(found)
        return [[next(scores) for _ in group] for group in groups]


def texts_of(answers: Sequence[Sequence[Response]], tokenizer: Any) -> list[list[str]]:
    """Responses as text; those that no worker has decoded are decoded here."""
    texts = iter(decoded([response for responses in answers for response in responses], tokenizer))
    return [[next(texts) for _ in responses] for responses in answers]
