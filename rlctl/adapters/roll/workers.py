"""ROLL's worker blocks: what every role repeats, and what another module needs to know of one.

A worker is a block of keys for one role: ``actor_train``, ``actor_infer``, ``critic``, ``reference``. Its strategy names the
engine. The number of data-parallel ranks is no key in ROLL: it follows from the devices and the parallel sizes, and decides
how many responses an optimizer step has (``per_device_train_batch_size * gradient_accumulation_steps * ranks``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlctl.adapters.engine.rules import Reading, Writing
from rlctl.adapters.roll.devices import DevicesError, parse_devices
from rlctl.common.errors import PlanError
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.planning import arithmetic

MEGATRON = ("megatron_train", "megatron_infer")
FSDP2 = ("fsdp2_train", "fsdp2_infer")
DEEPSPEED = ("deepspeed_train", "deepspeed_infer")
"""Gone from ROLL since 2026; its guides still name them."""
HUGGING_FACE = ("hf_infer",)
ENGINES = ("vllm", "sglang")


def strategy(view: Reading, worker: str) -> str:
    """The name of a worker's strategy."""
    return str(view.get(f"{worker}.strategy_args.strategy_name"))


def devices_of(view: Reading, worker: str) -> tuple[int, ...] | None:
    """The devices of a worker; None where none are named, or the text names none that can be read."""
    text = view.get(f"{worker}.device_mapping")
    if text is None:
        return None
    try:
        return parse_devices(text)
    except DevicesError:
        return None


def devices_per_rank(view: Reading, worker: str) -> int:
    """The devices that hold one data-parallel rank of a training worker or of a reference."""
    name, config = strategy(view, worker), f"{worker}.strategy_args.strategy_config"
    keys: tuple[str, ...] = ()
    if name in MEGATRON:
        keys = tuple(f"{config}.{kind}_parallel_size" for kind in ("tensor_model", "pipeline_model", "context"))
    elif name in FSDP2:
        keys = (f"{worker}.model_args.ulysses_size",)
    size = 1
    for key in keys:
        value = view.get(key)
        size *= value if isinstance(value, int) and value > 0 else 1
    return size


def trains_critic(view: Reading) -> bool:
    """Whether a file's run has a critic: exactly where the advantage is gae, which on-policy distillation never has."""
    return view.get("adv_estimator", "none") == "gae" and not view.written("student_train")


def data_parallel(view: Reading, worker: str = "actor_train") -> int | None:
    """The data-parallel ranks of a worker while reading; None where its devices are unknown or do not divide."""
    devices, each = devices_of(view, worker), devices_per_rank(view, worker)
    if not devices or len(devices) % each:
        return None
    return len(devices) // each


def trained_devices(config: Config) -> int:
    """The devices that ROLL trains on: fewer than there are, if rollout has its own and a step's responses do not divide.

    Agentic batches are cut or filled up to what divides.
    """
    most, each = arithmetic.train_devices(config), arithmetic.devices_per_replica(config.train.engine)
    if config.placement.layout != "split" or not rolls_out(config) or config.rollout.agents:
        return most
    whole = (arithmetic.responses_per_step(config), arithmetic.mini_batch_responses(config))
    fitting = (
        total for total in range(most - most % each, 0, -each) if not any(size % (total // each) for size in whole)
    )
    return next(fitting, most)


def rolls_out(config: Config) -> bool:
    """Whether a run generates responses."""
    return config.algorithm.objective.choice not in ("sft", "dpo")


def least_devices(config: Config) -> int:
    """The fewest devices that are written for a role: those of one replica, if only training uses them."""
    return 1 if rolls_out(config) else arithmetic.devices_per_replica(config.train.engine)


def devices_for(config: Config, role: str) -> tuple[int, ...]:
    """The devices that a config has for a role: as listed, else those of the policy, else all."""
    placement, total = config.placement, arithmetic.devices(config)
    if placement.layout == "explicit":
        found = [placement.roles[name].devices for name in (role, "policy") if name in placement.roles]
        return next((devices for devices in found if devices), tuple(range(total)))
    if placement.layout == "split":
        first = max(total - arithmetic.rollout_devices(config), min(1, total - 1))
        trained = trained_devices(config)
        policy = trained if 0 < trained < first else first or total
        return tuple(range(first, total)) if role == "rollout" else tuple(range(policy))
    return tuple(range(total))


def lacks_devices(config: Config, role: str = "policy") -> bool:
    """Whether a role has fewer devices than must be written for it."""
    return len(devices_for(config, role)) < least_devices(config)


def ranks(view: Writing, section: str = "train") -> int:
    """The data-parallel ranks of a canonical section's model.

    Raises:
        PlanError: its devices do not divide.
    """
    if section == "train" and view.config.placement.layout != "split":
        return 1 if lacks_devices(view.config) else arithmetic.train_replicas(view.config)
    role = view.config.placement.roles.get(section) if view.config.placement.layout == "explicit" else None
    total = len(role.devices) if role else trained_devices(view.config)
    each = _devices_per_rank_written(view, section)
    if not total or total % each:
        raise PlanError(
            said(
                "{total} devices of the {section} do not divide into ranks of {each} devices",
                total=total,
                section=section,
                each=each,
            )
        )
    return total // each


def _devices_per_rank_written(view: Writing, section: str) -> int:
    to = f"{section}.engine" if isinstance(view.get(f"{section}.engine"), Mapping) else "train.engine"
    engine: Any = view.get(to)
    if engine_written(view, to) == "megatron":
        return int(engine["tensor_parallel_size"] * engine["pipeline_parallel_size"] * engine["context_parallel_size"])
    return int(engine["ulysses_sequence_parallel_size"]) if engine["type"] == "fsdp2" else 1


def engine_written(view: Writing, to: str) -> str:
    """The engine that ROLL will run for one at a canonical place: ``megatron`` or ``fsdp2``; a critic only has the second."""
    name = view.get(f"{to}.type")
    return "megatron" if name == "megatron" and not to.startswith("critic") else "fsdp2"


def largest_divisor(share: int, most: int) -> int:
    """The largest micro-batch of at most so many responses that a rank's share divides into."""
    return next(size for size in range(min(share, max(most, 1)), 0, -1) if share % size == 0)


def responses_of(view: Writing, micro: Mapping[str, Any]) -> int:
    """A micro-batch in responses: tokens are as many as the longest sequences fit."""
    if micro["unit"] == "responses":
        return int(micro["size"])
    longest = view.config.data.max_prompt_tokens + view.config.rollout.max_response_tokens
    return max(1, int(micro["size"]) // longest)


def has_critic(view: Writing) -> bool:
    """Whether the file gets a critic."""
    return isinstance(view.get("critic"), Mapping)


def has_reference(view: Writing) -> bool:
    """Whether the file gets a reference: something is measured against it, or its engine is said."""
    return arithmetic.needs_reference(view.config) or isinstance(view.get("reference.engine"), Mapping)
