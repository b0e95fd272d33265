"""The trainer worker: one process of the policy's train engine, and the rhythm of a training step."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rlctl.config.sections.algorithm import Algorithm, DpoObjective, MixObjective, SftObjective
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.config.sections.train import LrScheduler
from rlctl.runtime.algorithms.aggregation import Totals
from rlctl.runtime.algorithms.divergence import WHOLE_KL, whole_kl
from rlctl.runtime.algorithms.preference import PAIR
from rlctl.runtime.serialization.sequences import SampleTuple, Values, shares_of
from rlctl.runtime.serialization.tensors import TensorTuple
from rlctl.runtime.sync.device import Broadcast, NcclRendezvous
from rlctl.runtime.sync.sender import Message, Sender
from rlctl.runtime.sync.transport import Transport, WeightSender
from rlctl.runtime.train.covariance import chooses, mark
from rlctl.runtime.train.distillation import Teaching, distilled
from rlctl.runtime.train.distributed import Device, join
from rlctl.runtime.train.engines import EngineSpec, make_train_engine
from rlctl.runtime.train.interface import NOTHING, Comparison, LossFunction, Routing, TrainEngine
from rlctl.runtime.train.losses import PolicyLoss, SftLoss, weights_of
from rlctl.runtime.train.objectives import DpoLoss, MixLoss
from rlctl.runtime.types import Sample
from rlctl.runtime.workers.engine import EngineWorker


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker stands among those of its model."""

    rank: int
    world_size: int
    address: str
    """Host of rank 0."""
    port: int
    device: Device = "cpu"


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """How the workers of a model meet, and compute."""

    timeout: float
    """Seconds to wait for the others in a collective."""
    register_timeout: float
    """Seconds to wait for them at the start."""
    cpu_threads: int
    """Of each worker's kernels on a CPU."""
    deterministic: bool


@dataclass(frozen=True, slots=True)
class LossSpec:
    """What a policy is trained to do."""

    algorithm: Algorithm
    max_response_tokens: int
    teaching: Teaching | None = None
    sizes: Sequence[int] = (0, 0)
    """Responses of a mini-batch of mix: rolled out, and of experts."""


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """The sizes of micro-batches."""

    train: MicroBatchSize
    forward: MicroBatchSize
    """Of passes without gradients."""
    reference: MicroBatchSize
    """Of the reference, where the policy without adapters is it."""


@dataclass(frozen=True, slots=True)
class TrainerSpec:
    """What a policy's workers are made from; the same for all of them."""

    engine: EngineSpec
    loss: LossSpec
    join: JoinSpec
    micro: MicroBatches
    seed: int
    """Of the run."""
    temperature: float
    """What training logits are divided by."""
    scheduler_steps: int | None
    """Steps of the learning-rate schedule over the whole run, None where it is not known."""
    gather_bytes: int
    """Of parameters that are gathered at the same time."""
    export_dtype: torch.dtype | None
    """The type in which rollout engines hold weights, if rlctl chooses it."""
    sends_adapters: bool
    """Whether a weight sync sends adapters alone."""
    teacher: EngineSpec | None = None
    """In the policy's own workers."""
    reference: EngineSpec | None = None
    """In the policy's own workers, if the KL in the loss or in the reward is of whole distributions."""
    compares_reference: bool = False
    """Whether the loss has that KL."""

    @property
    def replays(self) -> bool:
        """Whether updates go to experts that an earlier pass chose."""
        algorithm = self.loss.algorithm
        return algorithm.router_replay != "off" and algorithm.objective.choice == "rl"


@dataclass(frozen=True, slots=True)
class Share:
    """One worker's part of the mini-batch of one optimizer step."""

    samples: Sequence[Sample]
    totals: Totals
    """Of the whole mini-batch."""
    places: Sequence[int] = ()
    """Where each sample stands in the mini-batch."""
    number: int = 1
    """Of the mini-batch since the stage began, the same in every epoch of a step; what changes with time depends on it."""


class Part(NamedTuple):
    """A share with its samples as indices."""

    members: Sequence[int]
    totals: Totals
    places: Sequence[int] = ()
    number: int = 1


