"""Trinity: ``algorithm_type`` and the functions it stands for. Arguments replace their defaults, so they are written whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlctl.adapters.rules import (
    Code,
    Dropped,
    Flow,
    How,
    InexpressibleError,
    K,
    Key,
    Lost,
    Out,
    Reading,
    Rule,
    Tree,
    Writing,
)
from rlctl.adapters.values import AGGREGATIONS, Names, Not, Partly
from rlctl.documents.paths import KeyPath


@dataclass(frozen=True)
class Type:
    """What one ``algorithm_type`` stands for."""

    advantage: str = ""
    loss: str = "ppo"
    kl: str = "k2"
    entropy: str = "default"
    in_trainer: bool = False
    """Whether advantages are computed in the trainer, which alone subtracts KL from rewards."""
    sampling: str = "default"
    since: str = ""


TYPES = {
    "ppo": Type("ppo", in_trainer=True),
    "grpo": Type("grpo"),
    "grpo_verl": Type("grpo", in_trainer=True),
    "dapo": Type("grpo", kl="none", since="0.6"),
    "reinforceplusplus": Type("reinforceplusplus", in_trainer=True),
    "rloo": Type("rloo", in_trainer=True),
    "opmd": Type("opmd", "opmd"),
    "asymre": Type("asymre", "opmd", "none", "none"),
    "topr": Type("reinforce", "topr"),
    "cispo": Type("grpo", "cispo"),
    "gspo": Type("grpo", "gspo"),
    "sapo": Type("grpo", "sapo"),
    "sppo": Type("opmd", "sppo", "none", "none"),
    "rec": Type("rec", "rec"),
    "multi_step_grpo": Type("step_wise_grpo"),
    "gigpo": Type("gigpo", since="0.6"),
    "on_policy_distill": Type("on_policy_distill", "importance_sampling", "none", "none", in_trainer=True),
    "jsd": Type("jsd", "importance_sampling", "none", "none", in_trainer=True),
    "raft": Type("", "sft", "none", "none"),
    "sft": Type("", "sft", "none", "none"),
    "dpo": Type("", "dpo"),
    "mix": Type("grpo", "mix", entropy="mix", sampling="mix"),
    "mix_chord": Type("grpo", "mix_chord", entropy="mix", sampling="mix"),
}
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
ESTIMATORS = {
    "k1": "k1",
    "k2": "k2",
    "abs": "abs",
    "low_var_kl": "k3",
    "k3": "k3_unclamped",
    "corrected_k3": "k3_corrected",
}
TYPE_OF_ADVANTAGE = {
    "gae": "ppo",
    "grpo": "grpo",
    "rloo": "rloo",
    "reinforce_plus_plus": "reinforceplusplus",
    "opmd": "opmd",
    "reinforce": "grpo",
    "remax": "reinforceplusplus",
}
TYPE_OF_LOSS = {"gspo": "gspo", "cispo": "cispo", "sapo": "sapo", "topr": "topr"}
X = "algorithm."


def type_of(view: Reading) -> Type:
    """What the file's ``algorithm_type`` stands for; plain GRPO for one that nobody knows."""
    return TYPES.get(str(view.get("algorithm.algorithm_type")), Type("grpo"))


def chosen_type(view: Writing) -> str:
    """The ``algorithm_type`` to write."""
    algorithm = view.config.algorithm
    objective, preset = algorithm.objective.choice, algorithm.preset or ""
    if objective in ("sft", "dpo"):
        return objective
    if objective == "mix":
        return preset if preset in ("mix", "mix_chord") else "mix"
    if preset in TYPES and preset not in ("sft", "dpo", "mix", "mix_chord"):
        newer = TYPES[preset].since == "0.6" and view.version < (0, 6)
        if not newer:
            return preset
    advantage, loss = algorithm.advantage.choice, algorithm.policy_loss.choice
    if loss in TYPE_OF_LOSS and advantage in ("grpo", "reinforce"):
        return TYPE_OF_LOSS[loss]
    if advantage == "grpo" and algorithm.kl_in_reward is not None:
        return "grpo_verl"
    kind = getattr(algorithm.advantage, "kind", "")
    by_kind = next((name for name, item in TYPES.items() if kind and item.advantage == kind), "grpo")
    return TYPE_OF_ADVANTAGE.get(advantage, by_kind)


