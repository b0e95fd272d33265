"""The effective numbers of a config that verl composed, from its own objects and functions, in the units of ``formulas.py``."""

from __future__ import annotations

import json
from typing import Any

import workers_verl
from formulas import ROUNDS, bound, kl, megatron_rate, rounds_told

SUMMED = {"sapo": "seq-mean-token-mean"}
"""Losses that do not follow ``loss_agg_mode``: ``core_algos.py``."""
ESTIMATORS = {
    "gae": ("critic", None, True),
    "grpo": ("group", "group", False),
    "grpo_vectorized": ("group", "group", False),
    "grpo_passk": ("pass-at-k", "group", False),
    "reinforce_plus_plus": (None, None, True),
    "reinforce_plus_plus_baseline": ("group", None, True),
    "rloo": ("leave one out", None, False),
    "rloo_vectorized": ("leave one out", None, False),
    "remax": ("greedy", None, False),
}
"""Baseline, what the deviation is taken over, and whether advantages are whitened: ``core_algos.py``."""


def numbers(cfg: Any, question: dict[str, Any], rates: Any) -> dict[str, Any]:
    """The numbers of the RL trainer.

    Args:
        cfg: the composed config, after ``validate_config``.
        question: the rows of the training data.
        rates: the driver's function for FSDP's learning rates.
    """
    part, data, trainer = cfg.actor_rollout_ref, cfg.data, cfg.trainer
    actor, rollout = part.actor, part.rollout
    found = _batch(cfg, question["rows"]) | _algorithm(cfg)
    limits = [data.max_prompt_length, data.max_response_length]
    held_out = rollout.val_kwargs
    every = [trainer.save_freq, trainer.test_freq]
    found |= {
        "kind": "rl",
        "model": part.model.path,
        "prompt tokens": limits[0],
        "response tokens": limits[1],
        "temperature": rollout.temperature,
        "top_p": rollout.top_p,
        "top_k": max(rollout.top_k, 0),
        "training temperature": rollout.temperature,
        "evaluation temperature": held_out.temperature,  # nothing reads do_sample: agent_loop.py
        "evaluation top_p": held_out.top_p,
        "evaluation top_k": max(held_out.top_k, 0),
        "evaluation responses": held_out.n,
        "save every (rounds)": every[0] if every[0] > 0 else None,
        "evaluate every (rounds)": every[1] if every[1] > 0 else None,
        "training data": _files(data.train_files),
        "training devices": trainer.nnodes * trainer.n_gpus_per_node,
        "tensor parallel of an engine": rollout.tensor_model_parallel_size,
        "shuffled data": bool(data.shuffle),
        "old log-probs": "rollout" if cfg.algorithm.rollout_correction.bypass_mode else "recomputed",
        **_parts(actor),
        **_adapter(part.model, actor.strategy),
    }
    if every[1] > 0:
        found["evaluation data"] = _files(data.val_files)
        found["evaluates first"] = bool(trainer.val_before_train)
    optim = actor.optim
    found["learning rate"], found["weight decay"] = optim.lr, optim.weight_decay
    found["gradient clip"], found["betas"] = optim.clip_grad, _floats(optim.betas)
    if found.get("baseline") == "critic":
        critic = cfg.critic
        found |= {
            "critic learning rate": critic.optim.lr,
            "critic weight decay": critic.optim.weight_decay,
            "critic gradient clip": critic.optim.clip_grad,
            "critic passes": critic.ppo_epochs,
            "critic warm-up (rounds)": max(0, trainer.critic_warmup - 1),  # the first round is 1
            "value clip": bound(critic.cliprange_value),
        }
    found["learning rates"] = _rates(cfg, actor, found["rounds"], rates)
    return found


def supervised(cfg: Any, rows: int, rates: Any) -> dict[str, Any]:
    """The numbers of the SFT trainer."""
    optim, size = cfg.optim, cfg.data.train_batch_size
    steps = cfg.trainer.total_training_steps or rows // size * cfg.trainer.total_epochs
    return {
        "kind": "sft",
        "model": cfg.model.path,
        "rows an update": size,
        "tokens of a row": cfg.data.max_length,
        "training data": _files(cfg.data.train_files),
        "learning rate": optim.lr,
        "weight decay": optim.weight_decay,
        "gradient clip": optim.clip_grad,
        "betas": _floats(optim.betas),
        "learning rates": rates(optim, steps, list(ROUNDS))
        if cfg.engine.get("strategy") in ("fsdp", "fsdp2")
        else None,
    }


def _parts(actor: Any) -> dict[str, Any]:
    """Devices that share a copy of the trained model."""
    if actor.strategy != "megatron":
        return {"sequence parallel": workers_verl.sharing(actor)} if actor.strategy.startswith("fsdp") else {}
    block = actor.megatron
    return {f"{name} parallel": block[f"{name}_model_parallel_size"] for name in ("tensor", "pipeline")} | {
        "context parallel": block.context_parallel_size
    }


