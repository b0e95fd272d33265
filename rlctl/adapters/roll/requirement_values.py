"""Numbers of a ROLL file that several of its requirements are about: devices and ranks of roles, batches, the pipeline."""

from __future__ import annotations

from rlctl.adapters.engine.requirements import Values
from rlctl.adapters.roll.devices import parse_devices


def devices(values: Values, role: str) -> int:
    """How many devices a role has.

    Raises:
        TypeError: its mapping is not known.
    """
    return len(device_numbers(values, role))


def device_numbers(values: Values, role: str) -> tuple[int, ...]:
    """The devices of a role.

    Raises:
        TypeError: its mapping is not known.
    """
    mapping = values[f"{role}.device_mapping"]
    return tuple(parse_devices(mapping) if isinstance(mapping, str) else mapping)


def strategy(values: Values, role: str) -> str:
    return str(values[f"{role}.strategy_args.strategy_name"] or "")


def setting(values: Values, role: str, name: str) -> int:
    return values.number(f"{role}.strategy_args.strategy_config.{name}")


def model_parallel(values: Values, role: str) -> int:
    return (
        setting(values, role, "tensor_model_parallel_size")
        * setting(values, role, "pipeline_model_parallel_size")
        * setting(values, role, "context_parallel_size")
    )


def worker_devices(values: Values, role: str) -> int:
    """Devices of one worker: an engine of vLLM has several."""
    if strategy(values, role) == "vllm":
        return setting(values, role, "tensor_parallel_size") * setting(values, role, "pipeline_parallel_size")
    return values.number(f"{role}.num_gpus_per_worker") if strategy(values, role) in ("hf_infer", "sglang") else 1


def environments(values: Values, manager: str) -> int:
    """Environments of a manager."""
    return values.number(f"{manager}.num_env_groups", 128) * values.number(f"{manager}.group_size")


def is_rlvr(values: Values) -> bool:
    """Whether a step has prompts of a data set, which are answered in groups."""
    return values.written("rewards") and not is_agentic(values)


def ranks(values: Values) -> int:
    """Data-parallel ranks of ``actor_train``."""
    return ranks_of(values, "actor_train")


def ranks_of(values: Values, role: str) -> int:
    """Data-parallel ranks of a role."""
    is_fsdp = strategy(values, role).startswith("fsdp2")
    return devices(values, role) // (
        values.number(f"{role}.model_args.ulysses_size") if is_fsdp else model_parallel(values, role)
    )


def responses(values: Values) -> int:
    """Responses of a step."""
    return values.number("rollout_batch_size", 128) * values.number("num_return_sequences_in_group")


def rank_mini_batch(values: Values) -> int:
    """Responses of a mini-batch on one rank."""
    arguments = "actor_train.training_args"
    each = values.number(f"{arguments}.per_device_train_batch_size", 8)
    return each * values.number(f"{arguments}.gradient_accumulation_steps")


def is_agentic(values: Values) -> bool:
    return values.written("train_env_manager") or values.written("custom_envs")
