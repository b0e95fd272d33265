"""verl: advantage, policy loss, KL, aggregation, rollout correction, filters and reward shaping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.rules import (
    ABSENT,
    Absent,
    BadValueError,
    By,
    Code,
    Dropped,
    Flow,
    K,
    Key,
    Lost,
    Out,
    Reading,
    Rule,
    Switch,
    Writing,
)
from rlctl.adapters.values import AGGREGATIONS, Names, Partly
from rlctl.adapters.verl import nearest
from rlctl.adapters.verl.nearest import ChosenOrNearest

A = "actor_rollout_ref.actor"
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
NO_ESTIMATOR = "verl has no estimator {}"


def _kl(key: str) -> Names:
    first = "kl" if key == "penalty" else "low_var_kl"
    ordered = {first: ESTIMATORS[first], **ESTIMATORS}
    return Names(ordered, "verl has no unclamped and no corrected k3")


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
        reason = "clip_ratio_low and clip_ratio_high are set, here or by verl's defaults, and win"
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
            yield Lost(used, "this version has one clip_ratio for both sides")
        yield Flow(view.path(f"{A}.clip_ratio" if old else f"{A}.clip_ratio_{side}"), value, used, same=True)


REPLAY = Names({"disabled": "off", "R2": "recompute", "R3": "rollout"})


def _replays_in(block: str) -> Any:
    """Whether the engine that replays routes is this one; it stands in the engine's block since 0.9.1."""

    def chosen(view: Writing) -> bool:
        engine = view.get("train.engine")
        return view.version >= (0, 9) and block in (engine["name"], engine.get("kind"))

    return chosen


AGGREGATION = "algorithm.aggregation.mode"
OWN_AGGREGATION = "seq_mean_token_mean"


def _is_fixed(loss: Any, view: Reading | Writing) -> bool:
    """Whether a loss is aggregated in its own way, whatever ``loss_agg_mode`` says; gspo goes by it since 0.9.1."""
    return loss == "sapo" or (loss == "gspo" and view.version < (0, 9))


def _read_aggregation(view: Reading) -> Iterator[Flow]:
    key, loss = f"{A}.loss_agg_mode", view.get(f"{A}.policy_loss.loss_mode")
    used = (view.path(key),)
    if _is_fixed(loss, view):
        yield Flow(view.to(AGGREGATION), OWN_AGGREGATION, (), "derived", f"verl's {loss} means over responses")
        same = AGGREGATIONS.names.get(view.get(key)) == OWN_AGGREGATION
        yield Flow((), None, used, "mapped" if same else "dead", f"verl's {loss} is seq-mean-token-mean in any case")
    else:
        value = view.get(key, "token-mean")
        value = value if "${" in str(value) else AGGREGATIONS.read(value, view)
        note = "verl 0.9.0 means over responses in any case" if loss == "gspo" and value != OWN_AGGREGATION else ""
        yield Flow(view.to(AGGREGATION), value, used, "mapped", note)


def _write_aggregation(view: Writing) -> Iterator[Out]:
    mode, loss = view.get(AGGREGATION), view.get("algorithm.policy_loss.name")
    used = (view.to(AGGREGATION),)
    if view.version < (0, 4):
        if mode != "token_mean":
            yield Lost(used, "this version always means over tokens")
    elif _is_fixed(loss, view) and mode != OWN_AGGREGATION:
        yield Lost(used, f"verl's {loss} is seq-mean-token-mean in any case")
    else:
        yield Flow(view.path(f"{A}.loss_agg_mode"), AGGREGATIONS.write(mode, view), used, always=loss == "gspo")


KL_IN_REWARD, KL_SWITCH = "algorithm.kl_in_reward", "algorithm.use_kl_in_reward"


def _read_kl_in_reward(view: Reading) -> Iterator[Flow]:
    if view.version >= (0, 4):
        yield Flow(view.to(KL_IN_REWARD), {} if view.get(KL_SWITCH) else None, (view.path(KL_SWITCH),))
    else:
        yield Flow(view.to(KL_IN_REWARD), None if view.get(f"{A}.use_kl_loss") else {}, ())


