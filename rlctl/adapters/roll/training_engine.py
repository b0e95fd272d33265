"""ROLL: what makes a worker train: strategy, optimizer, schedule, number types, memory; one call of ``training`` a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rlctl.adapters.engine.combined_rows import Items
from rlctl.adapters.engine.conditions import always, every, has, negated
from rlctl.adapters.engine.one_sided_rows import FollowsFrom, WriteOnly
from rlctl.adapters.engine.rules import (
    Absent,
    Calculation,
    Computed,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    InexpressibleError,
    Key,
    Out,
    Reading,
    Rule,
    Same,
    When,
    Writing,
    converted,
)
from rlctl.adapters.engine.values import DTYPES, IfWritten, Names, Not, NullReads, Off
from rlctl.adapters.engine.weight_decay import norms_and_biases
from rlctl.adapters.roll.strategies import (
    engine,
    is_engine,
    is_strategy,
)
from rlctl.adapters.roll.warmup import ticks, warmup
from rlctl.adapters.roll.workers import DEEPSPEED, FSDP2, MEGATRON, engine_written, strategy
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.planning.models import read_shape

HF_SCHEDULES = Names(
    {
        "linear": "linear",
        "cosine": "cosine",
        "constant": "constant",
        "constant_with_warmup": "constant",
        "inverse_sqrt": "inverse_sqrt",
        "polynomial": "polynomial",
    },
    "ROLL's FSDP2 supports only the Transformers schedules that need no arguments",
)
MEGATRON_SCHEDULES = Names(
    {
        "linear": "linear",
        "cosine": "cosine",
        "constant": "constant",
        "constant_with_warmup": "constant",
        "inverse_sqrt": "inverse_sqrt",
        "warmup_stable_decay": "wsd",
        "cosine_with_min_lr": "cosine",
        "cosine_warmup_with_min_lr": "cosine",
    },
    "Megatron has no such schedule",
)

# Optimizer and schedule


def optimizer(worker: str, to: str) -> list[Rule]:
    """The optimizer of a training worker. The gradient limit is one key for all of them."""
    t, s, c = f"{worker}.training_args.", f"{worker}.strategy_args.strategy_config.", f"{to}.optimizer."
    return [
        Key(f"{t}learning_rate", f"{c}lr", always=True),
        Key(f"{t}weight_decay", f"{c}weight_decay"),
        Items(
            (DialectKey(f"{t}adam_beta1"), DialectKey(f"{t}adam_beta2")),
            f"{c}betas",
            "betas = [adam_beta1, adam_beta2]",
        ),
        _clip(to),
        When(
            (
                # 2026.8 mcore_adapter/training_args.py, TrainingArguments: that of Transformers
                Key(f"{s}adam_epsilon", f"{c}epsilon", 1e-8),
                # 2026.8 mcore_adapter/training_args.py, MegatronArguments
                Key(
                    f"{s}optimizer",
                    f"{c}type",
                    "adam",
                    Names({"adam": "adamw", "sgd": "sgd"}, "Megatron supports adam and sgd"),
                ),
            ),
            is_strategy(MEGATRON, worker),
            is_engine("megatron", f"{to}.engine"),
            "only for the Megatron strategy",
        ),
        norms_and_biases(c.removesuffix("."), is_strategy(MEGATRON, worker), is_engine("megatron", f"{to}.engine")),
        *[
            Dropped(f"{c}{name}", reason)
            for name, reason in (
                ("type", "ROLL's FSDP2 trains with AdamW"),
                ("epsilon", "ROLL's FSDP2 uses 1e-8"),
                ("module", "ROLL's strategy decides the optimizer"),
                ("weight_decay_style", "ROLL's weight decay is constant"),
                ("start_weight_decay", "ROLL's weight decay is constant"),
                ("end_weight_decay", "ROLL's weight decay is constant"),
                ("args", "ROLL passes a fixed set of arguments to the optimizer"),
            )
        ],
    ]


def _clip(to: str) -> Rule:
    """``max_grad_norm``, which the critic shares with the policy."""
    own = f"{to}.optimizer.max_grad_norm"
    if to == "train":
        return Key("max_grad_norm", own, convert=Off(0.0))
    policys = "train.optimizer.max_grad_norm"
    return FollowsFrom(
        own,
        reads=lambda view: Off(0.0).read(view.get("max_grad_norm"), view),
        writes=lambda view: view.get(policys),
        reason=lambda view: said(
            "ROLL has one max_grad_norm for all roles. Wrote the policy's, {policys}", policys=view.get(policys)
        ),
        note="the same as the policy's",
        of=(DialectKey("max_grad_norm"),),
    )


def schedule(worker: str, to: str) -> list[Rule]:
    """How the learning rate of a training worker moves: once an optimizer step."""
    c = f"{to}.lr_scheduler."
    kwargs = f"{worker}.strategy_args.strategy_config.lr_scheduler_kwargs."
    floor = _floor(worker, to, kwargs)
    return [
        Key(
            f"{worker}.training_args.lr_scheduler_type",
            f"{c}type",
            convert=Schedules(worker=worker, to=to),
            always=True,
        ),
        When(
            (warmup(worker, to),),
            lambda view: not _never_warms(view, worker),
            lambda view: True,
            "Transformers' constant schedule has no warm-up; constant_with_warmup has",
        ),
        When(
            (
                Key(f"{kwargs}init_lr", f"{c}warmup_start_lr"),
                floor,
                ticks(f"{kwargs}lr_decay_steps", f"{c}decay_steps"),
                ticks(f"{kwargs}wsd_decay_steps", f"{c}wsd_decay_steps"),
                Key(
                    f"{kwargs}lr_wsd_decay_style",
                    f"{c}wsd_decay_style",
                    convert=NullReads("exponential"),
                    write_when=_has_type(c, "wsd"),
                ),
            ),
            is_strategy(MEGATRON, worker),
            is_engine("megatron", f"{to}.engine"),
            "ROLL's FSDP2 passes no arguments to the learning-rate schedule",
        ),
        *_ends(to),
        Dropped(
            f"{c}step_unit",
            "ROLL's schedule counts optimizer steps; step counts are multiplied",
            "optimizer_step",
        ),
        *[
            Dropped(f"{c}{name}", reason)
            for name, reason in (
                ("decay_steps", "ROLL's FSDP2 schedules end with the run"),
                ("wsd_decay_steps", "only Megatron has this schedule"),
                ("wsd_decay_style", "only Megatron has this schedule"),
                ("num_cycles", "ROLL's cosine always spans half a period"),
                ("total_steps", "ROLL's schedule is as long as the run"),
                ("restore_from_checkpoint", "ROLL loads the schedule from the checkpoint"),
            )
        ],
    ]


def _ends(to: str) -> list[Rule]:
    """Where FSDP2's schedule begins and ends, which is 0 for all that move."""
    c = f"{to}.lr_scheduler."
    begins, ends = f"{c}warmup_start_lr", (f"{c}min_lr_ratio", f"{c}min_lr")
    fsdp2, rests = negated(_megatron_writes(to)), _has_type(c, "constant")

    def warms(view: Writing) -> bool:
        return bool(view.get(f"{c}warmup_steps") or view.get(f"{c}warmup_ratio"))

    starts = every(fsdp2, has(begins))
    return [
        WriteOnly(begins, every(starts, warms), lost="ROLL's FSDP2 warms up from 0"),
        WriteOnly(begins, every(starts, negated(warms)), lost="there is no warm-up", idle=True),
        *[WriteOnly(end, every(fsdp2, rests), lost="a constant rate does not decay", idle=True) for end in ends],
        *[
            WriteOnly(end, every(fsdp2, negated(rests), has(end)), lost="ROLL's FSDP2 schedules decay to 0")
            for end in ends
        ],
    ]


