"""A config scaled down to the CPU cores of one machine: which keys change, and why. Pure functions of a config.

What a step computes stays as it is: model, data, prompts, responses, mini-batches, epochs, losses and rewards. What changes is
where it is computed, by how many workers and in which number types. One function a section, each yielding edits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rlctl.common.messages.reasons import said
from rlctl.config import Config, combine, stages_of
from rlctl.config.fields import Choice
from rlctl.config.sections.model import Lora, Model
from rlctl.config.sections.rewards import JudgeReward
from rlctl.config.sections.rollout import AutoEngine, ExternalEngine, TransformersEngine
from rlctl.config.sections.train import Fsdp2, Megatron, PrecisionSettings, Train, TrainEngine
from rlctl.documents.paths import KeyPath, dotted
from rlctl.planning import arithmetic

NO_GPU = "needs a GPU"
WHOLE = "each worker holds the whole model"
IN_HOST_MEMORY = "without a GPU everything is already in CPU memory"
GPU_MEMORY = "GPU memory, which has no effect on CPU"
SLOW_ON_CPU = "most CPUs compute it slowly; float32 is more accurate"


@dataclass(frozen=True, slots=True)
class Edit:
    """A key and its new value."""

    path: KeyPath
    value: Any
    why: str


@dataclass(frozen=True, slots=True)
class Change:
    """A key whose value changed."""

    key: str
    old: Any
    new: Any
    why: str


def scaled_to_cpu(config: Config, *, workers: int) -> tuple[Config, list[Change]]:
    """The config as it runs on CPU cores with so many workers at most, and what changed.

    Args:
        config: the canonical config, stages included.
        workers: devices of the scaled config, if the config asks for more.
    """
    return edited(config, lambda stage: cpu_edits(stage, workers))


def edited(config: Config, edits: Any) -> tuple[Config, list[Change]]:
    """Every stage of a config with its edits, and what they changed; a key that changes alike in several stages once."""
    parts: list[tuple[str, Config]] = []
    changes: dict[Change, None] = {}
    stages = stages_of(config)
    for stage in stages:
        made = stage.config
        for edit in edits(stage.config):
            old = get(made, edit.path)
            if old != edit.value:
                changes[Change(dotted(edit.path), _shown(old), _shown(edit.value), edit.why)] = None
                made = put(made, edit.path, edit.value)
        parts.append((stage.name, made))
    return combine(parts), list(changes)


def cpu_edits(config: Config, workers: int) -> Iterator[Edit]:
    """What changes in one stage."""
    yield Edit(("run", "name"), f"{config.run.name}-cpu", "the full-size run's folder stays unchanged")
    yield from _placement(config, workers)
    yield from _trained(("train",), config.train, config.model)
    if config.critic is not None:
        yield from _trained(("critic",), config.critic, config.critic.model)
    yield from _reference(config)
    yield from _model(("model",), config.model)
    yield from _rollout(config)
    yield from _rewards(config, workers)
    if config.weight_sync.method in ("nccl", "ipc"):
        yield Edit(("weight_sync", "method"), "auto", NO_GPU)
    if config.runtime.ray.address is not None:
        yield Edit(("runtime", "ray", "address"), None, "the run starts its own Ray on this machine")


def _placement(config: Config, workers: int) -> Iterator[Edit]:
    placement, asked = config.placement, arithmetic.devices(config)
    count = min(asked, workers)
    yield Edit(("placement", "device"), "cpu", "a device is one worker process on CPU")
    yield Edit(("placement", "nodes"), 1, "this machine")
    yield Edit(("placement", "devices_per_node"), count, said("{count} workers on this machine", count=count))
    yield Edit(("placement", "cpus_per_worker"), 1, "the workers share the cores")
    if placement.layout == "colocated":
        return
    own, whole = set(arithmetic.devices_of(config, "rollout")), set(arithmetic.devices_of(config, "policy"))
    if own & whole or count < arithmetic.FEWEST_WORKERS:
        yield Edit(("placement", "layout"), "colocated", "training and rollout share devices")
        yield Edit(("placement", "rollout_devices"), None, "training and rollout share devices")
    else:
        yield Edit(("placement", "layout"), "split", "training and rollout have separate devices")
        share = min(max(1, round(count * len(own) / asked)), count - 1)
        yield Edit(("placement", "rollout_devices"), share, said("of {count} workers", count=count))
    yield Edit(("placement", "roles"), {}, "device numbers of the full-size run")


def _trained(section: KeyPath, train: Train, model: Model | None) -> Iterator[Edit]:
    yield from _engine((*section, "engine"), train.engine)
    yield from _precision((*section, "precision"), train.precision)
    yield Edit((*section, "memory", "offload_activations"), False, IN_HOST_MEMORY)
    yield Edit((*section, "fused_kernels", "backend"), "torch", NO_GPU)
    yield Edit((*section, "fused_kernels", "liger"), False, NO_GPU)
    if section == ("critic",) and model is not None:
        yield from _model((*section, "model"), model)


def _engine(path: KeyPath, engine: TrainEngine) -> Iterator[Edit]:
    if isinstance(engine, Fsdp2):
        yield Edit((*path, "fsdp_size"), "all", "one copy of the weights over all workers")
        yield Edit((*path, "ulysses_sequence_parallel_size"), 1, "each worker computes whole sequences")
        yield Edit((*path, "expert_parallel_size"), 1, WHOLE)
        yield Edit((*path, "offload"), "none", IN_HOST_MEMORY)
        yield Edit((*path, "cpu_offload_policy"), False, IN_HOST_MEMORY)
    if isinstance(engine, Megatron):
        for name, value in (
            ("tensor_parallel_size", 1),
            ("pipeline_parallel_size", 1),
            ("virtual_pipeline_parallel_size", None),
            ("expert_parallel_size", 1),
        ):
            yield Edit((*path, name), value, WHOLE)
        yield Edit((*path, "expert_tensor_parallel_size"), None, WHOLE)
        yield Edit((*path, "context_parallel_size"), 1, "each worker computes whole sequences")
        yield Edit((*path, "offload"), "none", IN_HOST_MEMORY)
        yield Edit((*path, "offload_gradients"), False, IN_HOST_MEMORY)
        for group, names in MEGATRON_OF_GPUS.items():
            kept = {name: value for name, value in getattr(engine, group).items() if name not in names}
            yield Edit((*path, group), kept, "settings for GPUs or for the parallel sizes")


MEGATRON_OF_GPUS = {
    "transformer": (
        *("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage", "pipeline_model_parallel_layout"),
        *("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"),
        *("gradient_accumulation_fusion", "masked_softmax_fusion", "bias_activation_fusion", "apply_rope_fusion"),
        *("bias_dropout_fusion", "cross_entropy_loss_fusion", "moe_permute_fusion", "persist_layer_norm"),
        *("batch_p2p_comm", "deallocate_pipeline_outputs", "moe_enable_deepep", "tp_comm_overlap", "fp8"),
        "use_transformer_engine_op_fuser",
    ),
    "optimizer_overrides": (
        *("optimizer_cpu_offload", "optimizer_offload_fraction", "overlap_cpu_optimizer_d2h_h2d"),
        *("use_precision_aware_optimizer", "use_torch_optimizer_for_cpu_offload", "pin_cpu_grads", "pin_cpu_params"),
    ),
}
"""Settings put over Megatron-core's that a CPU does not have, or that divide what is whole here."""


