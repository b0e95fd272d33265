"""What verl refuses before it starts, and in its workers, read from the source of each release from 0.3 to 0.9.1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rlctl.adapters.engine.requirements import NEAREST, Remedy, Requirement, Requirements, Values
from rlctl.adapters.engine.values import files_of
from rlctl.adapters.verl import (
    algorithm_limits,
    column_limits,
    combination_limits,
    contradictions,
    distillation_limits,
    engine_limits,
    file_limits,
    ineffective,
    media_limits,
    megatron_argument_limits,
    megatron_limits,
    reward_limits,
    row_limits,
    supervised_requirements,
    training_limits,
    type_limits,
    user_limits,
    value_limits,
    vllm_limits,
)
from rlctl.adapters.verl.requirement_values import (
    ACTOR,
    CRITIC,
    REF,
    ROLLOUT,
    engine_devices,
    gpus,
    has_own_config,
    in_turns,
    longest,
    model_parallel,
    replicas,
    sequence_parallel,
    smallest_batch,
    static,
    strategy,
    uses_critic,
    uses_reference,
)
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level

LOSS_AGGREGATIONS = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
DTYPES = ("bfloat16", "float16")
LARGEST_LORA = 512
TOOL_FORMATS = ("hermes", "gpt-oss", "qwen3_coder", "glm", "seed", "minimax", "kimi", "deepseek_v4", "gemma4")


CONFIG, ACTOR_SOURCE, CRITIC_SOURCE, ROLLOUT_SOURCE, WORKERS, TRAINER = (
    "verl/utils/config.py, validate_config",
    "verl/workers/config/actor.py, ActorConfig",
    "verl/workers/config/critic.py, CriticConfig",
    "verl/workers/config/rollout.py, RolloutConfig",
    "verl/workers/engine_workers.py",
    "verl/trainer/ppo/v1/trainer_base.py",
)

RAY_TRAINER, FSDP_WORKERS, OLD_WORKERS, BALANCING = (
    "verl/trainer/ppo/ray_trainer.py, RayPPOTrainer._validate_config",
    "verl/workers/fsdp_workers.py, ActorRolloutRefWorker.__init__",
    "verl/workers/fsdp_workers.py, ActorRolloutRefWorker._build_rollout",
    "verl/utils/seqlen_balancing.py, rearrange_micro_batches",
)
CHECKED: dict[str, Any] = {"since": "0.6", "older": {"0.3": RAY_TRAINER}}
"""Releases of what ``RayPPOTrainer`` checked before 0.6 moved it."""
SINCE_0_6: dict[str, Any] = {"since": "0.6"}


def _micro(role: str, name: str, needed: Callable[[Values], bool], source: str) -> Iterator[Requirement]:
    """The rules on a micro-batch that is given per GPU, or, as older releases had it, for all of them."""
    old, new = f"{role}.{name}", f"{role}.{name}_per_gpu"
    yield Requirement(
        new,
        lambda values: needed(values) and values[old] is None and values[new] is None,
        said("neither {new} nor {old} is set, and dynamic batching is off", new=new, old=old),
        source,
        Remedy(new, lambda values: values[f"{ACTOR}.ppo_micro_batch_size_per_gpu"] or 1),
        **CHECKED,
    )
    yield Requirement(
        old,
        lambda values: needed(values) and values[old] is not None and values[new] is not None,
        said("{old} ({{{old}}}) and {new} ({{{new}}}) are both set", old=old, new=new),
        source,
        Remedy(old),
        **CHECKED,
    )


def _mini(role: str, needed: Callable[[Values], bool], source: str) -> Iterator[Requirement]:
    """The rules on a mini-batch in prompts."""
    mini, micro = f"{role}.ppo_mini_batch_size", f"{role}.ppo_micro_batch_size"
    yield Requirement(
        mini,
        lambda values: needed(values) and 0 < values["data.train_batch_size"] < values[mini],
        said("data.train_batch_size ({{data.train_batch_size}}) is less than {mini} ({{{mini}}})", mini=mini),
        source,
        Remedy(mini, lambda values: values["data.train_batch_size"]),
        **CHECKED,
    )
    yield Requirement(
        micro,
        lambda values: needed(values) and values[micro] is not None and values[mini] % values[micro],
        said("{mini} ({{{mini}}}) is not divisible by {micro} ({{{micro}}})", mini=mini, micro=micro),
        source,
        said("set {role}.ppo_micro_batch_size_per_gpu instead", role=role),
        **CHECKED,
    )
    yield Requirement(
        micro,
        lambda values: (
            needed(values)
            and values[micro] is not None
            and strategy(values, role) != "megatron"
            and values[micro] * sequence_parallel(values, role) < gpus(values)
        ),
        said(
            "{micro} ({{{micro}}}) times {role}.ulysses_sequence_parallel_size is less than the number of GPUs",
            micro=micro,
            role=role,
        ),
        source,
        said("set {role}.ppo_micro_batch_size_per_gpu instead", role=role),
        **CHECKED,
    )


def _critic_static(values: Values) -> bool:
    return uses_critic(values) and not values["critic.use_dynamic_bsz"]


def _reference_static(values: Values) -> bool:
    return uses_reference(values) and static(ACTOR)(values)


def _split_over(values: Values, role: str) -> int:
    """GPUs that share each sequence of a role, and its token budget with it."""
    if strategy(values) == "megatron":
        return values.number(f"{CRITIC if role == CRITIC else ACTOR}.megatron.context_parallel_size")
    return sequence_parallel(values, ACTOR if role == ROLLOUT else role)


BUDGETS: tuple[tuple[str, str, str, Callable[[Values], object]], ...] = (
    (ACTOR, "ppo_max_token_len_per_gpu", "use_dynamic_bsz", lambda v: True),
    (ROLLOUT, "log_prob_max_token_len_per_gpu", "log_prob_use_dynamic_bsz", lambda v: True),
    (REF, "log_prob_max_token_len_per_gpu", "log_prob_use_dynamic_bsz", uses_reference),
    (CRITIC, "ppo_max_token_len_per_gpu", "use_dynamic_bsz", uses_critic),
    (CRITIC, "forward_max_token_len_per_gpu", "use_dynamic_bsz", uses_critic),
)
"""Token budgets: the role, its key, the switch that makes verl read it, and whether a run has the role."""


def _budget(role: str, name: str, switch: str, needed: Callable[[Values], object]) -> Iterator[Requirement]:
    """verl stops at a sequence above a budget: of padded sequences the first is, since 0.8 the first that is so long."""
    key = f"{role}.{name}"

    def over(values: Values) -> bool:
        if values[key] is None or not (needed(values) and values[f"{role}.{switch}"]):
            return False
        return values.number(key) * _split_over(values, role) < longest(values)

    numbers: dict[str, Callable[[Values], object]] = {
        "tokens": longest,
        "share": lambda values: _split_over(values, role),
    }
    yield Requirement(
        key,
        over,
        said(
            "{key} ({{{key}}} tokens, x {{share}} GPUs a sequence) is less than the longest sequence, data.max_prompt_length + "
            "data.max_response_length = {{tokens}}, and verl pads every sequence to that length",
            key=key,
        ),
        BALANCING,
        Remedy(key, NEAREST),
        numbers=numbers,
        since="0.3",
        until="0.7",
    )
    yield Requirement(
        key,
        over,
        said(
            "{key} ({{{key}}} tokens, x {{share}} GPUs a sequence) is less than the longest sequence, data.max_prompt_length + "
            "data.max_response_length = {{tokens}}: verl stops at the first sequence that is longer than the budget",
            key=key,
        ),
        BALANCING,
        Remedy(key, NEAREST),
        numbers=numbers,
        since="0.8",
        level=Level.WARNING,
    )


def _rank_share(values: Values, role: str) -> int:
    """Responses of a mini-batch on one data-parallel rank of an FSDP role."""
    mini = values[f"{role}.ppo_mini_batch_size"] * values[f"{ROLLOUT}.n"]
    return int(mini) // (gpus(values) // sequence_parallel(values, role))


def _uneven_micro(role: str, needed: Callable[[Values], object]) -> Iterator[Requirement]:
    """A rank's share of a mini-batch is whole micro-batches; before 0.8 also where dynamic batches ignore the micro-batch."""
    key = f"{role}.ppo_micro_batch_size_per_gpu"

    def uneven(values: Values) -> bool:
        micro = values[key]
        fsdp = strategy(values, role) in ("fsdp", "fsdp2")
        return bool(needed(values) and fsdp and micro) and _rank_share(values, role) % micro != 0

    message = said(
        "a rank's share of a mini-batch is {{share}} responses ({role}.ppo_mini_batch_size x {rollout}.n over the data-parallel "
        "ranks), which {key} ({{{key}}}) does not divide",
        role=role,
        rollout=ROLLOUT,
        key=key,
    )
    numbers: dict[str, Callable[[Values], object]] = {"share": lambda values: _rank_share(values, role)}
    hint = Remedy(key, NEAREST)
    old = FSDP_WORKERS if role == ACTOR else "verl/workers/fsdp_workers.py, CriticWorker.__init__"
    yield Requirement(key, uneven, message, old, hint, numbers=numbers, since="0.3", until="0.7")
    yield Requirement(
        key,
        lambda values: not values[f"{role}.use_dynamic_bsz"] and uneven(values),
        message,
        "verl/workers/engine/utils.py, prepare_micro_batches",
        hint,
        numbers=numbers,
        since="0.8",
    )


