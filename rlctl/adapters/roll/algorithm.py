"""ROLL: KL, aggregation, what is done to rewards, and the weights of the loss; advantages and the policy loss are beside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rlctl.adapters.engine.preset import unfolded_preset
from rlctl.adapters.engine.rules import (
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    InexpressibleError,
    Key,
    Out,
    Provenance,
    Reading,
    Rule,
    Writing,
    converted,
)
from rlctl.adapters.engine.values import AGGREGATIONS, Names
from rlctl.adapters.roll.advantage import AGENTIC_ADVANTAGE, RLVR_ADVANTAGE, SHAPE
from rlctl.adapters.roll.loss import loss_rule
from rlctl.adapters.roll.numbers import number
from rlctl.common.messages.reasons import said
from rlctl.common.records import record


@record
class Aggregation:
    """ROLL's ways to aggregate; it has no plain sum."""

    how: Provenance = "mapped"
    note: str = ""

    def read(self, value: Any, view: Reading) -> Any:
        return AGGREGATIONS.read(value, view)

    def write(self, value: Any, view: Writing) -> Any:
        if value == "token_sum":
            raise InexpressibleError("ROLL has no plain sum over tokens")
        if value == "seq_mean_token_sum_norm":
            raise InexpressibleError(
                "ROLL's seq-mean-token-sum-norm divides by the padded length, not by the number of responses"
            )
        return AGGREGATIONS.write(value, view)


@dataclass(frozen=True)
class LossAggregation(Key):
    """ROLL's key, with what its sum over a constant is here."""

    def read(self, view: Reading) -> Iterator[Flow]:
        note = (
            "ROLL divides by the padded length only: its loss is this one times the number of responses in a mini-batch"
        )
        for flow in super().read(view):
            summed = flow.value == "seq_mean_token_sum_norm"
            yield replace(flow, how="derived", note=note) if summed else flow


# KL


def _read_kl_loss(view: Reading) -> Iterator[Flow]:
    to, on = view.to("algorithm.kl_in_loss"), view.get("use_kl_loss")
    switch, size = (view.path("use_kl_loss"),), (view.path("kl_loss_coef"),)
    yield Flow(to, {} if on else None, switch)
    if on:
        yield Flow((*to, "estimator"), "k3", ())
        yield Flow((*to, "coefficient"), number(view.get("kl_loss_coef")), size, same=True)
    elif view.written("kl_loss_coef"):
        yield Flow((), None, size, "dead", "use_kl_loss is off")


def _write_kl_loss(view: Writing) -> Iterator[Out]:
    to, section = view.to("algorithm.kl_in_loss"), view.get("algorithm.kl_in_loss")
    yield Flow(view.path("use_kl_loss"), section is not None, (to,), always=section is not None)
    if section is None:
        return
    yield Flow(view.path("kl_loss_coef"), section["coefficient"], ((*to, "coefficient"),), same=True, always=True)
    if section["estimator"] != "k3":
        yield Inexpressible(
            ((*to, "estimator"),),
            said("ROLL's loss always uses the k3 estimator, not {estimator}", estimator=section["estimator"]),
        )


ESTIMATORS = Names(
    {"kl": "k1", "abs": "abs", "mse": "k2", "full": "full"}, "ROLL's KL in rewards supports kl, abs, mse or full"
)


def _read_kl_reward(view: Reading) -> Iterator[Flow]:
    to, on = view.to("algorithm.kl_in_reward"), view.get("add_token_level_kl")
    yield Flow(to, {} if on else None, (view.path("add_token_level_kl"),))
    if not on:
        for key in ("kl_penalty", "target_kl", "kl_horizon"):
            if view.written(key):
                yield Flow((), None, (view.path(key),), "dead", "add_token_level_kl is off")
        if view.written("init_kl_coef"):
            note = "without add_token_level_kl it only decides whether ROLL builds a reference model"
            yield Flow((), None, (view.path("init_kl_coef"),), "dead", note)
        return
    estimator = converted(ESTIMATORS, view.get("kl_penalty"), view, "kl_penalty")
    target = view.get("target_kl")
    yield Flow((*to, "estimator"), estimator, (view.path("kl_penalty"),))
    yield Flow((*to, "coefficient"), number(view.get("init_kl_coef")), (view.path("init_kl_coef"),), same=True)
    yield Flow((*to, "adaptive"), target is not None, (view.path("target_kl"),))
    if target is not None:
        yield Flow((*to, "target"), number(target), (view.path("target_kl"),), same=True)
    yield Flow((*to, "horizon"), view.get("kl_horizon"), (view.path("kl_horizon"),), same=True)