def _write_kl_in_reward(view: Writing) -> Iterator[Out]:
    section, used = view.get(KL_IN_REWARD), (view.to(KL_IN_REWARD),)
    if isinstance(section, Absent):
        return
    if view.version >= (0, 4):
        yield Flow(view.path(KL_SWITCH), section is not None, used)
    elif section is None and view.get("algorithm.kl_in_loss") is None:
        note = "this version always subtracts KL from rewards unless it is in the loss"
        yield Flow(view.path("algorithm.kl_ctrl.kl_coef"), 0.0, used, "derived", note, always=True)
    elif section is not None and view.get("algorithm.kl_in_loss") is not None:
        yield Lost(used, "this version subtracts KL from rewards only where it is not in the loss")


def _read_dual(view: Reading) -> Iterator[Flow]:
    value = view.get(f"{A}.clip_ratio_c")
    off = isinstance(value, (int, float)) and value >= 1e6
    used = (view.path(f"{A}.clip_ratio_c"),)
    yield Flow(view.to("algorithm.policy_loss.dual_clip"), None if off else value, used, same=not off)
    yield Flow(view.to("algorithm.policy_loss.args.clip_ratio_c"), value, used, same=True)


def _write_dual(view: Writing) -> Iterator[Out]:
    for place in ("algorithm.policy_loss.dual_clip", "algorithm.policy_loss.args.clip_ratio_c"):
        value = view.get(place)
        if isinstance(value, Absent):
            continue
        note = "verl's dual clip is always on; so large a bound never acts" if value is None else ""
        how: Any = "derived" if value is None else "mapped"
        yield Flow(
            view.path(f"{A}.clip_ratio_c"),
            1.0e9 if value is None else value,
            (view.to(place),),
            how,
            note,
            same=value is not None,
        )


# Correction between rollout and training engine: three generations of keys.

C = "algorithm.rollout_correction"
LEGACY_RS = {"token": "token_k1", "sequence": "seq_sum_k1", "geometric": "seq_mean_k1"}


def _legacy(view: Reading, name: str) -> tuple[Any, str]:
    """A flat key of 0.6, under ``algorithm`` or, in older documents, under the actor."""
    for root in ("algorithm", A):
        if view.written(f"{root}.{name}"):
            return view.get(f"{root}.{name}"), f"{root}.{name}"
    return view.get(f"algorithm.{name}"), f"algorithm.{name}"


def _read_correction(view: Reading) -> Iterator[Flow]:
    names = [
        f"{C}.{name}"
        for name in ("rollout_is", "rollout_rs", "rollout_token_veto_threshold", "rollout_is_veto_threshold")
    ]
    _legacy_on, legacy_key = _legacy(view, "rollout_is")
    on = [name for name in names if view.get(name) is not None]
    if view.get(f"{C}.use_policy_gradient") or view.get(f"{C}.loss_type") == "reinforce":
        on.append(f"{C}.loss_type")
    threshold, threshold_key = _legacy(view, "rollout_is_threshold")
    is_legacy = threshold is not None and (view.written(threshold_key) or view.written(legacy_key))
    every = tuple(view.path(key.name) for key in CORRECTION_KEYS if key.name != f"{C}.bypass_mode")
    yield Flow(view.to(C), {} if on or is_legacy else None, every)
    if is_legacy:
        yield from _read_legacy(view, threshold)
    elif on:
        yield from _read_modern(view)


