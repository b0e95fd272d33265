"""Words, devices and lengths that ROLL's pipelines, strategies and workers refuse when they are made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlctl.adapters.engine.requirements import NEAREST, Remedy, Requirement, Values
from rlctl.adapters.engine.values import files_of
from rlctl.adapters.roll.requirement_values import (
    device_numbers,
    is_agentic,
    is_rlvr,
    rank_mini_batch,
    ranks,
    ranks_of,
    responses,
    setting,
    strategy,
    worker_devices,
)
from rlctl.common.filenames import is_folder
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level

LOADER = "examples/start_rlvr_pipeline.py, from_dict"
TEMPLATES = ("native", "qwen2_5", "qwen3", "chatml", "base", "empty", "longCOT_qwen2.5", "longcot_V3")
"""Chat templates that ROLL registers."""
TYPES = {"arrow": "arrow", "csv": "csv", "json": "json", "jsonl": "json", "parquet": "parquet", "txt": "text"}
"""The types of data files, by the end of their names."""
TRAINERS = ("actor_train", "critic", "student_train", "sft_train", "student")
INFERRING = ("actor_infer", "student_infer")
MEGATRON_SCHEDULES = (
    *("constant", "cosine", "linear", "inverse-square-root", "WSD", "constant_with_warmup", "inverse_sqrt"),
    *("cosine_with_min_lr", "cosine_warmup_with_min_lr", "warmup_stable_decay"),
)
FLOATS = (
    *("bf16", "bfloat16", "fp16", "float16", "half", "fp32", "float32", "float", "fp64", "float64", "double"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
)
"""Data types that FSDP2 takes, by ROLL's names and by PyTorch's."""
WORDS: tuple[tuple[str, Sequence[str], str], ...] = (
    ("track_with", ("tensorboard", "wandb", "stdout", "swanlab", "trackio"), "roll/utils/tracking.py, create_tracker"),
    ("checkpoint_config.type", ("file_system",), "roll/utils/checkpoint_manager.py, CheckpointManager.__init__"),
    ("kl_penalty", ("kl", "abs", "mse", "full"), LOADER),
    ("router_args.router_name", ("PromptAffinityRouter", "EnvAffinityRouter", "SglangRouter"), LOADER),
    (
        "transfer_backend.backend_name",
        ("TransferQueue",),
        "roll/distributed/scheduler/transfer_backend.py, init_transfer_backend",
    ),
    (
        "logits_transfer_backend",
        ("ipc+nccl", "nccl-only", "ray"),
        "roll/pipeline/distill/logits_transfer_group.py, LogitsTransferGroup.__init__",
    ),
    *(
        (
            f"{owner}.llm_proxy.proxy_type",
            ("policy", "openai", "random"),
            "roll/pipeline/agentic/llm_proxy/__init__.py, create_llm_proxy",
        )
        for owner in ("train_env_manager", "val_env_manager", "reward")
    ),
    *(
        (
            f"{role}.strategy_args.strategy_config.{name}",
            FLOATS,
            "roll/distributed/strategy/fsdp2_strategy.py, _parse_dtype",
        )
        for role in (*TRAINERS, "reference")
        for name in ("param_dtype", "reduce_dtype")
    ),
    *(
        (
            f"{role}.sequence_packing_args.algorithm",
            ("none", "load_balance"),
            "roll/utils/sequence_packing.py, get_sequence_packing_packer",
        )
        for role in TRAINERS
    ),
)
"""Settings, the words that are allowed, and where the framework tests them."""
VARIANTS = ("vanilla", "ppo", "tis", "topr", "cispo", "kimi15")


def _word(key: str, names: Sequence[str], source: str) -> Requirement:
    return Requirement(
        key,
        lambda v: v.written(key) and v[key] is not None and v[key] not in names,
        said("{key} is {{{key}}}; expected one of {names}", key=key, names=", ".join(names)),
        source,
        Remedy(key, tuple(names)),
    )


def _files(values: Values, role: str) -> set[str | None]:
    """The types of a role's data files; None for one that ROLL does not know."""
    names = [str(name) for name in files_of(values[f"{role}.data_args.file_name"])]
    return {TYPES.get(name.rpartition(".")[2]) for name in names if "." in name.rpartition("/")[2]}


