"""ROLL: advantages, and how rewards are normalised before.

ROLL's estimators are ``reinforce`` after a normalisation of rewards, so that GRPO, Dr. GRPO and REINFORCE++ are settings of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.rules import (
    CustomRule,
    DialectKey,
    Flow,
    Inexpressible,
    Out,
    Provenance,
    Reading,
    Writing,
    bare_name,
    further_type,
    is_further,
)
from rlctl.adapters.engine.values import BY_STEP
from rlctl.adapters.roll.numbers import number
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.documents.paths import KeyPath

ADV, SHAPE = "algorithm.advantage", "algorithm.reward_shaping"
OWN = ("gigpo", "step_reinforce", "agentic_reinforce")
"""Estimators that only ROLL has; ``agentic_reinforce`` only its agentic runs."""
GROUPED = ("grpo", "rloo", "reinforce_plus_plus_baseline")
"""Estimators that are a normalisation of rewards by group."""
STEP_REWARDS = ("episode_reward_weight", "step_reward_weight", "step_reward_gamma")
BY_TURN: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "gigpo": ("gigpo", {"episode_weight": STEP_REWARDS[0], "step_weight": STEP_REWARDS[1], "gamma": STEP_REWARDS[2]}),
    "step_reinforce": ("step_reinforce", {"gamma": STEP_REWARDS[2]}),
    "segment_reinforce": ("agentic_reinforce", {"gamma": "gamma"}),
}
"""Canonical estimators of agents: ROLL's name, and its keys by field. Only agentic runs have them."""

# Advantages. (mean, std) of the normalisation before REINFORCE, and whether advantages are whitened, name the estimator.


@record
class Estimate:
    """What the text says of the estimator, wherever it says it."""

    kind: str
    mean: Any
    std: Any
    gamma: Any
    whiten: bool
    shaped: bool
    """Whether KL or a clip comes between the normalisation and the estimator."""
    by_turn: str = ""
    """The canonical estimator of an agentic run."""

    @property
    def name(self) -> str:
        """The canonical estimator that these settings are."""
        if self.by_turn:
            return self.by_turn
        if self.kind == "gae" or self.kind in OWN:
            return "gae" if self.kind == "gae" else further_type(ADV, self.kind, "roll")
        if self.gamma == 1 and self.mean == "group" and self.std in ("group", None):
            if not self.whiten or self.std is not None:
                return "grpo"
            # REINFORCE++ baseline takes the group's mean off last, after KL and clip.
            return "reinforce" if self.shaped else "reinforce_plus_plus_baseline"
        if self.mean is None and self.std is None and self.whiten:
            return "reinforce_plus_plus"
        return "reinforce"


def _flows(view: Reading, estimate: Estimate, used: dict[str, tuple[Any, ...]]) -> Iterator[Flow]:
    name, to = estimate.name, view.to(ADV)
    yield Flow(
        (*to, "type"),
        name,
        (*used["kind"], *(used["norm"] if name in ("grpo", "reinforce_plus_plus_baseline") else ())),
    )
    if name == "gae":
        yield Flow((*to, "lambda"), view.get("lambd"), (view.path("lambd"),), same=True)
    elif name == "grpo":
        yield Flow((*to, "normalize_by_std"), estimate.std == "group", used["norm"])
        yield Flow((*to, "kl_order"), "after_normalisation", ())
    yield Flow((*to, "whiten"), estimate.whiten, used["whiten"], same=True)
    if name != "gae" and view.written("lambd"):
        yield Flow((), None, (view.path("lambd"),), "dead", "only gae reads it")
    place = (view.path("gamma"),)
    fields = BY_TURN[name][1] if name in BY_TURN else {}
    for field, key in fields.items():
        yield Flow((*to, field), number(view.get(key)), (view.path(key),), same=True)
    if name == "gigpo":
        yield Flow((*to, "normalize_by_std"), estimate.std == "group", used["norm"])
        yield Flow(
            (*to, "anchor_scope"),
            "batch",
            (),
            note="ROLL compares the turns that start from equal states, across all groups",
        )
    if name in ("gae", "reinforce", "reinforce_plus_plus"):
        yield Flow((*to, "gamma"), number(estimate.gamma), place, same=True)
    elif is_further(ADV, name):
        yield Flow((*to, "args", "gamma"), estimate.gamma, place)
    elif "gamma" not in fields.values():
        yield Flow((), None, place, "mapped", "1 means no discount")
    taken = name in ("grpo", "reinforce_plus_plus_baseline", "reinforce_plus_plus", "gigpo")
    yield Flow(view.to(f"{SHAPE}.normalize.mean"), None if taken else estimate.mean, used["norm"])
    yield Flow(view.to(f"{SHAPE}.normalize.std"), None if taken else estimate.std, used["norm"])


