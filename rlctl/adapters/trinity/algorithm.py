"""Trinity: ``algorithm_type`` and the functions it stands for. Arguments replace their defaults, so they are written whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.rules import (
    BadValueError,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    Key,
    Out,
    Reading,
    Rule,
    Tree,
    Writing,
    bare_name,
    further_type,
    is_further,
    version_of,
)
from rlctl.adapters.engine.values import FILTERED, Names, OrDefault, shaping_dropped
from rlctl.adapters.trinity import distillation, experience_pipeline
from rlctl.adapters.trinity.batch import SUPERVISED, supervised
from rlctl.adapters.trinity.data import function_scoring, masked_by_workflow
from rlctl.adapters.trinity.keys import train_places
from rlctl.adapters.trinity.workflows import DAPO, takes_overlong, task, tasksets, taught, teaches
from rlctl.common.messages.reasons import AND, said, together
from rlctl.common.records import record
from rlctl.config.fields import Choice
from rlctl.documents.paths import KeyPath
from rlctl.documents.yaml_write import inline_text


@record
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


# 0.4.1, 0.5.2 and 0.6.0 algorithm/__init__.py, ALGORITHM_TYPE: the types that each release has
TYPES = {
    "ppo": Type("ppo", in_trainer=True),
    "grpo": Type("grpo"),
    "grpo_verl": Type("grpo", in_trainer=True, since="0.5"),
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
    "on_policy_distill": Type("on_policy_distill", "ppo", "none", "none", in_trainer=True),
    "jsd": Type("jsd", "ppo", "none", "none", in_trainer=True, since="0.5"),
    "raft": Type("", "sft", "none", "none"),
    "sft": Type("", "sft", "none", "none"),
    "cpt": Type("", "sft", "none", "none", since="0.6"),
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
    "step_wise_grpo": "step_wise_grpo",
    "gigpo": "gigpo",
}
TYPE_OF_ADVANTAGE = {
    "gae": "ppo",
    "grpo": "grpo",
    "rloo": "rloo",
    "reinforce_plus_plus": "reinforceplusplus",
    "opmd": "opmd",
    "step_wise_grpo": "multi_step_grpo",
    "gigpo": "gigpo",
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
    if objective == "sft":
        return "cpt" if preset == "cpt" and view.version >= (0, 6) else "sft"
    if objective == "dpo":
        return objective
    if objective == "mix":
        chord = any(name.startswith("mu_") for name in getattr(algorithm.objective, "args", {}))
        return preset if preset in ("mix", "mix_chord") else "mix_chord" if chord else "mix"
    if (teaching := taught(view.config)) is not None:
        return teaching
    if preset in TYPES and preset not in ("sft", "cpt", "dpo", "mix", "mix_chord") and _has_type(view, preset):
        return preset
    advantage, loss = algorithm.advantage.choice, algorithm.policy_loss.choice
    if loss in TYPE_OF_LOSS and advantage in ("grpo", "reinforce"):
        return TYPE_OF_LOSS[loss]
    if advantage == "grpo" and algorithm.kl_in_reward is not None and _has_type(view, "grpo_verl"):
        return "grpo_verl"
    kind = _own_kind(algorithm.advantage)
    by_kind = next((name for name, item in TYPES.items() if kind and item.advantage == kind), "grpo")
    found = TYPE_OF_ADVANTAGE.get(advantage, by_kind)
    return found if _has_type(view, found) else "grpo"


def _has_type(view: Writing, name: str) -> bool:
    """Whether the release has an ``algorithm_type``."""
    return not TYPES[name].since or view.version >= version_of(TYPES[name].since)


def _own_kind(advantage: Choice) -> str:
    """Trinity's name of an estimator without a class of its own; empty for another."""
    kind = advantage.type_name
    return bare_name(kind) if is_further(P, kind) else ""