def _read_legacy(view: Reading, threshold: Any) -> Iterator[Flow]:
    used = tuple(
        view.path(_legacy(view, f"rollout_is{end}")[1])
        for end in ("", "_threshold", "_threshold_lower", "_level", "_mode")
    )
    level, mode = _legacy(view, "rollout_is_level")[0], _legacy(view, "rollout_is_mode")[0]
    lower = _legacy(view, "rollout_is_threshold_lower")[0]
    note = "flat keys of verl 0.6"
    if mode == "mask":
        low = lower if lower is not None else 1.0 / threshold
        yield Flow(view.to(f"{C}.rejection"), [LEGACY_RS.get(str(level), "token_k1")], used, "derived", note)
        yield Flow(view.to(f"{C}.rejection_bounds"), [f"{low:g}_{threshold:g}"], used, "derived", note)
    elif _legacy(view, "rollout_is")[0]:
        yield Flow(view.to(f"{C}.weight"), level or "token", used, "derived", note)
        yield Flow(view.to(f"{C}.weight_upper"), threshold, used, "derived", note)
    veto, veto_key = _legacy(view, "rollout_is_veto_threshold")
    if view.written(veto_key):
        yield Flow(view.to(f"{C}.veto_threshold"), veto, (view.path(veto_key),), same=True)


def _read_modern(view: Reading) -> Iterator[Flow]:
    def used(name: str) -> tuple[Any, ...]:
        return (view.path(f"{C}.{name}"),)

    yield Flow(view.to(f"{C}.weight"), view.get(f"{C}.rollout_is") or "none", used("rollout_is"))
    threshold = view.get(f"{C}.rollout_is_threshold")
    threshold = 2.0 if threshold is None and not view.get(f"{C}.rollout_is") else threshold
    low, _, high = str(threshold).rpartition("_")
    try:
        yield Flow(view.to(f"{C}.weight_upper"), float(high), used("rollout_is_threshold"))
        yield Flow(view.to(f"{C}.weight_lower"), float(low) if low else None, used("rollout_is_threshold"))
    except ValueError:
        raise BadValueError(f"is {threshold!r}; expected a number or LOW_HIGH") from None
    rules = _words(view.get(f"{C}.rollout_rs"))
    bounds = _words(view.get(f"{C}.rollout_rs_threshold"))
    lower = view.get(f"{C}.rollout_rs_threshold_lower")
    if lower is not None and bounds:
        bounds = [f"{lower}_{bound}" for bound in bounds]
    yield Flow(view.to(f"{C}.rejection"), rules, used("rollout_rs"))
    yield Flow(
        view.to(f"{C}.rejection_bounds"), bounds, (*used("rollout_rs_threshold"), *used("rollout_rs_threshold_lower"))
    )
    yield Flow(
        view.to(f"{C}.veto_threshold"),
        view.get(f"{C}.rollout_token_veto_threshold"),
        used("rollout_token_veto_threshold"),
    )
    yield Flow(
        view.to(f"{C}.weight_normalize"),
        bool(view.get(f"{C}.rollout_is_batch_normalize")),
        used("rollout_is_batch_normalize"),
    )
    gradient = bool(view.get(f"{C}.use_policy_gradient")) or view.get(f"{C}.loss_type") == "reinforce"
    yield Flow(view.to(f"{C}.use_policy_gradient"), gradient, (*used("loss_type"), *used("use_policy_gradient")))


def _words(value: Any) -> list[str]:
    if value is None:
        return []
    items = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return [str(item).strip() for item in items]