def _has_type(c: str, name: str) -> Callable[[Writing], bool]:
    return lambda view: bool(view.get(f"{c}type") == name)


@record
class Schedules(Calculation):
    """The schedule's name, by the names that the strategy knows."""

    worker: str = ""
    to: str = ""

    def read(self, value: Any, view: Reading) -> Any:
        return (MEGATRON_SCHEDULES if strategy(view, self.worker) in MEGATRON else HF_SCHEDULES).read(value, view)

    def write(self, value: Any, view: Writing) -> Any:
        megatron = engine_written(view, f"{self.to}.engine") == "megatron"
        try:
            raw = (MEGATRON_SCHEDULES if megatron else HF_SCHEDULES).write(value, view)
        except InexpressibleError as error:
            raise InexpressibleError(said("{error}. Wrote its default, linear", error=error)) from error
        warms = any(view.get(f"{self.to}.lr_scheduler.warmup_{name}") for name in ("steps", "ratio"))
        return "constant_with_warmup" if raw == "constant" and not megatron and warms else raw


def _never_warms(view: Reading, worker: str) -> bool:
    return (
        view.get(f"{worker}.training_args.lr_scheduler_type") == "constant" and strategy(view, worker) not in MEGATRON
    )


def _floor(worker: str, to: str, kwargs: str) -> CustomRule:
    """The lowest learning rate, which Megatron takes as a number: a share is multiplied by the peak."""
    key, c = f"{kwargs}min_lr", f"{to}.lr_scheduler."

    def read(view: Reading) -> Iterator[Flow]:
        if view.written(key):
            yield Flow(view.to(f"{c}min_lr"), view.get(key), (view.path(key),), same=True)

    def write(view: Writing) -> Iterator[Out]:
        lowest, share = view.get(f"{c}min_lr"), view.get(f"{c}min_lr_ratio")
        used = (view.to(f"{c}min_lr"), view.to(f"{c}min_lr_ratio"))
        peak = view.get(f"{to}.optimizer.lr")
        if isinstance(lowest, (int, float)):
            yield Flow(view.path(key), lowest, used[:1], same=True)
        elif share:
            yield Flow(
                view.path(key), share * peak, used[1:], "derived", said("{share:g} x {peak:g}", share=share, peak=peak)
            )
        elif view.get(f"{c}type") == "constant":
            yield Inexpressible(used[1:], "a constant rate does not decay", idle=True)

    fills = (f"{c}min_lr", f"{c}min_lr_ratio")
    return CustomRule(
        f"lowest rate of {worker}",
        (DialectKey(key),),
        fills,
        read,
        write,
        "min_lr_ratio x lr",
        why="A share of the peak is written as the rate itself, and a schedule that never decays has neither.",
    )