def _read_type(view: Reading) -> Iterator[Flow]:
    name = str(view.get("algorithm.algorithm_type"))
    used = (view.path("algorithm.algorithm_type"),)
    objective = SUPERVISED.get(name, "mix" if name.startswith("mix") else "rl")
    yield Flow(view.to("algorithm.objective.type"), objective, used)
    yield Flow(view.to("algorithm.preset"), name, used, same=True)


def _write_type(view: Writing) -> Iterator[Out]:
    named = ("preset", "advantage.type", "objective.type")
    used: tuple[KeyPath, ...] = tuple(view.to(f"algorithm.{key}") for key in named)
    name = chosen_type(view)
    loss = view.config.algorithm.policy_loss.choice
    if name == TYPE_OF_LOSS.get(loss):
        used = (*used, view.to("algorithm.policy_loss.type"))
    yield Flow(view.path("algorithm.algorithm_type"), name, used, same=False, always=True)
    if view.config.algorithm.preset not in (None, name):
        yield Inexpressible(used[:1], said("Trinity has no matching algorithm_type. Wrote {name}", name=name))


def is_rl(view: Writing) -> bool:
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
    if teaches(view) is not None:
        yield Flow((*to, "type"), "reinforce", keys, "derived", distillation.ALONE)
        return
    fields = ARGS.get(name, {})
    further = {key: args[key] for key in FURTHER if key in args and key not in fields}
    if name in ADVANTAGES and all(value == FURTHER[key] for key, value in further.items()):
        yield Flow((*to, "type"), ADVANTAGES[name], keys)
        for key, field in fields.items():
            if key in args:
                yield Flow((*to, field), _from_trinity(key, args[key]), ((*args_key, key),), same=key not in SPELLED)
            else:
                yield Flow((*to, field), _from_trinity(key, DEFAULTS[key]), ())
        for field, value in FIXED.get(name, {}).items():
            yield Flow((*to, field), value, ())
        yield Flow((), None, tuple((*args_key, key) for key in further), "mapped", "Trinity's default too")
        if name == "grpo":
            yield Flow((), None, ((*args_key, "std_threshold"),))
        return
    yield Flow((*to, "type"), further_type(P, name, "trinity"), keys)
    given = isinstance(view.get(f"{X}advantage_fn_args"), Mapping)
    unsaid = {key: beside for key, (_, beside) in UNSAID.get(name, {}).items()} if given else {}
    yield Flow((*to, "args"), {**unsaid, **args}, (args_key,))


UNSAID: Mapping[str, Mapping[str, tuple[Any, Any]]] = {"clipv": {"mu": (8.5, 2.0)}}
"""Arguments with two defaults: where no arguments are given, and where others are."""
ARGS: Mapping[str, Mapping[str, str]] = {
    "ppo": {"gamma": "gamma", "lam": "lambda"},
    "grpo": {"epsilon": "epsilon"},
    "reinforceplusplus": {"gamma": "gamma"},
    "remax": {"gamma": "gamma"},
    "opmd": {"opmd_baseline": "baseline", "tau": "tau"},
    "step_wise_grpo": {
        "epsilon": "epsilon",
        "enable_step_norm": "divide_by_steps",
        "std_threshold": "drop_below_std",
        "std_cal_level": "std_over",
    },
    "gigpo": {"omega": "step_weight", "gamma": "gamma", "fnorm": "normalize_by_std", "epsilon": "epsilon"},
}
SPELLED: Mapping[str, Mapping[Any, Any]] = {"fnorm": {"std": True, "none": False}}
"""Arguments whose values are names, by name."""
FIXED: Mapping[str, Mapping[str, Any]] = {"gigpo": {"anchor_scope": "batch"}}
"""What an estimator of Trinity's always does where the canonical one has a choice."""
FURTHER = {
    "duplicate_experiences": False,
    "rank_penalty": None,
    "std_cal_level": "group",
    "step_reward_key": "step_reward",
    "env_state_hash_key": "env_state_hash",
}
"""Arguments that the canonical estimators do not have, with the values at which nothing is different."""
DEFAULTS = {
    "gamma": 1.0,
    "lam": 1.0,
    "epsilon": 1e-6,
    "opmd_baseline": "mean",
    "tau": 1.0,
    "enable_step_norm": False,
    "std_threshold": None,
    "std_cal_level": "group",
    "omega": 1.0,
    "fnorm": "none",
}