def _shapes(view: Reading) -> bool:
    return any(view.get(key) for key in ("add_token_level_kl", "reward_clip", "whiten_rewards"))


def _read_rlvr(view: Reading) -> Iterator[Flow]:
    kind = str(view.get("adv_estimator"))
    mean, std = view.get("norm_mean_type"), view.get("norm_std_type")
    norms: tuple[KeyPath, ...] = (view.path("norm_mean_type"), view.path("norm_std_type"))
    if kind == "grpo":
        if view.written("norm_mean_type", "norm_std_type"):
            yield Flow((), None, norms, "dead", "adv_estimator grpo sets both to group")
        mean, std, norms = "group", "group", ()
    if kind in OWN[:2]:
        note = said(
            "responses of ROLL's RLVR runs have a single turn, for which {kind} computes the same as reinforce",
            kind=kind,
        )
        yield Flow((), None, (view.path("adv_estimator"),), "derived", note)
        kind = "reinforce"
    estimate = Estimate(kind, mean, std, view.get("gamma"), bool(view.get("whiten_advantages")), _shapes(view))
    used = {"kind": (view.path("adv_estimator"),), "norm": norms, "whiten": (view.path("whiten_advantages"),)}
    yield from _flows(view, estimate, used)
    domains = view.get("rewards")
    several = isinstance(domains, Mapping) and len(domains) > 1
    yield Flow(view.to(f"{SHAPE}.normalize_per_domain"), several, ())


N = "reward_normalization"
METHODS = ("identity", "mean", "mean_std", "asym_clip")
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
    method = view.get(f"{N}.method")
    if method not in METHODS:
        note = said("ROLL has no method {method!r} and uses identity", method=method)
        yield Flow((), None, norms[:1], "dead", note)
        norms = norms[1:]
    kind = str(view.get("adv_estimator"))
    grouped = grouping in GROUPINGS and GROUPINGS[grouping] == "prompt"
    plain = kind if kind in OWN or kind == "gae" else "reinforce"
    # Statistics of groups that are no prompt's are no GRPO.
    shaped = plain == "reinforce" and "group" in (mean, std) and not grouped
    by_turn = _by_turn(view, kind, grouped)
    estimate = (_Shaped if shaped else Estimate)(
        plain, mean, std, view.get("gamma"), bool(view.get("whiten_advantages")), _shapes(view), by_turn
    )
    used = {"kind": (view.path("adv_estimator"),), "norm": norms, "whiten": (view.path("whiten_advantages"),)}
    yield from _flows(view, estimate, used)
    place = (view.path(f"{N}.grouping"),) if grouping in GROUPINGS else ()
    yield Flow(view.to(f"{SHAPE}.group_by"), GROUPINGS.get(grouping, "trajectory"), place)
    yield Flow(view.to(f"{SHAPE}.normalize_per_domain"), False, ())
    read = BY_TURN[by_turn][1].values() if by_turn else STEP_REWARDS if kind in OWN[:2] else ()
    for name in STEP_REWARDS:
        place = (view.path(name),)
        if by_turn and name in read:
            continue
        if name in read:
            yield Flow(view.to(f"{ADV}.args.{name}"), view.get(name), place, same=True)
        elif view.written(name):
            yield Flow((), None, place, "dead", said("{kind} does not read it", kind=kind))


def _by_turn(view: Reading, kind: str, grouped: bool) -> str:
    """The canonical estimator of an agentic run, if the keys around it say no more than its fields."""
    name = next((name for name, (own, _) in BY_TURN.items() if own == kind), "")
    if name in ("gigpo", "step_reinforce") and view.get("gamma") != 1:
        return ""  # a discount over tokens comes on top of that over turns
    # Steps are normalised as the method says, whatever the two types say of whole trajectories.
    deviation = {"mean": None, "mean_std": "group", "asym_clip": "group"}.get(str(view.get(f"{N}.method")), "no")
    usual = grouped and agentic_norm(view) == ("group", deviation)
    return "" if name == "gigpo" and not usual else name


