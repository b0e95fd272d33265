"""Hugging Face weights into a Megatron model and out of it, tensor by tensor, by the tables in ``names``.

Loading, a worker reads the rows and columns of its own share from safetensors files. Exporting, the workers that share a
weight gather it on the first of them, and the one of a later pipeline stage sends it to rank 0.

Every tensor of the files is used, or told why not, or refused; every parameter of the model is filled, or refused.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.utils import unwrap_model
from torch import Tensor

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said, spoken
from rlctl.runtime.train.gathering import from_first
from rlctl.runtime.train.megatron.head import ValueHead
from rlctl.runtime.train.megatron.names import ADAPTERS, LAYER, UNUSED, VALUE_HEAD, Names, WeightNameRule
from rlctl.runtime.train.safetensors_files import SafetensorsFiles

logger = logging.getLogger(__name__)

EXPERT = re.compile(r"mlp\.experts\.local_experts\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Part:
    """This worker's share of a weight, named as the tables name it; of an expert with its number in the whole model."""

    name: str
    tensor: Tensor
    expert: int | None = None


def parts(chunks: Sequence[torch.nn.Module]) -> Iterator[Part]:
    """All weights that this worker has.

    Raises:
        RunError: a chunk keeps something besides its parameters.
    """
    for chunk in unwrap_model(list(chunks)):
        parameters = dict(chunk.named_parameters())
        kept = {name for name, value in chunk.state_dict().items() if isinstance(value, Tensor)}
        if strange := sorted(kept - parameters.keys()):
            raise RunError(
                said(
                    "the Megatron engine converts only parameters, but the model also has {strange}", strange=strange[0]
                ),
                hint="remove the setting that adds it from train.engine.transformer",
            )
        for name, parameter in parameters.items():
            yield _part(in_the_whole_model(name, chunk), parameter.detach(), chunk.config)


def parameters(chunks: Sequence[torch.nn.Module]) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """All parameters that this worker has, each under the name that the tables have a rule for."""
    for chunk in unwrap_model(list(chunks)):
        for name, parameter in chunk.named_parameters():
            yield EXPERT.sub("mlp.experts.*.", in_the_whole_model(name, chunk)), parameter


def in_the_whole_model(name: str, chunk: Any) -> str:
    """A parameter's name with the layer's number in the model, where the chunk counts its own."""
    if name.startswith("output_layer.") and isinstance(chunk.output_layer, ValueHead):
        return name.replace("output_layer", "value_head")
    if not name.startswith(LAYER):
        return name
    own, _, rest = name.removeprefix(LAYER).partition(".")
    return f"{LAYER}{chunk.decoder.layers[int(own)].layer_number - 1}.{rest}"


def _part(name: str, tensor: Tensor, config: Any) -> Part:
    """A part, of an expert with its number in the model, where the worker counts its own."""
    found = EXPERT.search(name)
    if found is None:
        return Part(name, tensor)
    here = config.num_moe_experts // mpu.get_expert_model_parallel_world_size()
    first = mpu.get_expert_model_parallel_rank() * here
    return Part(EXPERT.sub("mlp.experts.*.", name), tensor, first + int(found[1]))


def _sharing(rule: WeightNameRule) -> tuple[int, int]:
    """This worker's rank among those that share a weight, and how many they are."""
    if not rule.layout.shared:
        return 0, 1
    if rule.stacked:
        return mpu.get_expert_tensor_parallel_rank(), mpu.get_expert_tensor_parallel_world_size()
    return mpu.get_tensor_model_parallel_rank(), mpu.get_tensor_model_parallel_world_size()