def _write_correction(view: Writing) -> Iterator[Out]:
    section = view.get(C)
    if not isinstance(section, Mapping):
        return
    every = tuple(view.to(f"{C}.{name}") for name in section)
    if view.version < (0, 7):
        yield Lost(every, "rollout correction has other keys before verl 0.7; write verl@0.7 or newer")
        return
    if section["weight"] in ("segment", "geometric"):
        yield Lost((view.to(f"{C}.weight"),), f"verl has no {section['weight']} weight, only token and sequence")
    elif section["weight"] != "none":
        yield Flow(view.path(f"{C}.rollout_is"), section["weight"], (view.to(f"{C}.weight"),))
    upper, lower = section["weight_upper"], section["weight_lower"]
    bound = upper if lower is None else f"{lower:g}_{upper:g}"
    yield Flow(
        view.path(f"{C}.rollout_is_threshold"), bound, (view.to(f"{C}.weight_upper"), view.to(f"{C}.weight_lower"))
    )
    if section["rejection"]:
        yield Flow(view.path(f"{C}.rollout_rs"), ",".join(section["rejection"]), (view.to(f"{C}.rejection"),))
    if section["rejection_bounds"]:
        bounds = section["rejection_bounds"]
        yield Flow(view.path(f"{C}.rollout_rs_threshold"), ",".join(bounds), (view.to(f"{C}.rejection_bounds"),))
    yield Flow(
        view.path(f"{C}.rollout_is_batch_normalize"), section["weight_normalize"], (view.to(f"{C}.weight_normalize"),)
    )
    loss = "reinforce" if section["use_policy_gradient"] else "ppo_clip"
    yield Flow(view.path(f"{C}.loss_type"), loss, (view.to(f"{C}.use_policy_gradient"),))
    if section["veto_threshold"] is not None:
        target = view.path(f"{C}.rollout_token_veto_threshold")
        used = (view.to(f"{C}.veto_threshold"),)
        yield (
            Flow(target, section["veto_threshold"], used)
            if view.version < (0, 8)
            else Lost(used, "the veto was removed in verl 0.8")
        )
    if not section["detach"]:
        yield Lost((view.to(f"{C}.detach"),), "verl's weights carry no gradients")


CORRECTION_KEYS = (
    K(f"{C}.rollout_is", None, "0.7"),
    K(f"{C}.rollout_is_threshold", 2.0, "0.7"),
    K(f"{C}.rollout_rs", None, "0.7"),
    K(f"{C}.rollout_rs_threshold", None, "0.7"),
    K(f"{C}.rollout_rs_threshold_lower", None, "0.7", "0.7"),
    K(f"{C}.rollout_token_veto_threshold", None, "0.7", "0.7"),
    K(f"{C}.use_policy_gradient", None, "0.7", "0.7"),
    K(f"{C}.loss_type", "ppo_clip", "0.7"),
    K(f"{C}.rollout_is_batch_normalize", False, "0.7"),
    *(
        K(f"{root}.rollout_is{end}", default if root == "algorithm" else ABSENT, "0.6", "0.6")
        for root in ("algorithm", A)
        for end, default in (
            ("", False),
            ("_threshold", None),
            ("_threshold_lower", None),
            ("_level", "token"),
            ("_mode", "truncate"),
            ("_veto_threshold", 1e-4),
        )
    ),
)

# Filters and shaping


def _read_filters(view: Reading) -> Iterator[Flow]:
    root = "algorithm.filter_groups"
    used = (view.path(root),)
    if not view.get(f"{root}.enable"):
        yield Flow(view.to("algorithm.filters"), [], used)
        return
    metric = view.get(f"{root}.metric") or "reward"
    found = {"name": "equal_groups", "metric": metric, "refill": True}
    yield Flow(view.to("algorithm.filters"), [found], (view.path(f"{root}.enable"), view.path(f"{root}.metric")))
    batches = view.get(f"{root}.max_num_gen_batches")
    yield Flow(
        view.to("rollout.over_rollout.max_generation_batches"),
        batches or None,
        (view.path(f"{root}.max_num_gen_batches"),),
    )


def _write_filters(view: Writing) -> Iterator[Out]:
    root = "algorithm.filter_groups"
    filters = view.get("algorithm.filters")
    used = (view.to("algorithm.filters"),)
    if not filters:
        if view.version >= (0, 9):
            yield Flow(view.path(f"{root}.enable"), False, used)
        return
    known = [item for item in filters if item["name"] == "equal_groups"]
    if len(known) != len(filters) or len(known) != 1:
        yield Lost(used, "verl leaves out equal groups only")
    if known:
        item = known[0]
        if not item["refill"] or item["threshold"]:
            yield Lost(used, "verl refills, and compares groups for equality")
        yield Flow(view.path(f"{root}.enable"), True, used)
        metric = None if item["metric"] == "reward" else item["metric"]
        yield Flow(view.path(f"{root}.metric"), metric, used)
        batches = view.get("rollout.over_rollout.max_generation_batches")
        yield Flow(
            view.path(f"{root}.max_num_gen_batches"),
            batches or 0,
            (view.to("rollout.over_rollout.max_generation_batches"),),
        )