def _write_kl_reward(view: Writing) -> Iterator[Out]:
    to, section = view.to("algorithm.kl_in_reward"), view.get("algorithm.kl_in_reward")
    yield Flow(view.path("add_token_level_kl"), section is not None, (to,), always=section is not None)
    if section is None:
        note = "ROLL builds a reference model for any init_kl_coef above 0, although nothing reads it"
        needed = view.config.algorithm.kl_in_loss is not None
        yield Flow(view.path("init_kl_coef"), 0.0, (to,), "mapped", note, always=not needed)
        return
    try:
        value = ESTIMATORS.write(section["estimator"], view)
        yield Flow(view.path("kl_penalty"), value, ((*to, "estimator"),))
    except InexpressibleError as error:
        yield Inexpressible(
            ((*to, "estimator"),), said("{error}, not {estimator}", error=error, estimator=section["estimator"])
        )
    yield Flow(view.path("init_kl_coef"), section["coefficient"], ((*to, "coefficient"),), same=True, always=True)
    places = ((*to, "adaptive"), (*to, "target"))
    yield Flow(view.path("target_kl"), section["target"] if section["adaptive"] else None, places[:1])
    if section["adaptive"]:
        yield Flow(view.path("target_kl"), section["target"], places[1:], same=True)
    else:
        yield Flow((), None, places[1:], "derived", "only an adaptive coefficient has a target")
    yield Flow(view.path("kl_horizon"), section["horizon"], ((*to, "horizon"),), same=True)


KL: list[Rule] = [
    CustomRule(
        "KL in the loss",
        (DialectKey("use_kl_loss", False), DialectKey("kl_loss_coef", 0)),
        ("algorithm.kl_in_loss", "algorithm.kl_in_loss.estimator", "algorithm.kl_in_loss.coefficient"),
        _read_kl_loss,
        _write_kl_loss,
        "always k3",
    ),
    CustomRule(
        "KL in the reward",
        (
            DialectKey("add_token_level_kl", False),
            DialectKey("kl_penalty", "kl"),
            DialectKey("init_kl_coef", 0.2),
            DialectKey("target_kl", None),
            DialectKey("kl_horizon", 10000),
        ),
        (
            "algorithm.kl_in_reward",
            *(
                f"algorithm.kl_in_reward.{name}"
                for name in ("estimator", "coefficient", "adaptive", "target", "horizon")
            ),
        ),
        _read_kl_reward,
        _write_kl_reward,
        "adaptive if target_kl is set",
    ),
]


def _read_old(view: Reading) -> Iterator[Flow]:
    keys = ("enable_old_logprobs_recompute", "force_disable_old_logprobs_recompute")
    forced = view.get(keys[1])
    note = (
        "each mini-batch uses its own log-probs as the old ones"
        if forced
        else "ROLL recomputes them, or reuses those of the only forward pass if they are equal"
    )
    used = tuple(view.path(key) for key in keys)
    yield Flow(view.to("algorithm.old_log_probs"), "recompute", used, note=note if view.written(*keys) else "")


def _write_old(view: Writing) -> Iterator[Out]:
    value, used = view.get("algorithm.old_log_probs"), (view.to("algorithm.old_log_probs"),)
    if value == "rollout":
        yield Inexpressible(used, "ROLL never uses the rollout engine's log-probs as old log-probs")
    else:
        yield Flow(
            (), None, used, "mapped" if value == "recompute" else "derived", "ROLL derives it from the batch sizes"
        )


OLD = CustomRule(
    "old log-probs",
    (DialectKey("enable_old_logprobs_recompute", False), DialectKey("force_disable_old_logprobs_recompute", False)),
    ("algorithm.old_log_probs",),
    _read_old,
    _write_old,
)


def _read_temperature(view: Reading) -> Iterator[Flow]:
    yield Flow(view.to("algorithm.train_temperature"), "one", ())


