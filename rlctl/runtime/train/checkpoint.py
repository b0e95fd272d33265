"""An engine's state on disk, with torch.distributed.checkpoint: each worker writes its part, any number of workers reads it.

Everything is a tensor under a flat name:

    model       model/<parameter>
    optimizer   optimizer/<parameter>/<state>
    extra       progress: ticks, updates   random/<rank>, random_cuda/<rank>   schedule: the learning rate's, as JSON
                loss_scale: of float16

``checksums.json`` holds the CRC-32 of every file, and is written last. What of it is written and read, by whom and when, is
said by the section ``checkpoint`` of the config.
"""

from __future__ import annotations

import dataclasses
import json
import socket
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.storage import WriteResult

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.output import Checkpoint
from rlctl.runtime.checkpoints.checksums import write_checksums
from rlctl.runtime.seeds import derive_seed
from rlctl.runtime.train.checkpoint_reader import (
    UNREADABLE,
    CheckpointReader,
    TensorPlanner,
    not_loaded,
    tensors_of,
)
from rlctl.runtime.train.lora import Adapters
from rlctl.runtime.train.scaling import LossScale
from rlctl.runtime.train.schedule import Curve


class Saved(Protocol):
    """What of an FSDP2 engine a checkpoint holds."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer | None
    adapters: Adapters | None
    loss_scale: LossScale | None
    curve: Curve | None
    ticks: int
    updates: int
    seed: int
    device: torch.device
    takes_schedule: bool


DEFAULTS = Checkpoint()


def state_of(engine: Saved, settings: Checkpoint = DEFAULTS) -> dict[str, Tensor]:
    """Return what is saved: this worker's part of everything, or of what ``save_contents`` names."""
    assert engine.optimizer is not None, "a reference is never saved"
    contents = settings.save_contents
    state = _persistent(engine) if "model" in contents else {}
    for name, parameter in engine.model.named_parameters() if "optimizer" in contents else ():
        for key, value in engine.optimizer.state.get(parameter, {}).items():
            state[f"optimizer/{name}/{key}"] = value
    if "extra" in contents:
        state["progress"] = torch.tensor([engine.ticks, engine.updates])
        state["schedule"] = _as_tensor(engine.curve)
        if engine.loss_scale is not None:
            state["loss_scale"] = engine.loss_scale.state()
        state[f"random/{dist.get_rank()}"] = torch.get_rng_state()
        if engine.device.type == "cuda":
            state[f"random_cuda/{dist.get_rank()}"] = torch.cuda.get_rng_state()
    return state


def _persistent(engine: Saved) -> dict[str, Tensor]:
    """What is read back into the model; under adapters only they are, as the rest is where it was loaded from."""
    if engine.adapters is not None:
        return {f"model/{n}": p.detach() for n, p in engine.model.named_parameters() if p.requires_grad}
    kept = engine.model.state_dict().keys()
    named = (*engine.model.named_parameters(), *engine.model.named_buffers())
    return {f"model/{name}": tensor.detach() for name, tensor in named if name in kept}


def _as_tensor(curve: Curve | None) -> Tensor:
    assert curve is not None, "what is saved has an optimizer"
    return torch.tensor(list(json.dumps(dataclasses.asdict(curve)).encode()), dtype=torch.uint8)


def save(state: Mapping[str, Tensor], folder: Path, settings: Checkpoint = DEFAULTS) -> Future[None]:
    """Write a state; every worker calls it.

    Returns:
        What is done when the folder is whole: at once, or under ``asynchronous``, where a copy of the state is written while
        training goes on, some time later.
    """
    return finish(write(state, folder, settings), folder, settings)


def write(
    state: Mapping[str, Any],
    folder: Path,
    settings: Checkpoint,
    *,
    planner: SavePlanner | None = None,
    copied: bool = False,
) -> Future[Any]:
    """Write the files of a state, in turn or in the background, but for the checksums.

    Under ``asynchronous`` they are of a copy, which is made here where the state is not ``copied`` yet.
    """
    if settings.asynchronous:
        group = _group_beside()
        if not copied:
            state = {name: tensor.clone() if tensor.device.type == "cpu" else tensor for name, tensor in state.items()}
        written = state_dict_saver.async_save(
            dict(state),
            storage_writer=_InTurn(folder, settings.writers, group),
            planner=planner,
            process_group=group,
            async_stager=_Copied() if copied else None,
        )
        assert isinstance(written, Future), "the copy is made before async_save returns"
        return written
    state_dict_saver.save(dict(state), storage_writer=_InTurn(folder, settings.writers, None), planner=planner)
    done: Future[Any] = Future()
    done.set_result(None)
    return done


class _Copied(AsyncStager):
    """What is to be written is a copy already."""

    _synchronize_after_execute = False

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        return state_dict

    def synchronize_staging(self) -> None:
        return

    def close(self) -> None:
        return


def finish(written: Future[Any], folder: Path, settings: Checkpoint) -> Future[None]:
    """Write the checksums of a folder whose other files are written: at once, or under ``asynchronous`` when they are."""
    if settings.asynchronous:
        return _then_sum(written, folder)
    done: Future[None] = Future()
    if dist.get_rank() == 0:
        write_checksums(folder)
    dist.barrier()
    done.set_result(None)
    return done


