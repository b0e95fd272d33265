"""The FSDP2 engine: a Transformers model whose parameters, gradients and optimizer state are spread over the workers.

What it reads of ``train.engine`` and ``train.precision`` is in ``sharding``, of ``train.optimizer`` in ``optimizer``, of
``train.lr_scheduler`` in ``schedule``, of ``model`` in ``model`` and ``lora``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from rlctl.common.errors import PlanError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.config.sections.model import Model
from rlctl.config.sections.output import Checkpoint
from rlctl.config.sections.train import Fsdp2, Train
from rlctl.runtime.algorithms.aggregation import Totals
from rlctl.runtime.algorithms.distributions import LOG_PROBS, statistics_of_logits
from rlctl.runtime.algorithms.entropy import compile_rows, log_probs, log_probs_and_entropy
from rlctl.runtime.models.routers import Routers
from rlctl.runtime.models.vision import Vision, reads_images
from rlctl.runtime.seeds import derive_seed
from rlctl.runtime.train import checkpoint, export, replay
from rlctl.runtime.train.compiling import compile_layers, compiles
from rlctl.runtime.train.gathering import BUCKET_BYTES
from rlctl.runtime.train.head import Head
from rlctl.runtime.train.interface import (
    NOTHING,
    Comparison,
    LossFunction,
    LossTerms,
    Role,
    TrainEngine,
    placed,
)
from rlctl.runtime.train.microbatch import MicroBatch, collate, fed_tokens, prompts_of, split
from rlctl.runtime.train.model import check_kernels, freeze, load, pads, use_liger
from rlctl.runtime.train.offloading import HostCopies, OffloadedActivations
from rlctl.runtime.train.optimizer import make_optimizer
from rlctl.runtime.train.scaling import LossScale
from rlctl.runtime.train.sequence import make_group
from rlctl.runtime.train.sharding import layers_to_wrap, shard_model
from rlctl.runtime.types import Sample

if TYPE_CHECKING:
    from rlctl.runtime.train.lora import Adapters


class FsdpEngine(TrainEngine):
    """See ``TrainEngine``. The process must have joined its group (``distributed.join``)."""

    def __init__(
        self,
        model: Model,
        train: Train,
        *,
        role: Role,
        seed: int,
        scheduler_steps: int | None = None,
        device: str = "cpu",
        gather_bytes: int = BUCKET_BYTES,
        export_dtype: torch.dtype | None = None,
        replays: bool = False,
    ) -> None:
        """Load the model and spread it.

        Args:
            model: section ``model``.
            train: section ``train``.
            role: the critic has a value head; the reference has no optimizer, and is never updated or saved.
            seed: of dropout; each worker draws from its own stream.
            scheduler_steps: steps of the learning-rate schedule over the whole run; None where it is not known.
            device: ``cpu`` or ``cuda``, as in ``join``.
            gather_bytes: of the weights that are gathered at once, when they are exported.
            export_dtype: of exported weights, which is the rollout engine's; None is that of the parameters.
            replays: whether passes may go to experts that are written down (``routed``).

        Raises:
            PlanError: the engine cannot be set up as the config asks.
            RunError: the model cannot be loaded.
        """
        if not isinstance(train.engine, Fsdp2):
            raise PlanError(
                said("the FSDP2 engine was given train.engine {choice}; expected fsdp2", choice=train.engine.choice)
            )
        super().__init__(train, role=role, seed=seed, scheduler_steps=scheduler_steps, device=device)
        self._train = train
        self._gather_bytes, self._export_dtype = gather_bytes, export_dtype
        trained = role != "reference"
        check_kernels(train.fused_kernels, device)
        shared = train.engine.ulysses_sequence_parallel_size > 1  # such workers have slices of what lies end to end
        torch.manual_seed(derive_seed(seed, "weights", role))  # of weights that are not in the files: alike everywhere
        self.model, empty = load(
            model,
            train.memory,
            dtype=getattr(torch, train.precision.parameters),
            train=trained,
            packing=train.packing or shared,
            value_head=role == "critic",
            whole=dist.get_world_size() == 1 or (trained and model.lora is not None),
        )
        self.adapters: Adapters | None = None
        if trained:
            freeze(self.model, model.freeze)
            if model.lora is not None:
                from rlctl.runtime.train.lora import Adapters  # here, as peft takes long to load

                self.adapters = Adapters.put_into(self.model, model.lora, base=model.path, seed=seed)
        if train.fused_kernels.liger:
            use_liger(self.model)
        if train.memory.recompute_reentrant and (self.adapters or model.freeze):
            self.model.enable_input_require_grads()  # else nothing flows back through frozen embeddings
        self._routers = Routers(self.model) if replays else None
        torch.manual_seed(derive_seed(seed, "train", dist.get_rank()))
        self._sequence = make_group(train.engine.ulysses_sequence_parallel_size)
        if compiles(train, self.device):
            compile_rows()
            # What these do inside layers, between workers and to routers, cannot be compiled.
            if self._sequence is None and self._routers is None:
                compile_layers(layers_to_wrap(self.model, train.engine))
        self._copies = shard_model(self.model, train.engine, train.precision, self.device).ndim > 1
        if empty is not None:
            empty.fill(torch.device("cpu") if train.engine.cpu_offload_policy else self.device)
        self.optimizer = make_optimizer(self.model.parameters(), train.optimizer) if trained else None
        self.loss_scale = LossScale() if trained and train.precision.compute == "float16" else None
        self._offloads = "none" if train.engine.cpu_offload_policy else train.engine.offload
        self._away = set[str]()
        self._host = HostCopies(self.device)
        """What is in CPU memory until it is needed."""
        self._head = Head(self.model)
        self._padded = pads(self.model)
        self._vision = Vision(self.model) if reads_images(self.model.config) else None
        if self._sequence is not None and self._padded:
            raise PlanError(
                "train.engine.ulysses_sequence_parallel_size needs packed sequences, which this model or its "
                "attention does not support",
                hint="set model.attention to auto, or train.engine.ulysses_sequence_parallel_size to 1",
            )
        plain = not self._padded and self._vision is None and self._sequence is None and self._routers is None
        self._shares_prompts = bool(train.fused_kernels.prefix_grouping) and plain
        self.offload()

    def statistics(
        self,
        samples: Sequence[Sample],
        names: Sequence[str],
        *,
        temperature: float,
        micro: MicroBatchSize,
        adapters: bool = True,
    ) -> dict[str, list[Tensor]]:
        """See ``TrainEngine``."""
        with nullcontext() if adapters or self.adapters is None else self.adapters.switched_off():
            return self._each_token(samples, micro, lambda batch, _: self._told(batch, names, temperature), names)

    def compared(self, samples: Sequence[Sample], comparison: Comparison, *, micro: MicroBatchSize) -> list[Tensor]:
        """See ``TrainEngine``."""

        def read(batch: MicroBatch, members: Sequence[int]) -> Tensor:
            other = comparison.model.logits(samples, members)
            return comparison.divergence(self._head.logits(batch.inputs, batch.select), other)[None]

        found = self._each_token(samples, micro, read, ("compared",))["compared"]
        comparison.model.offload()
        return found

    def values(self, samples: Sequence[Sample], *, micro: MicroBatchSize) -> list[Tensor]:
        """See ``TrainEngine``."""
        assert self.role == "critic", f"a {self.role} has no values"
        return self._each_token(samples, micro, lambda batch, _: self._values(batch)[None], ("values",))["values"]

    def _each_token(
        self,
        samples: Sequence[Sample],
        micro: MicroBatchSize,
        read: Callable[[MicroBatch, Sequence[int]], Tensor],
        names: Sequence[str],
    ) -> dict[str, list[Tensor]]:
        """Under each name, one number a counted token. ``read`` computes them for a micro-batch and its members, [K, N]."""
        self._bring(optimizer=False)
        parts = self._micro_batches(samples, micro)
        told = [torch.empty(len(names), 0, device=self.device)]
        self.model.eval()
        with torch.no_grad():
            for members in parts:
                batch = self._collate(samples, members, ())
                with self._experts(samples, members, batch):
                    told.append(read(batch, members).float())
        numbers = torch.cat(told, 1).cpu()  # a GPU is waited for once, here
        self._reshard()
        self.offload()
        return placed(samples, list(itertools.chain.from_iterable(parts)), names, numbers)

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
        """See ``TrainEngine``."""
        assert self.optimizer is not None, "a reference is never updated"
        self._bring(optimizer=False)
        self.model.train()
        sums: dict[str, Tensor] = {}
        parts = self._micro_batches(samples, micro, together)
        for number, members in enumerate(parts, 1):
            if self._copies:
                self.model.set_requires_all_reduce(number == len(parts))  # what copies add up travels once
            batch = self._collate(samples, members, loss.columns)
            others = {name: each.model.logits(samples, members) for name, each in compare.items()}
            with self._experts(samples, members, batch):
                terms = self._forward(batch, loss, temperature, totals, compare, others)
                if number == len(parts):
                    self._bring_optimizer()  # beside the last backward pass
                (terms.loss if self.loss_scale is None else terms.loss * self.loss_scale.value).backward()
            told = {"loss": terms.loss.detach(), **terms.metrics}
            del terms
            for name, value in told.items():
                sums[name] = sums.get(name, 0.0) + value
        for each in compare.values():
            each.model.offload()
        self._bring(optimizer=True)
        stepped = self._step()
        return {**self._sum_over_replicas(sums), **stepped}

    @contextmanager
    def _experts(self, samples: Sequence[Sample], members: Sequence[int], batch: MicroBatch) -> Iterator[None]:
        """Have the passes of a micro-batch inside go to the experts that ``routed`` says."""
        chosen = [samples[index] for index in members]
        if self._routers is None or self._routing == "own" or not chosen:
            yield
        elif self._routing == "given":
            rows = replay.rows_of(chosen, batch)
            if self._sequence is not None:
                rows = self._sequence.slice_rows(rows, replay.filler(1, *rows.shape[1:]).to(rows.device))
            with self._routers.replaying(rows):
                yield
        else:
            with self._routers.recording() as found:
                yield
            rows = torch.stack([found[place] for place in range(len(self._routers))], 1)
            if self._sequence is not None:
                rows = self._sequence.join_rows(rows, batch.inputs["input_ids"].numel())
            replay.give(chosen, batch, rows)

    def logits(self, samples: Sequence[Sample], members: Sequence[int]) -> Tensor:
        """The logits of a frozen model, [N, V], at the counted tokens of those of ``samples`` that ``members`` names.

        The model stays on the device, for the next micro-batch: the caller offloads it after the last.
        """
        self._bring(optimizer=False)
        self.model.eval()
        batch = self._collate(samples, members, ())
        with torch.no_grad():
            found = self._head.logits(batch.inputs, batch.select)
        self._reshard()
        return found

    def _reshard(self) -> None:
        """Free gathered parameters that no backward pass frees: those of the root, or of all without resharding."""
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def _forward(
        self,
        batch: MicroBatch,
        loss: LossFunction,
        temperature: float,
        totals: Totals,
        compare: Mapping[str, Comparison],
        others: Mapping[str, Tensor],
    ) -> LossTerms:
        tensors = {**batch.columns, "lengths": batch.lengths}
        with self._kept():
            if self.role == "critic":
                tensors["values"] = self._values(batch)
            elif compare and self._sequence is not None:
                raise PlanError(
                    "this loss compares whole distributions, which workers that share sequences cannot",
                    hint="set train.engine.ulysses_sequence_parallel_size to 1",
                )
            elif compare:
                logits = self._head.logits(batch.inputs, batch.select)
                drawn = log_probs_and_entropy(logits, batch.targets, temperature=temperature)
                tensors["log_probs"], tensors["entropy"] = drawn
                tensors |= {name: each.divergence(logits, others[name]) for name, each in compare.items()}
            else:
                tensors["log_probs"], tensors["entropy"] = self._drawn(batch, temperature, with_entropy=True)
        return loss(tensors, totals)

    def _drawn(self, batch: MicroBatch, temperature: float, *, with_entropy: bool) -> tuple[Tensor, Tensor]:
        """Log-probs of the counted tokens, and entropy, [N]; from chunks of logits on a GPU and without gradient, if possible."""
        part, counts = self._part_of(batch)
        fused = self._train.fused_kernels.enabled
        found = None
        if fused or self.device.type == "cuda" or not torch.is_grad_enabled():
            found = self._head.log_probs(
                part.inputs, part.select, part.targets, temperature=temperature, with_entropy=with_entropy
            )
        if found is None and fused:
            raise PlanError(
                said(
                    "train.fused_kernels.enabled is set, but {kind} changes its logits after its last layer or has an "
                    "adapter on it",
                    kind=type(self.model).__name__,
                ),
                hint="set train.fused_kernels.enabled to false",
            )
        if found is None:
            logits = self._head.logits(part.inputs, part.select)
            if with_entropy:
                found = log_probs_and_entropy(logits, part.targets, temperature=temperature)
            else:
                found = (drawn := log_probs(logits, part.targets, temperature=temperature)), drawn
        return self._whole(found[0], counts), self._whole(found[1], counts)

    def _told(self, batch: MicroBatch, names: Sequence[str], temperature: float) -> Tensor:
        """Statistics of the counted tokens, [K, N], without gradient."""
        if tuple(names) == (LOG_PROBS,):
            return self._drawn(batch, temperature, with_entropy=False)[0][None]
        part, counts = self._part_of(batch)
        found = self._head.statistics(part.inputs, part.select, part.targets, names, temperature=temperature)
        if found is None:
            logits = self._head.logits(part.inputs, part.select)
            found = statistics_of_logits(logits, part.targets, names, temperature=temperature)
        return torch.stack([self._whole(each, counts) for each in found])

    def _part_of(self, batch: MicroBatch) -> tuple[MicroBatch, list[int] | None]:
        """This worker's slice of a micro-batch and the counted tokens of every slice; all of it where none is shared."""
        return (batch, None) if self._sequence is None else self._sequence.part_of(batch)

    def _whole(self, values: Tensor, counts: list[int] | None) -> Tensor:
        """Numbers of all counted tokens of a micro-batch, [N], from those of this worker's slice."""
        return values if self._sequence is None or counts is None else self._sequence.gather(values, counts)

    def _values(self, batch: MicroBatch) -> Tensor:
        """What a value head says, [N], in float32 at least."""
        part, counts = self._part_of(batch)
        logits = self._head.logits(part.inputs, part.select).squeeze(-1)
        return self._whole(logits.to(torch.promote_types(logits.dtype, torch.float32)), counts)

    def _kept(self) -> AbstractContextManager[object]:
        """Where activations wait for the backward pass; on CPU there is nowhere to move them."""
        moves = self._train.memory.offload_activations and self.device.type == "cuda"
        return OffloadedActivations() if moves else nullcontext()

    def _take_step(self) -> float:
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        if self.loss_scale is not None:
            for gradient in gradients:
                gradient.div_(self.loss_scale.value)
        norm = _full(get_total_norm(gradients))
        finite = bool(norm.isfinite())
        if self.loss_scale is not None:
            self.loss_scale.updated(finite=finite)
        if finite:
            if self._max_grad_norm is not None:
                clip_grads_with_norm_(self.model.parameters(), self._max_grad_norm, norm)
            self.optimizer.step()
        self.optimizer.zero_grad()
        return norm.item()

    def export_weights(self, *, everywhere: bool = False) -> Iterator[tuple[str, Tensor]]:
        """See ``TrainEngine``."""
        self._bring(optimizer=False)
        yield from export.weights(
            self.model,
            self.adapters,
            bucket_bytes=self._gather_bytes,
            own=False,
            dtype=self._export_dtype,
            everywhere=everywhere,
        )
        self.offload()

    def export_adapters(self) -> Iterator[tuple[str, Tensor]]:
        """See ``TrainEngine``."""
        assert self.adapters is not None, "model.lora is set"
        self._bring(optimizer=False)
        yield from export.adapter_weights(self.model, self.adapters, dtype=self._export_dtype)
        self.offload()

    def export_hf(self, folder: Path, *, tokenizer: str | None, asynchronous: bool = False) -> Future[None]:
        """See ``TrainEngine``."""
        self._bring(optimizer=False)
        written = export.write(
            self.model, folder, tokenizer=tokenizer, adapters=self.adapters, asynchronous=asynchronous
        )
        self.offload()
        return written

    def save(self, folder: Path, settings: Checkpoint = checkpoint.DEFAULTS) -> Future[None]:
        """See ``TrainEngine``."""
        self._bring(optimizer=True)
        written = checkpoint.save(checkpoint.state_of(self, settings), folder, settings)
        if self.adapters is not None and self.role == "policy":
            export.write_adapters(self.model, self.adapters, folder.with_name(export.ADAPTER))
        self.offload()
        return written

    def load(self, folder: Path, settings: Checkpoint = checkpoint.DEFAULTS) -> None:
        """See ``TrainEngine``."""
        self._bring(optimizer=True)
        checkpoint.load(self, folder, settings)
        self.offload()

    def offload(self) -> None:
        """See ``TrainEngine``. What ``train.engine.offload`` names moves; on CPU there is nowhere to move it."""
        self._leave(self._offloads)

    def vacate(self) -> None:
        """See ``TrainEngine``. Under ``train.engine.cpu_offload_policy`` all that stays on the device is PyTorch's reserve."""
        offloaded = isinstance(self._train.engine, Fsdp2) and self._train.engine.cpu_offload_policy
        self._leave("none" if offloaded else "both")

    def _leave(self, what: Literal["none", "parameters", "optimizer", "both"]) -> None:
        """Have some of it in CPU memory until ``_bring``."""
        if self.device.type != "cuda":
            return
        there = set(self._away)
        if what in ("parameters", "both") and "parameters" not in self._away:
            self._host.take_model(self.model)
            self._away.add("parameters")
        if what in ("optimizer", "both") and self.optimizer is not None and "optimizer" not in self._away:
            self._host.take_optimizer(self.optimizer)
            self._away.add("optimizer")
        if self._away - there:
            self._host.wait()
        if self._train.memory.empty_cache:
            torch.cuda.empty_cache()

    def reload(self) -> None:
        """See ``TrainEngine``."""
        self._bring(optimizer=True)

    def _bring(self, *, optimizer: bool) -> None:
        """Have on the device again what ``_leave`` moved."""
        if "parameters" in self._away:
            self._host.bring_model(self.model)
            self._away.discard("parameters")
        if optimizer:
            self._bring_optimizer()
            self._host.arrived()

    def _bring_optimizer(self) -> None:
        """Begin to have the optimizer's state on the device again."""
        if "optimizer" in self._away and self.optimizer is not None:
            self._host.bring_optimizer(self.optimizer)
            self._away.discard("optimizer")

    def _micro_batches(self, samples: Sequence[Sample], micro: MicroBatchSize, together: int = 1) -> list[list[int]]:
        """Micro-batches as indices; every replica has as many as any other, some of them empty: passes are collective."""
        prompts = prompts_of(samples) if self._shares_prompts else []
        first = dict(zip(reversed(prompts), range(len(prompts) - 1, -1, -1), strict=True))
        parts = split(
            fed_tokens(samples),
            micro,
            padded=self._padded,
            together=together,
            like=[first[prompt] for prompt in prompts],
        )
        count = torch.tensor(len(parts))
        dist.all_reduce(count, dist.ReduceOp.MAX)
        return parts + [[] for _ in range(int(count) - len(parts))]

    def _collate(self, samples: Sequence[Sample], members: Sequence[int], columns: Sequence[str]) -> MicroBatch:
        chosen = [samples[index] for index in members]
        return collate(
            chosen,
            columns,
            padded=self._padded,
            device=self.device,
            vision=self._vision,
            share_prompts=self._shares_prompts,
        )

    def _sum_over_replicas(self, sums: dict[str, Tensor]) -> dict[str, float]:
        values = torch.stack([value.double() for value in sums.values()]).cpu()
        if self._sequence is not None and self._sequence.rank > 0:
            values.zero_()  # workers that share sequences have the same sums
        dist.all_reduce(values)
        return dict(zip(sums, values.tolist(), strict=True))


def _full(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
