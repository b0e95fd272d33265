"""The effective numbers of a config in any dialect, worked out apart from rlctl's adapters: the oracle of the tests.

Each framework's own rules, read in its source, on the plain values of a file over its own defaults. One step is one round of
rollout and training. Learning rates are those of the first optimizer step of steps 1, 2 and 10, of the one after the warm-up and
of the last. Only reinforcement learning is here; ``Unsupported`` says so for anything else.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rlctl.config import Config
from rlctl.planning import arithmetic

Numbers = dict[str, Any]
AGGREGATIONS = {
    "token-mean": "token_mean",
    "token-sum": "token_sum",
    "seq-mean-token-sum": "seq_mean_token_sum",
    "seq-mean-token-mean": "seq_mean_token_mean",
    "seq-mean-token-sum-norm": "seq_mean_token_sum_norm",
}
OFF = 1e6
"""A dual clip or an interval this large never acts."""


class Unsupported(Exception):
    """The oracle has no rules for this kind of file."""


@dataclass(frozen=True)
class Values:
    """The plain values of a file: what is written, else the default that is given at the place of use."""

    tree: Mapping[str, Any]
    version: tuple[int, ...]
    rows: int
    """Rows of the training data."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value at a dotted key; a null that is written is a null."""
        found: Any = self.tree
        for part in key.split("."):
            if not isinstance(found, Mapping) or part not in found:
                return default
            found = found[part]
        return found

    def either(self, key: str, default: Any) -> Any:
        """The same, where the framework takes null for its default."""
        found = self.get(key)
        return default if found is None else found

    def has(self, key: str) -> bool:
        missing = object()
        return self.get(key, missing) is not missing


@dataclass(frozen=True)
class Schedule:
    """A learning rate over ticks; ``per_step`` ticks pass in a step."""

    peak: float
    per_step: float
    warmup: float
    shape: str = "constant"
    total: float = math.inf
    floor: float = 0.0
    start: float = 0.0
    cycles: float = 0.5

    def at(self, tick: float) -> float:
        """Warm-up is linear; what follows is the textbook formula that all frameworks share."""
        if tick < self.warmup:
            return self.start + (self.peak - self.start) * tick / max(1.0, self.warmup)
        done = 0.0 if math.isinf(self.total) else (tick - self.warmup) / max(1.0, self.total - self.warmup)
        if self.shape == "cosine":
            wave = 0.5 * (1 + math.cos(math.pi * self.cycles * 2.0 * done))
            return self.floor + (self.peak - self.floor) * wave
        if self.shape == "linear":
            return max(self.floor, self.floor + (self.peak - self.floor) * (1 - done))
        if self.shape == "constant":
            return self.peak
        raise Unsupported(f"schedule {self.shape}")

    def numbers(self, steps: int | None) -> Numbers:
        places = {"step 1": 0, "step 2": 1, "step 10": 9, "last step": (steps or 1000) - 1}
        if not math.isinf(self.warmup):
            places["after the warm-up"] = math.ceil(self.warmup / self.per_step)
        return {f"learning rate, {name}": self.at(step * self.per_step) for name, step in places.items()}


@dataclass(frozen=True)
class Replicas:
    """GPUs, by what they are for."""

    total: int
    train: int
    rollout: int

    def numbers(self) -> Numbers:
        return {"GPUs": self.total, "GPUs that train": self.train, "GPUs that roll out": self.rollout}