def _precision(path: KeyPath, precision: PrecisionSettings) -> Iterator[Edit]:
    for field in dataclasses.fields(precision):
        yield Edit((*path, field.name), "float32", SLOW_ON_CPU)


def _reference(config: Config) -> Iterator[Edit]:
    reference = config.reference
    if reference.engine is not None:
        yield from _engine(("reference", "engine"), reference.engine)
    if reference.precision is not None:
        yield from _precision(("reference", "precision"), reference.precision)
    if reference.model is not None:
        yield from _model(("reference", "model"), reference.model)


def _model(path: KeyPath, model: Model) -> Iterator[Edit]:
    if model.attention.startswith("flash"):
        yield Edit((*path, "attention"), "auto", NO_GPU)
    if isinstance(model.lora, Lora) and model.lora.dtype != "auto":
        yield Edit((*path, "lora", "dtype"), "auto", SLOW_ON_CPU)


def _rollout(config: Config) -> Iterator[Edit]:
    rollout = config.rollout
    if not isinstance(rollout.engine, AutoEngine | TransformersEngine | ExternalEngine):
        yield Edit(("rollout", "engine"), AutoEngine(), "the built-in engine needs no GPU")
    elif isinstance(rollout.engine, AutoEngine):
        yield Edit(("rollout", "engine", "args"), {}, "arguments of another engine")
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "expert_parallel_size"):
        yield Edit(("rollout", "parallel", name), 1, WHOLE)
    yield Edit(("rollout", "parallel", "replicas"), "auto", "one engine on each rollout worker")
    yield Edit(("rollout", "precision"), "auto", "the same as in training")
    yield Edit(("rollout", "memory", "gpu_memory_utilization"), None, GPU_MEMORY)
    yield Edit(("rollout", "memory", "quantization"), None, NO_GPU)
    yield Edit(("rollout", "memory", "kv_cache_dtype"), "auto", NO_GPU)


def _rewards(config: Config, workers: int) -> Iterator[Edit]:
    for index, reward in enumerate(config.rewards):
        if reward.workers > workers:
            yield Edit(("rewards", index, "workers"), workers, said("{count} workers on this machine", count=workers))
        if isinstance(reward, JudgeReward) and reward.base_url is None:
            yield Edit(("rewards", index, "engine"), "transformers", "the built-in engine needs no GPU")
            yield Edit(("rewards", index, "engine_args"), {}, "arguments of another engine")
            yield Edit(("rewards", index, "tensor_parallel_size"), 1, WHOLE)
            yield Edit(("rewards", index, "replicas"), 1, "the workers share the cores")


def get(value: Any, path: KeyPath) -> Any:
    """What is at a path of a config."""
    for part in path:
        value = value[part] if isinstance(part, int) or isinstance(value, dict) else getattr(value, str(part))
    return value


def put(value: Any, path: KeyPath, new: Any) -> Any:
    """A config, or a part of one, with another value at a path."""
    if not path:
        return new
    part, rest = path[0], path[1:]
    if isinstance(part, int):
        return (*value[:part], put(value[part], rest, new), *value[part + 1 :])
    if isinstance(value, dict):
        return {**value, part: put(value[part], rest, new)}
    return dataclasses.replace(value, **{part: put(getattr(value, part), rest, new)})


def _shown(value: Any) -> Any:
    """A value as a message shows it: of a choice its name, of a source its path, of an interval its steps."""
    if isinstance(value, Choice):
        return value.type_name
    if isinstance(value, tuple):
        return "[" + ", ".join(str(_shown(item)) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {item}" for key, item in value.items()) + "}"
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return fields.get("path") or _shown({name: item for name, item in fields.items() if item is not None})
    return value
