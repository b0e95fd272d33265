"""ROLL: advantages and how rewards are normalised, policy loss, KL, aggregation, masks and off-policy correction.

ROLL's estimators are ``reinforce`` after a normalisation of rewards, so that GRPO, Dr. GRPO and REINFORCE++ are settings of it.
"""

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
    Writing,
)
from rlctl.adapters.values import AGGREGATIONS, Names
from rlctl.documents.paths import KeyPath

ADV, SHAPE = "algorithm.advantage", "algorithm.reward_shaping"
OWN = ("gigpo", "step_reinforce", "agentic_reinforce")
"""Estimators that only ROLL has; ``agentic_reinforce`` only its agentic runs."""
STEP_REWARDS = ("episode_reward_weight", "step_reward_weight", "step_reward_gamma")

# Advantages. (mean, std) of the normalisation before REINFORCE, and whether advantages are whitened, name the estimator.


@dataclass(frozen=True)
class Estimate:
    """What the text says of the estimator, wherever it says it."""

    kind: str
    mean: Any
    std: Any
    gamma: Any
    whiten: bool

    @property
    def name(self) -> str:
        """The canonical estimator that these settings are."""
        if self.kind == "gae" or self.kind in OWN:
            return "gae" if self.kind == "gae" else "other"
        if self.gamma == 1 and self.mean == "group" and self.std in ("group", None):
            return "reinforce_plus_plus_baseline" if self.whiten and self.std is None else "grpo"
        if self.mean is None and self.std is None and self.whiten:
            return "reinforce_plus_plus"
        return "reinforce"


def _flows(view: Reading, estimate: Estimate, used: dict[str, tuple[Any, ...]]) -> Iterator[Flow]:
    name, to = estimate.name, view.to(ADV)
    yield Flow(
        (*to, "name"),
        name,
        (*used["kind"], *(used["norm"] if name in ("grpo", "reinforce_plus_plus_baseline") else ())),
    )
    if name == "other":
        yield Flow((*to, "kind"), estimate.kind, used["kind"])
    elif name == "gae":
        yield Flow((*to, "lambda"), view.get("lambd"), (view.path("lambd"),), same=True)
        yield Flow((*to, "whiten"), estimate.whiten, used["whiten"], same=True)
    elif name == "grpo":
        yield Flow((*to, "normalize_by_std"), estimate.std == "group", used["norm"])
        yield Flow((*to, "kl_order"), "after_normalisation", ())
    elif name == "reinforce":
        yield Flow((*to, "whiten"), estimate.whiten, used["whiten"], same=True)
    if name != "gae" and view.written("lambd"):
        yield Flow((), None, (view.path("lambd"),), "dead", "only gae reads it")
    place = (view.path("gamma"),)
    if name in ("gae", "reinforce", "reinforce_plus_plus"):
        yield Flow((*to, "gamma"), float(estimate.gamma), place, same=True)
    elif name == "other":
        yield Flow((*to, "args", "gamma"), estimate.gamma, place)
    else:
        yield Flow((), None, place, "mapped", "1 is no discount")
    taken = name in ("grpo", "reinforce_plus_plus_baseline", "reinforce_plus_plus")
    yield Flow(view.to(f"{SHAPE}.normalize.mean"), None if taken else estimate.mean, used["norm"])
    yield Flow(view.to(f"{SHAPE}.normalize.std"), None if taken else estimate.std, used["norm"])
    separate = estimate.whiten and name in ("grpo", "other")
    yield Flow(view.to(f"{SHAPE}.whiten_advantages"), separate, used["whiten"])


def _read_rlvr(view: Reading) -> Iterator[Flow]:
    kind = str(view.get("adv_estimator"))
    mean, std = view.get("norm_mean_type"), view.get("norm_std_type")
    norms: tuple[KeyPath, ...] = (view.path("norm_mean_type"), view.path("norm_std_type"))
    if kind == "grpo":
        if view.written("norm_mean_type", "norm_std_type"):
            yield Flow((), None, norms, "dead", "adv_estimator grpo sets both to group")
        mean, std, norms = "group", "group", ()
    estimate = Estimate(kind, mean, std, view.get("gamma"), bool(view.get("whiten_advantages")))
    used = {"kind": (view.path("adv_estimator"),), "norm": norms, "whiten": (view.path("whiten_advantages"),)}
    yield from _flows(view, estimate, used)
    domains = view.get("rewards")
    several = isinstance(domains, Mapping) and len(domains) > 1
    yield Flow(view.to(f"{SHAPE}.normalize_per_domain"), several, ())


