"""A model's parameters spread over the workers by FSDP2: which modules are gathered at a time, in which types, and the mesh."""

from __future__ import annotations

import dataclasses
import itertools

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from transformers import PreTrainedModel

from rlctl.common.errors import PlanError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config.sections.train import Fsdp2, PrecisionSettings
from rlctl.runtime.models.vision import vision_tower


def shard_model(
    model: PreTrainedModel, engine: Fsdp2, precision: PrecisionSettings, device: torch.device
) -> DeviceMesh:
    """Spread a model's parameters over the workers, one group of parameters a layer, and the rest; return their mesh.

    The rest, embedding and head, stays gathered from the forward to the backward pass, which begins with it.

    Raises:
        PlanError: the workers do not divide, or a layer that is named is not there.
    """
    mesh = make_mesh(
        engine.fsdp_size if engine.fsdp_size == "all" else engine.fsdp_size * engine.ulysses_sequence_parallel_size,
        device,
    )
    policy: OffloadPolicy = CPUOffloadPolicy() if engine.cpu_offload_policy else OffloadPolicy()
    mixed = _mixed_precision(precision, model)
    layers, tower = layers_to_wrap(model, engine), set(vision_tower(model))
    for module in (*layers, model):
        fully_shard(
            module,
            mesh=mesh,
            reshard_after_forward=engine.reshard_after_forward and module is not model,
            # A vision tower turns by angles in float32, whatever it computes in.
            mp_policy=dataclasses.replace(mixed, cast_forward_inputs=module not in tower),
            offload_policy=policy,
        )
    parts = [module for module in (*layers, model) if isinstance(module, FSDPModule)]
    for part in parts:
        # Token weights already divide by the whole mini-batch, so gradients are to be added, not averaged.
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
    if engine.forward_prefetch:
        for layer, following in itertools.pairwise(parts[:-1]):
            layer.set_modules_to_forward_prefetch([following])
    return mesh


def make_mesh(shard: int | str, device: torch.device) -> DeviceMesh:
    """Return the mesh of the workers: one dimension, or (copies, ``shard`` workers that share a copy).

    Raises:
        PlanError: the workers do not divide into copies.
    """
    world = dist.get_world_size()
    if shard == "all" or shard == world:
        return init_device_mesh(device.type, (world,))
    size = int(shard)
    if world % size:
        raise PlanError(
            said(
                "train.engine.fsdp_size is {size} and there are {world} training workers; they do not divide into "
                "whole replicas",
                size=size,
                world=world,
            ),
            hint="set train.engine.fsdp_size to a divisor, or to all",
        )
    return init_device_mesh(device.type, (world // size, size), mesh_dim_names=("copy", "shard"))


def layers_to_wrap(model: PreTrainedModel, engine: Fsdp2) -> list[torch.nn.Module]:
    """Return the modules that are gathered one at a time: by size, by class, or the model's own layers.

    Raises:
        PlanError: the model has no module of a class in ``wrap_layers``.
    """
    if engine.wrap_min_parameters:
        return _by_size(model, engine.wrap_min_parameters)
    names = set(engine.wrap_layers or model._no_split_modules or ())
    classes = {type(module).__name__ for module in model.modules()}
    missing = sorted(set(engine.wrap_layers) - classes)
    if missing:
        raise PlanError(
            said(
                "train.engine.wrap_layers names {missing}, which {kind} does not have",
                missing=missing[0],
                kind=type(model).__name__,
            ),
            hint=nearest(missing[0], classes),
        )
    return [module for module in model.modules() if type(module).__name__ in names and module is not model]


def _by_size(model: PreTrainedModel, smallest: int) -> list[torch.nn.Module]:
    """The smallest modules with at least ``smallest`` parameters; tied embeddings stay with the rest of the model."""
    apart = {id(model), id(model.get_input_embeddings()), id(model.get_output_embeddings())}

    def large(module: torch.nn.Module) -> bool:
        return sum(p.numel() for p in module.parameters()) >= smallest

    def callable_module(module: torch.nn.Module) -> bool:
        return not isinstance(module, torch.nn.ModuleList | torch.nn.ModuleDict) and id(module) not in apart

    candidates = [module for module in model.modules() if callable_module(module) and large(module)]
    inner = {id(child) for module in candidates for child in module.modules() if child is not module}
    return [m for m in candidates if not any(id(c) in inner and c in candidates for c in m.modules() if c is not m)]


def _mixed_precision(precision: PrecisionSettings, model: PreTrainedModel) -> MixedPrecisionPolicy:
    compute = getattr(torch, precision.compute)
    kept = all(parameter.dtype == compute for parameter in model.parameters())
    return MixedPrecisionPolicy(
        param_dtype=None if kept else compute,
        reduce_dtype=getattr(torch, precision.reduce),
    )
