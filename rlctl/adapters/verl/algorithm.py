"""verl: advantage, policy loss, KL and aggregation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.one_sided_rows import FollowsFrom, WriteOnly
from rlctl.adapters.engine.preset import unfolded_preset
from rlctl.adapters.engine.rules import (
    ABSENT,
    Absent,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    InexpressibleError,
    Key,
    Out,
    Reading,
    Rule,
    Same,
    Switch,
    Writing,
    converted,
    where_there_is,
)
from rlctl.adapters.engine.values import AGGREGATIONS, BY_STEP, Names, shaping_dropped
from rlctl.adapters.verl import nearest, shaping
from rlctl.adapters.verl.correction import CORRECTION, C
from rlctl.adapters.verl.nearest import ChosenOrNearest
from rlctl.adapters.verl.roles import ACTOR, kind_of_engine
from rlctl.common.messages.reasons import said

A = "actor_rollout_ref.actor"


class PerToken(Same):
    """A discount, which verl takes from token to token."""

    def write(self, value: Any, view: Writing) -> Any:
        if view.get("algorithm.advantage.type") in BY_STEP:
            raise InexpressibleError("verl discounts over tokens, not over steps")
        return value


ESTIMATORS = {
    "k1": "k1",
    "kl": "k1",
    "abs": "abs",
    "k2": "k2",
    "mse": "k2",
    "low_var_kl": "k3",
    "k3": "k3",
    "full": "full",
    "k1+": "k1+",
    "kl+": "k1+",
    "abs+": "abs+",
    "k2+": "k2+",
    "mse+": "k2+",
    "k3+": "k3+",
    "low_var_kl+": "k3+",
}
ADVANTAGES = {
    "gae": "gae",
    "grpo": "grpo",
    "grpo_passk": "grpo_passk",
    "rloo": "rloo",
    "rloo_vectorized": "rloo",
    "grpo_vectorized": "grpo",
    "reinforce_plus_plus": "reinforce_plus_plus",
    "reinforce_plus_plus_baseline": "reinforce_plus_plus_baseline",
    "remax": "remax",
    "opo": "opo",
}
LOSSES = {"vanilla": "ppo_clip", "gspo": "gspo", "cispo": "cispo", "sapo": "sapo", "gpg": "policy_gradient"}
NO_ESTIMATOR = "verl has no advantage estimator {name}"


def _kl(key: str) -> Names:
    first = "kl" if key == "penalty" else "low_var_kl"
    ordered = {first: ESTIMATORS[first], **ESTIMATORS}
    return Names(ordered, "verl has only the clamped, uncorrected k3")


def _read_clip(view: Reading) -> Iterator[Flow]:
    both = view.get(f"{A}.clip_ratio")
    for side in ("low", "high"):
        key = f"{A}.clip_ratio_{side}"
        value = view.get(key)
        used = (view.path(key),) if value is not None else (view.path(key), view.path(f"{A}.clip_ratio"))
        value = both if value is None else value
        yield Flow(view.to(f"algorithm.policy_loss.clip_{side}"), value, used, same=True)
        yield Flow(view.to(f"algorithm.policy_loss.args.clip_{side}"), value, used, same=True)
    if view.get(f"{A}.clip_ratio_low") is not None and view.get(f"{A}.clip_ratio_high") is not None:
        reason = "clip_ratio_low and clip_ratio_high are set (in the config or by verl's defaults) and override it"
        yield Flow((), None, (view.path(f"{A}.clip_ratio"),), "dead", reason)


def _write_clip(view: Writing) -> Iterator[Out]:
    args = view.get("algorithm.policy_loss.args")
    old = view.version < (0, 4)
    for side in ("low", "high"):
        place = "args." if isinstance(args, Mapping) else ""
        value = view.get(f"algorithm.policy_loss.{place}clip_{side}")
        used = (view.to(f"algorithm.policy_loss.{place}clip_{side}"),)
        if isinstance(value, Absent):
            continue
        if old and view.get(f"algorithm.policy_loss.{place}clip_low") != view.get(
            f"algorithm.policy_loss.{place}clip_high"
        ):
            yield Inexpressible(used, "this release has one clip_ratio for both sides")
        yield Flow(view.path(f"{A}.clip_ratio" if old else f"{A}.clip_ratio_{side}"), value, used, same=True)


REPLAY = Names({"disabled": "off", "R2": "recompute", "R3": "rollout"})


REPLAYING = ("megatron", "veomni")
"""The engines of verl that replay routes; FSDP's choose anew, whatever the key says."""