OVERLONG = ("reward.reward_kwargs", "reward_model.reward_kwargs")
SHAPING = "algorithm.reward_shaping.overlong_penalty"


def _read_overlong(view: Reading) -> Iterator[Flow]:
    for root in OVERLONG[:1] if view.version >= (0, 8) else OVERLONG[1:]:
        cfg = f"{root}.overlong_buffer_cfg"
        if not view.written(f"{cfg}.enable"):
            continue
        limit = view.path(f"{root}.max_resp_len")
        if not view.get(f"{cfg}.enable"):
            yield Flow(view.to(SHAPING), None, (view.path(cfg), limit), "mapped", "switched off")
            return
        yield Flow(view.to(SHAPING), {}, (view.path(f"{cfg}.enable"),))
        yield Flow(view.to(f"{SHAPING}.buffer"), view.get(f"{cfg}.len"), (view.path(f"{cfg}.len"),), same=True)
        yield Flow(
            view.to(f"{SHAPING}.factor"),
            view.get(f"{cfg}.penalty_factor", 1.0),
            (view.path(f"{cfg}.penalty_factor"),),
            same=True,
        )
        yield Flow(view.to(f"{SHAPING}.limit"), view.get(f"{root}.max_resp_len"), (limit,), same=True)
        return
    yield Flow(view.to(SHAPING), None, ())


def _write_overlong(view: Writing) -> Iterator[Out]:
    section = view.get(SHAPING)
    if not isinstance(section, Mapping):
        return
    root = OVERLONG[0] if view.version >= (0, 8) else OVERLONG[1]
    cfg = f"{root}.overlong_buffer_cfg"
    places = {name: view.to(f"{SHAPING}.{name}") for name in section}
    yield Flow(view.path(f"{cfg}.enable"), True, (view.to(SHAPING),))
    yield Flow(view.path(f"{cfg}.len"), section["buffer"], (places["buffer"],), same=True)
    yield Flow(view.path(f"{cfg}.penalty_factor"), section["factor"], (places["factor"],), same=True)
    limit = section["limit"] or view.config.rollout.max_response_tokens
    yield Flow(view.path(f"{root}.max_resp_len"), limit, (places["limit"],))
    if section["clamp"]:
        yield Lost((places["clamp"],), "verl's penalty goes on growing beyond the limit")


def _read_preference(view: Reading) -> Iterator[Flow]:
    on = view.get("algorithm.use_pf_ppo")
    yield Flow(view.to("algorithm.preference_feedback"), {} if on else None, (view.path("algorithm.use_pf_ppo"),))


def _read_nothing(view: Reading) -> Iterator[Flow]:
    return iter(())


def _write_preset(view: Writing) -> Iterator[Out]:
    yield Flow(
        (), None, (view.to("algorithm.preset"),), "derived", "verl has no presets; what it stands for is written"
    )