N = "reward_normalization"
GROUPINGS = {"traj_group_id": "prompt", "traj_id": "trajectory", "tags": "tags", "batch": "batch"}


def agentic_norm(view: Reading) -> tuple[Any, Any]:
    """Mean and std of an agentic run: as they are said, else by the deprecated method, over the batch or a group."""
    method, grouping = view.get(f"{N}.method"), str(view.get(f"{N}.grouping") or "").lower()
    scope = "batch" if grouping == "batch" else "group"
    by_method = {"mean": (scope, None), "mean_std": (scope, scope), "asym_clip": (scope, scope)}.get(
        str(method), (None, None)
    )
    mean, std = view.get(f"{N}.norm_mean_type"), view.get(f"{N}.norm_std_type")
    return mean if mean is not None else by_method[0], std if std is not None else by_method[1]


def _read_agentic(view: Reading) -> Iterator[Flow]:
    mean, std = agentic_norm(view)
    grouping = str(view.get(f"{N}.grouping"))
    norms = tuple(view.path(f"{N}.{name}") for name in ("method", "norm_mean_type", "norm_std_type"))
    kind = str(view.get("adv_estimator"))
    grouped = grouping in GROUPINGS and GROUPINGS[grouping] == "prompt"
    plain = kind if kind in OWN or kind == "gae" else "reinforce"
    # Statistics of groups that are no prompt's are no GRPO.
    shaped = plain == "reinforce" and "group" in (mean, std) and not grouped
    estimate = (_Shaped if shaped else Estimate)(
        plain, mean, std, view.get("gamma"), bool(view.get("whiten_advantages"))
    )
    used = {"kind": (view.path("adv_estimator"),), "norm": norms, "whiten": (view.path("whiten_advantages"),)}
    yield from _flows(view, estimate, used)
    note = "" if grouping in GROUPINGS else f"ROLL knows no grouping {grouping!r}: it takes a column of this name"
    to = view.to(f"{SHAPE}.group_by")
    yield Flow(
        to, GROUPINGS.get(grouping, "trajectory"), (view.path(f"{N}.grouping"),), "derived" if note else "mapped", note
    )
    yield Flow(view.to(f"{SHAPE}.normalize_per_domain"), False, ())
    for name in STEP_REWARDS:
        place = (view.path(name),)
        if kind in OWN[:2]:
            yield Flow(view.to(f"{ADV}.args.{name}"), view.get(name), place, same=True)
        elif view.written(name):
            yield Flow((), None, place, "dead", f"{kind} has no step rewards")


@dataclass(frozen=True)
class _Shaped(Estimate):
    """Normalisation that no estimator's name says."""

    @property
    def name(self) -> str:
        return "reinforce"


def _written(view: Writing) -> tuple[str, Any, Any, bool, Iterator[Lost]]:
    """ROLL's estimator, normalisation and whitening for the canonical estimator, and what differs."""
    advantage, shaping = view.get(ADV), view.get(SHAPE)
    mean, std = shaping["normalize"]["mean"], shaping["normalize"]["std"]
    whiten, name = shaping["whiten_advantages"], advantage["name"]
    lost: list[Lost] = []
    if name in ("grpo", "rloo", "reinforce_plus_plus_baseline") and (mean, std) != (None, None):
        used = (view.to(f"{SHAPE}.normalize.mean"), view.to(f"{SHAPE}.normalize.std"))
        lost.append(Lost(used, f"ROLL normalises rewards once, and {name} is such a normalisation"))
    if name == "grpo":
        mean, std = "group", "group" if advantage["normalize_by_std"] else None
    elif name == "reinforce_plus_plus_baseline":
        mean, std, whiten = "group", None, True
    elif name == "reinforce_plus_plus":
        whiten = True
    elif name == "rloo":
        mean, std = "group", None
        reason = (
            "ROLL has no rloo: rewards minus their group's mean are written, which are (n-1)/n of RLOO's advantages"
        )
        lost.append(Lost((view.to(f"{ADV}.name"),), reason))
    elif name in ("gae", "reinforce"):
        whiten = whiten or advantage["whiten"]
    elif name != "other" or advantage["kind"] not in OWN:
        shown = advantage["kind"] if name == "other" else name
        lost.append(Lost((view.to(f"{ADV}.name"),), f"ROLL has no estimator {shown}; reinforce is written"))
    kind = {"gae": "gae", "other": advantage.get("kind")}.get(name, "reinforce")
    return kind if kind in ("gae", *OWN) else "reinforce", mean, std, whiten, iter(lost)


