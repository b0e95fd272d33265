"""verl: keys without a rule: those that mean something only in verl, and those that verl itself does not read."""

from __future__ import annotations

from rlctl.adapters.engine.rules import Noted, carried, dead, misleading, unsupported
from rlctl.adapters.verl import legacy_rewards
from rlctl.adapters.verl.asynchronous import HYBRID
from rlctl.common.messages.reasons import said
from rlctl.common.records import record

A = "actor_rollout_ref.actor"
R = "actor_rollout_ref.rollout"
M = "actor_rollout_ref.model"
C = "algorithm.rollout_correction"

HYDRA = [
    *dead(
        "Hydra's own settings",
        "hydra",
        "hydra.**",
        "defaults",
        "defaults.**",
        "optim@optim",
        "model@model",
        "searchpath",
    ),
    *dead(
        "verl's class for this block",
        "_target_",
        "*._target_",
        "*.*._target_",
        "*.*.*._target_",
        "*.*.*.*._target_",
    ),
    *dead("verl's class for this block", "*.*.*.*.*._target_", "*.*.*.*.*.*._target_"),
]
DEAD = [
    # 0.8.0 workers/engine/fsdp/transformer_impl.py, optimizer_step
    *(
        note
        for root in (A, "critic")
        for note in misleading(
            "verl accepts it and reads optim.clip_grad instead",
            f"{root}.grad_clip",
            since="0.8",
            instead=f"{root}.optim.clip_grad",
        )
    ),
    *dead("verl never reads it", "data.return_raw_input_ids", f"{R}.over_sample_rate"),
    # 0.7.1 workers/fsdp_workers.py, _build_model_optimizer reads it; 0.8.0 workers/config/actor.py alone has it
    *misleading("verl never reads it", f"{A}.freeze_vision_tower", since="0.8"),
    # 0.7.1 and 0.8.0 workers/config/rollout.py alone have it; 0.9.1 workers/rollout/vllm_rollout/vllm_async_server.py
    *misleading("verl never reads it", f"{R}.ignore_eos", "rollout.ignore_eos", since="0.7", until="0.8"),
    *dead(
        "verl never reads it",
        f"{R}.multi_turn.num_repeat_rollouts",
        "actor_rollout_ref.nccl_timeout",
        "critic.nccl_timeout",
    ),
    *dead("verl's sampling uses the temperature; 0 is greedy", f"{R}.do_sample", f"{R}.val_kwargs.do_sample"),
    *dead("verl no longer reads it", "critic.forward_micro_batch_size", "critic.forward_micro_batch_size_per_gpu"),
    *dead("verl no longer reads it", "critic.forward_max_token_len_per_gpu", f"{R}.multi_stage_wake_up"),
    *dead(
        "verl sets it itself",
        f"{A}.rollout_n",
        "actor_rollout_ref.ref.rollout_n",
        "critic.rollout_n",
        f"{A}.use_fused_kernels",
    ),
    *dead("verl sets it itself", f"{A}.use_remove_padding"),
    # 0.8.0 trainer/ppo/ray_trainer.py and experimental/fully_async_policy/fully_async_trainer.py assert it
    *dead("each of verl's trainers accepts one value only", HYBRID, until="0.8"),
    *(
        note
        for name in ("tau_pos", "tau_neg")
        for note in misleading(
            "verl reads tau_pos and tau_neg of the actor itself", f"{A}.policy_loss.{name}", instead=f"{A}.{name}"
        )
    ),
    *dead("removed in verl 0.5", f"{R}.use_fire_sampling"),
    *dead("verl's engines always answer asynchronously since 0.7", f"{R}.mode"),
    *dead("removed; the agent loop replaces it", f"{R}.multi_turn.completion_callback", f"{R}.chat_scheduler"),
    # 0.7.0 experimental/agent_loop/tool_agent_loop.py; nothing imports workers/rollout/schemas.py
    *dead(
        "verl's agent loop has one way to join turns since 0.7",
        f"{R}.multi_turn.use_inference_chat_template",
        f"{R}.multi_turn.tokenization_sanity_check_mode",
        since="0.7",
    ),
    # 0.6.0 workers/config/rollout.py alone has it
    *dead("verl starts its engines' servers itself since 0.6", f"{R}.agent.custom_async_server.**", since="0.6"),
    *dead(
        "verl sets it itself",
        f"{A}.fsdp_config.strategy",
        f"{A}.fsdp_config.forward_only",
        "*.*.fsdp_config.forward_only",
    ),
    *dead(
        "verl sets it itself",
        "*.*.fsdp_config.strategy",
        "critic.fsdp.strategy",
        "critic.fsdp.forward_only",
        "engine.forward_only",
    ),
    *dead("verl sets it itself", "critic.model.fsdp_config.strategy", "critic.model.fsdp_config.forward_only"),
    *dead("verl's rollout always receives the messages; verl no longer reads this key", "data.return_raw_chat"),
    *dead(
        "use_remove_padding of the model block decides", "*.*.megatron.use_remove_padding", "engine.use_remove_padding"
    ),
    *dead("never implemented in verl", "data.balance_dp_token"),
    *dead(
        "the reference computes no entropy",
        "actor_rollout_ref.ref.entropy_checkpointing",
        "actor_rollout_ref.ref.entropy_from_logits_with_chunking",
        "actor_rollout_ref.ref.entropy_from_logits_chunk_size",
        "actor_rollout_ref.ref.fsdp_config.entropy_checkpointing",
        "actor_rollout_ref.ref.fsdp_config.entropy_from_logits_with_chunking",
        "actor_rollout_ref.ref.fsdp_config.entropy_from_logits_chunk_size",
    ),
]
CARRIED = [
    # 0.9.1 trainer/ppo/v1/trainer_separate_async.py
    *carried("whether engines of separate_async also start on the GPUs that train", HYBRID, since="0.9"),
    *carried("the type of buffers under FSDP", "*.*.fsdp_config.mixed_precision.buffer_dtype"),
    *carried("old spelling of the tool's key", f"{A}.profiler.discrete", "actor_rollout_ref.ref.profiler.discrete"),
    *carried("old spelling of tokenization_sanity_check_mode", f"{R}.multi_turn.enable_tokenization_sanity_check"),
    *carried("each reward model is held whole on one device, not sharded", "reward_model.model.fsdp_config.**"),
    *carried(
        "how fast verl's reward model computes; the scores are the same",
        *(f"reward_model.model.{name}" for name in ("use_remove_padding", "use_fused_kernels", "use_shm")),
    ),
    *carried("reward models are loaded with the modules of model.import_modules", "reward_model.model.external_lib"),
    *carried(
        "a further column for code of your own in verl", "data.return_full_prompt", "data.return_multi_modal_inputs"
    ),
    *carried(
        "verl's image settings", "data.image_patch_size", "data.mm_processor_kwargs", "data.mm_processor_kwargs.**"
    ),
    *carried("verl's sampler and generator classes", "data.sampler.**", "data.datagen.**", "data.continuous_token.**"),
    *carried(
        "verl's SFT columns", "data.prompt_dict_keys", "data.response_dict_keys", "data.multiturn.enable_thinking_key"
    ),
    *carried(
        "verl's SFT columns",
        "data.enable_thinking_key",
        "data.enable_thinking_default",
    ),
    *carried("how verl pads rows", f"{A}.pad_to_length", "*.*.pad_to_length", "*.*.*.pad_to_length"),
    *carried(
        "how verl pads rows",
        "*.*.*.pad_to_length_bucket",
        "*.*.pad_to_length_bucket",
        "*.pad_to_length",
        "*.pad_to_length_bucket",
    ),
    *carried("quantization-aware training", f"{A}.qat.**", "*.*.*.qat.**", "*.*.qat.**", "*.qat.**", f"{R}.qat"),
    *carried("an old device or checkpoint layout setting", "*.*.checkpoint.strict", "*.*.checkpoint.mbridge_config"),
    *carried("an old device or checkpoint layout setting", "*.*.checkpoint.mbridge_config.**", "critic.checkpoint.**"),
    *carried(
        "profiling of verl's tools", "*.*.profiler.**", "critic.profiler.**", "profiler.**", "trainer.npu_profile.**"
    ),
    *carried(
        "profiling of verl's tools",
        "global_profiler.**",
        "trainer.profile_interval",
        "reward_model.profiler.**",
        "trainer.profile_steps",
    ),
    *carried("tracing of rollouts", f"{R}.trace.**", f"{R}.prometheus.**"),
    *carried("disaggregated prefill and decoding", f"{R}.disaggregation.**"),
    *carried("speculative decoding follows the model block", f"{R}.mtp", f"{R}.mtp.**"),
    *carried("verl's transfer queue", "transfer_queue.**"),
    *carried(
        "stand-ins that verl uses for debugging", "skip.**", f"{R}.skip_rollout", f"{R}.skip_dump_dir", f"{R}.skip.**"
    ),
    *carried("applies only to elastic instances of verl's cloud setup", "trainer.esi_redundant_time"),
    *carried("verl's choice of trainer", "trainer.use_v1", "trainer.use_legacy_worker_impl", "trainer.v1.**"),
    *carried("verl's reward loop", "reward.**", "reward_model.**", "reward_manager.**", "sandbox_fusion.**"),
    *carried(
        "a detail of verl's engines",
        f"{R}.cudagraph_capture_sizes",
        f"{R}.logprobs_mode",
        f"{R}.scheduling_policy",
    ),
    *carried(
        "a detail of verl's engines",
        f"{R}.skip_tokenizer_init",
        f"{R}.full_determinism",
        f"{R}.quantization_config_file",
        f"{R}.limit_images",
    ),
    *carried(
        "a detail of verl's engines",
        f"{R}.moe_load_balance_metrics_interval",
        f"{R}.enable_rollout_routing_replay",
    ),
    *carried("verl's turns and tools", f"{R}.multi_turn.**"),
    *carried("LoRA weights gathered layer by layer for the weight sync", f"{R}.layered_summon"),
    *carried("how verl transfers weights", f"{R}.checkpoint_engine.**"),
    *carried(
        "a detail of verl's models", f"{M}.hf_config_path", f"{M}.tiled_mlp.**", f"{M}.lora.**", "critic.model.**"
    ),
    *carried("affects metrics only", f"{A}.calculate_entropy"),
    *carried("metrics; rlctl computes what the token baselines need", f"{A}.calculate_sum_pi_squared"),
    *carried(
        "how verl replays expert routing", f"{A}.router_replay.**", "*.*.router_replay.**", "*.*.*.router_replay.**"
    ),
    *carried("an internal setting of verl's optimizers", "*.*.optim.**", "critic.optim.**", "optim.**"),
    *carried("a detail of verl's FSDP engine", "*.*.fsdp_config.**", "critic.fsdp.**", "engine.**"),
    *carried("a detail of verl's Megatron engine", "*.*.megatron.**", "critic.megatron.**"),
    *carried("chunk size of the entropy", "*.*.entropy_from_logits_chunk_size"),
    *carried("limits on how often verl refills filtered groups", "algorithm.filter_groups.**"),
    *carried("loss scale of the critic", "critic.loss_scale_factor"),
    *carried("the reference's own model", "actor_rollout_ref.ref.model"),
    # 0.7.1 experimental/fully_async_policy/config/fully_async_ppo_trainer.yaml
    *carried("one of verl's trainers", "async_training.**", since="0.7", free=True),
    # 0.5.0 recipe/one_step_off_policy/config/one_step_off_ppo_trainer.yaml
    *carried("one of verl's trainers", "rollout.**", since="0.5", free=True),
]
RECIPES = [
    *carried(
        "a setting of one of verl's recipes",
        *(f"data.{name}" for name in ("accuracy_lower_bound", "accuracy_upper_bound", "filter_accuracy")),
        *("data.filter_truncate", "data.oversample_factor", "algorithm.reward_dpo_coef", "algorithm.reward_gt_coef"),
        *("algorithm.sppo_eta", "trainer.log_freq", "trainer.ref_update_freq", f"{A}.dpo_beta", f"{A}.sppo_eta"),
        *("reward_model.model.**", "reward_model.reward_kwargs.**", f"{A}.sac.**", f"{A}.dtype"),
        *(f"env.{name}" for name in ("train.**", "eval.**", "actor.**", "rollout.pipeline_stage_num", "disagg_sim.**")),
        *(f"{A}.replay_pool_{name}" for name in ("capacity", "save_dir", "save_interval")),
        *(f"{A}.{name}" for name in ("critic_warmup_steps", "num_images_in_input", "traj_mini_batch_size")),
        "actor_rollout_ref.ref.dtype",
        free=True,
    ),
    *carried(
        "settings of a third-party engine",
        *(f"engine.{name}" for name in ("tp", "pp", "vpp", "ep", "cp", "etp", "attention_backend_override")),
        *("engine.impl_cfg.**", "actor_rollout_ref.ref.engine.**", "critic.engine.**"),
        free=True,
    ),
    *carried(
        "a detail of verl's engines",
        *(f"{R}.{name}" for name in ("moe_tensor_parallel_size", "trust_remote_code", "single_turn_response_length")),
        *(f"{R}.{name}" for name in ("enable_sleep_mode", "standalone_gpu_memory_utilization", "sglang_rollout_mode")),
        *(f"{R}.server.**", f"{M}.lora.fully_sharded_loras", "trainer.worker_env.**"),
        free=True,
    ),
    *carried("multi-token prediction in verl's rollout, which responses do not depend on", f"{R}.mtp.**", free=True),
    *carried("the reference's own model", "actor_rollout_ref.ref.model.override_config.**", free=True),
    *dead("verl never reads it", f"{M}.torch_dtype", f"{M}.enable_activation_offloading"),
    *dead("verl never reads it", f"{A}.fsdp_config.grad_offload"),
    *misleading(
        "verl never reads it", "reward.overlong_buffer.**", instead="reward.reward_kwargs.overlong_buffer_cfg.**"
    ),
]
UNSUPPORTED = [
    *unsupported(
        "only verl counts these tools' descriptions toward the prompt length when it filters overlong prompts",
        "data.tool_config_path",
        "data.function_tool_path",
    ),
    *unsupported(
        "rows name these agent loops, which only verl can run; rewrite each as an agent of type function",
        f"{R}.agent.agent_loop_config_path",
    ),
    # 0.7.1 experimental/agent_loop/tool_agent_loop.py
    *unsupported(
        "verl 0.8 removed simulated users: a conversation ends with the model's first answer without a call",
        f"{R}.multi_turn.interaction_config_path",
        until="0.7",
    ),
    # 0.5.0 experimental/agent_loop/agent_loop.py and workers/rollout/async_server.py
    *unsupported(
        "only verl can run this class, which replaces its engine servers",
        f"{R}.agent.custom_async_server.**",
        until="0.5",
    ),
    # 0.4.0 workers/rollout/sglang_rollout/sglang_rollout.py
    *carried("how SGLang joins messages", f"{R}.multi_turn.format", since="0.4", until="0.4"),
    # 0.6.1 workers/rollout/schemas.py
    *carried(
        "how two renderings of a conversation are compared; rlctl keeps the generated tokens and counts differences",
        f"{R}.multi_turn.use_inference_chat_template",
        f"{R}.multi_turn.tokenization_sanity_check_mode",
        until="0.6",
    ),
    # 0.7.0 trainer/ppo/ray_trainer.py
    *unsupported(
        "only verl can run this class, which replaces its agent loops",
        f"{R}.agent.agent_loop_manager_class",
        since="0.7",
    ),
    *unsupported(
        "only verl can choose whether to load a checkpoint that lacks weights",
        "*.*.checkpoint.strict",
        "critic.checkpoint.strict",
    ),
    *unsupported(
        "only verl can choose whether turn-by-turn rendering may differ from rendering the whole conversation",
        "data.ignore_input_ids_mismatch",
    ),
    *unsupported("only verl can pad all rows to one length", "data.pad_mode"),
    *carried(
        "the overlong penalty as a separate metric",
        "reward.reward_kwargs.overlong_buffer_cfg.log",
        "reward_model.overlong_buffer.log",
    ),
    # 0.4.0 workers/reward_manager/dapo.py; 0.3.0 has no such file
    *dead("verl 0.3 has no overlong penalty", "reward_model.reward_kwargs.overlong_buffer_cfg.log", until="0.3"),
    # 0.4.0 workers/reward_manager/dapo.py
    *carried(
        "the overlong penalty as a separate metric", "reward_model.reward_kwargs.overlong_buffer_cfg.log", since="0.4"
    ),
    *unsupported(
        "verl's script composes the config from this option; pass the composed config instead",
        "--config-name",
        "--config-path",
        "--config-dir",
    ),
]
NOTES: tuple[Noted, ...] = (*HYDRA, *legacy_rewards.NOTES, *DEAD, *UNSUPPORTED, *CARRIED, *RECIPES)


