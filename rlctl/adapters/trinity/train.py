"""Trinity: optimizer, schedule and engine of the policy, and the reference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from rlctl.adapters.engine.combined_rows import OneOf, ShareOrAmount
from rlctl.adapters.engine.rules import (
    ABSENT,
    FROM_SCHEMA,
    NO_KEY,
    SAME,
    Absent,
    Calculation,
    Computed,
    Converter,
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
    Tree,
    Version,
    When,
    Writing,
)
from rlctl.adapters.engine.values import (
    DTYPES,
    LONG_DTYPES,
    Listed,
    Names,
    NoClip,
    Off,
    Partly,
    offload,
    rows,
)
from rlctl.adapters.engine.weight_decay import norms_and_biases
from rlctl.adapters.trinity.batch import factor, rounded, trainer_steps
from rlctl.adapters.trinity.keys import ACTOR, CRITIC_C, MODEL, REF
from rlctl.adapters.trinity.megatron import megatron
from rlctl.adapters.verl_trainer.fsdp import sharding
from rlctl.adapters.verl_trainer.megatron import DATACLASS, SIZES
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import is_number
from rlctl.common.records import record
from rlctl.planning import arithmetic


def deciding(view: Reading, own: str, common: str) -> str:
    """Trinity 0.5 lets a role's own key decide where it is written; later releases ignore it."""
    return own if view.get(own) is not None and view.version < (0, 6) else common


def strategy(view: Reading) -> str:
    """The policy's engine by Trinity's name."""
    return str(view.get(deciding(view, f"{ACTOR}.strategy", "trainer.trainer_strategy")))


def role_strategy(view: Reading, key: str) -> str:
    """The engine of a model beside the policy; the reference is in the policy's Megatron workers where there are some."""
    if key == f"{REF}.strategy" and strategy(view) == "megatron":
        return "megatron"
    return str(view.get(deciding(view, key, "trainer.trainer_strategy")))


TINKER = ("rank", "seed", "train_mlp", "train_attn", "train_unembed", "base_url")
"""Settings of the remote service that trains instead of an engine."""


def _on_tinker(view: Reading) -> bool:
    return bool(view.get("model.tinker.enable")) or view.get("trainer.trainer_type") == "tinker"


def _read_engine(view: Reading) -> Iterator[Flow]:
    key = deciding(view, f"{ACTOR}.strategy", "trainer.trainer_strategy")
    kind = str(view.get(key))
    written = [name for name in TINKER if view.written(f"model.tinker.{name}")]
    switch = view.path("model.tinker.enable")
    if _on_tinker(view):
        yield Flow(view.to("train.engine.type"), "tinker", (switch,))
        yield Flow((), None, (view.path(key),), "dead", "Tinker trains")
        for name in written:
            place = view.path(f"model.tinker.{name}")
            yield Flow((*view.to("train.engine.args"), name), view.get(f"model.tinker.{name}"), (place,), same=True)
        return
    unused = (switch, *(view.path(f"model.tinker.{name}") for name in written))
    yield Flow((), None, unused[:1], "mapped", "rlctl trains without a remote service")
    yield Flow((), None, unused[1:], "dead", "model.tinker.enable is off")
    if key != "trainer.trainer_strategy":
        yield Flow((), None, (view.path("trainer.trainer_strategy"),), "dead", said("{key} decides", key=key))
    yield Flow(view.to("train.engine.type"), "megatron" if kind == "megatron" else "fsdp2", (view.path(key),))
    if kind in ("fsdp", "fsdp2"):
        yield Flow(view.to("train.engine.source"), kind, (view.path(key),))


