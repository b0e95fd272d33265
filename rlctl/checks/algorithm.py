"""Rules on the algorithm, sampling and the optimizer."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.checks.problem import CheckContext, Problem
from rlctl.config import Config
from rlctl.config.sections.algorithm import Cispo, Gspo, Other, PpoClip
from rlctl.config.sections.train import Fsdp2, Train
from rlctl.documents.paths import dotted
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
    name = chosen.kind if isinstance(chosen, Other) else chosen.choice
    if _is_rl(config) and arithmetic.measures_old(config) and config.algorithm.old_log_probs == "rollout":
        yield Problem(
            "old-pass-left-out",
            ("algorithm", "old_log_probs"),
            f"{name} reads what the pass for old log-probs measures, and with rollout there is none",
            "{fix}",
            ((("algorithm", "old_log_probs"), "recompute"),),
        )
    if _is_rl(config) and name in GROUP_BASELINES and config.batch.responses_per_prompt == 1:
        yield Problem(
            "group-of-one",
            ("batch", "responses_per_prompt"),
            f"{name} compares the responses of a prompt, and each prompt has 1: the advantage is the reward itself",
            "{fix}; 4 to 16 are usual",
            ((("batch", "responses_per_prompt"), 8),),
        )
    if arithmetic.needs_critic(config) and config.critic is None:
        yield Problem(
            "gae-without-critic",
            ("algorithm", "advantage"),
            "gae estimates advantages with a critic, and critic is null",
            "{fix} (an empty critic section takes the policy's model)",
            ((("critic",), {}), (("algorithm", "advantage"), "grpo")),
        )
    if config.critic is not None and not arithmetic.needs_critic(config):
        yield Problem(
            "critic-unused",
            ("critic",),
            f"{name} asks no critic",
            "{fix}",
            ((("critic",), None), (("algorithm", "advantage"), "gae")),
        )
    steps = config.schedule.critic_warmup_steps
    if steps and not arithmetic.needs_critic(config):
        yield Problem(
            "warmup-without-critic",
            ("schedule", "critic_warmup_steps"),
            f"the first {steps} steps train the critic only, and {name} asks no critic: they train nothing",
            "{fix}",
            ((("schedule", "critic_warmup_steps"), 0),),
        )


def kl(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """A KL that is configured measures something, and so does a reference."""
    for name in ("kl_in_loss", "kl_in_reward"):
        penalty = getattr(config.algorithm, name)
        if penalty is not None and penalty.coefficient == 0:
            yield Problem(
                "kl-off",
                ("algorithm", name, "coefficient"),
                f"algorithm.{name}.coefficient is 0: the KL has no effect",
                f"set algorithm.{name}.coefficient above 0, or {{fix}}",
                ((("algorithm", name), None),),
            )
    in_loss, key = config.algorithm.kl_in_loss, ("algorithm", "kl_in_loss", "estimator")
    if _is_rl(config) and in_loss is not None and in_loss.coefficient > 0 and in_loss.estimator == "k1":
        yield Problem(
            "kl-without-pull",
            key,
            "the gradient of k1 is 0 on average over the policy's own responses: as a loss it holds nothing back",
            "{fix}: k1+ has the value of k1 and the gradient of k2",
            ((key, "k1+"), (key, "k3")),
        )
    if config.reference.model is not None and not arithmetic.needs_reference(config):
        yield Problem(
            "reference-unused",
            ("reference", "model"),
            "a reference model, and no KL is measured against it",
            "set algorithm.kl_in_loss, or {fix}",
            ((("reference", "model"), None),),
        )


def sampling(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Training responses are drawn from the policy that is trained."""
    if not _is_rl(config):
        return
    drawn = config.rollout.sampling
    if drawn.temperature == 0:
        yield Problem(
            "greedy-training",
            ("rollout", "sampling", "temperature"),
            "training responses at temperature 0 are greedy: nothing is explored, and groups score alike",
            "{fix}",
            ((("rollout", "sampling", "temperature"), 1.0),),
        )
    yield from _own_temperatures(config)
    cut = [f"{name} {getattr(drawn, name)}" for name in ("top_p", "top_k") if getattr(drawn, name) not in (None, 1.0)]
    if cut:
        yield Problem(
            "sampling-cut",
            ("rollout", "sampling"),
            f"training responses are drawn with {' and '.join(cut)}; the loss takes the whole distribution",
            "rollout.sampling.top_p 1.0 and rollout.sampling.top_k null sample from the policy itself",
        )


