"""Trinity: policy loss, KL and entropy. Arguments replace a function's defaults as a whole, so they are written whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.conditions import always, since
from rlctl.adapters.engine.one_sided_rows import ReadOnly, WriteOnly
from rlctl.adapters.engine.rules import (
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    Key,
    Out,
    Provenance,
    Reading,
    Rule,
    Writing,
    converted,
    further_type,
    in_releases,
    is_further,
    own_name,
)
from rlctl.adapters.engine.schema import schema
from rlctl.adapters.engine.values import AGGREGATIONS, Not
from rlctl.adapters.trinity.algorithm import TYPES, X, chosen_type, is_rl, type_of
from rlctl.adapters.trinity.batch import expert_responses, factor
from rlctl.common.messages.reasons import said
from rlctl.documents.paths import KeyPath
from rlctl.planning import arithmetic

ESTIMATORS = {
    "k1": "k1",
    "k2": "k2",
    "abs": "abs",
    "low_var_kl": "k3",
    "k3": "k3_unclamped",
    "corrected_k3": "k3_corrected",
}
KL_WORDS = ("none", *ESTIMATORS)
LOSSES = {
    "ppo": "ppo_clip",
    "gspo": "gspo",
    "cispo": "cispo",
    "sapo": "sapo",
    "topr": "topr",
    "importance_sampling": "policy_gradient",
}


def _arguments(view: Reading) -> dict[str, Any]:
    """The loss's arguments; of Trinity's own losses only those that there are, so that a misspelt one is told."""
    args = view.get(f"{X}policy_loss_fn_args")
    if not isinstance(args, Mapping):
        return {}
    own, listed = _name(view) in OTHER_LOSSES, schema("trinity", "run")
    place = view.path(f"{X}policy_loss_fn_args")
    return {key: value for key, value in args.items() if not own or (*place, key) in listed}


def _name(view: Reading) -> str:
    return str(view.get(f"{X}policy_loss_fn") or type_of(view).loss)


def _read_aggregation(view: Reading) -> Iterator[Flow]:
    """Arguments that name no aggregation leave the loss to its own; where they name one, ``loss_agg_mode`` replaces it."""
    key, inside = view.path(f"{X}loss_agg_mode"), view.path(f"{X}policy_loss_fn_args.loss_agg_mode")
    args, mode = _arguments(view), view.get(f"{X}loss_agg_mode") or "token-mean"
    own = OWN_AGGREGATION.get(_name(view), "token-mean")
    to = view.to("algorithm.loss_aggregation.mode")
    if not args or "loss_agg_mode" in args or mode == own:
        yield Flow(to, converted(AGGREGATIONS, mode, view, f"{X}loss_agg_mode"), (key,))
        same = args.get("loss_agg_mode", mode) == mode
        yield Flow(
            (),
            None,
            (inside,),
            "mapped" if same else "dead",
            "" if same else said("Trinity replaces it with {mode}", mode=mode),
            misleads=not same,
        )
        return
    note = said(
        "the loss itself always uses {own}, whatever policy_loss_fn_args sets; loss_agg_mode applies only to KL and entropy",
        own=own,
    )
    yield Flow(to, AGGREGATIONS.read(own, view), (key,), "derived", note)


def _read_loss(view: Reading) -> Iterator[Flow]:
    written, name = view.written(f"{X}policy_loss_fn"), _name(view)
    keys = (view.path(f"{X}policy_loss_fn" if written else f"{X}algorithm_type"),)
    place, args = view.path(f"{X}policy_loss_fn_args"), _arguments(view)
    args.pop("loss_agg_mode", None)
    if view.get("algorithm.algorithm_type") in OBJECTIVES:
        yield from _read_objective_args(view, args, place)
        return
    to, known = view.to("algorithm.policy_loss"), LOSS_ARGS.get(name, {})
    further = {key: value for key, value in args.items() if key not in known and key != "clip_range"}
    if name not in LOSSES or any(value != FURTHER.get(key) for key, value in further.items()):
        yield Flow((*to, "type"), further_type(L, name, "trinity"), keys)
        yield Flow((*to, "args"), args, tuple((*place, key) for key in args))
        return
    yield Flow((*to, "type"), LOSSES[name], keys, implied=not written)
    yield Flow((), None, tuple((*place, key) for key in further), "mapped", "Trinity's default too")
    if name == "importance_sampling":
        yield Flow((*to, "importance_weight"), "ratio", ())
    for key, field in known.items():
        source = key if args.get(key) is not None else "clip_range" if "clip_range" in key else ""
        if field == "dual_clip" and _never_acts(args.get(source)):
            yield Flow((*to, field), None, ((*place, source),))
        elif args.get(source) is not None:
            yield Flow((*to, field), args[source], ((*place, source),), same=True)
        else:
            yield Flow((*to, field), LOSS_DEFAULTS[name][key], ())


def _never_acts(bound: Any) -> bool:
    """Whether a bound is one that no ratio reaches, as it is written for no bound at all."""
    return isinstance(bound, (int, float)) and bound >= 1e6


OBJECTIVES = ("sft", "cpt", "dpo", "mix", "mix_chord")
"""Types whose loss is the objective itself."""
OWN_AGGREGATION = {"gspo": "seq-mean-token-mean"}
"""What a loss does that is given arguments without ``loss_agg_mode``; token-mean for the others."""
FURTHER = {
    "enable_sequence_masking": False,
    "delta_sequence_masking": 0.1,
    "fallback_to_policy_gradient": False,
    "enable_mask_clip": False,
    "mask_clip_range_low": 1.0,
    "mask_clip_range_high": 0.28,
    "advantage_threshold": 0.0,
}
"""Arguments that the canonical losses do not have, with the values at which nothing is different."""
LOSS_ARGS = {
    "ppo": {"clip_range_low": "clip_low", "clip_range_high": "clip_high", "clip_ratio_c": "dual_clip"},
    "gspo": {"clip_range_low": "clip_low", "clip_range_high": "clip_high"},
    "cispo": {"clip_range_low": "clip_low", "clip_range_high": "clip_high"},
    "sapo": {"tau_pos": "tau_positive", "tau_neg": "tau_negative"},
}
LOSS_DEFAULTS: dict[str, dict[str, Any]] = {
    "ppo": {"clip_range_low": 0.2, "clip_range_high": 0.2, "clip_ratio_c": 3.0},
    "gspo": {"clip_range_low": 3e-4, "clip_range_high": 4e-4},
    "cispo": {"clip_range_low": 1.0, "clip_range_high": 0.28},
    "sapo": {"tau_pos": 1.0, "tau_neg": 1.05},
}


def _read_objective_args(view: Reading, args: dict[str, Any], place: Any) -> Iterator[Flow]:
    to = view.to("algorithm.objective")
    fields = {"dpo": {"beta": "beta", "label_smoothing": "label_smoothing"}}
    fields["mix"] = fields["mix_chord"] = {"mu": "mu", "use_dynamic_bsz": ""}
    name = str(view.get("algorithm.algorithm_type"))
    if name == "dpo":
        for key, field in fields["dpo"].items():
            if key in args:
                yield Flow((*to, field), args[key], ((*place, key),), same=True)
    elif name.startswith("mix"):
        if name == "mix" and "mu" in args:
            yield Flow((*to, "mu"), args.pop("mu"), ((*place, "mu"),), same=True)
        written = tuple((*place, key) for key in args)
        if name == "mix_chord" and not set(CHORD) & set(args):
            args = CHORD | args  # which are what tells CHORD from MIX
        if args:
            yield Flow((*to, "args"), args, written)
        share = "algorithm.sample_strategy_args.expert_data_ratio"
        yield Flow((*to, "expert_share"), view.get(share, 0.5), (view.path(share),), same=True)


CHORD = {"mu_warmup_steps": 0, "mu_decay_steps": 0, "mu_peak": 0.1, "mu_valley": 0.1, "enable_phi_function": True}
"""Arguments that CHORD has and MIX has not, with Trinity's defaults."""