def _read_type(view: Reading) -> Iterator[Flow]:
    name = str(view.get("algorithm.algorithm_type"))
    used = (view.path("algorithm.algorithm_type"),)
    objective = name if name in ("sft", "dpo") else "mix" if name.startswith("mix") else "rl"
    yield Flow(view.to("algorithm.objective.name"), objective, used)
    yield Flow(view.to("algorithm.preset"), name, used, same=True)


def _write_type(view: Writing) -> Iterator[Out]:
    used = (view.to("algorithm.preset"), view.to("algorithm.advantage.name"), view.to("algorithm.objective.name"))
    name = chosen_type(view)
    yield Flow(view.path("algorithm.algorithm_type"), name, used, same=False, always=True)
    if view.config.algorithm.preset not in (None, name):
        yield Lost(used[:1], f"Trinity has no algorithm_type of this name, or it does not fit: {name} is written")


def _is_rl(view: Writing) -> bool:
    return view.config.algorithm.objective.choice == "rl"


def _read_advantage(view: Reading) -> Iterator[Flow]:
    name = view.get(f"{X}advantage_fn") or type_of(view).advantage
    keys = (view.path(f"{X}advantage_fn"),) if view.written(f"{X}advantage_fn") else (view.path(f"{X}algorithm_type"),)
    to = view.to("algorithm.advantage")
    args_key = view.path(f"{X}advantage_fn_args")
    args = view.get(f"{X}advantage_fn_args")
    args = args if isinstance(args, Mapping) else {}
    if not name:
        yield Flow((), None, (*keys, args_key), "mapped", "not used by this algorithm")
        return
    if name in ADVANTAGES:
        yield Flow((*to, "name"), ADVANTAGES[name], keys)
        for key, field in ARGS.get(name, {}).items():
            if key in args:
                yield Flow((*to, field), args[key], ((*args_key, key),), same=True)
        if name == "grpo":
            yield from _read_filter(view, args, args_key)
        return
    yield Flow((*to, "name"), "other", keys)
    yield Flow((*to, "kind"), name, keys)
    yield Flow((*to, "args"), dict(args), (args_key,))


ARGS = {
    "ppo": {"gamma": "gamma", "lam": "lambda"},
    "grpo": {"epsilon": "epsilon"},
    "reinforceplusplus": {"gamma": "gamma"},
    "remax": {"gamma": "gamma"},
    "opmd": {"opmd_baseline": "baseline", "tau": "tau"},
}
DEFAULTS = {"gamma": 1.0, "lam": 1.0, "epsilon": 1e-6, "opmd_baseline": "mean", "tau": 1.0}


def _read_filter(view: Reading, args: Mapping[str, Any], place: Any) -> Iterator[Flow]:
    threshold = args.get("std_threshold")
    if threshold is None:
        yield Flow(view.to("algorithm.filters"), [], ((*place, "std_threshold"),))
        return
    found = {"name": "equal_groups", "metric": "reward", "refill": False, "threshold": threshold}
    yield Flow(view.to("algorithm.filters"), [found], ((*place, "std_threshold"),))


def _write_advantage(view: Writing) -> Iterator[Out]:
    if not _is_rl(view):
        return
    advantage = view.get("algorithm.advantage")
    used: tuple[KeyPath, ...] = (view.to("algorithm.advantage.name"),)
    kind = TYPES[chosen_type(view)]
    name = next((name for name, choice in ADVANTAGES.items() if choice == advantage["name"]), None)
    if advantage["name"] == "other":
        name, used = advantage["kind"], (*used, view.to("algorithm.advantage.kind"))
    if name is None or (
        advantage["name"] == "other"
        and not any(item.advantage == name for item in TYPES.values())
        and name not in EXTRA
    ):
        every = tuple(view.to(f"algorithm.advantage.{field}") for field in advantage)
        yield Lost(
            every, f"Trinity has no advantage {advantage.get('kind') or advantage['name']}; {kind.advantage} is written"
        )
        return
    if name != kind.advantage:
        yield Flow(view.path(f"{X}advantage_fn"), name, used, always=True)
    else:
        yield Flow((), None, used)
    yield from _write_advantage_args(view, name, advantage)


EXTRA = ("clipb", "clipv", "duplicate_grpo", "step_wise_grpo", "grpo_grouped")


