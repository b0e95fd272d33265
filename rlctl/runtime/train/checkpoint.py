"""An engine's state on disk, with torch.distributed.checkpoint: each worker writes its part, any number of workers reads it.

Everything is a tensor under a flat name:

    model/<parameter>   optimizer/<parameter>/<state>   progress: ticks, updates   random/<rank>, random_cuda/<rank>

``checksums.json`` holds the CRC-32 of every file, and is written last.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from rlctl.errors import RunError
from rlctl.runtime.seeds import derive_seed

if TYPE_CHECKING:
    from rlctl.runtime.train.fsdp import FsdpEngine

CHECKSUMS = "checksums.json"


def state_of(engine: FsdpEngine) -> dict[str, Tensor]:
    """Return what is saved: this worker's part of everything."""
    assert engine.optimizer is not None, "a reference is never saved"
    state = _persistent(engine)
    for name, parameter in engine.model.named_parameters():
        for key, value in engine.optimizer.state.get(parameter, {}).items():
            state[f"optimizer/{name}/{key}"] = value
    state["progress"] = torch.tensor([engine.ticks, engine.updates])
    state[f"random/{dist.get_rank()}"] = torch.get_rng_state()
    if engine.device.type == "cuda":
        state[f"random_cuda/{dist.get_rank()}"] = torch.cuda.get_rng_state()
    return state


def _persistent(engine: FsdpEngine) -> dict[str, Tensor]:
    """What is read back into the model; under adapters only they are, as the rest is where it was loaded from."""
    if engine.adapters is not None:
        return {f"model/{n}": p.detach() for n, p in engine.model.named_parameters() if p.requires_grad}
    kept = engine.model.state_dict().keys()
    named = (*engine.model.named_parameters(), *engine.model.named_buffers())
    return {f"model/{name}": tensor.detach() for name, tensor in named if name in kept}


def save(state: dict[str, Tensor], folder: Path) -> None:
    """Write a state; every worker calls it."""
    state_dict_saver.save(state, checkpoint_id=folder)
    if dist.get_rank() == 0:
        (folder / CHECKSUMS).write_text(json.dumps(_checksums(folder), indent=1))
    dist.barrier()


def load(engine: FsdpEngine, folder: Path) -> None:
    """Take up a state.

    A worker that was not there when it was saved draws random numbers from a new stream, named by the run's seed, the
    updates so far and its rank.

    Raises:
        RunError: something is missing, damaged, or of another model.
    """
    _verify(folder)
    try:
        metadata = FileSystemReader(folder).read_metadata().state_dict_metadata
        state: dict[str, Tensor] = {**_persistent(engine), **_places(engine, metadata)}
        state_dict_loader.load(state, checkpoint_id=folder)
    except (CheckpointException, OSError, ValueError, KeyError, RuntimeError, EOFError, UnpicklingError) as error:
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise RunError(
            f"the checkpoint {folder} does not fit the model: {first}",
            hint="was model.path changed since it was saved?",
        ) from error
    _put_back(engine, state)


def _places(engine: FsdpEngine, metadata: dict[str, Any]) -> dict[str, Tensor]:
    """Tensors to read into: optimizer states laid out as their parameters are, and what is saved besides."""
    places: dict[str, Tensor] = {}
    _begin(engine)
    assert engine.optimizer is not None, "a reference is never loaded"
    for name, parameter in engine.model.named_parameters():
        prefix = f"optimizer/{name}/"
        begun = engine.optimizer.state.get(parameter, {})
        for key in (key for key in metadata if key.startswith(prefix)):
            stored: TensorStorageMetadata = metadata[key]
            if key.removeprefix(prefix) in begun:
                places[key] = begun[key.removeprefix(prefix)]
                continue
            like = parameter.detach() if stored.size == parameter.shape else torch.empty(stored.size)
            places[key] = torch.zeros_like(like, dtype=stored.properties.dtype)
    for key in ("progress", f"random/{dist.get_rank()}", f"random_cuda/{dist.get_rank()}"):
        if key in metadata:
            places[key] = torch.empty(metadata[key].size, dtype=metadata[key].properties.dtype)
    return places


def _begin(engine: FsdpEngine) -> None:
    """Have another package's optimizer make its state, whose tensors may be of its own kind, by a step that moves nothing."""
    optimizer = engine.optimizer
    assert optimizer is not None, "a reference is never loaded"
    if type(optimizer).__module__.startswith("torch.optim") or optimizer.state:
        return
    for parameter in engine.model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    for group in optimizer.param_groups:
        group["lr"] = torch.zeros_like(group["lr"]) if isinstance(group["lr"], Tensor) else 0.0
    optimizer.step()
    optimizer.zero_grad()


def _put_back(engine: FsdpEngine, state: dict[str, Tensor]) -> None:
    assert engine.optimizer is not None, "a reference is never loaded"
    rank = dist.get_rank()
    engine.ticks, engine.updates = state["progress"].tolist()
    for name, parameter in engine.model.named_parameters():
        prefix = f"optimizer/{name}/"
        found = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
        if found:
            engine.optimizer.state[parameter] = found
    if f"random/{rank}" not in state:
        torch.manual_seed(derive_seed(engine.seed, "train", engine.updates, rank))
        return
    torch.set_rng_state(state[f"random/{rank}"])
    if engine.device.type == "cuda" and f"random_cuda/{rank}" in state:
        torch.cuda.set_rng_state(state[f"random_cuda/{rank}"])


def _checksums(folder: Path) -> dict[str, int]:
    return {path.name: _crc(path) for path in sorted(folder.iterdir()) if path.name != CHECKSUMS}


def _crc(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 24):
            value = zlib.crc32(chunk, value)
    return value


def _verify(folder: Path) -> None:
    """Compare every file with its checksum, on rank 0 for all.

    Raises:
        RunError: a file is missing or not as it was written, on every worker.
    """
    problem = [_damage(folder) if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(problem, src=0)
    if problem[0]:
        raise RunError(f"the checkpoint {folder} {problem[0]}", hint="go on from an earlier checkpoint")


def _damage(folder: Path) -> str:
    try:
        expected: dict[str, int] = json.loads((folder / CHECKSUMS).read_text())
    except (OSError, ValueError):
        return f"is not whole: {CHECKSUMS}, which is written last, is missing or damaged"
    for name, value in expected.items():
        if not (folder / name).is_file():
            return f"lacks the file {name}"
        if _crc(folder / name) != value:
            return f"is damaged: {name} is not as it was written"
    return ""