def _from_trinity(key: str, value: Any) -> Any:
    """An argument's value as the canonical field has it.

    Raises:
        BadValueError: Trinity does not know the name.
    """
    names = SPELLED.get(key)
    if names is None:
        return value
    if value not in list(names):
        raise BadValueError(said("is {raw!r}; expected one of {names}", raw=value, names=", ".join(map(str, names))))
    return names[value]


def _to_trinity(key: str, value: Any) -> Any:
    """A canonical field's value as the argument has it."""
    return next((name for name, meant in SPELLED.get(key, {}).items() if meant == value), value)


def _read_filters(view: Reading) -> Iterator[Flow]:
    """Groups of equal reward that grpo leaves out, and responses that the workflow does not train on."""
    args, place = view.get(f"{X}advantage_fn_args"), view.path(f"{X}advantage_fn_args")
    args = args if isinstance(args, Mapping) else {}
    name = view.get(f"{X}advantage_fn") or type_of(view).advantage
    grouped = name == "grpo" and all(args[key] == usual for key, usual in FURTHER.items() if key in args)
    threshold = args.get("std_threshold") if grouped else None
    filters: list[dict[str, Any]] = []
    used: list[KeyPath] = []
    if threshold is not None:
        filters.append({"type": "zero_variance_groups", "metric": "reward", "refill": False, "threshold": threshold})
        used.append((*place, "std_threshold"))
    masking = (
        [] if supervised(view) else [one for at in tasksets(view) if (one := task(view, at, evaluation=False)).masks]
    )
    if masking:
        filters.append({"type": "overlong"})
        used += masking[0].workflow_keys
    masked = experience_pipeline.masking(view)
    if masked is not None and not masking:
        filters.append({"type": "overlong"})
        used.append(masked)
    note = "math_boxed_workflow does not train on responses that were cut at the limit" if masking else ""
    if filters or grouped:
        yield Flow(view.to("algorithm.filters"), filters, tuple(used), "derived" if masking else "mapped", note)


def _write_advantage(view: Writing) -> Iterator[Out]:
    if not is_rl(view):
        return
    advantage = view.get("algorithm.advantage")
    used: tuple[KeyPath, ...] = (view.to("algorithm.advantage.type"),)
    if taught(view.config) is not None:
        yield Flow(
            (), None, tuple(view.to(f"algorithm.advantage.{name}") for name in advantage), "mapped", distillation.ALONE
        )
        return
    kind = TYPES[chosen_type(view)]
    name = next((name for name, choice in ADVANTAGES.items() if choice == advantage["type"]), None)
    further = is_further(P, advantage["type"])
    plugin = advantage["type"].startswith("trinity.")
    if further:
        name = bare_name(advantage["type"])
    if name in PATCHED and view.version < (0, 5):
        name = None
    if name is not None and not _has_type(view, TYPE_OF_ADVANTAGE.get(advantage["type"], "grpo")):
        name = None
    known = any(item.advantage == name for item in TYPES.values()) or name in EXTRA or plugin
    if name is None or (further and not known):
        every = tuple(view.to(f"algorithm.advantage.{field}") for field in advantage)
        yield Inexpressible(
            every,
            said(
                "Trinity has no advantage {kind}; wrote {advantage}",
                kind=advantage["type"],
                advantage=kind.advantage,
            ),
        )
        return
    if name != kind.advantage:
        note = "Trinity computes it only with a patched trainer (see its examples/entropy)" if name in PATCHED else ""
        yield Flow(view.path(f"{X}advantage_fn"), name, used, "mapped", note, always=True)
    else:
        yield Flow((), None, used)
    yield from _write_advantage_args(view, name, advantage)


