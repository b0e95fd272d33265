"""Which canonical keys the runtime honours, which it does not use and which it refuses, and why: data only.

    HONOURED      a run does what the key says; some only where an engine generates that has such a setting
    DESCRIPTIVE   names, labels and notes: recorded with the run, they change no number in it
    FRONT_END     acts before a run starts, or around it: the runtime itself never reads it
    NOTED         not used, and no number hangs on it: speed, memory, or what is kept beside the numbers. A run that sets it
                  starts, and is told so before: by check, by the plan, in events.jsonl
    REFUSED       a run that sets it to anything but its default does not start; the reason says what is missing

Every key pattern of the schema that holds a value, and every option of a choice (``algorithm.advantage<rloo>``), is in
exactly one row of ``TABLE``; a test enumerates the schema. In a row, names follow ``under``, ``name*`` is a key with all
that is below it, and ``<a|b>`` stands for both options. ``REFUSED_VALUES`` and ``NOTED_VALUES`` are values of keys that are
otherwise honoured; ``INEFFECTIVE_WHEN`` says in which configs such a key has nothing to act on.

To add a key: put it in a row. To make the runtime honour a key: move it, with a test that shows it to matter.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any

from rlctl.common.errors import closest
from rlctl.common.messages import text
from rlctl.common.messages.reasons import spoken
from rlctl.config import Config
from rlctl.config.inspect import Setting, settings
from rlctl.config.sections.algorithm import DpoObjective, MixObjective
from rlctl.config.sections.model import Model
from rlctl.config.sections.train import Fsdp2, Train
from rlctl.documents.paths import KeyPath, dotted
from rlctl.planning import adapter_sync, arithmetic, deepspeed
from rlctl.planning.weight_transfer import way_of

RLCTL = "rlctl"
"""The framework whose support the table is about, among those that may run a config."""


class Status(StrEnum):
    """What the runtime does with a key."""

    HONOURED = "honoured"
    DESCRIPTIVE = "descriptive"
    FRONT_END = "front_end"
    NOTED = "noted"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Row:
    """Keys of one status under one prefix."""

    status: Status
    under: str
    names: str
    """Separated by spaces."""
    why: str = ""
    """For a key that is refused or not used the reason: a message of ``support.*.ftl`` without its prefix."""
    engines: tuple[str, ...] = ()
    """The rollout engines that honour it; empty where all do."""
    elsewhere: Status | None = None
    """What holds, for the reason, where another of them generates."""
    refused_on: tuple[str, ...] = ()
    """The others on which it is refused all the same."""

    @property
    def reason(self) -> str:
        """The reason in the chosen language; empty if there is none."""
        return because(self.why)


@dataclass(frozen=True, slots=True)
class Unhonoured:
    """A key that is set to something the runtime does not do."""

    key: KeyPath
    value: Any
    reason: str
    status: Status
    """REFUSED, or NOTED where no number hangs on it."""


def because(why: str) -> str:
    """A reason in the chosen language."""
    return text(f"support-{why}") if why else ""


NOT_YET = "not-yet"
"""The reason of a new key until it has its own."""


def honoured(under: str, names: str) -> Row:
    return Row(Status.HONOURED, under, names)


def descriptive(under: str, names: str) -> Row:
    return Row(Status.DESCRIPTIVE, under, names)


def front_end(under: str, names: str) -> Row:
    return Row(Status.FRONT_END, under, names)


def refused(under: str, names: str, reason: str = NOT_YET) -> Row:
    return Row(Status.REFUSED, under, names, reason)


def noted(under: str, names: str, reason: str) -> Row:
    return Row(Status.NOTED, under, names, reason)


def on_servers(under: str, names: str, *, elsewhere: Status = Status.NOTED) -> Row:
    return Row(Status.HONOURED, under, names, BUILT_IN, ("vllm", "sglang"), elsewhere)


def _megatron(section: str) -> tuple[Row, ...]:
    """What the Megatron engine does not go by, in each section that has one."""
    under = f"{section}.engine<megatron>"
    return (
        noted(under, "offload offload_gradients", "megatron-on-device"),
        noted(under, "bridge", "bridge"),
        noted(under, "distributed_checkpointing", "megatron-checkpoints"),
        noted(under, "moe.shared_expert_overlap", "shared-experts"),
    )


BY_TURN = "by-turn"
FILES_ONCE = "files-once"
WHOLE_ROWS = "whole-rows"
END_TO_END = "sequence-parallel-packed"
EXPERTS = "experts"
FURTHER_HEADS = "further-heads"
SHARED_BY = (
    "tensor_parallel_size pipeline_parallel_size virtual_pipeline_parallel_size context_parallel_size"
    " expert_parallel_size expert_tensor_parallel_size sequence_parallel"
    " moe.dispatcher moe.grouped_gemm transformer checkpoint_path"
)
"""Keys of ``engine<megatron>`` that apply to every role."""
TRAINED_BY = (
    "distributed_optimizer overlap_gradient_reduce overlap_parameter_gather ddp optimizer_overrides recompute_granularity"
    " recompute_method recompute_layers recompute_modules moe.layer_recompute moe.freeze_router"
)
"""Those that apply only to a role with an optimizer."""
MULTIMODAL = "multimodal"
OTHER = "other"
RUNNERS = "runners"
SERVER = "server"
ONE_DEVICE = "one-device"
REPLICAS = "engine-replicas"
BUILT_IN = "built-in"

TABLE: tuple[Row, ...] = (
    honoured("", "rlctl stages"),
    front_end("", "extensions"),
    # run
    honoured("run", "name seed folder mode max_steps_this_session on_end on_failure time_limit"),
    descriptive("run", "project group"),
    honoured("run", "max_restarts deterministic skip.rollout skip.folder"),
    # model
    honoured(
        "model",
        "path tokenizer attention chat_template chat_template_args trust_remote_code max_context_tokens",
    ),
    honoured("model", "overrides rope.theta rope.scaling import_modules freeze lora"),
    honoured(
        "model.lora",
        "rank alpha dropout target_modules exclude_modules adapter_path base_model dtype merge_for_rollout",
    ),
    descriptive("model.lora", "name"),
    noted("model", "stage_in_shared_memory", "weights-in-place"),
    honoured("model", "modality"),
    refused("model", "multi_token_prediction", FURTHER_HEADS),
    # data
    honoured(
        "data",
        "train eval mixing domain_weights max_prompt_tokens overlong_prompts truncation curriculum.order curriculum.keys seed"
        " last_batch curriculum.args max_sequence_tokens sequence_truncation multi_turn_loss trust_remote_code shuffle_evaluation"
        " evaluation_batch_prompts train_on_truncated_prompts filter_workers loader_workers custom custom.path custom.class_name",
    ),
    honoured(
        "data.train[]",
        "path format split subset weight max_samples prompt_key prompt_type system_prompt system_prompt_key answer_key"
        " sampling response_key messages_key tools_key source_key tag_key extra_key reward reward_args"
        " image_key video_key audio_key agent agent_key",
    ),
    honoured(
        "data.eval[]",
        "path format split subset max_samples prompt_key prompt_type system_prompt system_prompt_key answer_key"
        " sampling response_key tools_key source_key tag_key extra_key reward reward_args name responses_per_prompt"
        " image_key video_key audio_key agent agent_key messages_key"
        " evaluation_sampling.temperature evaluation_sampling.top_p"
        " evaluation_sampling.top_k evaluation_sampling.max_response_tokens",
    ),
    descriptive("data.train[]", "name"),
    honoured("data.train[]", "chosen_key rejected_key"),
    noted("data.eval[]", "weight", "whole-evaluation"),
    refused("data.eval[]", "chosen_key rejected_key", "scores-generated"),
    honoured(
        "data",
        "operators operators[]<length|language|duplicates|alphanumeric|special_characters|repetition|pass_rate|quality|function>"
        " operators_input operators_output priority priority.keep",
    ),
    honoured(
        "data.operators[]<length|language|duplicates|alphanumeric|special_characters|repetition|pass_rate|quality>",
        "column",
    ),
    noted("data.operators[]<function>", "column", "whole-row"),
    honoured("data.operators[]<length>", "min max unit"),
    honoured("data.operators[]<language>", "scripts min_share"),
    honoured("data.operators[]<duplicates>", "lowercase ignore_non_character"),
    honoured("data.operators[]<alphanumeric|special_characters>", "min_ratio max_ratio"),
    honoured("data.operators[]<repetition>", "rep_len min_ratio max_ratio"),
    honoured("data.operators[]<pass_rate>", "min max"),
    honoured("data.operators[]<quality>", "auxiliary_model prompt min max sampling max_concurrent timeout"),
    honoured("data.operators[]<function>", "path function args"),
    honoured("data.priority.weights", "difficulty diversity usage_frequency quality"),
    honoured("data", "operators[]<external>"),
    honoured("data.operators[]<external>", "column kind args"),
    noted("data", "stage_in_shared_memory", "data-in-place"),
    # batch and schedule
    honoured(
        "batch",
        "prompts_per_step responses_per_prompt mini_batch_responses ppo_epochs micro_batch.unit micro_batch.size"
        " log_prob_micro_batch log_prob_micro_batch.unit log_prob_micro_batch.size shuffle shuffle_seed balance",
    ),
    noted("batch", "round_tokens_to", "round-tokens"),
    honoured(
        "schedule", "total_steps total_epochs total_optimizer_steps evaluate_every evaluate_at_start evaluate_at_end"
    ),
    honoured("schedule", "critic_warmup_steps"),
    # algorithm
    honoured("algorithm", "objective objective<rl|sft|dpo|mix>"),
    honoured("algorithm.objective<dpo>", "beta label_smoothing ipo"),
    honoured("algorithm.objective<mix>", "mu expert_share args"),
    descriptive("algorithm", "preset"),
    honoured("algorithm", "advantage advantage<grpo> advantage<rloo> advantage<reinforce>"),
    honoured("algorithm", "advantage<reinforce_plus_plus> advantage<reinforce_plus_plus_baseline>"),
    honoured("algorithm.advantage<grpo>", "normalize_by_std epsilon kl_order"),
    honoured("algorithm", "advantage<reinforce|reinforce_plus_plus>.gamma"),
    honoured("algorithm", "advantage<gae> advantage<gae>.gamma advantage<gae>.lambda"),
    honoured(
        "algorithm.advantage<gae|grpo|grpo_passk|rloo|reinforce_plus_plus|reinforce_plus_plus_baseline|remax|reinforce|opo|opmd|other|gigpo|step_wise_grpo|step_reinforce|segment_reinforce>",
        "whiten clip",
    ),
    honoured("algorithm", "advantage<grpo_passk|remax|opo|opmd|other>"),
    honoured("algorithm.advantage<grpo_passk>", "normalize_by_std epsilon"),
    honoured("algorithm.advantage<remax>", "gamma"),
    honoured("algorithm.advantage<opmd>", "baseline tau"),
    honoured("algorithm.advantage<other>", "args"),
    honoured("algorithm", "advantage<gigpo|step_wise_grpo|step_reinforce|segment_reinforce>"),
    honoured("algorithm.advantage<gigpo>", "episode_weight step_weight gamma normalize_by_std epsilon anchor_scope"),
    honoured("algorithm.advantage<step_wise_grpo>", "divide_by_steps std_over drop_below_std epsilon"),
    honoured("algorithm.advantage<step_reinforce|segment_reinforce>", "gamma"),
    honoured("algorithm", "advantage<gae>.level policy_loss<ppo_clip>.ratio"),
    honoured("algorithm", "policy_loss policy_loss<ppo_clip|gspo|cispo|policy_gradient|topr|sapo|other>"),
    honoured("algorithm.policy_loss<ppo_clip|gspo>", "clip_low clip_high dual_clip"),
    honoured("algorithm.policy_loss<cispo>", "clip_low clip_high"),
    honoured("algorithm.policy_loss<policy_gradient>", "importance_weight weight_bound"),
    honoured("algorithm.policy_loss<topr>", "positive_weight negative_weight"),
    honoured("algorithm.policy_loss<sapo>", "tau_positive tau_negative"),
    honoured("algorithm.policy_loss<other>", "args"),
    honoured("algorithm.loss_aggregation", "mode scale_factor unit per_micro_batch"),
    honoured("algorithm", "kl_in_loss kl_in_loss.estimator kl_in_loss.coefficient"),
    honoured("algorithm", "kl_in_reward kl_in_reward.estimator kl_in_reward.coefficient"),
    honoured("algorithm.kl_in_reward", "adaptive target horizon"),
    honoured("algorithm", "entropy_coefficient old_log_probs train_temperature"),
    honoured(
        "algorithm.rollout_correction",
        "importance_sampling.level importance_sampling.threshold importance_sampling.lower_threshold"
        " importance_sampling.normalize rejection rejection_bounds veto_threshold"
        " use_policy_gradient",
    ),
    honoured("algorithm", "rollout_correction"),
    honoured("algorithm.reward_shaping", "overlong_penalty"),
    honoured("algorithm.reward_shaping.overlong_penalty", "buffer factor limit clamp"),
    honoured(
        "algorithm.reward_shaping",
        "shift scale clip normalize.mean normalize.std normalize_per_domain whiten length_penalty group_by",
    ),
    honoured("algorithm", "filters filters[]<zero_variance_groups|group_mean|overlong|difficulty_mask|long_incorrect>"),
    honoured("algorithm.filters[]<zero_variance_groups>", "metric refill threshold"),
    honoured("algorithm.filters[]<group_mean>", "low high refill"),
    honoured("algorithm.filters[]<difficulty_mask>", "low high"),
    honoured("algorithm.filters[]<long_incorrect>", "max_tokens"),
    honoured("algorithm.loss_weights", "rl difficulty length"),
    honoured("algorithm", "policy_filtration policy_filtration.reweight policy_filtration.power"),
    honoured("algorithm", "distillation"),
    honoured("algorithm.distillation", "teacher loss coefficient top_k args"),
    honoured("algorithm", "sample_strategy sample_strategy_args"),
    honoured(
        "algorithm",
        "experience_operators experience_operators[]<reward_filter|reward_std_filter|dapo_dynamic_sampling"
        "|invalid_reward_filter|reward_shaping_mapper|pass_rate_calculator|function>",
    ),
    honoured("algorithm.experience_operators[]<reward_filter|reward_std_filter>", "threshold refill"),
    honoured("algorithm.experience_operators[]<dapo_dynamic_sampling>", "metric correct_threshold refill"),
    honoured("algorithm.experience_operators[]<invalid_reward_filter>", "refill"),
    honoured(
        "algorithm.experience_operators[]<reward_shaping_mapper>",
        "reward_shaping_configs reward_shaping_configs[].stats_key reward_shaping_configs[].op_type"
        " reward_shaping_configs[].weight",
    ),
    honoured("algorithm.experience_operators[]<function>", "path function args refill"),
    honoured("algorithm", "experience_operators[]<external>"),
    honoured("algorithm.experience_operators[]<external>", "kind args"),
    honoured("algorithm", "router_replay"),
    # rollout
    honoured("rollout", "engine engine<auto|transformers|vllm|sglang> engine<vllm|sglang>.args"),
    refused("rollout", "engine<auto>.args", "args-of-engine"),
    refused("rollout", "engine<transformers>.args", "transformers-args"),
    honoured("rollout", "engine<external> engine<external>.base_url engine<external>.model engine<external>.api_key"),
    honoured("rollout", "engine<external>.args"),
    refused("rollout", "engine<other>*", OTHER),
    honoured("rollout", "max_response_tokens"),
    honoured(
        "rollout.sampling",
        "temperature top_p top_k min_p repetition_penalty min_response_tokens stop include_stop ignore_eos seed",
    ),
    refused("rollout.sampling", "num_beams", "beams"),
    noted(
        "rollout.sampling",
        "log_probs",
        "log-probs",
    ),
    honoured("rollout", "precision parallel.replicas memory.max_num_seqs"),
    Row(
        Status.HONOURED,
        "rollout.parallel",
        "tensor_parallel_size pipeline_parallel_size expert_parallel_size",
        ONE_DEVICE,
        ("vllm", "sglang"),
        Status.NOTED,
    ),
    Row(
        Status.HONOURED,
        "rollout.parallel",
        "data_parallel_size",
        REPLICAS,
        ("vllm",),
        Status.NOTED,
        ("sglang",),
    ),
    honoured("rollout.memory", "sleep"),
    on_servers(
        "rollout.memory",
        "gpu_memory_utilization max_batched_tokens block_size prefix_caching chunked_prefill enforce_eager sleep_level"
        " load_format log_statistics",
    ),
    on_servers("rollout.memory", "kv_cache_dtype quantization", elsewhere=Status.REFUSED),
    noted("rollout.memory", "swap_gib", "swap"),
    honoured("rollout.timeouts", "response retries dynamic dynamic.ratio"),
    honoured("rollout.oversampling", "generation_batch_prompts max_generation_batches"),
    honoured("rollout.oversampling", "additional_responses ratio wait_after_minimum additional_prompts"),
    honoured("rollout", "max_running_prompts split_groups"),
    honoured(
        "rollout",
        "default_agent agents agents[]<tools|function|program> agents[]<tools|function|program>.name agent_workers",
    ),
    honoured(
        "rollout.agents[]<tools>", "tools tools[]<python> tool_format max_turns max_turn_tokens max_parallel_calls"
    ),
    honoured("rollout.agents[]<tools>", "max_tool_response_characters tool_truncation tool_timeout"),
    honoured("rollout.agents[]<tools>.tools[]<python>", "path name args schema trusted memory_limit_mib"),
    honoured("rollout.agents[]<function>", "path function args"),
    refused("rollout", "agents[]<other>*", "other-agent"),
    honoured("rollout.agents[]<program>", "program tool_format max_concurrent listen max_turns max_turn_tokens"),
    honoured(
        "rollout.agents[]<program>",
        "program<python> program<python>.path program<python>.function program<python>.args",
    ),
    honoured("rollout.agents[]<program>", "program<command> program<command>.command program<command>.env_vars"),
    honoured("rollout.agents[]<program>", "program<command>.folder program<url> program<url>.url"),
    honoured("rollout.agents[]<tools>", "tools[]<mcp> tools[]<mcp>.command tools[]<mcp>.url tools[]<mcp>.env_vars"),
    honoured("rollout.agents[]<tools>", "tools[]<mcp>.tools"),
    honoured("rollout.agents[]<tools>", "tools[]<file> tools[]<file>.path"),
    honoured("rollout.agents[]<tools>", "tools[]<python>.reward tools[]<file>.reward tools[]<mcp>.reward"),
    honoured("rollout", "agents[]<environment> agents[]<environment>.name"),
    honoured("rollout.agents[]<environment>", "environment environment<gymnasium|python> environment<gymnasium>.id"),
    honoured("rollout.agents[]<environment>", "environment<python>.path environment<python>.name"),
    honoured(
        "rollout.agents[]<environment>.environment<gymnasium|python>",
        "args seed isolation timeout max_concurrent_steps memory_limit_mib",
    ),
    honoured(
        "rollout.agents[]<environment>",
        "system_prompt opening_template template history_template history_turns observation action_pattern actions"
        " invalid_action_reward invalid_action_text on_invalid_action",
    ),
    refused("rollout.agents[]<environment>", "environment<other>*", "other-environment"),
    honoured("rollout.agents[]<tools>", "system_prompt tool_selection_key tool_args_key max_observations max_calls"),
    honoured("rollout.agents[]<function|environment>", "max_turns max_turn_tokens"),
    honoured("rollout.agents[]<tools|function|environment|program>", "time_limit on_token_limit on_turn_limit"),
    honoured(
        "rollout.agents[]<tools|function|environment|program>", "on_failure stop_run_above_failures credit.reward"
    ),
    honoured("rollout.agents[]<tools|function|environment|program>", "model samples"),
    refused("rollout.agents[]<tools|function|environment|program>", "tokens", "agents-tokens"),
    honoured("rollout.agents[]<tools|function|environment|program>", "credit.turns"),
    honoured("rollout.agents[]<tools>", "credit.tool_rewards"),
    noted("rollout.agents[]<function|environment|program>", "credit.tool_rewards", "calls-no-tools"),
    honoured("rollout", "auxiliary_models"),
    honoured(
        "rollout.auxiliary_models[]",
        "path name base_url api_key engine replicas tensor_parallel_size max_context_tokens settings",
    ),
    front_end("rollout.openai_server", "port"),
    noted("rollout.openai_server", "enabled history tool_choice", SERVER),
    noted("rollout.openai_server", "tool_parser", "tool-formats"),
    noted("rollout.openai_server", "log_requests", "calls-recorded"),
    refused("rollout.openai_server", "reasoning_parser", "reasoning-kept"),
    noted("rollout", "runners_per_engine report_every", RUNNERS),
    honoured("rollout", "log_responses log_evaluation_responses"),
    honoured("rollout", "responses_folder evaluation_folder"),
    # train
    honoured("train", "engine engine<fsdp2>"),
    honoured(
        "train.engine<fsdp2>",
        "fsdp_size reshard_after_forward cpu_offload_policy forward_prefetch wrap_min_parameters wrap_layers"
        " offload ulysses_sequence_parallel_size",
    ),
    descriptive("train.engine<fsdp2>", "source source_args"),
    noted("train.engine<fsdp2>", "expert_parallel_size", EXPERTS),
    honoured("train", "engine<megatron>"),
    honoured("train.engine<megatron>", f"{SHARED_BY} {TRAINED_BY}"),
    *_megatron("train"),
    refused("train", "engine<other>*", OTHER),
    honoured("train.precision", "parameters compute reduce"),
    honoured("train.optimizer", "type module args lr weight_decay betas epsilon max_grad_norm"),
    honoured("train.optimizer", "weight_decay_style start_weight_decay end_weight_decay decay_norms_and_biases"),
    honoured("train.lr_scheduler", "type step_unit warmup_steps warmup_ratio warmup_start_lr min_lr_ratio"),
    honoured(
        "train.lr_scheduler",
        "min_lr num_cycles decay_steps total_steps wsd_decay_steps wsd_decay_style restore_from_checkpoint",
    ),
    honoured("train", "packing"),
    honoured("train.memory", "recompute_activations recompute_reentrant offload_activations empty_cache"),
    noted("train.memory", "entropy_chunked entropy_recompute", "entropy"),
    honoured("train.fused_kernels", "enabled liger prefix_grouping"),
    noted("train.fused_kernels", "backend", "fused-backend"),
    honoured("train", "compile seed"),
    # critic: what it shares with train follows below
    honoured("", "critic"),
    honoured("critic", "model model.path model.attention model.trust_remote_code"),
    honoured("critic.value_loss", "clip coefficient aggregation"),
    honoured("critic", "mini_batch_responses ppo_epochs shuffle shuffle_seed"),
    honoured(
        "critic",
        "micro_batch micro_batch.unit micro_batch.size forward_micro_batch forward_micro_batch.unit forward_micro_batch.size",
    ),
    noted(
        "critic.model",
        "tokenizer chat_template chat_template_args max_context_tokens modality stage_in_shared_memory",
        "critic-tokens",
    ),
    refused(
        "critic.model",
        "multi_token_prediction",
        "critic-head",
    ),
    honoured("critic.model", "overrides rope.theta rope.scaling import_modules freeze lora"),
    honoured("critic.model.lora", "rank alpha dropout target_modules exclude_modules adapter_path base_model dtype"),
    descriptive("critic.model.lora", "name"),
    noted("critic.model.lora", "merge_for_rollout", "critic-not-sent"),
    # reference
    honoured("reference", "model model.path model.attention model.trust_remote_code engine engine<fsdp2>"),
    honoured(
        "reference.engine<fsdp2>",
        "fsdp_size reshard_after_forward cpu_offload_policy forward_prefetch wrap_min_parameters wrap_layers"
        " offload ulysses_sequence_parallel_size",
    ),
    descriptive("reference.engine<fsdp2>", "source source_args"),
    honoured("reference", "precision precision.parameters precision.compute precision.reduce"),
    honoured("reference", "micro_batch micro_batch.unit micro_batch.size"),
    noted("reference.engine<fsdp2>", "expert_parallel_size", EXPERTS),
    honoured("reference", "engine<megatron>"),
    honoured("reference.engine<megatron>", SHARED_BY),
    noted("reference.engine<megatron>", TRAINED_BY, "reference-not-trained"),
    *_megatron("reference"),
    refused("reference", "engine<other>*", OTHER),
    honoured("reference", "compile"),
    noted(
        "reference.model",
        "tokenizer chat_template chat_template_args max_context_tokens modality freeze stage_in_shared_memory",
        "reference-tokens",
    ),
    honoured("reference.model", "overrides rope.theta rope.scaling import_modules"),
    refused("reference.model", "multi_token_prediction", FURTHER_HEADS),
    refused(
        "reference.model",
        "lora*",
        "reference-lora",
    ),
    # rewards
    honoured("", "rewards rewards[]<rule|function|model|judge|sandbox>"),
    honoured("rewards[]<rule|function|model|judge|sandbox>", "weight applies_to on_error"),
    descriptive("rewards[]<rule|function|model|judge|sandbox>", "name"),
    honoured("rewards[]<rule|function|judge|sandbox>", "timeout"),
    descriptive("rewards[]<model>", "timeout"),
    honoured("rewards[]<rule|function>", "workers args"),
    honoured("rewards[]<sandbox>", "workers"),
    descriptive("rewards[]<model|judge>", "workers"),
    honoured("rewards[]<rule>", "rule score_right score_wrong"),
    honoured("rewards[]<function>", "path function signature"),
    honoured("rewards[]<model>", "path tokenizer chat_template max_tokens micro_batch_size trust_remote_code"),
    descriptive("rewards[]<model>", "overrides"),
    honoured("rewards[]<judge>", "auxiliary_model base_url model api_key prompt scoring sampling max_concurrent"),
    honoured("rewards[]<judge>", "replicas tensor_parallel_size engine engine_args max_context_tokens"),
    honoured(
        "rewards[]<sandbox>", "url isolation method max_concurrent memory_limit_mib partial_credit tests_together"
    ),
    refused(
        "",
        "rewards[]<external>*",
        "external-reward",
    ),
    descriptive("reward_loop", "manager"),
    honoured("reward_loop", "overlap_with_rollout max_queued"),
    # weight_sync, placement, buffer, service
    honoured(
        "weight_sync",
        "every every_optimizer_steps max_steps_ahead max_staleness_steps on_stale style in_flight_requests",
    ),
    honoured("weight_sync", "method bucket_mib timeout"),
    noted("weight_sync", "args", "sync-args"),
    honoured("placement", "device layout nodes devices_per_node cpus_per_worker"),
    honoured("placement", "rollout_devices roles roles{}.devices"),
    honoured("", "buffer buffer<memory|sql|file>"),
    honoured(
        "buffer<memory|sql>", "label capacity replay.enabled replay.priority replay.priority_args replay.cooldown"
    ),
    honoured("buffer<memory|sql|file>", "read_timeout auxiliary"),
    honoured(
        "buffer<memory|sql|file>.auxiliary{}", "path format prompt_key response_key messages_key prompt_type settings"
    ),
    honoured("buffer<memory>", "log_path"),
    honoured("buffer<sql>", "url"),
    honoured("buffer<file>", "path"),
    descriptive("buffer<file>", "label"),
    noted("buffer<file>", "capacity", FILES_ONCE),
    refused("buffer<file>", "replay.enabled replay.priority replay.priority_args replay.cooldown", FILES_ONCE),
    honoured("service", "data_juicer"),
    honoured("service.data_juicer", "url auto_start port python"),
    # checkpoint, tracking, profiling, environment
    honoured("checkpoint", "every at_end resume resume_path keep_last keep_last_critic export folder remote"),
    honoured("checkpoint", "save_contents load_contents delete_after_load delete_previous asynchronous writers"),
    honoured("", "tracking tracking[]<console|tensorboard|swanlab|wandb|mlflow>"),
    honoured("tracking[]<tensorboard>", "folder"),
    honoured("tracking[]<swanlab>", "mode folder api_key"),
    honoured("tracking[]<wandb>", "mode base_url api_key args"),
    honoured("tracking[]<mlflow>", "uri username password"),
    noted("", "tracking[]<other>*", "other-tracker"),
    honoured("profiling", "tool steps continuous folder roles* controller_args worker_args peak_tflops"),
    honoured("profiling", "ray_timeline"),
    honoured("rollout", "env_vars"),
    honoured("runtime", "env_vars role_env_vars log_level log_folder logs_by_node plugins"),
    front_end("runtime", "device_memory_check log_every"),
    honoured("runtime.ray", "address namespace num_cpus init_args startup_timeout call_timeout collective_timeout"),
)

UNTRIED = (
    "A run on several GPUs: most tests run on CPUs, and a few ran on one H100.",
    "`weight_sync.method: nccl`: in the tests vLLM's own classes read and load what is sent, on a CPU, without NCCL.",
    "`rollout.engine: sglang`: it cannot be installed without a GPU; the tests speak its protocol with their own server.",
)
"""What is honoured and no test of rlctl's authors has run as it will be used."""