def _write_engine(view: Writing) -> Iterator[Out]:
    name, used = view.get("train.engine.type"), (view.to("train.engine.type"), view.to("train.engine.source"))
    if name == "fsdp2":
        source = view.get("train.engine.source")
        if source in ("fsdp", "fsdp2"):
            yield Flow(view.path("trainer.trainer_strategy"), source, used)
        else:
            note = said("Trinity has no {source}. Wrote FSDP2", source=source)
            yield Inexpressible(used[1:], note, idle=True)
            yield Flow(view.path("trainer.trainer_strategy"), "fsdp2", used, "derived", note)
    elif name == "megatron":
        yield Flow(view.path("trainer.trainer_strategy"), "megatron", used[:1], always=True)
    elif name == "tinker":
        yield Flow(view.path("model.tinker.enable"), True, used[:1], always=True)
        for key, value in view.get("train.engine.args").items():
            yield Flow(view.path(f"model.tinker.{key}"), value, (view.to("train.engine.args"),), always=True)
    else:
        yield Inexpressible(
            used[:1],
            said("Trinity has no {kind}. Wrote its default engine", kind=name),
        )


def _read_offload(view: Reading) -> Iterator[Flow]:
    block = f"{ACTOR}.{'megatron' if strategy(view) == 'megatron' else 'fsdp_config'}"
    both, used = [], []
    for name in ("param_offload", "optimizer_offload"):
        key = next((key for key in (f"{block}.{name}", f"trainer.{name}") if view.written(key)), f"{block}.{name}")
        both.append(bool(view.get(key, False)))
        used.append(view.path(key))
    yield Flow(view.to("train.engine.offload"), offload(*both), tuple(used))


def _write_offload(view: Writing) -> Iterator[Out]:
    word = view.get("train.engine.offload")
    if isinstance(word, Absent):
        return
    block = "megatron" if view.get("train.engine.type") == "megatron" else "fsdp_config"
    root = "trainer" if view.version >= (0, 6) else f"{ACTOR}.{block}"
    used = (view.to("train.engine.offload"),)
    yield Flow(view.path(f"{root}.param_offload"), word in ("parameters", "both"), used)
    yield Flow(view.path(f"{root}.optimizer_offload"), word in ("optimizer", "both"), used)


def _clip_keys(version: Version, megatron: bool) -> tuple[str, ...]:
    """The keys that hold the policy's gradient clip, the one that decides first."""
    if version >= (0, 6):
        return (f"{ACTOR}.optim.clip_grad", "algorithm.optimizer.clip_grad")
    return ("algorithm.optimizer.clip_grad",) if megatron else (f"{ACTOR}.grad_clip", "trainer.grad_clip")


def _clip(view: Reading) -> str:
    """The key that holds the policy's gradient clip: the first that is written, or the usual one."""
    keys = _clip_keys(view.version, strategy(view) == "megatron")
    return next((key for key in keys if view.get(key) is not None and view.written(key)), keys[-1])


def _clips_written(view: Writing) -> tuple[str, ...]:
    """Where it is written; for 0.6 also where a verl before 0.8 reads it, which Trinity 0.6 supports too."""
    megatron = view.get("train.engine.type") == "megatron"
    versions = (view.version,) if megatron else tuple(dict.fromkeys(((0, 5), view.version)))
    return tuple(_clip_keys(version, megatron)[-1] for version in versions)


class Bound(NoClip):
    """The bound of gradients, and what the report says of one that means none."""

    def write(self, value: Any, view: Writing) -> Any:
        bound = super().write(value, view)
        return Computed(bound, "this bound is too large to have an effect") if value is None else bound


def role_engine(name: str, key: str, to: str) -> CustomRule:
    """The engine of a model beside the policy: its own in 0.5 where it is written, else the policy's."""
    names = tuple(f"{to}.{field}" for field in ("type", "source"))

    def read(view: Reading) -> Iterator[Flow]:
        kind = role_strategy(view, key)
        yield Flow(view.to(names[0]), "megatron" if kind == "megatron" else "fsdp2", (view.path(key),))
        if kind in ("fsdp", "fsdp2"):
            yield Flow(view.to(names[1]), kind, (view.path(key),))

    def write(view: Writing) -> Iterator[Out]:
        name, source = view.get(names[0]), view.get(names[1])
        used = (view.to(names[0]), view.to(names[1]))
        if isinstance(name, Absent):
            return
        kind = "megatron" if name == "megatron" else source if source in ("fsdp", "fsdp2") else "fsdp2"
        policy = view.get("train.engine.type"), view.get("train.engine.source")
        how: Provenance = "mapped" if name == "megatron" or source in ("fsdp", "fsdp2") else "derived"
        if (name, source) == policy:
            yield Flow((), None, used, "mapped", "the same as the policy's")
        elif view.version < (0, 6):
            yield Flow(view.path(key), kind, used, how)
        elif name == policy[0]:
            yield Inexpressible(used, "Trinity has one engine for all models since 0.6")
        else:
            yield Inexpressible((view.to(to), *used), "Trinity has one engine for all models since 0.6")

    return CustomRule(
        name,
        # 0.5.2 trainer/verl/verl_config.py, synchronize_config; 0.6.0 trainer/verl/config.py, FROZEN_KEYS
        (DialectKey(key, None, until="0.5"),),
        names,
        read,
        write,
        why="The policy's engine is used unless its own key is written, and two fields are one word.",
    )


