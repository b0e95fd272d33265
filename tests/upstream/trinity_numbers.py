"""What a canonical config says of the numbers that ``drive_trinity.py`` tells: each with its own meaning, written out once more."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rlctl.config import Config
from rlctl.config.fields import Interval
from rlctl.planning import arithmetic
from rlctl.runtime.train.schedule import curve_of

KL = {"k1": "k1", "k2": "k2", "abs": "abs", "low_var_kl": "k3", "k3": "k3_unclamped", "corrected_k3": "k3_corrected"}
ADVANTAGES = {
    "ppo": "gae",
    "grpo": "grpo",
    "rloo": "rloo",
    "reinforceplusplus": "reinforce_plus_plus",
    "reinforce": "reinforce",
    "remax": "remax",
    "opmd": "opmd",
}
LOSSES = {
    "ppo": "ppo_clip",
    "gspo": "gspo",
    "cispo": "cispo",
    "sapo": "sapo",
    "topr": "topr",
    "importance_sampling": "policy_gradient",
}
LOSS_FIELDS = {
    "ppo_clip": {"clip_low": "clip_range_low", "clip_high": "clip_range_high"},
    "gspo": {"clip_low": "clip_range_low", "clip_high": "clip_range_high"},
    "sapo": {"tau_positive": "tau_pos", "tau_negative": "tau_neg"},
}
ORDERS = {"easy_to_hard": "offline_easy2hard", "difficulty": "difficulty_based"}
NEVER = 1_000_000

Pair = tuple[str, Any, Any]


LOST = {
    "loss": "algorithm.policy_loss",
    "advantage": "algorithm.advantage",
    "engine": "train.engine",
    "tensor": "rollout.parallel.tensor_parallel_size",
    "learning rate": "train.lr_scheduler",
    "critic": "critic",
    "sync ahead": "weight_sync.max_steps_ahead",
}
"""The canonical keys of numbers that Trinity cannot always say."""


def differences(
    config: Config, told: dict[str, Any], unsupported: Sequence[str] = (), *, rows: int | None = None
) -> list[str]:
    """Every number in which a canonical config and what Trinity would run differ, but for those that were said to be lost.

    With ``rows`` of the data set the epochs of the config are the steps they come to, and those are compared.
    """
    found = [pair for pair in _pairs(config, told, rows) if pair[1] != pair[2]]
    lost = {
        name for name, key in LOST.items() if any(item == key or item.startswith(f"{key}.") for item in unsupported)
    }
    kinds = [(name.partition(" at ")[0], name, ours, theirs) for name, ours, theirs in found]
    return [f"{name}: rlctl {ours!r}, Trinity {theirs!r}" for kind, name, ours, theirs in kinds if kind not in lost]


def _pairs(config: Config, told: dict[str, Any], rows: int | None) -> Iterator[Pair]:
    if config.algorithm.objective.choice in ("sft", "dpo"):
        yield "train batch", config.batch.prompts_per_step, told["train_batch"]
        yield from _save(config, told, 1.0)
    else:
        yield from _batch(config, told, rows)
        yield from _rollout(config, told)
    if config.algorithm.objective.choice == "rl":
        yield from _algorithm(config, told)
    yield from _devices(config, told)
    if told["engine"]:
        yield from _engine(config, told, told["engine"])


def _batch(config: Config, told: dict[str, Any], rows: int | None) -> Iterator[Pair]:
    batch, sync = config.batch, told["sync_interval"] or 1
    online = told["mode"] in ("both", "colocate")
    prompts = told["tasks"] * sync // config.weight_sync.every
    yield "prompts a step", batch.prompts_per_step, prompts
    yield "responses a prompt", batch.responses_per_prompt, told["responses"]
    if told["mode"] != "bench":
        yield "mini-batch", arithmetic.mini_batch_responses(config), told["train_batch"]
    each = batch.prompts_per_step * batch.responses_per_prompt / _drawn(config)
    if online:
        yield (
            "sync ahead",
            config.weight_sync.max_steps_ahead * sync / config.weight_sync.every,
            float(told["sync_offset"]),
        )
        yield "sync style", config.weight_sync.style, told["sync_style"]
    yield from _save(config, told, each)
    yield from _length(config, told, each, rows)
    if config.data.eval and online:
        every = config.schedule.evaluate_every
        explore = None if every is None else _steps(config, every) * sync / config.weight_sync.every
        theirs = told["eval_interval"]
        yield "evaluate every", explore, None if theirs >= NEVER else float(theirs)
        yield "evaluate first", config.schedule.evaluate_at_start, told["eval_on_startup"]


def _drawn(config: Config) -> int:
    """Responses of a mini-batch that were rolled out; the others of mix are experts'."""
    whole = arithmetic.mini_batch_responses(config)
    share = vars(config.algorithm.objective).get("expert_share", 0.0)
    return whole - math.ceil(share * whole)