@dataclass
class Sheet:
    """The numbers that every dialect's section fills in."""

    prompts: int
    group: int
    mini: int
    epochs: int
    micro: tuple[str, int] | None
    schedule: Schedule
    gpus: Replicas | None
    steps: int | None
    save: float | None
    evaluate: float | None
    prompt_tokens: int | None
    response_tokens: int | None
    sampling: tuple[float, float, int | None]
    held_out: list[tuple[int, float, float, int | None]]
    kl_in_loss: tuple[str, float] | None
    kl_in_reward: tuple[str, float] | None
    advantage: str
    loss: str
    clip: tuple[float, float] | None
    dual_clip: float | None
    aggregation: str
    more: Numbers = field(default_factory=dict)

    @cached_property
    def k(self) -> int:
        return -(-self.prompts * self.group // self.mini) * self.epochs

    def numbers(self) -> Numbers:
        """All of them by name."""
        known: Numbers = {
            "prompts a step": self.prompts,
            "responses a prompt": self.group,
            "responses a step": self.prompts * self.group,
            "responses of a mini-batch": self.mini,
            "optimizer steps a step": self.k,
            **({"micro-batch": self.micro} if self.micro else {}),
            "steps": self.steps,
            "steps between checkpoints": self.save,
            "steps between evaluations": self.evaluate if self.held_out else None,
            **({"tokens of a prompt": self.prompt_tokens} if self.prompt_tokens else {}),
            **({"tokens of a response": self.response_tokens} if self.response_tokens else {}),
            "temperature, top_p, top_k": self.sampling,
            "KL in the loss": self.kl_in_loss if self.kl_in_loss and self.kl_in_loss[1] else None,
            "KL in the reward": self.kl_in_reward if self.kl_in_reward and self.kl_in_reward[1] else None,
            "advantage": self.advantage,
            "policy loss": self.loss,
            "clip range": self.clip,
            "dual clip": _off(self.dual_clip),
            "aggregation": self.aggregation,
            "held-out sets": len(self.held_out),
            **{f"held-out set {place}": drawn for place, drawn in enumerate(self.held_out)},
        }
        gpus = self.gpus.numbers() if self.gpus else {}
        return {**known, **self.schedule.numbers(self.steps), **gpus, **self.more}


def _first(*limits: float | None) -> int | None:
    known = [int(limit) for limit in limits if limit is not None]
    return min(known) if known else None


def _off(value: Any, never: float = 0) -> float | None:
    """An interval; null where it never happens."""
    return value if isinstance(value, (int, float)) and never < value < OFF else None


def _top_k(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


# verl: verl/trainer/ppo/v1/trainer_base.py (steps, mini-batches), workers/engine_workers.py (one tick a step),
# workers/engine/fsdp/transformer_impl.py and utils/megatron/optimizer.py (schedule), trainer/ppo/core_algos.py (losses, KL),
# trainer/config/*.yaml (defaults)

VERL_KL = {
    "kl": "k1",
    "k1": "k1",
    "abs": "abs",
    "mse": "k2",
    "k2": "k2",
    "low_var_kl": "k3",
    "k3": "k3",
    **{
        f"{name}+": f"{kind}+"
        for name, kind in [("kl", "k1"), ("k1", "k1"), ("abs", "abs"), ("mse", "k2"), ("k2", "k2")]
    },
    "low_var_kl+": "k3+",
    "k3+": "k3+",
}
VERL_ADVANTAGE = {"rloo_vectorized": "rloo", "grpo_vectorized": "grpo"}
VERL_LOSS = {"vanilla": "ppo_clip", "gpg": "policy_gradient"}

DISTILS = "distillation.distillation_loss"
TEACHERS = "a teacher's log-probs less the policy's"


def verl(v: Values) -> Numbers:
    """Numbers of a config of verl's PPO trainer."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    engine = v.get("model_engine", v.get(f"{actor}.strategy", "fsdp"))
    if not v.has("actor_rollout_ref") or engine not in ("dp", "fsdp", "fsdp2", "megatron"):
        raise Unsupported("not the PPO trainer, or an engine with schedules of its own")
    if v.has("async_training"):
        raise Unsupported("the fully asynchronous trainer, whose steps are no batches of prompts")
    prompts, group = v.get("data.train_batch_size", 1024), v.get(f"{rollout}.n", 1)
    epochs = v.get("trainer.total_epochs", 30)
    steps = _first(v.get("trainer.total_training_steps"), None if epochs is None else epochs * (v.rows // prompts))
    loss = v.get(f"{actor}.policy_loss.loss_mode", "vanilla")
    aggregation = v.get(f"{actor}.loss_agg_mode", "token-mean")
    fixed = ("sapo",) if v.version >= (0, 9) else ("gspo", "sapo")  # 0.9.1 hands gspo its mode
    both = v.get(f"{actor}.clip_ratio", 0.2)
    low, high = (v.get(f"{actor}.clip_ratio_{side}", 0.2) for side in ("low", "high"))
    drawn = (
        v.get(f"{rollout}.val_kwargs.n", 1),
        v.get(f"{rollout}.val_kwargs.temperature", 0),
        v.get(f"{rollout}.val_kwargs.top_p", 1.0),
        _top_k(v.get(f"{rollout}.val_kwargs.top_k", -1)),
    )
    in_step = v.get(f"{rollout}.mode", "sync") == "sync"
    if v.version < (0, 7) and in_step and not v.get(f"{rollout}.val_kwargs.do_sample", False):
        drawn = (drawn[0], 0, 1.0, None)  # vllm_rollout_spmd.py: without do_sample it is greedy
    files = v.get("data.val_files")
    sheet = Sheet(
        prompts=prompts,
        group=group,
        mini=v.get(f"{actor}.ppo_mini_batch_size", 256) * group,
        epochs=v.get(f"{actor}.ppo_epochs", 1),
        micro=_verl_micro(v, actor),
        schedule=_verl_schedule(v, actor, v.get("trainer.total_training_steps") or steps),
        gpus=_verl_gpus(v, rollout),
        steps=steps,
        save=_off(v.get("trainer.save_freq", -1)),
        evaluate=_off(v.get("trainer.test_freq", -1)),
        prompt_tokens=v.get("data.max_prompt_length", 512),
        response_tokens=v.get("data.max_response_length", 512),
        sampling=(
            v.get(f"{rollout}.temperature", 1.0),
            v.get(f"{rollout}.top_p", 1),
            _top_k(v.get(f"{rollout}.top_k", -1)),
        ),
        held_out=[drawn] * (len(files) if isinstance(files, list) else 1 if files else 0),
        kl_in_loss=(
            (VERL_KL[v.get(f"{actor}.kl_loss_type", "low_var_kl")], v.get(f"{actor}.kl_loss_coef", 0.001))
            if v.get(f"{actor}.use_kl_loss", False)
            else None
        ),
        kl_in_reward=(
            (VERL_KL[v.get("algorithm.kl_penalty", "kl")], v.get("algorithm.kl_ctrl.kl_coef", 0.001))
            if v.get("algorithm.use_kl_in_reward", False)
            else None
        ),
        advantage=TEACHERS
        if v.get("distillation.enabled", False) and not v.get(f"{DISTILS}.use_task_rewards", True)
        else VERL_ADVANTAGE.get(v.get("algorithm.adv_estimator", "gae"), str(v.get("algorithm.adv_estimator", "gae"))),
        loss=VERL_LOSS.get(loss, loss),
        clip=(
            (both if low is None else low, both if high is None else high)
            if loss in ("vanilla", "gspo", "cispo")
            else None
        ),
        dual_clip=_off(v.get(f"{actor}.clip_ratio_c", 3.0)) if loss == "vanilla" and v.version >= (0, 4) else None,
        aggregation="seq_mean_token_mean" if loss in fixed else AGGREGATIONS[aggregation],
    )
    return sheet.numbers()


def _verl_megatron(v: Values, actor: str) -> bool:
    return "megatron" in (v.get("model_engine"), v.get(f"{actor}.strategy"))


def _verl_micro(v: Values, actor: str) -> tuple[str, int] | None:
    shared = (
        v.get(f"{actor}.megatron.context_parallel_size", 1)
        if _verl_megatron(v, actor)
        else max(v.get(f"{block}.ulysses_sequence_parallel_size", 1) for block in (actor, f"{actor}.fsdp_config"))
    )
    if v.get(f"{actor}.use_dynamic_bsz", False):
        return ("tokens", v.get(f"{actor}.ppo_max_token_len_per_gpu", 16384) * shared)
    rows = v.get(f"{actor}.ppo_micro_batch_size_per_gpu")
    return None if rows is None else ("responses", rows)


def _verl_schedule(v: Values, actor: str, steps: int | None) -> Schedule:
    peak = v.get(f"{actor}.optim.lr", 1e-6)
    total = steps or math.inf
    warmup = v.either(f"{actor}.optim.lr_warmup_steps", -1)
    if warmup <= 0:
        ratio = v.either(f"{actor}.optim.lr_warmup_steps_ratio", 0.0)
        of = v.either(f"{actor}.optim.lr_decay_steps", total) if _verl_megatron(v, actor) else total
        warmup = int(ratio * of) if ratio else 0
    if _verl_megatron(v, actor):
        shape = v.get(f"{actor}.optim.lr_decay_style", "constant")
        floor, start = v.get(f"{actor}.optim.min_lr", 0.0), v.get(f"{actor}.optim.lr_warmup_init", 0.0)
        return Schedule(peak, 1, warmup, shape, v.either(f"{actor}.optim.lr_decay_steps", total), floor, start)
    shape = v.either(f"{actor}.optim.warmup_style", v.either(f"{actor}.optim.lr_scheduler_type", "constant"))
    floor = v.either(f"{actor}.optim.min_lr_ratio", 0.0) * peak
    return Schedule(peak, 1, warmup, shape, total, floor, cycles=v.get(f"{actor}.optim.num_cycles", 0.5))


def _verl_gpus(v: Values, rollout: str) -> Replicas:
    own = v.get("trainer.nnodes", 1) * v.get("trainer.n_gpus_per_node", 8)
    if v.get("trainer.v1.trainer_mode", "sync") == "separate_async":
        apart = v.get(f"{rollout}.nnodes", 0) * v.get(f"{rollout}.n_gpus_per_node", 0)
        return Replicas(own + apart, own, apart)
    return Replicas(own, own, own)


# Trinity: trinity/common/config_validator.py (what is filled in), trainer/trainer.py and explorer/explorer.py (steps, saves,
# evaluations), buffer/task_scheduler.py (epochs), trainer/verl*/…config.py (schedule, mini-batch), algorithm/ (types, arguments)

TRINITY_KL = {
    "k1": "k1",
    "k2": "k2",
    "abs": "abs",
    "low_var_kl": "k3",
    "k3": "k3_unclamped",
    "corrected_k3": "k3_corrected",
}
TRINITY_TYPES: dict[str, tuple[str, str, str]] = {
    "ppo": ("ppo", "ppo", "k2"),
    "grpo": ("grpo", "ppo", "k2"),
    "grpo_verl": ("grpo", "ppo", "k2"),
    "dapo": ("grpo", "ppo", "none"),
    "reinforceplusplus": ("reinforceplusplus", "ppo", "k2"),
    "rloo": ("rloo", "ppo", "k2"),
    "opmd": ("opmd", "opmd", "k2"),
    "asymre": ("asymre", "opmd", "none"),
    "topr": ("reinforce", "topr", "k2"),
    "cispo": ("grpo", "cispo", "k2"),
    "gspo": ("grpo", "gspo", "k2"),
    "sapo": ("grpo", "sapo", "k2"),
    "sppo": ("opmd", "sppo", "none"),
    "rec": ("rec", "rec", "k2"),
    "multi_step_grpo": ("step_wise_grpo", "ppo", "k2"),
    "gigpo": ("gigpo", "ppo", "k2"),
    "on_policy_distill": ("on_policy_distill", "ppo", "none"),
    "jsd": ("jsd", "ppo", "none"),
}
"""Advantage, policy loss and KL in the loss of each ``algorithm_type`` (algorithm/algorithm.py)."""
IN_TRAINER = ("ppo", "grpo_verl", "reinforceplusplus", "rloo", "on_policy_distill", "jsd")
"""Types that compute advantages in the trainer, which alone takes KL off rewards (trainer/verl/trainer.py)."""
TRINITY_ADVANTAGE = {"ppo": "gae", "reinforceplusplus": "reinforce_plus_plus"}
TRINITY_LOSS = {"ppo": "ppo_clip", "importance_sampling": "policy_gradient"}
TRINITY_ARGS: dict[str, dict[str, Any]] = {
    "ppo": {"clip_range": 0.2, "loss_agg_mode": "token-mean"},
    "gspo": {"clip_range_low": 3e-4, "clip_range_high": 4e-4, "loss_agg_mode": "seq-mean-token-mean"},
    "cispo": {"clip_range_low": 1.0, "clip_range_high": 0.28, "loss_agg_mode": "token-mean"},
    "sapo": {"loss_agg_mode": "token-mean"},
}
"""Default arguments of the losses; arguments that are written replace all of them."""


def trinity(v: Values) -> Numbers:
    """Numbers of a Trinity config that explores and trains."""
    kind = v.get("algorithm.algorithm_type", "ppo")
    if kind not in TRINITY_TYPES or v.get("mode", "both") not in ("both", "colocate") or v.get("stages"):
        raise Unsupported(f"algorithm_type {kind}, mode {v.get('mode', 'both')}")
    advantage, loss, kl = TRINITY_TYPES[kind]
    advantage, loss = v.either("algorithm.advantage_fn", advantage), v.either("algorithm.policy_loss_fn", loss)
    kl, penalty = v.either("algorithm.kl_loss_fn", kl), v.either("algorithm.kl_penalty_fn", "none")
    tasks, group = v.get("buffer.batch_size", 1), v.get("algorithm.repeat_times", 1)
    interval = v.get("synchronizer.sync_interval", 1)
    train = v.get("buffer.train_batch_size") or tasks * group
    each = tasks * interval * group / train
    explored = v.get("buffer.total_steps") or v.get("buffer.total_epochs", 1) * v.rows // tasks
    trained = v.get("trainer.total_steps")
    steps = _first(explored / interval, None if trained is None else trained / each)
    args = v.either("algorithm.policy_loss_fn_args", None)
    clip, dual, aggregation = _trinity_loss(v, loss, TRINITY_ARGS.get(loss, {}) if args is None else args)
    save, evaluate = v.get("trainer.save_interval", 0), v.get("explorer.eval_interval", 100)
    prompt_tokens, response_tokens, longest = _trinity_lengths(v)
    return Sheet(
        prompts=tasks * interval,
        group=group,
        mini=train,
        epochs=v.either("trainer.trainer_config.actor_rollout_ref.actor.ppo_epochs", 1),
        micro=_trinity_micro(v, longest),
        schedule=_trinity_schedule(v, each),
        gpus=_trinity_gpus(v),
        steps=steps,
        save=None if not _off(save) else save / each,
        evaluate=None if not _off(evaluate) else max(evaluate // interval, 1),
        prompt_tokens=prompt_tokens,
        response_tokens=response_tokens,
        sampling=_trinity_sampling(v, _trinity_tasksets(v)[0] if _trinity_tasksets(v) else {}),
        held_out=[
            (item.get("repeat_times", 1), *_trinity_sampling(v, item))
            for item in v.either("buffer.explorer_input.eval_tasksets", [])
        ],
        kl_in_loss=None
        if kl == "none"
        else (TRINITY_KL[kl], v.either("algorithm.kl_loss_fn_args", {}).get("kl_coef", 0.001)),
        kl_in_reward=None
        if penalty == "none" or kind not in IN_TRAINER
        else (TRINITY_KL[penalty], v.either("algorithm.kl_penalty_fn_args", {}).get("kl_coef", 0.001)),
        advantage=TEACHERS
        if advantage in ("on_policy_distill", "jsd")
        else TRINITY_ADVANTAGE.get(advantage, advantage),
        loss=TRINITY_LOSS.get(loss, loss),
        clip=clip,
        dual_clip=dual,
        aggregation=aggregation,
    ).numbers()


def _trinity_loss(v: Values, loss: str, args: Mapping[str, Any]) -> tuple[Any, float | None, str]:
    """Clip range, dual clip, aggregation. ``algorithm.loss_agg_mode`` is taken only where the arguments name one too."""
    both = args.get("clip_range")
    low, high = (args.get(f"clip_range_{side}", both) for side in ("low", "high"))
    own = TRINITY_ARGS.get(loss, {})
    if loss == "cispo":
        low, high = args.get("clip_range_low", 1.0), args.get("clip_range_high", 0.28)
    named = "loss_agg_mode" in args or not args
    mode = v.either("algorithm.loss_agg_mode", "token-mean") if named else own.get("loss_agg_mode", "token-mean")
    clip = (low, high) if loss in ("ppo", "gspo", "cispo") else None
    return clip, _off(args.get("clip_ratio_c", 3.0)) if loss == "ppo" else None, AGGREGATIONS[mode]


def _trinity_lengths(v: Values) -> tuple[int | None, int | None, int | None]:
    prompt, response, total = (
        v.get(f"model.{name}") for name in ("max_prompt_tokens", "max_response_tokens", "max_model_len")
    )
    if total is None:
        total = prompt + response if prompt is not None and response is not None else None
    if total is not None and prompt is None and response is None:
        prompt = total // 2
        response = total - prompt
    elif total is not None and prompt is None:
        response = min(response, total - 1)
        prompt = total - response
    elif total is not None and response is None:
        prompt = min(prompt, total - 1)
        response = total - prompt
    return prompt, response, total


def _trinity_megatron(v: Values) -> bool:
    return bool(v.get("trainer.trainer_strategy") == "megatron")


def _trinity_micro(v: Values, longest: int | None) -> tuple[str, int] | None:
    shared = (
        v.get("trainer.megatron.context_parallel_size", 1)
        if _trinity_megatron(v)
        else v.get("trainer.ulysses_sequence_parallel_size", 1)
    )
    if not v.get("trainer.use_dynamic_bsz", True):
        return ("responses", v.either("trainer.trainer_config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", 1))
    limit = v.get("trainer.max_token_len_per_gpu")
    if limit is None:
        return None if longest is None else ("tokens", math.ceil(2 * longest / shared) * shared)
    if longest is not None and not _trinity_megatron(v) and v.version < (0, 6):
        limit = max(limit, math.ceil(longest / shared))
    return ("tokens", limit * shared)


def _trinity_schedule(v: Values, each: float) -> Schedule:
    optim = "algorithm.optimizer"
    peak, total = v.get(f"{optim}.lr", 1e-6), v.get("trainer.total_steps") or math.inf
    warmup, ratio = v.get(f"{optim}.lr_warmup_steps", -1), v.get(f"{optim}.lr_warmup_steps_ratio", 0.0)
    shape = v.either(f"{optim}.warmup_style", v.get(f"{optim}.lr_scheduler_type", "constant"))
    relative = shape != "constant" or (warmup <= 0 and ratio)
    if relative and math.isinf(total):
        raise Unsupported("a schedule relative to trainer.total_steps, which is not set: it takes sys.maxsize")
    warmup = warmup if warmup > 0 else int(ratio * total) if ratio else 0
    floor = v.get(f"{optim}.min_lr_ratio", 0.01) * peak
    return Schedule(peak, each, warmup, shape, total, floor, floor if _trinity_megatron(v) else 0.0)


def _trinity_tasksets(v: Values) -> list[Mapping[str, Any]]:
    one = v.get("buffer.explorer_input.taskset")
    return [one] if one else list(v.either("buffer.explorer_input.tasksets", []))


def _trinity_sampling(v: Values, taskset: Mapping[str, Any]) -> tuple[Any, Any, int | None]:
    """The model's temperature and top_p fill in what a taskset leaves out; its top_k never does."""
    args = taskset.get("rollout_args") or {}
    temperature = args.get("temperature") if args.get("temperature") is not None else v.either("model.temperature", 1.0)
    top_p = args.get("top_p") if args.get("top_p") is not None else v.either("model.top_p", 1.0)
    return temperature, top_p, _top_k(args.get("top_k", -1))


def _trinity_gpus(v: Values) -> Replicas | None:
    total = v.get("cluster.node_num", 0) * v.get("cluster.gpu_per_node", 0)
    if (
        not total
        or v.get("model.tinker.enable")
        or v.get("explorer.rollout_model.engine_type") in ("external", "tinker")
    ):
        return None
    engine = "explorer.rollout_model"
    names = ["tensor_parallel_size"] + (["data_parallel_size", "pipeline_parallel_size"] if v.version >= (0, 6) else [])

    def gpus(model: Mapping[str, Any]) -> int:
        return int(model.get("engine_num", 1) * math.prod(model.get(name, 1) for name in names))

    if v.get("mode") == "colocate" or total == 1:
        return Replicas(1, 1, 1)
    explore = gpus(v.either(engine, {}))
    others = sum(gpus(model) for model in v.either("explorer.auxiliary_models", []))
    return Replicas(total, total - explore - others, explore + others)


# ROLL: roll/configs/{base,worker,training,generating}_*.py (defaults, what __post_init__ overwrites), pipeline/rlvr and
# pipeline/agentic (steps), distributed/strategy/{fsdp2,megatron}_strategy.py (schedule, replicas), utils/functionals.py (KL)


def roll(v: Values) -> Numbers:
    """Numbers of a config of ROLL's RLVR or agentic pipeline."""
    agentic = v.has("train_env_manager") or v.has("custom_envs")
    actor, infer = ("student_train", "student_infer") if v.has("student_train") else ("actor_train", "actor_infer")
    if not (v.get(f"{actor}.device_mapping") and v.has(infer)):
        raise Unsupported("neither RLVR nor agentic, or nothing is trained")
    group = v.get("train_env_manager.group_size", 1) if agentic else v.get("num_return_sequences_in_group", 1)
    prompts = v.get("rollout_batch_size", 128) // (group if agentic else 1)
    epochs = v.get("ppo_epochs", 1)
    train = _devices(v.get(f"{actor}.device_mapping"))
    replicas = _roll_replicas(v, actor, len(train))
    mini = (
        v.get(f"{actor}.training_args.per_device_train_batch_size", 8)
        * v.get(f"{actor}.training_args.gradient_accumulation_steps", 1)
        * replicas
    )
    steps = _first(v.get("max_steps", 500))
    updates = math.ceil(prompts * group / mini) * epochs
    total = v.get("sequence_length") or v.get("response_length") + v.get("prompt_length", 1024)
    both = v.get("pg_clip", 0.2)
    wide = v.get("use_pg_clip_range", False)
    variant = v.get(f"{actor}.pg_variant", "vanilla") if "ActorPGWorker" in str(v.get(f"{actor}.worker_cls")) else None
    loss = {None: "ppo_clip", "ppo": "ppo_clip", "vanilla": "policy_gradient"}.get(variant, variant)
    if loss == "ppo_clip" and v.get("importance_sampling", "token") == "seq":
        loss = "gspo"
    files = v.get("validation.data_args.file_name")
    return Sheet(
        prompts=prompts,
        group=group,
        mini=mini,
        epochs=epochs,
        micro=_roll_micro(v, actor),
        schedule=_roll_schedule(v, actor, updates, steps),
        gpus=_roll_gpus(v, train, _devices(v.get(f"{infer}.device_mapping"))),
        steps=steps,
        save=_off(v.get("save_steps", 50)),
        evaluate=_off(v.get("eval_steps", 10)),
        prompt_tokens=None if agentic else v.get("prompt_length", 1024),
        response_tokens=None if agentic else total - v.get("prompt_length", 1024),
        sampling=_roll_sampling(v, infer if v.has(f"{infer}.generating_args") else "train_env_manager"),
        held_out=_roll_episodes(v, infer)
        if agentic
        else [(v.get("validation.generating_args.num_return_sequences", 1), *_roll_sampling(v, "validation"))]
        * (0 if not v.get("validation") else len(files) if isinstance(files, list) else 1),
        kl_in_loss=("k3", v.get("kl_loss_coef", 0)) if v.get("use_kl_loss", False) else None,
        kl_in_reward=(
            (
                {"kl": "k1", "abs": "abs", "mse": "k2", "full": "full"}[v.get("kl_penalty", "kl")],
                v.get("init_kl_coef", 0.2),
            )
            if v.get("add_token_level_kl", False)
            else None
        ),
        advantage=_roll_advantage(v, agentic),
        loss=str(loss),
        clip={
            "ppo_clip": (v.get("pg_clip_low", 0.2), v.get("pg_clip_high", 0.2)) if wide else (both, both),
            "gspo": (v.get("pg_clip_low", 0.2), v.get("pg_clip_high", 0.2)) if wide else (both, both),
            "cispo": (0.1, 0.1),
        }.get(str(loss)),
        dual_clip=1 + 2 * both if v.get("dual_clip_loss", False) and loss in ("ppo_clip", "gspo") else None,
        aggregation=AGGREGATIONS[v.get("loss_agg_mode", "seq-mean-token-mean")],
    ).numbers()


def _roll_advantage(v: Values, agentic: bool) -> str:
    """The estimator that the normalisations make of plain returns; an agentic run's own ones are under ``reward_normalization``."""
    if v.get("is_pure_opd", False) or v.has("student_train"):
        return TEACHERS
    name = str(v.get("adv_estimator", "gae"))
    if name not in ("grpo", "reinforce") or (name == "grpo" and not agentic):
        return name
    mean = v.get("norm_mean_type")
    if agentic:
        own = v.get("reward_normalization.method", "identity") != "identity"
        batch = v.get("reward_normalization.grouping", "batch") == "batch"
        mean = v.get("reward_normalization.norm_mean_type") or (("batch" if batch else "group") if own else None)
    if mean == "group":
        return "grpo"
    return "reinforce_plus_plus" if v.get("whiten_advantages", False) and not mean else "reinforce"


def _devices(text: Any) -> list[int]:
    """``list(range(0,8)) + [9]`` as numbers: literals, ranges and sums of lists, walked and never evaluated."""
    if text is None:
        return []

    def of(node: ast.expr) -> list[int]:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return of(node.left) + of(node.right)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "list":
            return of(node.args[0])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
            return list(range(*(ast.literal_eval(part) for part in node.args)))
        found = ast.literal_eval(node)
        return list(found) if isinstance(found, (list, tuple)) else [found]

    return of(ast.parse(str(text), mode="eval").body)


def _roll_replicas(v: Values, actor: str, devices: int) -> int:
    config = f"{actor}.strategy_args.strategy_config"
    if "megatron" in str(v.get(f"{actor}.strategy_args.strategy_name")):
        names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
        return max(1, devices // math.prod(v.either(f"{config}.{name}", 1) for name in names))
    return max(1, devices // int(v.either(f"{actor}.model_args.ulysses_size", 1)))


def _roll_micro(v: Values, actor: str) -> tuple[str, int]:
    if v.get(f"{actor}.use_dynamic_batching_in_train", False):
        return ("tokens", v.get(f"{actor}.max_tokens_per_microbatch_in_train", 0))
    return ("responses", v.get(f"{actor}.training_args.per_device_train_batch_size", 8))


def _roll_schedule(v: Values, actor: str, updates: float, steps: int | None) -> Schedule:
    args, config = f"{actor}.training_args", f"{actor}.strategy_args.strategy_config"
    peak, name = v.get(f"{args}.learning_rate", 5e-5), v.get(f"{args}.lr_scheduler_type", "linear")
    total = math.floor(steps * updates) if steps else math.inf
    warmup = v.get(f"{args}.warmup_steps", 0)
    if warmup <= 0:
        warmup = math.ceil(v.get(f"{args}.warmup_ratio", 0) * total) if v.get(f"{args}.warmup_ratio", 0) else 0
    if "megatron" in str(v.get(f"{actor}.strategy_args.strategy_name")):
        floor = v.get(f"{config}.lr_scheduler_kwargs.min_lr", 0.0)
        shape = {"constant_with_warmup": "constant", "cosine_with_min_lr": "cosine"}.get(name, name)
        return Schedule(peak, updates, warmup, shape, total, floor, v.get(f"{config}.lr_scheduler_kwargs.init_lr", 0.0))
    if name == "constant":
        return Schedule(peak, updates, 0)
    return Schedule(peak, updates, warmup, {"constant_with_warmup": "constant"}.get(name, name), total)


def _roll_gpus(v: Values, train: list[int], infer: list[int]) -> Replicas:
    every = set(train) | set(infer)
    for key, item in v.tree.items():
        if isinstance(item, Mapping) and "device_mapping" in item and key != "validation":
            every |= set(_devices(item["device_mapping"]))
    for item in (v.get("rewards") or {}).values():
        every |= set(_devices(item.get("device_mapping"))) if isinstance(item, Mapping) else set()
    return Replicas(max(every) + 1, len(set(train)), len(set(infer)))


def _roll_episodes(v: Values, infer: str) -> list[Any]:
    """Episodes of evaluation, those of each tag: the engines' sampling, or that of their manager where the engines have none."""
    role = infer if v.has(f"{infer}.generating_args") else "val_env_manager"
    role = role if v.has(f"{role}.generating_args") else "train_env_manager"
    drawn = (v.get("val_env_manager.group_size", 1), *_roll_sampling(v, role))
    return [drawn] * len(v.get("val_env_manager.tags") or ()) if v.has("val_env_manager") else []


def _roll_sampling(v: Values, role: str) -> tuple[float, float, int | None]:
    args = f"{role}.generating_args"
    return (
        v.get(f"{args}.temperature", 0.95),
        v.get(f"{args}.top_p", 0.7),
        _top_k(v.get(f"{args}.top_k", 50)),
    )


# rlctl: what its own arithmetic makes of a canonical config


def canonical(config: Config, rows: int) -> Numbers:
    """Numbers of rlctl's own config, by its arithmetic."""
    algorithm, optimizer, schedule = config.algorithm, config.train.optimizer, config.train.lr_scheduler
    if algorithm.objective.choice != "rl" or config.run.mode != "full" or config.stages:
        raise Unsupported(algorithm.objective.choice)
    steps = arithmetic.total_steps(config, rows)
    per_step = 1 if schedule.step_unit == "step" else arithmetic.optimizer_steps_per_step(config)
    length = schedule.total_steps or (math.inf if steps is None else steps * per_step)
    warmup = schedule.warmup_steps or 0
    if not warmup and schedule.warmup_ratio:
        warmup = int(schedule.warmup_ratio * length)
    floor = schedule.min_lr
    floor = schedule.min_lr_ratio * optimizer.lr if floor is None else floor
    loss, sampling = algorithm.policy_loss, config.rollout.sampling
    name = loss.type_name.removeprefix("trinity.")
    kl, penalty = algorithm.kl_in_loss, algorithm.kl_in_reward
    return Sheet(
        prompts=config.batch.prompts_per_step,
        group=config.batch.responses_per_prompt,
        mini=arithmetic.mini_batch_responses(config),
        epochs=config.batch.ppo_epochs,
        micro=(config.batch.micro_batch.unit, config.batch.micro_batch.size),
        schedule=Schedule(
            optimizer.lr,
            per_step,
            warmup,
            schedule.type,
            length if schedule.decay_steps is None else schedule.decay_steps,
            floor,
            schedule.warmup_start_lr,
            schedule.num_cycles,
        ),
        gpus=Replicas(
            arithmetic.devices(config), arithmetic.train_devices(config), arithmetic.exploring_devices(config)
        ),
        steps=steps,
        save=_interval(config.checkpoint.every, config),
        evaluate=_interval(config.schedule.evaluate_every, config),
        prompt_tokens=config.data.max_prompt_tokens,
        response_tokens=config.rollout.max_response_tokens,
        sampling=(sampling.temperature, sampling.top_p, sampling.top_k),
        held_out=[
            (
                source.responses_per_prompt,
                source.evaluation_sampling.temperature,
                source.evaluation_sampling.top_p,
                source.evaluation_sampling.top_k,
            )
            for source in config.data.eval
        ],
        kl_in_loss=None if kl is None else (kl.estimator, kl.coefficient),
        kl_in_reward=None if penalty is None else (penalty.estimator, penalty.coefficient),
        advantage=TEACHERS
        if algorithm.distillation is not None and algorithm.distillation.args.get("with_rewards") is False
        else algorithm.advantage.type_name.removeprefix("trinity.").removeprefix("roll."),
        loss=name,
        clip=(loss.clip_low, loss.clip_high) if name in ("ppo_clip", "gspo", "cispo") else None,  # type: ignore[attr-defined]
        dual_clip=getattr(loss, "dual_clip", None),
        aggregation=algorithm.loss_aggregation.mode,
    ).numbers()


def _interval(interval: Any, config: Config) -> float | None:
    if interval is None:
        return None
    if interval.steps is not None:
        return float(interval.steps)
    return float(interval.optimizer_steps) / arithmetic.optimizer_steps_per_step(config)


ORACLES = {"verl": verl, "trinity": trinity, "roll": roll}


def effective(dialect: str, tree: Mapping[str, Any], *, version: tuple[int, ...], rows: int) -> Numbers:
    """The effective numbers of a file in a dialect.

    Raises:
        Unsupported: it is none that the oracle has rules for.
    """
    return ORACLES[dialect](Values(tree, version, rows))


def same(left: Any, right: Any) -> bool:
    """Whether two numbers are one, but for rounding."""
    if isinstance(left, (tuple, list)) and isinstance(right, (tuple, list)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return math.isclose(left, right, rel_tol=1e-6, abs_tol=1e-15)
    return bool(left == right)


def differences(left: Numbers, right: Numbers) -> dict[str, tuple[Any, Any]]:
    """The numbers that two configs do not share; one that a file does not hold, such as a cluster's size, is no difference."""
    return {name: (left[name], right[name]) for name in left if name in right and not same(left[name], right[name])}