REFUSED_VALUES: Mapping[str, Mapping[Any, str]] = {
    "train.engine<other>": {
        "tinker": "hosted-training",
        "mindspeed": "ascend",
        "hf_infer": "scores-only",
        **dict.fromkeys(("veomni", "torchtitan", "mlite"), "own-models"),
    },
    "reference.engine<other>": {"mindspeed": "ascend", "hf_infer": "scores-only"},
    "rollout.engine<other>": {"tinker": "hosted-training", "trtllm": "tensorrt"},
    "model.modality": dict.fromkeys(("audio", "omni"), MULTIMODAL),
    "algorithm.advantage<other>": {
        **dict.fromkeys(("agentic_reinforce", "roll.gigpo", "roll.step_reinforce"), BY_TURN),
        **dict.fromkeys(("trinity.gigpo", "trinity.step_wise_grpo"), BY_TURN),
        "jsd": "distill-js",
        "on_policy_distill": "distill-reverse",
    },
    "algorithm.policy_loss<other>": dict.fromkeys(("dpo", "mix", "mix_chord"), "objective"),
    **{f"buffer<{kind}>.auxiliary{{}}.format": {"queue": "queue"} for kind in ("memory", "sql", "file")},
}

BY_ENGINE: Mapping[tuple[str, str], tuple[tuple[str, ...], str]] = {
    ("algorithm.router_replay", "rollout"): (("transformers", "sglang"), "rollout-experts"),
}
"""Values of keys that only some rollout engines have; with the others they are refused, and why."""