def _write_aggregation(view: Writing) -> Iterator[Out]:
    mode, used = view.config.algorithm.loss_aggregation.mode, (view.to("algorithm.loss_aggregation.mode"),)
    if mode == "token_sum":
        yield Inexpressible(used, "Trinity has no token-sum")
    else:
        yield Flow(view.path(f"{X}loss_agg_mode"), AGGREGATIONS.write(mode, view), used)


def _write_loss(view: Writing) -> Iterator[Out]:
    if not is_rl(view):
        yield from _write_objective(view)
        return
    loss = view.get("algorithm.policy_loss")
    used: tuple[KeyPath, ...] = (view.to("algorithm.policy_loss.type"),)
    kind = TYPES[chosen_type(view)]
    name = next((name for name, choice in LOSSES.items() if choice == loss["type"]), None)
    further = is_further(L, loss["type"])
    if further:
        name = own_name(loss["type"], "trinity")
    plugin = loss["type"].startswith("trinity.")
    if name is None or (further and name not in OTHER_LOSSES and not plugin):
        every = tuple(view.to(f"algorithm.policy_loss.{field}") for field in loss)
        yield Inexpressible(
            every,
            said("Trinity has no loss {kind}; wrote {loss}", kind=loss["type"], loss=kind.loss),
        )
        return
    if name != kind.loss:
        yield Flow(view.path(f"{X}policy_loss_fn"), name, used, always=True)
    else:
        yield Flow((), None, used, "mapped", "the loss of the algorithm type")
    yield from _write_loss_args(view, name, loss)