# Number types


def precision(worker: str, to: str) -> CustomRule:
    """Number types. Megatron keeps float32 masters of a half-precision model; FSDP2 keeps none where ``param_dtype`` is set."""
    m, t, s = f"{worker}.model_args.dtype", f"{worker}.training_args.", f"{worker}.strategy_args.strategy_config."
    c = f"{to}.precision."
    kinds = ("parameters", "compute", "reduce")
    own = (
        DialectKey(m),
        # 2026.8 configs/training_args.py, TrainingArguments; configs/worker_config.py sets it where dtype is bf16
        DialectKey(f"{t}bf16", False),
        DialectKey(f"{t}fp16"),
        *(DialectKey(f"{s}{name}") for name in ("bf16", "fp16", "param_dtype")),
        # 2026.8 mcore_adapter/training_args.py, MegatronArguments
        DialectKey(f"{s}accumulate_allreduce_grads_in_fp32", False),
        # 2026.8 distributed/strategy/fsdp2_strategy.py
        DialectKey(f"{s}reduce_dtype", "fp32"),
    )

    def read(view: Reading) -> Iterator[Flow]:
        values, used = types_of(view, worker)
        for kind, value, keys in zip(kinds, values, used, strict=True):
            yield Flow(view.to(f"{c}{kind}"), value, tuple(view.path(key) for key in keys))
        if strategy(view, worker) in FSDP2:
            yield Flow((), None, (view.path(m),), "dead", "FSDP2 uses strategy_config.param_dtype")

    def write(view: Writing) -> Iterator[Out]:
        if not isinstance(view.get(f"{c}compute"), Absent):
            yield from write_types(view, worker, c, engine_written(view, f"{to}.engine") == "megatron")

    return CustomRule(
        f"number types of {worker}",
        own,
        tuple(f"{c}{kind}" for kind in kinds),
        read,
        write,
        by_key={
            **{key.name: f"{c}compute" for key in own},
            f"{s}param_dtype": (f"{c}parameters", f"{c}compute"),
            f"{s}accumulate_allreduce_grads_in_fp32": f"{c}reduce",
            f"{s}reduce_dtype": f"{c}reduce",
        },
        why="Each strategy makes the three types of parameters, computation and reduction from other keys, several together.",
    )


