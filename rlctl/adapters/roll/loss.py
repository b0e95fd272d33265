"""ROLL: the policy loss, which the class of the training worker and its variant name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.agents import plays
from rlctl.adapters.engine.rules import (
    CustomRule,
    DialectKey,
    Flow,
    Inexpressible,
    Out,
    Provenance,
    Reading,
    Writing,
    further_type,
    is_further,
    own_name,
)
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import is_number

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


SIGN = "ROLL selects good responses by raw score; other frameworks select by advantage"
"""What differs in TOPR."""


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
    how: Provenance = "derived" if variant == "topr" else "mapped"
    yield Flow(
        (*to, "type"),
        names.get(variant) or further_type(LOSS, variant, "roll"),
        used,
        how,
        SIGN if variant == "topr" else "",
    )
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
        for key in (*CLIPS, "dual_clip_loss"):
            yield Flow((*to, "args", key), view.get(key), (view.path(key),), same=True)
    if variant in ("ppo", "seq"):
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
    if not on or not is_number(clip):
        yield Flow(to, None, (view.path("dual_clip_loss"),))
        return
    note = said("1 + 2 x pg_clip {clip}", clip=clip)
    yield Flow(to, round(1 + 2 * clip, 12), (view.path("dual_clip_loss"), view.path("pg_clip")), "derived", note)


def _unused(view: Reading, variant: str) -> Iterator[Flow]:
    reasons = {VARIANT: "read only by the policy-gradient worker"} if view.get(CLASS) not in PG_WORKERS else {}
    if variant != "topr":
        reasons |= dict.fromkeys(
            ("actor_train.topr_positive_weight", "actor_train.topr_negative_weight"), "pg_variant is not topr"
        )
    if variant in ("cispo", "tis", "topr", "vanilla"):
        reasons |= dict.fromkeys((*CLIPS, "dual_clip_loss"), said("{variant} does not clip", variant=variant))
    elif variant in ("ppo", "seq"):
        gated: tuple[str, ...] = (
            ("pg_clip",) if view.get("use_pg_clip_range") and not view.get("dual_clip_loss") else ()
        )
        gated = gated if view.get("use_pg_clip_range") else ("pg_clip_low", "pg_clip_high")
        reasons |= dict.fromkeys(
            gated, said("use_pg_clip_range is {value}", value="on" if view.get("use_pg_clip_range") else "off")
        )
    for key, reason in reasons.items():
        if view.written(key):
            yield Flow((), None, (view.path(key),), "dead", reason, misleads=key == VARIANT)


def _write_loss(view: Writing) -> Iterator[Out]:
    loss, to = view.get(LOSS), view.to(LOSS)
    name = loss["type"]
    agentic = bool(plays(view.config))
    used = ((*to, "type"), (*to, "importance_weight"))
    variant = {"cispo": "cispo", "topr": "topr"}.get(name)
    if name == "policy_gradient":
        variant = {"none": "vanilla", "truncated_ratio": "tis"}.get(loss["importance_weight"])
        if variant is None:
            yield Inexpressible(used[1:], "ROLL's policy gradient has no importance weight, or one capped at 1")
            variant = "tis"
    if is_further(LOSS, name):
        variant = yield from _write_other(view, loss, agentic)
    if name == "sapo":
        places = tuple((*to, field) for field in ("type", "tau_positive", "tau_negative"))
        yield Inexpressible(places, "ROLL has no soft gate. Wrote its clipped loss")
    if variant is not None:
        yield Flow(view.path(CLASS), PG_WORKERS[agentic], used, always=True)
        how: Provenance = "derived" if variant == "topr" else "mapped"
        yield Flow(view.path(VARIANT), variant, used, how, SIGN if variant == "topr" else "", always=True)
    else:
        yield from _write_clipped(view, loss, name, agentic)
    yield from _write_fixed(view, loss, name)


def _write_other(view: Writing, loss: Mapping[str, Any], agentic: bool) -> Any:
    to, kind = view.to(LOSS), own_name(loss["type"], "roll")
    used = ((*to, "type"),)
    args = loss["args"]
    if kind == "segment" and agentic:
        yield Flow(view.path("ratio_type"), "segment", used, always=True)
    elif "." in kind and loss["type"] != kind:
        yield Flow(view.path(CLASS), kind, used, always=True)
    elif kind != "kimi15":
        places = (*used, (*to, "args"), *((*to, "args", key) for key in args))
        yield Inexpressible(places, said("ROLL has no loss {kind}. Wrote its clipped loss", kind=kind))
        return None
    for key, value in args.items():
        if key in (*CLIPS, "dual_clip_loss"):
            yield Flow(view.path(key), value, ((*to, "args"),))
    return "kimi15" if kind == "kimi15" else None


def _write_clipped(view: Writing, loss: Mapping[str, Any], name: str, agentic: bool) -> Iterator[Out]:
    to = view.to(LOSS)
    if name == "gspo":
        if agentic:
            yield Inexpressible(((*to, "type"),), "ROLL has sequence ratios only in RLVR runs. Wrote segment ratios")
            yield Flow(
                view.path("ratio_type"),
                "segment",
                ((*to, "type"),),
                "derived",
                "the nearest that ROLL has",
                always=True,
            )
        else:
            yield Flow(view.path("importance_sampling"), "seq", ((*to, "type"),), always=True)
    else:
        yield Flow((), None, ((*to, "type"),), "mapped", "ROLL's worker always computes this")
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
        yield Flow(view.path("dual_clip_loss"), False, ((*to, "type"),))
        return
    yield Flow(view.path("dual_clip_loss"), dual is not None, ((*to, "dual_clip"),), always=True)
    if dual is not None and not (low == high and follows):
        note = said(
            "the bound {dual:g} is 1 + 2 x pg_clip; with use_pg_clip_range pg_clip has no other effect", dual=dual
        )
        yield Flow(view.path("pg_clip"), round((dual - 1) / 2, 12), ((*to, "dual_clip"),), "derived", note, always=True)


def _write_fixed(view: Writing, loss: Mapping[str, Any], name: str) -> Iterator[Out]:
    to = view.to(LOSS)
    if name == "topr":
        for field in ("positive_weight", "negative_weight"):
            yield Flow(view.path(f"actor_train.topr_{field}"), loss[field], ((*to, field),), same=True)
    if name == "cispo" and (loss["clip_low"], loss["clip_high"]) != (0.1, 0.1):
        yield Inexpressible(((*to, "clip_low"), (*to, "clip_high")), "ROLL's CISPO always clips at 0.1 on both sides")
    if name == "policy_gradient" and loss["importance_weight"] == "truncated_ratio" and loss["weight_bound"] != 1:
        yield Inexpressible(((*to, "weight_bound"),), "ROLL always caps the weight at 1")


def loss_rule(ratio: DialectKey) -> CustomRule:
    """The policy loss; RLVR and agentic runs have different ratios."""
    return CustomRule(
        "policy loss",
        (
            DialectKey(CLASS),
            DialectKey(VARIANT),
            ratio,
            DialectKey("pg_clip"),
            DialectKey("use_pg_clip_range"),
            DialectKey("pg_clip_low"),
            DialectKey("pg_clip_high"),
            DialectKey("dual_clip_loss"),
            DialectKey("actor_train.topr_positive_weight"),
            DialectKey("actor_train.topr_negative_weight"),
        ),
        (
            f"{LOSS}.type",
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
        by_key={
            **dict.fromkeys((CLASS, VARIANT, ratio.name), f"{LOSS}.type"),
            "pg_clip": (f"{LOSS}.clip_low", f"{LOSS}.clip_high", f"{LOSS}.dual_clip"),
            "use_pg_clip_range": (f"{LOSS}.clip_low", f"{LOSS}.clip_high"),
            "pg_clip_low": f"{LOSS}.clip_low",
            "pg_clip_high": f"{LOSS}.clip_high",
            "dual_clip_loss": f"{LOSS}.dual_clip",
            **{f"actor_train.topr_{name}": f"{LOSS}.{name}" for name in ("positive_weight", "negative_weight")},
        },
        why="The class of the worker, its variant and the kind of ratio together name the loss, and each loss reads other keys.",
    )