def _write_common(view: Writing, kind: str, whiten: bool) -> Iterator[Out]:
    advantage, to = view.get(ADV), view.to(ADV)
    places = ((*to, "whiten"), view.to(f"{SHAPE}.whiten_advantages"), (*to, "name"))
    yield Flow(view.path("whiten_advantages"), whiten, places)
    gamma = advantage.get("gamma", advantage.get("args", {}).get("gamma") if kind in OWN else None)
    if gamma is not None:
        whole = int(gamma) if gamma == int(gamma) else gamma
        yield Flow(view.path("gamma"), whole, ((*to, "gamma"), (*to, "args")), same=gamma == 1)
    if kind == "gae":
        yield Flow(view.path("lambd"), advantage["lambda"], ((*to, "lambda"),), same=True)
    if advantage.get("epsilon", 1e-6) != 1e-6:
        yield Lost(((*to, "epsilon"),), "ROLL adds 1e-6 to the standard deviation")
    penalty = view.get("algorithm.kl_in_reward")
    if advantage.get("kl_order") == "before_normalisation" and isinstance(penalty, Mapping) and penalty["coefficient"]:
        reason = "ROLL subtracts KL from rewards after it has normalised them by group, not before"
        yield Lost(((*to, "kl_order"), view.to("algorithm.kl_in_reward")), reason)
    elif "kl_order" in advantage:
        yield Flow((), None, ((*to, "kl_order"),), "mapped", "without KL in the reward there is no order")
    args = advantage.get("args", {})
    known = (*STEP_REWARDS, "gamma") if kind in OWN else ()
    if any(name not in known for name in args):
        yield Lost(((*to, "args"),), f"ROLL's {kind} takes no such arguments")


def _write_rlvr(view: Writing) -> Iterator[Out]:
    kind, mean, std, whiten, lost = _written(view)
    yield from lost
    used = (view.to(f"{ADV}.name"), view.to(f"{ADV}.kind"))
    norms = (view.to(f"{SHAPE}.normalize.mean"), view.to(f"{SHAPE}.normalize.std"))
    by_name = view.get(f"{ADV}.name") in ("grpo", "rloo", "reinforce_plus_plus_baseline")
    if view.get(f"{ADV}.name") == "grpo" and std == "group":
        yield Flow(view.path("adv_estimator"), "grpo", (*used, view.to(f"{ADV}.normalize_by_std")), always=True)
    else:
        yield Flow(view.path("adv_estimator"), kind, used, always=True)
        sources = (*used[:1], view.to(f"{ADV}.normalize_by_std")) if by_name else norms
        note = "the normalisation that it is" if by_name else ""
        how: How = "derived" if by_name else "mapped"
        yield Flow(view.path("norm_mean_type"), mean, sources[:1], how, note, always=by_name)
        yield Flow(view.path("norm_std_type"), std, sources[1:], how, note, always=by_name)
    yield from _write_common(view, kind, whiten)
    if kind == "agentic_reinforce":
        yield Lost(used, "ROLL has agentic_reinforce in agentic runs only")
    if view.get(f"{SHAPE}.group_by") != "prompt":
        yield Lost((view.to(f"{SHAPE}.group_by"),), "ROLL groups by prompt; other groups are for agentic runs")
    several = len(view.config.rewards) > 1
    if view.get(f"{SHAPE}.normalize_per_domain") != several and "batch" in (mean, std):
        yield Lost((view.to(f"{SHAPE}.normalize_per_domain"),), "ROLL normalises each domain by itself")
    elif view.get(f"{SHAPE}.normalize_per_domain") != several and view.explicit(f"{SHAPE}.normalize_per_domain"):
        yield Lost((view.to(f"{SHAPE}.normalize_per_domain"),), "ROLL has as many domains as rewards, each by itself")