class Shares(Sequence[Share]):
    """A worker's shares of all mini-batches; holds every sample once, whatever epochs it is in."""

    def __init__(self, samples: SampleTuple, parts: Sequence[Part]) -> None:
        self._samples, self._parts = samples, parts

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, index: Any) -> Any:
        members, *of_mini_batch = self._parts[index]
        return Share([self._samples[member] for member in members], *of_mini_batch)

    @classmethod
    def of(cls, samples: SampleTuple, parts: Sequence[tuple[Any, ...]]) -> Shares:
        """As they cross processes: the totals of each part are the plain numbers."""
        return cls(samples, [Part(members, Totals(*totals), *rest) for members, totals, *rest in parts])

    def __reduce__(self) -> tuple[Any, ...]:
        return Shares.of, (self._samples, [(each[0], numbers_of(each[1]), *each[2:]) for each in self._parts])


numbers_of = attrgetter(*(field.name for field in dataclasses.fields(Totals)))


def shard_mini_batches(samples: Sequence[Sample], parts: Sequence[Sequence[Part]], workers: int) -> list[Shares]:
    """Each worker's shares of all mini-batches, with the samples that it needs.

    Args:
        samples: of the step.
        parts: of each mini-batch, by worker.
        workers: how many.
    """
    by_worker = [[each[worker] for each in parts] for worker in range(workers)]
    split = [list(dict.fromkeys(chain.from_iterable(part.members for part in own))) for own in by_worker]
    found = []
    for share, members, own in zip(shares_of(samples, split), split, by_worker, strict=True):
        place = {index: number for number, index in enumerate(members)}
        found.append(Shares(share, [part._replace(members=[place[each] for each in part.members]) for part in own]))
    return found


