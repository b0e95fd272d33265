"""Rules on the algorithm, sampling and the optimizer."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.checks.problem import CheckContext, Problem, problem
from rlctl.common.messages.reasons import AND, together
from rlctl.config import Config
from rlctl.config.sections.algorithm import Cispo, Gspo, PpoClip
from rlctl.config.sections.train import Fsdp2, Train
from rlctl.documents.paths import KeyPath
from rlctl.planning import arithmetic

GROUP_BASELINES = (
    *("grpo", "grpo_passk", "rloo", "reinforce_plus_plus_baseline", "opo", "opmd"),
    *arithmetic.MEASURED,
)
"""Advantages that compare the responses of one prompt."""

HIGHEST_LEARNING_RATE = 1e-3
"""Full fine-tuning of language models diverges well below this."""
LEAST_BFLOAT16_RATE = 5e-5
"""An update of AdamW is about the learning rate; of a weight of 0.02, bfloat16 rounds less than 4e-5 away."""


def _is_rl(config: Config) -> bool:
    return config.algorithm.objective.choice in ("rl", "mix") and arithmetic.trains(config)


def advantage(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """The advantage has what it compares with."""
    chosen = config.algorithm.advantage
    name = chosen.type_name
    key: KeyPath = ("algorithm", "old_log_probs")
    if _is_rl(config) and arithmetic.measures_old(config) and config.algorithm.old_log_probs == "rollout":
        yield problem("old-pass-left-out", key, [(key, "recompute")], name=name)
    key = ("batch", "responses_per_prompt")
    teacher = config.algorithm.distillation
    rewarded = teacher is None or teacher.args.get("with_rewards") is not False
    if _is_rl(config) and rewarded and name in GROUP_BASELINES and config.batch.responses_per_prompt == 1:
        yield problem("group-of-one", key, [(key, 8)], name=name)
    if arithmetic.needs_critic(config) and config.critic is None:
        yield problem(
            "gae-without-critic", ("algorithm", "advantage"), [(("critic",), {}), (("algorithm", "advantage"), "grpo")]
        )
    if config.critic is not None and arithmetic.trains(config) and not arithmetic.needs_critic(config):
        yield problem(
            "critic-unused", ("critic",), [(("critic",), None), (("algorithm", "advantage"), "gae")], name=name
        )
    steps, key = config.schedule.critic_warmup_steps, ("schedule", "critic_warmup_steps")
    if steps and not arithmetic.needs_critic(config):
        yield problem("warmup-without-critic", key, [(key, 0)], steps=steps, name=name)


def kl(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """A KL that is configured measures something, and so does a reference."""
    for name in ("kl_in_loss", "kl_in_reward"):
        penalty = getattr(config.algorithm, name)
        if penalty is not None and penalty.coefficient == 0:
            yield problem("kl-off", ("algorithm", name, "coefficient"), [(("algorithm", name), None)])
    in_loss, key = config.algorithm.kl_in_loss, ("algorithm", "kl_in_loss", "estimator")
    in_reward = config.algorithm.kl_in_reward
    if (
        _is_rl(config)
        and in_loss is not None
        and in_reward is not None
        and in_loss.coefficient
        and in_reward.coefficient
    ):
        removed = [(("algorithm", "kl_in_reward"), None), (("algorithm", "kl_in_loss"), None)]
        yield problem("kl-twice", ("algorithm", "kl_in_reward", "coefficient"), removed, loss=in_loss.coefficient)
    if _is_rl(config) and in_loss is not None and in_loss.coefficient > 0 and in_loss.estimator == "k1":
        yield problem("kl-without-pull", key, [(key, "k1+"), (key, "k3")])
    distillation, model = config.algorithm.distillation, config.reference.model
    is_teacher = distillation is not None and model is not None and model.path == distillation.teacher
    if model is not None and not is_teacher and not arithmetic.needs_reference(config):
        yield problem("reference-unused", ("reference", "model"), [(("reference", "model"), None)])


def sampling(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Training responses are drawn from the policy that is trained."""
    if not _is_rl(config):
        return
    drawn = config.rollout.sampling
    key = ("rollout", "sampling", "temperature")
    if drawn.temperature == 0:
        yield problem("greedy-training", key, [(key, 1.0)])
    yield from _own_temperatures(config)
    cut = [f"{name} {getattr(drawn, name)}" for name in ("top_p", "top_k") if getattr(drawn, name) not in (None, 1.0)]
    if cut:
        yield problem("sampling-cut", ("rollout", "sampling"), cut=together(cut, AND))


def _own_temperatures(config: Config) -> Iterator[Problem]:
    """Sources whose responses are drawn at another temperature than the one that training logits are divided by."""
    temperature = config.rollout.sampling.temperature
    for index, source in enumerate(config.data.train):
        own = source.sampling.get("temperature", temperature)
        if own != temperature and config.algorithm.train_temperature == "sampling":
            key = ("data", "train", index, "sampling", "temperature")
            yield problem(
                "not-supported_temperature",
                key,
                [(("algorithm", "train_temperature"), "one")],
                own=own,
                temperature=temperature,
            )


