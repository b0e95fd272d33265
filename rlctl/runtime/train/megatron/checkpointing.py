"""A Megatron engine's state on disk, with Megatron-core's distributed checkpointing: any other layout of workers reads it.

    model       <parameter>                            as Megatron-core names it, layers and experts with their numbers
    optimizer   optimizer.state.<state>.<parameter>    whole parameters, whoever updates which part of them
    extra       random/<rank>                          random states, taken up in the same layout only
    common.pt   steps of the optimizer, ticks, updates, schedule, layout, gradient scaler: one of each for all workers

Files are written as those of the FSDP2 engine are, in the background, in turn, with ``checksums.json`` last; what of them is
written and read is said by the section ``checkpoint`` too. Runs move between the two engines through the Hugging Face export.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state, tensor_parallel
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor
from megatron.core.dist_checkpointing.optimizer import make_sharded_optimizer_tensor
from megatron.core.dist_checkpointing.strategies.base import SaveShardedStrategy
from megatron.core.dist_checkpointing.strategies.common import COMMON_STATE_FNAME, TorchCommonLoadStrategy
from megatron.core.dist_checkpointing.strategies.torch import (
    MCoreLoadPlanner,
    MCoreSavePlanner,
    TorchDistLoadShardedStrategy,
    _replace_sharded_keys_with_state_dict_keys,
    _replace_state_dict_keys_with_sharded_keys,
    _restore_dict_types,
    _unwrap_pyt_sharded_tensor,
    mcore_to_pyt_state_dict,
)
from megatron.core.dist_checkpointing.utils import extract_sharded_tensors_and_factories
from megatron.core.optimizer import ChainedOptimizer, MegatronOptimizer
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
from megatron.core.utils import unwrap_model
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.output import Checkpoint
from rlctl.runtime.pickles import load_objects
from rlctl.runtime.seeds import derive_seed
from rlctl.runtime.train import checkpoint
from rlctl.runtime.train.checkpoint import DEFAULTS
from rlctl.runtime.train.checkpoint_reader import (
    UNREADABLE,
    CheckpointReader,
    ObjectsWithoutCode,
    not_loaded,
)
from rlctl.runtime.train.lora import Adapters
from rlctl.runtime.train.megatron.layout import Layout
from rlctl.runtime.train.megatron.names import ADAPTERS
from rlctl.runtime.train.schedule import Curve


class Saved(Protocol):
    """What of a Megatron engine a checkpoint holds."""

    chunks: list[Any]
    adapters: Adapters | None
    optimizer: MegatronOptimizer | None
    curve: Curve | None
    layout: Layout
    ticks: int
    updates: int
    seed: int
    device: torch.device
    takes_schedule: bool


OPTIMIZER = "optimizer.state."

State = dict[Any, Any]
"""What Megatron-core calls a sharded state dict: each worker's part of everything, and where it lies in the whole."""


def save(engine: Saved, folder: Path, settings: Checkpoint = DEFAULTS) -> Future[None]:
    """See ``TrainEngine.save``."""
    if dist.get_rank() == 0:
        folder.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    writing = _Writing(settings)
    dist_checkpointing.save(_saved(engine, settings), str(folder), sharded_strategy=writing)
    assert writing.written is not None, "Megatron-core has called the strategy"
    return checkpoint.finish(writing.written, folder, settings)


class _Writing(SaveShardedStrategy):
    """Writes Megatron-core's format as ``checkpoint.write`` writes files: in turn, or beside training from a copy."""

    can_handle_sharded_objects = True

    def __init__(self, settings: Checkpoint) -> None:
        super().__init__("torch_dist", 1)
        self._settings = settings
        self.written: Future[Any] | None = None

    def save(self, sharded_state_dict: State, checkpoint_dir: Path | str) -> None:
        """Called by Megatron-core with this worker's parts."""
        named, _, _ = _replace_state_dict_keys_with_sharded_keys(sharded_state_dict, keep_only_main_replica=True)
        for part in (each for parts in named.values() for each in parts):
            if self._settings.asynchronous and isinstance(part, ShardedTensor):
                part.data = part.data.detach().to("cpu", copy=True)
        planner = MCoreSavePlanner(dedup_replicated_tensors=False, flatten_state_dict=False)
        state = mcore_to_pyt_state_dict(named, False)
        self.written = checkpoint.write(state, Path(checkpoint_dir), self._settings, planner=planner, copied=True)