def _shapes(rule: WeightNameRule, share: torch.Size, sharing: int, names: Names) -> list[list[int]]:
    """The shapes of a rule's Hugging Face tensors, of which ``sharing`` workers have shares of the shape ``share``."""
    lengths = [0] * len(rule.hugging_face)
    for rank in range(sharing):
        for block in rule.layout.blocks(rank, share[rule.layout.dim], names.heads):
            lengths[block.tensor] = max(lengths[block.tensor], block.stop)
    dim = rule.layout.dim
    return [[*share[:dim], length, *share[dim + 1 :]] for length in lengths]


# Loading


def fill_adapters(chunks: Sequence[torch.nn.Module], adapters: Mapping[str, Tensor], hf_config: Any) -> None:
    """Fill the adapters of a model from whole tensors under peft's names."""
    names = Names(hf_config)
    for part in parts(chunks):
        if ADAPTERS in part.name:
            _fill(part, names.rule(part.name), lambda name: (list(adapters[name].shape), adapters[name]), names)


def drawn_head(chunks: Sequence[torch.nn.Module], hf_config: Any) -> None:
    """Draw a critic's head from torch's generator, as Transformers draws it: seed it alike on every worker."""
    names = Names(hf_config)
    for part in parts(chunks):
        if ADAPTERS not in part.name and _drawn(names.rule(part.name)):
            _draw(part, hf_config)


def load_weights(chunks: Sequence[torch.nn.Module], folder: Path | str, hf_config: Any) -> None:
    """Fill the model of all workers from a folder or hub name, but for adapters; every worker calls it.

    It is to come before the optimizer is made, which copies the weights. A value head that the files lack is drawn from
    torch's generator, as Transformers draws it: seed it alike on every worker.

    Raises:
        RunError: a tensor is missing, unknown, or of another shape, on every worker where it concerns names.
    """
    names = Names(hf_config)
    mine = [part for part in parts(chunks) if ADAPTERS not in part.name]
    with SafetensorsFiles(str(folder)) as files:

        def read(name: str) -> tuple[list[int], Any]:
            return files.tensor(name).get_shape(), files.tensor(name)

        _account(_needed(mine, names, hf_config), files)
        for part in mine:
            rule = names.rule(part.name)
            if rule.hugging_face[0] in files.names or not _drawn(rule):
                _fill(part, rule, read, names, where=f" in {files.path}")
            else:
                _draw(part, hf_config)


def _needed(mine: Iterable[Part], names: Names, hf_config: Any) -> dict[str, str]:
    """The Hugging Face tensors of the model of all workers, each with what it fills."""
    own: dict[str, str] = {}
    for part in mine:
        for name in names.rule(part.name).hugging_face:
            experts = [*range(hf_config.num_experts)] if part.expert is not None else [None]
            own |= {_numbered(name, expert): part.name for expert in experts}
    stages = mpu.get_pipeline_model_parallel_group()
    found: list[dict[str, str]] = [{} for _ in range(stages.size())]
    dist.all_gather_object(found, own, group=stages)
    return {name: fills for each in found for name, fills in each.items()}


def _numbered(name: str, expert: int | None) -> str:
    return name if expert is None else name.replace("*", str(expert))


def _drawn(rule: WeightNameRule) -> bool:
    return rule in VALUE_HEAD


def _account(needed: dict[str, str], files: SafetensorsFiles) -> None:
    """Tell which tensors of the files are not used, and why."""
    heads = {name for rule in VALUE_HEAD for name in rule.hugging_face}
    missing = sorted(needed.keys() - files.names - heads)
    if missing:
        raise RunError(
            said(
                "{path} lacks {count} of the model's tensors, the first is {missing}, for {needed}",
                path=files.path,
                count=len(missing),
                missing=missing[0],
                needed=needed[missing[0]],
            ),
            hint="check that config.json belongs to these weights",
        )
    for name in sorted(files.names - needed.keys()):
        reason = next((why for end, why in UNUSED.items() if name.endswith(end)), None)
        if reason is None:
            raise RunError(
                said(
                    "{path} has the tensor {name}, which the Megatron model does not have", path=files.path, name=name
                ),
                hint="set train.engine.type to fsdp2, which trains any Transformers model",
            )
        if dist.get_rank() == 0:
            logger.warning(spoken("{name} of {path} is not used: {why}", name=name, path=files.path, why=reason))