def _write_agentic(view: Writing) -> Iterator[Out]:
    kind, mean, std, whiten, lost = _written(view)
    yield from lost
    used = (view.to(f"{ADV}.name"), view.to(f"{ADV}.kind"))
    grouped = view.get(f"{ADV}.name") in ("grpo", "rloo", "reinforce_plus_plus_baseline")
    shown = "grpo" if view.get(f"{ADV}.name") == "grpo" else kind
    yield Flow(view.path("adv_estimator"), shown, used, always=True)
    yield from _write_common(view, kind, whiten)
    place, named = view.to(f"{SHAPE}.group_by"), view.get(f"{SHAPE}.group_by")
    sources = used if grouped else (view.to(f"{SHAPE}.normalize.mean"), view.to(f"{SHAPE}.normalize.std"))
    how: How = "derived" if grouped else "mapped"
    for name, value in (("norm_mean_type", mean), ("norm_std_type", std)):
        if value == "running":
            yield Lost(sources, "ROLL's agentic runs keep no running statistics")
        elif value is not None:
            places = (*sources, view.to(f"{ADV}.normalize_by_std"))
            yield Flow(view.path(f"{N}.{name}"), value, places, how, always=True)
    grouping = next(key for key, value in GROUPINGS.items() if value == named)
    if "group" in (mean, std) or view.explicit(f"{SHAPE}.group_by"):
        yield Flow(view.path(f"{N}.grouping"), grouping, (place, *(sources if grouped else ())), always=True)
    for name in STEP_REWARDS:
        value = view.get(f"{ADV}.args", {}).get(name) if kind in OWN else None
        if value is not None:
            yield Flow(view.path(name), value, (view.to(f"{ADV}.args"),))


ADVANTAGE_FILLS = (
    f"{ADV}.name",
    f"{ADV}.kind",
    *(
        f"{ADV}.{name}"
        for name in ("gamma", "lambda", "whiten", "normalize_by_std", "epsilon", "kl_order", "baseline", "tau", "args")
    ),
    *(
        f"{SHAPE}.{name}"
        for name in ("normalize.mean", "normalize.std", "normalize_per_domain", "whiten_advantages", "group_by")
    ),
)
ADVANTAGE_KEYS = (K("adv_estimator", "gae"), K("gamma", 1), K("lambd", 0.95), K("whiten_advantages", False))
RLVR_ADVANTAGE = Code(
    "advantage",
    (*ADVANTAGE_KEYS, K("norm_mean_type", None), K("norm_std_type", None)),
    ADVANTAGE_FILLS,
    _read_rlvr,
    _write_rlvr,
    "reinforce after a normalisation: group mean and std = GRPO, group mean = Dr. GRPO, whitened = REINFORCE++",
)
AGENTIC_ADVANTAGE = Code(
    "advantage",
    (
        *ADVANTAGE_KEYS,
        K(f"{N}.grouping", "batch"),
        K(f"{N}.method", "identity"),
        K(f"{N}.norm_mean_type", None),
        K(f"{N}.norm_std_type", None),
        K("episode_reward_weight", 1.0),
        K("step_reward_weight", 1.0),
        K("step_reward_gamma", 0.95),
    ),
    ADVANTAGE_FILLS,
    _read_agentic,
    _write_agentic,
)


# Policy loss

LOSS = "algorithm.policy_loss"
PG_WORKERS = (
    "roll.pipeline.rlvr.actor_pg_worker.ActorPGWorker",
    "roll.pipeline.agentic.agentic_actor_pg_worker.ActorWorker",
)
PPO_WORKERS = ("roll.pipeline.rlvr.actor_worker.ActorWorker", "roll.pipeline.agentic.agentic_actor_worker.ActorWorker")
CLASS, VARIANT = "actor_train.worker_cls", "actor_train.pg_variant"
CLIPS = ("pg_clip", "pg_clip_low", "pg_clip_high", "use_pg_clip_range")


def _clips(view: Reading) -> tuple[Any, Any, tuple[Any, ...]]:
    if view.get("use_pg_clip_range"):
        used = tuple(view.path(key) for key in ("pg_clip_low", "pg_clip_high", "use_pg_clip_range"))
        return view.get("pg_clip_low"), view.get("pg_clip_high"), used
    used = (view.path("pg_clip"), view.path("use_pg_clip_range"))
    return view.get("pg_clip"), view.get("pg_clip"), used


def _variant(view: Reading) -> str:
    """What computes the loss: ``ppo``, ``seq``, ``segment``, a variant of the policy-gradient worker, or a class."""
    worker = view.get(CLASS)
    if worker in PG_WORKERS:
        return str(view.get(VARIANT) or "vanilla")
    if worker is not None and worker not in PPO_WORKERS:
        return str(worker)
    if view.get("importance_sampling") == "seq":
        return "seq"
    return "segment" if view.get("ratio_type") == "segment" else "ppo"


