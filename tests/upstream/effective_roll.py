"""The effective numbers of a config that ROLL's class accepted, from its object, in the units of ``formulas.py``."""

from __future__ import annotations

import math
from typing import Any

import workers_roll
from formulas import NEVER, kl, megatron_rate, rounds_told

GRADIENT_WORKERS = (
    "roll.pipeline.rlvr.actor_pg_worker.ActorPGWorker",
    "roll.pipeline.agentic.agentic_actor_pg_worker.ActorWorker",
)
"""Workers of which ``pg_variant`` is the loss."""
MEGATRON = {"constant_with_warmup": "constant", "inverse_sqrt": "inverse-square-root", "cosine_with_min_lr": "cosine"}


def numbers(kind: str, config: Any) -> dict[str, Any]:
    """The numbers of RLVR and agentic pipelines; of the others only the kind."""
    if kind in ("sft", "dpo"):
        return _supervised(kind, config)
    if kind not in ("rlvr", "agentic"):
        return {"kind": kind}
    worker, actor = config.actor_train, config.actor_infer
    arguments, agentic = worker.training_args, kind == "agentic"
    ranks = workers_roll.replicas(worker)
    group = config.train_env_manager.group_size if agentic else config.num_return_sequences_in_group
    responses = config.rollout_batch_size if agentic else config.rollout_batch_size * group
    each = worker.model_update_frequency or 1
    mini = arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps * ranks
    updates = max(1, responses * config.ppo_epochs // mini)
    drawn = actor.generating_args
    by_tokens = bool(worker.use_dynamic_batching_in_train)
    found: dict[str, Any] = {
        "kind": "rl",
        "model": worker.model_args.model_name_or_path,
        "prompts a round": responses // group * each,
        "responses a prompt": group,
        "responses an update": mini,
        "passes over a round": config.ppo_epochs,
        "rounds": config.max_steps / each,
        "micro-batches by": "tokens" if by_tokens else "responses",
        "response tokens": drawn.max_new_tokens,
        "temperature": drawn.temperature,
        "top_p": drawn.top_p,
        "top_k": max(drawn.top_k or 0, 0),
        "training temperature": 1.0,
        "save every (rounds)": config.save_steps / each if 0 < config.save_steps < NEVER else None,
        "evaluate every (rounds)": config.eval_steps / each if 0 < config.eval_steps < NEVER else None,
        "training devices": len(worker.device_mapping),
        "learning rate": arguments.learning_rate,
        "weight decay": arguments.weight_decay,
        "gradient clip": config.max_grad_norm,
        "betas": [arguments.adam_beta1, arguments.adam_beta2],
        "learning rates": _rates(config, worker, updates * each, updates * config.max_steps),
        "shuffled data": True,
    }
    if by_tokens:
        found["tokens of a micro-batch"] = worker.max_tokens_per_microbatch_in_train
    else:
        found["responses of a micro-batch"] = arguments.per_device_train_batch_size
    engine = actor.strategy_args
    alone = engine.strategy_config.get("tensor_parallel_size", 1)
    found["tensor parallel of an engine"] = actor.num_gpus_per_worker if engine.strategy_name == "sglang" else alone
    # without the pass, those of the step's only update are kept: what the pass would give
    found["old log-probs"] = "at each update" if config.force_disable_old_logprobs_recompute else "recomputed"
    found |= _parts(worker) | _adapter(worker.model_args)
    return found | _algorithm(config, agentic) | (_agentic(config) if agentic else _verifiable(config))


def _supervised(kind: str, config: Any) -> dict[str, Any]:
    """The numbers of SFT and DPO."""
    worker = config.sft_train if kind == "sft" else config.actor_train
    arguments = worker.training_args
    found = {
        "kind": kind,
        "model": worker.model_args.model_name_or_path,
        "learning rate": arguments.learning_rate,
        "weight decay": arguments.weight_decay,
        "gradient clip": config.max_grad_norm,
        "betas": [arguments.adam_beta1, arguments.adam_beta2],
        "training data": sorted(_listed(worker.data_args.file_name)),
        **_adapter(worker.model_args),
    }
    if kind == "dpo":
        return found | {"pull to the reference": config.beta}
    size = arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps
    return found | {
        "rows an update": size * workers_roll.replicas(worker),
        "tokens of a row": config.sequence_length,
    }


def _listed(value: Any) -> list[str]:
    return [] if not value else [value] if isinstance(value, str) else list(value)


def _parts(worker: Any) -> dict[str, Any]:
    """Devices that share a copy of the trained model."""
    name, settings = worker.strategy_args.strategy_name, worker.strategy_args.strategy_config or {}
    if name.startswith("fsdp2"):
        return {"sequence parallel": worker.model_args.ulysses_size or 1}
    names = {"tensor": "tensor_model", "pipeline": "pipeline_model", "context": "context"}
    return {f"{own} parallel": settings.get(f"{key}_parallel_size", 1) for own, key in names.items()}


def _adapter(model: Any) -> dict[str, Any]:
    """LoRA: without targets there is none."""
    if model.lora_target is None:
        return {"LoRA rank": 0}
    return {"LoRA rank": model.lora_rank, "LoRA alpha": model.lora_alpha}


def _verifiable(config: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "prompt tokens": config.prompt_length,
        "training data": sorted(config.actor_train.data_args.file_name or []),
    }
    validation = config.validation
    if validation and validation.data_args and 0 < config.eval_steps < NEVER:
        drawn = validation.generating_args
        found |= {
            "evaluation temperature": drawn.temperature,
            "evaluation top_p": drawn.top_p,
            "evaluation top_k": max(drawn.top_k or 0, 0),
            "evaluation responses": drawn.num_return_sequences,
            "evaluation data": sorted(validation.data_args.file_name or []),
            "evaluates first": True,  # step 0 is a multiple of eval_steps
        }
    return found


def _agentic(config: Any) -> dict[str, Any]:
    drawn = config.val_env_manager.generating_args or config.actor_infer.generating_args
    return {
        "evaluation temperature": drawn.temperature,
        "evaluation top_p": drawn.top_p,
        "evaluation top_k": max(drawn.top_k or 0, 0),
        "environments": sorted(config.train_env_manager.tags),
    }


def _algorithm(config: Any, agentic: bool) -> dict[str, Any]:
    ranged = config.use_pg_clip_range
    found: dict[str, Any] = {
        "KL in the loss": kl("k3", config.kl_loss_coef if config.use_kl_loss else None),
        "KL in the reward": kl(config.kl_penalty, config.init_kl_coef if config.add_token_level_kl else None),
        "entropy": config.entropy_loss_coef or 0.0,
        "aggregation": config.loss_agg_mode,
        "reward clip": config.reward_clip or None,
        "advantage clip": config.advantage_clip or None,
        "whitened advantages": bool(config.whiten_advantages),
    }
    if agentic:
        shaping = config.reward_normalization
        baseline, deviation = shaping.norm_mean_type, shaping.norm_std_type
        ratio = {"token": "token", "segment": "sequence"}[config.ratio_type]
    else:
        grouped = config.adv_estimator == "grpo"
        baseline = "group" if grouped else config.norm_mean_type
        deviation = "group" if grouped else config.norm_std_type
        ratio = {"token": "token", "seq": "sequence"}[config.importance_sampling]
    found["ratio"] = _variant(config.actor_train) or ratio
    if found["ratio"] in ("token", "sequence"):
        found |= {
            "clip low": config.pg_clip_low if ranged else config.pg_clip,
            "clip high": config.pg_clip_high if ranged else config.pg_clip,
            "dual clip": 1 + 2 * config.pg_clip if config.dual_clip_loss else None,
        }
    if config.adv_estimator == "gae":
        baseline, critic = "critic", config.critic.training_args
        found |= {
            "gamma": config.gamma,
            "lambda": config.lambd,
            "critic learning rate": critic.learning_rate,
            "critic weight decay": critic.weight_decay,
            "critic gradient clip": config.max_grad_norm,
            "critic passes": 1,  # rlvr_pipeline.py calls the critic's train_step without epochs
            "critic warm-up (rounds)": config.critic_warmup,
            "value clip": config.value_clip,
        }
    return found | {"baseline": baseline, "deviation": deviation}


def _variant(worker: Any) -> str | None:
    """The loss of a policy-gradient worker; ``ppo`` is that of the other workers."""
    if worker.worker_cls not in GRADIENT_WORKERS:
        return None
    return {"ppo": "token", "vanilla": "policy gradient"}.get(worker.pg_variant, worker.pg_variant)


def _rates(config: Any, worker: Any, round_updates: int, total: int) -> list[float] | None:
    """The rate of a round's first update: the scheduler moves once an update."""
    import torch
    from transformers import get_scheduler

    arguments, name = worker.training_args, worker.strategy_args.strategy_name
    warmup = arguments.warmup_steps if arguments.warmup_steps > 0 else math.ceil(total * arguments.warmup_ratio)
    ticks = [one * round_updates for one in rounds_told(total / round_updates)]
    style = arguments.lr_scheduler_type
    if name.startswith("megatron"):
        style = MEGATRON.get(style, style)
        return [megatron_rate(style, arguments.learning_rate, 0.0, warmup, total, tick) for tick in ticks]
    if not name.startswith("fsdp2"):
        return None
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=arguments.learning_rate)
    made = get_scheduler(style, optimizer, num_warmup_steps=warmup, num_training_steps=total)
    return [made.lr_lambdas[0](tick) * arguments.learning_rate for tick in ticks]
