"""What the controller asks of a train engine, and what a loss gives an engine. The words are design words, not an engine's."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from rlctl.common.errors import PlanError
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.config.sections.output import Checkpoint
from rlctl.config.sections.train import Train
from rlctl.runtime.algorithms.aggregation import Totals
from rlctl.runtime.algorithms.distributions import LOG_PROBS
from rlctl.runtime.train.schedule import Curve, Decay, curve_of, decay_of, set_rates
from rlctl.runtime.types import Sample

Role = Literal["policy", "critic", "reference"]
"""policy: trained; critic: trained, with a value head; reference: frozen, without an optimizer."""


Routing = Literal["own", "recorded", "given"]
"""Which experts tokens go to: those that the model's routers choose; the same, written down as the samples' ``routed_experts``;
those that are written down."""


@dataclass(frozen=True, slots=True)
class LossTerms:
    """The loss of a micro-batch. Everything in it is a sum of weighted tokens: it adds up over micro-batches and replicas."""

    loss: Tensor
    """Scalar, with gradient."""
    metrics: dict[str, Tensor]
    """Scalars, without gradient."""


class LossFunction(Protocol):
    """Turns log-probs, or a critic's values, into a loss."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a sample that it reads."""
        ...

    def __call__(self, tensors: Mapping[str, Tensor], totals: Totals) -> LossTerms:
        """Compute the share of a micro-batch in the loss of the optimizer step that ``totals`` counts.

        Args:
            tensors: packed over the counted tokens: ``log_probs`` [N] and ``entropy`` [N], of a critic ``values`` [N], with
                gradient; ``columns`` [N]; ``lengths`` int64 [B], the counted tokens of each sequence.
            totals: of the whole mini-batch, over all replicas.
        """
        ...


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the whole distributions of the trained model are compared with, and how."""

    model: TrainEngine
    """Frozen, in the same workers."""
    divergence: Callable[[Tensor, Tensor], Tensor]
    """Logits [N, V] of the trained model and of the other to [N], with a gradient to the first."""


NOTHING: Mapping[str, Comparison] = {}


class TrainEngine(ABC):
    """One worker's part of a model that is spread over workers.

    All workers call the same methods in the same order, each with its own share of the samples; shares may be empty. What no
    engine does otherwise is here; what an engine must do is abstract.
    """

    optimizer: Any
    """None of a reference."""

    def __init__(
        self, train: Train, *, role: Role, seed: int, scheduler_steps: int | None = None, device: str = "cpu"
    ) -> None:
        """
        Args:
            train: section ``train``.
            role: the critic has a value head; the reference has no optimizer, and is never updated or saved.
            seed: of dropout; each worker draws from its own stream.
            scheduler_steps: steps of the learning-rate schedule over the whole run; None where it is not known.
            device: ``cpu`` or ``cuda``, as in ``join``.
        """
        self.device = torch.device(device)
        self.role = role
        self.seed = seed
        self.ticks = 0
        self.updates = 0
        self.takes_schedule = train.lr_scheduler.restore_from_checkpoint
        self.curve: Curve | None = None
        self.decay: Decay | None = None
        if role != "reference":
            self.curve = curve_of(train.lr_scheduler, peak=train.optimizer.lr, scheduler_steps=scheduler_steps)
            self.decay = decay_of(train.optimizer, scheduler_steps=scheduler_steps)
        self._max_grad_norm = train.optimizer.max_grad_norm
        self._routing: Routing = "own"

    def log_probs(
        self, samples: Sequence[Sample], *, temperature: float, micro: MicroBatchSize, adapters: bool = True
    ) -> list[Tensor]:
        """Return log p(token | tokens before it) of softmax(logits / temperature): float32 [T] a sample, on CPU.

        Tokens that the mask leaves out have 0. No gradient, dropout off. Without ``adapters``, of the model under them.
        """
        found = self.statistics(samples, (LOG_PROBS,), temperature=temperature, micro=micro, adapters=adapters)
        return found[LOG_PROBS]

    @abstractmethod
    def statistics(
        self,
        samples: Sequence[Sample],
        names: Sequence[str],
        *,
        temperature: float,
        micro: MicroBatchSize,
        adapters: bool = True,
    ) -> dict[str, list[Tensor]]:
        """Return under each name what ``algorithms.distributions`` calls so, in one pass; ``log_probs`` are one of them."""

    def compared(self, samples: Sequence[Sample], comparison: Comparison, *, micro: MicroBatchSize) -> list[Tensor]:
        """Return what a comparison finds at every counted token under the current weights: float32 [T] a sample, on CPU, 0
        elsewhere. No gradient, dropout off.

        Raises:
            PlanError: the engine has no whole logits.
        """
        raise no_logits()

    @abstractmethod
    def values(self, samples: Sequence[Sample], *, micro: MicroBatchSize) -> list[Tensor]:
        """Return a critic's V(tokens before t) at every counted token t: float32 [T] a sample, on CPU, 0 elsewhere.

        No gradient, dropout off.
        """

    def logits(self, samples: Sequence[Sample], members: Sequence[int]) -> Tensor:
        """Return logits [N, V] at the counted tokens of those of ``samples`` that ``members`` names. No gradient.

        The model then stays on its device for the next micro-batch; ``offload`` comes after the last.

        Raises:
            PlanError: the engine has no whole logits.
        """
        raise no_logits()

    @contextmanager
    def routed(self, routing: Routing) -> Iterator[None]:
        """Have the passes inside go to such experts; outside it is "own". Of an engine that was made to replay."""
        self._routing = routing
        try:
            yield
        finally:
            self._routing = "own"

    @abstractmethod
    def update(
        self,
        samples: Sequence[Sample],
        loss: LossFunction,
        *,
        micro: MicroBatchSize,
        temperature: float,
        totals: Totals,
        together: int = 1,
        compare: Mapping[str, Comparison] = NOTHING,
    ) -> dict[str, float]:
        """Take one optimizer step: gradients summed over micro-batches and workers, then clipped.

        So many neighbours as ``together`` says are always in one micro-batch, in their order. What ``compare`` says of
        the distributions is under its names among the loss's tensors, [N] each, with gradient.

        The schedule does not move. Where the norm of the gradient is not finite the weights and the optimizer stay as
        they are, and ``skipped_updates`` is 1.

        Returns:
            The loss's metrics over the whole mini-batch, ``loss``, ``grad_norm`` (before clipping), ``lr`` and
            ``skipped_updates``: the same on every worker.
        """

    def step_schedule(self) -> None:
        """Move the learning-rate schedule by one tick."""
        self.ticks += 1

    @abstractmethod
    def export_weights(self, *, everywhere: bool = False) -> Iterator[tuple[str, Tensor]]:
        """Yield name and full tensor, in Hugging Face names, one at a time, tied weights once.

        Every worker has to run it to its end; only rank 0 is given tensors, or all are ``everywhere``, on the engine's device.
        They may be the parameters themselves: to be read before the weights change.
        """

    @abstractmethod
    def export_adapters(self) -> Iterator[tuple[str, Tensor]]:
        """As ``export_weights``, but adapters alone: under the names of peft's files, with their scale in B."""

    @abstractmethod
    def export_hf(self, folder: Path, *, tokenizer: str | None, asynchronous: bool = False) -> Future[None]:
        """Write weights, config and tokenizer files as ``save_pretrained`` does; under ``asynchronous`` begin to.

        Returns:
            What is done when the folder is whole.
        """

    @abstractmethod
    def save(self, folder: Path, settings: Checkpoint = ...) -> Future[None]:
        """Write weights, optimizer, schedule and random states, each worker its part; by default everything, at once.

        Returns:
            What is done when the folder is whole.
        """

    @abstractmethod
    def load(self, folder: Path, settings: Checkpoint = ...) -> None:
        """Take up what ``save`` wrote, from any number of workers.

        Raises:
            RunError: something is missing, or of another model.
        """

    @abstractmethod
    def offload(self) -> None:
        """Free the device's memory for others until the next call; passes, saving and loading do so when they are over."""

    def vacate(self) -> None:
        """As ``offload``, whatever the config says: weights and optimizer leave a GPU too, as far as the engine can move them."""
        self.offload()

    @abstractmethod
    def reload(self) -> None:
        """Take the device again, before the next call does."""

    def _step(self) -> dict[str, float]:
        """Clip the gradients and take a step, unless their norm is not finite."""
        assert self.curve is not None, "a reference is never updated"
        assert self.decay is not None, "a reference is never updated"
        rate = set_rates(self.optimizer.param_groups, self.curve, self.decay, self.ticks)
        norm = self._take_step()
        self.updates += math.isfinite(norm)
        return {"grad_norm": norm, "lr": rate, "skipped_updates": float(not math.isfinite(norm))}

    @abstractmethod
    def _take_step(self) -> float:
        """Clip the gradients, let the optimizer step if their norm is finite, and forget them; the norm before clipping."""


def placed(
    samples: Sequence[Sample], order: Sequence[int], names: Sequence[str], numbers: Tensor
) -> dict[str, list[Tensor]]:
    """One number a counted token as ``TrainEngine`` returns them: float32 [T] a sample under each name, 0 elsewhere.

    Args:
        samples: of which tokens are counted.
        order: of their indices in ``numbers``.
        names: of the rows of ``numbers``.
        numbers: float32 [names, N], on CPU: of the counted tokens, sample after sample.
    """
    results = {name: [torch.zeros(len(sample)) for sample in samples] for name in names}
    lengths = [int(samples[index].mask.sum()) for index in order]
    for name, row in zip(names, numbers, strict=True):
        for index, part in zip(order, row.split(lengths), strict=True):
            results[name][index].masked_scatter_(samples[index].mask, part)
    return results


def no_logits() -> PlanError:
    """The error of an engine whose workers have a part of the logits each."""
    return PlanError(
        "whole distributions are compared, but a worker of the Megatron engine has a part of the vocabulary",
        hint="set train.engine to fsdp2",
    )
