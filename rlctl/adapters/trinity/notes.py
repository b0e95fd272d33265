"""Trinity: keys without a rule: those that mean something only in Trinity, and those that Trinity sets or ignores itself."""

from __future__ import annotations

from rlctl.adapters.rules import Noted, carried, dead, unsupported

ROLL = "explorer.rollout_model"
TC = "trainer.trainer_config"
E = "buffer.explorer_input"

NOTES: tuple[Noted, ...] = (
    *dead(
        "deprecated; Trinity refuses or ignores it",
        "trainer.trainer_config_path",
        "explorer.runner_num",
        "*.*.*.task_selector.**",
    ),
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
    *dead(
        "Trinity overwrites it with algorithm.repeat_times", f"{E}.taskset.repeat_times", f"{E}.tasksets.*.repeat_times"
    ),
    *dead(
        "Trinity sets it itself", f"{E}.taskset.rollout_args.n", f"{E}.tasksets.*.rollout_args.n", f"{ROLL}.model_path"
    ),
    *dead(
        "Trinity sets it from the settings above it",
        f"{TC}.*.*.total_training_steps",
        f"{TC}.*.*.optim.total_training_steps",
    ),
    *dead(
        "Trinity sets it from algorithm.optimizer",
        f"{TC}.actor_rollout_ref.actor.optim.**",
        f"{TC}.critic.optim.total_training_steps",
    ),
    *dead(
        "Trinity sets it from its own keys",
        f"{TC}.actor_rollout_ref.actor.grad_clip",
        f"{TC}.actor_rollout_ref.actor.use_dynamic_bsz",
    ),
    *dead("Trinity sets it from its own keys", f"{TC}.actor_rollout_ref.actor.ppo_max_token_len_per_gpu"),
    *dead("Trinity sets it from its own keys", f"{TC}.actor_rollout_ref.actor.ulysses_sequence_parallel_size"),
    *dead(
        "Trinity sets it from its own keys",
        f"{TC}.actor_rollout_ref.actor.ppo_mini_batch_size",
        f"{TC}.actor_rollout_ref.hybrid_engine",
    ),
    *dead(
        "Trinity sets it from its own keys",
        f"{TC}.actor_rollout_ref.rollout.temperature",
        f"{TC}.actor_rollout_ref.rollout.n",
    ),
    *dead("deprecated in Trinity", f"{TC}.trainer.remove_previous_ckpt_in_save"),
    *dead("read by other engines only", f"{ROLL}.use_v1"),
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
    *carried(
        "Trinity accepts it and does not yet use it", "algorithm.rollout_correction", "algorithm.rollout_correction.**"
    ),
    *carried("SFT warm-up of old Trinity", "algorithm.use_token_level_loss"),
    *carried("Trinity's data pipelines", "data_processor", "data_processor.**"),
    *carried(
        "adapters in Trinity's engines", "model.fully_sharded_loras", "model.max_cpu_loras", "model.lora_configs.**"
    ),
    *carried("adapters in Trinity's engines", "model.tinker.**", "model.external_model.**"),
    *carried("Trinity's engines", f"{ROLL}.**", "explorer.auxiliary_models.**"),
    *carried(
        "Trinity's runners",
        "explorer.max_repeat_times_per_runner",
        "explorer.concurrent_mode",
        "explorer.name",
        "trainer.name",
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
        "explorer.bench_on_latest_checkpoint",
        "explorer.over_rollout.**",
        "explorer.dynamic_timeout.**",
    ),
    *carried("which trainer Trinity runs", "trainer.trainer_type"),
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
        "synchronizer.explorer_sync_interval",
        "synchronizer.trainer_sync_interval",
    ),
    *carried("Trinity's monitor", "monitor.detailed_stats", "monitor.monitor_args", "monitor.monitor_args.**"),
    *carried("packing of tasks", "cod.**"),
    *carried("Trinity's services", "service", "service.**"),
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
    *unsupported("Trinity would show its own dashboard", "monitor.dashboard"),
)