OTHER_LOSSES = (
    *LOSSES,
    "opmd",
    "sft",
    "mix",
    "mix_chord",
    "sft_is",
    "sft_phi",
    "sppo",
    "rec",
    "dpo",
)


WITHOUT_AGGREGATION = ("rec",)
"""Losses that refuse ``loss_agg_mode`` among their arguments: they always take the mean over tokens."""


def _write_loss_args(view: Writing, name: str, loss: Mapping[str, Any]) -> Iterator[Out]:
    place, mode = view.path(f"{X}policy_loss_fn_args"), view.get("algorithm.loss_aggregation.mode")
    if is_further(L, loss["type"]):
        for key, value in loss["args"].items():
            yield Flow((*place, key), value, (view.to("algorithm.policy_loss.args"),), always=True)
        if loss["args"] and mode != "token_sum" and name not in WITHOUT_AGGREGATION:
            yield _named(view, mode)
        return
    known, usual = LOSS_ARGS.get(name, {}), LOSS_DEFAULTS.get(name, {})
    differs = any(loss[field] != usual[key] for key, field in known.items())
    for key, field in known.items():
        value, path = loss[field], (view.to(f"algorithm.policy_loss.{field}"),)
        if field == "dual_clip" and value is None:
            note = "Trinity's dual clip is always on; this bound is too large to have an effect"
            yield Flow((*place, key), 1.0e9, path, "derived", note, always=True)
        elif differs:
            yield Flow((*place, key), value, path, same=True, always=True)
        else:
            yield Flow((), None, path, "mapped", "Trinity's default too")
    if differs and mode not in ("token_sum", OWN_AGGREGATION.get(name, "token-mean").replace("-", "_")):
        yield _named(view, mode)
    for field, neutral in (
        *((("dual_clip", None),) if name == "gspo" else ()),
        ("importance_weight", "ratio"),
        ("weight_bound", 1.0),
        ("positive_weight", 1.0),
        ("negative_weight", 1.0),
    ):
        if field in loss:
            path = (view.to(f"algorithm.policy_loss.{field}"),)
            same = loss[field] == neutral
            yield (
                Flow((), None, path)
                if same
                else Inexpressible(
                    path,
                    said("Trinity's {name} has no {field}: {loss} is lost", name=name, field=field, loss=loss[field]),
                )
            )


def _named(view: Writing, mode: str) -> Flow:
    """The aggregation once more, among arguments that would leave the loss to its own."""
    place = view.path(f"{X}policy_loss_fn_args.loss_agg_mode")
    return Flow(place, AGGREGATIONS.write(mode, view), (view.to("algorithm.loss_aggregation.mode"),), always=True)


def _repeated(view: Writing) -> dict[str, Any]:
    """The global numbers that the losses of mix want once more among their arguments."""
    config = view.config
    train, share = arithmetic.mini_batch_responses(config), view.get("algorithm.objective.expert_share")
    expert = expert_responses(train, share)
    explorers = arithmetic.exploring_devices(config) if config.placement.layout == "split" else 0
    return {
        "use_dynamic_bsz": config.batch.micro_batch.unit == "tokens",
        "ppo_mini_batch_size": train,
        "ppo_micro_batch_size_per_gpu": config.batch.micro_batch.size
        if config.batch.micro_batch.unit == "responses"
        else 1,
        "ngpus_trainer": max(1, arithmetic.devices(config) - explorers),
        "train_batch_size_expert": expert,
        "train_batch_size_usual": train - expert,
    }


