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
    *dead("ROLL has no such key and drops it; attn_implementation is read", *_all("model_args.flash_attn")),
    *dead("ROLL has no such key and drops it; use_sequence_packing is read", *_all("use_remove_padding")),
    *dead("ROLL sets it to false itself", *_all("offload_nccl"), "offload_nccl"),
    *dead("ROLL names its workers itself", *_all("name")),
    *dead("ROLL counts it from device_mapping", *_all("world_size")),
    *dead("ROLL sets it from model_args.dtype", *_all("training_args.bf16"), *_all("training_args.fp16")),
    *dead(
        "nothing in ROLL reads it",
        *_all("model_args.adapter_name_or_path"),
        *_all("training_args.tf32"),
        *_all("training_args.data_seed"),
    ),
    *dead(
        "ROLL reads it of a value model only",
        *_each((*TRAIN, *INFER, *SCORE), "model_args.model_type", "model_args.num_labels"),
    ),
    *dead(
        "nothing is recomputed without a backward pass",
        *_each((*INFER, *SCORE), "model_args.disable_gradient_checkpointing"),
    ),
    *dead(
        "the rollout engine has settings of its own",
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
        "a reference only scores",
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
        "vLLM is handed no such sampling setting",
        *_each(INFER, "generating_args.do_sample", "generating_args.max_length"),
    ),
    *dead("ROLL sets it itself from the lengths", *_each(INFER, "generating_args.max_new_tokens")),
    *dead("max_grad_norm of the run decides", *_all(f"{CONFIG}.max_grad_norm")),
    *dead(
        "ROLL never hands it to Megatron's optimizer",
        *_all(f"{CONFIG}.optimizer_cpu_offload"),
        *_all(f"{CONFIG}.optimizer_offload_fraction"),
    ),
    *dead("ROLL hands Megatron's DDP no such setting", *_all(f"{CONFIG}.ddp_average_in_collective")),
    *dead("ROLL has no such key any more", *_all(f"{CONFIG}.use_batched_model_update")),
    *unsupported("weight of a beam's length", *_each(INFER, "generating_args.length_penalty")),
    *unsupported("a reference with attention of its own", *_each(SCORE, "model_args.attn_implementation")),
    *unsupported(
        "a role with settings of its model of its own", *_each(("critic", *SCORE), "model_args.model_config_kwargs.**")
    ),
    *unsupported("further modules trained in full beside adapters", *_all("model_args.additional_target")),
    *unsupported("adapters in the type of the model", *_all("model_args.autocast_adapter_dtype")),
    *unsupported("a balance loss of a role of its own", *_all("model_args.moe_aux_loss_coef")),
    *unsupported(
        "how FSDP2 groups modules; memory and speed, not the numbers",
        *_all(f"{CONFIG}.wrap_policy.moe_experts"),
        *_all(f"{CONFIG}.wrap_policy.wrap_embeddings"),
        *_all(f"{CONFIG}.wrap_policy.wrap_lm_output"),
        *_all(f"{CONFIG}.efsdp_size"),
        *_all(f"{CONFIG}.reduce_scatter_during_grad_accumulation"),
    ),
    *unsupported(
        "a kernel of ROLL's own; memory and speed, not the numbers",
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
        "Megatron takes it over that of training_args; say it there",
        *(key for name in ARGUMENTS for key in _all(f"{CONFIG}.{name}")),
    ),
    *unsupported("logits in float32", *_all("logits_in_fp32")),
    *unsupported(
        "how packed sequences are spread over micro-batches; no number changes", *_all("sequence_packing_args.**")
    ),
    *unsupported("experts chosen in rollout are kept in training", *_all("router_replay.mode")),
    *unsupported("how multi-token prediction is trained", *_all("mtp_training_mode")),
    *unsupported("a loss that is not scaled to the whole batch", *_all("apply_loss_scale")),
    *carried("where a model's layers are put when it is loaded", *_all("model_args.device_map")),
    *carried("processes that load data", *_all("training_args.dataloader_num_workers")),
    *carried("a class of ROLL's", *_all("worker_cls")),
    *carried(
        "how a reward's worker is fed and placed",
        *(f"rewards.*.{name}" for name in ("data_args.**", "model_args.**", "strategy_args.**", "generating_args.**")),
        *(f"rewards.*.{name}" for name in ("device_mapping", "infer_batch_size", "reward_type", "format_pattern")),
    ),
    *carried("calls that a worker answers at once", *_all("max_concurrency")),
    *carried("a role's wait for its peers, in minutes", *_all("backend_timeout")),
    *unsupported(
        "lengths are rounded up for kernels in dynamic batching; no number changes",
        *_all("sequence_length_round_in_train"),
        *_all("sequence_length_round_in_infer"),
    ),
    *carried(
        "how ROLL saves",
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
        "the critic with a model of its own kind",
        *_each(("critic",), "model_args.attn_implementation", "model_args.freeze_module_prefix", *LORA),
    ),
    *dead("the policy's adapters are all there are", *_each(SCORE, *LORA)),
    *dead(
        "nothing is recomputed without a backward pass",
        *_each(SCORE, "model_args.gradient_checkpointing_use_reentrant"),
    ),
    *dead("only what generates reads it", *_each((*TRAIN, *SCORE), "generating_args.**")),
    *dead("only the training data's keys are read", *_each(("critic", *INFER, *SCORE), "data_args.**")),
    *dead("ROLL gives each worker of this role one device", *_each((*TRAIN, *SCORE), "num_gpus_per_worker")),
    *dead("only a teacher reads it", *_each((*TRAIN, *INFER, "reference"), "opd_kl_coef", "tag_included")),
    *dead(
        "only the policy's worker reads it",
        *_each(("critic", *INFER, *SCORE, *MANAGERS, "sft_train", "student"), *POLICYS),
    ),
    *dead("only workers that train or score batch so", *_each((*INFER, *MANAGERS), *BATCHES)),
    *dead("ROLL's critic trains in batches of responses", *_each(("critic",), *BATCHES[:2])),
    *dead(
        "an environment manager has no model, data or device",
        *_each(MANAGERS, "model_args.**", "training_args.**", "data_args.**", "strategy_args.**", "device_mapping"),
        *_each(MANAGERS, "num_gpus_per_worker", "infer_batch_size", "opd_kl_coef", "tag_included"),
    ),
)
"""Keys of all workers that no rule reads; what is said first holds."""
