"""A model of which each worker reads only its own part: made without memory, spread, and then filled from the files.

    bare            the model on no device; what is in no file (rotary angles, a new value head) as Transformers makes it
    fill            memory for this worker's part, and its rows of every tensor

Loaded whole, a model of 7B parameters takes 30 GB of float32 in each of 8 workers, of which each keeps an eighth.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel

from rlctl.common.errors import RunError
from rlctl.runtime.train.safetensors_files import SafetensorsFiles


@dataclass(frozen=True)
class BareModel:
    """A model on no device, and where its values come from."""

    model: PreTrainedModel
    files: SafetensorsFiles
    made: dict[str, Tensor]
    """Parameters and buffers that are in no file, whole."""

    def fill(self, device: torch.device) -> None:
        """Give the model, which is spread over the workers by now, its memory on ``device`` and this worker's values."""
        model = self.model
        model.to_empty(device=device)
        buffers = dict(model.named_buffers())
        with self.files, torch.no_grad():
            for name, target in (*model.named_parameters(), *buffers.items()):
                if name in self.made:
                    source: Any = self.made[name]
                else:
                    source = self.files.tensor(name)
                local, rows = _own(target)
                if rows is None:
                    local.copy_(source[...])
                elif rows.stop > rows.start:
                    local.copy_(source[rows])


def _own(target: Tensor) -> tuple[Tensor, slice | None]:
    """The memory of this worker's part of a tensor, and which rows those are; None for all of it."""
    if not isinstance(target, DTensor):
        return target, None
    shape, offset = compute_local_shape_and_global_offset(target.shape, target.device_mesh, target.placements)
    assert shape[1:] == target.shape[1:], "parameters are spread by rows"
    return target.to_local(), slice(offset[0], offset[0] + shape[0])


def bare(kind: Any, path: str, config: PreTrainedConfig, *, dtype: torch.dtype, **options: Any) -> BareModel | None:
    """Return the model at ``path`` without memory, as ``kind.from_pretrained`` would load it.

    None if it cannot be filled by rows: its files have other names or shapes than the model, or another format, or it is
    quantized, or keeps some parameters in another type.

    Args:
        kind: an Auto class of Transformers.
        path: a folder, or a name on the hub.
        config: of the model.
        dtype: of the parameters.
        options: of ``from_config``.
    """
    if getattr(config, "quantization_config", None) is not None:
        return None
    try:
        files = SafetensorsFiles(path)
    except RunError:
        return None
    own = copy.deepcopy(config)
    own.name_or_path = path
    with torch.device("meta"):
        model: PreTrainedModel = kind.from_config(own, dtype=dtype, **options)
    if dtype != torch.float32 and model._keep_in_fp32_modules_strict:
        return None
    expected = model.state_dict(keep_vars=True)
    tied = set(model.all_tied_weights_keys)
    missing = {name for name in expected if name not in files.names and name not in tied}
    with files:
        if any(
            list(files.tensor(name).get_shape()) != list(expected[name].shape) for name in files.names & expected.keys()
        ):
            return None
    buffers = {name for name, _ in model.named_buffers()}
    if missing & buffers or not _is_head(missing):
        return None
    for name in expected.keys() - missing:
        expected[name]._is_hf_initialized = True  # type: ignore[attr-defined]
    model._move_missing_keys_from_meta_to_device(missing, None, None, None)  # type: ignore[arg-type]
    model._initialize_missing_keys(False)
    model.tie_weights(missing_keys=missing | tied, recompute_mapping=False)
    now = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    made = {name: tensor.detach() for name, tensor in now.items() if not tensor.is_meta}
    if not made.keys() >= missing or any(name not in made and name not in files.names for name in now):
        return None
    if model.can_generate():
        with suppress(OSError):  # without a file of its own, it follows from the config
            model.generation_config = GenerationConfig.from_pretrained(path)
    return BareModel(model.eval(), files, made)


def _is_head(missing: set[str]) -> bool:
    """Whether nothing is missing but a head of one or two tensors: more is a file of other names."""
    return len({name.rpartition(".")[0] for name in missing}) <= 1