NOTED_VALUES: Mapping[str, Mapping[Any, str]] = {
    "profiling.tool": {
        "nsys": "nsight",
        "npu": "npu",
    },
}


def _shares_sequences(train: Train) -> bool:
    return isinstance(train.engine, Fsdp2) and train.engine.ulysses_sequence_parallel_size > 1


def _lays_end_to_end(train: Train, model: Model) -> bool:
    """Whether whole sequences lie end to end before the built-in attention, which can read a prompt for several of them."""
    plain = isinstance(train.engine, Fsdp2) and not _shares_sequences(train)
    return plain and train.packing and model.attention in arithmetic.PACKING_ATTENTION


def _answers_once(config: Config) -> bool:
    """Whether the training data is answered once, source by source, by an engine of the run's own."""
    return arithmetic.writes_responses(config) and config.rollout.engine.choice != "external"


def _only_teaches(config: Config) -> bool:
    """Whether the loss is a teacher's divergence alone."""
    chosen = config.algorithm.distillation
    if chosen is None or config.algorithm.objective.choice != "rl":
        return False
    return chosen.args.get("with_rewards") is False and not chosen.args.get("policy_gradient")


def _reference_is_policys(config: Config) -> bool:
    """Whether the policy's own workers say what the reference finds."""
    shared = arithmetic.reference_is_base(config) or arithmetic.reference_is_held(config)
    return arithmetic.needs_reference(config) and shared


