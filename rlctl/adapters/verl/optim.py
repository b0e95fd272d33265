"""verl: the ``optim`` block of a role: its optimizer, its gradient clip, and how its learning rate moves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlctl.adapters.engine.combined_rows import OneOf, ShareOrAmount
from rlctl.adapters.engine.one_sided_rows import FollowsFrom, ReadOnly
from rlctl.adapters.engine.rules import (
    ABSENT,
    FROM_SCHEMA,
    Calculation,
    Computed,
    DialectKey,
    Dropped,
    InexpressibleError,
    Key,
    Reading,
    Rule,
    Tree,
    When,
    Writing,
)
from rlctl.adapters.engine.values import Listed, Names, NoClip, NullReads, Off, Partly
from rlctl.adapters.engine.weight_decay import norms_and_biases
from rlctl.adapters.verl.asynchronous import is_separate, steps_of_update
from rlctl.adapters.verl.roles import FSDP_KINDS, Role, is_old_fsdp, under
from rlctl.adapters.verl.warmup import Ticks, moves_alike, run_ticks, warmup
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import is_number
from rlctl.common.records import record
from rlctl.common.report import UNWRITTEN

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


ADAMW = Partly({"AdamW": "adamw", "adam": "adamw"})
"""Each engine has a name of its own for AdamW, which is its usual optimizer."""


class OptimizerName(Partly):
    """The optimizer, whose usual one has another name with each engine and is never written."""

    def read(self, value: Any, view: Reading) -> Any:
        return super().read(value or "AdamW", view)

    def write(self, value: Any, view: Writing) -> Any:
        if value == "adamw":
            return Computed(ABSENT, UNWRITTEN, "mapped")
        if view.version < (0, 6):
            raise InexpressibleError("this release has only AdamW")
        return value


def further_arguments(key: str, role: Role) -> list[Rule]:
    """What goes over the optimizer: arguments of a class of PyTorch's, or with Megatron values over its OptimizerConfig."""

    def on_megatron(view: Reading) -> bool:
        return role.kind(view) == "megatron"

    def writes_megatron(view: Writing) -> bool:
        return bool(view.get(f"{role.to}.type") == "megatron")

    return [
        When(
            (Tree(key, f"{_owner(role)}.optimizer.args", skips_empty=True),),
            lambda view: not on_megatron(view),
            lambda view: not writes_megatron(view),
            reason="",
            lost="in verl, Megatron's values come from OptimizerConfig",
        ),
        When(
            (Tree(key, f"{role.to}.optimizer_overrides", skips_empty=True),),
            on_megatron,
            writes_megatron,
            reason="",
            lost="Megatron's own",
        ),
    ]


def optimizer(prefix: str, role: Role, *, clip: str = "") -> list[Rule]:
    """The keys of an ``optim`` block that set the optimizer."""
    o, c = f"{prefix}.", f"{_owner(role)}.optimizer."
    return [
        Key(f"{o}lr", f"{c}lr", always=True),
        Key(f"{o}weight_decay", f"{c}weight_decay"),
        Key(f"{o}betas", f"{c}betas", convert=Listed()),
        gradient_clip(f"{o}clip_grad", role, clip),
        under(
            "torchtitan",
            role,
            Key(f"{o}name", f"{c}type", convert=ADAMW),
            Key(f"{o}eps", f"{c}epsilon"),
        ),
        Key(
            f"{o}optimizer",
            f"{c}type",
            ABSENT,
            convert=OptimizerName(ADAMW.names),
            unset="adamw",
            write_when=lambda view: has_engine(view, role) and view.get(f"{role.to}.type") != "torchtitan",
            formula="AdamW, adam or adamw by engine",
        ),
        under(
            "fsdp2",
            role,
            Key(f"{o}optimizer_impl", f"{c}module", convert=Partly({"torch.optim": None})),
        ),
        under("megatron", role, Key(f"{o}weight_decay_incr_style", f"{c}weight_decay_style")),
        *[
            Dropped(f"{c}{name}", "verl keeps the weight decay constant at weight_decay")
            for name in ("start_weight_decay", "end_weight_decay")
        ],
        norms_and_biases(
            c.removesuffix("."),
            lambda view: role.kind(view) == "megatron",
            lambda view: view.get(f"{role.to}.type") == "megatron",
        ),
        *further_arguments(f"{o}override_optimizer_config", role),
        Dropped(f"{c}epsilon", "in verl, only override_optimizer_config sets Adam's epsilon"),
    ]