class Reading(TorchDistLoadShardedStrategy):
    """Reads Megatron-core's format as its own strategy does, which unpickles whatever the folder holds."""

    def load(self, sharded_state_dict: State, checkpoint_dir: Path | str) -> State:
        """Called by Megatron-core with this worker's parts."""
        parts = [part for part in nested_values(sharded_state_dict) if isinstance(part, ShardedTensor)]
        named, flat, renamed = _replace_state_dict_keys_with_sharded_keys(sharded_state_dict)
        state = mcore_to_pyt_state_dict(named, True)
        planner = _Planner(
            shapes_validation_sharded_tensors=[part for part in parts if not part.allow_shape_mismatch],
            allow_shape_mismatch_sharded_tensors={part.key: part for part in parts if part.allow_shape_mismatch},
            flatten_state_dict=False,
        )
        state_dict_loader.load(state, storage_reader=CheckpointReader(checkpoint_dir), planner=planner)
        loaded = {name: _unwrap_pyt_sharded_tensor(value) for name, value in state.items()}
        loaded = _replace_sharded_keys_with_state_dict_keys(loaded, flat, renamed)
        _restore_dict_types(loaded, sharded_state_dict)
        return loaded


class _Planner(ObjectsWithoutCode, MCoreLoadPlanner):
    pass


class _Common(TorchCommonLoadStrategy):
    """Reads ``common.pt`` with ``weights_only``, whatever torch's default is."""

    def load_common(self, checkpoint_dir: Path | str) -> State:
        """Called by Megatron-core."""
        common = load_objects(Path(checkpoint_dir) / COMMON_STATE_FNAME)
        if not isinstance(common, dict):
            raise ValueError(f"{COMMON_STATE_FNAME} holds no mapping")
        return common


def _saved(engine: Saved, settings: Checkpoint) -> State:
    """This worker's part of what ``save_contents`` names."""
    assert engine.curve is not None, "a reference is never saved"
    contents, model = settings.save_contents, _model(engine)
    state: State = {"model": model} if "model" in contents else {}
    taken = torch.tensor(max((_steps(part) for part in _parts(engine)), default=0), device=engine.device)
    dist.all_reduce(taken, dist.ReduceOp.MAX)  # a worker may have no part of any parameter
    steps = int(taken)
    if "optimizer" in contents and steps:
        state["optimizer"] = {str(n): _states(part, model) for n, part in enumerate(_parts(engine))}
        scalers = [part.grad_scaler.state_dict() for part in _parts(engine) if getattr(part, "grad_scaler", None)]
        state["common"] = {"steps": steps, "scaler": scalers[0] if scalers else None}
    if "extra" in contents:
        state["random"] = {"state": _random(_draws())}
        state["progress"] = {
            "ticks": engine.ticks,
            "updates": engine.updates,
            "layout": dataclasses.asdict(engine.layout),
            "schedule": dataclasses.asdict(engine.curve),
        }
    return state


def load(engine: Saved, folder: Path, settings: Checkpoint = DEFAULTS) -> None:
    """See ``TrainEngine.load``. In another layout than the one that saved, random numbers come from a new stream.

    Raises:
        RunError: something is missing, of another model, or of another engine.
    """
    if not dist_checkpointing.check_is_distributed_checkpoint(str(folder)) and (folder / ".metadata").exists():
        raise RunError(
            said("the checkpoint {folder} was saved by the FSDP2 engine", folder=folder),
            hint="to change the engine, set model.path of a new run to the run's Hugging Face export",
        )
    try:
        _load(engine, folder, settings)
    except (*UNREADABLE, dist_checkpointing.core.CheckpointingException) as error:
        raise not_loaded(folder, error) from error