def _schedules_mu(config: Config) -> bool:
    """Whether arguments of CHORD say what the weight of the experts is."""
    chosen = config.algorithm.objective
    return isinstance(chosen, MixObjective) and any(name.startswith(("mu_", "enable_phi")) for name in chosen.args)


def _is_ipo(config: Config) -> bool:
    chosen = config.algorithm.objective
    return isinstance(chosen, DpoObjective) and chosen.ipo


INEFFECTIVE_WHEN: Mapping[str, tuple[Callable[[Config], bool], str]] = {
    "algorithm.objective<dpo>.label_smoothing": (_is_ipo, "ipo-labels"),
    "algorithm.objective<mix>.mu": (
        _schedules_mu,
        "mu-schedule",
    ),
    "algorithm.rollout_correction.use_policy_gradient": (
        lambda config: config.algorithm.old_log_probs == "recompute",
        "recompute-loss",
    ),
    "algorithm.rollout_correction.importance_sampling.level": (
        lambda config: (
            config.algorithm.old_log_probs == "rollout"
            and config.algorithm.rollout_correction is not None
            and not config.algorithm.rollout_correction.use_policy_gradient
        ),
        "bypass",
    ),
    **dict.fromkeys(
        ("algorithm.distillation.coefficient", "algorithm.entropy_coefficient", "algorithm.kl_in_loss"),
        (_only_teaches, "divergence-alone"),
    ),
    **dict.fromkeys(
        ("reference.engine", "reference.precision", "reference.compile"),
        (_reference_is_policys, "reference-by-policy"),
    ),
    "algorithm.policy_filtration": (
        lambda config: config.algorithm.advantage.choice != "gae",
        "filtration-gae",
    ),
    "runtime.ray.num_cpus": (
        lambda config: config.runtime.ray.address is not None,
        "running-cluster",
    ),
    "reference.micro_batch": (
        lambda config: arithmetic.needs_reference(config) and arithmetic.reference_is_held(config),
        "whole-distributions",
    ),
    "schedule.total_epochs": (
        arithmetic.drains_buffer,
        "ends-with-buffer",
    ),
    **dict.fromkeys(
        (
            "algorithm.filters",
            "rollout.timeouts.response",
            "rollout.timeouts.dynamic",
            "rollout.oversampling.ratio",
            "rollout.oversampling.additional_prompts",
            "rollout.max_running_prompts",
        ),
        (_answers_once, "answers-once"),
    ),
    **dict.fromkeys(("data.operators", "data.priority"), (arithmetic.reads_no_rows, "operators-train")),
    **dict.fromkeys(
        (f"buffer<{kind}>.auxiliary" for kind in ("memory", "sql", "file")),
        (lambda config: config.algorithm.objective.choice != "mix", "experts-mix"),
    ),
    **dict.fromkeys(
        ("service.data_juicer.port", "service.data_juicer.python"),
        (lambda config: config.service.data_juicer is None or not config.service.data_juicer.auto_start, "not-started"),
    ),
    "service.data_juicer.url": (
        lambda config: config.service.data_juicer is not None and config.service.data_juicer.auto_start,
        "own-service",
    ),
    "service.data_juicer": (lambda config: not arithmetic.uses_data_juicer(config), "no-data-juicer"),
    "algorithm.experience_operators": (
        lambda config: _answers_once(config) or arithmetic.drains_buffer(config),
        "operators-explore",
    ),
    "algorithm.router_replay": (
        lambda config: config.algorithm.objective.choice in ("sft", "dpo"),
        "no-earlier-pass",
    ),
    "train.fused_kernels.prefix_grouping": (
        lambda config: not _lays_end_to_end(config.train, config.model) or config.algorithm.router_replay != "off",
        WHOLE_ROWS,
    ),
    "critic.fused_kernels.prefix_grouping": (
        lambda config: (
            config.critic is not None and not _lays_end_to_end(config.critic, config.critic.model or config.model)
        ),
        WHOLE_ROWS,
    ),
    "train.packing": (lambda config: _shares_sequences(config.train), END_TO_END),
    "critic.packing": (
        lambda config: config.critic is not None and _shares_sequences(config.critic),
        END_TO_END,
    ),
}
"""Configs in which a key has nothing to act on, and why."""