class Trainer(EngineWorker):
    """Trains the policy. All workers of a policy get the same calls in the same order."""

    def __init__(self, spec: TrainerSpec, place: Place) -> None:
        """Meet the other workers, and load the model at the ``place`` of this one.

        Raises:
            PlanError: the config asks for something that the engine does not do.
            RunError: the others do not come, or the model cannot be loaded.
        """
        self._spec = spec
        self._algorithm = spec.loss.algorithm
        enter(spec.join, place)
        self._rank, self._address = place.rank, place.address
        self._outlet: WeightSender | None = None
        """Of the last weight sync; the next may go on with it."""
        self._sender: Sender
        """Of the weight sync that is under way."""
        self._engine = make_engine(spec, place.device)
        teaching = spec.loss.teaching
        self._teacher = _frozen(spec.teacher, place.device) if spec.teacher is not None else None
        self._whole: Comparison | None = None
        if spec.reference is not None:
            self._whole = Comparison(
                _frozen(spec.reference, place.device), partial(whole_kl, temperature=spec.temperature)
            )
        self._compare: dict[str, Comparison] = {}
        """What an update compares whole distributions with."""
        if self._teacher is not None and teaching is not None and teaching.compares:
            self._compare["divergence"] = Comparison(self._teacher, teaching.of_logits)
        if self._whole is not None and spec.compares_reference:
            self._compare[WHOLE_KL] = self._whole
        self._recorded = TensorTuple()
        """The experts of each sample of the last pass for the old log-probs, where it recorded them."""

    def statistics(self, samples: Sequence[Sample], names: Sequence[str]) -> list[Values]:
        """What ``algorithms.distributions`` calls by these names, log-probs among them, under the weights of now: for each
        name float32 [T] a sample, 0 where no token is counted."""
        spec = self._spec
        with self._engine.routed(OLD_PASS[self._algorithm.router_replay]):
            found = self._engine.statistics(samples, names, temperature=spec.temperature, micro=spec.micro.forward)
        self._recorded = TensorTuple(each.routed_experts for each in samples if each.routed_experts is not None)
        return [Values.of(found[name]) for name in names]

    def routed_experts(self) -> Sequence[torch.Tensor]:
        """The experts that the tokens of each sample went to in the last pass of ``statistics``."""
        recorded, self._recorded = self._recorded, TensorTuple()
        return recorded

    def base_log_probs(self, samples: Sequence[Sample]) -> Sequence[torch.Tensor]:
        """Log-probs under the weights without adapters, which are the reference's: float32 [T] a sample."""
        spec = self._spec
        found = self._engine.log_probs(
            samples, temperature=spec.temperature, micro=spec.micro.reference, adapters=False
        )
        return Values.of(found)

    def whole_kl(self, samples: Sequence[Sample]) -> Sequence[torch.Tensor]:
        """KL(policy || reference) over the whole vocabulary under the current weights: float32 [T] a sample."""
        assert self._whole is not None, "algorithm.kl_in_reward.estimator is full"
        return Values.of(self._engine.compared(samples, self._whole, micro=self._spec.micro.forward))

    def teacher_log_probs(self, samples: Sequence[Sample]) -> Sequence[torch.Tensor]:
        """Log-probs of the counted tokens under the teacher, at temperature 1: float32 [T] a sample."""
        assert self._teacher is not None, "algorithm.distillation names a teacher"
        return Values.of(self._teacher.log_probs(samples, temperature=1.0, micro=self._spec.micro.forward))

    def train_step(self, shares: Sequence[Share], old_is_current: bool = False) -> list[dict[str, float]]:
        """Train on one step's samples: one optimizer step a share, in order; then or in between the schedule ticks.

        Args:
            shares: of all mini-batches of all epochs; for rl with the columns ``advantages``, ``old_log_probs`` and,
                where the loss has a KL, ``reference_log_probs``.
            old_is_current: the samples were drawn by the weights of now, so the first mini-batch needs no ``old_log_probs``.

        Returns:
            The metrics of each optimizer step, the same on every worker.
        """
        spec = self._spec
        with self._engine.routed("given" if spec.replays else "own"):
            return take_steps(
                self._engine,
                shares,
                lambda index: self._loss(shares[index], old_is_current=old_is_current and index == 0),
                spec.engine.train.lr_scheduler,
                micro=spec.micro.train,
                temperature=spec.temperature,
                together=PAIR if self._algorithm.objective.choice == "dpo" else 1,
                compare=self._compare,
            )

    def _loss(self, share: Share, *, old_is_current: bool) -> LossFunction:
        """The loss of a mini-batch, after what it has to know of it all before."""
        if chooses(self._algorithm):
            mark(
                self._engine,
                share.samples,
                share.places,
                self._algorithm.policy_loss,
                micro=self._spec.micro.forward,
                seed=self._spec.seed,
                number=share.number,
                temperature=self._spec.temperature,
                old_is_current=old_is_current,
            )
        return make_loss(self._spec.loss, old_is_current=old_is_current, number=share.number)

    def begin_weights(self, transport: Transport, bucket_bytes: int, senders: Sequence[int] = (0,)) -> Message | None:
        """Give the weights of now out: the message of the first bucket. Workers that are no ``senders`` give them theirs, and
        return when they have them all."""
        if self._spec.sends_adapters:
            tensors = self._engine.export_adapters()
        else:
            tensors = self._engine.export_weights(everywhere=tuple(senders) != (0,))
        if self._rank not in senders:
            deque(tensors, maxlen=0)
            return None
        self._outlet = transport.outlet(self._outlet)
        self._sender = Sender(tensors, self._outlet, bucket_bytes=bucket_bytes)
        return self._sender.next()

    def meeting(self) -> NcclRendezvous | None:
        """Where this worker met the engines. Of the first worker, as all of a sync from here on."""
        return self._outlet.meeting if isinstance(self._outlet, Broadcast) else None

    def offer_meeting(self, processes: int, bucket_bytes: int) -> NcclRendezvous:
        """A place to meet so many processes of engines at."""
        return NcclRendezvous.at(self._address, processes=processes, bucket_bytes=bucket_bytes)

    def meet(self, meeting: NcclRendezvous) -> None:
        """Meet the engines, which are to come at the same time; who met before is left."""
        if isinstance(self._outlet, Broadcast):
            self._outlet.leave()
        self._outlet = Broadcast(meeting)

    def next_bucket(self) -> Message | None:
        """The message of the next bucket, in Hugging Face names; None after the last."""
        return self._sender.next()

    def end_weights(self) -> None:
        """Give out nothing more."""
        self._sender.end()

    def export_hf(self, folder: Path, tokenizer: str | None = None, asynchronous: bool = False) -> None:
        """Write a folder that Transformers and vLLM load: weights, config and, where named, the tokenizer.

        Under ``asynchronous`` begin to: it is a part of the checkpoint that is being written then (``is_saved``).

        Raises:
            RunError: it cannot be written.
        """
        written = self._engine.export_hf(folder, tokenizer=tokenizer, asynchronous=asynchronous)
        if asynchronous:
            self._writing += (written,)