def _load(engine: Saved, folder: Path, settings: Checkpoint) -> None:
    assert engine.optimizer is not None, "a reference is never loaded"
    contents, model = settings.load_contents, _model(engine)
    found = CheckpointReader(folder).read_metadata().state_dict_metadata
    common = _Common().load_common(folder)
    progress = common.get("progress") if "extra" in contents else None
    with_optimizer = "optimizer" in contents and "common" in common
    state: State = {"model": model} if "model" in contents else {}
    if with_optimizer:
        for part in _parts(engine):
            _begin(part)
        state["optimizer"] = {str(n): _states(part, model, empty=True) for n, part in enumerate(_parts(engine))}
    if random := _random_of_this_layout(engine, progress, found):
        state["random"] = {"state": random}
    if "model" in contents and not with_optimizer:
        _in_full(model, found)
    kept = None if "model" in contents else [p.detach().clone() for p in _parameters(engine)]
    loaded = dist_checkpointing.load(state, str(folder), Reading(), _Common(), validate_access_integrity=False)
    for name, chunk in _chunks(engine) if "model" in contents else ():
        chunk.load_state_dict(loaded["model"][name], strict=engine.adapters is None)
    for number, part in enumerate(_parts(engine)) if with_optimizer else ():
        _take(part, loaded["optimizer"][str(number)], common["common"])
    if kept is not None and with_optimizer:  # states came with the weights that they are of
        for parameter, own in zip(_parameters(engine), kept, strict=True):
            parameter.data.copy_(own)
    if kept is not None or not with_optimizer:
        engine.optimizer.reload_model_params()
    if progress is not None:
        engine.ticks, engine.updates = progress["ticks"], progress["updates"]
    if progress is not None and engine.takes_schedule:
        engine.curve = Curve(**progress["schedule"])
    if random:
        _set_draws(loaded["random"]["state"])
    else:
        torch.manual_seed(derive_seed(engine.seed, "train", engine.updates, dist.get_rank()))


def _chunks(engine: Saved) -> Iterator[tuple[str, Any]]:
    yield from ((str(number), chunk) for number, chunk in enumerate(unwrap_model(engine.chunks)))


def _parameters(engine: Saved) -> Iterator[torch.nn.Parameter]:
    return (parameter for _, chunk in _chunks(engine) for parameter in chunk.parameters())


def _model(engine: Saved) -> State:
    """The weights of this worker, by chunk; every layer and every expert under its own name, so that any layout finds it.

    Of a model with adapters only theirs: the rest is where it was loaded from.
    """
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    metadata = {"singleton_local_shards": True, "dp_cp_group": group}
    state = {name: chunk.sharded_state_dict(metadata=metadata) for name, chunk in _chunks(engine)}
    if engine.adapters is None:
        return state
    return {chunk: {name: part for name, part in of.items() if ADAPTERS in name} for chunk, of in state.items()}


def _in_full(model: State, found: Mapping[str, Any]) -> None:
    """Have weights of float32 read from what the optimizer kept of them, where they were saved in fewer bits."""
    for each in nested_values(extract_sharded_tensors_and_factories(model)[0]):
        name = next((name for name in (each.key, f"{each.key}_w") if name in found), None)
        if name is None or found[name].properties.dtype == each.data.dtype or each.data.dtype != torch.float32:
            continue
        if f"{OPTIMIZER}param.{name}" in found:
            each.key = f"{OPTIMIZER}param.{each.key}"


# The optimizer


def _parts(engine: Saved) -> list[Any]:
    """The optimizers of this worker: Megatron-core has one of its own for experts that are spread."""
    whole = engine.optimizer
    parts = whole.chained_optimizers if isinstance(whole, ChainedOptimizer) else [whole]
    return [part for part in parts if not getattr(part, "is_stub_optimizer", False)]


def _states(part: Any, model: State, *, empty: bool = False) -> State:
    """Whole parameters in full precision and their states, by number; ``empty`` where they are to be read into.

    Of a distributed optimizer only the first worker of those that share its states has them, unless they are ``empty``.
    """
    shards = {id(each.data): each for each in nested_values(extract_sharded_tensors_and_factories(model)[0])}
    found = _gathered(part, empty) if isinstance(part, DistributedOptimizer) else _kept(part)
    return {
        number: {
            key: make_sharded_optimizer_tensor(shards[id(parameter)], tensor, prefix=OPTIMIZER + key)
            for key, tensor in tensors.items()
        }
        for number, (parameter, tensors) in enumerate(found)
    }


