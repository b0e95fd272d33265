"""The chunks of a model that a worker holds: Megatron-core's GPTModel over sequences laid end to end.

Megatron-core's own layers, but for what it has on GPUs only (with Transformer Engine):

    PackedAttention   causal within each sequence; under context parallelism a share of the heads of all tokens
    RmsNorm           as Transformers computes it, also where activations are split over the tensor workers
    Rotary            the angles that the model's ``config.json`` says, at the positions that are fed
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.tensor_parallel.random import CheckpointWithoutOutput
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset
from torch import Tensor
from transformers import PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from rlctl.common.errors import PlanError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.train import Megatron
from rlctl.runtime.train.attention import packed_attention
from rlctl.runtime.train.interface import Role
from rlctl.runtime.train.megatron.adapters import AdaptedColumns, AdaptedHead, AdaptedRows
from rlctl.runtime.train.megatron.arguments import padded_vocabulary
from rlctl.runtime.train.megatron.experts import GroupedExperts
from rlctl.runtime.train.megatron.head import Read, read_logits
from rlctl.runtime.train.microbatch import MicroBatch
from rlctl.runtime.train.rows import Rows
from rlctl.runtime.train.sequence import SequenceGroup

FIXED_ANGLES = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary embeddings whose angles do not depend on how long a sequence is."""

if not moe_utils.HAVE_TE:
    moe_utils.te_general_gemm = None  # 0.16.1 leaves the name out without Transformer Engine, and reads it
    # and asks Transformer Engine about FP8 unless this is None, so that layernorm and moe_act could not be recomputed
    CheckpointWithoutOutput.__init__.__defaults__ = (None,)


@dataclass
class Packed(PackedSeqParams):
    """What every layer is told of the sequences of a micro-batch."""

    rows: Rows | None = None
    """Where the tokens of each sequence lie, over all workers that share it."""
    positions: Tensor | None = None
    """int64: of the tokens of this worker, in their sequences."""
    sequence: SequenceGroup | None = None
    """The workers that share sequences."""


def build_chunks(
    hf_config: PretrainedConfig, config: TransformerConfig, engine: Megatron, *, role: Role
) -> list[Chunk]:
    """Return this worker's chunks of layers, several under virtual pipelining, with weights that are not set yet.

    The workers must have entered the layout.

    Args:
        hf_config: of the model.
        config: of its layers.
        engine: section ``train.engine``.
        role: the critic has a value head in place of the one over the vocabulary.

    Raises:
        PlanError: a layer that is not computed here.
    """
    if hf_config.num_attention_heads // engine.tensor_parallel_size % engine.context_parallel_size:
        raise PlanError(
            said(
                "train.engine.context_parallel_size is {context_parallel_size}, which does not divide the "
                "{num_attention_heads} heads over {tensor_parallel_size} tensor workers",
                context_parallel_size=engine.context_parallel_size,
                num_attention_heads=hf_config.num_attention_heads,
                tensor_parallel_size=engine.tensor_parallel_size,
            ),
            hint="set train.engine.context_parallel_size to a divisor of the heads of one tensor worker",
        )
    rotary = partial(Rotary, *angles(hf_config))
    _, scaling = angles(hf_config)
    if scaling != 1.0:
        assert config.kv_channels is not None, "arguments.py says it"
        config.softmax_scale = config.kv_channels**-0.5 * scaling**2
    config.init_method = config.output_layer_init_method = config.embedding_init_method = _leave
    stages: list[int | None] = [None]
    if config.virtual_pipeline_model_parallel_size is not None:
        stages = list(range(config.virtual_pipeline_model_parallel_size))
    return [Chunk(hf_config, config, rotary(), stage=stage, role=role) for stage in stages]


def _leave(weight: Tensor) -> Tensor:
    """Weights are read from files."""
    return weight