def _replays_in(block: str) -> Any:
    """Whether the engine that replays routes is this one; it stands in the engine's block since 0.9.1."""

    def chosen(view: Writing) -> bool:
        engine = view.get("train.engine")
        return view.version >= (0, 9) and block == engine["type"]

    return chosen


class Replay(Key):
    """Routes that are replayed, where an engine of verl does so."""

    def read(self, view: Reading) -> Iterator[Flow]:
        engine = kind_of_engine(view, f"{A}.strategy", ACTOR.groups)
        if engine in REPLAYING or not view.written(self.key):
            yield from super().read(view)
        else:
            yield Flow(
                (), None, (view.path(self.key),), "dead", said("verl has no router replay on {engine}", engine=engine)
            )


AGGREGATION = "algorithm.loss_aggregation.mode"
OWN_AGGREGATION = "seq_mean_token_mean"


def _is_fixed(loss: Any, view: Reading | Writing) -> bool:
    """Whether a loss is aggregated in its own way, whatever ``loss_agg_mode`` says; gspo goes by it since 0.9.1."""
    return loss == "sapo" or (loss == "gspo" and view.version < (0, 9))


def _read_aggregation(view: Reading) -> Iterator[Flow]:
    key, loss = f"{A}.loss_agg_mode", view.get(f"{A}.policy_loss.loss_mode")
    used = (view.path(key),)
    if _is_fixed(loss, view):
        yield Flow(
            view.to(AGGREGATION),
            OWN_AGGREGATION,
            (),
            "derived",
            said("verl's {loss} averages over responses", loss=loss),
        )
        same = AGGREGATIONS.names.get(view.get(key)) == OWN_AGGREGATION
        yield Flow(
            (),
            None,
            used,
            "mapped" if same else "dead",
            said("verl's {loss} always uses seq-mean-token-mean", loss=loss),
            misleads=not same,
        )
    else:
        value = view.get(key, "token-mean")
        value = value if "${" in str(value) else converted(AGGREGATIONS, value, view, key)
        note = "verl 0.9.0 always averages over responses" if loss == "gspo" and value != OWN_AGGREGATION else ""
        yield Flow(view.to(AGGREGATION), value, used, "mapped", note)


def _write_aggregation(view: Writing) -> Iterator[Out]:
    mode, loss = view.get(AGGREGATION), view.get("algorithm.policy_loss.type")
    used = (view.to(AGGREGATION),)
    if view.version < (0, 4):
        if mode != "token_mean":
            yield Inexpressible(used, "this release always averages over tokens")
    elif _is_fixed(loss, view) and mode != OWN_AGGREGATION:
        yield Inexpressible(used, said("verl's {loss} always uses seq-mean-token-mean", loss=loss))
    else:
        yield Flow(view.path(f"{A}.loss_agg_mode"), AGGREGATIONS.write(mode, view), used, always=loss == "gspo")


KL_IN_REWARD, KL_IN_LOSS = "algorithm.kl_in_reward", "algorithm.kl_in_loss"
USES_KL_IN_REWARD: list[Rule] = [
    where_there_is("algorithm.use_kl_in_reward", Switch("algorithm.use_kl_in_reward", KL_IN_REWARD)),
    where_there_is(
        "algorithm.use_kl_in_reward",
        FollowsFrom(
            KL_IN_REWARD,
            reads=lambda view: None if view.get(f"{A}.use_kl_loss") else {},
            writes=lambda view: {} if view.get(KL_IN_LOSS) is None else None,
            reason="this release subtracts KL from rewards only if KL is not in the loss",
            open=(None,),
            formula="whenever use_kl_loss is off",
        ),
        WriteOnly(
            KL_IN_REWARD,
            lambda view: view.get(KL_IN_REWARD) is None and view.get(KL_IN_LOSS) is None,
            "this release always subtracts KL from rewards unless KL is in the loss",
            key="algorithm.kl_ctrl.kl_coef",
            value=0.0,
            always=True,
        ),
        lacks=True,
    ),
]
"""Before verl 0.4 there was one switch for both KL terms, so off is written as a coefficient of 0."""


def _read_dual(view: Reading) -> Iterator[Flow]:
    value = view.get(f"{A}.clip_ratio_c")
    off = isinstance(value, (int, float)) and value >= 1e6
    used = (view.path(f"{A}.clip_ratio_c"),)
    if view.get(f"{A}.policy_loss.loss_mode") != "gspo":
        yield Flow(view.to("algorithm.policy_loss.dual_clip"), None if off else value, used, same=not off)
    yield Flow(view.to("algorithm.policy_loss.args.clip_ratio_c"), value, used, same=True)