REFUSED_WHEN: Mapping[str, tuple[Callable[[Config], bool], str]] = {
    "data.eval[].messages_key": (
        lambda config: not (config.algorithm.objective.choice == "sft" and arithmetic.trains(config)),
        "scores-generated",
    ),
}
"""Configs in which a supported key is refused, and why."""

GPU_MEMORY = "gpu-memory"
BASE_WEIGHTS = "base-weights"
ON_CPU: Mapping[str, str] = dict.fromkeys(
    (
        *("rollout.memory.gpu_memory_utilization", "rollout.memory.sleep", "rollout.memory.sleep_level"),
        *(
            f"{section}.engine<{engine}>.offload"
            for section in ("train", "reference")
            for engine in ("fsdp2", "megatron")
        ),
        *(f"{section}.engine<fsdp2>.cpu_offload_policy" for section in ("train", "reference")),
        *(f"{section}.engine<megatron>.offload_gradients" for section in ("train", "reference")),
        *("train.memory.offload_activations", "train.memory.empty_cache"),
    ),
    GPU_MEMORY,
)
"""Keys that nothing depends on where there is no GPU, and why."""

WORKER_PYTHON = ("runtime", "ray", "init_args", "runtime_env", "py_executable")
RLCTLS_PYTHON = "own-python"
"""The examples of verl start workers by ``uv run`` in a checkout of verl, which has no rlctl."""