ROWS: tuple[Requirement, ...] = (
    Requirement(
        "data.train_files",
        lambda v: not any(files_of(v["data.train_files"])),
        "data.train_files names no file",
        "verl/utils/dataset/rl_dataset.py, RLHFDataset._read_files_and_tokenize",
        "name the training data in data.train_files",
        check_code="no-data",
        since="0.3",
    ),
    Requirement(
        f"{ACTOR}.megatron.tensor_model_parallel_size",
        lambda v: static(ACTOR)(v) and strategy(v) == "megatron" and gpus(v) % model_parallel(v),
        "the GPUs ({trainer.nnodes} x {trainer.n_gpus_per_node}) are not divisible by tensor x pipeline x context parallel sizes",
        CONFIG,
        "change the parallel sizes of actor_rollout_ref.actor.megatron, or trainer.n_gpus_per_node",
        since="0.6",
        older={"0.4": RAY_TRAINER},
    ),
    Requirement(
        "data.train_batch_size",
        lambda v: static(ACTOR)(v) and v["data.train_batch_size"] * v[f"{ROLLOUT}.n"] % smallest_batch(v),
        said(
            "data.train_batch_size x {rollout}.n ({{data.train_batch_size}} x {{{rollout}.n}}) is not "
            "divisible by the number of GPUs, or with Megatron by its replicas times their micro-batch",
            rollout=ROLLOUT,
        ),
        CONFIG,
        Remedy("data.train_batch_size", NEAREST),
        **CHECKED,
    ),
    *_micro(ACTOR, "ppo_micro_batch_size", static(ACTOR), f"{ACTOR_SOURCE}.__post_init__"),
    *_mini(ACTOR, static(ACTOR), f"{ACTOR_SOURCE}.validate"),
    *_micro(REF, "log_prob_micro_batch_size", _reference_static, CONFIG),
    *_micro(ROLLOUT, "log_prob_micro_batch_size", static(ACTOR), CONFIG),
    *_micro(CRITIC, "ppo_micro_batch_size", _critic_static, f"{CRITIC_SOURCE}.__post_init__"),
    *_mini(CRITIC, _critic_static, f"{CRITIC_SOURCE}.validate"),
    *_uneven_micro(ACTOR, lambda v: True),
    *_uneven_micro(CRITIC, uses_critic),
    *(row for budget in BUDGETS for row in _budget(*budget)),
    Requirement(
        f"{ACTOR}.ppo_mini_batch_size",
        lambda v: strategy(v) in ("fsdp", "fsdp2") and _rank_share(v, ACTOR) == 0,
        said(
            "{actor}.ppo_mini_batch_size x {rollout}.n ({{{actor}.ppo_mini_batch_size}} x {{{rollout}.n}}) is less than the "
            "number of data-parallel ranks",
            actor=ACTOR,
            rollout=ROLLOUT,
        ),
        FSDP_WORKERS,
        Remedy(f"{ACTOR}.ppo_mini_batch_size", NEAREST),
        since="0.3",
        until="0.7",
    ),
    Requirement(
        f"{ACTOR}.loss_agg_mode",
        lambda v: v[f"{ACTOR}.loss_agg_mode"] not in LOSS_AGGREGATIONS,
        said(
            "{actor}.loss_agg_mode is {{{actor}.loss_agg_mode}}; expected one of {loss_aggregations}",
            actor=ACTOR,
            loss_aggregations=", ".join(LOSS_AGGREGATIONS),
        ),
        f"{ACTOR_SOURCE}.__post_init__",
        Remedy(f"{ACTOR}.loss_agg_mode", LOSS_AGGREGATIONS),
        since="0.6",
        older={"0.4": RAY_TRAINER},
    ),
    Requirement(
        f"{ACTOR}.loss_agg_mode",
        lambda v: v[f"{ACTOR}.loss_agg_mode"] == "token-sum",
        said("{actor}.loss_agg_mode is token-sum, which verl has since 0.9", actor=ACTOR),
        f"{ACTOR_SOURCE}.__post_init__",
        "use token-mean, or verl 0.9",
        since="0.6",
        older={"0.4": RAY_TRAINER},
        until="0.8",
    ),
    Requirement(
        "data.train_batch_size",
        lambda v: (
            v[f"{ACTOR}.use_dynamic_bsz"]
            and strategy(v) != "megatron"
            and v["data.train_batch_size"] * v[f"{ROLLOUT}.n"] % gpus(v)
        ),
        said(
            "data.train_batch_size x {rollout}.n ({{data.train_batch_size}} x {{{rollout}.n}}) is not divisible by the number of "
            "GPUs ({{gpus}})",
            rollout=ROLLOUT,
        ),
        RAY_TRAINER,
        Remedy("data.train_batch_size", NEAREST),
        numbers={"gpus": gpus},
        since="0.3",
        until="0.5",
    ),
    Requirement(
        f"{ACTOR}.ulysses_sequence_parallel_size",
        lambda v: (
            strategy(v) in ("fsdp", "fsdp2")
            and sequence_parallel(v, ACTOR) > 1
            and not v["actor_rollout_ref.model.use_remove_padding"]
        ),
        said(
            "{actor}.ulysses_sequence_parallel_size is {{{actor}.ulysses_sequence_parallel_size}} without "
            "use_remove_padding",
            actor=ACTOR,
        ),
        "verl/workers/config/actor.py, FSDPActorConfig.validate",
        Remedy("actor_rollout_ref.model.use_remove_padding", True),
        **CHECKED,
    ),
    Requirement(
        f"{ROLLOUT}.temperature",
        lambda v: v[f"{ROLLOUT}.val_kwargs.do_sample"] and v[f"{ROLLOUT}.temperature"] <= 0,
        said("{rollout}.temperature is {{{rollout}.temperature}}, and validation samples", rollout=ROLLOUT),
        CONFIG,
        said("set {rollout}.temperature above 0, or {rollout}.val_kwargs.do_sample to false", rollout=ROLLOUT),
        **CHECKED,
    ),
    Requirement(
        "actor_rollout_ref.model.lora_rank",
        lambda v: (
            v[f"{ROLLOUT}.name"] == "vllm"
            and not v["actor_rollout_ref.model.lora.merge"]
            and max(v.number("actor_rollout_ref.model.lora_rank", 0), v.number("actor_rollout_ref.model.lora.rank", 0))
            > LARGEST_LORA
        ),
        said("the rank of the adapter is above {largest_lora}, the largest that vLLM takes", largest_lora=LARGEST_LORA),
        CONFIG,
        said("set actor_rollout_ref.model.lora_rank to {largest_lora} or less", largest_lora=LARGEST_LORA),
        **SINCE_0_6,
    ),
    Requirement(
        "critic.strategy",
        lambda v: uses_critic(v) and (strategy(v) == "megatron") != (strategy(v, CRITIC) == "megatron"),
        "one of actor and critic trains with Megatron, the other does not; verl supports only one engine for both",
        "verl/trainer/config/ppo_trainer.yaml, critic@critic: ${model_engine}_critic",
        said("set critic.strategy to the engine of {actor}.strategy", actor=ACTOR),
    ),
    Requirement(
        f"{ACTOR}.router_replay.mode",
        lambda v: v[f"{ACTOR}.router_replay.mode"] not in (None, "disabled", "R2", "R3"),
        said("{actor}.router_replay.mode is {{{actor}.router_replay.mode}}; expected disabled, R2 or R3", actor=ACTOR),
        "verl/workers/config/actor.py, RouterReplayConfig.__post_init__",
        Remedy(f"{ACTOR}.router_replay.mode", ("disabled", "R2", "R3")),
        since="0.7",
    ),
    Requirement(
        f"{ACTOR}.megatron.dtype",
        lambda v: strategy(v) == "megatron" and v[f"{ACTOR}.megatron.dtype"] not in (None, *DTYPES),
        said("{actor}.megatron.dtype is {{{actor}.megatron.dtype}}; expected bfloat16 or float16", actor=ACTOR),
        "verl/workers/config/engine.py, McoreEngineConfig.__post_init__",
        Remedy(f"{ACTOR}.megatron.dtype", DTYPES),
        **SINCE_0_6,
    ),
    Requirement(
        f"{ACTOR}.optim.lr_scheduler_type",
        lambda v: (
            strategy(v) in ("fsdp", "fsdp2")
            and v[f"{ACTOR}.optim.lr_scheduler_type"] not in (None, "constant", "cosine")
        ),
        said(
            "{actor}.optim.lr_scheduler_type is {{{actor}.optim.lr_scheduler_type}}; FSDP supports constant or cosine",
            actor=ACTOR,
        ),
        "verl/workers/config/optimizer.py, FSDPOptimizerConfig.__post_init__",
        Remedy(f"{ACTOR}.optim.lr_scheduler_type", ("constant", "cosine")),
        **SINCE_0_6,
    ),
    Requirement(
        f"{ROLLOUT}.name",
        lambda v: v[f"{ROLLOUT}.name"] in (None, "???") and not has_own_config(v),
        said("{rollout}.name is not set, and verl has no default for it", rollout=ROLLOUT),
        "verl/trainer/config/rollout/rollout.yaml",
        said("set {rollout}.name to vllm or sglang", rollout=ROLLOUT),
        **SINCE_0_6,
    ),
    Requirement(
        f"{ROLLOUT}.mode",
        lambda v: v[f"{ROLLOUT}.mode"] == "sync",
        said("{rollout}.mode is sync, which verl no longer has since 0.7", rollout=ROLLOUT),
        f"{ROLLOUT_SOURCE}.__post_init__",
        Remedy(f"{ROLLOUT}.mode", "async"),
        since="0.7",
    ),
    Requirement(
        f"{ROLLOUT}.expert_parallel_size",
        lambda v: (
            v[f"{ROLLOUT}.name"] != "trtllm"
            and v.number(f"{ROLLOUT}.expert_parallel_size") > 1
            and v.number(f"{ROLLOUT}.expert_parallel_size")
            != v.number(f"{ROLLOUT}.tensor_model_parallel_size") * v.number(f"{ROLLOUT}.data_parallel_size")
        ),
        said(
            "{rollout}.expert_parallel_size ({{{rollout}.expert_parallel_size}}) is not tensor x data parallel size",
            rollout=ROLLOUT,
        ),
        f"{ROLLOUT_SOURCE}.__post_init__",
        "set it to the product of the two, or to 1",
        **SINCE_0_6,
    ),
    Requirement(
        f"{ROLLOUT}.pipeline_model_parallel_size",
        lambda v: (
            v.number(f"{ROLLOUT}.pipeline_model_parallel_size") > 1
            and v[f"{ROLLOUT}.name"] in (None, "vllm", "sglang", "trtllm")
        ),
        said(
            "{rollout}.pipeline_model_parallel_size is {{{rollout}.pipeline_model_parallel_size}}; no "
            "rollout engine supports it",
            rollout=ROLLOUT,
        ),
        f"{ROLLOUT_SOURCE}.__post_init__",
        Remedy(f"{ROLLOUT}.pipeline_model_parallel_size", 1),
        **SINCE_0_6,
    ),
    Requirement(
        f"{ROLLOUT}.log_prob_use_dynamic_bsz",
        lambda v: (
            v.written(f"{ROLLOUT}.log_prob_use_dynamic_bsz")
            and bool(v[f"{ROLLOUT}.log_prob_use_dynamic_bsz"]) is not bool(v[f"{ACTOR}.use_dynamic_bsz"])
        ),
        said("{rollout}.log_prob_use_dynamic_bsz differs from {actor}.use_dynamic_bsz", rollout=ROLLOUT, actor=ACTOR),
        f"{WORKERS}, ActorRolloutRefWorker.init_model",
        said("remove it: it follows {actor}.use_dynamic_bsz", actor=ACTOR),
        since="0.8",
    ),
    Requirement(
        f"{ACTOR}.ppo_micro_batch_size_per_gpu",
        lambda v: (
            static(ACTOR)(v)
            and v[f"{ACTOR}.ppo_micro_batch_size_per_gpu"] is None
            and v[f"{ACTOR}.ppo_micro_batch_size"] is not None
        ),
        said(
            "{actor}.ppo_micro_batch_size is set, but the workers read only {actor}.ppo_micro_batch_size_per_gpu",
            actor=ACTOR,
        ),
        f"{WORKERS}, ActorRolloutRefWorker.init_model",
        said("set {actor}.ppo_micro_batch_size_per_gpu instead", actor=ACTOR),
        since="0.8",
    ),
    Requirement(
        f"{ACTOR}.ppo_mini_batch_size",
        lambda v: v[f"{ACTOR}.ppo_mini_batch_size"] * v[f"{ROLLOUT}.n"] % replicas(v),
        said(
            "a mini-batch of {{{actor}.ppo_mini_batch_size}} prompts x {{{rollout}.n}} responses is not "
            "divisible by the data-parallel ranks",
            actor=ACTOR,
            rollout=ROLLOUT,
        ),
        f"{WORKERS}, TrainingWorker.train_mini_batch",
        Remedy(f"{ACTOR}.ppo_mini_batch_size", NEAREST),
        since="0.8",
    ),
    Requirement(
        f"{ROLLOUT}.tensor_model_parallel_size",
        lambda v: in_turns(v) and v["actor_rollout_ref.hybrid_engine"] is not False and gpus(v) % engine_devices(v),
        "the GPUs ({trainer.nnodes} x {trainer.n_gpus_per_node}) are not divisible by the devices of a rollout engine",
        f"{WORKERS}, ActorRolloutRefWorker.init_model",
        Remedy(f"{ROLLOUT}.tensor_model_parallel_size", NEAREST),
        since="0.8",
        older={"0.3": OLD_WORKERS},
    ),
    Requirement(
        f"{ACTOR}.clip_ratio_c",
        lambda v: v[f"{ACTOR}.policy_loss.loss_mode"] in (None, "vanilla") and v[f"{ACTOR}.clip_ratio_c"] <= 1.0,
        said("{actor}.clip_ratio_c is {{{actor}.clip_ratio_c}}; expected more than 1", actor=ACTOR),
        "verl/trainer/ppo/core_algos.py, compute_policy_loss_vanilla",
        "3.0 is usual",
        since="0.6",
        older={"0.4": "verl/trainer/ppo/core_algos.py, compute_policy_loss"},
    ),
    Requirement(
        "algorithm.filter_groups.metric",
        lambda v: v["algorithm.filter_groups.enable"] and not v["algorithm.filter_groups.metric"],
        "algorithm.filter_groups.enable is true, and algorithm.filter_groups.metric is not set",
        f"{TRAINER}, PPOTrainer._resolve_filter_groups_metric",
        "set algorithm.filter_groups.metric, such as acc",
    ),
    Requirement(
        f"{ROLLOUT}.multi_turn.format",
        lambda v: (
            v[f"{ROLLOUT}.agent.default_agent_loop"] == "tool_agent"
            and v[f"{ROLLOUT}.multi_turn.format"] not in TOOL_FORMATS
        ),
        said(
            "{rollout}.multi_turn.format is {{{rollout}.multi_turn.format}}; expected one of {formats}",
            rollout=ROLLOUT,
            formats=", ".join(TOOL_FORMATS),
        ),
        "verl/experimental/agent_loop/tool_parser.py, ToolParser.get_tool_parser",
        "set the format in which the model writes tool calls",
    ),
    Requirement(
        "trainer.resume_from_path",
        lambda v: (
            v["trainer.resume_mode"] == "resume_path" and "global_step_" not in str(v["trainer.resume_from_path"])
        ),
        "trainer.resume_mode is resume_path, but trainer.resume_from_path ({trainer.resume_from_path}) lacks global_step_N",
        f"{TRAINER}, PPOTrainer._load_checkpoint",
        "set trainer.resume_from_path to a folder global_step_N",
        older={"0.3": "verl/trainer/ppo/ray_trainer.py, RayPPOTrainer._load_checkpoint"},
    ),
    Requirement(
        "data.train_batch_size",
        lambda v: (
            not in_turns(v)
            and v["data.train_batch_size"]
            != v.number("trainer.v1.separate_async.parameter_sync_step") * v[f"{ACTOR}.ppo_mini_batch_size"]
        ),
        said(
            "data.train_batch_size ({{data.train_batch_size}}) is not parameter_sync_step x "
            "{actor}.ppo_mini_batch_size ({{trainer.v1.separate_async.parameter_sync_step}} x "
            "{{{actor}.ppo_mini_batch_size}})",
            actor=ACTOR,
        ),
        "verl/trainer/ppo/v1/trainer_separate_async.py, PPOTrainerSeparateAsync.__init__",
        "change one of the three",
    ),
    Requirement(
        f"{ROLLOUT}.checkpoint_engine.backend",
        lambda v: not in_turns(v) and v[f"{ROLLOUT}.checkpoint_engine.backend"] in (None, "naive"),
        said(
            "{rollout}.checkpoint_engine.backend is naive, but separate_async sends weights to other devices",
            rollout=ROLLOUT,
        ),
        "verl/trainer/ppo/v1/trainer_separate_async.py, PPOTrainerSeparateAsync.__init__",
        Remedy(f"{ROLLOUT}.checkpoint_engine.backend", "nccl"),
    ),
    Requirement(
        "algorithm.rollout_correction.bypass_mode",
        lambda v: (
            v["algorithm.rollout_correction.bypass_mode"]
            and "R2" in (v[f"{ACTOR}.{engine}.router_replay.mode"] for engine in ("megatron", "veomni"))
        ),
        "algorithm.rollout_correction.bypass_mode is true, and router_replay.mode R2 needs the old-log-prob pass that it skips",
        f"{CONFIG}, _validate_router_replay_config",
        Remedy("algorithm.rollout_correction.bypass_mode", False),
    ),
    *(
        Requirement(
            f"{ROLLOUT}.{name}",
            lambda v, name=name, usual=usual: not in_turns(v) and v.number(f"{ROLLOUT}.{name}", usual) <= 0,  # type: ignore[misc]
            said(
                "{rollout}.{name} is {{{rollout}.{name}}}, but separate_async needs dedicated rollout devices",
                rollout=ROLLOUT,
                name=name,
            ),
            "verl/trainer/ppo/v1/trainer_separate_async.py, PPOTrainerSeparateAsync.__init__",
            said("set {rollout}.{name} to at least 1", rollout=ROLLOUT, name=name),
        )
        for name, usual in (("nnodes", 0), ("n_gpus_per_node", 8))
    ),
)

REQUIREMENTS = Requirements(
    "0.9.1",
    (
        *ROWS,
        *engine_limits.ROWS,
        *value_limits.ROWS,
        *type_limits.ROWS,
        *combination_limits.ROWS,
        *algorithm_limits.ROWS,
        *training_limits.ROWS,
        *distillation_limits.ROWS,
        *megatron_limits.ROWS,
        *megatron_argument_limits.ROWS,
        *vllm_limits.ROWS,
        *contradictions.ROWS,
        *ineffective.ROWS,
        *user_limits.ROWS,
        *column_limits.ROWS,
        *media_limits.ROWS,
        *reward_limits.ROWS,
        *supervised_requirements.ROWS,
        *file_limits.ROWS,
        *row_limits.ROWS,
    ),
    kinds=("ppo",),
    older=("0.3", "0.4", "0.5", "0.6", "0.7", "0.8"),
)