def _no_dual_clip(view: Writing, value: Any, place: str) -> Out:
    if value is None:
        return Flow((), None, (view.to(place),))
    return Inexpressible(
        (view.to(place),),
        said("verl's gspo has no dual clip: the bound {value:g} for negative advantages is lost", value=value),
    )


def _write_dual(view: Writing) -> Iterator[Out]:
    for place in ("algorithm.policy_loss.dual_clip", "algorithm.policy_loss.args.clip_ratio_c"):
        value = view.get(place)
        if isinstance(value, Absent):
            continue
        if view.get("algorithm.policy_loss.type") == "gspo":
            yield _no_dual_clip(view, value, place)
            continue
        note = "verl's dual clip is always on; this bound is too large to have an effect" if value is None else ""
        how: Any = "derived" if value is None else "mapped"
        yield Flow(
            view.path(f"{A}.clip_ratio_c"),
            1.0e9 if value is None else value,
            (view.to(place),),
            how,
            note,
            same=value is not None,
        )


TEMPERATURE = "algorithm.train_temperature"


PRESET = unfolded_preset("verl")
P = "algorithm.policy_filtration"
RULES: list[Rule] = [
    ChosenOrNearest(
        "algorithm.adv_estimator",
        "algorithm.advantage",
        ADVANTAGES,
        always=True,
        missing=NO_ESTIMATOR,
        dialect="verl",
        nearest=nearest.ESTIMATORS,
        instead=nearest.in_groups,
        unused=nearest.learns_from_teacher_alone,
        needs=nearest.NEEDS,
    ),
    Key("algorithm.gamma", "algorithm.advantage.gamma", convert=PerToken()),
    Key("algorithm.lam", "algorithm.advantage.lambda"),
    Key("algorithm.norm_adv_by_std_in_grpo", "algorithm.advantage.normalize_by_std"),
    Dropped("algorithm.advantage.whiten", "in verl the estimator decides: gae, reinforce_plus_plus and gdpo whiten"),
    Dropped("algorithm.advantage.clip", "verl does not clip advantages"),
    Dropped("algorithm.advantage.epsilon", "verl adds 1e-6"),
    Dropped("algorithm.advantage.kl_order", "verl subtracts KL before it normalizes"),
    Dropped("algorithm.advantage.baseline", "only Trinity has opmd"),
    Dropped("algorithm.advantage.tau", "only Trinity has opmd"),
    Key("algorithm.gdpo_reward_keys", "algorithm.advantage.args.gdpo_reward_keys", ABSENT),
    # 0.4.1 trainer/ppo/core_algos.py has no gspo and 0.4.0 no key: no loss is named before 0.5
    ChosenOrNearest(
        f"{A}.policy_loss.loss_mode",
        "algorithm.policy_loss",
        LOSSES,
        since="0.5",
        older="vanilla",
        missing="verl has no loss {name}",
        dialect="verl",
        nearest=nearest.LOSSES,
        instead=lambda view: "vanilla",
    ),
    CustomRule(
        "clip range",
        (
            DialectKey(f"{A}.clip_ratio"),
            DialectKey(f"{A}.clip_ratio_low"),
            DialectKey(f"{A}.clip_ratio_high"),
        ),
        ("algorithm.policy_loss.clip_low", "algorithm.policy_loss.clip_high"),
        _read_clip,
        _write_clip,
        "clip_ratio_low, clip_ratio_high, else clip_ratio",
        by_key={
            f"{A}.clip_ratio": ("algorithm.policy_loss.clip_low", "algorithm.policy_loss.clip_high"),
            f"{A}.clip_ratio_low": "algorithm.policy_loss.clip_low",
            f"{A}.clip_ratio_high": "algorithm.policy_loss.clip_high",
        },
        why="One key is the default of two others, and each is read for two kinds of losses.",
    ),
    CustomRule(
        "dual clip",
        (DialectKey(f"{A}.clip_ratio_c"),),
        ("algorithm.policy_loss.dual_clip",),
        _read_dual,
        _write_dual,
        why="It fills a field of rlctl's losses and an argument of verl's own, and one loss has no such bound.",
    ),
    Key(f"{A}.tau_pos", "algorithm.policy_loss.tau_positive"),
    Key(f"{A}.tau_neg", "algorithm.policy_loss.tau_negative"),
    *[
        Key(f"{A}.policy_loss.{name}", f"algorithm.policy_loss.args.{name}")
        for name in ("clip_cov_ratio", "clip_cov_lb", "clip_cov_ub", "kl_cov_ratio", "ppo_kl_coef", "dro_beta")
    ],
    Dropped("algorithm.policy_loss.args", "verl's loss has no such argument"),
    Dropped("algorithm.policy_loss.importance_weight", "verl's gpg has no importance weight", "none"),
    Dropped("algorithm.policy_loss.weight_bound", "verl's gpg has no importance weight"),
    Dropped("algorithm.policy_loss.positive_weight", "verl has no topr"),
    Dropped("algorithm.policy_loss.negative_weight", "verl has no topr"),
    Dropped("algorithm.advantage.args", "verl's estimator has no such argument, so it computes something else"),
    CustomRule(
        "aggregation",
        (DialectKey(f"{A}.loss_agg_mode"),),
        (AGGREGATION,),
        _read_aggregation,
        _write_aggregation,
        "loss_agg_mode; sapo, and until 0.9.0 gspo, always use seq-mean-token-mean",
        why="The loss and the release decide whether the key is read at all.",
    ),
    Key(f"{A}.loss_scale_factor", "algorithm.loss_aggregation.scale_factor"),
    Dropped(
        "algorithm.loss_aggregation.per_micro_batch",
        "verl averages the loss over the whole mini-batch",
        matters=True,
    ),
    Switch(f"{A}.use_kl_loss", "algorithm.kl_in_loss"),
    Key(f"{A}.kl_loss_coef", "algorithm.kl_in_loss.coefficient"),
    Key(f"{A}.kl_loss_type", "algorithm.kl_in_loss.estimator", convert=_kl("loss")),
    *USES_KL_IN_REWARD,
    Key("algorithm.kl_penalty", "algorithm.kl_in_reward.estimator", convert=_kl("penalty")),
    Key("algorithm.kl_ctrl.kl_coef", "algorithm.kl_in_reward.coefficient"),
    Key("algorithm.kl_ctrl.type", "algorithm.kl_in_reward.adaptive", convert=Names({"fixed": False, "adaptive": True})),
    Key("algorithm.kl_ctrl.target_kl", "algorithm.kl_in_reward.target"),
    Key("algorithm.kl_ctrl.horizon", "algorithm.kl_in_reward.horizon"),
    Key(f"{A}.entropy_coeff", "algorithm.entropy_coefficient"),
    Key(
        f"{C}.bypass_mode",
        "algorithm.old_log_probs",
        convert=Names(
            {False: "recompute", True: "rollout"}, "verl never chooses by the batch size; it always recomputes them"
        ),
    ),
    FollowsFrom(
        TEMPERATURE,
        reads=lambda view: "sampling",
        writes=lambda view: "sampling",
        note="verl always does this",
        harmless=((lambda view: view.config.rollout.sampling.temperature == 1, "no difference at temperature 1"),),
        reason=lambda view: said(
            "verl divides training logits by the sampling temperature {temperature:g}, and the source does "
            "not, so log-probs and loss differ; sample at temperature 1 to get the same results",
            temperature=view.config.rollout.sampling.temperature,
        ),
    ),
    CORRECTION,
    *shaping.RULES,
    Switch("algorithm.use_pf_ppo", P),
    Key("algorithm.pf_ppo.reweight_method", f"{P}.reweight"),
    Key("algorithm.pf_ppo.weight_pow", f"{P}.power"),
    *shaping_dropped("verl", "your own reward manager"),
    Dropped("algorithm.loss_weights.**", "verl weighs losses only by their coefficients"),
    *[
        Replay(
            f"{A}.{block}.router_replay.mode",
            "algorithm.router_replay",
            convert=REPLAY,
            write_when=_replays_in(block),
        )
        for block in REPLAYING
    ],
    Replay(
        f"{A}.router_replay.mode",
        "algorithm.router_replay",
        convert=REPLAY,
        write_when=lambda view: view.version < (0, 9) and view.get("train.engine")["type"] != "fsdp2",
    ),
    PRESET,
    Dropped("algorithm.sample_strategy", "verl trains only on its own rollout"),
    Dropped("algorithm.sample_strategy_args", "verl trains only on its own rollout"),
    Dropped("algorithm.experience_operators", "verl has no experience operators"),
    Dropped("algorithm.experience_operators[].**", "verl has no experience operators"),
]
