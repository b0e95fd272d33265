"""Values of single keys that verl refuses: unknown names, numbers out of range, other types. Read from the source of 0.9.1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rlctl.adapters.engine.requirements import Remedy, Requirement, Values
from rlctl.adapters.verl.requirement_values import (
    ACTOR,
    CRITIC,
    MAIN,
    MODEL,
    REF,
    ROLLOUT,
    is_fully_async,
    is_on,
    is_separate,
    strategy,
    uses_critic,
    uses_engine,
    uses_reference,
)
from rlctl.common.errors import closest
from rlctl.common.messages.reasons import said

START, ENGINE, LOADED, GENERATED, ROLLED, TRAINED, SYNCED = (
    *("start", "engine", "load", "generation", "rollout", "update", "sync"),
)
"""When a run stops, as ``Requirement.when`` says it."""
Applies = Callable[[Values], object]
BACKENDS = ("naive", "nccl", "hccl", "nixl", "mooncake", "kimi_ckpt_engine", "delta_sharded")
MANAGERS = ("naive", "dapo", "remote", "gdpo", "rate_limited")
LOSSES = (
    *("vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "clip_cov", "kl_cov", "geo_mean", "dro", "cispo"),
    "bypass_mode",
)
DIVERGENCES = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3")
DISTILLATION = ("forward_kl_topk", *DIVERGENCES)
TRANSFERS = {"vllm": ("nixl", "mooncake"), "sglang": ("nixl", "mooncake", "ascend", "mori", "fake")}
QUANTIZATIONS = {
    "vllm": (("fp8", "torchao", "ascend"), "vllm_async_server.py, vLLMHttpServer._apply_quantization"),
    "sglang": (("fp8",), "async_sglang_server.py, SGLangHttpServer.launch_server"),
    "trtllm": (("fp8",), "trtllm_async_server.py, TRTLLMHttpServer.launch_server"),
}
"""The quantizations of each rollout engine, and what refuses others."""
OPTIMIZER_DTYPES = ("fp32", "float32", "32", "bf16", "bfloat16")
STRATEGIES = {
    "fsdp_config": ("fsdp", "fsdp2", "fsdp_turbo"),
    "megatron": ("megatron",),
    "veomni": ("veomni",),
    "torchtitan": ("torchtitan",),
}
"""The strategies that the section of an engine may name."""
TORCHTITAN = {
    "attn_type": ("flex", "flex_flash", "varlen"),
    "spmd_backend": ("default", "full_dtensor", "spmd_types"),
    "activation_checkpoint": ("selective", "full", "none"),
}
POOL, LOSS, SAMPLER = "reward.reward_model", "distillation.distillation_loss", "trainer.v1.sampler"
ROLES: tuple[tuple[str, Applies], ...] = (
    (ACTOR, lambda v: True),
    (REF, uses_reference),
    (CRITIC, uses_critic),
)
"""Sections of roles that are trained or scored, and whether a run has the role."""
IN_CONFIG = "verl/workers/config"


def always(values: Values) -> bool:
    """Whether a limit holds for a file: for all."""
    return True


def value_row(
    key: str,
    fits: Callable[[Any], object],
    expected: str,
    source: str,
    fix: object,
    when: str = START,
    applies: Applies = always,
    **others: Any,
) -> Requirement:
    """A row that refuses values of a key that do not fit; null is left to other rows.

    Args:
        key: that has the value.
        fits: whether verl takes a value.
        expected: the values that verl takes, in words.
        source: the file and what in it refuses.
        fix: a value that fits.
        when: the run stops.
        applies: whether verl reads the key.
        others: of the row, as ``since``.
    """
    return Requirement(
        key,
        lambda v: applies(v) and v[key] is not None and not fits(v[key]),
        said("{key} is {{{key}}}; expected {expected}", key=key, expected=expected),
        source,
        Remedy(key, fix),
        when=when,
        **others,
    )


def name_row(key: str, names: tuple[str, ...], source: str, when: str = START, **others: Any) -> Requirement:
    """A row that refuses names that verl does not have."""
    expected = said("one of {names}", names=", ".join(names))

    def nearest(values: Values) -> str:
        return closest(str(values[key]), names) or names[0]

    return value_row(key, lambda value: str(value) in names, expected, source, nearest, when, **others)


def number_row(key: str, low: int, source: str, when: str = START, **others: Any) -> Requirement:
    """A row that refuses numbers below a limit."""
    expected = said("{low} or more", low=low)
    return value_row(key, lambda value: float(value) >= low, expected, source, low, when, **others)


def _whole(value: Any, low: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= low


def count_rows(keys: tuple[str, ...], low: int, source: str, **others: Any) -> Iterator[Requirement]:
    """Keys that hold whole numbers."""
    for key in keys:
        expected = said("a whole number, {low} or more", low=low)
        yield value_row(key, lambda value: _whole(value, low), expected, source, low, **others)


def _positive(key: str, source: str, fix: float, applies: Applies, when: str = TRAINED) -> Requirement:
    return value_row(key, lambda value: float(value) > 0, "more than 0", source, fix, when, applies)


def _names() -> Iterator[Requirement]:
    """Names of parts that verl has."""
    yield name_row(
        "model_engine",
        ("dp", "megatron", "veomni", "torchtitan", "mindspeed"),  # the last one in 0.9.0 only
        "verl/trainer/config/ppo_trainer.yaml, model_engine",
        applies=lambda v: v.program in ("", MAIN),
    )
    yield name_row(
        f"{ROLLOUT}.checkpoint_engine.backend",
        BACKENDS,
        "verl/checkpoint_engine/base.py, CheckpointEngineRegistry.get",
        applies=lambda v: not v[f"{ROLLOUT}.checkpoint_engine.custom_backend_module"],
    )
    yield name_row(
        "reward.reward_manager.name",
        MANAGERS,
        f"{IN_CONFIG}/reward.py, RewardManagerConfig.__post_init__",
        applies=lambda v: v["reward.reward_manager.source"] == "register" and not v[f"{MODEL}.external_lib"],
    )
    yield name_row(
        "reward.reward_manager.source",
        ("register", "importlib"),
        "verl/trainer/ppo/reward.py, resolve_reward_manager_cls",
    )
    yield name_row(
        f"{ACTOR}.policy_loss.loss_mode",
        LOSSES,
        "verl/trainer/ppo/core_algos.py, get_policy_loss_fn",
        TRAINED,
        applies=lambda v: not v[f"{MODEL}.external_lib"],
    )
    yield name_row(
        f"{ACTOR}.kl_loss_type",
        (*DIVERGENCES, *(f"{name}+" for name in DIVERGENCES)),
        "verl/trainer/ppo/core_algos.py, kl_penalty_forward",
        TRAINED,
        applies=lambda v: v[f"{ACTOR}.use_kl_loss"],
    )
    yield name_row(
        "algorithm.kl_penalty",
        (*DIVERGENCES, *(f"{name}+" for name in DIVERGENCES)),
        "verl/trainer/ppo/core_algos.py, kl_penalty_forward",
        ROLLED,
        applies=lambda v: v["algorithm.use_kl_in_reward"],
    )
    yield name_row(
        "algorithm.pf_ppo.reweight_method",
        ("pow", "max_min", "max_random"),
        "verl/trainer/ppo/core_algos.py, compute_pf_ppo_reweight_data",
        ROLLED,
        applies=is_on("algorithm.use_pf_ppo"),
    )
    yield name_row(
        f"{ROLLOUT}.agent.default_agent_loop",
        ("single_turn_agent", "tool_agent"),
        "verl/experimental/agent_loop/agent_loop.py, AgentLoopWorker._run_agent_loop",
        GENERATED,
        applies=lambda v: (
            v[f"{ROLLOUT}.name"] in ("vllm", "sglang", "trtllm")
            and not v[f"{ROLLOUT}.agent.agent_loop_config_path"]
            and not v[f"{ROLLOUT}.agent.agent_loop_manager_class"]
            and not v[f"{MODEL}.external_lib"]
        ),
    )
    yield name_row(
        "async_training.dynamic_schedule_policy",
        ("default", "fixed_ratio", "static_fully_async"),
        "verl/experimental/fully_async_policy/dynamic_schedule/base.py, build_policy",
        applies=is_on("async_training.use_dynamic_resource_scheduling"),
    )
    yield name_row(
        "trainer.resume_mode",
        ("auto", "disable", "resume_path"),
        "verl/experimental/fully_async_policy/fully_async_rollouter.py, FullyAsyncRollouter.load_checkpoint",
        applies=is_fully_async,
    )
    yield name_row(
        "trainer.resume_mode",
        ("auto", "disable", "resume_path"),
        "verl/utils/checkpoint/checkpoint_handler.py, CheckpointHandler._determine_resume_path",
        kinds=("sft_engine",),
    )
    for engine, (names, source) in QUANTIZATIONS.items():
        yield name_row(
            f"{ROLLOUT}.quantization",
            names,
            f"verl/workers/rollout/{engine}_rollout/{source}",
            ENGINE,
            applies=uses_engine(engine),
        )
    yield name_row(
        f"{POOL}.rollout.name",
        ("vllm", "sglang"),
        "verl/experimental/reward_loop/reward_loop.py, RewardLoopWorker.compute_score_disrm",
        ROLLED,
        applies=is_on(f"{POOL}.enable"),
    )


def _sections() -> Iterator[Requirement]:
    """Names in the section of a training engine."""
    for role, has in ROLES:
        for section, names in STRATEGIES.items():
            yield name_row(
                f"{role}.{section}.strategy",
                names,
                f"{IN_CONFIG}/engine.py",
                applies=lambda v, has=has, role=role, section=section: (
                    has(v) and v.written(f"{role}.{section}.strategy")
                ),
            )
        for name, names in TORCHTITAN.items():
            yield name_row(
                f"{role}.torchtitan.{name}",
                names,
                f"{IN_CONFIG}/engine.py, TorchtitanEngineConfig.__post_init__",
                applies=lambda v, has=has, role=role: has(v) and strategy(v, role) == "torchtitan",
            )
        yield value_row(
            f"{role}.torchtitan.pipeline_parallel_size",
            lambda value: int(value) == 1,
            "1",
            "verl/workers/engine/torchtitan/transformer_impl.py, TorchTitanEngine.model_forward_step",
            1,
            TRAINED,
            applies=lambda v, has=has, role=role: has(v) and strategy(v, role) == "torchtitan",  # type: ignore[misc]
        )
        yield value_row(
            f"{role}.megatron.use_mbridge",
            bool,
            "true",
            "verl/workers/engine/megatron/transformer_impl.py, MegatronEngine.__init__",
            "true",
            LOADED,
            applies=lambda v, has=has, role=role: has(v) and strategy(v, role) == "megatron",  # type: ignore[misc]
        )
        yield number_row(
            f"{role}.veomni.activation_offload_host_cache_limit_gb",
            0,
            f"{IN_CONFIG}/engine.py, VeOmniEngineConfig.__post_init__",
            applies=lambda v, has=has, role=role: has(v) and strategy(v, role) == "veomni",
        )
    for role, has in (ROLES[0], ROLES[2]):
        for name in ("main_grads_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"):
            yield name_row(
                f"{role}.optim.{name}",
                OPTIMIZER_DTYPES,
                f"{IN_CONFIG}/optimizer.py, McoreOptimizerConfig.__post_init__",
                applies=lambda v, has=has, role=role: has(v) and strategy(v, role) == "megatron",
            )
        for name in ("lr_scheduler_type", "warmup_style"):
            if (role, name) != (ACTOR, "lr_scheduler_type"):
                yield name_row(
                    f"{role}.optim.{name}",
                    ("constant", "cosine"),
                    f"{IN_CONFIG}/optimizer.py, FSDPOptimizerConfig.__post_init__",
                    applies=lambda v, has=has, role=role: has(v) and strategy(v, role) in ("fsdp", "fsdp2"),
                )
    yield value_row(
        f"{ACTOR}.megatron.qat.mode",
        lambda value: value == "w4a16",
        "w4a16",
        "verl/utils/modelopt/quantize.py, build_quantize_config",
        "w4a16",
        LOADED,
        applies=lambda v: strategy(v) == "megatron" and v[f"{ACTOR}.megatron.qat.enable"],
    )
    yield name_row(
        f"{ACTOR}.fsdp_config.qat.activation_observer",
        ("static_minmax", "minmax", "memoryless_minmax"),
        "verl/utils/qat/linear.py, QATLinear._update_input_global_scale",
        TRAINED,
        applies=lambda v: strategy(v) in ("fsdp", "fsdp2") and v[f"{ACTOR}.fsdp_config.qat.enable"],
    )
    yield number_row(
        f"{ACTOR}.megatron.pad_to_length_bucket",
        1,
        "verl/models/mcore/util.py, preprocess_thd_engine",
        TRAINED,
        applies=lambda v: strategy(v) == "megatron" and v[f"{ACTOR}.megatron.pad_to_length"],
    )


def _supervised() -> Iterator[Requirement]:
    """Values of the SFT trainer."""
    dataset = "verl/utils/dataset/multiturn_sft_dataset.py, MultiTurnSFTDataset.__init__"
    yield name_row("data.pad_mode", ("no_padding", "right"), dataset, kinds=("sft_engine",))
    yield name_row("data.truncation", ("error", "left", "right"), dataset, kinds=("sft_engine",))
    for name, names in TORCHTITAN.items():
        source = f"{IN_CONFIG}/engine.py, TorchtitanEngineConfig.__post_init__"
        yield name_row(
            f"engine.{name}", names, source, kinds=("sft_engine",), applies=lambda v: _engine_is(v, "torchtitan")
        )
    source = f"{IN_CONFIG}/engine.py, AutomodelEngineConfig.__post_init__"
    yield name_row(
        "engine.distributed_strategy",
        ("fsdp2", "megatron_fsdp", "ddp"),
        source,
        kinds=("sft_engine",),
        applies=lambda v: _engine_is(v, "automodel"),
    )
    yield value_row(
        "engine.pp_size",
        lambda value: int(value) == 1,
        "1",
        source,
        1,
        kinds=("sft_engine",),
        applies=lambda v: _engine_is(v, "automodel"),
    )
    yield name_row(
        "optim.lr_scheduler_type",
        ("cosine", "constant", "linear", "inverse-square-root"),
        f"{IN_CONFIG}/optimizer.py, AutomodelOptimizerConfig.__post_init__",
        kinds=("sft_engine",),
        applies=lambda v: _engine_is(v, "automodel"),
    )
    yield value_row(
        "trainer.profile_interval",
        lambda value: len(value) == 2 and value[1] >= value[0] and (value[0] >= 0 or value[1] < 0),
        "two steps, the first of them not after the second",
        "verl/trainer/sft_trainer.py, SFTTrainer._validate_profiler_interval",
        "[-1, -1]",
        kinds=("sft_engine",),
    )


def _engine_is(values: Values, engine: str) -> bool:
    return bool(values["engine.strategy"] == engine)


def _numbers() -> Iterator[Requirement]:
    """Numbers of algorithms, pools and schedules."""
    core = "verl/trainer/ppo/core_algos.py"
    for loss, key in (("clip_cov", "clip_cov_ratio"), ("kl_cov", "kl_cov_ratio")):
        yield _positive(
            f"{ACTOR}.policy_loss.{key}",
            f"{core}, compute_policy_loss_{loss}",
            0.0002,
            lambda v, loss=loss: v[f"{ACTOR}.policy_loss.loss_mode"] == loss,  # type: ignore[misc]
        )
    yield value_row(
        f"{ACTOR}.policy_loss.dro_beta",
        lambda value: float(value) > 0,
        "more than 0",
        f"{core}, compute_policy_loss_dro",
        0.1,
        TRAINED,
        lambda v: v[f"{ACTOR}.policy_loss.loss_mode"] == "dro",
    )
    yield _positive(
        "algorithm.kl_ctrl.horizon",
        f"{core}, get_kl_controller",
        10000,
        lambda v: v["algorithm.use_kl_in_reward"] and v["algorithm.kl_ctrl.type"] == "adaptive",
        START,
    )
    yield from count_rows(
        (f"{SAMPLER}.max_off_policy_threshold",),
        1,
        "verl/trainer/ppo/v1/replay_buffer.py, ReplayBuffer.__init__",
        applies=lambda v: v["trainer.use_v1"],
    )
    yield from count_rows(
        ("algorithm.filter_groups.max_inflight_gen_batches",),
        1,
        "verl/trainer/ppo/v1/replay_buffer.py, ReplayBuffer._validate_mode_config",
        applies=lambda v: v["trainer.use_v1"] and v["algorithm.filter_groups.enable"],
    )
    switch = "trainer.v1.separate_async.hybrid_rollout"
    yield value_row(
        f"{switch}.switch_threshold_ratio",
        lambda value: 0 < float(value) <= 1,
        "more than 0 and at most 1",
        "verl/trainer/config/config.py, HybridRolloutSwitchConfig.__post_init__",
        0.4,
        applies=lambda v: v["trainer.v1.trainer_mode"] == "separate_async",
    )
    yield number_row(
        f"{switch}.switch_cost_window_size",
        1,
        "verl/trainer/config/config.py, HybridRolloutSwitchConfig.__post_init__",
        applies=lambda v: v["trainer.v1.trainer_mode"] == "separate_async",
    )
    for name in ("n_gpus_per_node", "nnodes"):
        pools = "verl/trainer/ppo/v1/trainer_base.py, PPOTrainer._init_resource_pool_mgr"
        yield number_row(
            f"{POOL}.{name}",
            1,
            pools,
            applies=lambda v: v[f"{POOL}.enable"] and v[f"{POOL}.enable_resource_pool"],
        )
        yield number_row(f"distillation.{name}", 1, pools, applies=is_on("distillation.enabled"))
        yield number_row(
            f"rollout.{name}",
            1,
            "verl/experimental/separation/utils.py, create_resource_pool_manager",
            applies=is_separate,
        )
    yield number_row(
        f"{ROLLOUT}.trace.max_samples_per_step_per_worker",
        0,
        f"{IN_CONFIG}/rollout.py, TraceConfig.__post_init__",
    )


def _asynchronous() -> Iterator[Requirement]:
    """Values of the fully asynchronous trainer, and of one-step-off-policy."""
    source = "verl/experimental/fully_async_policy/fully_async_rollouter.py, FullyAsyncRollouter.__init__"
    yield value_row("data.train_batch_size", lambda value: int(value) == 0, "0", source, 0, applies=is_fully_async)
    yield value_row("data.gen_batch_size", lambda value: int(value) == 1, "1", source, 1, applies=is_fully_async)
    yield number_row("async_training.staleness_threshold", 0, source, applies=is_fully_async)
    yield number_row("async_training.trigger_parameter_sync_step", 1, source, applies=is_fully_async)
    yield value_row(
        f"{ROLLOUT}.calculate_log_probs",
        bool,
        "true",
        "verl/experimental/fully_async_policy/fully_async_rollouter.py, FullyAsyncRollouter._validate_config",
        "true",
        applies=is_fully_async,
    )
    yield value_row(
        "actor_rollout_ref.hybrid_engine",
        lambda value: not value,
        "false",
        "verl/experimental/one_step_off_policy/ray_trainer.py, OneStepOffRayTrainer.__init__",
        "false",
        applies=is_separate,
    )
    yield value_row(
        "critic.strategy",
        lambda value: value == "fsdp",
        "fsdp",
        "verl/experimental/separation/ray_trainer.py, SeparateRayPPOTrainer._create_critic_class",
        "fsdp",
        applies=lambda v: is_separate(v) and uses_critic(v),
    )
    yield value_row(
        "trainer.default_hdfs_dir",
        lambda value: False,
        "null",
        "verl/trainer/ppo/ray_trainer.py, RayPPOTrainer._load_checkpoint",
        "null",
        applies=lambda v: (is_fully_async(v) or v["trainer.use_v1"] is False) and v["trainer.resume_mode"] != "disable",
    )


def _disaggregation() -> Iterator[Requirement]:
    """Prefill and decoding on separate engines."""
    section = f"{ROLLOUT}.disaggregation"
    source = f"{IN_CONFIG}/disaggregation.py, DisaggregationConfig.__post_init__"
    for engine, names in TRANSFERS.items():
        yield name_row(
            f"{section}.transfer_backend",
            names,
            source,
            applies=lambda v, engine=engine: v[f"{section}.enabled"] and uses_engine(engine)(v),
        )
    yield name_row(
        f"{section}.mooncake_protocol",
        ("nvlink", "local", "rdma", "tcp"),
        source,
        applies=lambda v: v[f"{section}.enabled"] and v[f"{section}.transfer_backend"] == "mooncake",
    )
    yield value_row(
        f"{section}.prefill_replicas",
        lambda value: int(value) == 1,
        "1",
        "verl/workers/rollout/vllm_rollout/vllm_pd_replica.py, vLLMPDReplica.__init__",
        1,
        ENGINE,
        is_on(f"{section}.enabled"),
    )
    yield number_row(f"{section}.decode_replicas", 1, source, applies=is_on(f"{section}.enabled"))
    yield value_row(
        f"{section}.bootstrap_port",
        lambda value: 0 < int(value) < 65536,
        "a port from 1 to 65535",
        source,
        "null",
        applies=is_on(f"{section}.enabled"),
    )


def _paths() -> Iterator[Requirement]:
    """Paths that verl copies to the machine of each worker."""
    for key, applies in ((f"{MODEL}.path", always), ("critic.model.path", uses_critic)):
        yield value_row(
            key,
            lambda value: not str(value).endswith("/"),
            "a path without / at its end",
            "verl/utils/fs.py, copy_local_path_from_hdfs",
            "the path without it",
            LOADED,
            applies,
            since="0.3",
        )


ROWS: tuple[Requirement, ...] = (
    *_names(),
    *_sections(),
    *_numbers(),
    *_asynchronous(),
    *_disaggregation(),
    *_paths(),
    *_supervised(),
)