def _write_objective(view: Writing) -> Iterator[Out]:
    objective = view.get("algorithm.objective")
    place = view.path(f"{X}policy_loss_fn_args")
    if objective["type"] == "dpo":
        for field, usual in (("beta", 0.1), ("label_smoothing", 0.0)):
            path = (view.to(f"algorithm.objective.{field}"),)
            both = objective["beta"] != 0.1 or objective["label_smoothing"] != 0.0
            yield (
                Flow((*place, field), objective[field], path, same=True, always=both or objective[field] != usual)
                if both
                else Flow((), None, path)
            )
        if objective["ipo"]:
            yield Inexpressible((view.to("algorithm.objective.ipo"),), "Trinity's dpo has no squared loss")
    elif objective["type"] == "mix":
        yield from _write_mix(view, objective, place)


def _write_mix(view: Writing, objective: Mapping[str, Any], place: KeyPath) -> Iterator[Out]:
    given, used = dict(objective["args"]), (view.to("algorithm.objective.args"),)
    if chosen_type(view) == "mix":
        yield Flow((*place, "mu"), objective["mu"], (view.to("algorithm.objective.mu"),), same=True, always=True)
    if not any(key.startswith("clip_range") for key in given):
        yield Flow((*place, "clip_range"), 0.2, used, "mapped", "arguments replace their defaults", always=True)
    for key, value in given.items():
        yield Flow((*place, key), value, used, always=True)
    for key, value in _repeated(view).items():
        if key not in given:
            yield Flow((*place, key), value, used, "derived", "Trinity reads this value in two places", always=True)
    mode = view.config.algorithm.loss_aggregation.mode
    if mode != "token_sum":
        yield _named(view, mode)
    share = view.path("algorithm.sample_strategy_args.expert_data_ratio")
    yield Flow(share, objective["expert_share"], (view.to("algorithm.objective.expert_share"),), same=True, always=True)


# KL and entropy


def _read_kl_loss(view: Reading) -> Iterator[Flow]:
    written = view.written(f"{X}kl_loss_fn")
    name = view.get(f"{X}kl_loss_fn") or type_of(view).kl
    if name == "none" and view.get(f"{X}algorithm_type") == "dpo":
        name = "k2"  # Trinity puts it back
    keys = (view.path(f"{X}kl_loss_fn"),) if written else ()
    args = view.path(f"{X}kl_loss_fn_args.kl_coef")
    coefficient = view.get(f"{X}kl_loss_fn_args.kl_coef")
    if name == "none" or (coefficient == 0 and view.written(f"{X}kl_loss_fn_args.kl_coef")):
        yield Flow(view.to("algorithm.kl_in_loss"), None, (*keys, args))
        return
    yield Flow(view.to("algorithm.kl_in_loss"), {}, keys or (args,))
    yield Flow(view.to("algorithm.kl_in_loss.estimator"), ESTIMATORS.get(name, name), keys)
    yield Flow(view.to("algorithm.kl_in_loss.coefficient"), coefficient, (args,), same=True)