def _read_loss(view: Reading) -> Iterator[Flow]:
    variant, to = _variant(view), view.to(LOSS)
    ratio = tuple(view.path(key) for key in ("importance_sampling", "ratio_type"))
    used = (view.path(CLASS), view.path(VARIANT)) if view.get(CLASS) in PG_WORKERS else (view.path(CLASS), *ratio)
    names = {
        "ppo": "ppo_clip",
        "seq": "gspo",
        "cispo": "cispo",
        "topr": "topr",
        "vanilla": "policy_gradient",
        "tis": "policy_gradient",
    }
    yield Flow((*to, "name"), names.get(variant, "other"), used)
    if variant in ("ppo", "seq"):
        low, high, clips = _clips(view)
        yield Flow((*to, "clip_low"), low, clips)
        yield Flow((*to, "clip_high"), high, clips)
    elif variant in ("cispo", "tis"):
        yield from _fixed(view, variant)
    elif variant == "topr":
        for name, key in (("positive_weight", "topr_positive_weight"), ("negative_weight", "topr_negative_weight")):
            yield Flow((*to, name), view.get(f"actor_train.{key}"), (view.path(f"actor_train.{key}"),), same=True)
    elif variant not in names:
        yield Flow((*to, "kind"), variant, used)
        for key in (*CLIPS, "dual_clip_loss"):
            yield Flow((*to, "args", key), view.get(key), (view.path(key),), same=True)
    if variant == "ppo":
        yield from _read_dual(view)
    yield from _unused(view, variant)


def _fixed(view: Reading, variant: str) -> Iterator[Flow]:
    """Numbers that ROLL reads by names its configs cannot set."""
    to = view.to(LOSS)
    if variant == "cispo":
        yield Flow((*to, "clip_low"), 0.1, ())
        yield Flow((*to, "clip_high"), 0.1, ())
    else:
        yield Flow((*to, "importance_weight"), "truncated_ratio", ())
        yield Flow((*to, "weight_bound"), 1.0, ())


def _read_dual(view: Reading) -> Iterator[Flow]:
    on, clip = view.get("dual_clip_loss"), view.get("pg_clip")
    to = view.to(f"{LOSS}.dual_clip")
    if not on:
        yield Flow(to, None, (view.path("dual_clip_loss"),))
        return
    note = f"1 + 2 x pg_clip {clip}"
    yield Flow(to, round(1 + 2 * clip, 12), (view.path("dual_clip_loss"), view.path("pg_clip")), "derived", note)


def _unused(view: Reading, variant: str) -> Iterator[Flow]:
    reasons = {VARIANT: "only the policy-gradient worker reads it"} if view.get(CLASS) not in PG_WORKERS else {}
    if variant != "topr":
        reasons |= dict.fromkeys(
            ("actor_train.topr_positive_weight", "actor_train.topr_negative_weight"), "pg_variant is not topr"
        )
    if variant in ("cispo", "tis", "topr", "vanilla"):
        reasons |= dict.fromkeys((*CLIPS, "dual_clip_loss"), f"{variant} does not clip")
    elif variant in ("ppo", "seq"):
        gated: tuple[str, ...] = (
            ("pg_clip",) if view.get("use_pg_clip_range") and not view.get("dual_clip_loss") else ()
        )
        gated = gated if view.get("use_pg_clip_range") else ("pg_clip_low", "pg_clip_high")
        reasons |= dict.fromkeys(gated, f"use_pg_clip_range is {'on' if view.get('use_pg_clip_range') else 'off'}")
    for key, reason in reasons.items():
        if view.written(key):
            yield Flow((), None, (view.path(key),), "dead", reason)


def _write_loss(view: Writing) -> Iterator[Out]:
    loss, to = view.get(LOSS), view.to(LOSS)
    name = loss["name"]
    agentic = view.config.rollout.environments is not None
    used = ((*to, "name"), (*to, "kind"), (*to, "importance_weight"))
    variant = {"cispo": "cispo", "topr": "topr"}.get(name)
    if name == "policy_gradient":
        variant = {"none": "vanilla", "truncated_ratio": "tis"}.get(loss["importance_weight"])
        if variant is None:
            yield Lost(used[2:], "ROLL's policy gradient takes no weight, or one cut at 1")
            variant = "tis"
    if name == "other":
        variant = yield from _write_other(view, loss, agentic)
    if name == "sapo":
        yield Lost(((*to, "name"),), "ROLL has no soft gate; its clipped loss is written")
    if variant is not None:
        yield Flow(view.path(CLASS), PG_WORKERS[agentic], used, always=True)
        yield Flow(view.path(VARIANT), variant, used, always=True)
    else:
        yield from _write_clipped(view, loss, name, agentic)
    yield from _write_fixed(view, loss, name)