def _write_temperature(view: Writing) -> Iterator[Out]:
    value, heat = view.get("algorithm.train_temperature"), view.config.rollout.sampling.temperature
    used = (view.to("algorithm.train_temperature"),)
    if value == "one":
        yield Flow((), None, used, "mapped", "what ROLL does")
    elif heat == 1:
        yield Flow((), None, used, "derived", "no difference at temperature 1")
    else:
        yield Inexpressible(
            used,
            said(
                "ROLL trains on logits at temperature 1, not {heat:g}: its log-probs differ from the sampling "
                "distribution's",
                heat=heat,
            ),
        )


TEMPERATURE = CustomRule(
    "training temperature", (), ("algorithm.train_temperature",), _read_temperature, _write_temperature
)


class RouterReplay(Names):
    """ROLL names R2 and refuses it."""

    def write(self, value: Any, view: Writing) -> Any:
        if value == "recompute":
            raise InexpressibleError("ROLL refuses router_replay.mode R2: training routes tokens again")
        return super().write(value, view)


REPLAY = RouterReplay({"disable": "off", "R3": "rollout", "R2": "recompute"})
PRESET = unfolded_preset("ROLL")
COMMON: list[Rule] = [
    LossAggregation(
        "loss_agg_mode", "algorithm.loss_aggregation.mode", "seq-mean-token-mean", Aggregation(), always=True
    ),
    Dropped("algorithm.loss_aggregation.scale_factor", "ROLL divides by the padded length"),
    Dropped(
        "algorithm.loss_aggregation.per_micro_batch",
        "ROLL averages the loss over the whole mini-batch",
        matters=True,
    ),
    *KL,
    Key("entropy_loss_coef", "algorithm.entropy_coefficient", 0),
    OLD,
    TEMPERATURE,
    Key("actor_train.router_replay.mode", "algorithm.router_replay", "disable", REPLAY),
    Key("reward_clip", f"{SHAPE}.clip", None),
    Key("whiten_rewards", f"{SHAPE}.whiten", False),
    Key("advantage_clip", "algorithm.advantage.clip", None),
    *[
        Dropped(f"{SHAPE}.{name}", reason)
        for name, reason in (
            ("shift", "ROLL no longer shifts rewards (reward_shift was removed)"),
            ("scale", "ROLL no longer scales rewards (reward_scale was removed)"),
            ("overlong_penalty", "ROLL has no soft overlong penalty; max_len_mask excludes truncated responses"),
            ("overlong_penalty.**", "ROLL has no soft overlong penalty; max_len_mask excludes truncated responses"),
            ("length_penalty", "in ROLL a reward worker does this"),
        )
    ],
    Dropped("algorithm.objective.type", "ROLL uses a different start script and config file for it", "rl"),
    Dropped("algorithm.objective.**", "ROLL uses separate config files for dpo and sft"),
    PRESET,
    Dropped("algorithm.policy_filtration", "ROLL does not resample responses"),
    Dropped("algorithm.policy_filtration.**", "ROLL does not resample responses"),
    Dropped("algorithm.sample_strategy", "ROLL trains only on the responses of the current step"),
    Dropped("algorithm.sample_strategy_args", "ROLL trains only on the responses of the current step"),
    Dropped("algorithm.experience_operators", "ROLL has no experience operators"),
    Dropped("algorithm.experience_operators[].**", "ROLL has no experience operators"),
]
WEIGHTS: list[Rule] = [
    Key("rl_loss_coef", "algorithm.loss_weights.rl", 1.0),
    Key("difficulty_loss_weight", "algorithm.loss_weights.difficulty", False),
    Key("length_loss_weight", "algorithm.loss_weights.length", False),
]
RLVR: list[Rule] = [RLVR_ADVANTAGE, loss_rule(DialectKey("importance_sampling", "token")), *COMMON, *WEIGHTS]
AGENTIC: list[Rule] = [
    AGENTIC_ADVANTAGE,
    loss_rule(DialectKey("ratio_type", "token")),
    *COMMON,
    *[
        Dropped(f"algorithm.loss_weights.{name}", "ROLL has no loss weights in agentic runs")
        for name in ("rl", "difficulty", "length")
    ],
]
DPO: list[Rule] = [
    Key("beta", "algorithm.objective.beta", 0.1, always=True),
    Key("ipo", "algorithm.objective.ipo", False),
    Key("label_smoothing", "algorithm.objective.label_smoothing", 0.0),
    Dropped("algorithm.objective.type", "ROLL uses a different start script and config file for it", "dpo"),
]
