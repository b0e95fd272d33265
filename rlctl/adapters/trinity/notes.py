"""Trinity: keys without a rule: those that mean something only in Trinity, and those that Trinity sets or ignores itself."""

from __future__ import annotations

from rlctl.adapters.engine.rules import Noted, carried, dead, misleading, unsupported
from rlctl.adapters.trinity.keys import REPLACED

ROLL = "explorer.rollout_model"
TC = "trainer.trainer_config"
E = "buffer.explorer_input"

ACTOR = f"{TC}.actor_rollout_ref.actor"
OBJECTIVE = ("algorithm", "reward_model", "reward", "custom_reward_function")
"""Blocks of ``trainer_config`` with a reward or a loss that 0.6 takes nothing from."""
GONE = (
    "trainer",
    "data",
    "global_profiler",
    "synchronizer",
    "critic.model",
)
"""Other blocks of ``trainer_config`` that 0.6 takes nothing from."""
FROZEN = (
    "enable_preview",
    "actor_rollout_ref.hybrid_engine",
    "actor_rollout_ref.nccl_timeout",
    "actor_rollout_ref.explorer_name",
    *(
        f"actor_rollout_ref.model.{name}"
        for name in ("trust_remote_code", "use_remove_padding", "custom_chat_template", "lora_rank", "lora_alpha")
    ),
    *(f"actor_rollout_ref.model.{name}" for name in ("path", "target_modules", "exclude_modules", "lora_adapter_path")),
    *(
        f"actor_rollout_ref.actor.{name}"
        for name in (
            "strategy",
            "use_dynamic_bsz",
            "ppo_max_token_len_per_gpu",
            "grad_clip",
            "ulysses_sequence_parallel_size",
            "use_remove_padding",
            "fix_actor_microbatch_loss_scale",
        )
    ),
    *(
        f"actor_rollout_ref.ref.{name}"
        for name in (
            "strategy",
            "log_prob_use_dynamic_bsz",
            "log_prob_max_token_len_per_gpu",
            "ulysses_sequence_parallel_size",
            "use_remove_padding",
        )
    ),
    "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz",
    "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu",
    *(
        f"critic.{name}"
        for name in (
            "strategy",
            "use_dynamic_bsz",
            "ppo_max_token_len_per_gpu",
            "grad_clip",
            "ulysses_sequence_parallel_size",
            "forward_use_dynamic_bsz",
            "forward_max_token_len_per_gpu",
            "nccl_timeout",
            "ray_namespace",
        )
    ),
)
"""Keys of ``trainer_config`` that 0.6 takes from its own keys instead."""
LOSS = (
    *(
        f"actor_rollout_ref.actor.{name}"
        for name in (
            *("use_kl_loss", "loss_agg_mode", "clip_ratio", "clip_ratio_low", "clip_ratio_high"),
            *("entropy_coeff", "kl_loss_coef", "kl_loss_type"),
        )
    ),
    *(f"algorithm.{name}" for name in ("gamma", "lam", "adv_estimator", "norm_adv_by_std_in_grpo", "use_kl_in_reward")),
    "algorithm.kl_penalty",
    *(f"algorithm.kl_ctrl.{name}" for name in ("type", "kl_coef", "horizon", "target_kl")),
)
"""Parts of the loss in ``trainer_config`` that Trinity itself sets."""
OVERWRITTEN = (
    *(
        f"actor_rollout_ref.actor.{name}"
        for name in (
            "ppo_mini_batch_size",
            "ppo_infer_max_token_len_per_gpu",
            "rollout_n",
        )
    ),
    "actor_rollout_ref.ref.rollout_n",
    *(f"actor_rollout_ref.rollout.{name}" for name in ("temperature", "n")),
    *(f"critic.{name}" for name in ("enable", "ppo_mini_batch_size", "ppo_infer_max_token_len_per_gpu", "rollout_n")),
    *(
        f"trainer.{name}"
        for name in ("nnodes", "n_gpus_per_node", "save_freq", "test_freq", "sync_freq", "project_name")
    ),
    *(
        f"trainer.{name}"
        for name in (
            "group_name",
            "experiment_name",
            "default_local_dir",
            "total_epochs",
            "logger",
            "val_before_train",
            "val_generations_to_log_to_wandb",
            "training_rollout_mode",
            "enable_exp_buffer",
            "remove_previous_ckpt_in_save",
            "resume_mode",
            "resume_from_path",
        )
    ),
    "data.train_batch_size",
    "actor_rollout_ref.hybrid_engine",
    "actor_rollout_ref.actor.optim.warmup_style",
    "critic.optim.warmup_style",
)
"""Keys of ``trainer_config`` that Trinity itself sets, or has its own functions for."""
NOTES: tuple[Noted, ...] = (
    *dead(
        "deprecated; Trinity refuses or ignores it",
        "trainer.trainer_config_path",
        "explorer.runner_num",
    ),
    *dead("Trinity orders only the task sets of training", "*.*.*.task_selector", "*.*.*.task_selector.**"),
    *misleading("Trinity never computes it", "data_processor.task_pipeline.priority_weights.diversity"),
    *dead("Trinity sets it itself", "checkpoint_job_dir", "monitor.cache_dir", "log.save_dir", "cluster.total_gpu_num"),
    *dead(
        "Trinity sets it itself",
        "cluster.rollout_gpu_num",
        "cluster.explorer_gpu_num",
        "cluster.trainer_gpu_num",
        "buffer.cache_dir",
    ),
    *dead(
        "Trinity sets it itself",
        "buffer.tokenizer_path",
        "buffer.pad_token_id",
        "buffer.explorer_output.**",
        "explorer.mode",
    ),
    *misleading(
        "Trinity overwrites it with algorithm.repeat_times",
        *(f"{E}.{place}.{name}" for place in ("taskset", "tasksets.*") for name in ("repeat_times", "rollout_args.n")),
        instead="algorithm.repeat_times",
    ),
    *dead("Trinity sets it itself", f"{ROLL}.model_path"),
    *dead("Trinity sets it from trainer.total_steps", f"{TC}.actor_rollout_ref.actor.optim.total_training_steps"),
    *dead("Trinity sets it from trainer.total_steps", f"{TC}.critic.optim.total_training_steps"),
    # 0.5.2 trainer/verl/verl_config.py, synchronize_config; 0.6.0 trainer/verl/config.py, _MERGEABLE_KEYS
    *dead("Trinity sets it from trainer.total_steps", f"{TC}.trainer.total_training_steps", until="0.5"),
    # 0.5.2 trainer/verl/verl_config.py, synchronize_config; 0.6.0 trainer/verl/config.py, _deep_merge
    *(
        note
        for name, own in {**REPLACED, "optimizer": "optimizer_type", "clip_grad": "clip_grad"}.items()
        for note in misleading(
            "Trinity overwrites it with algorithm.optimizer; from 0.6 on, this key itself decides",
            f"{ACTOR}.optim.{name}",
            until="0.5",
            instead=f"algorithm.optimizer.{own}",
        )
    ),
    # 0.6.0 trainer/verl/config.py, FROZEN_KEYS
    *dead("Trinity ignores it since 0.6", *(f"{TC}.{name}" for name in FROZEN), since="0.6"),
    # 0.6.0 trainer/verl/config.py, _normalize_trainer_config and _MERGEABLE_KEYS
    *misleading("Trinity ignores it since 0.6", *(f"{TC}.{name}.**" for name in OBJECTIVE), since="0.6"),
    # 0.6.0 trainer/verl/config.py, _normalize_trainer_config and _MERGEABLE_KEYS
    *dead("Trinity ignores it since 0.6", *(f"{TC}.{name}.**" for name in GONE), since="0.6"),
    # 0.6.0 trainer/verl/config.py, _normalize_trainer_config
    *dead(
        "the same role under actor_rollout_ref decides",
        *(f"{TC}.{role}.**" for role in ("model", "actor", "ref", "rollout")),
        since="0.6",
    ),
    # 0.5.2 trainer/verl/verl_config.py, veRLConfig
    *dead(
        "Trinity 0.5 has these roles only under actor_rollout_ref and refuses the file",
        *(f"{TC}.{role}.**" for role in ("model", "actor", "ref", "rollout")),
        until="0.5",
    ),
    *misleading("Trinity sets it from its own keys", *(f"{TC}.{name}" for name in LOSS)),
    *dead("Trinity sets it from its own keys", *(f"{TC}.{name}" for name in OVERWRITTEN)),
    *dead(
        "the reference has neither gradients nor an optimizer",
        *(f"{TC}.actor_rollout_ref.ref.megatron.{name}" for name in ("grad_offload", "optimizer_offload")),
        *(f"{TC}.actor_rollout_ref.ref.fsdp_config.{name}" for name in ("optimizer_offload",)),
    ),
    *dead("read by other engines only", f"{ROLL}.use_v1"),
    *unsupported(
        "rlctl cannot prefill a response: remove it, or put it into the prompt",
        "buffer.explorer_input.taskset.format.reply_prefix",
        "buffer.explorer_input.tasksets.*.format.reply_prefix",
        "buffer.explorer_input.eval_tasksets.*.format.reply_prefix",
    ),
    *dead(
        "only Trinity's SFT and DPO read it, not its workflows",
        "buffer.explorer_input.taskset.format.prompt_type",
        "buffer.explorer_input.tasksets.*.format.prompt_type",
        "buffer.explorer_input.eval_tasksets.*.format.prompt_type",
    ),
    *carried(
        "how Trinity reads data",
        "*.*.*.format.**",
        "*.*.*.*.format.**",
        "*.*.*.enable_progress_bar",
        "*.*.*.*.enable_progress_bar",
    ),
    *carried(
        "how Trinity reads data",
        "*.*.*.schema_type",
        "*.*.*.max_retry_times",
        "*.*.*.max_retry_interval",
        "*.*.*.index",
    ),
    *carried("how Trinity reads data", "*.*.*.*.max_retry_times", "*.*.*.*.max_retry_interval", f"{E}.**"),
    *carried("how Trinity keeps experiences", "buffer.trainer_input.**"),
    *carried("arguments of Trinity's functions", "algorithm.advantage_fn_args", "algorithm.advantage_fn_args.**"),
    *carried("arguments of Trinity's functions", "algorithm.policy_loss_fn_args", "algorithm.policy_loss_fn_args.**"),
    *carried("arguments of Trinity's functions", "algorithm.kl_penalty_fn_args.**", "algorithm.kl_loss_fn_args.**"),
    *carried("arguments of Trinity's functions", "algorithm.entropy_loss_fn_args.**", "algorithm.kl_penalty_fn_args"),
    *carried("arguments of Trinity's functions", "algorithm.kl_loss_fn_args", "algorithm.entropy_loss_fn_args"),
    # 0.6.0 trainer/verl/config.py, _build_actor_config hands it on; trainer/verl/losses.py does not read it
    *misleading("Trinity does not use it yet", "algorithm.rollout_correction.**", since="0.6"),
    # 0.6.0 common/config.py, AlgorithmConfig
    *dead("an empty section", "algorithm.rollout_correction", since="0.6"),
    *carried("SFT warm-up of old Trinity releases", "algorithm.use_token_level_loss"),
    *carried("how many processes Data-Juicer works with; the rows are the same", "data_processor.*.num_process"),
    *carried("Trinity's data pipelines", "data_processor.**"),
    *carried(
        "adapters in Trinity's engines", "model.fully_sharded_loras", "model.max_cpu_loras", "model.lora_configs.**"
    ),
    *carried("adapters in Trinity's engines", "model.tinker.**", "model.external_model.**"),
    *carried("Trinity's engines", f"{ROLL}.**", "explorer.auxiliary_models.**"),
    *carried("the names of Trinity's Ray actors", "explorer.name", "trainer.name"),
    *carried(
        "Trinity's runners",
        "explorer.max_repeat_times_per_runner",
        "explorer.concurrent_mode",
    ),
    *carried(
        "Trinity's runners",
        "explorer.runner_prepare_concurrency",
        "explorer.runner_prepare_max_retries",
        "explorer.max_inflight_batches",
    ),
    *carried(
        "Trinity's service mode",
        "explorer.proxy_port",
        "explorer.listen_address",
        "explorer.service_status_check_interval",
    ),
    *carried("Trinity's service mode", "explorer.min_running_model_num", "explorer.db_url"),
    *carried(
        "Trinity's explorer",
        "explorer.over_rollout.**",
        "explorer.dynamic_timeout.**",
    ),
    *carried(
        "rlctl computes no entropy of the reference",
        f"{TC}.actor_rollout_ref.ref.entropy_checkpointing",
        f"{TC}.actor_rollout_ref.ref.entropy_from_logits_with_chunking",
    ),
    *carried("Trinity's trainer", f"{TC}.**", TC, "trainer.megatron.**", "trainer.trust_remote_code"),
    *carried(
        "Trinity's synchroniser",
        "synchronizer.wait_for_checkpoint",
        "synchronizer.group_name",
        "synchronizer.explorer_world_size",
    ),
    *carried(
        "Trinity's synchroniser",
        "synchronizer.ray_namespace",
    ),
    *carried("Trinity's monitor", "monitor.detailed_stats", "monitor.monitor_args", "monitor.monitor_args.**"),
    *carried("packing of tasks", "cod.**"),
    *carried("Trinity's services", "service.**"),
    *dead(
        "an empty section",
        "algorithm",
        "buffer",
        "cluster",
        "explorer",
        "model",
        "monitor",
        "trainer",
        "synchronizer",
        "log",
        "stages",
        f"{E}.taskset",
    ),
    *unsupported(
        "evaluates every checkpoint of the run, which only Trinity can do", "explorer.bench_on_latest_checkpoint"
    ),
    *unsupported(
        "the trainer would sync weights at different steps than the explorer; other frameworks have one interval for "
        "both",
        "synchronizer.trainer_sync_interval",
    ),
    *unsupported(
        "the explorer would sync weights at different steps than the trainer; other frameworks have one interval for "
        "both",
        "synchronizer.explorer_sync_interval",
    ),
    *unsupported("only Trinity starts a dashboard with the run", "monitor.dashboard"),
)