def _of_data(role: str) -> Iterator[Requirement]:
    key = f"{role}.data_args.file_name"
    yield Requirement(
        key,
        lambda v: None in _files(v, role) or (role != "actor_train" and len(_files(v, role)) > 1),
        said("{key} names files of several types, or of one that ROLL does not read", key=key),
        "roll/datasets/dataset.py, create_local_dataset",
        said("write all data as .jsonl files, and name them in {key}", key=key),
    )
    prompt, messages = f"{role}.data_args.prompt", f"{role}.data_args.messages"
    yield Requirement(
        messages,
        lambda v: v.written(prompt) and v[prompt] is not None and v[messages] is not None,
        said("{prompt} and {messages} are both set", prompt=prompt, messages=messages),
        "roll/configs/data_args.py, DataArguments.__post_init__",
        said("keep one of {prompt} and {messages}", prompt=prompt, messages=messages),
    )


def _gaps(values: Values, role: str) -> bool:
    numbers = device_numbers(values, role)
    return max(numbers) - min(numbers) != len(set(numbers)) - 1


def _of_devices(role: str) -> Requirement:
    key = f"{role}.device_mapping"
    return Requirement(
        key,
        lambda v: v.written(key) and v.written("actor_infer.device_mapping") and _gaps(v, role),
        said(
            "{key} leaves out a GPU between its first and its last: weights are sent to consecutive GPUs only", key=key
        ),
        "roll/distributed/executor/model_update_group.py, ModelUpdateGroup.__init__",
        said("name consecutive GPUs in {key}", key=key),
    )


def _misaligned(values: Values) -> bool:
    """Whether training and engines share GPUs, and their first or last ones do not fall on the bounds of an engine."""
    train, infer = device_numbers(values, "actor_train"), device_numbers(values, "actor_infer")
    size = worker_devices(values, "actor_infer")
    if size < 2 or not set(train) & set(infer):
        return False
    return bool((min(train) - min(infer)) % size or (max(train) - max(infer)) % size or len(train) % size)


def _reference_elsewhere(values: Values) -> bool:
    reference, train = device_numbers(values, "reference"), device_numbers(values, "actor_train")
    return bool(values["enable_reference"]) and set(reference) != set(train)


def _partly_shared(values: Values) -> bool:
    return set(device_numbers(values, "actor_train")) < set(device_numbers(values, "actor_infer"))


def _ulysses(role: str) -> Requirement:
    key = f"{role}.model_args.ulysses_size"
    return Requirement(
        key,
        lambda v: strategy(v, role).startswith("fsdp2") and len(device_numbers(v, role)) % v.number(key),
        said("{key} ({{{key}}}) does not divide the GPUs of {role}.device_mapping", key=key, role=role),
        "roll/utils/context_parallel/globals.py, set_upg_manager",
        Remedy(key, NEAREST, f"{role}.device_mapping"),
    )


def _of_fsdp2(role: str) -> Iterator[Requirement]:
    config = f"{role}.strategy_args.strategy_config"
    ulysses, size = f"{role}.model_args.ulysses_size", f"{config}.fsdp_size"
    source = "roll/distributed/strategy/fsdp2_strategy.py, _prepare_fsdp2_model"
    yield Requirement(
        size,
        lambda v: strategy(v, role).startswith("fsdp2") and v.number(size) < v.number(ulysses),
        said("{size} is less than {ulysses} ({{{ulysses}}})", size=size, ulysses=ulysses),
        source,
        said("set {size} to the GPUs of {role}", size=size, role=role),
    )
    experts = f"{config}.ep_size"
    yield Requirement(
        experts,
        lambda v: (
            strategy(v, role).startswith("fsdp2")
            and v.number(experts) > 1
            and len(device_numbers(v, role)) % (v.number(experts) * setting(v, role, "efsdp_size"))
        ),
        said("{experts} x efsdp_size does not divide the GPUs of {role}.device_mapping", experts=experts, role=role),
        source,
        Remedy(experts, NEAREST, f"{role}.device_mapping"),
    )