class Chunk(GPTModel):
    """One chunk of layers, with the embedding before the first and a head behind the last."""

    def __init__(
        self, hf_config: PretrainedConfig, config: TransformerConfig, rotary: Rotary, *, stage: int | None, role: Role
    ) -> None:
        valued = role == "critic"
        super().__init__(
            config=config,
            transformer_layer_spec=layer_specs(config, stage),
            vocab_size=padded_vocabulary(hf_config.vocab_size, config.tensor_model_parallel_size),
            max_sequence_length=hf_config.max_position_embeddings,
            pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=stage),
            post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=stage),
            share_embeddings_and_output_weights=bool(hf_config.tie_word_embeddings) and not valued,
            position_embedding_type="rope",
            vp_stage=stage,
        )
        self.rotary_pos_emb = rotary
        if self.post_process and valued:
            self.output_layer: Any = AdaptedHead(config)
        elif self.post_process:
            self.output_layer.forward = partial(read_logits, self.output_layer, config)

    def forward(self, input_ids: Tensor, packed: Packed, read: Read | None = None) -> Any:
        """Return hidden states [tokens, 1, hidden]; of the last chunk what ``read`` asks of its head."""
        embedded, angles = self._preprocess(input_ids=input_ids, position_ids=None, packed_seq_params=packed)[:2]
        if torch.is_grad_enabled() and embedded is not None and not embedded.requires_grad and self._goes_back():
            embedded.requires_grad_()  # else nothing flows back through what is recomputed, or to no stage before
        hidden = self.decoder(
            hidden_states=embedded, attention_mask=None, rotary_pos_emb=angles, packed_seq_params=packed
        )
        if not self.post_process:
            return hidden
        shared = self.shared_embedding_or_output_weight() if self.share_embeddings_and_output_weights else None
        return self.output_layer(hidden, read, shared)

    def _goes_back(self) -> bool:
        """Whether Megatron-core takes for granted that a gradient flows to the first layer, with frozen embeddings too."""
        return self.config.recompute_granularity is not None or self.config.pipeline_model_parallel_size > 1


def layer_specs(config: TransformerConfig, stage: int | None) -> TransformerBlockSubmodules:
    """What the layers of a chunk are made of: dense or of experts, each as ``moe_layer_freq`` says."""
    first = get_transformer_layer_offset(config, stage)
    layers = range(first, first + get_num_layers_to_build(config, stage))
    frequency = config.moe_layer_freq
    of_experts = [
        config.num_moe_experts is not None
        and bool(frequency[layer] if isinstance(frequency, list) else layer % frequency == 0)
        for layer in layers
    ]
    return TransformerBlockSubmodules(layer_specs=[_layer(config, each) for each in of_experts], layer_norm=RmsNorm)


def _layer(config: TransformerConfig, of_experts: bool) -> ModuleSpec:
    spec = get_gpt_layer_local_spec(
        num_experts=config.num_moe_experts if of_experts else None,
        qk_layernorm=config.qk_layernorm,
        normalization=config.normalization,
    )
    layer = spec.submodules
    attention = layer.self_attention.submodules
    layer.input_layernorm = layer.pre_mlp_layernorm = RmsNorm
    if of_experts and config.moe_grouped_gemm:
        layer.mlp.submodules.experts.module = GroupedExperts
    attention.linear_qkv, attention.linear_proj = AdaptedColumns, AdaptedRows
    if not of_experts:
        layer.mlp.submodules.linear_fc1, layer.mlp.submodules.linear_fc2 = AdaptedColumns, AdaptedRows
    attention.core_attention = PackedAttention
    if config.qk_layernorm:
        attention.q_layernorm = attention.k_layernorm = RmsNorm
    return spec


class PackedAttention(torch.nn.Module):
    """Attends within each sequence, causally."""

    def __init__(self, config: TransformerConfig, *, softmax_scale: float | None = None, **_: Any) -> None:
        super().__init__()
        self._scale = softmax_scale
        self._dropout = config.attention_dropout

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *_: Any, packed_seq_params: Packed, **__: Any
    ) -> Tensor:
        """[tokens, 1, heads, dim] to [tokens, 1, heads * dim], all of this worker."""
        assert packed_seq_params.rows is not None, "the engine lays sequences out"
        q, k, v = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))
        output, _none = packed_attention(
            self,
            q,
            k,
            v,
            None,
            rows=packed_seq_params.rows,
            sequence=packed_seq_params.sequence,
            scaling=self._scale,
            dropout=self._dropout if self.training else 0.0,
        )
        return output.transpose(0, 1).flatten(2)


class RmsNorm(torch.nn.Module):
    """Root mean square norm in float32, with the weight in the number type of the model."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-6, **_: Any) -> None:
        super().__init__()
        device = None if config.use_cpu_initialization else torch.cuda.current_device()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype, device=device))
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]  # gradients are added up
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., hidden] to the same."""
        return _norm(hidden, self.weight, self.eps)