def _own_temperatures(config: Config) -> Iterator[Problem]:
    """Sources whose responses are drawn at another temperature than the one that training logits are divided by."""
    temperature = config.rollout.sampling.temperature
    for index, source in enumerate(config.data.train):
        own = source.sampling.get("temperature", temperature)
        if own != temperature and config.algorithm.train_temperature == "sampling":
            key = ("data", "train", index, "sampling", "temperature")
            yield Problem(
                "not-supported",
                key,
                f"'{dotted(key)}' is {own}, and training divides logits by one temperature for all responses, {temperature:g}",
                "remove it, or {fix}: log-probs are then those of temperature 1",
                ((("algorithm", "train_temperature"), "one"),),
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
            yield Problem(
                "learning-rate",
                key,
                f"{role}.optimizer.lr is 0: nothing is learned",
                f"set {role}.optimizer.lr above 0",
            )
        elif rate > HIGHEST_LEARNING_RATE:
            yield Problem(
                "learning-rate",
                key,
                f"{role}.optimizer.lr is {rate:g}; full fine-tuning diverges above about {HIGHEST_LEARNING_RATE:g}",
                "1e-6 to 1e-5 are usual",
            )
        if isinstance(train.engine, Fsdp2) and train.precision.parameters == "bfloat16":
            yield from _coarse(config, role, train)
    yield from _warmup(config)


def _coarse(config: Config, role: str, train: Train) -> Iterator[Problem]:
    """Weights kept in bfloat16 take updates of this size; adapters are kept in float32, and other optimizers may round well."""
    model = config.model if role == "train" or config.critic is None else config.critic.model
    adapted, rate = model is not None and model.lora is not None, train.optimizer.lr
    if not adapted and train.optimizer.module is None and 0 < rate < LEAST_BFLOAT16_RATE:
        key = (role, "precision", "parameters")
        yield Problem(
            "updates-rounded-away",
            key,
            f"{role}.precision.parameters is bfloat16, and at a learning rate of {rate:g} updates are smaller than its steps: "
            "most weights never move",
            f"{{fix}}; {role}.precision.compute may stay bfloat16",
            ((key, "float32"),),
        )


def _warmup(config: Config) -> Iterator[Problem]:
    schedule = config.train.lr_scheduler
    key = ("train", "lr_scheduler")
    if schedule.warmup_steps is not None and schedule.warmup_ratio is not None:
        yield Problem(
            "warmup",
            key,
            "the warm-up has both steps and a ratio",
            "{fix}",
            (((*key, "warmup_ratio"), None), ((*key, "warmup_steps"), None)),
        )
    steps = arithmetic.total_steps(config, None)
    if steps is None or schedule.warmup_steps is None:
        return
    per_step = arithmetic.optimizer_steps_per_step(config) if schedule.step_unit == "optimizer_step" else 1
    total = schedule.total_steps or steps * per_step
    if schedule.warmup_steps > total:
        yield Problem(
            "warmup",
            (*key, "warmup_steps"),
            f"a warm-up of {schedule.warmup_steps} steps in a run of {total} ({schedule.step_unit}s): the peak is never reached",
            "{first} or less",
            (((*key, "warmup_steps"), total),),
        )


def clip_range(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Bounds of the policy loss can act."""
    loss = config.algorithm.policy_loss
    if not _is_rl(config) or not isinstance(loss, (PpoClip, Gspo, Cispo)):
        return
    key = ("algorithm", "policy_loss")
    if isinstance(loss, (PpoClip, Gspo)) and loss.clip_low >= 1:
        yield Problem(
            "clip-range",
            (*key, "clip_low"),
            f"clip_low is {loss.clip_low:g}: a ratio is never below 0, so the lower bound never acts",
            "0.2 is usual",
        )
    if isinstance(loss, (PpoClip, Gspo)) and loss.clip_high < loss.clip_low:
        yield Problem(
            "clip-range",
            (*key, "clip_high"),
            f"clip_high {loss.clip_high:g} is below clip_low {loss.clip_low:g}: good tokens are held back more than bad ones",
            "clip_high is the same or larger (DAPO: 0.28 over 0.2)",
        )
    if isinstance(loss, PpoClip) and loss.dual_clip is not None and loss.dual_clip <= 1 + loss.clip_high:
        yield Problem(
            "clip-range",
            (*key, "dual_clip"),
            f"dual_clip {loss.dual_clip:g} is within 1 + clip_high = {1 + loss.clip_high:g}",
            "3.0 is usual, null is off",
        )


def experts(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Expert responses are there for mix, and for nothing else."""
    objective, key = config.algorithm.objective.choice, ("buffer", "auxiliary")
    named = config.algorithm.sample_strategy_args
    if objective == "mix" and config.run.mode == "full" and not config.buffer.auxiliary:
        yield Problem(
            "no-data",
            key,
            "mix learns from expert responses too, and buffer.auxiliary is empty",
            "set buffer.auxiliary.sft_dataset: {path: experts.jsonl, messages_key: messages}",
        )
    if objective != "mix" and config.buffer.auxiliary:
        yield Problem(
            "not-supported",
            key,
            f"buffer.auxiliary has further training data, which {objective} does not read",
            "remove it, or set algorithm.objective to mix",
        )
    if objective != "mix" and config.algorithm.sample_strategy == "mix":
        yield Problem(
            "not-supported",
            ("algorithm", "sample_strategy"),
            f"responses are picked by mix; {objective} trains on what a step draws",
            "remove sample_strategy and its arguments, or set algorithm.objective to mix",
        )
        return
    known = {"sft_dataset_name"} if objective == "mix" else set()
    known |= {"max_staleness"} if config.algorithm.sample_strategy == "staleness_control" else set()
    if unknown := sorted(set(named) - known):
        yield Problem(
            "not-supported",
            ("algorithm", "sample_strategy_args"),
            f"sample_strategy_args of {objective} with {config.algorithm.sample_strategy} has {', '.join(unknown)}; "
            f"expected {', '.join(sorted(known)) or 'none'}",
            "algorithm.objective.expert_share is the share of experts" if objective == "mix" else "remove them",
        )


def router_replay(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """The experts that updates go to are recorded by a pass before them."""
    algorithm, key = config.algorithm, ("algorithm", "router_replay")
    if algorithm.router_replay != "recompute":
        return
    off = ((key, "off"),)
    if algorithm.objective.choice == "mix":
        message = "'algorithm.router_replay' recompute: no pass before the update reads the responses that mix learns from beside"
        yield Problem("not-supported", key, message, "{fix}", off)
    elif algorithm.objective.choice == "rl" and algorithm.old_log_probs == "rollout":
        message = (
            "'algorithm.router_replay' recompute: with old_log_probs rollout there is no pass before it that records"
        )
        yield Problem("not-supported", key, message, "set algorithm.old_log_probs to recompute, or {fix}", off)


RULES = (advantage, kl, sampling, learning_rate, clip_range, experts, router_replay)
