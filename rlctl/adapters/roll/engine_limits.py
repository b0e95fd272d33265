"""What ROLL's engines refuse: shapes of models, vLLM's limits, asynchronous rollout on shared GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.adapters.engine.model_limits import (
    SGLANG,
    ULYSSES,
    VLLM,
    batched_tokens_rows,
    memory_share_row,
    split_row,
)
from rlctl.adapters.engine.requirements import Remedy, Requirement, Values
from rlctl.adapters.engine.sglang_arguments import sglang_rows
from rlctl.adapters.engine.vllm_arguments import argument_rows
from rlctl.adapters.roll.requirement_values import device_numbers, is_agentic, is_rlvr, setting, strategy

TRAINED = ("actor_train", "critic", "reference")


def _of_engine(role: str) -> Iterator[Requirement]:
    config = f"{role}.strategy_args.strategy_config"
    for name, engine, key in (
        ("vllm", VLLM, f"{config}.tensor_parallel_size"),
        ("sglang", SGLANG, f"{role}.num_gpus_per_worker"),
    ):
        yield split_row(
            key,
            "pretrain",
            lambda v, key=key: v.number(key),  # type: ignore[misc]
            lambda v, name=name: strategy(v, role) == name,  # type: ignore[misc]
            engine,
        )
    names = {"tokens": "max_num_batched_tokens", "sequences": "max_num_seqs", "chunked": "enable_chunked_prefill"}
    yield from batched_tokens_rows(
        {name: f"{config}.{own}" for name, own in names.items()},
        lambda v: setting(v, role, "max_model_len"),
        lambda v: strategy(v, role) == "vllm",
    )
    yield from argument_rows(
        lambda name: f"{config}.{name}", "pretrain", lambda v: strategy(v, role) == "vllm", "start"
    )
    yield from sglang_rows(
        lambda name: f"{config}.{name}", "pretrain", lambda v: strategy(v, role) == "sglang", "start"
    )
    yield memory_share_row(f"{config}.gpu_memory_utilization", lambda v: strategy(v, role) == "vllm")


def _ulysses(role: str) -> Requirement:
    key = f"{role}.model_args.ulysses_size"
    return split_row(
        key,
        "pretrain",
        lambda v: v.number(key),
        lambda v: strategy(v, role).startswith("fsdp2"),
        ULYSSES,
        "at its first forward pass",
        "roll/utils/context_parallel/hf_flash_attention_patch.py, _maybe_repeat_kv_for_ulysses",
    )


def shared_devices(values: Values) -> set[int]:
    """GPUs that the rollout has in common with a role that trains."""
    written = [role for role in TRAINED if values.written(f"{role}.device_mapping")]
    return {number for role in written for number in device_numbers(values, role)} & _inference(values)


def _inference(values: Values) -> set[int]:
    return set(device_numbers(values, "actor_infer"))


def _only_some_train(values: Values) -> bool:
    """Whether the GPUs that train are some, not all, of those that generate, which the agentic pipeline takes turns on."""
    return set(device_numbers(values, "actor_train")) < _inference(values)


RATIO = "async_generation_ratio"

ROWS: tuple[Requirement, ...] = (
    *_of_engine("actor_infer"),
    *_of_engine("student_infer"),
    *map(_ulysses, ("actor_train", "reference", "student_train")),
    Requirement(
        RATIO,
        lambda v: is_rlvr(v) and 0 < float(v[RATIO]) < 1,
        "async_generation_ratio is {async_generation_ratio}; the RLVR pipeline takes 0, or 1 and more, and stops when it starts",
        "roll/pipeline/rlvr/rlvr_config.py, RLVRConfig.__post_init__",
        Remedy("async_generation_ratio", 1),
    ),
    Requirement(
        RATIO,
        lambda v: is_agentic(v) and float(v[RATIO]) > 0 and shared_devices(v) and not _only_some_train(v),
        "async_generation_ratio is {async_generation_ratio}, but actor_infer and actor_train share GPUs: the agentic pipeline "
        "stops when it starts",
        "roll/pipeline/agentic/agentic_pipeline.py, AgenticPipeline._validate_partial_gpu_config",
        "set async_generation_ratio to 0, or give actor_infer.device_mapping other GPUs than actor_train.device_mapping",
    ),
)