def take_steps(
    engine: TrainEngine,
    shares: Sequence[Share],
    loss: Callable[[int], LossFunction],
    schedule: LrScheduler,
    *,
    micro: MicroBatchSize,
    temperature: float = 1.0,
    together: int = 1,
    compare: Mapping[str, Comparison] = NOTHING,
) -> list[dict[str, float]]:
    """Take one optimizer step a share, in order; the schedule ticks after each, or once after all. Metrics of each step.

    ``loss(index)`` is that of the share at ``index``; ``together`` and ``compare`` as for ``TrainEngine.update``.
    """
    ticks_inside = schedule.step_unit == "optimizer_step"
    metrics = []
    for index, share in enumerate(shares):
        found = engine.update(
            share.samples,
            loss(index),
            micro=micro,
            temperature=temperature,
            totals=share.totals,
            together=together,
            compare=compare,
        )
        metrics.append(found)
        if ticks_inside:
            engine.step_schedule()
    if not ticks_inside:
        engine.step_schedule()
    engine.offload()
    return metrics


def enter(spec: JoinSpec, place: Place) -> None:
    """Meet the other workers of a model; see ``join``."""
    if (
        spec.deterministic
    ):  # an operation without such a kernel is computed all the same: PyTorch warns of it in the log
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    join(
        place.rank,
        place.world_size,
        place.address,
        place.port,
        device=place.device,
        timeout=spec.timeout,
        register_timeout=spec.register_timeout,
        threads=spec.cpu_threads if place.device == "cpu" else None,
    )


def make_engine(spec: TrainerSpec, device: Device) -> TrainEngine:
    """The engine of a policy.

    Raises:
        PlanError: there is no such engine here.
    """
    engine = spec.engine
    return make_train_engine(
        engine.model,
        engine.train,
        role="policy",
        seed=engine.seed,
        scheduler_steps=spec.scheduler_steps,
        device=device,
        gather_bytes=spec.gather_bytes,
        export_dtype=spec.export_dtype,
        replays=spec.replays,
    )


OLD_PASS: Mapping[str, Routing] = {"off": "own", "recompute": "recorded", "rollout": "given"}
"""Which experts the pass for the old log-probs goes to, by ``algorithm.router_replay``."""


def _frozen(spec: EngineSpec, device: Device) -> TrainEngine:
    """A model that is not trained, spread as the policy is."""
    return make_train_engine(spec.model, spec.train, role="reference", seed=spec.seed, device=device)


def make_loss(spec: LossSpec, *, old_is_current: bool = False, number: int = 1) -> LossFunction:
    """The loss of the ``number``-th mini-batch of the stage, with what a teacher adds to it.

    Raises:
        PlanError: no function computes it.
    """
    weights = weights_of(spec.algorithm, spec.max_response_tokens)
    return distilled(_own_loss(spec, old_is_current=old_is_current, number=number), spec.teaching, weights)


def _own_loss(spec: LossSpec, *, old_is_current: bool, number: int) -> LossFunction:
    algorithm, longest = spec.algorithm, spec.max_response_tokens
    objective = algorithm.objective
    if isinstance(objective, SftObjective):
        return SftLoss.of(algorithm, max_response_tokens=longest)
    if isinstance(objective, DpoObjective):
        return DpoLoss.of(algorithm, objective, max_response_tokens=longest)
    policy = PolicyLoss.of(algorithm, max_response_tokens=longest, old_is_current=old_is_current)
    if isinstance(objective, MixObjective):
        return MixLoss.of(algorithm, objective, policy, max_response_tokens=longest, sizes=spec.sizes, number=number)
    return policy