def types_of(view: Reading, worker: str) -> tuple[tuple[str, str, str], tuple[tuple[str, ...], ...]]:
    """Types of parameters, computation and reduction in effect, with the keys that each comes from."""
    m, t, s = f"{worker}.model_args.dtype", f"{worker}.training_args.", f"{worker}.strategy_args.strategy_config."
    name = strategy(view, worker)
    said = view.get(m) or "bf16"
    dtype = str(converted(DTYPES, said, view, m))
    if name in MEGATRON:
        half = {kind: view.get(f"{s}{kind}", view.get(f"{t}{kind}") or said == kind) for kind in ("fp16", "bf16")}
        compute = "float16" if half["fp16"] else "bfloat16" if half["bf16"] else "float32"
        full = half["bf16"] or view.get(f"{s}accumulate_allreduce_grads_in_fp32", False)
        used = (m, *(f"{place}{kind}" for place in (t, s) for kind in ("bf16", "fp16")))
        return ("float32", compute, "float32" if full else compute), (
            (),
            used,
            (f"{s}accumulate_allreduce_grads_in_fp32",),
        )
    if name in FSDP2:
        first = "bfloat16" if name == "fsdp2_infer" else "float32"
        both = view.get(f"{s}param_dtype")
        kept = str(converted(DTYPES, both, view, f"{s}param_dtype")) if both else ""
        reduce = str(converted(DTYPES, view.get(f"{s}reduce_dtype") or "fp32", view, f"{s}reduce_dtype"))
        return (kept or first, kept or "bfloat16", reduce), (
            (f"{s}param_dtype",),
            (f"{s}param_dtype",),
            (f"{s}reduce_dtype",),
        )
    if name in DEEPSPEED:
        return ("float32", dtype, "float32"), ((), (m,), ())
    return (dtype, dtype, "float32"), ((m,), (m,), ())


def write_types(view: Writing, worker: str, c: str, megatron: bool) -> Iterator[Out]:
    """The keys that give these types."""
    s = f"{worker}.strategy_args.strategy_config."
    kept, compute, reduce = (view.get(f"{c}{kind}") for kind in ("parameters", "compute", "reduce"))
    used = tuple(view.to(f"{c}{kind}") for kind in ("parameters", "compute", "reduce"))
    yield Flow(view.path(f"{worker}.model_args.dtype"), DTYPES.write(compute, view), used[1:2], always=True)
    if megatron:
        if kept != "float32":
            yield Inexpressible(used[:1], "Megatron keeps float32 masters of the weights")
        if compute == "bfloat16" and reduce != "float32":
            yield Inexpressible(used[2:], "ROLL's Megatron reduces gradients in float32 if it computes in bfloat16")
        elif compute == "float16":
            yield Flow(view.path(f"{s}accumulate_allreduce_grads_in_fp32"), reduce == "float32", used[2:])
        return
    if kept == compute:
        yield Flow(view.path(f"{s}param_dtype"), DTYPES.write(kept, view), used[:2])
    elif (kept, compute) == ("float32", "bfloat16"):
        yield Flow((), None, used[:2], "mapped", "FSDP2's behavior without param_dtype")
    else:
        yield Flow(view.path(f"{s}param_dtype"), DTYPES.write(compute, view), used[1:2])
        yield Inexpressible(
            used[:1], said("ROLL's FSDP2 keeps the weights in its compute dtype, {compute}", compute=compute)
        )
    yield Flow(view.path(f"{s}reduce_dtype"), DTYPES.write(reduce, view), used[2:])


# What is given up to save memory