def _steps(config: Config, every: Interval) -> float:
    if every.optimizer_steps is not None:
        return every.optimizer_steps / arithmetic.optimizer_steps_per_step(config)
    return float(every.steps or 0)


def _save(config: Config, told: dict[str, Any], each: float) -> Iterator[Pair]:
    every, theirs = config.checkpoint.every, told["save_interval"]
    supervised = config.algorithm.objective.choice in ("sft", "dpo")
    if every is None and supervised:
        total = config.schedule.total_steps
        yield "never saves on the way", True, theirs >= (total or NEVER)
    elif every is None:
        yield "save every", None, None if theirs <= 0 else theirs
    elif every.optimizer_steps is not None:
        yield "save every", float(every.optimizer_steps), float(theirs * config.batch.ppo_epochs)
    else:
        yield "save every", _steps(config, every) * each, float(theirs)


def _length(config: Config, told: dict[str, Any], each: float, rows: int | None) -> Iterator[Pair]:
    schedule = config.schedule
    train, explore = told["train_steps"], told["explore_steps"]
    if schedule.total_optimizer_steps is not None:
        yield "optimizer steps", schedule.total_optimizer_steps, (train or 0) * config.batch.ppo_epochs
    elif schedule.total_steps is not None or (explore is not None and rows is not None):
        limits = [train / each] if train else []
        limits += [explore * config.weight_sync.every / told["sync_interval"]] if explore else []
        yield (
            "steps",
            float(arithmetic.total_steps(config, rows) or schedule.total_steps or 0),
            min(limits, default=None),
        )
    else:
        yield "epochs", schedule.total_epochs, told["epochs"] if explore is None else None


def _rollout(config: Config, told: dict[str, Any]) -> Iterator[Pair]:
    prompt, response, whole = told["lengths"]
    yield "prompt tokens", config.data.max_prompt_tokens, prompt
    yield "response tokens", config.rollout.max_response_tokens, response
    yield "context", config.model.max_context_tokens or prompt + response, whole
    sampling = config.rollout.sampling
    for taskset in told["sampling"][:1]:
        yield "temperature", sampling.temperature, taskset["temperature"]
        yield "top_p", sampling.top_p, taskset["top_p"]
        yield "top_k", sampling.top_k, taskset["top_k"] if taskset["top_k"] > 0 else None
        yield "tokens a turn", config.rollout.max_response_tokens, taskset["max_tokens"]
    if told["mode"] != "train":
        yield "training sets", len(config.data.train), len(told["sampling"])
        yield "evaluation sets", len(config.data.eval), len(told["evaluation"])
    for source, taskset in zip(config.data.eval, told["evaluation"], strict=False):
        drawn = source.evaluation_sampling
        yield f"{source.name}: responses", source.responses_per_prompt, taskset["n"]
        yield f"{source.name}: temperature", drawn.temperature, taskset["temperature"]
        yield f"{source.name}: top_p", drawn.top_p, taskset["top_p"]
        yield f"{source.name}: top_k", drawn.top_k, taskset["top_k"] if taskset["top_k"] > 0 else None
        yield f"{source.name}: tokens", drawn.max_response_tokens or response, taskset["max_tokens"]
    for order in told["order"][:1]:
        ours = config.data.curriculum.order
        yield "order", ORDERS.get(ours, ours), order


