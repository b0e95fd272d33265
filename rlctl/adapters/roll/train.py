"""ROLL: how the policy, the critic and the reference are trained and held.

ROLL has a critic if, and only if, the advantage is gae. It trains it for one pass over a step's responses whatever ``ppo_epochs``
says, on one mini-batch of its own size. The reference is a worker of its own, with its own strategy, even where nothing of it
differs from the policy.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from rlctl.adapters.engine.one_sided_rows import FollowsFrom, ReadOnly, WriteOnly
from rlctl.adapters.engine.rules import (
    ABSENT,
    NO_KEY,
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
)
from rlctl.adapters.engine.values import DTYPES
from rlctl.adapters.roll.model import ATTENTION
from rlctl.adapters.roll.numbers import shuffled_by_seed
from rlctl.adapters.roll.strategies import always_offloads, engine, named, sizes, unsharded
from rlctl.adapters.roll.training_engine import training, types_of
from rlctl.adapters.roll.workers import (
    MEGATRON,
    data_parallel,
    engine_written,
    has_critic,
    has_reference,
    largest_divisor,
    ranks,
    responses_of,
    strategy,
    trains_critic,
)
from rlctl.common.errors import PlanError
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.planning import arithmetic

A, C, REF = "actor_train", "critic", "reference"


def forward_micro(worker: str, to: str, wanted: Any, follows: tuple[str, ...]) -> CustomRule:
    """The micro-batch of passes without gradients: responses, or tokens where the worker batches by length."""
    size, switch = f"{worker}.infer_batch_size", f"{worker}.use_dynamic_batching_in_infer"
    tokens = f"{worker}.max_tokens_per_microbatch_in_infer"

    def read(view: Reading) -> Iterator[Flow]:
        by_tokens = bool(view.get(switch))
        key, other = (tokens, size) if by_tokens else (size, tokens)
        value = view.get(key)
        if not isinstance(value, int) or not _is_there(view, worker):
            yield Flow(view.to(to), None, tuple(view.path(name) for name in (size, switch, tokens)))
            return
        yield Flow(view.to(to), {}, ())
        yield Flow(view.to(f"{to}.unit"), "tokens" if by_tokens else "responses", (view.path(switch),))
        yield Flow(view.to(f"{to}.size"), value, (view.path(key),), same=True)
        yield Flow(
            (),
            None,
            (view.path(other),),
            "dead",
            said("{switch} is {by_tokens}", switch=switch, by_tokens=str(by_tokens).lower()),
        )

    def write(view: Writing) -> Iterator[Out]:
        if not wanted(view):
            return
        place = next(name for name in (to, *follows, "batch.micro_batch") if isinstance(view.get(name), Mapping))
        micro, used = view.get(place), (view.to(f"{place}.unit"), view.to(f"{place}.size"))
        if micro["unit"] == "tokens" and place != "batch.micro_batch":
            yield Flow(view.path(switch), True, used[:1])
            yield Flow(view.path(tokens), micro["size"], used[1:], same=True)
        else:
            count, most = responses_of(view, micro), _most(view, worker)
            note = (
                ""
                if count <= most
                else said("{most} per rank: ROLL's DPO fails if the reference's batch is larger than a step", most=most)
            )
            how: Provenance = "derived" if note else "mapped"
            kept = min(count, most)
            yield Flow(view.path(size), kept, used, how, note, same=kept == micro["size"], always=True)

    own = (DialectKey(size), DialectKey(switch), DialectKey(tokens))
    return CustomRule(
        f"passes of {worker}",
        own,
        (to, f"{to}.unit", f"{to}.size"),
        read,
        write,
        by_key={size: f"{to}.size", switch: f"{to}.unit", tokens: f"{to}.size"},
        why="A switch decides which of two keys holds the size, and a micro-batch that is not set follows others in turn.",
    )


def _most(view: Writing, worker: str) -> int:
    """The pairs of a step that a rank of the reference gets, which ROLL's DPO wants at least a pass of; no limit elsewhere."""
    if worker != REF or view.config.algorithm.objective.choice != "dpo":
        return sys.maxsize
    try:
        return max(1, view.config.batch.prompts_per_step // ranks(view, "reference"))
    except PlanError:
        return 1


def _is_there(view: Reading, worker: str) -> bool:
    return view.written(f"{worker}.strategy_args.strategy_name")


# The critic


def _is_gae(view: Writing) -> bool:
    return view.config.algorithm.advantage.choice == "gae"


def _read_critic_batch(view: Reading) -> Iterator[Flow]:
    keys = [f"{C}.training_args.{name}" for name in ("per_device_train_batch_size", "gradient_accumulation_steps")]
    each, times = (view.get(key) for key in keys)
    used = tuple(view.path(key) for key in keys)
    count = data_parallel(view, C)
    if not isinstance(each, int) or not isinstance(times, int):
        return
    yield Flow(view.to("critic.micro_batch"), {}, ())
    yield Flow(view.to("critic.micro_batch.unit"), "responses", ())
    yield Flow(view.to("critic.micro_batch.size"), each, used[:1], same=True)
    note = said("{each} per rank x {times} accumulated x {count} ranks", each=each, times=times, count=count or 1)
    yield Flow(view.to("critic.mini_batch_responses"), each * times * (count or 1), used, "derived", note)


def _write_critic_batch(view: Writing) -> Iterator[Out]:
    if not has_critic(view):
        return
    total = view.get("critic.mini_batch_responses") or arithmetic.mini_batch_responses(view.config)
    own = isinstance(view.get("critic.micro_batch"), Mapping)
    place = "critic.micro_batch" if own else "batch.micro_batch"
    used = (view.to("critic.mini_batch_responses"), view.to(f"{place}.size"), view.to(f"{place}.unit"))
    try:
        count = ranks(view, "critic")
    except PlanError as error:
        yield Inexpressible(used, str(error))
        return
    share, rest = divmod(total, count)
    if rest or not share:
        near = arithmetic.nearest_multiples(total, count)
        yield Inexpressible(
            used[:1],
            said(
                "{total} responses cannot be shared evenly by {count} ranks of the critic; {near} responses can",
                total=total,
                count=count,
                near=near,
            ),
        )
        share = max(1, share)
    each = largest_divisor(share, responses_of(view, view.get(place)))
    t = f"{C}.training_args."
    yield Flow(view.path(f"{t}per_device_train_batch_size"), each, used[1:], "derived", always=True)
    note = said("{total} responses / ({each} per rank x {count} ranks)", total=total, each=each, count=count)
    yield Flow(view.path(f"{t}gradient_accumulation_steps"), share // each, used[:1], "derived", note, always=True)


def _read_critic_model(view: Reading) -> Iterator[Flow]:
    keys = (f"{C}.model_args.model_name_or_path", "reward_pretrain")
    key = keys[0] if view.get(keys[0]) else keys[1]
    path, used = view.get(key), (view.path(key),)
    policys = (view.get("pretrain"), view.get(f"{A}.model_args.model_name_or_path"))
    if path is None or path in policys:
        yield Flow(view.to("critic.model"), None, used, "mapped", "the same as the policy's")
        return
    yield Flow(view.to("critic.model"), {}, used)
    yield Flow(view.to("critic.model.path"), path, used, same=True)
    if key == keys[0]:
        yield Flow((), None, (view.path(keys[1]),), "dead", said("{key} decides", key=key))


def _write_critic_model(view: Writing) -> Iterator[Out]:
    if not has_critic(view):
        return
    own = "critic.model.path" if view.get("critic.model.path", "") else "model.path"
    note = "" if own.startswith("critic") else "the same as the policy's"
    yield Flow(view.path("reward_pretrain"), view.get(own), (view.to(own),), note=note, same=True, always=True)
    note = "a value head on the language model"
    yield Flow(view.path(f"{C}.model_args.model_type"), "trl", (view.to("critic"),), "derived", note, always=True)


CRITIC: list[Rule] = [
    FollowsFrom(
        "critic",
        reads=lambda view: {} if trains_critic(view) else None,
        writes=lambda view: {} if _is_gae(view) else None,
        reason="ROLL has a critic if, and only if, the advantage is gae",
        formula="adv_estimator gae",
    ),
    CustomRule(
        "critic model",
        (
            DialectKey("reward_pretrain"),
            DialectKey(f"{C}.model_args.model_name_or_path"),
            DialectKey(f"{C}.model_args.model_type"),
        ),
        ("critic.model", "critic.model.path"),
        _read_critic_model,
        _write_critic_model,
        by_key={
            "reward_pretrain": "critic.model.path",
            f"{C}.model_args.model_name_or_path": "critic.model.path",
        },
        why="Two keys name its weights, null means the policy's, and a run with a critic names the kind of its head too.",
    ),
    *training(C, "critic"),
    *always_offloads(C, "critic.engine"),
    CustomRule(
        "critic mini-batch",
        (
            DialectKey(f"{C}.training_args.per_device_train_batch_size"),
            DialectKey(f"{C}.training_args.gradient_accumulation_steps"),
        ),
        ("critic.mini_batch_responses", "critic.micro_batch", "critic.micro_batch.unit", "critic.micro_batch.size"),
        _read_critic_batch,
        _write_critic_batch,
        "per_device_train_batch_size x gradient_accumulation_steps x ranks = responses",
        by_key={
            f"{C}.training_args.per_device_train_batch_size": (
                "critic.micro_batch.size",
                "critic.mini_batch_responses",
            ),
            f"{C}.training_args.gradient_accumulation_steps": "critic.mini_batch_responses",
        },
        why="The product of both keys and the critic's ranks is its mini-batch, and has to divide when it is written.",
    ),
    forward_micro(C, "critic.forward_micro_batch", has_critic, ("critic.micro_batch", "batch.log_prob_micro_batch")),
    Key("value_clip", "critic.value_loss.clip"),
    Dropped(
        "critic.ppo_epochs", "ROLL trains its critic for one epoch per step, whatever ppo_epochs is", 1, matters=True
    ),
    Dropped(
        "critic.value_loss.aggregation",
        "ROLL averages over tokens and then over responses",
        "seq_mean_token_mean",
        matters=True,
    ),
    Dropped("critic.value_loss.coefficient", "ROLL's critic has its own optimizer, so its loss has no weight"),
    Dropped("critic.shuffle", "ROLL always shuffles responses over mini-batches", True, matters=True),
    shuffled_by_seed("critic.shuffle_seed"),
    Dropped("critic.model.**", NO_KEY),
]


# The reference


@record
class Following(Rule):
    """The reference's strategy: its own rules where its engine is said, else the sizes of the policy's."""

    own: tuple[Rule, ...]
    policys: tuple[Rule, ...]

    @cached_property
    def keys(self) -> tuple[DialectKey, ...]:
        return tuple(key for rule in self.own for key in rule.keys)

    @property
    def canonical(self) -> tuple[str, ...]:
        return ("reference.engine", *(name for rule in self.own for name in rule.canonical))

    @property
    def pairs(self) -> Iterable[tuple[DialectKey, str]]:
        return (pair for rule in self.own for pair in rule.pairs)

    def read(self, view: Reading) -> Iterator[Flow]:
        there = _is_there(view, REF)
        yield Flow(view.to("reference.engine"), {} if there else None, ())
        for rule in self.own if there else ():
            yield from rule.read(view)

    def write(self, view: Writing) -> Iterator[Out]:
        said = isinstance(view.get("reference.engine"), Mapping)
        for rule in self.own if said else self.policys if has_reference(view) else ():
            yield from rule.write(view)
        if not said:
            reason = "ROLL always moves an idle reference to CPU memory"
            yield Inexpressible((view.to("reference.engine"),), reason, idle=True)


def _read_types(view: Reading) -> Iterator[Flow]:
    if not _is_there(view, REF):
        yield Flow(view.to("reference.precision"), None, ())
        return
    (_, compute, _), (_, keys, _) = types_of(view, REF)
    used = tuple(view.path(key) for key in keys)
    if f"{REF}.model_args.dtype" not in keys:
        yield Flow((), None, (view.path(f"{REF}.model_args.dtype"),), "dead", "FSDP2 uses strategy_config.param_dtype")
    if compute == types_of(view, A)[0][1]:
        yield Flow(view.to("reference.precision"), None, used, "mapped", "the same as the policy's")
        return
    yield Flow(view.to("reference.precision"), {}, used)
    for kind in ("parameters", "compute"):
        yield Flow(view.to(f"reference.precision.{kind}"), compute, used)


def _write_types(view: Writing) -> Iterator[Out]:
    if not has_reference(view):
        own = view.get("reference.precision")
        kinds = [view.to(f"reference.precision.{kind}") for kind in own] if isinstance(own, Mapping) else []
        yield Flow((), None, (view.to("reference.precision"), *kinds), "derived", "no KL penalty uses a reference")
        return
    root = "reference.precision" if isinstance(view.get("reference.precision"), Mapping) else "train.precision"
    kept, compute = view.get(f"{root}.parameters"), view.get(f"{root}.compute")
    used = (view.to(f"{root}.compute"),)
    to = "reference.engine" if isinstance(view.get("reference.engine"), Mapping) else "train.engine"
    yield Flow(view.path(f"{REF}.model_args.dtype"), DTYPES.write(compute, view), used, always=True)
    if engine_written(view, to) == "fsdp2" and compute != "bfloat16" and not unsharded(view, to):
        key = f"{REF}.strategy_args.strategy_config.param_dtype"
        yield Flow(view.path(key), DTYPES.write(compute, view), used)
    if root == "reference.precision":
        same = kept == compute or (kept, compute) == ("float32", "bfloat16")
        places = (view.to(f"{root}.parameters"), view.to(f"{root}.reduce"))
        yield Flow((), None, places[1:], "mapped", "a reference has no gradients")
        if same:
            yield Flow((), None, places[:1], "derived", "a reference keeps its weights in its compute dtype")
        else:
            yield Inexpressible(
                places[:1], said("ROLL's reference keeps its weights in its compute dtype, {compute}", compute=compute)
            )


# Its attention is the policy's; another is said to be unsupported by the notes.


def _is_megatron(view: Reading) -> bool:
    return strategy(view, REF) in MEGATRON


def _is_policys(view: Reading) -> bool:
    return strategy(view, A) in MEGATRON or view.get(ATTENTION_KEY) == view.get(f"{A}.model_args.attn_implementation")


def _writes_attention(view: Writing) -> bool:
    to = "reference.engine" if isinstance(view.get("reference.engine"), Mapping) else "train.engine"
    named = view.get("model.attention") in ("sdpa", "flash_attention_2")
    return named and has_reference(view) and engine_written(view, to) == "fsdp2"


ATTENTION_KEY = f"{REF}.model_args.attn_implementation"
ATTENTION_RULES: list[Rule] = [
    ReadOnly(
        ATTENTION_KEY,
        lambda view: (
            "Megatron chooses the attention implementation itself" if _is_megatron(view) else "the same as the policy's"
        ),
        when=lambda view: _is_megatron(view) or _is_policys(view),
        dead=_is_megatron,
    ),
    WriteOnly(
        "model.attention",
        _writes_attention,
        key=ATTENTION_KEY,
        value=lambda view: ATTENTION.write(view.get("model.attention"), view),
        how="mapped",
    ),
]


_types = tuple(
    DialectKey(f"{REF}.{name}", ABSENT)
    for name in (
        "model_args.dtype",
        *(
            f"{block}.{kind}"
            for block in ("training_args", "strategy_args.strategy_config")
            for kind in ("bf16", "fp16")
        ),
        "strategy_args.strategy_config.param_dtype",
        "strategy_args.strategy_config.reduce_dtype",
    )
)
ENGINE = engine(REF, "reference.engine", infers=True, default=ABSENT)
REFERENCE: list[Rule] = [
    Following(
        (
            *(rule for rule in ENGINE if not isinstance(rule, Dropped)),
            *always_offloads(REF, "reference.engine", infers=True),
        ),
        (named(REF, "train.engine", infers=True, default=ABSENT), *sizes(REF, "train.engine")),
    ),
    *(rule for rule in ENGINE if isinstance(rule, Dropped)),
    CustomRule(
        "number types of the reference",
        _types,
        ("reference.precision", *(f"reference.precision.{kind}" for kind in ("parameters", "compute", "reduce"))),
        _read_types,
        _write_types,
        by_key={
            key.name: ("reference.precision.parameters", "reference.precision.compute")
            for key in _types
            if not key.name.endswith("reduce_dtype")
        },
        why="They are the policy's types unless they differ, made from other keys for each strategy.",
    ),
    *ATTENTION_RULES,
    forward_micro(REF, "reference.micro_batch", has_reference, ("batch.log_prob_micro_batch",)),
    Dropped("reference.compile", "ROLL does not use torch.compile", None, idle=True),
    Dropped("reference.model.**", NO_KEY),
]

POLICY: list[Rule] = [*training(A, "train")]
OFFLOADS: list[Rule] = always_offloads(A, "train.engine")
"""What reinforcement learning does unasked; distillation and DPO ask with ``is_offload_states``."""
RULES: list[Rule] = [*POLICY, *OFFLOADS, *REFERENCE, *CRITIC]
