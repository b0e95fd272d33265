"""The numbers of a canonical config under the names that ``drive_roll.py`` gives them, and the canonical keys that they hang on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rlctl.config import Config, to_plain
from rlctl.config.sections.agents import OtherAgent
from rlctl.planning import arithmetic
from tests.upstream import canonical_numbers as ours
from tests.upstream.drive_roll import STEPS

ROWS = 100_000
"""Rows of the data, for what is counted in epochs."""
SIZES = ("batch.prompts_per_step", "batch.mini_batch_responses", "batch.responses_per_prompt", "batch.ppo_epochs")
HANGS_ON: dict[str, tuple[str, ...]] = {
    "seed": ("run.seed",),
    "save every": ("checkpoint.every",),
    "evaluate every": ("schedule.evaluate_every",),
    "learning rate": ("train.optimizer.lr", "train.lr_scheduler", "schedule.total_", *SIZES),
    "gradient clip": ("train.optimizer.max_grad_norm",),
    "weight decay": ("train.optimizer.weight_decay",),
    "mini-batch": SIZES,
    "optimizer steps": SIZES,
    "responses a": SIZES,
    "micro-batch": ("batch.micro_batch",),
    "training": ("placement", "train.engine", "rollout.auxiliary_models"),
    "rollout GPUs": ("placement", "rollout.parallel", "rollout.auxiliary_models"),
    "clip": ("algorithm.policy_loss",),
    "dual": ("algorithm.policy_loss",),
    "aggregation": ("algorithm.loss_aggregation",),
    "KL in the loss": ("algorithm.kl_in_loss",),
    "KL in the reward": ("algorithm.kl_in_reward",),
    "entropy": ("algorithm.entropy_coefficient",),
    "gamma": ("algorithm.advantage",),
    "lambda": ("algorithm.advantage",),
    "reward": ("algorithm.advantage", "algorithm.reward_shaping"),
    "whitened": ("algorithm.advantage", "algorithm.reward_shaping"),
    "advantage": ("algorithm.reward_shaping",),
    "temperature": ("rollout.sampling",),
    "top_": ("rollout.sampling",),
    "held-out": ("data.eval",),
    "steps ahead": ("weight_sync",),
    "steps of": ("weight_sync",),
    "tokens": ("data.max_prompt_tokens", "data.max_sequence_tokens", "rollout"),
}
"""A number, by the start of its name, and the canonical keys without which it cannot be the same."""


def numbers(config: Config) -> dict[str, Any]:
    """What ROLL has to run; a number that has no equal in this config is left out."""
    objective, train = config.algorithm.objective.choice, config.train
    found: dict[str, Any] = {
        "seed": config.run.seed,
        "save every": _interval(config, config.checkpoint.every),
        "evaluate every": _interval(config, config.schedule.evaluate_every),
        "learning rate": train.optimizer.lr,
        "weight decay": train.optimizer.weight_decay,
        "gradient clip": train.optimizer.max_grad_norm,
        "training replicas": arithmetic.train_replicas(config),
        "training GPUs": arithmetic.train_devices(config),
        "mini-batch": arithmetic.mini_batch_responses(config),
    }
    if config.batch.micro_batch.unit == "responses":
        found["micro-batch"] = config.batch.micro_batch.size
    if objective != "rl":
        return found | {"tokens of a sequence": config.data.max_sequence_tokens}
    return found | _rl(config) | _algorithm(config)


def _rl(config: Config) -> dict[str, Any]:
    batch, rollout, data = config.batch, config.rollout, config.data
    sampling, agentic = rollout.sampling, bool(rollout.agents)
    each = arithmetic.optimizer_steps_per_step(config)
    found: dict[str, Any] = {
        "responses a step": arithmetic.responses_per_step(config),
        "responses a prompt": batch.responses_per_prompt,
        "optimizer steps a step": each,
        "ppo epochs": batch.ppo_epochs,
        "steps ahead": config.weight_sync.max_steps_ahead,
        "steps of a weight update": config.weight_sync.every,
        "rollout GPUs": arithmetic.rollout_devices(config),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or 0,
        "tokens of a sequence": data.max_prompt_tokens + rollout.max_response_tokens,
    }
    turns = [agent.max_turn_tokens for agent in rollout.agents if not isinstance(agent, OtherAgent)]
    if turns or not agentic:
        found["tokens of a turn"] = max(turns, default=rollout.max_response_tokens)
    steps = config.schedule.total_steps
    if steps is not None:
        found["steps"] = steps
        schedule, peak = config.train.lr_scheduler, config.train.optimizer.lr
        found["learning rates"] = ours.learning_rates(schedule, peak, steps, each, list(STEPS))
    if agentic:
        return found | {"environment groups": sum(source.max_samples for source in data.train)}
    found["tokens of a prompt"] = data.max_prompt_tokens
    if data.eval:
        held_out = data.eval[0]
        sampling = held_out.evaluation_sampling
        found["held-out temperature"], found["held-out top_p"] = sampling.temperature, sampling.top_p
        found["held-out top_k"], found["held-out responses"] = sampling.top_k or 0, held_out.responses_per_prompt
        found["held-out tokens"] = sampling.max_response_tokens or rollout.max_response_tokens
    return found


def _algorithm(config: Config) -> dict[str, Any]:
    algorithm = config.algorithm
    advantage, loss = to_plain(algorithm.advantage), to_plain(algorithm.policy_loss)
    shaping = algorithm.reward_shaping
    mean, deviation, name = shaping.normalize.mean, shaping.normalize.std, advantage["type"]
    if name == "grpo" or name == "gigpo":
        mean, deviation = "group", "group" if advantage["normalize_by_std"] else None
    elif name == "reinforce_plus_plus_baseline":
        mean = "group"
    found: dict[str, Any] = {
        "aggregation": algorithm.loss_aggregation.mode.replace("_", "-"),
        "KL in the loss": algorithm.kl_in_loss and algorithm.kl_in_loss.coefficient,
        "KL in the reward": algorithm.kl_in_reward and algorithm.kl_in_reward.coefficient,
        "entropy": algorithm.entropy_coefficient,
        "advantage clip": advantage["clip"],
        "reward clip": shaping.clip,
        "whitened rewards": shaping.whiten,
        "whitened advantages": bool(advantage["whiten"]),
        "gamma": advantage.get("gamma", advantage.get("args", {}).get("gamma", 1)),
        "reward mean": mean,
        "reward deviation": deviation,
    }
    if name == "gae":
        found["lambda"] = advantage["lambda"]
    clips = {"clip_low": "clip low", "clip_high": "clip high", "dual_clip": "dual clip"}
    fixed = loss["type"] == "cispo"  # ROLL's CISPO has its own clip, which no key changes
    return found | {own: loss[key] for key, own in clips.items() if key in loss and not fixed}


def _interval(config: Config, every: Any) -> int | None:
    return arithmetic.interval_in_steps(every, config, ROWS) or None


def differences(config: Config, theirs: Mapping[str, Any], lost: Iterable[str] = ()) -> list[str]:
    """Each number that both have and that is not the same, but for those that hang on a canonical key that is lost."""
    gone, found = list(lost), []
    for name, value in numbers(config).items():
        keys = next((keys for start, keys in HANGS_ON.items() if name.startswith(start)), ())
        excused = any(key.startswith(own) or own.startswith(f"{key}.") for key in gone for own in keys)
        if theirs.get(name, value) is None and name == "learning rates":
            continue  # Megatron's schedule is not in this environment
        if name in theirs and not excused and not same(value, theirs[name]):
            found.append(f"{name}: rlctl {value}, ROLL {theirs[name]}")
    return found


NEVER = 1_000_000
"""Steps between two evaluations that no run reaches: ROLL's SFT cannot be told to leave them out."""


def same(one: Any, other: Any) -> bool:
    """Equal, but for the last digits; no interval is ROLL's 0 or less, or one that no run reaches."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if one is None or other is None:
        return one == other or (isinstance(other, int) and not 0 < other < NEVER)
    if isinstance(one, float) or isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-14)
    return bool(one == other)