def _algorithm(config: Config, told: dict[str, Any]) -> Iterator[Pair]:
    algorithm = config.algorithm
    name = told["advantage"]["name"]
    trains = told["mode"] in ("both", "colocate", "train", "explore")
    if trains and told["policy_loss"]["name"] != "sft":
        yield from _advantage(config, told, name)
    yield "critic", algorithm.advantage.choice == "gae", told["critic"]
    loss = told["policy_loss"]
    choice = algorithm.policy_loss.choice
    yield (
        "loss",
        algorithm.policy_loss.type_name,
        LOSSES.get(loss["name"], loss["name"]),
    )
    for ours, theirs in LOSS_FIELDS.get(choice, {}).items():
        yield ours, getattr(algorithm.policy_loss, ours), loss[theirs]
    if choice == "ppo_clip":
        dual = vars(algorithm.policy_loss)["dual_clip"]
        yield "dual clip", dual or NEVER, loss["clip_ratio_c"] if loss["clip_ratio_c"] < NEVER else NEVER
    if "loss_agg_mode" in loss:
        yield "aggregation", algorithm.loss_aggregation.mode.replace("_", "-"), loss["loss_agg_mode"]
    if algorithm.kl_in_loss or algorithm.entropy_coefficient:
        yield "KL and entropy aggregation", algorithm.loss_aggregation.mode.replace("_", "-"), told["aggregation"]
    entropy = 0.0 if told["entropy_loss"]["name"] == "none" else told["entropy_loss"]["entropy_coef"]
    yield "entropy", algorithm.entropy_coefficient, entropy
    kl = told["kl_loss"]
    off = kl["name"] == "none" or not kl["kl_coef"]
    ours = algorithm.kl_in_loss if algorithm.kl_in_loss and algorithm.kl_in_loss.coefficient else None
    theirs = None if off else (KL[kl["name"]], kl["kl_coef"])
    yield "KL in the loss", ours and (ours.estimator, ours.coefficient), theirs
    kl, inside = told["kl_penalty"], algorithm.kl_in_reward
    off = kl["name"] == "none" or not told["advantage_in_trainer"]
    reward = inside and (inside.estimator, inside.coefficient, inside.adaptive)
    yield "KL in the reward", reward, None if off else (KL[kl["name"]], kl["kl_coef"], kl["adaptive"])


OF_A_TEACHER = ("on_policy_distill", "jsd")
"""Trinity's advantages that are the teacher's alone; canonically a teacher is beside the estimator."""


def _advantage(config: Config, told: dict[str, Any], name: str) -> Iterator[Pair]:
    if name in OF_A_TEACHER:
        yield "a teacher's advantages", config.algorithm.distillation is not None, name in OF_A_TEACHER
        return
    advantage = config.algorithm.advantage
    kind = advantage.type_name
    yield "advantage", kind, ADVANTAGES.get(name, name)
    args = told["advantage"]
    if kind == "gae":
        yield "gamma and lambda", [vars(advantage)["gamma"], vars(advantage)["lambda_"]], [args["gamma"], args["lam"]]
    if kind == "grpo":
        yield "epsilon", vars(advantage)["epsilon"], args["epsilon"]
        filters = [item for item in config.algorithm.filters if item.choice == "zero_variance_groups"]
        yield "equal groups", vars(filters[0])["threshold"] if filters else None, args["std_threshold"]


def _devices(config: Config, told: dict[str, Any]) -> Iterator[Pair]:
    if all(told["gpus"]):
        yield "devices", [config.placement.nodes, config.placement.devices_per_node], told["gpus"]
    if told["mode"] in ("both", "explore", "bench") and config.rollout.engine.choice != "external":
        yield "tensor", config.rollout.parallel.tensor_parallel_size, told["tensor"]
    if told["mode"] == "both" and config.placement.layout == "split":
        yield "rollout devices", arithmetic.exploring_devices(config), math.prod(told["gpus"]) - told["trainer_gpus"]
        yield "training devices", arithmetic.train_devices(config), told["trainer_gpus"]