def _write_kl_loss(view: Writing) -> Iterator[Out]:
    section, used = view.get("algorithm.kl_in_loss"), (view.to("algorithm.kl_in_loss"),)
    if section is None:
        silent = view.config.algorithm.objective.choice == "sft"
        note = "Trinity's default is on" if not silent else ""
        if view.config.algorithm.objective.choice != "dpo":
            usual = TYPES[chosen_type(view)].kl == "none" and not view.explicit("algorithm.kl_in_loss")
            yield Flow(
                view.path(f"{X}kl_loss_fn"), "none", used, "mapped", note, always=not silent and not usual, quiet=usual
            )
        return
    if section["coefficient"] == 0:
        every = tuple(view.to(f"algorithm.kl_in_loss.{name}") for name in section)
        note = "a coefficient of 0 has no effect"
        yield Flow(view.path(f"{X}kl_loss_fn"), "none", (*used, *every), "derived", note, always=True)
        return
    name = next((name for name, choice in ESTIMATORS.items() if choice == section["estimator"]), None)
    if name is None:
        yield Inexpressible(
            (view.to("algorithm.kl_in_loss.estimator"),),
            said("Trinity has no estimator {estimator}. Wrote low_var_kl", estimator=section["estimator"]),
        )
        name = "low_var_kl"
    places = view.to("algorithm.kl_in_loss.estimator"), view.to("algorithm.kl_in_loss.coefficient")
    other = name != TYPES[chosen_type(view)].kl
    writes = other or view.explicit("algorithm.kl_in_loss")
    yield Flow(view.path(f"{X}kl_loss_fn") if writes else (), name, (places[0], *used), always=True)
    key = view.path(f"{X}kl_loss_fn_args.kl_coef")
    yield Flow(key, section["coefficient"], (places[1],), same=True, always=other or section["coefficient"] != 0.001)


PENALTY = {"kl_coef": "coefficient", "adaptive": "adaptive", "target_kl": "target", "horizon": "horizon"}


def _read_kl_reward(view: Reading) -> Iterator[Flow]:
    name = view.get(f"{X}kl_penalty_fn") or "none"
    keys, args = (view.path(f"{X}kl_penalty_fn"),), view.path(f"{X}kl_penalty_fn_args")
    if name != "none" and not type_of(view).in_trainer:
        yield Flow(view.to("algorithm.kl_in_reward"), None, ())
        yield Flow(
            (), None, (*keys, args), "dead", "Trinity reads it only if the trainer computes advantages", misleads=True
        )
        return
    if name == "none":
        yield Flow(view.to("algorithm.kl_in_reward"), None, (*keys, args))
        return
    yield Flow(view.to("algorithm.kl_in_reward"), {}, keys)
    yield Flow(view.to("algorithm.kl_in_reward.estimator"), ESTIMATORS.get(name, name), keys)
    given = view.get(f"{X}kl_penalty_fn_args") or {}
    for key, field in PENALTY.items():
        if key in given:
            yield Flow(view.to(f"algorithm.kl_in_reward.{field}"), given[key], ((*args, key),), same=True)


def _write_kl_reward(view: Writing) -> Iterator[Out]:
    section, used = view.get("algorithm.kl_in_reward"), (view.to("algorithm.kl_in_reward"),)
    if section is None:
        yield Flow(view.path(f"{X}kl_penalty_fn"), "none", used) if is_rl(view) else Flow((), None, used)
        return
    places = {field: view.to(f"algorithm.kl_in_reward.{field}") for field in section}
    name = next((name for name, choice in ESTIMATORS.items() if choice == section["estimator"]), None)
    if not TYPES[chosen_type(view)].in_trainer:
        yield Inexpressible(
            (*used, *places.values()),
            said(
                "Trinity subtracts no KL from rewards with algorithm_type {chosen_type}", chosen_type=chosen_type(view)
            ),
        )
        return
    if name is None:
        yield Inexpressible(
            (places["estimator"],),
            said("Trinity has no estimator {estimator}. Wrote k1", estimator=section["estimator"]),
        )
        name = "k1"
    yield Flow(view.path(f"{X}kl_penalty_fn"), name, (places["estimator"], *used), always=True)
    for key, field in PENALTY.items():
        if field == "coefficient" or section["adaptive"]:
            yield Flow(
                view.path(f"{X}kl_penalty_fn_args.{key}"), section[field], (places[field],), same=True, always=True
            )
        else:
            yield Inexpressible((places[field],), "it has no effect with a fixed coefficient", idle=True)


def _read_entropy(view: Reading) -> Iterator[Flow]:
    name = view.get(f"{X}entropy_loss_fn") or type_of(view).entropy
    keys = (view.path(f"{X}entropy_loss_fn"), view.path(f"{X}entropy_loss_fn_args.entropy_coef"))
    value = 0.0 if name == "none" else view.get(f"{X}entropy_loss_fn_args.entropy_coef")
    yield Flow(view.to("algorithm.entropy_coefficient"), value, keys, same=name != "none")


