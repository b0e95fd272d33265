"""What ROLL's engines refuse: shapes of models, vLLM's limits, asynchronous rollout on shared GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.adapters.engine.model_limits import (
    SGLANG_PARALLEL,
    TENSOR_PARALLEL,
    batched_tokens_rows,
    memory_share_row,
    split_row,
    tensor_parallel_fault,
    ulysses_fault,
)
from rlctl.adapters.engine.requirements import Requirement, Values
from rlctl.adapters.roll.requirement_values import device_numbers, is_agentic, is_rlvr, setting, strategy
from rlctl.common.messages.reasons import said

VLLM_STRATEGY = "roll/distributed/strategy/vllm_strategy.py, VllmStrategy.initialize"
TRAINED = ("actor_train", "critic", "reference")


def _of_engine(role: str) -> Iterator[Requirement]:
    config = f"{role}.strategy_args.strategy_config"
    for engine, name, key, source in (
        ("vllm", "vLLM", f"{config}.tensor_parallel_size", TENSOR_PARALLEL),
        ("sglang", "SGLang", f"{role}.num_gpus_per_worker", SGLANG_PARALLEL),
    ):
        yield split_row(
            key,
            "pretrain",
            lambda v, key=key: v.number(key),  # type: ignore[misc]
            lambda v, engine=engine: strategy(v, role) == engine,  # type: ignore[misc]
            said(
                "{key} is {{size}}, which does not divide the model's {{part}}; {name} splits them over the GPUs of an engine and "
                "stops when it starts",
                key=key,
                name=name,
            ),
            tensor_parallel_fault,
            source,
        )
    yield from batched_tokens_rows(
        {
            "tokens": f"{config}.max_num_batched_tokens",
            "sequences": f"{config}.max_num_seqs",
            "chunked": f"{config}.enable_chunked_prefill",
        },
        lambda v: setting(v, role, "max_model_len"),
        lambda v: strategy(v, role) == "vllm",
        VLLM_STRATEGY,
    )
    yield memory_share_row(
        f"{config}.gpu_memory_utilization", lambda v: strategy(v, role) == "vllm", VLLM_STRATEGY
    )


def _ulysses(role: str) -> Requirement:
    key = f"{role}.model_args.ulysses_size"
    return split_row(
        key,
        "pretrain",
        lambda v: v.number(key),
        lambda v: strategy(v, role).startswith("fsdp2"),
        said(
            "{key} is {{size}}, which does not divide the model's {{part}}; Ulysses shares them among so many GPUs, and the worker "
            "stops at its first forward pass",
            key=key,
        ),
        ulysses_fault,
        "roll/utils/context_parallel/hf_flash_attention_patch.py",
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
        "set async_generation_ratio to 1",
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
