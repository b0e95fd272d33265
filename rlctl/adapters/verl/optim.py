"""verl: the ``optim`` block of a role: its optimizer, its gradient clip, and how its learning rate moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.rules import (
    ABSENT,
    Absent,
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
    VersionedDefault,
    Writing,
    converted,
)
from rlctl.adapters.engine.values import Listed, Names, NoClip, NullReads, Off, Partly
from rlctl.adapters.engine.weight_decay import norms_and_biases
from rlctl.adapters.verl.asynchronous import is_separate, steps_of_update
from rlctl.adapters.verl.roles import FSDP_KINDS, Role, is_old_fsdp, under
from rlctl.adapters.verl.warmup import Ticks, moves_alike, run_ticks, warmup
from rlctl.common.messages.reasons import said

FSDP_SCHEDULES = Names(
    {"constant": "constant", "cosine": "cosine"}, "verl's FSDP schedules are constant and cosine, both with warm-up"
)
MEGATRON_SCHEDULES = Names(
    {
        "constant": "constant",
        "cosine": "cosine",
        "linear": "linear",
        "inverse-square-root": "inverse_sqrt",
        "WSD": "wsd",
    }
)


TITAN_SCHEDULES = Names(
    {"linear": "linear", "cosine": "cosine"}, "TorchTitan's schedules are linear and cosine, both with warm-up"
)


OPTIMIZERS = Partly({"AdamW": "adamw", "adam": "adamw"})
"""Each engine has a name of its own for AdamW, which is its usual optimizer."""


def optimizer_name(key: str, role: Role) -> CustomRule:
    """The optimizer, whose usual one has another name with each engine."""
    to = f"{_owner(role)}.optimizer.type"

    def read(view: Reading) -> Iterator[Flow]:
        raw = view.get(key) or "AdamW"
        yield Flow(view.to(to), converted(OPTIMIZERS, raw, view, key), (view.path(key),), same=True)

    def write(view: Writing) -> Iterator[Out]:
        value, engine, used = view.get(to), view.get(role.to), (view.to(to),)
        if isinstance(value, Absent) or not isinstance(engine, Mapping) or engine.get("type") == "torchtitan":
            return
        if value == "adamw" or view.version < (0, 6):
            lost = value != "adamw"
            yield (
                Inexpressible(used, "this release has only AdamW")
                if lost
                else Flow((), None, used, "mapped", "what verl does")
            )
        else:
            yield Flow(view.path(key), value, used, same=True)

    return CustomRule(
        f"optimizer of {role.to}", (DialectKey(key, ABSENT),), (to,), read, write, "AdamW, adam or adamw by engine"
    )


def further_arguments(key: str, role: Role) -> CustomRule:
    """What goes over the optimizer: arguments of a class of PyTorch's, or with Megatron values over its OptimizerConfig."""
    arguments, overrides = f"{_owner(role)}.optimizer.args", f"{role.to}.optimizer_overrides"

    def read(view: Reading) -> Iterator[Flow]:
        if not view.written(key):
            return
        value, to = view.get(key), overrides if role.kind(view) == "megatron" else arguments
        if isinstance(value, Mapping) and value:
            yield Flow(view.to(to), value, (view.path(key),), same=True)
        else:
            yield Flow((), None, (view.path(key),), "mapped", "holds nothing")

    def write(view: Writing) -> Iterator[Out]:
        is_megatron = view.get(f"{role.to}.type") == "megatron"
        for place in (arguments, overrides):
            value, used = view.get(place), (view.to(place),)
            if not isinstance(value, Mapping) or not value:
                continue
            if (place == overrides) == is_megatron:
                yield Flow(view.path(key), value, used, same=True)
            else:
                yield Inexpressible(
                    used, "in verl, Megatron's values come from OptimizerConfig" if is_megatron else "Megatron's own"
                )

    own = (DialectKey(key, None), DialectKey(f"{key}.**", ABSENT))
    return CustomRule(f"other arguments of {role.to}", own, (arguments, overrides), read, write)