def _write_entropy(view: Writing) -> Iterator[Out]:
    value, used = view.config.algorithm.entropy_coefficient, (view.to("algorithm.entropy_coefficient"),)
    if not is_rl(view):
        yield Flow((), None, used) if not value else Inexpressible(used, "Trinity ignores entropy here")
        return
    if value and TYPES[chosen_type(view)].entropy == "none":
        yield Flow(view.path(f"{X}entropy_loss_fn"), "default", used, always=True)
    yield Flow(view.path(f"{X}entropy_loss_fn_args.entropy_coef"), value, used, same=True)


def _read_old(view: Reading) -> Iterator[Flow]:
    new, old = f"{X}bypass_old_logprobs", "trainer.trainer_config.algorithm.rollout_correction.bypass_mode"
    key = new if view.version >= (0, 6) else old
    rollout = bool(view.get(key, True))
    value = "rollout" if rollout else "recompute"
    yield Flow(view.to("algorithm.old_log_probs"), value, (view.path(key),), implied=rollout)


def _write_old(view: Writing) -> Iterator[Out]:
    wanted, used = view.config.algorithm.old_log_probs, (view.to("algorithm.old_log_probs"),)
    if not is_rl(view):
        yield Flow((), None, used)
        return
    key = (
        f"{X}bypass_old_logprobs"
        if view.version >= (0, 6)
        else "trainer.trainer_config.algorithm.rollout_correction.bypass_mode"
    )
    each = factor(view)
    if wanted != "rollout" and each > 1:
        note = said(
            "Trinity would recompute old log-probs in each of {each} train steps, so the ratio would always be 1 and "
            "clipping would never trigger",
            each=each,
        )
        yield Flow(view.path(key), True, used, "derived", note, always=True)
        reason = said(
            "{note}. Wrote the rollout engine's log-probs instead",
            note=note,
        )
        yield Inexpressible(used, reason)
        return
    how: Provenance = "derived" if wanted == "auto" else "mapped"
    yield Flow(view.path(key), wanted == "rollout", used, how)


SCALE = "trainer.fix_actor_microbatch_loss_scale"