def writes_engine(view: Writing, to: str, name: str) -> bool:
    """Whether the settings of a model's engine can be written: since 0.6 only where it is the policy's."""
    own = view.get(f"{to}.type")
    return bool(own == name and (view.version < (0, 6) or own == view.get("train.engine.type")))


WARMUP = ("lr_warmup_steps", "lr_warmup_steps_ratio")


def warmup_keys(root: str, off: Sequence[Any] = (FROM_SCHEMA, FROM_SCHEMA)) -> tuple[DialectKey, ...]:
    """The two keys of a warm-up, with their defaults where no schema has them."""
    # 0.5.2 trainer/verl/verl_config.py, Optim; 0.6.0 trainer/verl/config.py, _build_critic_optimizer_config
    return tuple(DialectKey(f"{root}.{name}", default) for name, default in zip(WARMUP, off, strict=True))


def read_warmup(view: Reading, keys: Sequence[str], role: str) -> Iterator[Flow]:
    """A warm-up in trainer steps, each an optimizer step a pass; since 0.6 none of its own leaves it to the ratio."""
    steps, share = keys
    value, ratio, total = view.get(steps), Off(0.0).read(view.get(share), view), view.get("trainer.total_steps")
    own = view.get(f"{CRITIC_C}.ppo_epochs") if role == "critic" else None
    epochs = own or view.get(f"{ACTOR}.ppo_epochs")
    passes = epochs if isinstance(epochs, int) and epochs > 1 else 1
    ticks = value if isinstance(value, int) and value >= (1 if view.version >= (0, 6) else 0) else None
    used, part, note = (view.path(steps),), (view.path(share),), ""
    if ticks is not None:
        note = said("{ticks} trainer steps x {repeats} passes", ticks=ticks, repeats=passes) if passes > 1 else ""
        yield Flow((), None, part, "dead" if ratio else "mapped", said("{steps} decides", steps=steps))
    elif is_number(ratio) and isinstance(total, int) and int(ratio * total) * passes != int(ratio * total * passes):
        ticks, used = int(ratio * total), part
        note = said(
            "{ratio:g} of {total} trainer steps, rounded down, x {passes} passes",
            ratio=ratio,
            total=total,
            passes=passes,
        )
    else:
        yield Flow(view.to(f"{role}.lr_scheduler.warmup_ratio"), ratio, part, same=True)
    yield Flow(
        view.to(f"{role}.lr_scheduler.warmup_steps"),
        None if ticks is None else ticks * passes,
        used,
        "derived" if note else "mapped",
        note,
        same=ticks is not None and not note,
    )
    yield Flow(view.to(f"{role}.lr_scheduler.step_unit"), "optimizer_step", ())


def _read_warmup(view: Reading) -> Iterator[Flow]:
    root, own = "algorithm.optimizer", f"{ACTOR}.optim"
    steps, share = keys = [
        f"{own if view.version >= (0, 6) and view.written(f'{own}.{name}') else root}.{name}" for name in WARMUP
    ]
    yield from read_warmup(view, keys, "train")
    ticks = view.get(steps)
    warms = ticks > 0 or (ticks < 0 and view.get(share)) if isinstance(ticks, int) else False
    key = f"{root}.warmup_style" if view.get(f"{root}.warmup_style") else f"{root}.lr_scheduler_type"
    megatron = strategy(view) == "megatron"
    if warms and starts_low(view.version, str(view.get(key)), megatron):
        start = view.get(f"{root}.lr") * view.get(f"{root}.min_lr_ratio")
        note = said("the warm-up of {value} begins at the lowest rate", value="Megatron" if megatron else "a cosine")
        yield Flow(view.to("train.lr_scheduler.warmup_start_lr"), start, (view.path(key),), "derived", note)