def _of_megatron(role: str) -> Iterator[Requirement]:
    config = f"{role}.strategy_args.strategy_config"
    overlap, dispatcher = f"{config}.overlap_param_gather", f"{config}.moe_token_dispatcher_type"
    schedule = f"{role}.training_args.lr_scheduler_type"
    source = "roll/distributed/strategy/megatron_strategy.py, MegatronTrainStrategy.__init__"
    yield Requirement(
        overlap,
        lambda v: strategy(v, role) == "megatron_train" and v[overlap],
        said("{overlap} is true, which ROLL does not support", overlap=overlap),
        source,
        Remedy(overlap, False),
    )
    yield Requirement(
        dispatcher,
        lambda v: (
            strategy(v, role).startswith("megatron")
            and v[dispatcher] == "allgather"
            and v[f"{config}.variable_seq_lengths"]
        ),
        said("{dispatcher} is allgather, which does not take variable_seq_lengths", dispatcher=dispatcher),
        "mcore_adapter/src/mcore_adapter/training_args.py, DistributingParallelArguments.__post_init__",
        Remedy(dispatcher, "alltoall"),
    )
    yield Requirement(
        schedule,
        lambda v: strategy(v, role) == "megatron_train" and v[schedule] not in MEGATRON_SCHEDULES,
        said("{schedule} is {{{schedule}}}, which Megatron does not have", schedule=schedule),
        "mcore_adapter/src/mcore_adapter/trainer/utils.py, get_megatron_lr_scheduler",
        said("set {schedule} to constant, linear or cosine", schedule=schedule),
    )
    kwargs = f"{role}.training_args.lr_scheduler_kwargs"
    yield Requirement(
        kwargs,
        lambda v: (
            strategy(v, role) == "megatron_train"
            and v[schedule] in ("WSD", "warmup_stable_decay")
            and (v[kwargs] or {}).get("wsd_decay_steps") is None
        ),
        said("{schedule} is {{{schedule}}}, but {kwargs} has no wsd_decay_steps", schedule=schedule, kwargs=kwargs),
        "mcore_adapter/src/mcore_adapter/trainer/utils.py, get_megatron_lr_scheduler",
        said("set wsd_decay_steps in {kwargs}", kwargs=kwargs),
    )
    packing = f"{role}.sequence_packing_args"
    longest = f"{packing}.max_packed_sequence_length_train"
    yield Requirement(
        longest,
        lambda v: (
            v[f"{role}.use_sequence_packing"]
            and v[f"{packing}.algorithm"] == "load_balance"
            and 0 < v.number(longest, 0) < v.number("prompt_length", 0) + v.number("response_length", 0)
        ),
        said(
            "{longest} ({{{longest}}}) is less than prompt_length + response_length: the first longer sequence stops it",
            longest=longest,
        ),
        "roll/utils/sequence_packing.py, LoadBalancePacker.make_micro_batch_iter_for_sequence_packing",
        Remedy(longest, NEAREST),
        level=Level.WARNING,
    )
    yield Requirement(
        f"{packing}.algorithm",
        lambda v: (
            v[f"{role}.use_sequence_packing"]
            and v[f"{packing}.algorithm"] == "load_balance"
            and None
            in (v[f"{packing}.max_packed_sequence_length_train"], v[f"{packing}.max_packed_sequence_length_forward"])
        ),
        said("{packing}.algorithm is load_balance, which needs the two max_packed_sequence_length", packing=packing),
        "roll/utils/sequence_packing.py, LoadBalancePacker.make_micro_batch_iter_for_sequence_packing",
        said(
            "set {packing}.max_packed_sequence_length_train and {packing}.max_packed_sequence_length_forward",
            packing=packing,
        ),
    )


def _of_engine(role: str) -> Iterator[Requirement]:
    config = f"{role}.strategy_args.strategy_config"
    yield Requirement(
        f"{config}.data_parallel_size",
        lambda v: (
            strategy(v, role) == "vllm"
            and setting(v, role, "data_parallel_size") > 1
            and setting(v, role, "data_parallel_size") * worker_devices(v, role) != len(device_numbers(v, role))
        ),
        said(
            "{config}.data_parallel_size is not the number of engines of {role}.device_mapping",
            config=config,
            role=role,
        ),
        "roll/distributed/strategy/vllm_strategy.py, VllmStrategy.initialize",
        Remedy(f"{config}.data_parallel_size", 1),
    )
    yield Requirement(
        f"{config}.grpc_mode",
        lambda v: strategy(v, role) == "sglang" and v[f"{config}.grpc_mode"] is True,
        said("{config}.grpc_mode is true, which ROLL does not support", config=config),
        "roll/distributed/strategy/sglang_strategy.py, SgLangStrategy.initialize",
        Remedy(f"{config}.grpc_mode"),
    )
    yield Requirement(
        f"{role}.strategy_args.strategy_name",
        lambda v: strategy(v, role) == "sglang" and bool(v["actor_train.model_args.lora_target"]),
        said("actor_train has LoRA adapters, which ROLL does not send to SGLang of {role}", role=role),
        "roll/distributed/strategy/sglang_strategy.py, SgLangStrategy.broadcast_parameter",
        Remedy(f"{role}.strategy_args.strategy_name", "vllm"),
    )