OFF_WITHOUT: Mapping[str, str] = {
    "model.multi_token_prediction": "enable",
    "reference.model.multi_token_prediction": "enable",
}
"""Refused mappings that ask for nothing unless this entry of theirs is set."""

ONLY_VALUES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "algorithm.sample_strategy": (
        ("default", "warmup", "mix", "staleness_control"),
        "no-strategy",
    ),
    "algorithm.distillation.loss": (
        (
            *("adaptive_kl", "forward_kl", "js_divergence", "reverse_kl"),
            *("skewed_forward_kl", "skewed_reverse_kl"),
        ),
        "no-divergence",
    ),
    "algorithm.experience_operators[]<external>.kind": (("data_juicer",), "plugin-operator"),
    "algorithm.advantage<other>": (
        (
            *("asymre", "asymre_verl", "clipb", "clipv", "gdpo", "gpg", "grpo_verl", "none", "opmd_verl"),
            *("optimal_token_baseline", "rec", "reward", "tir_optimal_token_baseline"),
        ),
        "no-estimator",
    ),
    "algorithm.policy_loss<other>": (
        (
            *("clip_cov", "dppo_kl", "dppo_tv", "dro", "geo_mean", "kimi15", "kl_cov"),
            *("opmd", "rec", "sft", "sft_is", "sft_phi", "sppo"),
        ),
        "no-loss",
    ),
}
"""Keys of free text of which the runtime knows some values, in small letters."""