def _engine(config: Config, told: dict[str, Any], engine: dict[str, Any]) -> Iterator[Pair]:
    train, batch = config.train, config.batch
    kind = engine["strategy"]
    yield "engine", train.engine.choice, "megatron" if kind == "megatron" else "fsdp2"
    yield "gradient clip", train.optimizer.max_grad_norm or 0.0, engine["max_grad_norm"]
    yield "ppo epochs", batch.ppo_epochs, engine["ppo_epochs"]
    yield "shuffle", batch.shuffle, engine["shuffle"]
    yield "micro-batches by", batch.micro_batch.unit, "tokens" if engine["dynamic"] else "responses"
    if engine["dynamic"]:
        share = arithmetic.devices_per_sequence(train.engine)
        own = batch.micro_batch.size // share
        least = [-(-count * told["lengths"][2] // share) for count in (1, 2)]  # what 0.5 and 0.4 raise it to
        raised = engine["tokens"] in least and own < engine["tokens"]
        yield "tokens of a replica", engine["tokens"] if raised else own, engine["tokens"]
    elif config.algorithm.objective.choice != "dpo":
        yield "micro-batch", batch.micro_batch.size, engine["micro_batch"]
    offload = {"none": [False, False], "parameters": [True, False], "optimizer": [False, True], "both": [True, True]}
    yield (
        "offload",
        offload[vars(train.engine).get("offload", "none")],
        [engine["param_offload"], engine["optimizer_offload"]],
    )
    yield "weight decay", train.optimizer.weight_decay, engine["weight_decay"]
    yield "betas", list(train.optimizer.betas), engine["betas"]
    yield "recompute", train.memory.recompute_activations, engine["gradient_checkpointing"]
    yield "learning rate", train.optimizer.lr, told["learning_rate"]
    if engine["learning_rates"]:
        yield from _rates(config, train, told, engine["learning_rates"])
    if config.algorithm.objective.choice == "rl":
        yield "old log-probs", _old_log_probs(config), engine["old_log_probs"]
        divided = config.algorithm.train_temperature == "sampling"
        yield (
            "training temperature",
            config.rollout.sampling.temperature if divided else 1.0,
            engine["train_temperature"],
        )
    critic = engine.get("critic")
    if critic and config.critic is not None:
        if critic["learning_rates"]:
            yield from _rates(config, config.critic, told, critic["learning_rates"])
        yield "value clip", config.critic.value_loss.clip or 0.0, critic["clip"]
        yield "critic epochs", config.critic.ppo_epochs or batch.ppo_epochs, critic["ppo_epochs"]
        yield "critic gradient clip", config.critic.optimizer.max_grad_norm or 0.0, critic["max_grad_norm"]
        yield "critic weight decay", config.critic.optimizer.weight_decay, critic["weight_decay"]
        warmup = config.schedule.critic_warmup_steps
        each = arithmetic.optimizer_steps_per_step(config) // batch.ppo_epochs
        yield "critic warm-up", warmup * each, max(0, engine["critic_warmup"] - 1)


def _old_log_probs(config: Config) -> str:
    """Where the old log-probs come from. Trinity computes them before every optimizer step with the weights of then, so it keeps
    those of a step's start only as the rollout's."""
    ours = config.algorithm.old_log_probs
    several = arithmetic.optimizer_steps_per_step(config) > config.batch.ppo_epochs
    return "rollout" if several or ours == "rollout" else "recompute"


def _rates(config: Config, train: Any, told: dict[str, Any], theirs: dict[str, float]) -> Iterator[Pair]:
    """The learning rate at each trainer step that begins a canonical tick, by the canonical schedule in its own ticks."""
    schedule, steps = train.lr_scheduler, told["train_steps"]
    per_step = arithmetic.responses_per_step(config) / _drawn(config)
    each = float(config.batch.ppo_epochs) if schedule.step_unit == "optimizer_step" else 1 / per_step
    total = sys.maxsize if steps is None else round(steps * each)
    curve = curve_of(schedule, peak=train.optimizer.lr, scheduler_steps=total)
    for tick, rate in theirs.items():
        if (int(tick) * each).is_integer():
            yield f"learning rate at {tick}", _round(curve.rate(round(int(tick) * each))), _round(rate)


def _round(rate: float) -> float:
    return 0.0 if rate == 0 else round(rate, 9 - math.ceil(math.log10(abs(rate))))
