"""What ROLL refuses before it starts, and in its pipelines, read from its source of August 2026."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.adapters.engine.requirements import NEAREST, Remedy, Requirement, Requirements, Values
from rlctl.adapters.engine.values import files_of
from rlctl.adapters.roll import (
    engine_limits,
    environment_limits,
    ineffective,
    pipeline_limits,
    row_limits,
    shape_limits,
    user_limits,
    value_limits,
)
from rlctl.adapters.roll.requirement_values import (
    devices,
    environments,
    is_agentic,
    is_rlvr,
    model_parallel,
    rank_mini_batch,
    ranks,
    responses,
    strategy,
    worker_devices,
)
from rlctl.common.messages.reasons import said

ROLES = (
    "actor_train",
    "actor_infer",
    "reference",
    "critic",
    "student_train",
    "student_infer",
    "sft_train",
    "student",
    "teacher",
)
STRATEGIES = (
    *("hf_infer", "vllm", "sglang", "megatron_infer", "megatron_train", "mock_infer", "fsdp2_infer", "fsdp2_train"),
)
CONFIGS = "roll/configs/base_config.py, BaseConfig.__post_init__"
WORKER = "roll/configs/worker_config.py, WorkerConfig.__post_init__"
AGENTIC = "roll/pipeline/agentic/agentic_config.py, AgenticConfig.__post_init__"


def _of_role(role: str) -> Iterator[Requirement]:
    yield Requirement(
        f"{role}.device_mapping",
        lambda v: v.written(f"{role}.device_mapping") and devices(v, role) % worker_devices(v, role),
        said("{role}.device_mapping is not divisible by the devices of one worker", role=role),
        WORKER,
        said("change {role}.device_mapping, or the parallel sizes of {role}.strategy_args.strategy_config", role=role),
    )
    yield Requirement(
        f"{role}.strategy_args.strategy_name",
        lambda v: v.written(f"{role}.strategy_args.strategy_name") and strategy(v, role) not in STRATEGIES,
        said(
            "{role}.strategy_args.strategy_name is {{{role}.strategy_args.strategy_name}}; expected one of "
            "{strategies}",
            role=role,
            strategies=", ".join(STRATEGIES),
        ),
        "roll/distributed/strategy/factory.py, create_strategy",
        Remedy(f"{role}.strategy_args.strategy_name", tuple(STRATEGIES)),
    )
    yield Requirement(
        f"{role}.router_replay.mode",
        lambda v: v[f"{role}.router_replay.mode"] == "R2",
        said("{role}.router_replay.mode is R2, which ROLL does not support", role=role),
        WORKER,
        "set it to R3 or disabled",
    )


def _without_worker(values: Values) -> str:
    """The domains of ``rewards`` that name no class, as text."""
    rewards = values["rewards"] or {}
    return ", ".join(name for name, reward in rewards.items() if reward is not None and not reward.get("worker_cls"))


ROWS: tuple[Requirement, ...] = (
    Requirement(
        "actor_train.data_args.file_name",
        lambda v: (
            is_rlvr(v)
            and v.written("actor_train")  # on-policy distillation trains student_train
            and not any(files_of(v["actor_train.data_args.file_name"]))
        ),
        "actor_train.data_args.file_name names no file",
        "roll/datasets/dataset.py, get_dataset",
        "name the training data in actor_train.data_args.file_name",
        check_code="no-data",
    ),
    Requirement(
        "rewards",
        lambda v: is_rlvr(v) and _without_worker(v),
        "rewards of {domains} have no worker_cls, the class that scores responses",
        "roll/distributed/executor/cluster.py, Cluster.__init__",
        "set worker_cls in each domain of rewards, to one of roll.pipeline.rlvr.rewards or a class of your own",
        numbers={"domains": _without_worker},
    ),
    Requirement(
        "response_length",
        lambda v: not v["response_length"] and not v["sequence_length"],
        "neither response_length nor sequence_length is set",
        CONFIGS,
        "set response_length",
    ),
    Requirement(
        "val_sequence_length",
        lambda v: v.written("val_prompt_length") is not v.written("val_sequence_length"),
        "only one of val_prompt_length and val_sequence_length is set",
        CONFIGS,
        "set both or neither",
    ),
    Requirement(
        "actor_infer.generating_args",
        lambda v: v.written("actor_infer") and not is_agentic(v) and not v.written("actor_infer.generating_args"),
        "actor_infer.generating_args is not set, and the RLVR pipeline writes to it",
        "roll/pipeline/rlvr/rlvr_config.py, RLVRConfig.__post_init__",
        "set actor_infer.generating_args.temperature",
    ),
    Requirement(
        "profiler_memory",
        lambda v: v["profiler_timeline"] and v["profiler_memory"],
        "profiler_timeline and profiler_memory are both on",
        CONFIGS,
        "keep one of them",
    ),
    Requirement(
        "rollout_batch_size",
        lambda v: (
            "megatron" in strategy(v, "actor_train")
            and devices(v, "actor_train") % model_parallel(v, "actor_train") == 0
            and v["rollout_batch_size"] % (devices(v, "actor_train") // model_parallel(v, "actor_train"))
        ),
        "rollout_batch_size ({rollout_batch_size}) is not divisible by the data-parallel size of actor_train",
        f"{CONFIGS}, validate_megatron_batch_size",
        Remedy("rollout_batch_size", NEAREST),
    ),
    Requirement(
        "num_return_sequences_in_group",
        lambda v: is_rlvr(v) and responses(v) % ranks(v),
        "rollout_batch_size x num_return_sequences_in_group ({rollout_batch_size} x {num_return_sequences_in_group}) is not "
        "divisible by the data-parallel size of actor_train",
        "roll/distributed/scheduler/protocol.py, DataProto.chunk",
        Remedy("rollout_batch_size", NEAREST, "actor_train.device_mapping"),
    ),
    Requirement(
        "actor_train.training_args.gradient_accumulation_steps",
        lambda v: is_rlvr(v) and responses(v) // ranks(v) < rank_mini_batch(v),
        "a mini-batch of a rank is larger than its responses of a step: actor_train would make no update",
        "roll/pipeline/base_worker.py, ActorWorker.train_step",
        Remedy("actor_train.training_args.gradient_accumulation_steps", NEAREST),
    ),
    Requirement(
        "actor_train.device_mapping",
        lambda v: (
            "megatron" in strategy(v, "actor_train") and devices(v, "actor_train") % model_parallel(v, "actor_train")
        ),
        "the devices of actor_train are not divisible by tensor x pipeline x context parallel sizes",
        "roll/utils/config_utils.py, calculate_megatron_dp_size",
        "change actor_train.device_mapping, or the parallel sizes",
    ),
    Requirement(
        "actor_infer.strategy_args",
        lambda v: v.written("actor_infer.strategy_args") and not v.written("actor_infer.strategy_args.strategy_name"),
        "actor_infer.strategy_args has no strategy_name, which is fsdp2_train then; expected vllm or sglang",
        CONFIGS,
        "set actor_infer.strategy_args.strategy_name to vllm or sglang",
    ),
    Requirement(
        "actor_infer.strategy_args.strategy_name",
        lambda v: v.written("actor_infer.strategy_args") and strategy(v, "actor_infer") not in ("vllm", "sglang"),
        "actor_infer.strategy_args.strategy_name is {actor_infer.strategy_args.strategy_name}; expected vllm or sglang",
        CONFIGS,
        "set it to vllm or sglang",
    ),
    Requirement(
        "generate_opt_level",
        lambda v: v["async_generation_ratio"] > 0 and v["generate_opt_level"] != 1,
        "async_generation_ratio ({async_generation_ratio}) needs generate_opt_level 1, but it is {generate_opt_level}",
        "roll/configs/base_config.py, PPOConfig.__post_init__",
        Remedy("generate_opt_level", 1),
    ),
    Requirement(
        "use_opd",
        lambda v: v["is_pure_opd"] and v["use_opd"],
        "is_pure_opd and use_opd are both true",
        "roll/configs/base_config.py, PPOConfig._handle_opd_mapping",
        "keep one of them",
    ),
    Requirement(
        "actor_train.use_sequence_packing",
        lambda v: (
            v.written("chosen_key") and (v["actor_train.use_sequence_packing"] or v["reference.use_sequence_packing"])
        ),
        "use_sequence_packing is on, which ROLL's DPO pipeline does not support",
        "roll/pipeline/dpo/dpo_config.py, DPOConfig.__post_init__",
        "set actor_train.use_sequence_packing and reference.use_sequence_packing to false",
    ),
    *(
        Requirement(
            batch,
            lambda v, manager=manager, batch=batch: (
                is_agentic(v)  # type: ignore[misc]
                and v.number(batch, 128) > 0
                and v.number(batch, 128) % v.number(f"{manager}.group_size")
            ),
            said(
                "{batch} ({{{batch}}}) is not divisible by {manager}.group_size ({{{manager}.group_size}})",
                batch=batch,
                manager=manager,
            ),
            AGENTIC,
            Remedy(batch, NEAREST, f"{manager}.group_size"),
        )
        for manager, batch in (("train_env_manager", "rollout_batch_size"), ("val_env_manager", "val_batch_size"))
    ),
    Requirement(
        "val_batch_size",
        lambda v: (
            is_agentic(v)
            and v.number("val_batch_size", 128) > 0
            and v.number("val_batch_size", 128) % environments(v, "val_env_manager")
        ),
        "val_batch_size ({val_batch_size}) is not divisible by the environments of val_env_manager",
        AGENTIC,
        Remedy("val_batch_size", NEAREST),
    ),
    *(
        Requirement(
            f"{manager}.num_groups_partition",
            lambda v, manager=manager: (
                is_agentic(v)  # type: ignore[misc]
                and sum(v[f"{manager}.num_groups_partition"]) != v.number(f"{manager}.num_env_groups", 128)
            ),
            said(
                "{manager}.num_groups_partition ({{{manager}.num_groups_partition}}) does not sum to "
                "{manager}.num_env_groups",
                manager=manager,
            ),
            "roll/pipeline/agentic/agentic_config.py, AgenticConfig.make_env_configs",
            "change one of the two",
        )
        for manager in ("train_env_manager", "val_env_manager")
    ),
    Requirement(
        "train_env_manager.max_traj_per_env",
        lambda v: (
            is_agentic(v)
            and not v["async_generation_ratio"]
            and v.number("train_env_manager.max_traj_per_env", -1) >= 0
            and v.number("train_env_manager.max_traj_per_env", -1)
            < -(-v.number("rollout_batch_size", 128) // environments(v, "train_env_manager"))
        ),
        "train_env_manager.max_traj_per_env ({train_env_manager.max_traj_per_env}) is too small for rollout_batch_size",
        AGENTIC,
        Remedy("train_env_manager.max_traj_per_env", -1),
    ),
    *(row for role in ROLES for row in _of_role(role)),
)


NULLABLE = ("rollout_mock", "val_env_manager", "domain_interleave_probs")
"""Sections that may be null, besides those of ``strategy_config``."""


def _no_null(key: str) -> bool:
    return "strategy_config" not in key and not key.endswith(NULLABLE) and not key.startswith("val_env_manager.")


REQUIREMENTS = Requirements(
    "2026.8",
    (
        *(*ROWS, *value_limits.ROWS, *engine_limits.ROWS, *ineffective.ROWS, *user_limits.ROWS),
        *(*environment_limits.ROWS, *pipeline_limits.ROWS, *shape_limits.ROWS, *row_limits.ROWS),
    ),
    strict=lambda key: False,
    no_null=(_no_null, "examples/start_rlvr_pipeline.py, from_dict"),
)
