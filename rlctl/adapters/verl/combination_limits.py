"""Settings that verl does not combine, and those that another setting needs. Read from the source of 0.9.1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rlctl.adapters.engine.model_limits import shape_at
from rlctl.adapters.engine.requirements import NEAREST, Remedy, Requirement, Values
from rlctl.adapters.verl.requirement_values import (
    ACTOR,
    CRITIC,
    MODEL,
    REF,
    ROLLOUT,
    engine_devices,
    gpus,
    in_turns,
    is_fully_async,
    is_on,
    strategy,
    uses_critic,
    uses_engine,
)
from rlctl.adapters.verl.value_limits import ENGINE, LOADED, POOL, START, SYNCED, Applies, name_row
from rlctl.common.messages.reasons import said
from rlctl.planning.models import ModelShape

BACKEND = f"{ROLLOUT}.checkpoint_engine.backend"
MEGATRON, FSDP = f"{ACTOR}.megatron", f"{ACTOR}.fsdp_config"
DYNAMIC = f"{MEGATRON}.dynamic_context_parallel"
OVERRIDES = f"{MEGATRON}.override_transformer_config"
VLLM_ARGS, SPLIT = f"{ROLLOUT}.engine_kwargs.vllm", f"{ROLLOUT}.disaggregation"
CORRECTION, DISTILLATION = "algorithm.rollout_correction", "distillation"
TEACHER = f"{DISTILLATION}.teacher_models.teacher_model"
TILED = ("llama", "qwen2", "qwen2_5", "qwen3")
"""Types of models whose MLP verl can tile."""


def pair_row(
    key: str,
    other: str,
    excluded: Applies,
    source: str,
    fix: object,
    when: str = START,
    **others: Any,
) -> Requirement:
    """A row that refuses two settings together.

    Args:
        key: that the message is about.
        other: the key that excludes its value.
        excluded: whether a file has both.
        source: the file and what in it refuses.
        fix: a value of ``key`` that verl takes.
        when: the run stops.
        others: of the row, as ``since``.
    """
    return Requirement(
        key,
        excluded,
        said(
            "{key} is {{{key}}}, which verl does not combine with {other} = {{{other}}}",
            key=key,
            other=other,
        ),
        source,
        Remedy(key, fix, other),
        when=when,
        **others,
    )


def needed_row(key: str, other: str, needed: Applies, source: str, when: str = START, **others: Any) -> Requirement:
    """A row that refuses a key that is not set, though another setting needs it."""
    return Requirement(
        key,
        lambda v: v[key] in (None, "", []) and needed(v),
        said("{key} is not set, and {other} = {{{other}}} needs it", key=key, other=other),
        source,
        said("set {key}, or change {other}", key=key, other=other),
        when=when,
        **others,
    )


def model_row(
    key: str, model: str, lacks: Callable[[ModelShape], object], what: str, source: str, applies: Applies, fix: object
) -> Requirement:
    """A row that refuses a setting for models without something."""

    def refused(values: Values) -> bool:
        shape = shape_at(values, model) if applies(values) else None
        return shape is not None and bool(lacks(shape))

    return Requirement(
        key,
        refused,
        said(
            "{key} is {{{key}}}, but the model {{{model}}} {what}",
            key=key,
            model=model,
            what=what,
        ),
        source,
        Remedy(key, fix),
        when=LOADED,
    )


def _number(values: Values, key: str) -> int:
    return values.number(key, 1)


DELTA: tuple[tuple[str, Applies], ...] = (
    (f"{ROLLOUT}.data_parallel_size", lambda v: _number(v, f"{ROLLOUT}.data_parallel_size") != 1),
    (f"{VLLM_ARGS}.data_parallel_size", lambda v: _number(v, f"{VLLM_ARGS}.data_parallel_size") > 1),
    (f"{VLLM_ARGS}.pipeline_parallel_size", lambda v: _number(v, f"{VLLM_ARGS}.pipeline_parallel_size") > 1),
    (
        f"{VLLM_ARGS}.tensor_parallel_size",
        lambda v: v[f"{VLLM_ARGS}.tensor_parallel_size"] not in (None, v[f"{ROLLOUT}.tensor_model_parallel_size"]),
    ),
    (f"{VLLM_ARGS}.moe_backend", lambda v: v[f"{VLLM_ARGS}.moe_backend"] not in (None, "auto", "triton")),
    (f"{VLLM_ARGS}.enable_eplb", lambda v: v[f"{VLLM_ARGS}.enable_eplb"]),
    (
        f"{VLLM_ARGS}.weight_transfer_config",
        lambda v: v[f"{VLLM_ARGS}.weight_transfer_config"] is not None,
    ),
    (
        f"{ROLLOUT}.checkpoint_engine.engine_kwargs.delta_sharded.verify_every",
        lambda v: v.number(f"{ROLLOUT}.checkpoint_engine.engine_kwargs.delta_sharded.verify_every", 0) > 0,
    ),
    (f"{ROLLOUT}.quantization", lambda v: v[f"{ROLLOUT}.quantization"]),
    (f"{MODEL}.mtp.enable_rollout", lambda v: v[f"{MODEL}.mtp.enable"] and v[f"{MODEL}.mtp.enable_rollout"]),
    (f"{ROLLOUT}.dtype", lambda v: v[f"{ROLLOUT}.dtype"] not in (None, "bfloat16", "auto")),
)
"""Settings of vLLM that weights sent as changes exclude."""


def _weights() -> Iterator[Requirement]:
    """How weights reach the rollout engine."""
    source = "verl/workers/rollout/vllm_rollout/vllm_async_server.py, vLLMHttpServer._preprocess_engine_kwargs"

    def is_delta(values: Values) -> bool:
        return bool(values[BACKEND] == "delta_sharded")

    yield pair_row(
        BACKEND,
        f"{ROLLOUT}.name",
        lambda v: is_delta(v) and v[f"{ROLLOUT}.name"] not in ("vllm", "sglang"),
        "verl/checkpoint_engine/base.py, CheckpointEngineWorker.__init__",
        "nccl",
    )
    for other, excluded in DELTA:
        yield pair_row(
            BACKEND,
            other,
            lambda v, excluded=excluded: is_delta(v) and uses_engine("vllm")(v) and excluded(v),  # type: ignore[misc]
            source,
            "nccl",
            ENGINE,
        )
    yield pair_row(
        BACKEND,
        f"{SPLIT}.enabled",
        lambda v: is_delta(v) and v[f"{SPLIT}.enabled"],
        source,
        "nccl",
        ENGINE,
    )
    for other, excluded in (
        (f"{MEGATRON}.vanilla_mbridge", is_on(f"{MEGATRON}.vanilla_mbridge")),
        (f"{MODEL}.lora.rank", lambda v: v.number(f"{MODEL}.lora.rank", 0) > 0),
    ):
        yield pair_row(
            BACKEND,
            other,
            lambda v, excluded=excluded: is_delta(v) and strategy(v) == "megatron" and excluded(v),  # type: ignore[misc]
            "verl/workers/engine/megatron/transformer_impl.py, MegatronEngine._mcore_export_index",
            "nccl",
            SYNCED,
        )
    yield name_row(
        f"{ROLLOUT}.checkpoint_engine.engine_kwargs.delta_sharded.encoding",
        ("indices",),
        "verl/checkpoint_engine/delta_checkpoint_engine.py, DeltaShardedCheckpointEngine.__init__",
        applies=is_delta,
    )
    yield pair_row(
        f"{ROLLOUT}.layered_summon",
        f"{ROLLOUT}.load_format",
        lambda v: (
            strategy(v) in ("fsdp", "fsdp2")
            and v.number(f"{MODEL}.lora_rank", 0) > 0
            and not v[f"{MODEL}.lora.merge"]
            and v[f"{ROLLOUT}.layered_summon"]
            and "dummy" in str(v[f"{ROLLOUT}.load_format"])
        ),
        "verl/utils/fsdp_utils.py, collect_lora_params",
        "false",
        SYNCED,
    )
    bucket = f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes"
    yield model_row_of_bucket(bucket)


def model_row_of_bucket(key: str) -> Requirement:
    """Mooncake sends no weight that is larger than its bucket; the embedding is the largest."""

    def mebibytes(values: Values) -> int:
        shape = shape_at(values, f"{MODEL}.path")
        return 0 if shape is None else -(-shape.vocabulary * shape.hidden * 2 // 2**20)

    return Requirement(
        key,
        lambda v: v[BACKEND] == "mooncake" and 0 < v.number(key, 0) < mebibytes(v),
        said(
            "{key} is {{{key}}} MiB, and the model's embedding has {{mebibytes}} MiB: Mooncake sends no larger weight than the "
            "bucket, and verl stops at the first weight sync",
            key=key,
        ),
        "verl/checkpoint_engine/mooncake_checkpoint_engine.py, MooncakeCheckpointEngine.send_weights",
        Remedy(key, NEAREST),
        numbers={"mebibytes": mebibytes},
        when=SYNCED,
    )


def _engines() -> Iterator[Requirement]:
    """Settings of rollout engines."""
    yield pair_row(
        f"{ROLLOUT}.prometheus.enable",
        f"{ROLLOUT}.disable_log_stats",
        lambda v: v[f"{ROLLOUT}.prometheus.enable"] and v[f"{ROLLOUT}.disable_log_stats"],
        "verl/workers/rollout/llm_server.py, LLMServerManager._initialize_llm_servers",
        "false",
        ENGINE,
    )
    tensor, experts = f"{ROLLOUT}.tensor_model_parallel_size", f"{ROLLOUT}.moe_tensor_parallel_size"
    yield pair_row(
        experts,
        f"{ROLLOUT}.name",
        lambda v: _number(v, experts) > 1 and v[f"{ROLLOUT}.name"] != "trtllm",
        "verl/workers/config/rollout.py, RolloutConfig.__post_init__",
        1,
    )
    yield pair_row(
        experts,
        tensor,
        lambda v: (
            v[f"{ROLLOUT}.name"] == "trtllm"
            and _number(v, experts) > 1
            and _number(v, f"{ROLLOUT}.expert_parallel_size") > 1
            and _number(v, experts) * _number(v, f"{ROLLOUT}.expert_parallel_size") != _number(v, tensor)
        ),
        "verl/workers/config/rollout.py, RolloutConfig.__post_init__",
        1,
    )
    yield pair_row(
        f"{ROLLOUT}.data_parallel_size",
        tensor,
        lambda v: (
            uses_engine("vllm")(v)
            and _number(v, f"{ROLLOUT}.data_parallel_size") > 1
            and min(_number(v, "trainer.n_gpus_per_node"), engine_devices(v)) % _number(v, tensor)
        ),
        "verl/workers/rollout/vllm_rollout/vllm_async_server.py, vLLMHttpServer.launch_server",
        1,
        ENGINE,
    )
    yield pair_row(
        tensor,
        "trainer.n_gpus_per_node",
        lambda v: (
            in_turns(v)
            and engine_devices(v) > _number(v, "trainer.n_gpus_per_node")
            and engine_devices(v) % _number(v, "trainer.n_gpus_per_node")
        ),
        "verl/workers/rollout/replica.py, RolloutReplica.__init__",
        1,
        ENGINE,
    )
    yield pair_row(
        f"{SPLIT}.enabled",
        f"{ROLLOUT}.name",
        lambda v: v[f"{SPLIT}.enabled"] and v[f"{ROLLOUT}.name"] not in ("vllm", "sglang"),
        "verl/workers/config/rollout.py, RolloutConfig.__post_init__",
        "false",
    )
    yield pair_row(
        f"{SPLIT}.enabled",
        f"{ROLLOUT}.data_parallel_size",
        lambda v: v[f"{SPLIT}.enabled"] and _number(v, f"{ROLLOUT}.data_parallel_size") != 1,
        "verl/workers/rollout/vllm_rollout/vllm_pd_replica.py, vLLMPDReplica.__init__",
        "false",
        ENGINE,
    )
    yield pair_row(
        f"{SPLIT}.decode_replicas",
        "trainer.n_gpus_per_node",
        lambda v: v[f"{SPLIT}.enabled"] and _split_devices(v) > _number(v, "trainer.n_gpus_per_node"),
        "verl/workers/rollout/vllm_rollout/vllm_pd_replica.py, vLLMPDReplica.__init__",
        1,
        ENGINE,
    )
    yield pair_row(
        f"{ROLLOUT}.quantization",
        f"{ROLLOUT}.load_format",
        lambda v: (
            uses_engine("trtllm")(v)
            and v[f"{ROLLOUT}.quantization"] == "fp8"
            and v[f"{ROLLOUT}.load_format"] != "dummy"
        ),
        "verl/workers/rollout/trtllm_rollout/trtllm_async_server.py, TRTLLMHttpServer.launch_server",
        "null",
        ENGINE,
    )
    yield pair_row(
        f"{MODEL}.target_modules",
        f"{ROLLOUT}.name",
        lambda v: (
            uses_engine("sglang")(v)
            and v.number(f"{MODEL}.lora_rank", 0) > 0
            and not v[f"{MODEL}.lora.merge"]
            and isinstance(v[f"{MODEL}.target_modules"], str)
            and v[f"{MODEL}.target_modules"] != "all-linear"
        ),
        "verl/workers/rollout/sglang_rollout/utils.py, sglang_lora_target_modules",
        "all-linear",
        ENGINE,
    )
    yield pair_row(
        f"{VLLM_ARGS}.speculative_config",
        f"{MODEL}.mtp.enable_rollout",
        lambda v: (
            v[f"{MODEL}.mtp.enable"]
            and v[f"{MODEL}.mtp.enable_rollout"]
            and isinstance(v[f"{VLLM_ARGS}.speculative_config"], (list, int, float))
        ),
        "verl/workers/rollout/vllm_rollout/utils.py, build_mtp_speculative_config",
        "null",
        ENGINE,
    )
    yield Requirement(
        f"{ROLLOUT}.max_model_len",
        lambda v: (
            v[f"{ROLLOUT}.name"] in ("vllm", "sglang", "trtllm")
            and not v[f"{MODEL}.override_config.max_position_embeddings"]
            and 0 < _positions(v) < v.number(f"{ROLLOUT}.max_model_len", 0)
        ),
        said(
            "{key} is {{{key}}}, more than the model's {{positions}} positions: verl stops when it starts the rollout engine",
            key=f"{ROLLOUT}.max_model_len",
        ),
        "verl/workers/rollout/vllm_rollout/vllm_async_server.py, vLLMHttpServer._validate_configs",
        Remedy(f"{ROLLOUT}.max_model_len", NEAREST),
        numbers={"positions": _positions},
    )


def _positions(values: Values) -> int:
    """Positions of the model; 0 if they are not known."""
    shape = shape_at(values, f"{MODEL}.path")
    return (shape.max_positions or 0) if shape is not None else 0


def _split_devices(values: Values) -> int:
    """GPUs of a prefill engine with its decoding engines."""
    prefill = _number(values, f"{ROLLOUT}.tensor_model_parallel_size")
    decode = values.number(f"{SPLIT}.decode_tensor_model_parallel_size", prefill)
    return prefill + _number(values, f"{SPLIT}.decode_replicas") * decode


def _rewards() -> Iterator[Requirement]:
    """Reward models, managers and filters."""
    pool, enabled = f"{POOL}.enable_resource_pool", f"{POOL}.enable"
    for other, applies, source in (
        (
            "trainer.v1.trainer_mode",
            lambda v: not in_turns(v),
            "verl/trainer/ppo/v1/trainer_separate_async.py, PPOTrainerSeparateAsync.__init__",
        ),
        (
            "algorithm.filter_groups.enable",
            lambda v: v["trainer.use_v1"] and v["algorithm.filter_groups.enable"],
            "verl/trainer/ppo/v1/trainer_base.py, PPOTrainer._resolve_filter_groups_metric",
        ),
        (
            "async_training.staleness_threshold",
            is_fully_async,
            "verl/experimental/fully_async_policy/fully_async_rollouter.py, FullyAsyncRollouter.__init__",
        ),
    ):
        yield pair_row(
            pool,
            other,
            lambda v, applies=applies: v[enabled] and not v[pool] and applies(v),  # type: ignore[misc]
            source,
            "true",
        )
    size = f"{POOL}.rollout.tensor_model_parallel_size"
    yield pair_row(
        size,
        f"{POOL}.n_gpus_per_node",
        lambda v: v[enabled] and v[pool] and _number(v, size) > _pool(v, POOL),
        "verl/experimental/reward_loop/reward_model.py, RewardModelManager._initialize_llm_servers",
        1,
        ENGINE,
    )
    yield pair_row(
        size,
        "trainer.n_gpus_per_node",
        lambda v: v[enabled] and not v[pool] and gpus(v) % _number(v, size),
        "verl/experimental/reward_loop/reward_model.py, RewardModelManager._initialize_llm_servers",
        1,
        ENGINE,
    )
    yield pair_row(
        f"{POOL}.rollout.skip_tokenizer_init",
        enabled,
        lambda v: v[enabled] and v[f"{POOL}.rollout.skip_tokenizer_init"],
        "verl/experimental/reward_loop/reward_model.py, RewardModelManager.__init__",
        "false",
        ENGINE,
    )
    yield needed_row(
        "reward.custom_reward_function.name",
        "reward.custom_reward_function.path",
        lambda v: v["reward.custom_reward_function.path"],
        "verl/trainer/ppo/reward.py, get_custom_reward_fn",
    )
    yield needed_row(
        "reward.reward_manager.module.path",
        "reward.reward_manager.source",
        lambda v: v["reward.reward_manager.source"] == "importlib",
        "verl/workers/config/reward.py, RewardManagerConfig.__post_init__",
    )
    for root in ("reward", "reward_model"):
        buffer, longest_response = f"{root}.reward_kwargs.overlong_buffer_cfg", f"{root}.reward_kwargs.max_resp_len"
        manager = "verl/experimental/reward_loop/reward_manager/dapo.py, DAPORewardManager.__init__"
        yield needed_row(
            longest_response,
            f"{buffer}.enable",
            lambda v, buffer=buffer: v["reward.reward_manager.name"] == "dapo" and v[f"{buffer}.enable"],  # type: ignore[misc]
            manager,
        )
        yield pair_row(
            f"{buffer}.len",
            longest_response,
            lambda v, buffer=buffer, most=longest_response: (  # type: ignore[misc]
                v["reward.reward_manager.name"] == "dapo"
                and v[f"{buffer}.enable"]
                and not 0 < v.number(f"{buffer}.len", 0) <= v.number(most, 0)
            ),
            manager,
            lambda v, most=longest_response: v[most],
        )


def _pool(values: Values, section: str) -> int:
    return values.number(f"{section}.n_gpus_per_node", 0) * values.number(f"{section}.nnodes", 0)


def _budgets() -> Iterator[Requirement]:
    """Budgets that dynamic batches need."""
    source = "verl/workers/engine_workers.py, ActorRolloutRefWorker.init_model"
    for key in (f"{ACTOR}.ppo_max_token_len_per_gpu", f"{ROLLOUT}.log_prob_max_token_len_per_gpu"):
        yield needed_row(
            key, f"{ACTOR}.use_dynamic_bsz", is_on(f"{ACTOR}.use_dynamic_bsz"), source, LOADED, since="0.8"
        )
    yield needed_row(
        "global_profiler.global_tool_config.nsys.worker_nsight_options",
        "global_profiler.tool",
        lambda v: v["global_profiler.tool"] == "nsys" and v["global_profiler.steps"] is not None,
        "verl/trainer/ppo/ray_trainer.py, RayPPOTrainer.init_workers",
    )
    for role, has in ((REF, lambda v: True), (CRITIC, uses_critic)):
        yield pair_row(
            f"{role}.profiler.tool",
            f"{ACTOR}.profiler.tool",
            lambda v, role=role, has=has: (  # type: ignore[misc]
                v.written(f"{role}.profiler.tool")
                and has(v)
                and v[f"{role}.profiler.tool"] != v[f"{ACTOR}.profiler.tool"]
            ),
            "verl/utils/profiler/config.py, ProfilerConfig.union",
            lambda v: v[f"{ACTOR}.profiler.tool"],
        )


ROWS: tuple[Requirement, ...] = (
    *_weights(),
    *_engines(),
    *_rewards(),
    *_budgets(),
)