def starts_low(version: Version, name: str, megatron: bool) -> bool:
    """Whether the warm-up begins at the lowest learning rate instead of 0: a cosine's in 0.5, Megatron's since."""
    return name == "cosine" if version < (0, 6) else megatron


def write_warmup(view: Writing, root: str, role: str) -> Iterator[Out]:
    """A warm-up in trainer steps, from the canonical schedule's ticks; a ratio too, if Trinity would round it otherwise."""
    to = f"{role}.lr_scheduler"
    plan, used, part = view.get(to), (view.to(f"{to}.warmup_steps"),), (view.to(f"{to}.warmup_ratio"),)
    if not isinstance(plan, Mapping):
        return
    by_step, ticks, ratio = plan["step_unit"] == "step", plan["warmup_steps"], plan["warmup_ratio"]
    steps, share = (f"{root}.{name}" for name in WARMUP)
    batch = arithmetic.critic_batch(view.config) if role == "critic" else view.config.batch
    passes = batch.ppo_epochs
    total = trainer_steps(view) if ticks is None and is_number(ratio) else None
    updates = None if total is None else arithmetic.warmup_in_optimizer_steps(view.config, role, rows(view.options))
    if total is not None and updates is not None and int(ratio * total) * passes != updates:
        used, exact = part, Fraction(updates, passes)
        note = said("{ratio:g} of the run is {updates} optimizer steps", ratio=ratio, updates=updates)
    else:
        each = factor(view) if by_step else 1
        exact = Fraction(ticks or 0) * each / (1 if by_step else passes)
        note = said("{ticks} steps x {each}", ticks=ticks, each=each) if ticks and each > 1 else ""
        yield Flow(view.path(share), Off(0.0).write(ratio, view), part, same=True)
    value = -1 if exact == 0 and ticks is None else math.ceil(exact)
    yield Flow(
        view.path(steps), value, used, "derived" if note else "mapped", note, same=value == ticks, always=used is part
    )
    yield from rounded(exact, max(value, 0), used)
    yield Flow((), None, (view.to(f"{to}.step_unit"),), "mapped", "Trinity's schedule counts train steps")
    relative = ratio or shape(view, role) in DECAYS
    if relative and view.config.schedule.total_steps is None and view.config.schedule.total_optimizer_steps is None:
        reason = "Trinity computes ratios and decays from trainer.total_steps, which is not set: the rate would hardly change"
        yield Inexpressible((view.to(f"{to}.warmup_ratio" if ratio else f"{to}.type"),), reason)


def _write_warmup(view: Writing) -> Iterator[Out]:
    yield from write_warmup(view, "algorithm.optimizer", "train")
    yield from _write_start(view)


def _write_start(view: Writing) -> Iterator[Out]:
    plan, used = view.config.train.lr_scheduler, (view.to("train.lr_scheduler.warmup_start_lr"),)
    lowest = view.config.train.optimizer.lr * lowest_ratio(view) if _starts_low(view) else 0.0
    if not _warms(view) or math.isclose(plan.warmup_start_lr, lowest):
        yield Flow((), None, used)
    else:
        yield Inexpressible(used, said("Trinity's warm-up begins at {lowest:g}", lowest=lowest))


def _starts_low(view: Writing) -> bool:
    megatron = view.get("train.engine.type") == "megatron"
    return starts_low(view.version, shape(view, "train"), megatron)


def _warms(view: Writing) -> bool:
    schedule = view.config.train.lr_scheduler
    return bool(schedule.warmup_steps or schedule.warmup_ratio)


def first(own: str, common: str, to: str, default: Any, convert: Converter = SAME) -> list[Rule]:
    """A verl key that decides where it is written; since 0.6 Trinity has a key for it too, which is the one written."""
    return [
        # 0.4.1 common/verl_config.py, MegatronConfig; 0.5.2 trainer/verl/verl_config.py, FSDPConfig and verl's McoreEngineConfig
        Key(own, to, default, convert, write_when=lambda view: view.version < (0, 6)),
        Key(common, to, convert=convert, write_when=lambda view: view.version >= (0, 6)),
    ]


