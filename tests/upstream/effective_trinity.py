"""The effective numbers of a config that Trinity's validators updated, from its object, in the units of ``formulas.py``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from formulas import NEVER, ROUNDS, bound, kl, rounds_told

Rates = Callable[[list[int]], list[float]]
BASELINES = {
    "ppo": ("critic", None, True),
    "grpo": ("group", "group", False),
    "rloo": ("leave one out", None, False),
    "reinforceplusplus": (None, None, True),
    "remax": ("greedy", None, False),
    "reinforce": (None, None, False),
}


def numbers(config: Any, told: dict[str, Any], rows: int, rates: Rates) -> dict[str, Any]:
    """The numbers of a run that explores and trains; of the others only the kind.

    Args:
        config: after ``check_and_update``.
        told: what the driver's ``effective`` says of the functions and the engine.
        rows: of the training data.
        rates: the driver's function for the learning rate at trainer steps.
    """
    kind = config.algorithm.algorithm_type
    if config.mode not in ("both", "colocate") or kind in ("sft", "dpo", "cpt", "mix", "mix_chord"):
        return _supervised(config, told, rates) if kind in ("sft", "dpo") else {"kind": config.mode}
    buffer, sync, model = config.buffer, config.synchronizer.sync_interval, config.model
    task = buffer.explorer_input.tasksets[0]
    drawn, engine = task.rollout_args, told["engine"]
    responses = buffer.batch_size * config.algorithm.repeat_times
    by_tokens = bool(engine["dynamic"])
    updates = responses * sync / buffer.train_batch_size
    rounds = _rounds(config, rows, updates)
    saved, evaluated = config.trainer.save_interval, config.explorer.eval_interval
    held_out = buffer.explorer_input.eval_tasksets
    found: dict[str, Any] = {
        "kind": "rl",
        "model": model.model_path,
        "prompts a round": buffer.batch_size * sync,
        "responses a prompt": config.algorithm.repeat_times,
        "responses an update": buffer.train_batch_size,
        "passes over a round": engine["ppo_epochs"],
        "rounds": rounds,
        "micro-batches by": "tokens" if by_tokens else "responses",
        "prompt tokens": model.max_prompt_tokens,
        "response tokens": model.max_response_tokens,
        "temperature": drawn.temperature,
        "top_p": drawn.top_p,
        "top_k": max(drawn.top_k or 0, 0),
        "training temperature": engine["train_temperature"],
        "save every (rounds)": saved / updates if 0 < saved < NEVER else None,
        "evaluate every (rounds)": evaluated / sync if 0 < evaluated < NEVER else None,
        "training data": sorted(str(one.path) for one in buffer.explorer_input.tasksets),
        "training devices": config.cluster.trainer_gpu_num,
        "tensor parallel of an engine": config.explorer.rollout_model.tensor_parallel_size,
        "learning rate": engine["learning_rate"],
        "weight decay": engine["weight_decay"],
        "gradient clip": engine["max_grad_norm"],
        "betas": engine["betas"],
        "learning rates": _rates(updates, rounds, rates),
        "shuffled data": task.data_selector.selector_type in ("shuffle", "random"),
    }
    if by_tokens:
        found["tokens of a micro-batch"] = engine["tokens"] * (
            engine.get("sequence_parallel") or engine["parallel"]["context"]
        )
    else:
        found["responses of a micro-batch"] = engine["micro_batch"]
    if held_out and found["evaluate every (rounds)"]:
        first = held_out[0]
        found |= {
            "evaluation data": sorted(str(one.path) for one in held_out),
            "evaluates first": bool(config.explorer.eval_on_startup),
            "evaluation temperature": first.rollout_args.temperature,
            "evaluation top_p": first.rollout_args.top_p,
            "evaluation top_k": max(first.rollout_args.top_k or 0, 0),
            "evaluation responses": first.repeat_times,
        }
    if critic := engine.get("critic"):
        found |= {
            "critic learning rate": critic["learning_rate"],
            "critic weight decay": critic["weight_decay"],
            "critic gradient clip": critic["max_grad_norm"],
            "critic passes": critic["ppo_epochs"],
            "critic warm-up (rounds)": max(0, engine["critic_warmup"] - 1) / updates,  # the first trainer step is 1
            "value clip": bound(critic["clip"]),
        }
    found["old log-probs"] = {"rollout": "rollout", "recompute": "recomputed"}[engine["old_log_probs"]]
    return found | _algorithm(told) | _parts(engine) | _adapter(model)


def _supervised(config: Any, told: dict[str, Any], rates: Rates) -> dict[str, Any]:
    """The numbers of SFT and DPO."""
    kind, engine = config.algorithm.algorithm_type, told["engine"]
    found: dict[str, Any] = {
        "kind": kind,
        "model": config.model.model_path,
        "learning rate": engine["learning_rate"],
        "weight decay": engine["weight_decay"],
        "gradient clip": engine["max_grad_norm"],
        "betas": engine["betas"],
        "training data": [str(config.buffer.trainer_input.experience_buffer.path)],
        **_adapter(config.model),
    }
    if kind == "dpo":
        return found | {"pull to the reference": told["policy_loss"]["beta"]}
    return found | {
        "rows an update": config.buffer.train_batch_size,
        "tokens of a row": config.model.max_model_len,
        "learning rates": rates(list(ROUNDS)),
    }


def _parts(engine: dict[str, Any]) -> dict[str, Any]:
    """Devices that share a copy of the trained model."""
    if "parallel" in engine:
        return {f"{name} parallel": size for name, size in engine["parallel"].items()}
    return {"sequence parallel": engine["sequence_parallel"]}


def _adapter(model: Any) -> dict[str, Any]:
    """LoRA, unless its weights say it."""
    first = (model.lora_configs or [None])[0]
    if first is None:
        return {"LoRA rank": 0}
    return {} if first.path and not first.is_dummy else {"LoRA rank": first.lora_rank, "LoRA alpha": first.lora_alpha}


def _rounds(config: Any, rows: int, updates: float) -> float:
    """``TaskScheduler.max_steps``, or the trainer's limit where that comes first."""
    buffer = config.buffer
    explored = buffer.total_steps or rows * buffer.total_epochs // buffer.batch_size
    limits = [explored / config.synchronizer.sync_interval]
    if updates >= 1:  # what is left when the explorer ends is no batch: QueueStorage.get_batch
        limits = [math.floor(limits[0] * updates + 1e-9) / updates]
    if config.trainer.total_steps:
        limits.append(config.trainer.total_steps / updates)
    return min(limits)