PATCHED = ("clipb", "clipv")
"""Advantages since 0.5 that need a patched trainer."""
EXTRA = (*PATCHED, "duplicate_grpo", "step_wise_grpo", "grpo_grouped")


def _write_advantage_args(view: Writing, name: str, advantage: Mapping[str, Any]) -> Iterator[Out]:
    place = view.path(f"{X}advantage_fn_args")
    known = ARGS.get(name, {})
    if is_further(P, advantage["type"]):
        for key, value in advantage["args"].items():
            yield Flow((*place, key), value, (view.to("algorithm.advantage.args"),))
        for key, (alone, _) in UNSAID.get(name, {}).items() if advantage["args"] else ():
            if key not in advantage["args"]:
                yield Flow((*place, key), alone, (view.to("algorithm.advantage.args"),), "derived", always=True)
        for field in ("whiten", "clip"):
            path = (view.to(f"algorithm.advantage.{field}"),)
            if advantage[field]:
                yield Inexpressible(path, said("Trinity's {name} has no {field}", name=name, field=field))
            else:
                yield Flow((), None, path, "mapped", "Trinity always does this")
        return
    usual = {
        "whiten": advantage["type"] in ("gae", "reinforce_plus_plus", "reinforce_plus_plus_baseline"),
        "clip": None,
        "normalize_by_std": True,
        "kl_order": "before_normalisation",
        "gamma": 1.0,
        "epsilon": 1e-6,
        "episode_weight": 1.0,
        **FIXED.get(name, {}),
    }
    for field, value in advantage.items():
        if field == "type" or field in known.values():
            continue
        path = (view.to(f"algorithm.advantage.{field}"),)
        if value != usual.get(field, value):
            lacks = said("Trinity's {name} has no {field}", name=name, field=field)
            usually = inline_text(usual[field], (), in_flow=False)
            fixed = said(
                "Trinity's {name} always computes with {field} = {usual}", name=name, field=field, usual=usually
            )
            yield Inexpressible(path, lacks if usual[field] is None else fixed)
        else:
            yield Flow((), None, path, "mapped", "Trinity always does this")
    threshold = _threshold(view) if name == "grpo" else None
    if advantage.get("std_over") == "none":
        reason = "Trinity always divides by a standard deviation. Wrote that of the group"
        yield Inexpressible((view.to("algorithm.advantage.std_over"),), reason)
        advantage = {**advantage, "std_over": "group"}
    if threshold is not None or any(
        advantage[field] != _from_trinity(key, DEFAULTS[key]) for key, field in known.items()
    ):
        for key, field in known.items():
            value, used = _to_trinity(key, advantage[field]), (view.to(f"algorithm.advantage.{field}"),)
            yield Flow((*place, key), value, used, same=key not in SPELLED, always=True)
    else:
        for field in known.values():
            yield Flow((), None, (view.to(f"algorithm.advantage.{field}"),), "mapped", "Trinity's default too")
    if threshold is not None:
        yield Flow((*place, "std_threshold"), threshold, (view.to("algorithm.filters"),), always=True)


def _threshold(view: Writing) -> float | None:
    filters = view.get("algorithm.filters")
    found = [item for item in filters if item["type"] == "zero_variance_groups"]
    return float(found[0]["threshold"]) if found else None


def _write_filters(view: Writing) -> Iterator[Out]:
    filters, used = view.get("algorithm.filters"), (view.to("algorithm.filters"),)
    masks, operated = masked_by_workflow(view), experience_pipeline.masks(view)
    filters = [item for item in filters if not ((masks or operated) and item["type"] == "overlong")]
    if not filters:
        yield Flow((), None, used, "mapped", "math_boxed_workflow excludes them" if masks else "")
        return
    plain = [
        item
        for item in filters
        if item["type"] == "zero_variance_groups" and not item["refill"] and item["metric"] == "reward"
    ]
    grouped = chosen_type(view) in TYPES and TYPES[chosen_type(view)].advantage == "grpo"
    if len(plain) != len(filters) or len(filters) > 1 or not grouped:
        others = [item for item in filters if item["type"] != "zero_variance_groups" or not grouped]
        reason = said("Trinity trains on {names}", names=together([FILTERED[item["type"]] for item in others], AND))
        if not others:
            reason = "Trinity's grpo drops zero-variance groups (std_threshold) without refilling the batch"
        yield Inexpressible(
            used, said("{reason}. Operators in data_processor.experience_pipeline can do more", reason=reason)
        )