def _positive_penalty(values: Values) -> bool:
    rewards = values["rewards"] or {}
    return any(float((item or {}).get("max_penalty") or 0) > 0 for item in rewards.values())


def _has_teacher(values: Values) -> bool:
    return values.written("reference") or values.written("teacher") or values.written("references")


def _tokens_of_micro_batch(role: str) -> Iterator[Requirement]:
    for phase in ("train", "infer"):
        switch, most = f"{role}.use_dynamic_batching_in_{phase}", f"{role}.max_tokens_per_microbatch_in_{phase}"
        yield Requirement(
            most,
            lambda v, switch=switch, most=most: (  # type: ignore[misc]
                v[switch] and 0 < v.number(most, 0) < v.number("prompt_length", 0) + v.number("response_length", 0)
            ),
            said(
                "{most} ({{{most}}}) is less than prompt_length + response_length: the first longer sequence stops it",
                most=most,
            ),
            "roll/utils/dynamic_batching.py, dynamic_batching_shard",
            Remedy(most, NEAREST),
            level=Level.WARNING,
        )


def _trained_by_megatron(values: Values) -> bool:
    return any(strategy(values, role).startswith("megatron") for role in TRAINERS)


def _unequally_shared(values: Values) -> bool:
    """Whether training and engines share GPUs, and neither the same ones nor some of the engines'."""
    train, infer = set(device_numbers(values, "actor_train")), set(device_numbers(values, "actor_infer"))
    reward = len(device_numbers(values, "reward")) if values["reward.device_mapping"] else 0
    return bool(train & infer) and not _partly_shared(values) and len(train) != len(infer) + reward


def _critic_misplaced(values: Values) -> bool:
    """Whether the critic is not on GPUs of the engines that no policy trains on, where these share GPUs in part."""
    critic, train = set(device_numbers(values, "critic")), set(device_numbers(values, "actor_train"))
    return not critic <= set(device_numbers(values, "actor_infer")) or bool(critic & train)


def _reference_pairs(values: Values) -> int:
    """Pairs that the reference of DPO takes at a time."""
    return values.number("reference.infer_batch_size", 16) * ranks_of(values, "reference")


def _train_pairs(values: Values) -> int:
    """Pairs of a step of DPO."""
    arguments = "actor_train.training_args"
    each = values.number(f"{arguments}.per_device_train_batch_size", 8)
    return each * values.number(f"{arguments}.gradient_accumulation_steps") * ranks_of(values, "actor_train")


def _mocks_nothing(values: Values) -> bool:
    mocks = values["rollout_mock.enable"] and values["rollout_mock.mode"] == "mock"
    return bool(mocks) and not is_folder(str(values["rollout_mock.dump_dir"]))


PIPELINE = "roll/pipeline/agentic/agentic_pipeline.py, AgenticPipeline._validate_partial_gpu_config"
OPD = "roll/configs/base_config.py, PPOConfig._handle_opd_mapping"