def optimizer(prefix: str, role: Role, *, rate: Any, betas: Any, since: str, clip: str = "") -> list[Rule]:
    """The keys of an ``optim`` block that set the optimizer."""
    o, c = f"{prefix}.", f"{_owner(role)}.optimizer."
    return [
        Key(f"{o}lr", f"{c}lr", rate, always=True),
        Key(f"{o}weight_decay", f"{c}weight_decay", 0.01),
        Key(f"{o}betas", f"{c}betas", betas, Listed(), since=since),
        gradient_clip(f"{o}clip_grad", role, since, clip),
        under(
            "torchtitan",
            role,
            Key(f"{o}name", f"{c}type", "AdamW", OPTIMIZERS),
            Key(f"{o}eps", f"{c}epsilon", 1e-8),
        ),
        optimizer_name(f"{o}optimizer", role),
        under(
            "fsdp2",
            role,
            Key(f"{o}optimizer_impl", f"{c}module", "torch.optim", Partly({"torch.optim": None}), since="0.7"),
        ),
        under("megatron", role, Key(f"{o}weight_decay_incr_style", f"{c}weight_decay_style", "constant")),
        *[
            Dropped(f"{c}{name}", "verl keeps the weight decay constant at weight_decay")
            for name in ("start_weight_decay", "end_weight_decay")
        ],
        norms_and_biases(
            c.removesuffix("."),
            lambda view: role.kind(view) == "megatron",
            lambda view: view.get(f"{role.to}.type") == "megatron",
        ),
        further_arguments(f"{o}override_optimizer_config", role),
        Dropped(f"{c}epsilon", "in verl, only override_optimizer_config sets Adam's epsilon"),
    ]


def _owner(role: Role) -> str:
    return role.to.removesuffix(".engine")


def gradient_clip(key: str, role: Role, since: str, old: str) -> Rule:
    """The bound of gradients: FSDP's workers read the role's ``grad_clip`` until 0.7, all others that of ``optim``.

    Megatron takes 0 for no bound. All other engines clip to it, so that 0 would leave nothing of any gradient.
    """
    to = f"{_owner(role)}.optimizer.max_grad_norm"
    other = DialectKey(old, 1.0) if old else DialectKey(key.replace("clip_grad", "grad_clip"), ABSENT, "0.6")

    def read(view: Reading) -> Iterator[Flow]:
        if old:
            live, unread = (old, key) if is_old_fsdp(view, role.kind(view) in FSDP_KINDS) else (key, old)
        else:
            live, unread = (
                (other.name, key) if view.written(other.name) and not view.written(key) else (key, other.name)
            )
        value = view.get(live, 1.0)
        kept = Off(0.0).read(value, view) if role.kind(view) == "megatron" else converted(NoClip(), value, view, live)
        yield Flow(view.to(to), kept, (view.path(live),), same=kept == value)
        yield Flow((), None, (view.path(unread),), "dead", said("verl's engine reads {live} instead", live=live))

    def write(view: Writing) -> Iterator[Out]:
        value = view.get(to)
        if isinstance(value, Absent):
            return
        engine, used = view.get(f"{role.to}.type"), (view.to(to),)
        live = old if old and is_old_fsdp(view, engine == "fsdp2") else key
        kept = (Off(0.0) if engine == "megatron" else NoClip()).write(value, view)
        note = (
            "verl cannot switch clipping off (0 would zero every gradient). Wrote a bound too large to have an effect"
        )
        note = note if value is None and engine != "megatron" else ""
        yield Flow(view.path(live), kept, used, "derived" if note else "mapped", note, same=value is not None)

    keys = (DialectKey(key, 1.0, since if not old else ""), other)
    return CustomRule(f"gradient clipping of {role.to}", keys, (to,), read, write, "optim.clip_grad, or grad_clip")


def _read_fsdp_shape(prefix: str, to: str) -> Any:
    def read(view: Reading) -> Iterator[Flow]:
        old, new = f"{prefix}.warmup_style", f"{prefix}.lr_scheduler_type"
        style = view.get(old)
        deciding, other = (new, old) if style is None else (old, new)
        value = view.get(deciding)
        value = value if "${" in str(value) else converted(FSDP_SCHEDULES, value, view, deciding)
        yield Flow(view.to(to), value, (view.path(deciding),), same=True)
        yield Flow(
            (),
            None,
            (view.path(other),),
            "dead" if view.get(other) else "mapped",
            said("{deciding} decides", deciding=deciding),
        )

    return read