SHAPES = Names({"constant": "constant", "cosine": "cosine"}, "Trinity's schedules are constant and cosine")
MEGATRON_SHAPES = Names(
    {**SHAPES.names, "linear": "linear", "inverse-square-root": "inverse_sqrt"},
    "Trinity's schedules on Megatron are constant, cosine, linear and inverse-square-root",
)
"""Trinity passes the policy's ``lr_scheduler_type`` to Megatron as ``lr_decay_style`` unchanged."""
DECAYS = ("cosine", "linear", "inverse_sqrt")
NEAREST = {"linear": "cosine", "polynomial": "cosine"}
"""What is written for a schedule that Trinity does not have: one that ends where it does."""


def shape(view: Writing, role: str) -> Any:
    """The schedule that is written for a model."""
    name = view.get(f"{role}.lr_scheduler.type")
    return name if name in _shapes(view, role).names.values() else NEAREST.get(name, name)


def _shapes(view: Writing, role: str) -> Names:
    return MEGATRON_SHAPES if role == "train" and view.get("train.engine.type") == "megatron" else SHAPES


@record
class Shapes(Calculation):
    """The shape of a model's learning rate, which engines have other names for; an unknown one is written as the nearest."""

    role: str

    def read(self, value: Any, view: Reading) -> Any:
        own = self.role == "train" and strategy(view) == "megatron"
        return (MEGATRON_SHAPES if own else SHAPES).read(value, view)

    def write(self, value: Any, view: Writing) -> Any:
        nearest = shape(view, self.role)
        if nearest == value:
            return _shapes(view, self.role).write(value, view)
        reason = said(
            "Trinity has no {name} decay; wrote a cosine to min_lr_ratio {lowest:g}, which is above it "
            "in the first half of the run and below it in the second",
            name=value,
            lowest=view.get(f"{self.role}.lr_scheduler.min_lr_ratio"),
        )
        return Computed(nearest, reason, lost=reason, always=True)


def schedule(key: str, role: str, default: Any = FROM_SCHEMA) -> Key:
    """The shape of a model's learning rate, which an older key decides where it is written."""
    # 0.5.2 trainer/verl/verl_config.py, Optim
    older = DialectKey(f"{key.rpartition('.')[0]}.warmup_style", FROM_SCHEMA if default is FROM_SCHEMA else None)
    # 0.5.2 trainer/verl/verl_config.py, Optim; 0.6.0 trainer/verl/config.py, _build_critic_optimizer_config
    return Key(key, f"{role}.lr_scheduler.type", default, Shapes(role), also=(older,))


def overrides() -> list[Rule]:
    """The policy's optimizer among verl's keys: 0.5 replaces it by ``algorithm.optimizer``, 0.6 lets it decide."""
    root, to = f"{ACTOR}.optim", "train"
    keys: tuple[tuple[str, str, Any], ...] = (
        ("lr", "optimizer.lr", SAME),
        ("weight_decay", "optimizer.weight_decay", SAME),
        ("betas", "optimizer.betas", Listed()),
        ("optimizer", "optimizer.type", ADAM),
        ("lr_scheduler_type", "lr_scheduler.type", SHAPES),
        ("min_lr_ratio", "lr_scheduler.min_lr_ratio", SAME),
    )
    # 0.5.2 trainer/verl/verl_config.py, synchronize_config, overwrites them;
    # 0.6.0 trainer/verl/config.py, _deep_merge, merges them
    never = [
        Key(f"{root}.{key}", f"{to}.{field}", convert=convert, since="0.6", write_when=lambda view: False)
        for key, field, convert in keys
    ]
    return [
        *never,
        # 0.6.0 trainer/verl/config.py, _build_optimizer_config
        Key(
            f"{root}.num_cycles",
            f"{to}.lr_scheduler.num_cycles",
            0.5,
            write_when=lambda view: bool(view.version >= (0, 6) or view.explicit(f"{to}.lr_scheduler.num_cycles")),
        ),
    ]