def _algorithm(told: dict[str, Any]) -> dict[str, Any]:
    name, loss = told["advantage"]["name"], told["policy_loss"]
    in_loss, in_reward = told["kl_loss"], told["kl_penalty"]
    found: dict[str, Any] = {
        "KL in the loss": kl(in_loss["name"], in_loss.get("kl_coef")) if in_loss["name"] != "none" else None,
        "KL in the reward": None,
        "entropy": told["entropy_loss"].get("entropy_coef") or 0.0 if told["entropy_loss"]["name"] != "none" else 0.0,
        "aggregation": loss.get("loss_agg_mode", told["aggregation"]),
    }
    if in_reward["name"] != "none" and told["advantage_in_trainer"]:
        found["KL in the reward"] = kl(in_reward["name"], in_reward.get("kl_coef"))
    if name in BASELINES and loss["name"] != "sft":  # which reads no advantages
        baseline, deviation, whitened = BASELINES[name]
        if name == "grpo" and told["advantage"].get("std_cal_level") == "batch":
            deviation = "batch"
        found |= {"baseline": baseline, "deviation": deviation, "whitened advantages": whitened}
    if name == "ppo":
        found |= {"gamma": told["advantage"]["gamma"], "lambda": told["advantage"]["lam"]}
    found["ratio"] = {"ppo": "token", "gspo": "sequence"}.get(loss["name"], loss["name"])
    if loss["name"] in ("ppo", "gspo"):
        found["clip low"], found["clip high"] = loss["clip_range_low"], loss["clip_range_high"]
        found["dual clip"] = bound(loss.get("clip_ratio_c")) if loss["name"] == "ppo" else None
    return found


def _rates(updates: float, rounds: float, rates: Rates) -> list[float] | None:
    """The rate of a round's first update: the scheduler moves once a trainer step."""
    ticks = [one * updates for one in rounds_told(rounds)]
    return rates([int(tick) for tick in ticks]) if all(float(tick).is_integer() for tick in ticks) else None