def _adapter(model: Any, strategy: str) -> dict[str, Any]:
    """LoRA: FSDP's engine reads the flat keys, Megatron's the block."""
    if model.get("lora_adapter_path") or (model.get("lora") or {}).get("adapter_path"):
        return {}  # the adapter's own config says it
    block = (
        (model.get("lora") or {}) if strategy == "megatron" else {"rank": model.lora_rank, "alpha": model.lora_alpha}
    )
    rank = block.get("rank") or 0
    return {"LoRA rank": rank} | ({"LoRA alpha": block["alpha"]} if rank else {})


def _floats(value: Any) -> list[float]:
    """A list, also where a quoted override made it text."""
    return [float(item) for item in (json.loads(value) if isinstance(value, str) else value)]


def _is_fully(cfg: Any) -> bool:
    """Whether the fully asynchronous trainer runs, which has no batch."""
    return cfg.get("async_training") is not None and not cfg.data.train_batch_size


def _updates(cfg: Any) -> int:
    """Calls of ``update_actor`` between two syncs."""
    if _is_fully(cfg):
        return int(cfg.async_training.trigger_parameter_sync_step)
    trainer = cfg.trainer.get("v1") or {}
    if trainer.get("trainer_mode") != "separate_async":
        return 1
    return int(trainer.separate_async.parameter_sync_step)


def _batch(cfg: Any, rows: int) -> dict[str, Any]:
    actor, rollout = cfg.actor_rollout_ref.actor, cfg.actor_rollout_ref.rollout
    size, mini = cfg.data.train_batch_size, actor.ppo_mini_batch_size
    steps = cfg.trainer.total_training_steps
    if _is_fully(cfg):
        size = mini * cfg.async_training.require_batches * _updates(cfg)
        most = rows * cfg.trainer.total_epochs
        steps, epochs = None, min(cfg.rollout.total_rollout_steps or most, most) // size
    else:
        epochs = rows // size * cfg.trainer.total_epochs
    by_tokens = bool(actor.use_dynamic_bsz)
    found = {
        "prompts a round": size,
        "responses a prompt": rollout.n,
        "responses an update": mini * rollout.n,
        "passes over a round": actor.ppo_epochs,
        "rounds": min(steps, epochs) if steps else epochs,
        "micro-batches by": "tokens" if by_tokens else "responses",
    }
    if by_tokens:
        found["tokens of a micro-batch"] = actor.ppo_max_token_len_per_gpu * workers_verl.sharing(actor)
    else:
        found["responses of a micro-batch"] = actor.ppo_micro_batch_size_per_gpu
    return found


def _algorithm(cfg: Any) -> dict[str, Any]:
    actor, algorithm = cfg.actor_rollout_ref.actor, cfg.algorithm
    name = str(getattr(algorithm.adv_estimator, "value", algorithm.adv_estimator))
    mode = actor.policy_loss.get("loss_mode", "vanilla")
    found: dict[str, Any] = {
        "KL in the loss": kl(actor.kl_loss_type, actor.kl_loss_coef if actor.use_kl_loss else None),
        "KL in the reward": kl(
            algorithm.kl_penalty, algorithm.kl_ctrl.kl_coef if algorithm.get("use_kl_in_reward") else None
        ),
        "entropy": actor.entropy_coeff or 0.0,
        "aggregation": SUMMED.get(mode, actor.loss_agg_mode),
    }
    if name in ESTIMATORS:
        baseline, deviation, whitened = ESTIMATORS[name]
        if name.startswith("grpo") and not algorithm.get("norm_adv_by_std_in_grpo", True):
            deviation = None
        found |= {"baseline": baseline, "deviation": deviation, "whitened advantages": whitened}
    if name == "gae":
        found |= {"gamma": algorithm.gamma, "lambda": algorithm.lam}
    found["ratio"] = {"vanilla": "token", "gspo": "sequence", "gpg": "policy gradient"}.get(mode, mode)
    if mode in ("vanilla", "gspo"):
        low, high = actor.clip_ratio_low, actor.clip_ratio_high
        found["clip low"] = actor.clip_ratio if low is None else low
        found["clip high"] = actor.clip_ratio if high is None else high
        found["dual clip"] = bound(actor.clip_ratio_c) if mode == "vanilla" else None
    return found


def _rates(cfg: Any, actor: Any, rounds: int, fsdp: Any) -> list[float] | None:
    """The rate of a round's first update: the scheduler moves once for each ``update_actor``."""
    optim, each = actor.optim, _updates(cfg)
    ticks = [tick * each for tick in rounds_told(rounds)]
    rounds *= 1 if _is_fully(cfg) else each  # the fully asynchronous trainer gives the scheduler its own steps
    if actor.strategy in ("fsdp", "fsdp2"):
        found: list[float] = fsdp(optim, rounds, ticks)
        return found
    if actor.strategy != "megatron":
        return None
    warmup = optim.lr_warmup_steps
    if warmup is None or warmup <= 0:
        warmup = int((optim.lr_warmup_steps_ratio or 0.0) * rounds)
    total = optim.get("lr_decay_steps") or rounds
    style, least = optim.lr_decay_style, optim.get("min_lr") or 0.0
    start = optim.get("lr_warmup_init") or 0.0
    return [megatron_rate(style, optim.lr, least, warmup, total, tick, start) for tick in ticks]


def _files(value: Any) -> list[str]:
    return [] if value is None else [str(value)] if isinstance(value, str) else sorted(map(str, value))