def lowest_ratio(view: Writing) -> float:
    """The lowest learning rate as a share of the peak, however it is said."""
    plan, peak = view.config.train.lr_scheduler, view.config.train.optimizer.lr
    given = plan.min_lr
    return plan.min_lr_ratio if given is None or not peak else min(1.0, float(f"{given / peak:.12g}"))


def is_fsdp(view: Writing) -> bool:
    """Whether the trainer that is written is FSDP; Trinity drops the settings of the other engine."""
    return bool(view.get("train.engine.type") != "megatron")


ADAM = Partly({"adam": "adamw", "AdamW": "adamw"})
LOWEST = "algorithm.optimizer.min_lr_ratio"


def _decays(view: Writing) -> bool:
    """Whether the lowest learning rate is reached at all, so that Trinity's own 0.01 must not stand for it."""
    return shape(view, "train") in DECAYS or (_starts_low(view) and _warms(view))


TRAINER: list[Rule] = [
    *overrides(),
    Key("algorithm.optimizer.lr", "train.optimizer.lr"),
    Key("algorithm.optimizer.weight_decay", "train.optimizer.weight_decay"),
    norms_and_biases("train.optimizer", lambda view: strategy(view) == "megatron", lambda view: not is_fsdp(view)),
    Key("algorithm.optimizer.betas", "train.optimizer.betas", convert=Listed()),
    Key("algorithm.optimizer.optimizer_type", "train.optimizer.type", convert=ADAM),
    OneOf(
        (
            DialectKey("algorithm.optimizer.clip_grad"),
            DialectKey("trainer.grad_clip"),
            # 0.5.2 trainer/verl/verl_config.py, synchronize_config; 0.6.0 trainer/verl/config.py, FROZEN_KEYS
            DialectKey(f"{ACTOR}.grad_clip", None, until="0.5"),
            # 0.5.2 trainer/verl/verl_config.py, synchronize_config, overwrites it;
            # 0.6.0 trainer/verl/config.py, _deep_merge, merges it
            DialectKey(f"{ACTOR}.optim.clip_grad", None, "0.6"),
        ),
        "train.optimizer.max_grad_norm",
        reads=_clip,
        writes=_clips_written,
        convert=Bound(),
        formula="trainer.grad_clip in 0.5, algorithm.optimizer.clip_grad with Megatron and since 0.6",
    ),
    schedule("algorithm.optimizer.lr_scheduler_type", "train"),
    CustomRule(
        "warm-up",
        (
            *warmup_keys("algorithm.optimizer"),
            # 0.5.2 trainer/verl/verl_config.py, synchronize_config, overwrites them;
            # 0.6.0 trainer/verl/config.py, _deep_merge, merges them
            *(DialectKey(f"{ACTOR}.optim.{name}", None, "0.6") for name in WARMUP),
        ),
        tuple(
            f"train.lr_scheduler.{name}" for name in ("warmup_steps", "warmup_ratio", "step_unit", "warmup_start_lr")
        ),
        _read_warmup,
        _write_warmup,
        "steps x k",
        by_key={
            "algorithm.optimizer.lr_scheduler_type": "train.lr_scheduler.warmup_start_lr",
            "algorithm.optimizer.lr_warmup_steps": "train.lr_scheduler.warmup_steps",
            "algorithm.optimizer.lr_warmup_steps_ratio": "train.lr_scheduler.warmup_ratio",
            "trainer.trainer_config.actor_rollout_ref.actor.optim.lr_warmup_steps": "train.lr_scheduler.warmup_steps",
            "trainer.trainer_config.actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": "train.lr_scheduler.warmup_ratio",
        },
        why="It also says what moves the schedule and where its rate begins, which depends on the engine.",
    ),
    ShareOrAmount(
        LOWEST,
        "share",
        "train.lr_scheduler.min_lr_ratio",
        "train.lr_scheduler.min_lr",
        "train.optimizer.lr",
        most=1.0,
        too_much="Trinity's lowest rate is a share of the peak, at most the peak itself",
        always=_decays,
        formula="min_lr / lr",
    ),
    *[
        Dropped(f"train.optimizer.{name}", NO_KEY)
        for name in ["module", "epsilon", "weight_decay_style", "start_weight_decay", "end_weight_decay"]
    ],
    *[
        Dropped(f"train.lr_scheduler.{name}", NO_KEY)
        for name in [
            "decay_steps",
            "wsd_decay_steps",
            "wsd_decay_style",
            "total_steps",
            "restore_from_checkpoint",
        ]
    ],
    CustomRule(
        "train engine",
        (
            DialectKey(
                "trainer.trainer_strategy",
                takes=("fsdp", "fsdp2", "megatron"),
            ),
            # 0.5.2 trainer/verl/verl_config.py, synchronize_config; 0.6.0 trainer/verl/config.py, FROZEN_KEYS
            DialectKey(f"{ACTOR}.strategy", None, until="0.5"),
            DialectKey("model.tinker.enable"),
            *(DialectKey(f"model.tinker.{name}", ABSENT) for name in TINKER),
        ),
        ("train.engine.type", "train.engine.source", "train.engine.args"),
        _read_engine,
        _write_engine,
        by_key={
            "trainer.trainer_strategy": "train.engine.source",
            f"{ACTOR}.strategy": "train.engine.type",
            "model.tinker.enable": "train.engine.type",
            "model.tinker.rank": "train.engine.args",
            "model.tinker.seed": "train.engine.args",
            "model.tinker.train_mlp": "train.engine.args",
            "model.tinker.train_attn": "train.engine.args",
            "model.tinker.train_unembed": "train.engine.args",
            "model.tinker.base_url": "train.engine.args",
        },
        why="One key names the engine unless a service trains instead, whose settings become arguments.",
    ),
    CustomRule(
        "offload",
        (
            DialectKey("trainer.param_offload"),
            DialectKey("trainer.optimizer_offload"),
            *(
                # 0.5.2 trainer/verl/verl_config.py, FSDPConfig; 0.4.1 common/verl_config.py, MegatronConfig
                DialectKey(f"{ACTOR}.{block}.{name}", False)
                for block in ("fsdp_config", "megatron")
                for name in ("param_offload", "optimizer_offload")
            ),
        ),
        ("train.engine.offload",),
        _read_offload,
        _write_offload,
        by_key={
            "trainer.param_offload": "train.engine.offload",
            "trainer.optimizer_offload": "train.engine.offload",
            **{
                f"{ACTOR}.{block}.{name}_offload": "train.engine.offload"
                for block in ("fsdp_config", "megatron")
                for name in ("param", "optimizer")
            },
        },
        why="Which of three blocks holds the switches depends on the engine and the release.",
    ),
    *first(f"{ACTOR}.megatron.grad_offload", "trainer.grad_offload", "train.engine.offload_gradients", False),
    *first(f"{ACTOR}.fsdp_config.offload_policy", "trainer.offload_policy", "train.engine.cpu_offload_policy", False),
    *sharding(f"{ACTOR}.fsdp_config", "train.engine", handed_on=True),
    Key(
        f"{ACTOR}.fsdp_config.wrap_policy.transformer_layer_cls_to_wrap",
        "train.engine.wrap_layers",
        convert=Listed(),
    ),
    Key(
        f"{ACTOR}.fsdp_config.model_dtype", "train.precision.parameters", convert=DTYPES, quiet=True, write_when=is_fsdp
    ),
    # 0.5.2 trainer/verl/verl_config.py, FSDPConfig; 0.6.0 trainer/verl/config.py, _build_fsdp_engine_config
    Key(f"{ACTOR}.fsdp_config.dtype", "train.precision.compute", "bfloat16", LONG_DTYPES, write_when=is_fsdp),
    Key(
        f"{ACTOR}.megatron.dtype",
        "train.precision.compute",
        convert=LONG_DTYPES,
        quiet=True,
        write_when=lambda view: not is_fsdp(view) and view.get("train.precision.compute") != "bfloat16",
    ),
    When(
        (
            # 0.5.2 trainer/verl/verl_config.py, synchronize_config; 0.6.0 trainer/verl/config.py, FROZEN_KEYS
            Key(
                f"{ACTOR}.ulysses_sequence_parallel_size",
                "train.engine.ulysses_sequence_parallel_size",
                until="0.5",
                write_when=lambda view: False,
            ),
            Key("trainer.ulysses_sequence_parallel_size", "train.engine.ulysses_sequence_parallel_size"),
        ),
        lambda view: strategy(view) != "megatron",
        lambda view: bool(view.get("train.engine.type") == "fsdp2"),
        "only for the FSDP trainer",
    ),
    When(
        tuple(
            rule
            for key, field in SIZES
            for rule in first(
                f"{ACTOR}.megatron.{key}", f"trainer.megatron.{key}", f"train.engine.{field}", DATACLASS[key]
            )
        ),
        lambda view: strategy(view) == "megatron",
        lambda view: bool(view.get("train.engine.type") == "megatron"),
        "only for the Megatron trainer",
    ),
    When(
        tuple(megatron(f"{ACTOR}.megatron", "train.engine")),
        lambda view: strategy(view) == "megatron",
        lambda view: bool(view.get("train.engine.type") == "megatron"),
        "only for the Megatron trainer",
    ),
    *[
        Dropped(f"train.engine.{name}", NO_KEY)
        for name in [
            "expert_parallel_size",
            "source_args",
            "moe.freeze_router",
            "optimizer_overrides",
        ]
    ],
    # 0.4.1 trainer/verl/fsdp_workers.py; with 0.6.0, verl 0.8.0 workers/engine/fsdp/transformer_impl.py
    Key(
        f"{ACTOR}.fsdp_config.mixed_precision.reduce_dtype",
        "train.precision.reduce",
        "fp32",
        DTYPES,
        write_when=is_fsdp,
    ),
    # 0.6.0 trainer/verl/config.py, _build_actor_config
    Key(f"{ACTOR}.use_torch_compile", "train.compile", True),
    # 0.5.2 trainer/verl/verl_config.py, Optim; 0.6.0 trainer/verl/config.py, _build_optimizer_config
    Tree(f"{ACTOR}.optim.override_optimizer_config", "train.optimizer.args", default=None),
    # 0.5.2 trainer/verl/verl_config.py, ActorModel; 0.6.0 trainer/verl/config.py, _build_model_config
    Key(f"{MODEL}.enable_gradient_checkpointing", "train.memory.recompute_activations", True),
    # 0.5.2 trainer/verl/verl_config.py, ActorModel; 0.6.0 trainer/verl/config.py, _build_model_config
    Key(f"{MODEL}.enable_activation_offload", "train.memory.offload_activations", False),
    # 0.5.2 trainer/verl/verl_config.py, ActorModel; 0.6.0 trainer/verl/config.py, FROZEN_KEYS
    Key(
        "trainer.use_remove_padding",
        "train.packing",
        also=(DialectKey(f"{MODEL}.use_remove_padding", True, until="0.5"),),
    ),
    # 0.5.2 trainer/verl/verl_config.py, ActorModel; 0.6.0 trainer/verl/config.py, _build_model_config
    Key(f"{MODEL}.use_fused_kernels", "train.fused_kernels.enabled", False),
    # 0.5.2 trainer/verl/verl_config.py, FusedKernelOptions
    Key(f"{MODEL}.fused_kernel_options.impl_backend", "train.fused_kernels.backend", None, Partly({None: "torch"})),
    # 0.5.2 trainer/verl/verl_config.py, Actor; 0.6.0 trainer/verl/config.py, _build_actor_config
    Key(f"{ACTOR}.entropy_from_logits_with_chunking", "train.memory.entropy_chunked", False),
    # 0.5.2 trainer/verl/verl_config.py, Actor; 0.6.0 trainer/verl/config.py, _build_actor_config
    Key(f"{ACTOR}.entropy_checkpointing", "train.memory.entropy_recompute", False),
    *[
        Dropped(name, "Trinity has no key for this; its own default applies", idle=True)
        for name in (
            "train.memory.recompute_reentrant",
            "train.memory.empty_cache",
            "train.fused_kernels.liger",
            "train.fused_kernels.prefix_grouping",
        )
    ],
    Dropped("train.seed", "Trinity has no key for this; its own default applies"),
]