def _owner(role: Role) -> str:
    return role.to.removesuffix(".engine")


def has_engine(view: Writing, role: Role) -> bool:
    """Whether a config says which engine trains a role."""
    return isinstance(view.get(role.to), Mapping)


@record
class GradientBound(Calculation):
    """The bound of a role's gradients. Megatron takes 0 for no bound; all other engines clip to it, so that nothing is left."""

    role: Role

    def read(self, value: Any, view: Reading) -> Any:
        return (Off(0.0) if self.role.kind(view) == "megatron" else NoClip()).read(value, view)

    def write(self, value: Any, view: Writing) -> Any:
        if view.get(f"{self.role.to}.type") == "megatron":
            return Off(0.0).write(value, view)
        bound = NoClip().write(value, view)
        note = (
            "verl cannot switch clipping off (0 would zero every gradient). Wrote a bound too large to have an effect"
        )
        return Computed(bound, note) if value is None else bound


def gradient_clip(key: str, role: Role, old: str) -> OneOf:
    """The bound of gradients: FSDP's workers read the role's ``grad_clip`` until 0.7, all others that of ``optim``."""
    # 0.6.1 workers/config/optimizer.py, OptimizerConfig
    other = DialectKey(old) if old else DialectKey(key.replace("clip_grad", "grad_clip"), ABSENT, since="0.6")

    def live(view: Reading) -> str:
        if old:
            return old if is_old_fsdp(view, role.kind(view) in FSDP_KINDS) else key
        return other.name if view.written(other.name) and not view.written(key) else key

    return OneOf(
        (DialectKey(key), other),
        f"{_owner(role)}.optimizer.max_grad_norm",
        reads=live,
        writes=lambda view: old if old and is_old_fsdp(view, view.get(f"{role.to}.type") == "fsdp2") else key,
        convert=GradientBound(role),
        reason="verl's engine reads {name} instead",
        formula="optim.clip_grad, or grad_clip",
    )


class Ending(Names):
    """FSDP's shapes; another decay is written as the cosine that ends at the same rate."""

    def write(self, value: Any, view: Writing) -> Any:
        if value not in ("linear", "polynomial"):
            return super().write(value, view)
        lost = said("verl's FSDP has no {name} decay; a cosine ends at the same rate", name=value)
        return Computed("cosine", lost=lost, always=True)


def fsdp_shape(prefix: str, to: str) -> OneOf:
    """The shape of FSDP's schedule: ``warmup_style``, which wins where it is not null, and its successor."""
    old, new = f"{prefix}.warmup_style", f"{prefix}.lr_scheduler_type"
    return OneOf(
        (
            DialectKey(new),
            DialectKey(old),
        ),
        to,
        reads=lambda view: new if view.get(old) is None else old,
        writes=lambda view: new if view.version >= (0, 6) else old,
        convert=Ending(FSDP_SCHEDULES.names, FSDP_SCHEDULES.missing),
    )


TICKS = {"step": "steps", "optimizer_step": "optimizer steps"}


def ticks_of(schedule: str) -> FollowsFrom:
    """What moves the rate: an ``update_actor`` of verl's, which is a step, or a part of one where training is asynchronous."""
    to, unchanged = f"{schedule}step_unit", "the rate changes as often, or is constant"

    def unit(view: Reading) -> Any:
        each = steps_of_update(view)
        if each is None:
            return "step"
        return Computed(
            "optimizer_step",
            said("one update_actor is {each} optimizer steps, and one step has several update_actor calls", each=each),
        )

    def as_often(view: Writing) -> bool:
        warms = any(view.get(f"{schedule}warmup_{name}") for name in ("steps", "ratio"))
        is_constant = view.get(f"{schedule}type") == "constant" and not warms
        return is_constant or moves_alike(view, schedule)

    return FollowsFrom(
        to,
        reads=unit,
        writes=lambda view: "step" if as_often(view) else ABSENT,
        note=unchanged,
        harmless=((as_often, unchanged),),
        reason=lambda view: said(
            "verl's schedule counts {per}, not {ticks}",
            per="mini-batches" if is_separate(view) else "steps",
            ticks=TICKS[view.get(to)],
        ),
        formula="once per update_actor",
    )