def _write_advantage_args(view: Writing, name: str, advantage: Mapping[str, Any]) -> Iterator[Out]:
    place = view.path(f"{X}advantage_fn_args")
    known = ARGS.get(name, {})
    if advantage["name"] == "other":
        for key, value in advantage["args"].items():
            yield Flow((*place, key), value, (view.to("algorithm.advantage.args"),))
        return
    usual = {
        "whiten": advantage["name"] == "gae",
        "normalize_by_std": True,
        "kl_order": "before_normalisation",
        "gamma": 1.0,
        "epsilon": 1e-6,
    }
    for field, value in advantage.items():
        if field == "name" or field in known.values():
            continue
        path = (view.to(f"algorithm.advantage.{field}"),)
        if value != usual.get(field, value):
            yield Lost(path, f"Trinity's {name} has no {field}; it does as with {usual[field]}")
        else:
            yield Flow((), None, path, "mapped", "what Trinity does anyway")
    threshold = _threshold(view) if name == "grpo" else None
    if threshold is not None or any(advantage[field] != DEFAULTS[key] for key, field in known.items()):
        for key, field in known.items():
            yield Flow(
                (*place, key), advantage[field], (view.to(f"algorithm.advantage.{field}"),), same=True, always=True
            )
    else:
        for field in known.values():
            yield Flow((), None, (view.to(f"algorithm.advantage.{field}"),), "mapped", "Trinity's default too")
    if threshold is not None:
        yield Flow((*place, "std_threshold"), threshold, (view.to("algorithm.filters"),), always=True)


def _threshold(view: Writing) -> float | None:
    filters = view.get("algorithm.filters")
    found = [item for item in filters if item["name"] == "equal_groups"]
    return float(found[0]["threshold"]) if found else None


def _write_filters(view: Writing) -> Iterator[Out]:
    filters, used = view.get("algorithm.filters"), (view.to("algorithm.filters"),)
    if not filters:
        yield Flow((), None, used)
        return
    plain = [
        item for item in filters if item["name"] == "equal_groups" and not item["refill"] and item["metric"] == "reward"
    ]
    grouped = chosen_type(view) in TYPES and TYPES[chosen_type(view)].advantage == "grpo"
    if len(plain) != len(filters) or len(filters) > 1 or not grouped:
        yield Lost(
            used, "Trinity leaves out groups of equal reward (std_threshold of grpo) without refilling the batch"
        )


# Loss


def _read_loss(view: Reading) -> Iterator[Flow]:
    written = view.written(f"{X}policy_loss_fn")
    name = view.get(f"{X}policy_loss_fn") or type_of(view).loss
    keys = (view.path(f"{X}policy_loss_fn" if written else f"{X}algorithm_type"),)
    place, args = view.path(f"{X}policy_loss_fn_args"), view.get(f"{X}policy_loss_fn_args")
    args = dict(args) if isinstance(args, Mapping) else {}
    if view.get("algorithm.algorithm_type") in ("sft", "dpo", "mix", "mix_chord"):
        yield from _read_objective_args(view, args, place)
        return
    mode = args.pop("loss_agg_mode", None)
    if mode is not None:
        yield Flow(view.to("algorithm.aggregation.mode"), AGGREGATIONS.read(mode, view), ((*place, "loss_agg_mode"),))
    to = view.to("algorithm.policy_loss")
    if name not in LOSSES:
        yield Flow((*to, "name"), "other", keys)
        yield Flow((*to, "kind"), name, keys)
        yield Flow((*to, "args"), args, tuple((*place, key) for key in args) or (place,))
        return
    yield Flow((*to, "name"), LOSSES[name], keys)
    if name == "importance_sampling":
        yield Flow((*to, "importance_weight"), "ratio", ())
    both = args.get("clip_range")
    for key, field in LOSS_ARGS.get(name, {}).items():
        value, source = (
            (args[key], key)
            if key in args
            else (both, "clip_range")
            if both is not None and "clip_range" in key
            else (None, "")
        )
        if value is not None:
            yield Flow((*to, field), value, ((*place, source),), same=True)


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
    mode = args.pop("loss_agg_mode", None)
    if mode is not None:
        yield Flow(view.to("algorithm.aggregation.mode"), AGGREGATIONS.read(mode, view), ((*place, "loss_agg_mode"),))
    if name == "dpo":
        for key, field in fields["dpo"].items():
            if key in args:
                yield Flow((*to, field), args[key], ((*place, key),), same=True)
    elif name.startswith("mix"):
        if name == "mix" and "mu" in args:
            yield Flow((*to, "mu"), args.pop("mu"), ((*place, "mu"),), same=True)
        if args:
            yield Flow((*to, "args"), args, tuple((*place, key) for key in args))
        share = "algorithm.sample_strategy_args.expert_data_ratio"
        if view.written(share):
            yield Flow((*to, "expert_share"), view.get(share), (view.path(share),), same=True)