# Rewards


OVERLONG = {"penalty_factor": "factor", "max_response_length": "limit", "cache_length": "buffer"}


def _read_overlong(view: Reading) -> Iterator[Flow]:
    """The penalty of the first task set, which stands for all."""
    to = "algorithm.reward_shaping.overlong_penalty"
    roots = [f"{'.'.join(str(part) for part in place)}.reward_fn_args" for place in tasksets(view)]
    args = roots[0] if roots else "buffer.explorer_input.taskset.reward_fn_args"
    switches = tuple(view.path(f"{root}.enable_overlong_penalty") for root in roots or [args])
    if not view.get(f"{args}.enable_overlong_penalty"):
        fields = tuple(view.path(f"{root}.{key}") for root in roots or [args] for key in OVERLONG)
        yield Flow(view.to(to), None, (*switches, *fields))
        return
    yield Flow(view.to(to), {}, switches)
    for key, field in OVERLONG.items():
        used = tuple(view.path(f"{root}.{key}") for root in roots)
        if view.written(f"{args}.{key}"):
            yield Flow(view.to(f"{to}.{field}"), view.get(f"{args}.{key}"), used, same=len(used) == 1)
    yield Flow(view.to(f"{to}.clamp"), True, ())


def _write_overlong(view: Writing) -> Iterator[Out]:
    to = "algorithm.reward_shaping.overlong_penalty"
    section = view.get(to)
    sources = view.get("data.train")
    if not isinstance(section, Mapping) or not sources:
        return
    places = {field: view.to(f"{to}.{field}") for field in section}
    functions = [function_scoring(view, source) or "math_reward" for source in sources]
    deaf = [name for name in functions if not takes_overlong(name)]
    if deaf:
        yield Inexpressible(
            (view.to(to), *places.values()),
            said("Trinity's {deaf} takes no overlong penalty, only {dapo} does", deaf=deaf[0], dapo=DAPO),
        )
        return
    limit = section["limit"] or view.config.rollout.max_response_tokens
    for root in train_places(view):
        args = (*root, "reward_fn_args")
        yield Flow((*args, "enable_overlong_penalty"), True, (view.to(to),), always=True)
        yield Flow((*args, "penalty_factor"), section["factor"], (places["factor"],), same=True, always=True)
        yield Flow((*args, "max_response_length"), limit, (places["limit"],), always=True)
        yield Flow((*args, "cache_length"), section["buffer"], (places["buffer"],), same=True, always=True)
    longest = view.config.rollout.max_response_tokens
    if section["clamp"] or limit >= longest:
        yield Flow(
            (), None, (places["clamp"],), "mapped", "equal results as long as no response is longer than the limit"
        )
    else:
        yield Inexpressible(
            (places["clamp"],),
            said(
                "Trinity caps the penalty at the factor, and responses of {longest} tokens exceed the limit of {limit}",
                longest=longest,
                limit=limit,
            ),
        )


class Strategy(Names):
    """How a train batch is drawn from the buffer: any name, null for the default one."""

    def read(self, value: Any, view: Reading) -> Any:
        return value or "default"

    def write(self, value: Any, view: Writing) -> Any:
        return value