def _write_other(view: Writing, loss: Mapping[str, Any], agentic: bool) -> Any:
    to, kind = view.to(LOSS), loss["kind"]
    used = ((*to, "name"), (*to, "kind"))
    args = loss["args"]
    if kind == "segment" and agentic:
        yield Flow(view.path("ratio_type"), "segment", used, always=True)
    elif "." in kind and kind.startswith("roll"):
        yield Flow(view.path(CLASS), kind, used, always=True)
    elif kind != "kimi15":
        yield Lost(used, f"ROLL has no loss {kind}; its clipped loss is written")
        return None
    for key, value in args.items():
        if key in (*CLIPS, "dual_clip_loss"):
            yield Flow(view.path(key), value, ((*to, "args"),))
    return "kimi15" if kind == "kimi15" else None


def _write_clipped(view: Writing, loss: Mapping[str, Any], name: str, agentic: bool) -> Iterator[Out]:
    to = view.to(LOSS)
    if name == "gspo":
        if agentic:
            yield Lost(
                ((*to, "name"),), "ROLL takes ratios of sequences in RLVR runs only; those of segments are written"
            )
            yield Flow(view.path("ratio_type"), "segment", ((*to, "name"),), "derived", "the nearest", always=True)
        else:
            yield Flow(view.path("importance_sampling"), "seq", ((*to, "name"),), always=True)
    else:
        yield Flow((), None, ((*to, "name"),), "mapped", "what ROLL's worker computes")
    if "clip_low" not in loss:
        return
    low, high, dual = loss["clip_low"], loss["clip_high"], loss.get("dual_clip")
    places = ((*to, "clip_low"), (*to, "clip_high"))
    follows = dual is None or round(1 + 2 * low, 12) == dual
    if low == high and follows:
        yield Flow(view.path("pg_clip"), low, places, same=True, always=True)
        yield Flow(view.path("use_pg_clip_range"), False, places)
    else:
        yield Flow(view.path("use_pg_clip_range"), True, places, always=True)
        yield Flow(view.path("pg_clip_low"), low, places[:1], same=True, always=True)
        yield Flow(view.path("pg_clip_high"), high, places[1:], same=True, always=True)
    if "dual_clip" not in loss:
        yield Flow(view.path("dual_clip_loss"), False, ((*to, "name"),))
        return
    yield Flow(view.path("dual_clip_loss"), dual is not None, ((*to, "dual_clip"),), always=True)
    if dual is not None and not (low == high and follows):
        note = f"the bound {dual:g} is 1 + 2 x pg_clip; with use_pg_clip_range pg_clip says nothing else"
        yield Flow(view.path("pg_clip"), round((dual - 1) / 2, 12), ((*to, "dual_clip"),), "derived", note, always=True)


def _write_fixed(view: Writing, loss: Mapping[str, Any], name: str) -> Iterator[Out]:
    to = view.to(LOSS)
    if name == "topr":
        for field in ("positive_weight", "negative_weight"):
            yield Flow(view.path(f"actor_train.topr_{field}"), loss[field], ((*to, field),), same=True)
    if name == "cispo" and (loss["clip_low"], loss["clip_high"]) != (0.1, 0.1):
        yield Lost(
            ((*to, "clip_low"), (*to, "clip_high")), "ROLL's CISPO clips at 0.1 on both sides, which no key changes"
        )
    if name == "policy_gradient" and loss["importance_weight"] == "truncated_ratio" and loss["weight_bound"] != 1:
        yield Lost(((*to, "weight_bound"),), "ROLL's weight is cut at 1, which no key changes")


def loss_rule(ratio: K) -> Code:
    """The policy loss; RLVR and agentic runs have different ratios."""
    return Code(
        "policy loss",
        (
            K(CLASS, None),
            K(VARIANT, None),
            ratio,
            K("pg_clip", 0.2),
            K("use_pg_clip_range", False),
            K("pg_clip_low", 0.2),
            K("pg_clip_high", 0.2),
            K("dual_clip_loss", False),
            K("actor_train.topr_positive_weight", 1.0),
            K("actor_train.topr_negative_weight", 1.0),
        ),
        (
            f"{LOSS}.name",
            f"{LOSS}.kind",
            *(
                f"{LOSS}.{name}"
                for name in (
                    "clip_low",
                    "clip_high",
                    "dual_clip",
                    "positive_weight",
                    "negative_weight",
                    "tau_positive",
                    "tau_negative",
                    "importance_weight",
                    "weight_bound",
                    "args",
                )
            ),
        ),
        _read_loss,
        _write_loss,
        "dual clip = 1 + 2 x pg_clip",
    )