def learning_rate(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Learning rates are neither 0 nor implausibly high, and the warm-up ends."""
    if not arithmetic.trains(config):
        return
    trained = [("train", config.train)] + ([("critic", config.critic)] if config.critic is not None else [])
    for role, train in trained:
        rate = train.optimizer.lr
        key = (role, "optimizer", "lr")
        if rate == 0:
            yield problem("learning-rate", key)
        elif rate > HIGHEST_LEARNING_RATE:
            yield problem("learning-rate_high", key, rate=rate, highest=HIGHEST_LEARNING_RATE)
        if isinstance(train.engine, Fsdp2) and train.precision.parameters == "bfloat16":
            yield from _coarse(config, role, train)
    yield from _warmup(config)


def _coarse(config: Config, role: str, train: Train) -> Iterator[Problem]:
    """Weights kept in bfloat16 take updates of this size; adapters are kept in float32, and other optimizers may round well."""
    model = config.model if role == "train" or config.critic is None else config.critic.model
    adapted, rate = model is not None and model.lora is not None, train.optimizer.lr
    if not adapted and train.optimizer.module is None and 0 < rate < LEAST_BFLOAT16_RATE:
        key = (role, "precision", "parameters")
        yield problem("updates-rounded-away", key, [(key, "float32")], rate=rate)


def _warmup(config: Config) -> Iterator[Problem]:
    schedule = config.train.lr_scheduler
    key = ("train", "lr_scheduler")
    if schedule.warmup_steps is not None and schedule.warmup_ratio is not None:
        yield problem("warmup", key, [((*key, "warmup_ratio"), None), ((*key, "warmup_steps"), None)])
    steps = arithmetic.total_steps(config, None)
    if steps is None or schedule.warmup_steps is None:
        return
    per_step = arithmetic.optimizer_steps_per_step(config) if schedule.step_unit == "optimizer_step" else 1
    total = schedule.total_steps or steps * per_step
    if schedule.warmup_steps > total:
        yield problem(
            "warmup_long",
            (*key, "warmup_steps"),
            [((*key, "warmup_steps"), total)],
            warmup=schedule.warmup_steps,
            total=total,
            unit=schedule.step_unit,
        )


def clip_range(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Bounds of the policy loss can act."""
    loss = config.algorithm.policy_loss
    if not _is_rl(config) or not isinstance(loss, (PpoClip, Gspo, Cispo)):
        return
    key = ("algorithm", "policy_loss")
    if isinstance(loss, (PpoClip, Gspo)) and loss.clip_low >= 1:
        yield problem("clip-range", (*key, "clip_low"), low=loss.clip_low)
    if isinstance(loss, (PpoClip, Gspo)) and loss.clip_high < loss.clip_low:
        yield problem("clip-range_high", (*key, "clip_high"), high=loss.clip_high, low=loss.clip_low)
    if isinstance(loss, PpoClip) and loss.dual_clip is not None and loss.dual_clip <= 1 + loss.clip_high:
        yield problem("clip-range_dual", (*key, "dual_clip"), dual=loss.dual_clip, bound=1 + loss.clip_high)


def experts(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Only mix reads expert responses."""
    objective, key = config.algorithm.objective.choice, ("buffer", "auxiliary")
    named = config.algorithm.sample_strategy_args
    if objective == "mix" and config.run.mode == "full" and not config.buffer.auxiliary:
        yield problem("no-data_experts", key)
    if objective != "mix" and config.algorithm.sample_strategy == "mix":
        yield problem("not-supported_strategy", ("algorithm", "sample_strategy"), objective=objective)
        return
    known = {"sft_dataset_name"} if objective == "mix" else set()
    known |= {"max_staleness"} if config.algorithm.sample_strategy == "staleness_control" else set()
    if unknown := sorted(set(named) - known):
        yield problem(
            "not-supported_strategy-args",
            ("algorithm", "sample_strategy_args"),
            unknown=", ".join(unknown),
            objective=objective,
            strategy=config.algorithm.sample_strategy,
            known=", ".join(sorted(known)) or "none",
        )


def router_replay(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """The experts that updates go to are recorded by a pass before them."""
    algorithm, key = config.algorithm, ("algorithm", "router_replay")
    off = [(key, "off")]
    if arithmetic.rollout_routes(config) and (config.rollout.default_agent or _names_agents(config)):
        yield problem("not-supported_replay-agents", key, off)
    if algorithm.router_replay != "recompute":
        return
    if algorithm.objective.choice == "mix":
        yield problem("not-supported_replay-mix", key, off)
    elif algorithm.objective.choice == "rl" and algorithm.old_log_probs == "rollout":
        yield problem("not-supported_replay-rollout", key, off)


def _names_agents(config: Config) -> bool:
    return any(source.agent or source.agent_key for source in config.data.train)


RULES = (advantage, kl, sampling, learning_rate, clip_range, experts, router_replay)