@record
class _Shaped(Estimate):
    """Normalisation that no estimator's name says."""

    @property
    def name(self) -> str:
        return "reinforce"


WRITTEN = ("gae", "reinforce", "reinforce_plus_plus")
"""Canonical estimators that ROLL has as they are."""
UNGROUPED = ("remax", "jsd", "on_policy_distill")
"""Estimators of others that compare with no group; those without a division by its deviation come next."""
UNDIVIDED = (
    *("opmd", "opmd_reweight_adv", "asymre", "gpg"),
    *("optimal_token_baseline", "tir_optimal_token_baseline"),
)


def _written(view: Writing, *, agentic: bool) -> tuple[str, str, Any, Any, bool, Iterator[Inexpressible]]:
    """The canonical estimator that is written or the nearest, ROLL's, normalisation and whitening, and what differs."""
    advantage, shaping = view.get(ADV), view.get(SHAPE)
    mean, std = shaping["normalize"]["mean"], shaping["normalize"]["std"]
    whiten, name = bool(advantage["whiten"]), advantage["type"]
    own = bare_name(name) if is_further(ADV, name) else ""
    lost: list[Inexpressible] = []
    if name in GROUPED and (mean, std) != (None, None):
        used = (view.to(f"{SHAPE}.normalize.mean"), view.to(f"{SHAPE}.normalize.std"))
        lost.append(
            Inexpressible(
                used, said("ROLL normalizes rewards once, and {name} is already such a normalization", name=name)
            )
        )
    if name == "grpo":
        mean, std = "group", "group" if advantage["normalize_by_std"] else None
    elif name == "reinforce_plus_plus_baseline":
        mean, std = "group", None
    elif name == "rloo":
        mean, std = "group", None
        reason = "ROLL has no rloo. Wrote rewards minus their group's mean, which are (n-1)/n of RLOO's advantages"
        lost.append(Inexpressible((view.to(f"{ADV}.type"),), reason))
    elif name in BY_TURN and agentic:
        own = BY_TURN[name][0]
        if name == "gigpo":
            mean, std = "group", "group" if advantage["normalize_by_std"] else None
    elif name not in WRITTEN and own not in OWN:
        shown = name
        grouped = view.config.batch.responses_per_prompt > 1 and (mean, std) == (None, None) and shown not in UNGROUPED
        if grouped:
            divides = advantage.get("normalize_by_std", shown not in UNDIVIDED)
            name, mean, std = "grpo", "group", "group" if divides else None
        chosen = tuple(view.to(f"{ADV}.{field}") for field in advantage if field not in ("whiten", "clip"))
        nearest = ("grpo" if std else "rewards minus their group's mean") if grouped else "reinforce"
        reason = said("ROLL has no estimator {shown}. Wrote the nearest, {nearest}", shown=shown, nearest=nearest)
        if shown in BY_TURN:
            reason = said("ROLL has {shown} only in agentic runs. Wrote {nearest}", shown=shown, nearest=nearest)
        lost.append(Inexpressible(chosen, reason))
    kind = name if name == "gae" else own if own in OWN else "reinforce"
    return name, kind, mean, std, whiten, iter(lost)


def _whole(value: float) -> float:
    """A number as ROLL's files have it."""
    return int(value) if value == int(value) else value