@dataclass(frozen=True)
class Aggregation:
    """ROLL's ways to aggregate; it has no plain sum."""

    how: How = "mapped"
    note: str = ""

    def read(self, value: Any, view: Reading) -> Any:
        return AGGREGATIONS.read(value, view)

    def write(self, value: Any, view: Writing) -> Any:
        if value == "token_sum":
            raise InexpressibleError("ROLL has no plain sum over tokens")
        if value == "seq_mean_token_sum_norm":
            raise InexpressibleError(
                "ROLL's seq-mean-token-sum-norm divides by the padded length, and not by the number of responses"
            )
        return AGGREGATIONS.write(value, view)


# KL


def _read_kl_loss(view: Reading) -> Iterator[Flow]:
    to, on = view.to("algorithm.kl_in_loss"), view.get("use_kl_loss")
    switch, size = (view.path("use_kl_loss"),), (view.path("kl_loss_coef"),)
    yield Flow(to, {} if on else None, switch)
    if on:
        yield Flow((*to, "estimator"), "k3", ())
        yield Flow((*to, "coefficient"), float(view.get("kl_loss_coef")), size, same=True)
    elif view.written("kl_loss_coef"):
        yield Flow((), None, size, "dead", "use_kl_loss is off")


def _write_kl_loss(view: Writing) -> Iterator[Out]:
    to, section = view.to("algorithm.kl_in_loss"), view.get("algorithm.kl_in_loss")
    yield Flow(view.path("use_kl_loss"), section is not None, (to,), always=section is not None)
    if section is None:
        return
    yield Flow(view.path("kl_loss_coef"), section["coefficient"], ((*to, "coefficient"),), same=True, always=True)
    if section["estimator"] != "k3":
        yield Lost(((*to, "estimator"),), f"ROLL's loss always takes k3, not {section['estimator']}")


ESTIMATORS = Names({"kl": "k1", "abs": "abs", "mse": "k2", "full": "full"}, "ROLL's rewards take kl, abs, mse or full")


def _read_kl_reward(view: Reading) -> Iterator[Flow]:
    to, on = view.to("algorithm.kl_in_reward"), view.get("add_token_level_kl")
    yield Flow(to, {} if on else None, (view.path("add_token_level_kl"),))
    if not on:
        for key in ("kl_penalty", "target_kl", "kl_horizon"):
            if view.written(key):
                yield Flow((), None, (view.path(key),), "dead", "add_token_level_kl is off")
        if view.written("init_kl_coef"):
            note = "without add_token_level_kl it only decides whether a reference model is built"
            yield Flow((), None, (view.path("init_kl_coef"),), "dead", note)
        return
    estimator = ESTIMATORS.read(view.get("kl_penalty"), view)
    target = view.get("target_kl")
    yield Flow((*to, "estimator"), estimator, (view.path("kl_penalty"),))
    yield Flow((*to, "coefficient"), float(view.get("init_kl_coef")), (view.path("init_kl_coef"),), same=True)
    yield Flow((*to, "adaptive"), target is not None, (view.path("target_kl"),))
    if target is not None:
        yield Flow((*to, "target"), float(target), (view.path("target_kl"),), same=True)
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
        yield Lost(((*to, "estimator"),), f"{error}, not {section['estimator']}")
    yield Flow(view.path("init_kl_coef"), section["coefficient"], ((*to, "coefficient"),), same=True, always=True)
    places = ((*to, "adaptive"), (*to, "target"))
    yield Flow(view.path("target_kl"), section["target"] if section["adaptive"] else None, places)
    yield Flow(view.path("kl_horizon"), section["horizon"], ((*to, "horizon"),), same=True)


