"""ROLL: keys without a rule. ROLL drops keys it does not have in silence, and nothing reads some that it has."""

from __future__ import annotations

from rlctl.adapters.engine.rules import Noted, carried, dead, misleading, unsupported
from rlctl.adapters.roll.reference_only_keys import UNNAMED

T = "actor_train.training_args"
HYDRA = dead("Hydra's own settings", "hydra", "hydra.**", "defaults", "defaults.**")
REMOVED = "ROLL removed this key and ignores it"
GONE = [
    *misleading(REMOVED, "reward_norm", "reward_scale", "reward_shift", "sft_loss_coef", "positive_loss_coef"),
    *dead(
        REMOVED,
        "enable_response_mask",
        "action_sep",
        "use_turn_scores",
        "enable_think",
        "train_batch_size",
        "train_env_manager.n_groups",
        "train_env_manager.env_groups",
        "val_env_manager.n_groups",
        "val_env_manager.env_groups",
    ),
]
DROPPED = [
    *dead("ROLL has no such key and ignores it: write file names with their folder", "*.data_args.dataset_dir"),
    *dead("ROLL has no such key and ignores it", "*.data_args.interleave_probs", "validation.eval_steps"),
    *(
        note
        for name, place in (
            ("pg_variant", ""),
            *((f"lora_{part}", "model_args.") for part in ("rank", "alpha", "target")),
        )
        for note in misleading("a key of actor_train; ROLL ignores it here", name, instead=f"actor_train.{place}{name}")
    ),
    *dead(
        "ROLL has no such key and ignores it",
        "world_size",
        "reward_system_config",
        "reward_system_config.**",
        "use_additional_prompts",
    ),
]
EMPTY = dead(
    "an empty block",
    *(
        f"*.{name}"
        for name in ("model_args", "training_args", "data_args", "generating_args", "strategy_args", "system_envs")
    ),
    "checkpoint_config",
    "system_envs",
    "tracker_kwargs",
)
UNUSED = dead(
    UNNAMED,
    "model_name",
    "default_history_length",
    "max_actions_per_traj",
    "max_tokens_per_step",
    "env_manager_cls",
)
OF_RLVR = "a key of RLVR; ROLL ignores it in agentic runs"
NEVER = "ROLL has the key and never reads it"
UNREAD = [
    *misleading(
        NEVER,
        "train_env_manager.format_penalty",
        "val_env_manager.format_penalty",
        "l2",
        "use_reward_scaling",
        "use_reward_norm",
        "add_len_reward",
        "use_policy_loss_type",
        "use_topr_loss",
        "use_topr_neg_loss_coef",
        "postive_loss_coef",
        "use_token_reward",
        "dataset_filter.**",
        "rewards.*.response_filter_config.**",
        "reward_normalization.global_scale_factor",
        "reward_normalization.global_shift_value",
    ),
    *dead(
        NEVER,
        "balance_length",
        "minibatch_data_iter_num",
        "mask_type",
        "val_greedy",
        "val_n_sample",
        "dataset_filter",
        "open_feedback_turn",
        "dirty_data_mask",
        "exp_mode",
        "enable_reference",
        "base_dir",
        "length_profiler_dir",
        "local_rank",
        "rewards.*.response_filter_config",
        "*.training_args.data_seed",
        "*.data_args.eval_file_name",
        "*.data_args.id",
        "*.data_args.response",
    ),
]
CONSTANT = dead(
    "the log-probs of the weights are constants, so no gradient flows through them either way",
    "train_infer_correction.is_weight.detach",
)
SET = [
    *dead("ROLL sets it itself", "*.generating_args.num_return_sequences", "validation.generating_args.max_new_tokens"),
    *dead("ROLL sets it itself: the seed of the run", "*.training_args.seed"),
    *dead("ROLL sets it itself: the folder of the run", "*.training_args.output_dir"),
    *dead("ROLL sets it itself", f"{T}.max_steps", "*.training_args.max_steps"),
]
VALIDATION = [
    *dead(
        "the engines ignore this setting in validation",
        "validation.generating_args.do_sample",
        "validation.generating_args.max_length",
    ),
    *dead("the training data's template decides", "validation.data_args.template"),
    *dead("the training data's settings decide", "validation.data_args.**"),
    *unsupported(
        "only ROLL has this sampling setting for validation",
        "validation.generating_args.**",
    ),
    *dead("validation runs on actor_infer's workers", "validation.**"),
]
TEMPLATES = [
    *dead(
        "ROLL reads only the training data's template",
        *(f"{role}.data_args.template" for role in ("actor_infer", "reference", "critic")),
    ),
    *unsupported(
        "ROLL has its own chat templates; other frameworks use the tokenizer's (ROLL's 'native')",
        "actor_train.data_args.template",
        "global_template",
        "tag_to_template.**",
    ),
]
MEDIA = unsupported(
    "only ROLL limits the size of images, video and audio; other frameworks leave it to the model's processor",
    *(
        f"actor_train.data_args.{name}"
        for name in (
            "image_max_pixels",
            "image_min_pixels",
            "video_max_pixels",
            "video_min_pixels",
            "video_total_pixels",
            "video_fps",
            "video_max_frames",
            "video_resize_chunk_frames",
            "image_folder",
            "video_folder",
            "audio_folder",
            "custom_data_kwargs_func",
        )
    ),
)
UNSUPPORTED = [
    *unsupported(
        "each mini-batch would use its current log-probs as old log-probs, so the ratio is always 1",
        "force_disable_old_logprobs_recompute",
    ),
    *unsupported("only ROLL rejects by probability differences or by segments", "train_infer_correction.filters.*.**"),
    *unsupported(
        "other frameworks filter all domains by the same rules",
        "rewards.*.query_filter_config",
        "rewards.*.query_filter_config.**",
    ),
    *unsupported("rlctl never copies secrets: set the key again", "rewards.*.judge_api_key"),
    *unsupported(
        "other frameworks read the whole prompt from one column; join the two columns in the data", "query_key"
    ),
    *unsupported("other frameworks configure reward models per reward", "reward_model.**"),
]
CARRIED = [
    *carried("model download source", "model_download_type"),
    *carried("ROLL's request router", "router_args", "router_args.**", free=True),
    *carried("ROLL's generation mode", "generate_opt_level", "user_defined_rollout_loop_cls"),
    *carried("ROLL's transfer backend", "transfer_backend", "transfer_backend.**", free=True),
    *carried("dumps of ROLL's metrics", "save_logging_board_dir", "report_length_and_rewards", "otlp_output_dir"),
    *carried("how workers share a device mapping", "partial_gpu_mode"),
    *carried("an additional checkpoint storage field", "checkpoint_config.*", free=True),
    *carried("an additional data reader", "actor_train.data_args.dataset_type"),
]
MANAGERS = ("train_env_manager", "val_env_manager")
AGENTIC = [
    *carried(
        "how ROLL divides environments over processes",
        *(f"{manager}.{name}" for manager in MANAGERS for name in ("max_env_num_per_worker", "max_traj_per_env")),
    ),
    *carried("a warning about hung environments; it stops none of them", "env_monitor", "env_monitor.**"),
    *carried("rendered frames of environments", "render_save_dir"),
    *carried("how ROLL renders a message alone; rlctl continues the conversation's tokens", "skip_mock_system_prompt"),
    *carried("a setting of an environment that only ROLL has", "custom_envs.**", free=True),
    *carried("redundant environments of evaluation", "val_env_manager.group_size_redundancy"),
    *unsupported(
        "ROLL trains on copies of random sequences (copy), or drops some (delete, random_sample), until they divide; "
        "rlctl adds sequences that weigh nothing",
        "batch_adjust_mode",
    ),
    *unsupported("rlctl cannot group trajectories by this column", "reward_normalization.grouping"),
    *unsupported(
        "only ROLL can choose whether the arguments of tool calls become a dict", "parse_tool_call_parameter_to_dict"
    ),
    *unsupported(
        "other frameworks cannot run ROLL's worker classes", *(f"{manager}.worker_cls" for manager in MANAGERS)
    ),
    *unsupported(
        "other frameworks cannot run ROLL's class, which drops groups of trajectories and plays new ones",
        *(f"{manager}.group_filter_cls" for manager in MANAGERS),
    ),
    *unsupported(
        "in other frameworks, only the policy generates trajectories",
        *(f"{manager}.llm_proxy.**" for manager in MANAGERS),
    ),
    *unsupported(
        "only ROLL's agentic runs have a separate reward model; other frameworks score episodes by their environments",
        "reward",
        "reward.**",
    ),
    *dead(
        "ROLL uses the sampling settings of actor_infer, or of train_env_manager",
        "train_env_manager.generating_args.**",
        "val_env_manager.generating_args.**",
    ),
    *dead(
        "one value for all workers of a manager",
        *(
            f"{manager}.{name}"
            for manager in ("train_env_manager", "val_env_manager")
            for name in ("world_size", "name", "pg_variant")
        ),
    ),
]
ALWAYS_OFFLOADED = dead(
    "read only in distillation and DPO; RL runs always offload idle roles",
    "is_offload_states",
    "is_offload_optimizer_states_in_train_step",
)
TEACHING = dead(
    "read by the start script of on-policy distillation", "pure_opd_pipeline_type", "is_pure_opd", "use_opd"
)
DEAD_IN_RL = [
    *dead("only SFT counts epochs", "*.training_args.num_train_epochs"),
    *dead("RLVR validates in one batch", "val_batch_size"),
    *dead("RLVR renders no frames", "render_save_dir"),
    *dead("a key of agentic runs; RLVR's rewards are under rewards", "reward", "reward.**"),
    *ALWAYS_OFFLOADED,
]
DEAD_IN_AGENTIC = [
    *dead("only SFT counts epochs", "*.training_args.num_train_epochs"),
    *dead(
        "agentic runs train on the trajectories of train_env_manager",
        "num_return_sequences_in_group",
        "response_length",
        "is_num_return_sequences_expand",
        "is_use_additional_prompts",
        "max_additional_running_prompts",
    ),
    *dead(
        OF_RLVR,
        "difficulty_low_threshold",
        "difficulty_high_threshold",
        "error_max_len_threshold",
        "global_template",
        "reward_model.**",
    ),
    *misleading(
        OF_RLVR,
        "norm_mean_type",
        "norm_std_type",
        "importance_sampling",
        "difficulty_loss_weight",
        "length_loss_weight",
        "rl_loss_coef",
        "max_len_mask",
        "difficulty_mask",
        "error_max_len_clip",
        "rewards.**",
    ),
    *dead("environments bring their own data", "actor_train.data_args.**", "validation", "validation.**"),
    *dead("agentic runs validate with the training lengths", "val_prompt_length", "val_sequence_length"),
    *ALWAYS_OFFLOADED,
]
DEAD_IN_SFT = [
    *misleading(
        "a key of RLVR; supervised training samples all rows alike", "actor_train.data_args.domain_interleave_probs.**"
    ),
    *dead(
        "SFT has no rollout",
        "rollout_batch_size",
        "max_running_requests",
        "is_use_additional_prompts",
        "is_num_return_sequences_expand",
        "num_return_sequences_in_group",
        "val_batch_size",
        "model_update_buffer_size_mb",
        "rollout_dump_dir",
        "generate_opt_level",
        "max_additional_running_prompts",
        "is_offload_states",
        "is_offload_optimizer_states_in_train_step",
    ),
    *dead("ROLL has no such key here and ignores it", "reward_pretrain", "ppo_epochs", "adv_estimator"),
    *dead("SFT counts epochs", "max_steps"),
    *dead("validation uses the training lengths", "val_prompt_length", "val_sequence_length"),
    *dead(
        "read only in RL runs",
        *(f"actor_train.{name}" for name in ("pg_variant", "model_update_frequency")),
        *(f"actor_train.topr_{sign}_weight" for sign in ("positive", "negative")),
        *(f"actor_train.data_args.{name}" for name in ("tag", "prompt", "messages")),
    ),
    *dead("the model in this file decides", "*.model_args.model_name_or_path"),
]
TEACHERS = unsupported(
    "only ROLL trains with several teachers, each for the rows with its tags",
    *(
        f"reference.*.{name}"
        for name in (
            "model_args.**",
            "strategy_args.**",
            "training_args.**",
            "data_args.**",
            "sequence_packing_args.**",
            "device_mapping",
            "infer_batch_size",
            "use_sequence_packing",
            "use_dynamic_batching_in_infer",
            "max_tokens_per_microbatch_in_infer",
            "sequence_length_round_in_infer",
            "opd_kl_coef",
            "tag_included",
            "worker_cls",
            "name",
        )
    ),
)
"""Teachers by name; with one teacher alone its block is that of the reference."""
COMMON: tuple[Noted, ...] = (
    *HYDRA,
    *EMPTY,
    *GONE,
    *DROPPED,
    *UNUSED,
    *UNREAD,
    *CONSTANT,
    *SET,
    *TEMPLATES,
    *CARRIED,
    *TEACHING,
)
RLVR_NOTES: tuple[Noted, ...] = (*COMMON, *DEAD_IN_RL, *UNSUPPORTED, *MEDIA, *VALIDATION)
TURNS = carried("the longest turn of agents that only ROLL runs", "actor_infer.generating_args.max_new_tokens")
AGENTIC_NOTES: tuple[Noted, ...] = (*TURNS, *COMMON, *AGENTIC, *DEAD_IN_AGENTIC, *UNSUPPORTED)
SUPERVISED_NOTES: tuple[Noted, ...] = (*COMMON, *DEAD_IN_SFT, *UNSUPPORTED, *MEDIA, *VALIDATION)
