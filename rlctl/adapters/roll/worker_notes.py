"""ROLL: keys of worker blocks without a rule: what ROLL passes over, sets itself, or has for itself alone."""

from __future__ import annotations

from rlctl.adapters.engine.rules import Noted, carried, dead, unsupported

CONFIG = "strategy_args.strategy_config"
TRAIN = ("actor_train", "critic", "sft_train", "student", "student_train")
INFER = ("actor_infer", "student_infer")
SCORE = ("reference", "teacher", "teacher.*")
MANAGERS = ("train_env_manager", "val_env_manager")
MORE = ("reward", "reward_model", "rewards.*", *MANAGERS)
LORA = tuple(f"model_args.lora_{name}" for name in ("target", "rank", "alpha", "dropout"))
POLICYS = ("pg_variant", "model_update_frequency", "topr_positive_weight", "topr_negative_weight")
ARGUMENTS = (
    *("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "lr_scheduler_type", "warmup_steps", "warmup_ratio"),
    *("lr_scheduler_kwargs.max_lr", "per_device_train_batch_size", "gradient_accumulation_steps"),
)
BATCHES = (
    *("use_dynamic_batching_in_train", "max_tokens_per_microbatch_in_train"),
    *("use_dynamic_batching_in_infer", "max_tokens_per_microbatch_in_infer", "use_sequence_packing"),
)
WORKERS = (*TRAIN, *INFER, *SCORE, *MORE)


def _each(workers: tuple[str, ...], *names: str) -> list[str]:
    return [f"{worker}.{name}" for worker in workers for name in names]


def _all(name: str) -> list[str]:
    return _each(WORKERS, name)


NOTES: tuple[Noted, ...] = (
    *dead("ROLL has no such key and ignores it; it reads attn_implementation", *_all("model_args.flash_attn")),
    *dead("ROLL has no such key and ignores it; it reads use_sequence_packing", *_all("use_remove_padding")),
    *dead("ROLL sets it to false itself", *_all("offload_nccl"), "offload_nccl"),
    *dead("ROLL names its workers itself", *_all("name")),
    *dead("ROLL derives it from device_mapping", *_all("world_size")),
    *dead("ROLL sets it from model_args.dtype", *_all("training_args.bf16"), *_all("training_args.fp16")),
    *dead(
        "nothing in ROLL reads it",
        *_all("model_args.adapter_name_or_path"),
        *_all("training_args.tf32"),
        *_all("training_args.data_seed"),
    ),
    *dead(
        "ROLL reads it only for a value model",
        *_each((*TRAIN, *INFER, *SCORE), "model_args.model_type", "model_args.num_labels"),
    ),
    *dead(
        "without a backward pass there is nothing to recompute",
        *_each((*INFER, *SCORE), "model_args.disable_gradient_checkpointing"),
    ),
    *dead(
        "the rollout engine has its own settings",
        *_each(
            INFER,
            "model_args.attn_implementation",
            "model_args.model_config_kwargs.**",
            "model_args.freeze_module_prefix",
        ),
        *_each(INFER, "model_args.ulysses_size", "model_args.device_map", "infer_batch_size", "training_args.**"),
        *_each(INFER, "model_args.gradient_checkpointing_use_reentrant", "model_args.lora_dropout"),
    ),
    *dead(
        "only training has gradients",
        *_each(SCORE, "training_args.**", "model_args.freeze_module_prefix", f"{CONFIG}.reduce_dtype"),
        *_each(SCORE, f"{CONFIG}.accumulate_allreduce_grads_in_fp32", f"{CONFIG}.optimizer"),
    ),
    *dead(
        "a reference model only computes log-probs",
        *_each(
            SCORE,
            "use_dynamic_batching_in_train",
            "max_tokens_per_microbatch_in_train",
            "sequence_length_round_in_train",
        ),
        *_each(SCORE, "sequence_packing_args.max_packed_sequence_length_train"),
        *_each(SCORE, "sequence_packing_args.min_num_micro_batches_train"),
    ),
    *dead(
        "ROLL does not pass this sampling setting to vLLM",
        *_each(INFER, "generating_args.do_sample", "generating_args.max_length"),
    ),
    *dead("ROLL sets it itself from the lengths", *_each(INFER, "generating_args.max_new_tokens")),
    *dead("the run's max_grad_norm decides", *_all(f"{CONFIG}.max_grad_norm")),
    *dead(
        "ROLL never passes it to Megatron's optimizer",
        *_all(f"{CONFIG}.optimizer_cpu_offload"),
        *_all(f"{CONFIG}.optimizer_offload_fraction"),
    ),
    *dead("ROLL does not pass this setting to Megatron's DDP", *_all(f"{CONFIG}.ddp_average_in_collective")),
    *dead("ROLL removed this key", *_all(f"{CONFIG}.use_batched_model_update")),
    *unsupported(
        "a length penalty applies to beam search only, which other frameworks don't have for rollout",
        *_each(INFER, "generating_args.length_penalty"),
    ),
    *unsupported(
        "in other frameworks, the reference uses the policy's attention implementation",
        *_each(SCORE, "model_args.attn_implementation"),
    ),
    *unsupported(
        "in other frameworks, all roles share the policy's model settings",
        *_each(("critic", *SCORE), "model_args.model_config_kwargs.**"),
    ),
    *unsupported(
        "other frameworks cannot train modules in full alongside adapters", *_all("model_args.additional_target")
    ),
    *unsupported(
        "in other frameworks, the dtype of adapters cannot be set", *_all("model_args.autocast_adapter_dtype")
    ),
    *unsupported("other frameworks have one load-balancing loss for all roles", *_all("model_args.moe_aux_loss_coef")),
    *unsupported(
        "sets how FSDP2 groups modules; affects memory and speed, not results",
        *_all(f"{CONFIG}.wrap_policy.moe_experts"),
        *_all(f"{CONFIG}.wrap_policy.wrap_embeddings"),
        *_all(f"{CONFIG}.wrap_policy.wrap_lm_output"),
        *_all(f"{CONFIG}.efsdp_size"),
        *_all(f"{CONFIG}.reduce_scatter_during_grad_accumulation"),
    ),
    *unsupported(
        "selects one of ROLL's kernels; affects memory and speed, not results",
        *_all(f"{CONFIG}.apply_tiled_mlp"),
        *_all(f"{CONFIG}.tiled_num_shards"),
        *_all(f"{CONFIG}.model_type"),
        *_all(f"{CONFIG}.apply_expert_patch"),
        *_all(f"{CONFIG}.moe_use_grouped_mm"),
        *_all(f"{CONFIG}.compile_warmup"),
        *_all(f"{CONFIG}.delay_grad_reduce"),
        *_all(f"{CONFIG}.sequence_packing"),
    ),
    *unsupported(
        "with Megatron this key overrides training_args; set it in training_args instead",
        *(key for name in ARGUMENTS for key in _all(f"{CONFIG}.{name}")),
    ),
    *unsupported("only ROLL can compute the logits in float32", *_all("logits_in_fp32")),
    *unsupported(
        "sets how packed sequences are spread over micro-batches; results don't change",
        *_all("sequence_packing_args.**"),
    ),
    *unsupported("the target cannot replay the experts that rollout chose", *_all("router_replay.mode")),
    *unsupported("other frameworks have no training mode for multi-token prediction", *_all("mtp_training_mode")),
    *unsupported("other frameworks always scale the loss to the whole batch", *_all("apply_loss_scale")),
    *carried(
        "sequence packing in passes that don't train; results don't change",
        *_each(("reference", "teacher", "teacher.*"), "use_sequence_packing"),
    ),
    *carried("device placement while a model loads", *_all("model_args.device_map")),
    *carried("data-loading processes", *_all("training_args.dataloader_num_workers")),
    *carried("one of ROLL's classes", *_all("worker_cls")),
    *carried(
        "batching and placement of a reward worker",
        *(f"rewards.*.{name}" for name in ("data_args.**", "model_args.**", "strategy_args.**", "generating_args.**")),
        *(f"rewards.*.{name}" for name in ("device_mapping", "infer_batch_size", "reward_type", "format_pattern")),
    ),
    *carried("concurrent calls of a worker", *_all("max_concurrency")),
    *carried("timeout of a role's process group, in minutes", *_all("backend_timeout")),
    *unsupported(
        "lengths are rounded up for kernels in dynamic batching; results don't change",
        *_all("sequence_length_round_in_train"),
        *_all("sequence_length_round_in_infer"),
    ),
    *carried(
        "sets how ROLL writes checkpoints",
        *_all(f"{CONFIG}.async_save_ckpt"),
        *_all(f"{CONFIG}.save_only_model"),
        *_all(f"{CONFIG}.save_hf_model"),
        *_all(f"{CONFIG}.save_merged_model"),
        *_all(f"{CONFIG}.ckpt_d2h_non_blocking"),
        *_all(f"{CONFIG}.distrib_optim_fully_reshardable"),
        *_all(f"{CONFIG}.distrib_optim_fully_reshardable_mem_efficient"),
        *_all("training_args.save_hf_model"),
    ),
    *unsupported(
        "other frameworks build the critic from the policy's kind of model",
        *_each(("critic",), "model_args.attn_implementation", "model_args.freeze_module_prefix", *LORA),
    ),
    *dead("only the policy has adapters", *_each(SCORE, *LORA)),
    *dead(
        "without a backward pass there is nothing to recompute",
        *_each(SCORE, "model_args.gradient_checkpointing_use_reentrant"),
    ),
    *dead("read only by workers that generate", *_each((*TRAIN, *SCORE), "generating_args.**")),
    *dead("ROLL reads only the training data's keys", *_each(("critic", *INFER, *SCORE), "data_args.**")),
    *dead("ROLL gives each worker of this role one device", *_each((*TRAIN, *SCORE), "num_gpus_per_worker")),
    *dead("read only by teachers", *_each((*TRAIN, *INFER, "reference"), "opd_kl_coef", "tag_included")),
    *dead(
        "read only by the policy's worker",
        *_each(("critic", *INFER, *SCORE, *MANAGERS, "sft_train", "student"), *POLICYS),
    ),
    *dead("read only by workers that train or score", *_each((*INFER, *MANAGERS), *BATCHES)),
    *dead("ROLL's critic batches by responses, not tokens", *_each(("critic",), *BATCHES[:2])),
    *dead(
        "an environment manager has no model, data or device",
        *_each(MANAGERS, "model_args.**", "training_args.**", "data_args.**", "strategy_args.**", "device_mapping"),
        *_each(MANAGERS, "num_gpus_per_worker", "infer_batch_size", "opd_kl_coef", "tag_included"),
    ),
)
"""Keys of all workers that no rule reads; what is said first holds."""
