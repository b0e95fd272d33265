"""Low-rank adapters on Megatron-core's linear layers, with the numbers, names and files that ``lora`` has of them.

Megatron-core fuses queries, keys and values into one layer, gate and up projection into another. Here too each Hugging Face
layer has its own adapter, as peft has it: a fused layer has several, and each adds to its own rows. Layers are cut over tensor
workers as their weights are:

    AdaptedColumns    A [rank, in] on every worker, of B [out, rank] its rows
    AdaptedRows       of A [rank, in] its columns, B [out, rank] on every worker
    AdaptedHead       of a critic: both on every worker

Which layers have one is decided by peft, on the Transformers model without memory (``beside``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    get_cuda_rng_tracker,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)
from megatron.core.tensor_parallel.layers import set_tensor_model_parallel_attributes
from megatron.core.tensor_parallel.random import get_data_parallel_rng_tracker_name
from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint
from megatron.core.utils import unwrap_model
from peft.tuners.lora import LoraLayer
from torch import Tensor

from rlctl.common.errors import PlanError
from rlctl.common.messages.reasons import said
from rlctl.runtime.train.lora import NAME, Adapters, layers_of
from rlctl.runtime.train.megatron.head import ValueHead
from rlctl.runtime.train.megatron.names import ADAPTERS, HUGGING_FACE_LAYER, Names, WeightNameRule, last_of, owner_of
from rlctl.runtime.train.megatron.weights import in_the_whole_model


class Adapter(torch.nn.Module):
    """What one adapter adds, where this worker has a part of its layer: scale * B A dropout(x)."""

    def __init__(self, layer: LoraLayer, inputs: int, outputs: int, like: Tensor, *, columns: bool | None) -> None:
        """Make room for its weights.

        Args:
            layer: what peft made of it.
            inputs: columns of A that this worker has.
            outputs: rows of B that it has.
            like: a weight of the layer, for type and device.
            columns: whether B is cut over tensor workers, else A; None where neither is.
        """
        super().__init__()
        rank = layer.r[NAME]
        self.scale = layer.scaling[NAME]
        self.dropout = float(getattr(layer.lora_dropout[NAME], "p", 0.0))
        self.lora_A = torch.nn.Parameter(like.new_empty(rank, inputs))
        self.lora_B = torch.nn.Parameter(like.new_empty(outputs, rank))
        if columns is not None:
            cut, dim = (self.lora_B, 0) if columns else (self.lora_A, 1)
            set_tensor_model_parallel_attributes(cut, is_parallel=True, dim=dim, stride=1)

    def forward(self, hidden: Tensor, draws: AbstractContextManager[Any], meet: Callable[[Tensor], Tensor]) -> Tensor:
        """[..., in] to [..., out].

        Megatron-core brings the weights of a module before it is called, where it does so beside other work.

        Args:
            hidden: what the layer is fed.
            draws: the random numbers of dropout.
            meet: how tensor workers come from their [..., rank] to that of all.
        """
        if self.training and self.dropout:
            with draws:
                hidden = F.dropout(hidden, self.dropout)
        return F.linear(meet(F.linear(hidden, self.lora_A)), self.lora_B) * self.scale


class Piece(NamedTuple):
    """Rows of the output of a layer: so many of an adapter's own, from ``start``."""

    adapter: str
    start: int
    length: int


