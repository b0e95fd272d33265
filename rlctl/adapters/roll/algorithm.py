"""ROLL: KL, aggregation, what is done to rewards, and the weights of the loss; advantages and the policy loss are beside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rlctl.adapters.engine.one_sided_rows import FollowsFrom
from rlctl.adapters.engine.preset import unfolded_preset
from rlctl.adapters.engine.rules import (
    ABSENT,
    Computed,
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
    Switch,
    When,
    Writing,
    converted,
)
from rlctl.adapters.engine.values import AGGREGATIONS, Names
from rlctl.adapters.roll.advantage import AGENTIC_ADVANTAGE, RLVR_ADVANTAGE, SHAPE
from rlctl.adapters.roll.loss import loss_rule
from rlctl.adapters.roll.numbers import NUMBER, number
from rlctl.common.messages.reasons import said
from rlctl.common.records import record

KL_LOSS = "algorithm.kl_in_loss"


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


def _has_kl_loss(view: Reading) -> bool:
    return bool(view.get("use_kl_loss"))


def _writes_kl_loss(view: Writing) -> bool:
    return view.config.algorithm.kl_in_loss is not None


KL: list[Rule] = [
    Switch("use_kl_loss", KL_LOSS),
    When(
        (Key("kl_loss_coef", f"{KL_LOSS}.coefficient", convert=NUMBER, always=True),),
        _has_kl_loss,
        _writes_kl_loss,
        "use_kl_loss is off",
    ),
    FollowsFrom(
        f"{KL_LOSS}.estimator",
        reads=lambda view: "k3" if _has_kl_loss(view) else ABSENT,
        writes=lambda view: "k3",
        reason=lambda view: said(
            "ROLL's loss always uses the k3 estimator, not {estimator}", estimator=view.get(f"{KL_LOSS}.estimator")
        ),
        note="ROLL always does this",
        formula="always k3",
    ),
    CustomRule(
        "KL in the reward",
        (
            DialectKey("add_token_level_kl"),
            DialectKey("kl_penalty"),
            DialectKey("init_kl_coef"),
            DialectKey("target_kl"),
            DialectKey("kl_horizon"),
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
        by_key={
            "add_token_level_kl": "algorithm.kl_in_reward",
            "kl_penalty": "algorithm.kl_in_reward.estimator",
            "init_kl_coef": "algorithm.kl_in_reward.coefficient",
            "target_kl": ("algorithm.kl_in_reward.adaptive", "algorithm.kl_in_reward.target"),
            "kl_horizon": "algorithm.kl_in_reward.horizon",
        },
        why="`target_kl` is both a switch and a number, and `init_kl_coef` is 0 where the section is null.",
    ),
]


_OLD = ("enable_old_logprobs_recompute", "force_disable_old_logprobs_recompute")
_DERIVED = "ROLL derives it from the batch sizes"


def _recomputes(view: Reading) -> Computed:
    forced = view.get(_OLD[1])
    note = (
        "each mini-batch would use its current log-probs as old log-probs, so the ratio is always 1"
        if forced
        else "ROLL recomputes them, or reuses those of the only forward pass if they are equal"
    )
    return Computed("recompute", note if view.written(*_OLD) else "", "mapped")


def _is_recomputed(view: Writing) -> bool:
    return bool(view.get("algorithm.old_log_probs") != "rollout")


OLD = FollowsFrom(
    "algorithm.old_log_probs",
    reads=_recomputes,
    writes=lambda view: "recompute",
    reason="ROLL never uses the rollout engine's log-probs as old log-probs",
    note=_DERIVED,
    harmless=((_is_recomputed, _DERIVED),),
    of=tuple(DialectKey(key) for key in _OLD),
)


def _is_plain(view: Writing) -> bool:
    """Whether responses are sampled at temperature 1."""
    return view.config.rollout.sampling.temperature == 1


TEMPERATURE = FollowsFrom(
    "algorithm.train_temperature",
    reads=lambda view: "one",
    writes=lambda view: "one",
    reason=lambda view: said(
        "ROLL trains on logits at temperature 1, not {heat:g}: its log-probs differ from the sampling distribution's",
        heat=view.config.rollout.sampling.temperature,
    ),
    note="ROLL always does this",
    harmless=((_is_plain, "no difference at temperature 1"),),
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
    LossAggregation("loss_agg_mode", "algorithm.loss_aggregation.mode", convert=Aggregation(), always=True),
    Dropped("algorithm.loss_aggregation.scale_factor", "ROLL divides by the padded length"),
    Dropped(
        "algorithm.loss_aggregation.per_micro_batch",
        "ROLL averages the loss over the whole mini-batch",
        matters=True,
    ),
    *KL,
    Key("entropy_loss_coef", "algorithm.entropy_coefficient"),
    OLD,
    TEMPERATURE,
    Key("actor_train.router_replay.mode", "algorithm.router_replay", convert=REPLAY),
    Key("reward_clip", f"{SHAPE}.clip", takes_null=False),
    Key("whiten_rewards", f"{SHAPE}.whiten"),
    Key("advantage_clip", "algorithm.advantage.clip", takes_null=False),
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
    Key("rl_loss_coef", "algorithm.loss_weights.rl"),
    Key("difficulty_loss_weight", "algorithm.loss_weights.difficulty"),
    Key("length_loss_weight", "algorithm.loss_weights.length"),
]
RLVR: list[Rule] = [
    RLVR_ADVANTAGE,
    loss_rule(DialectKey("importance_sampling", takes=("token", "seq"))),
    *COMMON,
    *WEIGHTS,
]
AGENTIC: list[Rule] = [
    AGENTIC_ADVANTAGE,
    loss_rule(DialectKey("ratio_type", takes=("token", "segment"))),
    *COMMON,
    *[
        Dropped(f"algorithm.loss_weights.{name}", "ROLL has no loss weights in agentic runs")
        for name in ("rl", "difficulty", "length")
    ],
]
DPO: list[Rule] = [
    Key("beta", "algorithm.objective.beta", always=True),
    Key("ipo", "algorithm.objective.ipo"),
    Key("label_smoothing", "algorithm.objective.label_smoothing"),
    Dropped("algorithm.objective.type", "ROLL uses a different start script and config file for it", "dpo"),
]