def _of_critic(pattern: str) -> str | None:
    """The critic's key of the same meaning as one of ``train``; None for other keys."""
    return "critic" + pattern.removeprefix("train") if re.match(r"train(\.|$)", pattern) else None


# The critic is trained by the policy's engine: what the runtime does with a key of ``train`` it does with the critic's.
TABLE += tuple(replace(row, under=under) for row in TABLE if (under := _of_critic(row.under)))
REFUSED_VALUES = {**REFUSED_VALUES, **{to: each for key, each in REFUSED_VALUES.items() if (to := _of_critic(key))}}
ON_CPU = {**ON_CPU, **{to: each for key, each in ON_CPU.items() if (to := _of_critic(key))}}
ONLY_VALUES = {**ONLY_VALUES, **{to: each for key, each in ONLY_VALUES.items() if (to := _of_critic(key))}}


def expand(row: Row) -> Iterator[str]:
    """The patterns of a row, one for each name and each combination of its ``<a|b>``; a ``*`` stays at the end."""
    for name in row.names.split():
        parts = re.split(r"<([^>]*)>", f"{row.under}.{name}" if row.under else name)
        choices = [part.split("|") if index % 2 else [part] for index, part in enumerate(parts)]
        for combination in itertools.product(*choices):
            yield "".join(f"<{part}>" if index % 2 else part for index, part in enumerate(combination))


def rows_of(pattern: str) -> list[Row]:
    """The rows that a key pattern is in; the table is right when there is exactly one."""
    exact, whole = _index()
    found = [*exact.get(pattern, ())]
    for length in _cuts(pattern):
        found += whole.get(pattern[:length], ())
    return found