def lowest(key: str, schedule: str) -> ShareOrAmount:
    """The lowest rate, as a share of the peak; a constant rate never gets there."""
    return ShareOrAmount(
        key,
        "share",
        f"{schedule}min_lr_ratio",
        f"{schedule}min_lr",
        _peak(schedule),
        default=0.0,
        convert=NullReads(0.0),
        when=lambda view: view.get(f"{schedule}type") != "constant",
        note="a constant rate has no minimum",
        most=1.0,
        too_much="verl's lowest rate is a share of the peak, at most the peak itself",
    )


def lowest_rate(key: str, schedule: str, default: Any = FROM_SCHEMA) -> ShareOrAmount:
    """The lowest rate itself; a share of the peak is multiplied by it."""
    return ShareOrAmount(
        key, "amount", f"{schedule}min_lr_ratio", f"{schedule}min_lr", _peak(schedule), default=default
    )


def _peak(schedule: str) -> str:
    """The rate that the schedule begins to decay from."""
    return f"{schedule.removesuffix('lr_scheduler.')}optimizer.lr"


def _length(key: str, schedule: str) -> list[Rule]:
    """The length of the schedule, which verl sets to the steps of the run when it starts, whatever is written."""
    return [
        ReadOnly(
            key,
            "verl sets it to the steps of the run",
            dead=lambda view: is_number(view.get(key)) and view.get(key) > 0,
            about=(f"{schedule}total_steps",),
        ),
        FollowsFrom(
            f"{schedule}total_steps",
            writes=lambda view: run_ticks(view, schedule),
            note="verl always does this",
            reason="verl's schedule is as long as the run",
            open=(None,),
            formula="as long as the run",
        ),
    ]


def schedule(prefix: str, role: Role) -> list[Rule]:
    """The keys of an ``optim`` block that move the learning rate; each engine has shapes of its own."""
    o, c = f"{prefix}.", f"{_owner(role)}.lr_scheduler."
    return [
        under(
            "fsdp2",
            role,
            fsdp_shape(prefix, f"{c}type"),
            lowest(f"{o}min_lr_ratio", c),
            Key(f"{o}num_cycles", f"{c}num_cycles"),
        ),
        under(
            "megatron",
            role,
            Key(f"{o}lr_decay_style", f"{c}type", convert=MEGATRON_SCHEDULES),
            lowest_rate(f"{o}min_lr", c, ABSENT),
            Key(f"{o}lr_warmup_init", f"{c}warmup_start_lr", ABSENT),
            Key(f"{o}lr_decay_steps", f"{c}decay_steps", convert=Ticks(c)),
            Key(f"{o}lr_wsd_decay_steps", f"{c}wsd_decay_steps", convert=Ticks(c)),
            Key(f"{o}lr_wsd_decay_style", f"{c}wsd_decay_style", ABSENT),
            Key(f"{o}use_checkpoint_opt_param_scheduler", f"{c}restore_from_checkpoint", ABSENT),
        ),
        under(
            "veomni",
            role,
            Key(f"{o}lr_scheduler_type", f"{c}type", convert=FSDP_SCHEDULES, always=True),
            lowest_rate(f"{o}lr_min", c),
            Key(f"{o}lr_start", f"{c}warmup_start_lr"),
        ),
        under(
            "torchtitan",
            role,
            Key(f"{o}decay_type", f"{c}type", convert=TITAN_SCHEDULES, always=True),
            Key(f"{o}min_lr_factor", f"{c}min_lr_ratio"),
        ),
        warmup(prefix, c, role),
        *_length(f"{o}total_training_steps", c),
        ticks_of(c),
    ]