@record
class Ignored:
    """Keys that a newer release accepts and ignores, or reads in another way, without a word."""

    key: str
    since: str
    message: str


LATER_IGNORED: tuple[Ignored, ...] = (
    *[
        Ignored(f"{root}.**", "0.9", said("score with verl's default instead and silently accept {root}", root=root))
        for root in ("custom_reward_function", "reward_model", "sandbox_fusion")
    ],
    *[
        Ignored(key, "0.8", "clip gradients at optim.clip_grad, 1.0 by default, and silently accept the key")
        for key in (f"{A}.grad_clip", "critic.grad_clip")
    ],
    *[
        Ignored(
            f"algorithm.rollout_is{end}", "0.7", "correct nothing: with '+' verl accepts the key and never reads it"
        )
        for end in ("", "_threshold", "_threshold_lower", "_level", "_mode", "_veto_threshold")
    ],
    *[
        Ignored(f"{C}.{name}", "0.8", "drop this part of the correction")
        for name in ("rollout_token_veto_threshold", "use_policy_gradient", "rollout_rs_threshold_lower")
    ],
    Ignored(f"{R}.val_kwargs.do_sample", "0.7", "sample by the temperature only"),
    Ignored(f"{R}.mode", "0.7", "always run asynchronously"),
    Ignored("reward_model.launch_reward_fn_async", "0.7", "always score responses as they finish"),
)
"""What makes an upgrade by hand go wrong in silence."""