PER_MICRO = "algorithm.loss_aggregation.per_micro_batch"
SCALES: tuple[Rule, ...] = (
    # 0.5.2 trainer/verl/dp_actor.py; 0.6.0 trainer/tinker/tinker_trainer.py alone reads it
    in_releases(
        Key(SCALE, PER_MICRO, convert=Not(), formula="not fix_actor_microbatch_loss_scale in 0.5"), until="0.5"
    ),
    ReadOnly(SCALE, "with verl 0.8 Trinity adds up the means of micro-batches", when=since("0.6"), dead=always),
    WriteOnly(PER_MICRO, since("0.6"), "Trinity 0.6 adds up the means of micro-batches"),
)
"""0.5 weighs micro-batches by their responses unless told not to; 0.6, with verl 0.8, does not read the key."""
L, KL, KR = "algorithm.policy_loss", "algorithm.kl_in_loss", "algorithm.kl_in_reward"
LOSS: list[Rule] = [
    CustomRule(
        "aggregation",
        # 0.5.2 and 0.6.0 common/config_validator.py, AlgorithmConfigValidator
        (DialectKey(f"{X}loss_agg_mode", "token-mean"), DialectKey(f"{X}policy_loss_fn_args.loss_agg_mode")),
        ("algorithm.loss_aggregation.mode",),
        _read_aggregation,
        _write_aggregation,
        "loss_agg_mode, also in policy_loss_fn_args if these are set",
        why="A loss with its own arguments ignores the key, unless they repeat it.",
    ),
    CustomRule(
        "policy loss",
        (
            DialectKey(f"{X}policy_loss_fn"),
            DialectKey(f"{X}policy_loss_fn_args"),
            *(
                DialectKey(f"{X}policy_loss_fn_args.{name}")
                for name in (
                    "clip_range",
                    "clip_range_low",
                    "clip_range_high",
                    "clip_ratio_c",
                    "loss_agg_mode",
                    "tau_pos",
                    "tau_neg",
                    "mu",
                    "**",
                )
            ),
        ),
        tuple(
            f"{L}.{name}"
            for name in [
                "type",
                "args",
                "clip_low",
                "clip_high",
                "dual_clip",
                "tau_positive",
                "tau_negative",
                "positive_weight",
                "negative_weight",
                "importance_weight",
                "weight_bound",
            ]
        )
        + tuple(
            f"algorithm.objective.{name}" for name in ["beta", "label_smoothing", "ipo", "mu", "expert_share", "args"]
        ),
        _read_loss,
        _write_loss,
        "policy_loss_fn and its arguments, whole",
        by_key={
            f"{X}algorithm_type": f"{L}.type",
            f"{X}sample_strategy_args.expert_data_ratio": "algorithm.objective.expert_share",
            f"{X}policy_loss_fn": f"{L}.type",
            f"{X}policy_loss_fn_args": (f"{L}.args", "algorithm.objective"),
            f"{X}policy_loss_fn_args.clip_range": (f"{L}.clip_low", f"{L}.clip_high"),
            f"{X}policy_loss_fn_args.clip_range_low": f"{L}.clip_low",
            f"{X}policy_loss_fn_args.clip_range_high": f"{L}.clip_high",
            f"{X}policy_loss_fn_args.clip_ratio_c": f"{L}.dual_clip",
            f"{X}policy_loss_fn_args.loss_agg_mode": (),
            f"{X}policy_loss_fn_args.tau_pos": f"{L}.tau_positive",
            f"{X}policy_loss_fn_args.tau_neg": f"{L}.tau_negative",
            f"{X}policy_loss_fn_args.mu": "algorithm.objective.mu",
        },
        why="Arguments replace a function's defaults as a whole, so that one that differs means that all are written.",
    ),
    Dropped("algorithm.loss_aggregation.scale_factor", "Trinity divides by the longest response"),
    *SCALES,
    CustomRule(
        "KL in the loss",
        # 0.6.0 algorithm/kl_fn/kl_fn.py, KLFn.default_args
        (DialectKey(f"{X}kl_loss_fn", takes=KL_WORDS), DialectKey(f"{X}kl_loss_fn_args.kl_coef", 0.001)),
        (KL, f"{KL}.estimator", f"{KL}.coefficient"),
        _read_kl_loss,
        _write_kl_loss,
        "kl_loss_fn 'none' means off",
        by_key={
            f"{X}kl_loss_fn": (KL, f"{KL}.estimator"),
            f"{X}kl_loss_fn_args.kl_coef": f"{KL}.coefficient",
        },
        why="The algorithm type says whether the section is there, if no function is named.",
    ),
    CustomRule(
        "KL in the reward",
        (
            # 0.6.0 algorithm/algorithm.py, default_config of each type
            DialectKey(f"{X}kl_penalty_fn", "none", takes=KL_WORDS),
            *(DialectKey(f"{X}kl_penalty_fn_args.{name}") for name in PENALTY),
        ),
        (KR, *(f"{KR}.{name}" for name in ["estimator", "coefficient", "adaptive", "target", "horizon"])),
        _read_kl_reward,
        _write_kl_reward,
        by_key={
            f"{X}kl_penalty_fn": (KR, f"{KR}.estimator"),
            **{f"{X}kl_penalty_fn_args.{key}": f"{KR}.{field}" for key, field in PENALTY.items()},
        },
        why="Only some algorithm types read it, and a fixed coefficient leaves its other arguments out.",
    ),
    CustomRule(
        "entropy",
        (
            DialectKey(f"{X}entropy_loss_fn", takes=("default", "mix", "none")),
            # 0.6.0 algorithm/entropy_loss_fn/entropy_loss_fn.py, EntropyLossFn.default_args
            DialectKey(f"{X}entropy_loss_fn_args.entropy_coef", 0.0),
        ),
        ("algorithm.entropy_coefficient",),
        _read_entropy,
        _write_entropy,
        why="The algorithm type says whether there is an entropy term, if no function is named.",
    ),
    CustomRule(
        "old log-probs",
        (
            DialectKey(f"{X}bypass_old_logprobs"),
            # 0.5.2 trainer/verl/verl_config.py, _RolloutCorrectionConfig
            DialectKey("trainer.trainer_config.algorithm.rollout_correction.bypass_mode", True),
        ),
        ("algorithm.old_log_probs",),
        _read_old,
        _write_old,
        why="Several train steps in a step leave only one of the two values any meaning.",
    ),
]