P, STRATEGY = "algorithm.advantage", Strategy({})
PENALIZED, PENALTY = "buffer.explorer_input.taskset.reward_fn_args", "algorithm.reward_shaping.overlong_penalty"
RULES: list[Rule] = [
    CustomRule(
        "algorithm type",
        (DialectKey(f"{X}algorithm_type"),),
        ("algorithm.preset", "algorithm.objective.type"),
        _read_type,
        _write_type,
        "advantage, loss and objective as one name",
        why="One name means an objective and a preset, and is chosen by the estimator, the loss and the teacher.",
    ),
    CustomRule(
        "advantage",
        (
            DialectKey(f"{X}advantage_fn"),
            DialectKey(f"{X}advantage_fn_args"),
            *(
                DialectKey(f"{X}advantage_fn_args.{name}")
                for name in (*dict.fromkeys(key for fields in ARGS.values() for key in fields), "**")
            ),
        ),
        tuple(
            f"{P}.{name}"
            for name in [
                "type",
                "args",
                "gamma",
                "lambda",
                "whiten",
                "clip",
                "normalize_by_std",
                "epsilon",
                "kl_order",
                "baseline",
                "tau",
                "episode_weight",
                "step_weight",
                "anchor_scope",
                "divide_by_steps",
                "std_over",
                "drop_below_std",
            ]
        ),
        _read_advantage,
        _write_advantage,
        "advantage_fn and its arguments",
        by_key={
            f"{X}algorithm_type": f"{P}.type",
            f"{X}advantage_fn": f"{P}.type",
            f"{X}advantage_fn_args": f"{P}.args",
            **{
                f"{X}advantage_fn_args.{key}": f"{P}.{name}" for fields in ARGS.values() for key, name in fields.items()
            },
        },
        why="Arguments replace a function's defaults as a whole, so that one that differs means that all are written.",
    ),
    CustomRule(
        "filters",
        (),
        (
            "algorithm.filters",
            *(f"algorithm.filters[].{name}" for name in ["metric", "refill", "threshold", "low", "high", "max_tokens"]),
        ),
        _read_filters,
        _write_filters,
        by_key={"buffer.explorer_input.default_workflow_type": "algorithm.filters"},
        why="An argument of one estimator, a workflow and an operator are items of one list of filters.",
    ),
    Dropped("algorithm.rollout_correction", "Trinity has no rollout correction", None),
    Dropped("algorithm.rollout_correction.**", "Trinity has no rollout correction"),
    CustomRule(
        "overlong penalty",
        tuple(
            DialectKey(f"{PENALIZED}.{name}", takes=kind)
            for name, kind in (
                ("enable_overlong_penalty", bool),
                ("penalty_factor", float),
                ("max_response_length", float),
                ("cache_length", float),
            )
        ),
        tuple(f"{PENALTY}{name}" for name in ("", ".buffer", ".factor", ".limit", ".clamp")),
        _read_overlong,
        _write_overlong,
        by_key={
            f"{PENALIZED}.enable_overlong_penalty": PENALTY,
            f"{PENALIZED}.penalty_factor": f"{PENALTY}.factor",
            f"{PENALIZED}.max_response_length": f"{PENALTY}.limit",
            f"{PENALIZED}.cache_length": f"{PENALTY}.buffer",
        },
        why="Every task set has it, the first one is read, and only one reward function reads it.",
    ),
    *shaping_dropped("Trinity", "an operator in data_processor.experience_pipeline"),
    Dropped("algorithm.loss_weights.**", "Trinity weighs losses only by their coefficients"),
    Dropped("algorithm.policy_filtration", "only verl has pf_ppo", None),
    Dropped("algorithm.policy_filtration.**", "only verl has pf_ppo"),
    *distillation.RULES,
    Key(
        f"{X}enable_router_replay",
        "algorithm.router_replay",
        convert=Names(
            {False: "off", True: "rollout"},
            missing="Trinity replays the rollout engine's routing, never the trainer's own",
        ),
    ),
    Key(f"{X}sample_strategy", "algorithm.sample_strategy", convert=OrDefault(STRATEGY, "default")),
    Tree(f"{X}sample_strategy_args", "algorithm.sample_strategy_args", but=("expert_data_ratio",)),
    *experience_pipeline.RULES,
]