ROWS: tuple[Requirement, ...] = (
    *(_word(*row) for row in WORDS),
    *(row for role in ("actor_train", "validation", "sft_train", "student") for row in _of_data(role)),
    *map(_of_devices, ("actor_train", "actor_infer")),
    *map(_ulysses, ("actor_train", "reference", "student_train")),
    *(row for role in ("actor_train", "reference") for row in _of_fsdp2(role)),
    *(row for role in ("actor_train", "student_train", "sft_train", "student") for row in _of_megatron(role)),
    *(row for role in INFERRING for row in _of_engine(role)),
    *(row for role in ("actor_train", "reference") for row in _tokens_of_micro_batch(role)),
    Requirement(
        "actor_train.pg_variant",
        lambda v: (
            "PGWorker" in str(v["actor_train.worker_cls"]) and v["actor_train.pg_variant"] not in (None, *VARIANTS)
        ),
        said(
            "actor_train.pg_variant is {{actor_train.pg_variant}}; expected one of {names}", names=", ".join(VARIANTS)
        ),
        "roll/pipeline/rlvr/actor_pg_worker.py, ActorPGWorker.loss_func",
        Remedy("actor_train.pg_variant", VARIANTS),
    ),
    Requirement(
        "actor_train.training_args.gradient_accumulation_steps",
        lambda v: (
            is_rlvr(v)
            and not v["actor_train.use_dynamic_batching_in_train"]
            and responses(v) % ranks(v) == 0
            and responses(v) // ranks(v) > rank_mini_batch(v)
            and (responses(v) // ranks(v)) % rank_mini_batch(v)
        ),
        "a rank has {own} responses of a step, not a multiple of its mini-batch of {mini}: the run stops at its first train step",
        "roll/distributed/scheduler/protocol.py, DataProto.make_iterator",
        Remedy("actor_train.training_args.gradient_accumulation_steps", NEAREST),
        numbers={"own": lambda v: responses(v) // ranks(v), "mini": rank_mini_batch},
        when="update",
    ),
    Requirement(
        "actor_infer.device_mapping",
        _misaligned,
        "actor_train and actor_infer share GPUs, but their first and last ones do not fall on the bounds of an engine",
        "roll/third_party/megatron/model_update.py, MegatronWeightUpdater._setup_colocated_model_update",
        "start and end actor_train.device_mapping where an engine of actor_infer starts and ends",
    ),
    Requirement(
        "reference.device_mapping",
        lambda v: is_agentic(v) and v.written("reference.device_mapping") and _reference_elsewhere(v),
        "reference.device_mapping differs from actor_train.device_mapping, which the agentic pipeline refuses",
        PIPELINE,
        "set reference.device_mapping to that of actor_train",
        level=Level.WARNING,
    ),
    Requirement(
        "actor_infer.device_mapping",
        lambda v: (
            is_agentic(v)
            and _partly_shared(v)
            and len(device_numbers(v, "actor_infer")) // worker_devices(v, "actor_infer") < 2
        ),
        "actor_train takes some GPUs of actor_infer, which then needs two engines or more",
        PIPELINE,
        "lower the parallel sizes of actor_infer, or share all GPUs",
    ),
    Requirement(
        "actor_train.device_mapping",
        lambda v: is_agentic(v) and _unequally_shared(v),
        "actor_train and actor_infer share GPUs, but not the same number of them",
        PIPELINE,
        "give actor_train.device_mapping the GPUs of actor_infer, some of them, or none",
    ),
    Requirement(
        "async_generation_ratio",
        lambda v: is_agentic(v) and _partly_shared(v) and not float(v["async_generation_ratio"] or 0),
        "actor_train takes some GPUs of actor_infer, which needs async_generation_ratio above 0",
        PIPELINE,
        "set async_generation_ratio to 1, or share all GPUs",
    ),
    Requirement(
        "max_steps",
        lambda v: is_agentic(v) and v.written("max_steps") and v["max_steps"] != -1 and v["max_steps"] <= 0,
        "max_steps is {max_steps}; expected more than 0, or -1",
        "roll/pipeline/agentic/agentic_config.py, AgenticConfig.__post_init__",
        Remedy("max_steps", 1000),
        check_code="no-end",
    ),
    Requirement(
        "critic.strategy_args.strategy_name",
        lambda v: v["adv_estimator"] == "gae" and strategy(v, "critic").startswith("megatron"),
        "critic.strategy_args.strategy_name is {critic.strategy_args.strategy_name}, but ROLL has no critic for Megatron",
        "roll/models/model_providers.py, default_value_model_provider",
        Remedy("critic.strategy_args.strategy_name", "fsdp2_train"),
    ),
    Requirement(
        "rewards",
        lambda v: is_rlvr(v) and _positive_penalty(v),
        "max_penalty of rewards is above 0; expected 0 or less",
        "roll/pipeline/rlvr/rewards/math_rule_reward_worker.py, get_repetition_penalty_reward",
        "set max_penalty to 0",
    ),
    Requirement(
        "tag_to_template",
        lambda v: any(name not in TEMPLATES for name in (v["tag_to_template"] or {}).values()),
        said(
            "tag_to_template names a template that ROLL does not register; expected one of {names}",
            names=", ".join(TEMPLATES),
        ),
        "roll/pipeline/rlvr/rlvr_config.py, RLVRConfig.__post_init__",
        "set it to one of these",
    ),
    Requirement(
        "is_pure_opd",
        lambda v: (
            v["is_pure_opd"] and not (_has_teacher(v) and v.written("student_train") and v.written("student_infer"))
        ),
        "is_pure_opd needs student_train, student_infer and a teacher",
        OPD,
        "set the three roles",
    ),
    Requirement(
        "use_opd",
        lambda v: v["use_opd"] and not (v.written("teacher") or v.written("references")),
        "use_opd needs a teacher",
        OPD,
        "set teacher",
    ),
    Requirement(
        "reference",
        lambda v: v["use_opd"] and v.written("reference"),
        "use_opd and reference are both set, but the teacher is the reference",
        OPD,
        Remedy("reference"),
    ),
    Requirement(
        "val_env_manager.max_traj_per_env",
        lambda v: (
            is_agentic(v)
            and v.number("val_env_manager.max_traj_per_env", -1) >= 0
            and v.number("val_env_manager.max_traj_per_env", -1)
            * v.number("val_env_manager.num_env_groups", 128)
            * v.number("val_env_manager.group_size")
            < v.number("val_batch_size", 128)
        ),
        "val_env_manager.max_traj_per_env ({val_env_manager.max_traj_per_env}) is too small for val_batch_size",
        "roll/pipeline/agentic/agentic_config.py, AgenticConfig.__post_init__",
        Remedy("val_env_manager.max_traj_per_env", -1),
    ),
    Requirement(
        "seed",
        lambda v: v.written("seed") and v["seed"] <= 0 and _trained_by_megatron(v),
        "seed is {seed}; Megatron needs more than 0",
        "mcore_adapter/src/mcore_adapter/initialize.py, _set_random_seed",
        Remedy("seed", 42),
    ),
    *(
        Requirement(
            f"{role}.model_args.lora_rank",
            lambda v, role=role: (  # type: ignore[misc]
                v.written(f"{role}.model_args.lora_rank")
                and bool(v[f"{role}.model_args.lora_target"])
                and v[f"{role}.model_args.lora_rank"] <= 0
            ),
            said("{role}.model_args.lora_rank is {{{role}.model_args.lora_rank}}; expected more than 0", role=role),
            "mcore_adapter/src/mcore_adapter/adapters/lora_layer.py, LoraParallelLinear.update_layer",
            Remedy(f"{role}.model_args.lora_rank", 8),
        )
        for role in ("actor_train", "sft_train", "student_train")
    ),
    Requirement(
        "actor_infer.generating_args",
        lambda v: (
            is_agentic(v)
            and v.written("actor_infer")
            and not v.written("actor_infer.generating_args")
            and not v.written("train_env_manager.generating_args")
        ),
        "neither actor_infer.generating_args nor train_env_manager.generating_args is set",
        "roll/pipeline/agentic/agentic_config.py, AgenticConfig.__post_init__",
        "set actor_infer.generating_args.temperature",
    ),
    Requirement(
        "critic.device_mapping",
        lambda v: is_agentic(v) and v["adv_estimator"] == "gae" and _partly_shared(v) and _critic_misplaced(v),
        "actor_train takes some GPUs of actor_infer; critic.device_mapping has to be other GPUs of actor_infer",
        PIPELINE,
        "give critic.device_mapping GPUs of actor_infer that actor_train does not have",
    ),
    Requirement(
        "reference.infer_batch_size",
        lambda v: v.written("chosen_key") and _reference_pairs(v) > _train_pairs(v),
        "the reference takes {reference} pairs at a time, more than the {step} of a step",
        "roll/pipeline/dpo/dpo_pipeline.py, DPOPipeline.__init__",
        Remedy("reference.infer_batch_size", NEAREST),
        numbers={"reference": _reference_pairs, "step": _train_pairs},
    ),
    Requirement(
        "validation.data_args.file_name",
        lambda v: (
            v.written("student")
            and v.written("validation.data_args")
            and not any(files_of(v["validation.data_args.file_name"]))
        ),
        "validation.data_args.file_name names no file",
        "roll/pipeline/distill/distill_pipeline.py, DistillPipeline.__init__",
        "name the data in validation.data_args.file_name, or remove validation",
    ),
    Requirement(
        "rollout_mock.dump_dir",
        _mocks_nothing,
        "rollout_mock.mode is mock, but rollout_mock.dump_dir {rollout_mock.dump_dir} is no folder on this machine",
        "roll/distributed/scheduler/rollout_mock_mixin.py, RolloutMockMixin._load_mock_batch",
        "run with rollout_mock.mode dump first",
        level=Level.WARNING,
    ),
    Requirement(
        "router_args.router_name",
        lambda v: v["router_args.router_name"] == "SglangRouter" and strategy(v, "actor_infer") == "vllm",
        "router_args.router_name is SglangRouter, but actor_infer is vllm",
        "roll/distributed/scheduler/router.py, RouterManager.__init__",
        Remedy("router_args.router_name", "PromptAffinityRouter"),
    ),
)