def _fill(
    part: Part, rule: WeightNameRule, read: Callable[[str], tuple[list[int], Any]], names: Names, *, where: str = ""
) -> None:
    """Copy this worker's share of the tensors that ``read`` names: the shape of each, and what can be sliced."""
    rank, sharing = _sharing(rule)
    dim, place = rule.layout.dim, 0
    sources = [_numbered(name, part.expert) for name in rule.hugging_face]
    for name, shape in zip(sources, _shapes(rule, part.tensor.shape, sharing, names), strict=True):
        if (found := read(name)[0]) != shape:
            raise RunError(
                said(
                    "{name}{where} has the shape {found}; expected {shape}",
                    name=name,
                    where=where,
                    found=found,
                    shape=shape,
                ),
                hint="check that config.json belongs to these weights",
            )
    with torch.no_grad():
        for block in rule.layout.blocks(rank, part.tensor.shape[dim], names.heads):
            length, (_, source) = block.stop - block.start, read(sources[block.tensor])
            share = source[block.start : block.stop] if dim == 0 else source[:, block.start : block.stop]
            part.tensor.narrow(dim, place, length).copy_(share)
            place += length
        part.tensor.narrow(dim, place, part.tensor.shape[dim] - place).zero_()


def _draw(part: Part, hf_config: Any) -> None:
    """As Transformers begins a linear layer."""
    if part.name.endswith(".bias"):
        part.tensor.zero_()
        return
    drawn = torch.empty(part.tensor.shape, dtype=part.tensor.dtype, device="cpu")
    part.tensor.copy_(drawn.normal_(0.0, hf_config.initializer_range))


# Exporting


@dataclass(frozen=True, slots=True)
class _Entry:
    """A weight that some pipeline stage has; of experts those of this worker, stacked."""

    name: str
    stage: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def order(self) -> tuple[int, int]:
        """Before the layers, in a layer, after them."""
        if self.name.startswith("embedding."):
            return 0, 0
        if self.name.startswith(LAYER):
            return 1, int(self.name.removeprefix(LAYER).partition(".")[0])
        return 2, 0


def export_weights(
    chunks: Sequence[torch.nn.Module], hf_config: Any, *, only: str = "", everywhere: bool = False
) -> Iterator[tuple[str, Tensor]]:
    """See ``TrainEngine.export_weights``. Names are those of the parameters of the Transformers model, of adapters peft's.

    With ``only`` those whose Megatron name contains it.

    Of a layer's experts all are together, as Transformers has them; else there is never more than one weight.
    """
    names = Names(hf_config)
    mine: dict[str, list[Part]] = {}
    for part in parts(chunks):
        if only in part.name:
            mine.setdefault(part.name, []).append(part)
    device = next(chunks[0].parameters()).device
    for entry in _entries(mine):
        rule = names.rule(entry.name)
        if hf_config.tie_word_embeddings and entry.name == "output_layer.weight":
            continue  # it is the embedding
        if entry.stage == mpu.get_pipeline_model_parallel_rank():
            own = sorted(mine[entry.name], key=lambda part: part.expert or 0)
            shares = _gather(_together(own), rule)
        else:
            shares = None
        shares = _to_first(shares, entry, rule, device)
        found: list[tuple[str, Tensor]] = []
        if dist.get_rank() == 0:
            assert shares is not None, "rank 0 is the first of every group"
            found = list(_joined(shares, rule, names))
        del shares
        yield from from_first(found, device) if everywhere else found
        del found


