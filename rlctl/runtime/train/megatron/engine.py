"""The Megatron-core engine: its layers, pipeline schedules, gradient buffers and optimizer, as a train engine.

A micro-batch is laid end to end as for FSDP2, and runs through Megatron-core's own schedule. What comes out of the last stage is
told to the others, so that every worker of a replica returns the same.

Gradients are added up, over micro-batches and over replicas: a loss is a sum of weighted tokens, whose weights already divide by
the whole mini-batch. Megatron-core does so where it divides by tokens itself, which it is never told to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, finalize_model_grads
from megatron.core.optimizer import MegatronOptimizer, get_megatron_optimizer
from megatron.core.optimizer.clip_grads import clip_grad_by_total_norm_fp32
from megatron.core.pipeline_parallel import get_forward_backward_func
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForTokenClassification,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.utils import cached_file

from rlctl.common.errors import PlanError, RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.config.sections.model import Model
from rlctl.config.sections.output import Checkpoint
from rlctl.config.sections.train import Megatron, Train
from rlctl.runtime.algorithms.aggregation import Totals
from rlctl.runtime.algorithms.distributions import LOG_PROBS
from rlctl.runtime.algorithms.entropy import compile_rows
from rlctl.runtime.models.config import changed_config, import_modules
from rlctl.runtime.models.routers import check_family
from rlctl.runtime.models.vision import auto_class
from rlctl.runtime.seeds import derive_seed
from rlctl.runtime.train import export
from rlctl.runtime.train.checkpoint import DEFAULTS
from rlctl.runtime.train.compiling import compiles
from rlctl.runtime.train.interface import (
    NOTHING,
    Comparison,
    LossFunction,
    Role,
    TrainEngine,
    no_logits,
    placed,
)
from rlctl.runtime.train.lora import Adapters
from rlctl.runtime.train.megatron import adapters, checkpointing, starting, weights
from rlctl.runtime.train.megatron.adapters import as_peft_names, switched_off
from rlctl.runtime.train.megatron.arguments import ddp_config, optimizer_config, transformer_config
from rlctl.runtime.train.megatron.experts import compile_gates
from rlctl.runtime.train.megatron.head import Read
from rlctl.runtime.train.megatron.layout import enter_layout
from rlctl.runtime.train.megatron.model import PackedInputs, build_chunks, compile_norms, lay_out
from rlctl.runtime.train.megatron.names import ADAPTERS, Names
from rlctl.runtime.train.megatron.routing import Replays, Rows
from rlctl.runtime.train.microbatch import MicroBatch, collate, fed_tokens, split
from rlctl.runtime.train.model import VALUE_HEAD, freeze
from rlctl.runtime.train.sequence import SequenceGroup
from rlctl.runtime.types import Sample

NONE = torch.tensor(0, dtype=torch.int)
"""Tokens of a micro-batch as Megatron-core counts them: none, as nothing is to be divided by them."""


@dataclass(frozen=True, slots=True)
class PipelineInput:
    """A micro-batch, and how this worker is fed its part."""

    batch: MicroBatch
    laid: PackedInputs
    samples: Sequence[Sample]
    experts: Rows | None
    """Where ``routed`` says something of them."""


class MegatronEngine(TrainEngine):
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
        gather_bytes: int = 0,
        export_dtype: torch.dtype | None = None,
        replays: bool = False,
    ) -> None:
        """Load the model and spread it. Arguments as of ``FsdpEngine``; weights are gathered one by one, whatever
        ``gather_bytes`` allows, and in the model's own type, which is that of training.

        Raises:
            PlanError: the engine cannot be set up as the config asks.
            RunError: the model cannot be loaded.
        """
        if not isinstance(train.engine, Megatron):
            raise PlanError(
                said(
                    "the Megatron engine was given train.engine {choice}; expected megatron", choice=train.engine.choice
                )
            )
        super().__init__(train, role=role, seed=seed, scheduler_steps=scheduler_steps, device=device)
        self._source = model.path
        trained = role != "reference"
        self.layout = enter_layout(train.engine, seed=derive_seed(seed, "dropout") % 2**31)
        self.hf_config = _config_of(model)
        if role == "critic":
            self.hf_config.update(VALUE_HEAD)
        fused = compiles(train, self.device)
        if fused:
            compile_rows()
            compile_norms()
            compile_gates()
        self.config = transformer_config(train, self.hf_config, device=device, fused=fused)
        self.config.calculate_per_token_loss = True
        if replays:
            check_family(self.hf_config.model_type, "megatron")
        self.config.moe_enable_routing_replay = replays
        self.config.finalize_model_grads_func = _finalize
        chunks = build_chunks(self.hf_config, self.config, train.engine, role=role)
        names = Names(self.hf_config)
        frozen = _frozen(self._plain(), model.freeze) if trained else frozenset()
        self.adapters: Adapters | None = None
        if trained and model.lora is not None:
            self.adapters = Adapters.put_into(self._plain(), model.lora, base=model.path, seed=seed)
            adapters.put_on(chunks, self.adapters, names)
        torch.manual_seed(derive_seed(seed, "weights", role))  # of weights that are not in the files: alike everywhere
        if train.engine.checkpoint_path is not None:
            starting.start_from(chunks, train.engine.checkpoint_path, self.hf_config, critic=role == "critic")
        else:
            weights.load_weights(chunks, model.path, self.hf_config)
        if self.adapters is not None:
            weights.fill_adapters(chunks, self.adapters.tensors(), self.hf_config)
        torch.manual_seed(derive_seed(seed, "train", dist.get_rank()))
        self.chunks: list[Any] = list(chunks)
        self._replays = Replays(chunks, self.config) if replays else None
        self.optimizer: MegatronOptimizer | None = None
        if not trained:
            for chunk in self.chunks:
                chunk.requires_grad_(False)
        else:
            if train.engine.moe.freeze_router:
                _freeze_routers(self.chunks)
            _freeze(self.chunks, names, frozen)
            if self.adapters is not None:
                adapters.train_only(self.chunks)
            self._reduce_gradients(train)
            self.optimizer = get_megatron_optimizer(
                optimizer_config(train),
                self.chunks,
                config_overrides={} if train.optimizer.decay_norms_and_biases else None,  # None: its own, without them
                use_gloo_process_groups=False,
            )
            if self.config.fp16:
                self.config.grad_scale_func = self.optimizer.scale_loss
        self._empties_cache = train.memory.empty_cache
        self._sequence = None
        if self.layout.context > 1:
            members = parallel_state.get_context_parallel_group()
            self._sequence = SequenceGroup(members, members.rank(), members.size())

    def _reduce_gradients(self, train: Train) -> None:
        """Give the chunks buffers of gradients, which are added up over replicas."""
        settings = ddp_config(train)
        self.chunks = [
            DistributedDataParallel(self.config, settings, chunk, disable_bucketing=number > 0)
            for number, chunk in enumerate(self.chunks)
        ]
        if settings.overlap_grad_reduce:
            waits = [chunk.no_sync for chunk in self.chunks]
            self.config.no_sync_func = waits if len(waits) > 1 else waits[0]
        for chunk in self.chunks:
            chunk.broadcast_params()

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
        with nullcontext() if adapters else switched_off(self.chunks):
            return self._each_token(samples, micro, tuple(names), temperature)

    def values(self, samples: Sequence[Sample], *, micro: MicroBatchSize) -> list[Tensor]:
        """See ``TrainEngine``."""
        assert self.role == "critic", f"a {self.role} has no values"
        return self._each_token(samples, micro, ("values",), 1.0)["values"]

    def _each_token(
        self, samples: Sequence[Sample], micro: MicroBatchSize, names: tuple[str, ...], temperature: float
    ) -> dict[str, list[Tensor]]:
        """Under each name one number a counted token, which the last stage says."""
        parts = self._micro_batches(samples, micro)
        fed = [self._feed(samples, members, ()) for members in parts]
        for chunk in self.chunks:
            chunk.eval()

        def keep(each: PipelineInput, output: Any) -> tuple[Tensor, Tensor, Tensor]:
            told = [output] if self.role == "critic" else output[: len(names)]
            found = torch.stack([self._whole(each, part) for part in told])
            return found.sum(), NONE, found.float()

        asked = () if names == (LOG_PROBS,) else names
        with torch.no_grad():
            found = self._run(fed, keep, temperature, with_entropy=False, statistics=asked, forward_only=True)
        total = sum(int(each.batch.lengths.sum()) for each in fed)
        told = torch.cat(found, 1) if found else torch.empty(len(names), total)
        numbers = self._from_last_stage(told.to(self.device)).cpu()
        self.offload()
        return placed(samples, [index for members in parts for index in members], names, numbers)

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
        """See ``TrainEngine``.

        Raises:
            PlanError: whole distributions are to be compared, of which a worker has a part.
        """
        assert self.optimizer is not None, "a reference is never updated"
        if compare:
            raise no_logits()
        for chunk in self.chunks:
            chunk.train()
            chunk.zero_grad_buffer()
        self.optimizer.zero_grad()
        fed = [self._feed(samples, members, loss.columns) for members in self._micro_batches(samples, micro, together)]

        def lose(each: PipelineInput, output: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
            tensors = {**each.batch.columns, "lengths": each.batch.lengths}
            if self.role == "critic":
                tensors["values"] = self._whole(each, output)
            else:
                tensors["log_probs"], tensors["entropy"] = (self._whole(each, part) for part in output)
            terms = loss(tensors, totals)
            return terms.loss, NONE, {"loss": terms.loss.detach().clone(), **terms.metrics}

        found = self._run(fed, lose, temperature, with_entropy=True, forward_only=False)
        return {**self._sum_over_replicas(found), **self._step()}

    def _run(
        self,
        fed: Sequence[PipelineInput],
        finish: Callable[[PipelineInput, Any], tuple[Tensor, Tensor, Any]],
        temperature: float,
        *,
        with_entropy: bool,
        forward_only: bool,
        statistics: tuple[str, ...] = (),
    ) -> list[Any]:
        """Send micro-batches through all stages; on the last one, what ``finish`` keeps of each, elsewhere nothing.

        ``finish`` says the loss of a micro-batch, its tokens (``NONE``), and what is kept.
        """

        def forward(
            batches: Iterator[PipelineInput], chunk: Any
        ) -> tuple[Any, Callable[[Any], tuple[Tensor, Tensor, Any]]]:
            each = next(batches)
            laid = each.laid
            read = Read(laid.select, laid.targets, self.hf_config.vocab_size, temperature, with_entropy, statistics)
            with self._experts(each, chunk):
                return chunk(laid.input_ids, laid.packed, read), partial(finish, each)

        feeds = [iter(fed) for _ in self.chunks]
        kept: list[Any] = get_forward_backward_func()(
            forward_step_func=forward,
            data_iterator=feeds if len(feeds) > 1 else feeds[0],
            model=self.chunks,
            num_microbatches=len(fed),
            seq_length=self.config.context_parallel_size
            * self.config.tensor_model_parallel_size,  # told stage by stage
            micro_batch_size=1,
            forward_only=forward_only,
        )
        if self._replays is not None:
            self._replays.clear()
            if self._routing == "recorded":
                self._replays.give([(each.samples, each.batch, each.experts) for each in fed if each.experts])
        return kept

    def _experts(self, fed: PipelineInput, chunk: Any) -> AbstractContextManager[None]:
        """Have the forward pass inside go to the experts that ``routed`` says."""
        if self._replays is None or fed.experts is None:
            return nullcontext()
        return self._replays.forward(self.chunks.index(chunk), fed.experts)

    def _feed(self, samples: Sequence[Sample], members: Sequence[int], columns: Sequence[str]) -> PipelineInput:
        chosen = [samples[index] for index in members]
        batch = collate(chosen, columns, padded=False, device=self.device)
        laid = lay_out(batch, self.config, self._sequence)
        experts = None
        if self._replays is not None and self._routing != "own":
            tokens = laid.input_ids.shape[1] * self.layout.context
            experts = self._replays.rows(chosen, batch, tokens, self._routing)
        return PipelineInput(batch, laid, chosen, experts)

    def _whole(self, fed: PipelineInput, values: Tensor) -> Tensor:
        """Numbers of all counted tokens of a micro-batch, [N], from those of this worker's slice."""
        if self._sequence is None or fed.laid.counts is None:
            return values
        return self._sequence.gather(values, fed.laid.counts)

    def _take_step(self) -> float:
        optimizer = self.optimizer
        assert optimizer is not None, "a reference is never updated"
        overflowed = optimizer.prepare_grads()
        norm = math.inf if overflowed else float(optimizer.get_grad_norm())
        if math.isfinite(norm):
            for part in optimizer.chained_optimizers if self._max_grad_norm is not None else ():
                if parameters := part.get_parameters():
                    aware = part.config.use_precision_aware_optimizer_no_fp8_or_ds_fp8
                    clip_grad_by_total_norm_fp32(parameters, self._max_grad_norm, norm, aware)
            optimizer.step_with_ready_grads()
        return norm

    def export_weights(self, *, everywhere: bool = False) -> Iterator[tuple[str, Tensor]]:
        """See ``TrainEngine``."""
        self._gather_parameters()
        yield from self._exported(everywhere=everywhere)
        self.offload()

    def export_adapters(self) -> Iterator[tuple[str, Tensor]]:
        """See ``TrainEngine``."""
        assert self.adapters is not None, "model.lora is set"
        self._gather_parameters()
        yield from self.adapters.unmerged(weights.export_weights(self.chunks, self.hf_config, only=ADAPTERS))
        self.offload()

    def _exported(self, *, everywhere: bool = False) -> Iterator[tuple[str, Tensor]]:
        """Whole weights, adapters merged into theirs."""
        tensors = weights.export_weights(self.chunks, self.hf_config, everywhere=everywhere)
        return tensors if self.adapters is None else self.adapters.merged(as_peft_names(tensors, self.adapters))

    def _adapters(self) -> dict[str, Tensor]:
        """Whole adapters, under peft's names."""
        return {
            name: tensor.cpu() for name, tensor in weights.export_weights(self.chunks, self.hf_config, only=ADAPTERS)
        }

    def _gather_parameters(self) -> None:
        """Have all weights where the next forward pass would have gathered them."""
        for chunk in self.chunks:
            if self.optimizer is not None and chunk.ddp_config.overlap_param_gather:
                chunk.start_param_sync(force_sync=True)

    def export_hf(self, folder: Path, *, tokenizer: str | None, asynchronous: bool = False) -> Future[None]:
        """See ``TrainEngine``."""
        self._gather_parameters()
        state = {name: tensor.cpu() for name, tensor in self._exported()}
        held, trained = self.adapters, {} if self.adapters is None else self._adapters()
        self.offload()

        def write_beside() -> str:
            return export.adapter_problem(held, trained, folder / export.ADAPTER) if held is not None else ""

        return export.write_state(
            self._plain(), state, folder, tokenizer=tokenizer, asynchronous=asynchronous, beside=write_beside
        )

    def _plain(self) -> PreTrainedModel:
        """The model as Transformers has it, on no device."""
        kind = AutoModelForTokenClassification if self.role == "critic" else auto_class(self.hf_config)
        with torch.device("meta"):
            plain: PreTrainedModel = kind.from_config(self.hf_config, dtype=self.config.params_dtype)
        name = "generation_config.json"
        if cached_file(self._source, name, _raise_exceptions_for_missing_entries=False) is not None:
            plain.generation_config = GenerationConfig.from_pretrained(self._source)
        return plain

    def save(self, folder: Path, settings: Checkpoint = DEFAULTS) -> Future[None]:
        """See ``TrainEngine``."""
        self._gather_parameters()
        written = checkpointing.save(self, folder, settings)
        if self.adapters is not None and self.role == "policy":
            export.write_adapter_state(self.adapters, self._adapters(), folder.with_name(export.ADAPTER))
        self.offload()
        return written

    def load(self, folder: Path, settings: Checkpoint = DEFAULTS) -> None:
        """See ``TrainEngine``."""
        checkpointing.load(self, folder, settings)
        self.offload()

    def offload(self) -> None:
        """See ``TrainEngine``. What Megatron-core holds stays on its device; what PyTorch keeps in reserve is given back."""
        if self.device.type == "cuda" and self._empties_cache:
            torch.cuda.empty_cache()

    def reload(self) -> None:
        """See ``TrainEngine``."""

    def _micro_batches(self, samples: Sequence[Sample], micro: MicroBatchSize, together: int = 1) -> list[list[int]]:
        """Micro-batches as indices, as many on every replica as the schedule takes; some of them may be empty."""
        parts = split(fed_tokens(samples), micro, padded=False, together=together)
        count = torch.tensor(max(1, len(parts)))
        dist.all_reduce(count, dist.ReduceOp.MAX)
        stages = self.layout.pipeline if self.layout.chunks > 1 else 1
        whole = -(-int(count) // stages) * stages
        return parts + [[] for _ in range(whole - len(parts))]

    def _from_last_stage(self, numbers: Tensor) -> Tensor:
        """What the last stage of this replica has, on all of its workers."""
        if self.layout.pipeline > 1:
            last = parallel_state.get_pipeline_model_parallel_last_rank()
            dist.broadcast(numbers, last, group=parallel_state.get_pipeline_model_parallel_group())
        return numbers

    def _sum_over_replicas(self, found: Sequence[Mapping[str, Tensor]]) -> dict[str, float]:
        """The metrics of all micro-batches of all replicas, on every worker. Workers that share a token have the same."""
        names: list[list[str]] = [list(found[0]) if found else []]
        last = self.layout.pipeline > 1
        group = parallel_state.get_pipeline_model_parallel_group()
        if last:
            dist.broadcast_object_list(names, parallel_state.get_pipeline_model_parallel_last_rank(), group=group)
        sums = torch.zeros(len(names[0]), dtype=torch.float64, device=self.device)
        for terms in found:
            sums += torch.stack([terms[name].double() for name in names[0]])
        dist.all_reduce(sums, group=parallel_state.get_data_parallel_group())
        return dict(zip(names[0], self._from_last_stage(sums).tolist(), strict=True))


def _config_of(model: Model) -> PretrainedConfig:
    """The model's config with what the section puts over it.

    Raises:
        RunError: there is none.
    """
    import_modules(model)
    try:
        changed = changed_config(model, model.path)
        return changed or AutoConfig.from_pretrained(model.path, trust_remote_code=model.trust_remote_code)
    except (OSError, ValueError) as error:
        raise RunError(
            said("the model {path} could not be loaded: {error}", path=model.path, error=error),
            hint="set model.path to a complete model folder, or to a name on the Hugging Face Hub",
        ) from error


def _finalize(chunks: list[Any], tokens: Tensor | None = None, **options: Any) -> None:
    """Add gradients up over the workers that share them; nothing is divided by tokens."""
    finalize_model_grads(chunks, None, **options)


def _frozen(plain: PreTrainedModel, patterns: Sequence[str]) -> frozenset[str]:
    """The parameters of the Transformers model that ``model.freeze`` names."""
    freeze(plain, patterns)
    return frozenset(name for name, parameter in plain.named_parameters() if not parameter.requires_grad)


def _freeze(chunks: Sequence[torch.nn.Module], names: Names, frozen: frozenset[str]) -> None:
    """Leave those untrained.

    Raises:
        PlanError: some of the weights that Megatron-core fuses in one parameter are to be trained, and some not.
    """
    for name, parameter in weights.parameters(chunks) if frozen else ():
        rule = names.rule(name)
        own = (rule.stacked,) if rule.stacked else rule.hugging_face
        chosen = [each for each in own if each in frozen]
        if chosen and len(chosen) < len(own):
            [other, *_] = (each for each in own if each not in frozen)
            raise PlanError(
                said(
                    "model.freeze names {chosen} and not {other}, which Megatron-core trains as one parameter",
                    chosen=chosen[0],
                    other=other,
                ),
                hint=said("name all of {names}, or set train.engine to fsdp2", names=", ".join(own)),
            )
        if chosen:
            parameter.requires_grad_(False)


def _freeze_routers(chunks: Sequence[torch.nn.Module]) -> None:
    for chunk in chunks:
        for name, parameter in chunk.named_parameters():
            if ".router." in name:
                parameter.requires_grad_(False)