def _write_common(view: Writing, kind: str, whiten: bool) -> Iterator[Out]:
    advantage, to = view.get(ADV), view.to(ADV)
    places = ((*to, "whiten"), (*to, "type"))
    plain = view.get(f"{SHAPE}.normalize.mean") is None
    how: Provenance = "derived" if whiten and plain and advantage["type"] == "reinforce" else "mapped"
    note = "reinforce with whitened advantages is REINFORCE++" if how == "derived" else ""
    yield Flow(view.path("whiten_advantages"), whiten, places, how, note)
    gamma = advantage.get("gamma", advantage.get("args", {}).get("gamma") if kind in OWN else None)
    fields = BY_TURN[advantage["type"]][1] if advantage["type"] in BY_TURN and kind in OWN else {}
    for field, key in fields.items():
        yield Flow(view.path(key), _whole(advantage[field]), ((*to, field),), same=True)
    if fields:
        if "gamma" not in fields.values():
            yield Flow(view.path("gamma"), 1, ())
    elif advantage["type"] in BY_STEP:
        yield Inexpressible(((*to, "gamma"),), "the estimator that is written discounts over tokens, not over steps")
    elif gamma is not None:
        yield Flow(view.path("gamma"), _whole(gamma), ((*to, "gamma"), (*to, "args")), same=gamma == 1)
    if kind == "gae":
        yield Flow(view.path("lambd"), advantage["lambda"], ((*to, "lambda"),), same=True)
    if fields and "anchor_scope" in advantage:
        place, reason = (*to, "anchor_scope"), "ROLL compares the turns that start from equal states, across all groups"
        same = advantage["anchor_scope"] == "batch"
        yield Flow((), None, (place,), "mapped", reason) if same else Inexpressible((place,), reason)
    if advantage.get("epsilon", 1e-6) != 1e-6:
        yield Inexpressible(((*to, "epsilon"),), "ROLL adds 1e-6 to the standard deviation")
    penalty, shaping = view.get("algorithm.kl_in_reward"), view.get(SHAPE)
    if advantage["type"] == "reinforce_plus_plus_baseline" and (
        (isinstance(penalty, Mapping) and penalty["coefficient"]) or shaping["clip"] or shaping["whiten"]
    ):
        reason = "ROLL subtracts the group's mean before it applies KL, clipping and whitening to rewards, not after"
        yield Inexpressible(((*to, "type"),), reason)
    if advantage.get("kl_order") == "before_normalisation" and isinstance(penalty, Mapping) and penalty["coefficient"]:
        reason = "ROLL subtracts KL from rewards after it normalizes them by group, not before"
        yield Inexpressible(((*to, "kl_order"), view.to("algorithm.kl_in_reward")), reason)
    elif "kl_order" in advantage:
        yield Flow(
            (),
            None,
            ((*to, "kl_order"),),
            "mapped",
            "the reward has no KL, so its order has no effect",
        )
    args = advantage.get("args", {})
    known = (*STEP_REWARDS, "gamma") if kind in OWN else ()
    if any(name not in known for name in args):
        yield Inexpressible(((*to, "args"),), said("ROLL's {kind} does not have these arguments", kind=kind))


def _write_rlvr(view: Writing) -> Iterator[Out]:
    name, kind, mean, std, whiten, lost = _written(view, agentic=False)
    yield from lost
    used = (view.to(f"{ADV}.type"),)
    norms = (view.to(f"{SHAPE}.normalize.mean"), view.to(f"{SHAPE}.normalize.std"))
    by_name = name in GROUPED
    if name == "grpo" and std == "group":
        yield Flow(view.path("adv_estimator"), "grpo", (*used, view.to(f"{ADV}.normalize_by_std")), always=True)
    else:
        yield Flow(view.path("adv_estimator"), kind, used, always=True)
        sources = (*used[:1], view.to(f"{ADV}.normalize_by_std")) if by_name else norms
        note = "expressed as a reward normalization" if by_name else ""
        how: Provenance = "derived" if by_name else "mapped"
        yield Flow(view.path("norm_mean_type"), mean, sources[:1], how, note, always=by_name)
        yield Flow(view.path("norm_std_type"), std, sources[1:], how, note, always=by_name)
    yield from _write_common(view, kind, whiten)
    if kind == "agentic_reinforce":
        yield Inexpressible(used, "ROLL has agentic_reinforce only in agentic runs")
    if view.get(f"{SHAPE}.group_by") != "prompt":
        yield Inexpressible(
            (view.to(f"{SHAPE}.group_by"),), "ROLL groups by prompt; other groupings need an agentic run"
        )
    several = len(view.config.rewards) > 1
    if view.get(f"{SHAPE}.normalize_per_domain") != several and "batch" in (mean, std):
        yield Inexpressible((view.to(f"{SHAPE}.normalize_per_domain"),), "ROLL normalizes each domain separately")
    elif view.get(f"{SHAPE}.normalize_per_domain") != several and view.explicit(f"{SHAPE}.normalize_per_domain"):
        yield Inexpressible(
            (view.to(f"{SHAPE}.normalize_per_domain"),), "ROLL has one domain per reward and normalizes each separately"
        )