def _entries(mine: dict[str, list[Part]]) -> list[_Entry]:
    """All weights of the model, in the order in which it computes."""
    stages = mpu.get_pipeline_model_parallel_group()
    own = []
    for name, found in mine.items():
        first = found[0].tensor
        shape = tuple(first.shape) if found[0].expert is None else (len(found), *first.shape)
        own.append(_Entry(name, mpu.get_pipeline_model_parallel_rank(), shape, first.dtype))
    gathered: list[list[_Entry]] = [[] for _ in range(stages.size())]
    dist.all_gather_object(gathered, own, group=stages)
    return sorted((entry for each in gathered for entry in each), key=lambda entry: entry.order)


def _together(own: list[Part]) -> Tensor:
    return own[0].tensor if own[0].expert is None else torch.stack([part.tensor for part in own])


def _groups(rule: WeightNameRule) -> list[dist.ProcessGroup]:
    """Those that have a weight's shares, the innermost first; of replicas only the first takes part."""
    if rule.stacked:
        first = mpu.get_expert_data_parallel_rank() == 0
        return [mpu.get_expert_tensor_parallel_group(), mpu.get_expert_model_parallel_group()] if first else []
    first = mpu.get_data_parallel_rank(with_context_parallel=True) == 0
    return [mpu.get_tensor_model_parallel_group()] if first and rule.layout.shared else []


def _gather(tensor: Tensor, rule: WeightNameRule) -> Tensor | None:
    """The shares of all workers of this stage, stacked, on the first of them."""
    found: Tensor | None = tensor
    for group in _groups(rule):
        if found is not None:
            found = _stacked(found, group)
    return found if _groups(rule) else tensor[None]


def _stacked(tensor: Tensor, group: dist.ProcessGroup) -> Tensor | None:
    if group.size() == 1:
        return tensor[None]
    tensor = tensor.contiguous()
    received = [torch.empty_like(tensor) for _ in range(group.size())] if group.rank() == 0 else None
    dist.gather(tensor, received, group=group, group_dst=0)
    return torch.stack(received) if received is not None else None


def _to_first(shares: Tensor | None, entry: _Entry, rule: WeightNameRule, device: torch.device) -> Tensor | None:
    """What the first worker of the stage has, on rank 0."""
    stages = mpu.get_pipeline_model_parallel_group()
    if entry.stage == 0 or 0 not in dist.get_process_group_ranks(stages):
        return shares
    if dist.get_rank() == 0:
        sharing = [_sharing(rule)[1]]
        if rule.stacked:
            sharing.insert(0, mpu.get_expert_model_parallel_world_size())
        shares = torch.empty((*sharing, *entry.shape), dtype=entry.dtype, device=device)
        dist.recv(shares, group=stages, group_src=entry.stage)
    elif stages.rank() == entry.stage:
        assert shares is not None, "the first worker of a stage has gathered"
        dist.send(shares.contiguous(), group=stages, group_dst=0)
    return shares


def _joined(shares: Tensor, rule: WeightNameRule, names: Names) -> Iterator[tuple[str, Tensor]]:
    """The Hugging Face tensors of the shares of all workers."""
    if not rule.stacked:
        yield from zip(rule.hugging_face, _join(list(shares), rule, names), strict=True)
        return
    # shares: expert parallel, expert tensor parallel, local expert, rows, columns
    experts = shares.transpose(1, 2).flatten(0, 1)
    yield rule.stacked, torch.stack([torch.cat(_join(list(expert), rule, names)) for expert in experts])


def _join(shares: list[Tensor], rule: WeightNameRule, names: Names) -> list[Tensor]:
    dim, like = rule.layout.dim, shares[0]
    whole = [like.new_empty(shape) for shape in _shapes(rule, like.shape, len(shares), names)]
    for rank, share in enumerate(shares):
        place = 0
        for block in rule.layout.blocks(rank, like.shape[dim], names.heads):
            length = block.stop - block.start
            whole[block.tensor].narrow(dim, block.start, length).copy_(share.narrow(dim, place, length))
            place += length
    return whole