KL: list[Rule] = [
    Code(
        "KL in the loss",
        (K("use_kl_loss", False), K("kl_loss_coef", 0)),
        ("algorithm.kl_in_loss", "algorithm.kl_in_loss.estimator", "algorithm.kl_in_loss.coefficient"),
        _read_kl_loss,
        _write_kl_loss,
        "always k3",
    ),
    Code(
        "KL in the reward",
        (
            K("add_token_level_kl", False),
            K("kl_penalty", "kl"),
            K("init_kl_coef", 0.2),
            K("target_kl", None),
            K("kl_horizon", 10000),
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
        "adaptive where target_kl is set",
    ),
]


def _read_old(view: Reading) -> Iterator[Flow]:
    keys = ("enable_old_logprobs_recompute", "force_disable_old_logprobs_recompute")
    forced = view.get(keys[1])
    note = (
        "each mini-batch takes its own log-probs as the old ones"
        if forced
        else "ROLL computes them anew, or reuses those of the one forward pass where they are the same"
    )
    used = tuple(view.path(key) for key in keys)
    yield Flow(view.to("algorithm.old_log_probs"), "recompute", used, note=note if view.written(*keys) else "")


def _write_old(view: Writing) -> Iterator[Out]:
    value, used = view.get("algorithm.old_log_probs"), (view.to("algorithm.old_log_probs"),)
    if value == "rollout":
        yield Lost(used, "ROLL never takes the rollout engine's log-probs as the old policy's")
    else:
        yield Flow(
            (), None, used, "mapped" if value == "recompute" else "derived", "ROLL decides it by the batch sizes"
        )


OLD = Code(
    "old log-probs",
    (K("enable_old_logprobs_recompute", False), K("force_disable_old_logprobs_recompute", False)),
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
        yield Flow((), None, used, "derived", "at temperature 1 it is the same")
    else:
        yield Lost(
            used, f"ROLL does not divide training logits by the temperature {heat:g}: log-probs are another policy's"
        )


TEMPERATURE = Code("training temperature", (), ("algorithm.train_temperature",), _read_temperature, _write_temperature)
REPLAY = Names({"disable": "off", "R3": "rollout", "R2": "recompute"})
COMMON: list[Rule] = [
    Key("loss_agg_mode", "algorithm.aggregation.mode", "seq-mean-token-mean", Aggregation(), always=True),
    Dropped("algorithm.aggregation.scale_factor", "ROLL divides by the padded length"),
    Dropped("algorithm.aggregation.follow_source", "this is ROLL"),
    *KL,
    Key("entropy_loss_coef", "algorithm.entropy_coefficient", 0),
    OLD,
    TEMPERATURE,
    Key("actor_train.router_replay.mode", "algorithm.router_replay", "disable", REPLAY),
    Key("reward_clip", f"{SHAPE}.clip", None),
    Key("whiten_rewards", f"{SHAPE}.whiten", False),
    Key("advantage_clip", f"{SHAPE}.advantage_clip", None),
    *[
        Dropped(f"{SHAPE}.{name}", reason)
        for name, reason in (
            ("shift", "ROLL shifts no rewards: reward_shift is gone"),
            ("scale", "ROLL scales no rewards: reward_scale is gone"),
            ("overlong_penalty", "ROLL has no soft penalty; max_len_mask leaves cut responses out"),
            ("overlong_penalty.**", "ROLL has no soft penalty"),
            ("length_penalty", "ROLL leaves it to a reward worker"),
            ("add_length_reward", "ROLL has the key and never reads it"),
            ("token_reward", "ROLL has the key and never reads it"),
        )
    ],
    Dropped("algorithm.objective.name", "another start script and another kind of file", "rl"),
    Dropped("algorithm.objective.**", "dpo and sft have files of their own"),
    Dropped("algorithm.preset", "ROLL has no names for combinations"),
    Dropped("algorithm.preference_feedback", "ROLL draws no responses anew"),
    Dropped("algorithm.preference_feedback.**", "ROLL draws no responses anew"),
    Dropped("algorithm.sample_strategy", "ROLL trains on what a step rolled out"),
    Dropped("algorithm.sample_strategy_args", "ROLL trains on what a step rolled out"),
    Dropped("algorithm.experience_operators", "ROLL has none"),
    Dropped("algorithm.loss_weights.sft", "sft_loss_coef is gone from ROLL"),
    Dropped("algorithm.loss_weights.l2", "ROLL has l2 and never reads it"),
]
WEIGHTS: list[Rule] = [
    Key("rl_loss_coef", "algorithm.loss_weights.rl", 1.0),
    Key("difficulty_loss_weight", "algorithm.loss_weights.difficulty", False),
    Key("length_loss_weight", "algorithm.loss_weights.length", False),
]
RLVR: list[Rule] = [RLVR_ADVANTAGE, loss_rule(K("importance_sampling", "token")), *COMMON, *WEIGHTS]
AGENTIC: list[Rule] = [
    AGENTIC_ADVANTAGE,
    loss_rule(K("ratio_type", "token")),
    *COMMON,
    *[
        Dropped(f"algorithm.loss_weights.{name}", "ROLL weighs nothing in agentic runs")
        for name in ("rl", "difficulty", "length")
    ],
]
DPO: list[Rule] = [
    Key("beta", "algorithm.objective.beta", 0.1),
    Key("ipo", "algorithm.objective.ipo", False),
    Key("label_smoothing", "algorithm.objective.label_smoothing", 0.0),
    Dropped("algorithm.objective.name", "another start script and another kind of file", "dpo"),
]