def _write_agentic(view: Writing) -> Iterator[Out]:
    chosen, kind, mean, std, whiten, lost = _written(view, agentic=True)
    yield from lost
    used = (view.to(f"{ADV}.type"),)
    compared = chosen == "gigpo"
    grouped = chosen in GROUPED or compared
    if compared:
        yield Flow(view.path(f"{N}.method"), "mean_std" if std else "mean", (*used, view.to(f"{ADV}.normalize_by_std")))
    shown = "grpo" if chosen == "grpo" else kind
    yield Flow(view.path("adv_estimator"), shown, used, always=True)
    yield from _write_common(view, kind, whiten)
    place, named = view.to(f"{SHAPE}.group_by"), view.get(f"{SHAPE}.group_by")
    sources = used if grouped else (view.to(f"{SHAPE}.normalize.mean"), view.to(f"{SHAPE}.normalize.std"))
    how: Provenance = "derived" if grouped else "mapped"
    for name, value in (("norm_mean_type", mean), ("norm_std_type", std)):
        if value == "running":
            yield Inexpressible(sources, "ROLL's agentic runs keep no running statistics")
        elif value is None:
            yield Flow(
                (),
                None,
                (view.to(f"{SHAPE}.normalize.{name.split('_')[1]}"),),
                "mapped",
                "ROLL does not normalize by default",
            )
        else:
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
    f"{ADV}.type",
    *(
        f"{ADV}.{name}"
        for name in (
            *("gamma", "lambda", "whiten", "normalize_by_std", "epsilon", "kl_order", "baseline", "tau", "args"),
            *("episode_weight", "step_weight", "anchor_scope"),
        )
    ),
    *(f"{SHAPE}.{name}" for name in ("normalize.mean", "normalize.std", "normalize_per_domain", "group_by")),
)
ADVANTAGE_KEYS = (
    DialectKey("adv_estimator", takes=("gae", "reinforce", "grpo", *OWN)),
    DialectKey("gamma"),
    DialectKey("lambd"),
    DialectKey("whiten_advantages"),
)
RLVR_ADVANTAGE = CustomRule(
    "advantage",
    (*ADVANTAGE_KEYS, DialectKey("norm_mean_type"), DialectKey("norm_std_type")),
    ADVANTAGE_FILLS,
    _read_rlvr,
    _write_rlvr,
    "reinforce after a normalization: group mean and std = GRPO, group mean = Dr. GRPO, whitened = REINFORCE++",
    by_key={
        "adv_estimator": "algorithm.advantage.type",
        "gamma": "algorithm.advantage.gamma",
        "lambd": "algorithm.advantage.lambda",
        "whiten_advantages": "algorithm.advantage.whiten",
        "norm_mean_type": ("algorithm.advantage.normalize_by_std", "algorithm.reward_shaping.normalize"),
        "norm_std_type": ("algorithm.advantage.normalize_by_std", "algorithm.reward_shaping.normalize"),
    },
    why="The normalization of rewards and the whitening together name the estimator, as its name alone does not.",
)
AGENTIC_ADVANTAGE = CustomRule(
    "advantage",
    (
        *ADVANTAGE_KEYS,
        DialectKey(f"{N}.grouping"),
        DialectKey(f"{N}.method"),
        DialectKey(f"{N}.norm_mean_type"),
        DialectKey(f"{N}.norm_std_type"),
        DialectKey("episode_reward_weight"),
        DialectKey("step_reward_weight"),
        DialectKey("step_reward_gamma"),
    ),
    ADVANTAGE_FILLS,
    _read_agentic,
    _write_agentic,
    by_key={
        "adv_estimator": "algorithm.advantage.type",
        "gamma": "algorithm.advantage.gamma",
        "lambd": "algorithm.advantage.lambda",
        "whiten_advantages": "algorithm.advantage.whiten",
        "reward_normalization.grouping": "algorithm.reward_shaping.group_by",
        "reward_normalization.method": (
            "algorithm.advantage.type",
            "algorithm.advantage.normalize_by_std",
            "algorithm.reward_shaping.normalize",
        ),
        **{
            f"reward_normalization.{name}": (
                "algorithm.advantage.normalize_by_std",
                "algorithm.reward_shaping.normalize",
            )
            for name in ("norm_mean_type", "norm_std_type")
        },
        "episode_reward_weight": "algorithm.advantage.episode_weight",
        "step_reward_weight": "algorithm.advantage.step_weight",
        "step_reward_gamma": "algorithm.advantage.gamma",
    },
    why="The normalization, its groups and the estimator together name the canonical one, or the estimator does.",
)