def _gathered(part: DistributedOptimizer, empty: bool) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """Parameters and their states, of an optimizer whose workers each have a part of every buffer.

    Megatron-core says where a parameter begins in a buffer with padding behind each bucket, and gathers buffers without. Its
    own ``fully_reshardable`` format takes the one for the other, and is wrong where there is more than one bucket.
    """
    gathered = part.get_parameter_state_dp_zero(use_gloo_comm=False, empty_data=empty, return_on_all_ranks=empty)
    for number, buffer in enumerate(part.buffers if gathered is not None else ()):
        [tensors] = gathered[number].values()
        padding, before = {}, 0
        for bucket in buffer.buckets:
            padding[bucket.bucket_id] = bucket.offset - before
            before += bucket.numel_unpadded
        for parameter, (start, end, bucket_id) in buffer.param_index_map.items():
            place = slice(start - padding[bucket_id], end - padding[bucket_id])
            flat = {key: value[place] for key, value in tensors.items() if isinstance(value, Tensor)}
            yield parameter, {key: value.view(parameter.shape) for key, value in flat.items()}


def _kept(part: Any) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """The same of an optimizer that is not distributed."""
    return ((parameter, _tensors(part, main)) for parameter, main in _pairs(part))


def _pairs(part: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Parameters, and what updates each in full precision."""
    if hasattr(part, "float16_groups"):
        for narrow, wide in zip(part.float16_groups, part.fp32_from_float16_groups, strict=True):
            yield from zip(narrow, wide, strict=True)
        yield from ((each, each) for group in part.fp32_from_fp32_groups for each in group)
    else:
        yield from ((each, each) for each in part.get_parameters())


def _tensors(part: Any, main: Tensor) -> dict[str, Tensor]:
    kept = part.optimizer.state.get(main, {})
    states = {key: value for key, value in kept.items() if isinstance(value, Tensor) and value.shape == main.shape}
    return {"param": main, **states}


def _take(part: Any, loaded: State, common: Mapping[str, Any]) -> None:
    """Put the states that were read into an optimizer."""
    for state in part.optimizer.state.values():
        state.pop("step", None)  # which Megatron-core would look for among what was read
    if isinstance(part, DistributedOptimizer):
        part.load_parameter_state_from_fully_reshardable(loaded)
    else:
        for number, (_, main) in enumerate(_pairs(part)):
            for key, tensor in _tensors(part, main).items():
                tensor.detach().copy_(loaded[number][key])
    _count(part, common["steps"])
    if common["scaler"] is not None and getattr(part, "grad_scaler", None):
        part.grad_scaler.load_state_dict(common["scaler"])


def _count(part: Any, steps: int) -> None:
    """Set how many steps were taken: PyTorch counts them for each parameter, fused optimizers for each group."""
    by_parameter = type(part.optimizer).__module__.startswith("torch.optim")
    for group in part.optimizer.param_groups:
        if not by_parameter:
            group["step"] = steps
            continue
        on_device = group.get("fused") or group.get("capturable")
        for parameter in group["params"]:
            place = parameter.device if on_device else None
            part.optimizer.state[parameter]["step"] = torch.tensor(float(steps), device=place)


def _steps(part: Any) -> int:
    """Steps that an optimizer has taken; 0 where it has no states yet."""
    counts = [int(state["step"]) for state in part.optimizer.state.values() if "step" in state]
    counts += [int(group["step"]) for group in part.optimizer.param_groups if group.get("step")]
    return max(counts, default=int(bool(part.optimizer.state)))


def _begin(part: Any) -> None:
    """Have an optimizer make its states, as it would in its first step."""
    if part.init_state_fn is not None:
        part.init_state_fn(part.optimizer, part.config)


# Random states


def _random(state: Any) -> ShardedObject:
    return ShardedObject(f"random/{dist.get_rank()}", state, (1,), (0,))


def _random_of_this_layout(
    engine: Saved, progress: Mapping[str, Any] | None, found: Mapping[str, Any]
) -> ShardedObject | None:
    """This worker's random states in a checkpoint: elsewhere in another layout its neighbours draw other numbers."""
    place = _random(None)
    same = progress is not None and progress["layout"] == dataclasses.asdict(engine.layout)
    return place if same and place.unique_key in found else None


def _draws() -> dict[str, Any]:
    tracked = tensor_parallel.get_cuda_rng_tracker().get_states()
    device = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    return {"host": torch.get_rng_state(), "device": device, "tracked": {k: v.clone() for k, v in tracked.items()}}


def _set_draws(state: Mapping[str, Any]) -> None:
    torch.set_rng_state(state["host"])
    if state["device"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["device"])
    tensor_parallel.get_cuda_rng_tracker().set_states(state["tracked"])