def _write_loss(view: Writing) -> Iterator[Out]:
    if not _is_rl(view):
        yield from _write_objective(view)
        return
    loss = view.get("algorithm.policy_loss")
    used: tuple[KeyPath, ...] = (view.to("algorithm.policy_loss.name"),)
    kind = TYPES[chosen_type(view)]
    name = next((name for name, choice in LOSSES.items() if choice == loss["name"]), None)
    if loss["name"] == "other":
        name, used = loss["kind"], (*used, view.to("algorithm.policy_loss.kind"))
    if name is None or (loss["name"] == "other" and name not in OTHER_LOSSES):
        every = tuple(view.to(f"algorithm.policy_loss.{field}") for field in loss)
        yield Lost(every, f"Trinity has no loss {loss.get('kind') or loss['name']}; {kind.loss} is written")
        return
    if name != kind.loss:
        yield Flow(view.path(f"{X}policy_loss_fn"), name, used, always=True)
    else:
        yield Flow((), None, used)
    yield from _write_loss_args(view, name, loss)


OTHER_LOSSES = (
    "opmd",
    "sft",
    "mix",
    "mix_chord",
    "sft_is",
    "sft_phi",
    "sppo",
    "rec",
    "importance_sampling",
    "dpo",
    "m2po",
)


def _write_loss_args(view: Writing, name: str, loss: Mapping[str, Any]) -> Iterator[Out]:
    place, mode = view.path(f"{X}policy_loss_fn_args"), view.get("algorithm.aggregation.mode")
    if loss["name"] == "other":
        for key, value in loss["args"].items():
            yield Flow((*place, key), value, (view.to("algorithm.policy_loss.args"),), always=True)
        return
    known, usual = LOSS_ARGS.get(name, {}), LOSS_DEFAULTS.get(name, {})
    differs = any(loss[field] != usual[key] for key, field in known.items())
    for key, field in known.items():
        value, path = loss[field], (view.to(f"algorithm.policy_loss.{field}"),)
        if field == "dual_clip" and value is None:
            note = "Trinity's dual clip is always on; so large a bound never acts"
            yield Flow((*place, key), 1.0e9, path, "derived", note, always=True)
        elif differs:
            yield Flow((*place, key), value, path, same=True, always=True)
        else:
            yield Flow((), None, path, "mapped", "Trinity's default too")
    if differs and mode != "token_sum":
        yield Flow(
            (*place, "loss_agg_mode"),
            AGGREGATIONS.write(mode, view),
            (view.to("algorithm.aggregation.mode"),),
            always=True,
        )
    for field, neutral in (
        ("importance_weight", "ratio"),
        ("weight_bound", 1.0),
        ("positive_weight", 1.0),
        ("negative_weight", 1.0),
    ):
        if field in loss:
            path = (view.to(f"algorithm.policy_loss.{field}"),)
            same = loss[field] == neutral
            yield Flow((), None, path) if same else Lost(path, f"Trinity's {name} has no {field}")


def _write_objective(view: Writing) -> Iterator[Out]:
    objective = view.get("algorithm.objective")
    place = view.path(f"{X}policy_loss_fn_args")
    if objective["name"] == "dpo":
        for field, usual in (("beta", 0.1), ("label_smoothing", 0.0)):
            path = (view.to(f"algorithm.objective.{field}"),)
            both = objective["beta"] != 0.1 or objective["label_smoothing"] != 0.0
            yield (
                Flow((*place, field), objective[field], path, same=True, always=both or objective[field] != usual)
                if both
                else Flow((), None, path)
            )
        if objective["ipo"]:
            yield Lost((view.to("algorithm.objective.ipo"),), "Trinity's dpo has no squared loss")
    elif objective["name"] == "mix":
        if chosen_type(view) == "mix":
            yield Flow((*place, "mu"), objective["mu"], (view.to("algorithm.objective.mu"),), same=True, always=True)
        for key, value in objective["args"].items():
            yield Flow((*place, key), value, (view.to("algorithm.objective.args"),), always=True)
        share = view.path("algorithm.sample_strategy_args.expert_data_ratio")
        yield Flow(
            share, objective["expert_share"], (view.to("algorithm.objective.expert_share"),), same=True, always=True
        )