_beside: list[dist.ProcessGroup] = []
"""The process group of what is written beside training, which keeps the order of its own collectives."""


def _group_beside() -> dist.ProcessGroup:
    alive = dist.distributed_c10d._world.pg_map
    if not _beside or _beside[0] not in alive:
        _beside[:] = [dist.new_group(backend="gloo")]
    return _beside[0]


def _then_sum(written: Future[Any], folder: Path) -> Future[None]:
    """Done when the checksums are there too; the end of writing on rank 0 is that of all."""
    done: Future[None] = Future()
    first = dist.get_rank() == 0

    def finish(future: Future[Any]) -> None:
        try:
            future.result()
            if first:
                write_checksums(folder)
        except BaseException as error:  # noqa: BLE001 - told to whoever asks for the result
            done.set_exception(error)
        else:
            done.set_result(None)

    written.add_done_callback(finish)
    return done


class _InTurn(FileSystemWriter):
    """Writes files of torch.distributed.checkpoint, all workers at the same time or in turn, as ``checkpoint.writers`` says."""

    def __init__(self, folder: Path, writers: str, group: dist.ProcessGroup | None) -> None:
        super().__init__(folder)
        self._group = group
        self._turns, self._mine = _turns(writers, group)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Any:
        written: torch.futures.Future[list[WriteResult]] = torch.futures.Future()
        for turn in range(self._turns):
            if turn == self._mine:
                written = super().write_data(plan, planner)
                written.wait()
            if self._turns > 1:
                dist.barrier(self._group)
        return written


def _turns(writers: str, group: dist.ProcessGroup | None) -> tuple[int, int]:
    """How many turns there are, and which is this worker's. A process writes with one thread."""
    if writers in ("one_process", "one_thread"):
        return dist.get_world_size(), dist.get_rank()
    if writers == "one_node":
        nodes: list[str] = [""] * dist.get_world_size()
        dist.all_gather_object(nodes, socket.gethostname(), group=group)
        order = list(dict.fromkeys(nodes))
        return len(order), order.index(nodes[dist.get_rank()])
    return 1, 0


def load(engine: Saved, folder: Path, settings: Checkpoint = DEFAULTS) -> None:
    """Take up a state, or what ``load_contents`` names of it.

    A worker that was not there when it was saved draws random numbers from a new stream, named by the run's seed, the
    updates so far and its rank.

    Raises:
        RunError: something is missing, or of another model.
    """
    contents = settings.load_contents
    if (folder / "metadata.json").exists():
        raise RunError(
            said("the checkpoint {folder} was saved by the Megatron engine", folder=folder),
            hint="to change the engine, set model.path of a new run to the run's Hugging Face export",
        )
    try:
        metadata = {name: value for name, value in tensors_of(folder).items() if _content(name) in contents}
        state = {**(_persistent(engine) if "model" in contents else {}), **_places(engine, metadata)}
        state_dict_loader.load(state, storage_reader=CheckpointReader(folder), planner=TensorPlanner())
    except UNREADABLE as error:
        raise not_loaded(folder, error) from error
    _put_back(engine, state)


def _content(name: str) -> str:
    """Of what a tensor is a part, as ``save_contents`` names it."""
    return name.partition("/")[0] if name.startswith(("model/", "optimizer/")) else "extra"


def _places(engine: Saved, metadata: Mapping[str, TensorStorageMetadata]) -> dict[str, Tensor]:
    """Tensors to read into: optimizer states laid out as their parameters are, and what is saved besides."""
    places: dict[str, Tensor] = {}
    if any(key.startswith("optimizer/") for key in metadata):
        _begin(engine)
    assert engine.optimizer is not None, "a reference is never loaded"
    for name, parameter in engine.model.named_parameters():
        prefix = f"optimizer/{name}/"
        begun = engine.optimizer.state.get(parameter, {})
        for key in (key for key in metadata if key.startswith(prefix)):
            stored = metadata[key]
            if key.removeprefix(prefix) in begun:
                places[key] = begun[key.removeprefix(prefix)]
                continue
            like = parameter.detach() if stored.size == parameter.shape else torch.empty(stored.size)
            places[key] = torch.zeros_like(like, dtype=stored.properties.dtype)
    for key in ("progress", "schedule", "loss_scale", f"random/{dist.get_rank()}", f"random_cuda/{dist.get_rank()}"):
        if key in metadata:
            places[key] = torch.empty(metadata[key].size, dtype=metadata[key].properties.dtype)
    return places


def _begin(engine: Saved) -> None:
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


def _put_back(engine: Saved, state: dict[str, Tensor]) -> None:
    assert engine.optimizer is not None, "a reference is never loaded"
    rank = dist.get_rank()
    if "progress" in state:
        engine.ticks, engine.updates = state["progress"].tolist()
    if "loss_scale" in state and engine.loss_scale is not None:
        engine.loss_scale.restore(state["loss_scale"])
    if "schedule" in state and engine.takes_schedule:
        engine.curve = Curve(**json.loads(bytes(state["schedule"].tolist())))
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