def _write_fsdp_shape(prefix: str, to: str) -> Any:
    def write(view: Writing) -> Iterator[Out]:
        name = view.get(to)
        key = f"{prefix}.{'lr_scheduler_type' if view.version >= (0, 6) else 'warmup_style'}"
        if name in FSDP_SCHEDULES.names.values():
            yield Flow(view.path(key), name, (view.to(to),), same=True)
        elif name in ("linear", "polynomial"):
            yield Flow(view.path(key), "cosine", (view.to(to),), "derived", always=True)
            yield Inexpressible(
                (view.to(to),), said("verl's FSDP has no {name} decay; a cosine ends at the same rate", name=name)
            )
        elif not isinstance(name, Absent):
            yield Inexpressible((view.to(to),), FSDP_SCHEDULES.missing)

    return write


def fsdp_shape(prefix: str, to: str) -> CustomRule:
    """The shape of FSDP's schedule: ``warmup_style``, which wins where it is not null, and its successor."""
    own = (
        DialectKey(f"{prefix}.lr_scheduler_type", "constant", "0.6"),
        DialectKey(f"{prefix}.warmup_style", VersionedDefault({"0.3": "constant", "0.6": None})),
    )
    return CustomRule(f"shape of {prefix}", own, (to,), _read_fsdp_shape(prefix, to), _write_fsdp_shape(prefix, to))


def ticks_of(schedule: str) -> CustomRule:
    """What moves the rate: an ``update_actor`` of verl's, which is a step, or a part of one where training is asynchronous."""

    def read(view: Reading) -> Iterator[Flow]:
        each = steps_of_update(view)
        note = (
            ""
            if each is None
            else said(
                "one update_actor is {each} optimizer steps, and one step has several update_actor calls", each=each
            )
        )
        how: Provenance = "mapped" if each is None else "derived"
        yield Flow(view.to(f"{schedule}step_unit"), "step" if each is None else "optimizer_step", (), how, note)

    def write(view: Writing) -> Iterator[Out]:
        tick, used = view.get(f"{schedule}step_unit"), (view.to(f"{schedule}step_unit"),)
        warms = any(view.get(f"{schedule}warmup_{name}") for name in ("steps", "ratio"))
        moves = warms or view.get(f"{schedule}type") != "constant"
        if isinstance(tick, Absent):
            return
        if moves and not moves_alike(view, schedule):
            per = "mini-batch" if is_separate(view) else "step"
            yield Inexpressible(
                used, said("verl's schedule counts {per}s, not {tick}s", per=per, tick=tick.replace("_", " "))
            )
        else:
            how: Provenance = "derived" if tick == "optimizer_step" else "mapped"
            yield Flow((), None, used, how, "the rate changes as often, or is constant")

    return CustomRule(f"step unit of {schedule}", (), (f"{schedule}step_unit",), read, write, "once an update_actor")


def lowest(key: str, schedule: str) -> CustomRule:
    """The lowest rate, as a share of the peak; a constant rate never gets there."""
    rule = Key(key, f"{schedule}min_lr_ratio", 0.0, NullReads(0.0))

    def write(view: Writing) -> Iterator[Out]:
        least, peak = view.get(f"{schedule}min_lr"), _peak(view, schedule)
        used = (view.to(rule.to), view.to(f"{schedule}min_lr"))
        if view.get(f"{schedule}type") == "constant" and not view.explicit(rule.to):
            how: Provenance = "derived" if _is_number(least) else "mapped"
            yield Flow((), None, used, how, "a constant rate has no minimum")
        elif _is_number(least) and peak and least > peak:
            yield Inexpressible(used, "verl's lowest rate is a share of the peak, at most the peak itself")
        elif _is_number(least) and peak:
            note = said("{least:g} / {peak:g}", least=least, peak=peak)
            yield Flow(view.path(key), float(f"{least / peak:.12g}"), used, "derived", note)
        else:
            yield from rule.write(view)

    return CustomRule(f"lowest rate of {schedule}", rule.keys, (rule.to, f"{schedule}min_lr"), rule.read, write)