# KL and entropy


def _read_kl_loss(view: Reading) -> Iterator[Flow]:
    written = view.written(f"{X}kl_loss_fn")
    name = view.get(f"{X}kl_loss_fn") or type_of(view).kl
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
        note = "Trinity's own default is on" if not silent else ""
        if view.config.algorithm.objective.choice != "dpo":
            yield Flow(view.path(f"{X}kl_loss_fn"), "none", used, "mapped", note, always=not silent)
        return
    name = next((name for name, choice in ESTIMATORS.items() if choice == section["estimator"]), None)
    if name is None:
        yield Lost(
            (view.to("algorithm.kl_in_loss.estimator"),),
            f"Trinity has no estimator {section['estimator']}; low_var_kl is written",
        )
        name = "low_var_kl"
    yield Flow(view.path(f"{X}kl_loss_fn"), name, (view.to("algorithm.kl_in_loss.estimator"), *used), always=True)
    yield Flow(
        view.path(f"{X}kl_loss_fn_args.kl_coef"),
        section["coefficient"],
        (view.to("algorithm.kl_in_loss.coefficient"),),
        same=True,
        always=True,
    )


PENALTY = {"kl_coef": "coefficient", "adaptive": "adaptive", "target_kl": "target", "horizon": "horizon"}


def _read_kl_reward(view: Reading) -> Iterator[Flow]:
    name = view.get(f"{X}kl_penalty_fn") or "none"
    keys, args = (view.path(f"{X}kl_penalty_fn"),), view.path(f"{X}kl_penalty_fn_args")
    if name != "none" and not type_of(view).in_trainer:
        yield Flow(view.to("algorithm.kl_in_reward"), None, ())
        yield Flow(
            (), None, (*keys, args), "dead", "Trinity reads it only where advantages are computed in the trainer"
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
        yield Flow(view.path(f"{X}kl_penalty_fn"), "none", used) if _is_rl(view) else Flow((), None, used)
        return
    places = {field: view.to(f"algorithm.kl_in_reward.{field}") for field in section}
    name = next((name for name, choice in ESTIMATORS.items() if choice == section["estimator"]), None)
    if not TYPES[chosen_type(view)].in_trainer:
        yield Lost(
            (*used, *places.values()), f"Trinity subtracts no KL from rewards with algorithm_type {chosen_type(view)}"
        )
        return
    if name is None:
        yield Lost((places["estimator"],), f"Trinity has no estimator {section['estimator']}; k1 is written")
        name = "k1"
    yield Flow(view.path(f"{X}kl_penalty_fn"), name, (places["estimator"], *used), always=True)
    for key, field in PENALTY.items():
        yield Flow(view.path(f"{X}kl_penalty_fn_args.{key}"), section[field], (places[field],), same=True, always=True)


def _read_entropy(view: Reading) -> Iterator[Flow]:
    name = view.get(f"{X}entropy_loss_fn") or type_of(view).entropy
    keys = (view.path(f"{X}entropy_loss_fn"), view.path(f"{X}entropy_loss_fn_args.entropy_coef"))
    value = 0.0 if name == "none" else view.get(f"{X}entropy_loss_fn_args.entropy_coef")
    yield Flow(view.to("algorithm.entropy_coefficient"), value, keys, same=name != "none")


def _write_entropy(view: Writing) -> Iterator[Out]:
    value, used = view.config.algorithm.entropy_coefficient, (view.to("algorithm.entropy_coefficient"),)
    if not _is_rl(view):
        yield Flow((), None, used) if not value else Lost(used, "Trinity takes no entropy into account here")
        return
    if value and TYPES[chosen_type(view)].entropy == "none":
        yield Flow(view.path(f"{X}entropy_loss_fn"), "default", used, always=True)
    yield Flow(view.path(f"{X}entropy_loss_fn_args.entropy_coef"), value, used, same=True)


def _read_old(view: Reading) -> Iterator[Flow]:
    new, old = f"{X}bypass_old_logprobs", "trainer.trainer_config.algorithm.rollout_correction.bypass_mode"
    key = new if view.written(new) or (view.version >= (0, 6) and not view.written(old)) else old
    yield Flow(view.to("algorithm.old_log_probs"), "rollout" if view.get(key, True) else "recompute", (view.path(key),))


def _write_old(view: Writing) -> Iterator[Out]:
    wanted, used = view.config.algorithm.old_log_probs, (view.to("algorithm.old_log_probs"),)
    if not _is_rl(view):
        yield Flow((), None, used)
        return
    key = (
        f"{X}bypass_old_logprobs"
        if view.version >= (0, 6)
        else "trainer.trainer_config.algorithm.rollout_correction.bypass_mode"
    )
    how: How = "derived" if wanted == "auto" else "mapped"
    yield Flow(view.path(key), wanted == "rollout", used, how)


def _read_overlong(view: Reading) -> Iterator[Flow]:
    args = "buffer.explorer_input.taskset.reward_fn_args"
    to = "algorithm.reward_shaping.overlong_penalty"
    fields = {"penalty_factor": "factor", "max_response_length": "limit", "cache_length": "buffer"}
    keys = tuple(view.path(f"{args}.{key}") for key in ("enable_overlong_penalty", *fields))
    if not view.get(f"{args}.enable_overlong_penalty"):
        yield Flow(view.to(to), None, keys)
        return
    yield Flow(view.to(to), {}, keys[:1])
    for key, field in fields.items():
        if view.written(f"{args}.{key}"):
            yield Flow(view.to(f"{to}.{field}"), view.get(f"{args}.{key}"), (view.path(f"{args}.{key}"),), same=True)
    yield Flow(view.to(f"{to}.clamp"), True, ())


def _write_overlong(view: Writing) -> Iterator[Out]:
    to = "algorithm.reward_shaping.overlong_penalty"
    section = view.get(to)
    if not isinstance(section, Mapping) or not view.config.data.train:
        return
    args = "buffer.explorer_input.taskset.reward_fn_args"
    places = {field: view.to(f"{to}.{field}") for field in section}
    limit = section["limit"] or view.config.rollout.max_response_tokens
    yield Flow(view.path(f"{args}.enable_overlong_penalty"), True, (view.to(to),), always=True)
    yield Flow(view.path(f"{args}.penalty_factor"), section["factor"], (places["factor"],), same=True, always=True)
    yield Flow(view.path(f"{args}.max_response_length"), limit, (places["limit"],), always=True)
    yield Flow(view.path(f"{args}.cache_length"), section["buffer"], (places["buffer"],), same=True, always=True)
    longest = view.config.rollout.max_response_tokens
    if section["clamp"] or limit >= longest:
        yield Flow(
            (), None, (places["clamp"],), "mapped", "the same numbers as long as responses are no longer than the limit"
        )
    else:
        yield Lost(
            (places["clamp"],),
            f"Trinity never takes more than the factor; responses of {longest} tokens go beyond the limit of {limit}",
        )


class _MicroBatchScale(Not):
    """Trinity 0.5 normalises by micro-batch unless told not to; 0.6 never does."""

    def read(self, value: Any, view: Reading) -> Any:
        return not value and view.version < (0, 6)

    def write(self, value: Any, view: Writing) -> Any:
        if value and view.version >= (0, 6):
            raise InexpressibleError("Trinity normalises over the whole mini-batch since 0.6")
        return not value and view.version < (0, 6)


AGGREGATIONS_HERE = Names(
    {name: mode for name, mode in AGGREGATIONS.names.items() if mode != "token_sum"}, "Trinity has no token-sum"
)
P, L, KL, KR = "algorithm.advantage", "algorithm.policy_loss", "algorithm.kl_in_loss", "algorithm.kl_in_reward"
RULES: list[Rule] = [
    Code(
        "algorithm type",
        (K(f"{X}algorithm_type", "ppo"),),
        ("algorithm.preset", "algorithm.objective.name"),
        _read_type,
        _write_type,
        "advantage, loss and objective as one name",
    ),
    Code(
        "advantage",
        (
            K(f"{X}advantage_fn", None),
            K(f"{X}advantage_fn_args", None),
            *(
                K(f"{X}advantage_fn_args.{name}")
                for name in ("gamma", "lam", "epsilon", "std_threshold", "opmd_baseline", "tau", "**")
            ),
        ),
        tuple(
            f"{P}.{name}"
            for name in [
                "name",
                "kind",
                "args",
                "gamma",
                "lambda",
                "whiten",
                "normalize_by_std",
                "epsilon",
                "kl_order",
                "baseline",
                "tau",
            ]
        ),
        _read_advantage,
        _write_advantage,
        "advantage_fn and its arguments",
    ),
    Code(
        "filters",
        (),
        (
            "algorithm.filters",
            *(f"algorithm.filters[].{name}" for name in ["metric", "refill", "threshold", "low", "high", "max_tokens"]),
        ),
        lambda view: iter(()),
        _write_filters,
    ),
    Key(f"{X}loss_agg_mode", "algorithm.aggregation.mode", "token-mean", AGGREGATIONS_HERE),
    Code(
        "policy loss",
        (
            K(f"{X}policy_loss_fn", None),
            K(f"{X}policy_loss_fn_args", None),
            *(
                K(f"{X}policy_loss_fn_args.{name}")
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
                "name",
                "kind",
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
            f"algorithm.objective.{name}"
            for name in ["beta", "label_smoothing", "ipo", "mu", "expert_share", "expert_clip", "args"]
        ),
        _read_loss,
        _write_loss,
        "policy_loss_fn and its arguments, whole",
    ),
    Dropped("algorithm.aggregation.scale_factor", "Trinity divides by the longest response"),
    Key("trainer.fix_actor_microbatch_loss_scale", "algorithm.aggregation.follow_source", False, _MicroBatchScale()),
    Code(
        "KL in the loss",
        (K(f"{X}kl_loss_fn", None), K(f"{X}kl_loss_fn_args.kl_coef", 0.001)),
        (KL, f"{KL}.estimator", f"{KL}.coefficient"),
        _read_kl_loss,
        _write_kl_loss,
        "kl_loss_fn none where it is off",
    ),
    Code(
        "KL in the reward",
        (K(f"{X}kl_penalty_fn", "none"), *(K(f"{X}kl_penalty_fn_args.{name}") for name in PENALTY)),
        (KR, *(f"{KR}.{name}" for name in ["estimator", "coefficient", "adaptive", "target", "horizon"])),
        _read_kl_reward,
        _write_kl_reward,
    ),
    Code(
        "entropy",
        (K(f"{X}entropy_loss_fn", None), K(f"{X}entropy_loss_fn_args.entropy_coef", 0.0)),
        ("algorithm.entropy_coefficient",),
        _read_entropy,
        _write_entropy,
    ),
    Code(
        "old log-probs",
        (
            K(f"{X}bypass_old_logprobs", True, "0.6"),
            K("trainer.trainer_config.algorithm.rollout_correction.bypass_mode", True),
        ),
        ("algorithm.old_log_probs",),
        _read_old,
        _write_old,
    ),
    Dropped("algorithm.train_temperature", "Trinity divides training logits by the sampling temperature", "sampling"),
    Dropped("algorithm.rollout_correction", "Trinity's trainer corrects nothing between rollout and training", None),
    Dropped("algorithm.rollout_correction.**", "Trinity's trainer corrects nothing between rollout and training"),
    Code(
        "overlong penalty",
        tuple(
            K(f"buffer.explorer_input.taskset.reward_fn_args.{name}")
            for name in ("enable_overlong_penalty", "penalty_factor", "max_response_length", "cache_length")
        ),
        tuple(
            f"algorithm.reward_shaping.overlong_penalty{name}"
            for name in ("", ".buffer", ".factor", ".limit", ".clamp")
        ),
        _read_overlong,
        _write_overlong,
    ),
    *[
        Dropped(f"algorithm.reward_shaping.{name}", "Trinity shapes rewards by operators on experiences")
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
    Dropped("algorithm.loss_weights.**", "Trinity weighs its losses by their coefficients only"),
    Dropped("algorithm.preference_feedback", "pf_ppo is verl's", None),
    Dropped("algorithm.preference_feedback.**", "pf_ppo is verl's"),
    Dropped("algorithm.distillation", "Trinity distils by a workflow", None),
    Dropped("algorithm.distillation.**", "Trinity distils by a workflow"),
    Key(
        f"{X}enable_router_replay",
        "algorithm.router_replay",
        False,
        Partly({False: "off", True: "rollout"}),
        since="0.6",
    ),
    Key(f"{X}sample_strategy", "algorithm.sample_strategy", None, Partly({None: "default"})),
    Tree(f"{X}sample_strategy_args", "algorithm.sample_strategy_args", default=None, but=("expert_data_ratio",)),
    Key("data_processor.experience_pipeline.operators", "algorithm.experience_operators", []),
]