class AdaptedColumns(ColumnParallelLinear):  # type: ignore[misc]  # Megatron-core is not typed
    """A layer whose rows are cut, with adapters for some of the weights that are fused in it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.adapters = torch.nn.ModuleDict()
        self.pieces: list[Piece] = []
        self.without_adapters = False

    def adapt(self, layers: Mapping[int, LoraLayer], rule: WeightNameRule, names: Names) -> None:
        """Put adapters on those of a rule's weights that ``layers`` counts."""
        rank, rows = self.tp_group.rank(), len(self.weight)
        blocks = rule.layout.blocks(rank, rows, names.heads)
        lengths = {number: sum(b.stop - b.start for b in blocks if b.tensor == number) for number in layers}
        for number, layer in layers.items():
            if not lengths[number]:
                raise PlanError(
                    said(
                        "{hugging_face} has an adapter, but a tensor-parallel worker holds none of its rows",
                        hugging_face=rule.hugging_face[number],
                    ),
                    hint="set train.engine.tensor_parallel_size to a divisor of the model's kv heads",
                )
            made = Adapter(layer, self.input_size, lengths[number], self.weight, columns=True)
            made.lora_A.sequence_parallel = self.sequence_parallel  # type: ignore[attr-defined]  # gradients are added up
            self.adapters[last_of(rule.hugging_face[number])] = made
        placed = dict.fromkeys(range(len(rule.hugging_face)), 0)
        for block in blocks:
            length = block.stop - block.start
            self.pieces.append(Piece(last_of(rule.hugging_face[block.tensor]), placed[block.tensor], length))
            placed[block.tensor] += length

    def forward(self, input_: Tensor, *args: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
        """See Megatron-core."""
        output, bias = super().forward(input_, *args, **options)
        if not self.adapters or self.without_adapters:
            return output, bias
        tracker = get_cuda_rng_tracker()
        whole = not self.sequence_parallel  # then all tensor workers have the same tokens, and are to draw the same
        meet = copy_to_tensor_model_parallel_region if whole else gather_from_sequence_parallel_region
        added = {}
        for name, adapter in self.adapters.items():
            draws = tracker.fork(get_data_parallel_rng_tracker_name()) if whole else tracker.fork()
            added[name] = adapter(input_, draws, partial(meet, group=self.tp_group))
        return output + torch.cat([_piece(added, piece, output) for piece in self.pieces], -1), bias

    def sharded_state_dict(
        self, prefix: str = "", sharded_offsets: tuple[Any, ...] = (), metadata: Any = None
    ) -> dict[str, Any]:
        """See Megatron-core."""
        return _sharded(self, {"weight": 0, "bias": 0}, {"lora_B": 0}, prefix, sharded_offsets, metadata)


def _piece(added: Mapping[str, Tensor], piece: Piece, output: Tensor) -> Tensor:
    if piece.adapter in added:
        return added[piece.adapter].narrow(-1, piece.start, piece.length)
    return output.new_zeros(*output.shape[:-1], piece.length)


class AdaptedRows(RowParallelLinear):  # type: ignore[misc]
    """A layer whose columns are cut, with an adapter."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.adapters = torch.nn.ModuleDict()
        self.without_adapters = False

    def adapt(self, layers: Mapping[int, LoraLayer], rule: WeightNameRule, names: Names) -> None:
        """Put an adapter on the rule's weight."""
        outputs, inputs = self.weight.shape
        made = Adapter(layers[0], inputs, outputs, self.weight, columns=False)
        made.lora_B.sequence_parallel = self.sequence_parallel  # type: ignore[attr-defined]
        self.adapters[last_of(rule.hugging_face[0])] = made

    def forward(self, input_: Tensor) -> tuple[Tensor, Tensor | None]:
        """See Megatron-core."""
        output, bias = super().forward(input_)
        if self.without_adapters:
            return output, bias
        meet = (
            reduce_scatter_to_sequence_parallel_region
            if self.sequence_parallel
            else reduce_from_tensor_model_parallel_region
        )
        for adapter in self.adapters.values():
            output = output + adapter(input_, get_cuda_rng_tracker().fork(), partial(meet, group=self.tp_group))
        return output, bias

    def sharded_state_dict(
        self, prefix: str = "", sharded_offsets: tuple[Any, ...] = (), metadata: Any = None
    ) -> dict[str, Any]:
        """See Megatron-core."""
        return _sharded(self, {"weight": 1}, {"lora_A": 1}, prefix, sharded_offsets, metadata)


def _sharded(
    layer: AdaptedColumns | AdaptedRows,
    own: Mapping[str, int],
    of_adapters: Mapping[str, int],
    prefix: str,
    offsets: tuple[Any, ...],
    metadata: Any,
) -> dict[str, Any]:
    """Weights, and which dimension of each is cut."""
    state = layer.state_dict(prefix="", keep_vars=True)
    cut = {name: of_adapters[last] for name in state if (last := name.rpartition(".")[2]) in of_adapters}
    group = metadata["dp_cp_group"]
    found: dict[str, Any] = make_sharded_tensors_for_checkpoint(
        state, prefix, {**own, **cut}, offsets, tp_group=layer.tp_group, dp_cp_group=group
    )
    return found


class AdaptedHead(ValueHead):
    """The head of a critic, with an adapter."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.adapters = torch.nn.ModuleDict()
        self.without_adapters = False

    def adapt(self, layers: Mapping[int, LoraLayer], rule: WeightNameRule, names: Names) -> None:
        """Put an adapter on it."""
        outputs, inputs = self.weight.shape
        self.adapters[last_of(rule.hugging_face[0])] = Adapter(layers[0], inputs, outputs, self.weight, columns=None)

    def values(self, hidden: Tensor) -> Tensor:
        """See ``ValueHead``."""
        found = super().values(hidden)
        for adapter in () if self.without_adapters else self.adapters.values():
            draws = get_cuda_rng_tracker().fork(get_data_parallel_rng_tracker_name())
            found = found + adapter(hidden, draws, _alone)
        return found


def _alone(low: Tensor) -> Tensor:
    return low


Adapted = AdaptedColumns | AdaptedRows | AdaptedHead


def put_on(chunks: Sequence[torch.nn.Module], adapters: Adapters, names: Names) -> None:
    """Make room for adapters on the layers of all chunks that have them in the Transformers model.

    Raises:
        PlanError: one of them is on a layer that Megatron-core computes otherwise.
    """
    wanted = layers_of(adapters.model)
    known = names.adapted()
    for owner in sorted(wanted):
        _, layer, rest = owner.rpartition(HUGGING_FACE_LAYER)
        if (rest.partition(".")[2] if layer else owner) not in known:
            raise PlanError(
                said(
                    "model.lora puts an adapter on {owner}; the Megatron engine has adapters on {names}",
                    owner=owner,
                    names=", ".join(sorted(known)),
                ),
                hint="name those in model.lora.target_modules, or set train.engine to fsdp2",
            )
    for chunk in unwrap_model(list(chunks)):
        for name, module in list(chunk.named_modules()):
            if isinstance(module, Adapted):
                rule = names.rule(in_the_whole_model(f"{name}.weight", chunk))
                numbered = enumerate(owner_of(each) for each in rule.hugging_face)
                if found := {number: wanted[owner] for number, owner in numbered if owner in wanted}:
                    module.adapt(found, rule, names)


def train_only(chunks: Sequence[torch.nn.Module]) -> None:
    """Have nothing but adapters trained."""
    for chunk in chunks:
        for name, parameter in chunk.named_parameters():
            parameter.requires_grad_(ADAPTERS in name)


@contextmanager
def switched_off(chunks: Sequence[torch.nn.Module]) -> Iterator[None]:
    """Compute the model without its adapters."""
    layers = [module for chunk in chunks for module in chunk.modules() if isinstance(module, Adapted)]
    for layer in layers:
        layer.without_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer.without_adapters = False


def as_peft_names(tensors: Iterable[tuple[str, Tensor]], adapters: Adapters) -> Iterator[tuple[str, Tensor]]:
    """Weights under the names that they have in a model with adapters."""
    layers = layers_of(adapters.model)
    for name, tensor in tensors:
        owner, _, last = name.rpartition(".")
        yield (f"{owner}.base_layer.{last}" if owner in layers else name), tensor