def lowest_rate(key: str, schedule: str, default: Any = ABSENT) -> CustomRule:
    """The lowest rate itself; a share of the peak is multiplied by it."""
    rule, share = Key(key, f"{schedule}min_lr", default), f"{schedule}min_lr_ratio"

    def write(view: Writing) -> Iterator[Out]:
        ratio, peak = view.get(share), _peak(view, schedule)
        if not _is_number(view.get(rule.to)) and _is_number(ratio) and peak:
            note = said("{ratio:g} x {peak:g}", ratio=ratio, peak=peak)
            yield Flow(
                view.path(key), float(f"{ratio * peak:.12g}"), (view.to(share), view.to(rule.to)), "derived", note
            )
        else:
            yield from rule.write(view)

    return CustomRule(f"lowest rate of {schedule}", rule.keys, (rule.to, share), rule.read, write)


def _peak(view: Writing, schedule: str) -> float | None:
    """The rate that the schedule begins to decay from."""
    peak = view.get(f"{schedule.removesuffix('lr_scheduler.')}optimizer.lr")
    return peak if _is_number(peak) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _length(key: str, schedule: str) -> CustomRule:
    """The length of the schedule, which verl sets to the steps of the run when it starts, whatever is written."""
    to = f"{schedule}total_steps"

    def read(view: Reading) -> Iterator[Flow]:
        set_to = view.get(key)
        dead = isinstance(set_to, int) and set_to > 0
        yield Flow((), None, (view.path(key),), "dead" if dead else "mapped", "verl sets it to the steps of the run")

    def write(view: Writing) -> Iterator[Out]:
        said = view.get(to)
        if isinstance(said, int) and said != run_ticks(view, schedule):
            yield Inexpressible((view.to(to),), "verl's schedule is as long as the run")
        elif said is not None:
            yield Flow((), None, (view.to(to),), "mapped", "what verl does")

    return CustomRule(key, (DialectKey(key, -1),), (to,), read, write, "as long as the run")


def schedule(prefix: str, role: Role, *, ratio: Any = 0.0, megatron_shape: Any = None) -> list[Rule]:
    """The keys of an ``optim`` block that move the learning rate; each engine has shapes of its own."""
    o, c = f"{prefix}.", f"{_owner(role)}.lr_scheduler."
    return [
        under(
            "fsdp2",
            role,
            fsdp_shape(prefix, f"{c}type"),
            lowest(f"{o}min_lr_ratio", c),
            Key(f"{o}num_cycles", f"{c}num_cycles", 0.5, since="0.4"),
        ),
        under(
            "megatron",
            role,
            Key(f"{o}lr_decay_style", f"{c}type", megatron_shape or "constant", MEGATRON_SCHEDULES),
            lowest_rate(f"{o}min_lr", c),
            Key(f"{o}lr_warmup_init", f"{c}warmup_start_lr"),
            Key(f"{o}lr_decay_steps", f"{c}decay_steps", None, Ticks(c)),
            Key(f"{o}lr_wsd_decay_steps", f"{c}wsd_decay_steps", None, Ticks(c)),
            Key(f"{o}lr_wsd_decay_style", f"{c}wsd_decay_style"),
            Key(f"{o}use_checkpoint_opt_param_scheduler", f"{c}restore_from_checkpoint"),
        ),
        under(
            "veomni",
            role,
            Key(f"{o}lr_scheduler_type", f"{c}type", "cosine", FSDP_SCHEDULES, always=True),
            lowest_rate(f"{o}lr_min", c, 0.0),
            Key(f"{o}lr_start", f"{c}warmup_start_lr", 0.0),
        ),
        under(
            "torchtitan",
            role,
            Key(f"{o}decay_type", f"{c}type", "linear", TITAN_SCHEDULES, always=True),
            Key(f"{o}min_lr_factor", f"{c}min_lr_ratio", 0.0),
        ),
        warmup(prefix, c, role, ratio),
        _length(f"{o}total_training_steps", c),
        ticks_of(c),
    ]