def status_of(pattern: str) -> Row:
    """The row of a key pattern; KeyError where the schema has no such key."""
    rows = rows_of(pattern)
    if not rows:
        raise KeyError(pattern)
    return rows[0]


@cache
def _index() -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
    exact: dict[str, list[Row]] = {}
    whole: dict[str, list[Row]] = {}
    for row in TABLE:
        for pattern in expand(row):
            table = whole if pattern.endswith("*") else exact
            table.setdefault(pattern.removesuffix("*"), []).append(row)
    return exact, whole


def _cuts(pattern: str) -> list[int]:
    """Lengths of the pattern itself and of everything above it."""
    return [match.start() for match in re.finditer(r"[.<\[{]|$", pattern)]


def refusals(config: Config) -> list[Unhonoured]:
    """Every key of a config that is set to something the runtime does not do; a refused section is named once."""
    return [each for each in unhonoured(config) if each.status is Status.REFUSED]


def unhonoured(config: Config, device: str | None = None) -> list[Unhonoured]:
    """Every key of a config that is set and refused or not used; a section is named once.

    Args:
        config: the canonical config of one stage.
        device: what the run is for, ``cuda`` or ``cpu``; None where the config says auto and the machines are not known.
    """
    found: list[Unhonoured] = []
    engine = generating(config, device)
    for setting in settings(config):
        if any(setting.path[: len(above.key)] == above.key for above in found):
            continue
        status, reason = _judged(setting, engine, config, device)
        if reason:
            found.append(Unhonoured(setting.path, setting.value, reason, status))
    found += _of_deepspeed(config)
    worker_environment = config.runtime.ray.init_args.get("runtime_env")
    if isinstance(worker_environment, Mapping) and WORKER_PYTHON[-1] in worker_environment:
        found.append(
            Unhonoured(WORKER_PYTHON, worker_environment[WORKER_PYTHON[-1]], because(RLCTLS_PYTHON), Status.NOTED)
        )
    return found


def _of_deepspeed(config: Config) -> Iterator[Unhonoured]:
    """DeepSpeed's settings, of the roles that have an optimizer."""
    sections = {"train": config.train, "critic": config.critic}
    for section, train in sections.items():
        for name, value, why, differs in deepspeed.unmet(train) if train is not None else ():
            key = (section, "engine", "source_args", name)
            yield Unhonoured(key, value, because(why), Status.REFUSED if differs else Status.NOTED)


def not_used(config: Config, device: str | None = None) -> list[str]:
    """What a run is told that it does not use: a line for each reason, with its keys."""
    keys: dict[str, list[str]] = {}
    for each in unhonoured(config, device):
        if each.status is Status.NOTED:
            keys.setdefault(each.reason, []).append(dotted(each.key))
    return [f"{', '.join(named)}: {reason}" for reason, named in keys.items()]


def generating(config: Config, device: str | None) -> str:
    """The engine that generates; auto is vLLM wherever it may be."""
    chosen = config.rollout.engine.choice
    if chosen != "auto":
        return chosen
    resolved = config.placement.device if config.placement.device != "auto" else device
    return "transformers" if resolved == "cpu" else "vllm"


def _judged(setting: Setting, engine: str, config: Config, device: str | None) -> tuple[Status, str]:
    """What the runtime does with a key as it is set, and why; without a reason, what it says."""
    kept = Status.HONOURED, ""
    if setting.value == setting.default:
        return kept
    row = status_of(setting.pattern)
    switch = OFF_WITHOUT.get(setting.pattern)
    if switch is not None and not setting.value.get(switch):
        return kept
    if row.elsewhere is not None and engine not in row.engines:
        return Status.REFUSED if engine in row.refused_on else row.elsewhere, row.reason
    resolved = config.placement.device if config.placement.device != "auto" else device
    if resolved == "cpu" and setting.pattern in ON_CPU:
        return Status.NOTED, because(ON_CPU[setting.pattern])
    if setting.pattern == "rollout.memory.load_format" and adapter_sync.sends_adapters(config, engine):
        return (Status.NOTED, because(BASE_WEIGHTS)) if setting.value == "dummy" else kept
    if row.elsewhere is not None:
        return kept
    if setting.pattern == "weight_sync.method":
        return Status.NOTED, way_of(config, engine, device).reason
    idle, why = INEFFECTIVE_WHEN.get(setting.pattern, (None, ""))
    if idle is not None and idle(config):
        return Status.NOTED, because(why)
    barred, why = REFUSED_WHEN.get(setting.pattern, (None, ""))
    if barred is not None and barred(config):
        return Status.REFUSED, because(why)
    if row.why or not isinstance(setting.value, str):
        if isinstance(setting.value, str) and (of_value := REFUSED_VALUES.get(setting.pattern, {}).get(setting.value)):
            return row.status, because(of_value)
        return row.status, row.reason
    if noted := NOTED_VALUES.get(setting.pattern, {}).get(setting.value):
        return Status.NOTED, because(noted)
    own = REFUSED_VALUES.get(setting.pattern, {}).get(setting.value, "")
    engines, lacks = BY_ENGINE.get((setting.pattern, setting.value), ((), ""))
    if engines and engine not in engines:
        own = lacks
    known, why = ONLY_VALUES.get(setting.pattern, ((), ""))
    if not own and known and setting.value.lower() not in known:
        return Status.REFUSED, because(why) + _near(setting)
    return Status.REFUSED, because(own)


def _near(setting: Setting) -> str:
    """The option that an unknown name is a near miss of, as the end of a sentence."""
    from rlctl.config.explain import explain  # only a name that nothing has needs it

    options = [option.name for option in explain(setting.pattern.partition("<")[0]).options]
    near = closest(str(setting.value).rpartition(".")[2], options)
    return spoken("; did you mean {near}?", near=near) if near else ""