@record
class Reentrant(Same):
    """Whether the recomputation is reentrant, where null is true for a mixture of experts that Megatron does not train.

    2026.8 models/model_providers.py, load_model
    """

    worker: str = ""

    def read(self, value: Any, view: Reading) -> Any:
        key = f"{self.worker}.model_args.gradient_checkpointing_use_reentrant"
        if view.written(key) and value is not None:
            return value
        model = view.get(f"{self.worker}.model_args.model_name_or_path") or view.get("pretrain")
        if strategy(view, self.worker) in MEGATRON or not _has_experts(model):
            return False
        return Computed(True, "ROLL's default for a mixture of experts")

    def write(self, value: Any, view: Writing) -> Any:
        return Computed(value, how="mapped", always=_has_experts(view.config.model.path), same=True)


def _has_experts(model: object) -> bool:
    """Whether rlctl knows a model, and it is a mixture of experts."""
    shape = read_shape(model) if isinstance(model, str) and model else None
    return shape is not None and shape.experts > 0


def memory(worker: str, to: str) -> list[Rule]:
    """Memory against time."""
    m, c = f"{worker}.model_args.", f"{to}.memory."
    return [
        *_recompute(worker, to),
        # 2026.8 models/model_providers.py, load_model: what null, the default, is for a dense model
        Key(f"{m}gradient_checkpointing_use_reentrant", f"{c}recompute_reentrant", False, Reentrant(worker=worker)),
        *_padding(worker, to),
        *[
            Dropped(f"{c}{name}", reason, idle=True)
            for name, reason in (
                ("offload_activations", "ROLL cannot offload activations"),
                ("entropy_chunked", "ROLL does not compute the entropy in chunks"),
                ("entropy_recompute", "ROLL does not recompute the entropy's activations"),
                ("empty_cache", "ROLL always empties the cache between phases"),
            )
        ],
        Dropped(f"{to}.fused_kernels.**", "ROLL has no fused kernels", idle=True),
        Dropped(f"{to}.compile", "ROLL does not use torch.compile", idle=True),
        Dropped(f"{to}.seed", "ROLL seeds every role with seed", None),
    ]


def _recompute(worker: str, to: str) -> list[Rule]:
    """Gradient checkpointing: a key of its own beside FSDP2, Megatron's granularity there."""
    own, granularity = f"{to}.memory.recompute_activations", f"{to}.engine.recompute_granularity"
    theirs = f"{worker}.strategy_args.strategy_config.recompute_granularity"
    trains, writes = is_strategy(MEGATRON, worker), _megatron_writes(to)
    note = "Megatron uses recompute_granularity"

    def does(view: Writing) -> bool:
        return bool(view.get(granularity) != "none" if view.explicit(own) else view.get(own))

    by_granularity = FollowsFrom(
        own,
        reads=lambda view: Computed(bool(view.get(theirs)), "follows from recompute_granularity"),
        writes=does,
        reason=note,
        note=note,
        idle=always,
        of=(DialectKey(theirs),),
    )
    key = Key(f"{worker}.model_args.disable_gradient_checkpointing", own, convert=Not())
    return [When((by_granularity,), trains, writes, ""), When((key,), negated(trains), negated(writes), note)]


def _padding(worker: str, to: str) -> list[Rule]:
    """Whether padding is computed: Megatron packs sequences where it is told to, FSDP2 never does."""
    key, own = f"{worker}.use_sequence_packing", f"{to}.packing"
    writes = _megatron_writes(to)

    def refuses(view: Writing) -> bool:
        return bool(view.get(own)) and view.config.algorithm.objective.choice == "dpo"

    return [
        When(
            (Key(key, own, convert=IfWritten(key=key)),),
            is_strategy(MEGATRON, worker),
            every(writes, negated(refuses)),
            "only Megatron supports sequence packing",
        ),
        WriteOnly(own, refuses, lost="ROLL's DPO pipeline refuses use_sequence_packing and pads sequences", idle=True),
        WriteOnly(own, every(negated(writes), negated(refuses)), lost="ROLL's FSDP2 pads sequences", idle=True),
    ]


def _megatron_writes(to: str) -> Callable[[Writing], bool]:
    """Whether Megatron trains a canonical section's model in what is written."""
    return lambda view: engine_written(view, f"{to}.engine") == "megatron"


def training(worker: str, to: str) -> list[Rule]:
    """All that makes a worker train."""
    return [
        *engine(worker, f"{to}.engine"),
        *optimizer(worker, to),
        *schedule(worker, to),
        precision(worker, to),
        *memory(worker, to),
    ]