def _normed(hidden: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = hidden.float() if hidden.element_size() < 4 else hidden
    scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * scaled.to(hidden.dtype)


_norm: Callable[[Tensor, Tensor, float], Tensor] = _normed


def compile_norms() -> None:
    """Compute norms through torch.compile from now on, in this process: one pass over the hidden states instead of six."""
    global _norm
    _norm = torch.compile(_normed, dynamic=True)


class Rotary(torch.nn.Module):
    """Angles by position. What Megatron-core calls a length are the positions themselves here."""

    def __init__(self, frequencies: Tensor, scaling: float) -> None:
        super().__init__()
        self._frequencies = frequencies
        self.scaling = scaling
        """Of cosine and sine; queries and keys both have it, so the scale of the softmax has its square."""

    def get_rotary_seq_len(self, *args: Any) -> Tensor:
        """The positions of the tokens of this worker."""
        packed: Packed = args[-1]
        assert packed.positions is not None, "the engine says the positions"
        return packed.positions

    def forward(self, positions: Tensor, **_: Any) -> Tensor:
        """[tokens] to [tokens, 1, 1, dim], in float32."""
        turned = torch.outer(positions.float(), self._frequencies.to(positions.device))
        return torch.cat((turned, turned), -1)[:, None, None]


def angles(hf_config: PretrainedConfig) -> tuple[Tensor, float]:
    """Return frequencies [dim / 2] and the scaling of cosine and sine, as Transformers works them out.

    Raises:
        PlanError: they depend on how long a sequence is, or differ between layers.
    """
    rope = hf_config.rope_parameters or {}
    kind = rope.get("rope_type", "default")
    if kind not in FIXED_ANGLES:
        raise PlanError(
            said(
                "the model has {kind} rotary embeddings; the Megatron engine computes {names}",
                kind=kind,
                names=", ".join(FIXED_ANGLES),
            ),
            hint="set train.engine to fsdp2",
        )
    if kind != "default":
        frequencies, scaling = ROPE_INIT_FUNCTIONS[kind](hf_config)
        return frequencies.float(), float(scaling)
    dim = getattr(hf_config, "head_dim", None) or hf_config.hidden_size // hf_config.num_attention_heads
    return 1.0 / (rope["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float) / dim)), 1.0


@dataclass(frozen=True, slots=True)
class PackedInputs:
    """A micro-batch as this worker's chunks take it."""

    input_ids: Tensor
    """int64 [1, tokens]: of all tensor workers together; of a worker of a context group its slice."""
    packed: Packed
    select: Tensor
    """int64 [n]: the places in this slice that predict a counted token."""
    targets: Tensor
    """int64 [n]."""
    counts: list[int] | None
    """Of n over the context group; None where sequences are whole."""


def lay_out(batch: MicroBatch, config: TransformerConfig, sequence: SequenceGroup | None) -> PackedInputs:
    """Fill a micro-batch up until it divides over the workers that share its tokens, and take this worker's slice.

    What fills it up is one more sequence, that nothing counts.
    """
    split = config.context_parallel_size * (config.tensor_model_parallel_size if config.sequence_parallel else 1)
    padded = pad_tokens(batch, split)
    part, counts = (padded, None) if sequence is None else sequence.part_of(padded)
    rows = padded.inputs["rows"].to(padded.select.device)
    packed = Packed(rows=rows, positions=part.inputs["position_ids"][0], sequence=sequence)
    return PackedInputs(part.inputs["input_ids"], packed, part.select, part.targets, counts)


def pad_tokens(batch: MicroBatch, multiple: int) -> MicroBatch:
    """Lay one more sequence behind the others, so long that the tokens are a multiple."""
    ids, positions = batch.inputs["input_ids"], batch.inputs["position_ids"]
    missing = -ids.shape[1] % multiple
    if missing == 0:
        return batch
    added = torch.arange(missing, device=ids.device)[None]
    positions = torch.cat((positions, added), 1)
    starts = (positions[0] == 0).nonzero().squeeze(1)
    lengths = torch.diff(starts, append=starts.new_tensor([positions.shape[1]]))
    inputs = {"input_ids": F.pad(ids, (0, missing)), "position_ids": positions, "rows": Rows.of(lengths)}
    return dataclasses.replace(batch, inputs={**batch.inputs, **inputs})