P = "algorithm.preference_feedback"
RULES: list[Rule] = [
    ChosenOrNearest(
        "algorithm.adv_estimator",
        "algorithm.advantage",
        ADVANTAGES,
        "gae",
        always=True,
        missing=NO_ESTIMATOR,
        nearest=nearest.ESTIMATORS,
    ),
    Key("algorithm.gamma", "algorithm.advantage.gamma", 1.0),
    Key("algorithm.lam", "algorithm.advantage.lambda", 1.0),
    Key("algorithm.norm_adv_by_std_in_grpo", "algorithm.advantage.normalize_by_std", True, since="0.4"),
    Dropped("algorithm.advantage.whiten", "verl's gae always whitens, its reinforce never does"),
    Dropped("algorithm.advantage.epsilon", "verl adds 1e-6"),
    Dropped("algorithm.advantage.kl_order", "verl subtracts KL before it normalises"),
    Dropped("algorithm.advantage.baseline", "opmd is Trinity's"),
    Dropped("algorithm.advantage.tau", "opmd is Trinity's"),
    Key("algorithm.gdpo_reward_keys", "algorithm.advantage.args.gdpo_reward_keys"),
    ChosenOrNearest(
        f"{A}.policy_loss.loss_mode",
        "algorithm.policy_loss",
        LOSSES,
        "vanilla",
        since="0.5",
        missing="verl has no loss {}",
        nearest=nearest.LOSSES,
    ),
    Code(
        "clip range",
        (K(f"{A}.clip_ratio", 0.2), K(f"{A}.clip_ratio_low", 0.2, "0.4"), K(f"{A}.clip_ratio_high", 0.2, "0.4")),
        ("algorithm.policy_loss.clip_low", "algorithm.policy_loss.clip_high"),
        _read_clip,
        _write_clip,
        "clip_ratio_low, clip_ratio_high, else clip_ratio",
    ),
    Code(
        "dual clip",
        (K(f"{A}.clip_ratio_c", 3.0, "0.4"),),
        ("algorithm.policy_loss.dual_clip",),
        _read_dual,
        _write_dual,
    ),
    Key(f"{A}.tau_pos", "algorithm.policy_loss.tau_positive", 1.0, since="0.7"),
    Key(f"{A}.tau_neg", "algorithm.policy_loss.tau_negative", 1.05, since="0.7"),
    *[
        Key(f"{A}.policy_loss.{name}", f"algorithm.policy_loss.args.{name}", default, since=since)
        for name, default, since in (
            ("clip_cov_ratio", 0.0002, "0.5"),
            ("clip_cov_lb", 1.0, "0.5"),
            ("clip_cov_ub", 5.0, "0.5"),
            ("kl_cov_ratio", 0.0002, "0.5"),
            ("ppo_kl_coef", 0.1, "0.5"),
            ("dro_beta", None, "0.9"),
        )
    ],
    Dropped("algorithm.policy_loss.args", "another dialect's loss"),
    Dropped("algorithm.policy_loss.importance_weight", "verl's gpg has no importance weight", "none"),
    Dropped("algorithm.policy_loss.weight_bound", "verl's gpg has no importance weight"),
    Dropped("algorithm.policy_loss.positive_weight", "topr is not in verl"),
    Dropped("algorithm.policy_loss.negative_weight", "topr is not in verl"),
    Dropped("algorithm.advantage.args", "another dialect's estimator"),
    Code(
        "aggregation",
        (K(f"{A}.loss_agg_mode", "token-mean", "0.4"),),
        (AGGREGATION,),
        _read_aggregation,
        _write_aggregation,
        "loss_agg_mode; sapo, and until 0.9.0 gspo, are seq-mean-token-mean whatever it says",
    ),
    Key(f"{A}.loss_scale_factor", "algorithm.aggregation.scale_factor", None, since="0.7"),
    Dropped("algorithm.aggregation.follow_source", "verl normalises over the whole mini-batch"),
    Switch(f"{A}.use_kl_loss", "algorithm.kl_in_loss"),
    Key(f"{A}.kl_loss_coef", "algorithm.kl_in_loss.coefficient", 0.001),
    Key(f"{A}.kl_loss_type", "algorithm.kl_in_loss.estimator", "low_var_kl", _kl("loss")),
    Code(
        "KL in the reward",
        (K("algorithm.use_kl_in_reward", False, "0.4"),),
        ("algorithm.kl_in_reward",),
        _read_kl_in_reward,
        _write_kl_in_reward,
        "use_kl_in_reward; in 0.3 wherever use_kl_loss is off",
    ),
    Key("algorithm.kl_penalty", "algorithm.kl_in_reward.estimator", "kl", _kl("penalty")),
    Key("algorithm.kl_ctrl.kl_coef", "algorithm.kl_in_reward.coefficient", 0.001),
    Key(
        "algorithm.kl_ctrl.type", "algorithm.kl_in_reward.adaptive", "fixed", Names({"fixed": False, "adaptive": True})
    ),
    Key("algorithm.kl_ctrl.target_kl", "algorithm.kl_in_reward.target", 0.1, since="0.4"),
    Key("algorithm.kl_ctrl.horizon", "algorithm.kl_in_reward.horizon", 10000, since="0.4"),
    Key(f"{A}.entropy_coeff", "algorithm.entropy_coefficient", By({"0.3": 0.001, "0.4": 0})),
    Key(
        f"{C}.bypass_mode",
        "algorithm.old_log_probs",
        False,
        Partly({False: "recompute", True: "rollout"}),
        since="0.7",
    ),
    Dropped("algorithm.train_temperature", "verl divides training logits by the sampling temperature", "sampling"),
    Code(
        "rollout correction",
        CORRECTION_KEYS,
        (
            *tuple(
                f"{C}.{name}"
                for name in [
                    "weight",
                    "weight_upper",
                    "weight_lower",
                    "weight_normalize",
                    "rejection",
                    "rejection_bounds",
                    "veto_threshold",
                    "use_policy_gradient",
                    "detach",
                ]
            ),
            C,
        ),
        _read_correction,
        _write_correction,
    ),
    Code(
        "filters",
        (
            K("algorithm.filter_groups.enable", False, "0.9"),
            K("algorithm.filter_groups.metric", None, "0.9"),
            K("algorithm.filter_groups.max_num_gen_batches", 0, "0.9"),
        ),
        (
            "algorithm.filters",
            *(f"algorithm.filters[].{name}" for name in ("metric", "refill", "threshold", "low", "high", "max_tokens")),
            "rollout.over_rollout.max_generation_batches",
        ),
        _read_filters,
        _write_filters,
    ),
    Code(
        "overlong penalty",
        tuple(
            K(f"{root}.{name}", ABSENT, "0.8" if root == OVERLONG[0] else "", "" if root == OVERLONG[0] else "0.7")
            for root in OVERLONG
            for name in (
                "overlong_buffer_cfg.enable",
                "overlong_buffer_cfg.len",
                "overlong_buffer_cfg.penalty_factor",
                "max_resp_len",
            )
        ),
        (SHAPING, *(f"{SHAPING}.{name}" for name in ("buffer", "factor", "limit", "clamp"))),
        _read_overlong,
        _write_overlong,
    ),
    Switch("algorithm.use_pf_ppo", P, since="0.4"),
    Key("algorithm.pf_ppo.reweight_method", f"{P}.reweight", "pow", since="0.4"),
    Key("algorithm.pf_ppo.weight_pow", f"{P}.power", 2.0, since="0.4"),
    *[
        Dropped(f"algorithm.reward_shaping.{name}", "verl shapes rewards only in a reward manager of its own")
        for name in [
            "shift",
            "scale",
            "clip",
            "normalize.mean",
            "normalize.std",
            "normalize_per_domain",
            "whiten",
            "length_penalty",
            "add_length_reward",
            "token_reward",
            "advantage_clip",
            "whiten_advantages",
            "group_by",
        ]
    ],
    Dropped("algorithm.loss_weights.**", "verl weighs its losses by their coefficients only"),
    *[
        Key(
            f"{A}.{block}.router_replay.mode",
            "algorithm.router_replay",
            "disabled",
            REPLAY,
            since="0.7",
            write_when=_replays_in(block),
        )
        for block in ("megatron", "veomni")
    ],
    Key(
        f"{A}.router_replay.mode",
        "algorithm.router_replay",
        "disabled",
        REPLAY,
        since="0.7",
        write_when=lambda view: view.version < (0, 9),
    ),
    Code("preset", (), ("algorithm.preset",), _read_nothing, _write_preset, "what it stands for is written"),
    Dropped("algorithm.sample_strategy", "verl trains on what it rolled out"),
    Dropped("algorithm.sample_strategy_args", "verl trains on what it rolled out"),
    Dropped("algorithm.experience_operators", "verl has no operators on experiences"),
]
