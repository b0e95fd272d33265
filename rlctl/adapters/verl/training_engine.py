"""Rules that verl repeats for several roles: training engine and its blocks, micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rlctl.adapters.engine.checkpoint_path import checkpoint
from rlctl.adapters.engine.conditions import before
from rlctl.adapters.engine.rules import (
    ABSENT,
    SAME,
    Absent,
    Converter,
    CustomRule,
    DefaultFrom,
    DialectKey,
    Flow,
    Inexpressible,
    Key,
    Out,
    Provenance,
    Reading,
    Rule,
    Tree,
    When,
    Writing,
    further_type,
    is_further,
    own_name,
)
from rlctl.adapters.engine.values import DTYPES, Listed, Names, Partly
from rlctl.adapters.verl.roles import ACTOR, ENGINE_NAMES, FSDP_KINDS, Role, kind_of_engine
from rlctl.adapters.verl_trainer.fsdp import offloads, sharding
from rlctl.adapters.verl_trainer.megatron import SIZES, bridge, overrides
from rlctl.common.messages.reasons import said
from rlctl.documents.paths import KeyPath


def _raw(engine: Any) -> tuple[Any, bool]:
    """An engine's name in verl, and whether it is the source's own word."""
    if engine["type"] == "fsdp2":
        source = engine.get("source")
        return (source, True) if source in FSDP_KINDS else ("fsdp2", False)
    return own_name(engine["type"], "verl"), True


def _chosen_for_all(view: Writing) -> bool:
    """Whether a config group chooses the engine: since 0.8, for engines other than FSDP that all roles have."""
    engines = (view.get(f"{role}.engine") for role in ("train", "critic", "reference"))
    names = {_raw(engine)[0] for engine in engines if isinstance(engine, Mapping)}
    return view.version >= (0, 8) and len(names) == 1 and names <= {"megatron", "veomni", "torchtitan"}


def strategy(role: str, to: str, *, also: tuple[str, ...] = (), claims: bool = True) -> CustomRule:
    """Which engine trains: ``<role>.strategy``, or the config group that was chosen.

    A role that only follows the group does not claim it, so that the group is accounted for with the policy.
    """
    key = f"{role}.strategy" if role else "strategy"

    def read(view: Reading) -> Iterator[Flow]:
        kind = kind_of_engine(view, key, also)
        used = tuple(view.path(name) for name in (key, *(also if claims else ())))
        if kind in FSDP_KINDS:
            yield Flow(view.to(f"{to}.type"), "fsdp2", used)
            yield Flow(view.to(f"{to}.source"), kind, used)
        elif kind == "megatron":
            yield Flow(view.to(f"{to}.type"), "megatron", used)
        else:
            yield Flow(view.to(f"{to}.type"), further_type("train.engine", str(kind), "verl"), used)

    def write(view: Writing) -> Iterator[Out]:
        engine = view.get(to)
        if not isinstance(engine, Mapping):
            return
        name, own = _raw(engine)
        used = tuple(view.to(f"{to}.{field}") for field in ("type", "source") if field in engine)
        if is_further("train.engine", engine["type"]) and name not in ENGINE_NAMES and name == engine["type"]:
            yield Inexpressible(used, said("verl has no engine {name}", name=name))
        elif "model_engine" not in also or role == "engine" or not _chosen_for_all(view):
            yield Flow(view.path(key), name, used, "mapped" if own else "derived")
        elif claims:
            yield Flow(view.path("model_engine"), name, used)
        else:
            yield Flow((), None, used, "mapped", "model_engine sets it for every role")

    groups = tuple(DialectKey(name, ABSENT) for name in also)
    return CustomRule(
        f"engine of {role}",
        (DialectKey(key), *groups),
        (f"{to}.type", f"{to}.source"),
        read,
        write,
        by_key=dict.fromkeys((key, *(also if claims else ())), (f"{to}.type", f"{to}.source")),
        why="The engine is named by a key of the role, or by a config group that is chosen for every role.",
    )


def fsdp(prefix: str, to: str, *, since: str = "") -> list[Rule]:
    """The keys of an FSDP block."""
    f = f"{prefix}."
    size, *others = sharding(
        prefix,
        to,
        also={"wrap_policy.min_num_params": "min_num_params"},
    )
    return [
        size,
        offloads(prefix, to),
        Key(f"{f}offload_policy", f"{to}.cpu_offload_policy"),
        *others,
        Key(f"{f}wrap_policy.transformer_layer_cls_to_wrap", f"{to}.wrap_layers", ABSENT, Listed()),
        When(
            (Tree(f"{f}turbo_config", f"{to}.source_args", but=("use_orig_params",), both=True),),
            lambda view: True,
            lambda view: view.get(f"{to}.source") != "deepspeed",
            "only for another engine",
        ),
        Key(f"{f}use_orig_params", f"{to}.source_args.use_orig_params", ABSENT, note="FSDP2 always keeps them"),
    ]


def precision(prefix: str, to: str) -> list[Rule]:
    """Number types of an FSDP block."""
    f, c = f"{prefix}.", f"{to}.precision."
    return [
        Key(f"{f}model_dtype", f"{c}parameters", convert=DTYPES),
        Key(
            f"{f}dtype",
            f"{c}compute",
            convert=DTYPES_LONG,
            also=(DialectKey(f"{f}mixed_precision.param_dtype", ABSENT),),
        ),
        # 0.4.1 workers/fsdp_workers.py; 0.9.1 workers/engine/fsdp/transformer_impl.py
        Key(f"{f}mixed_precision.reduce_dtype", f"{c}reduce", "fp32", DTYPES),
    ]


DTYPES_LONG = Names(
    {
        "bfloat16": "bfloat16",
        "float16": "float16",
        "float32": "float32",
        "bf16": "bfloat16",
        "fp16": "float16",
        "fp32": "float32",
    }
)


def megatron(prefix: str, to: str, like: str = "") -> list[Rule]:
    """The keys of a Megatron block."""

    def default(name: str, value: Any) -> Any:
        return DefaultFrom(f"{like}.{name}") if like else value

    def key(name: str, field: str, convert: Converter = SAME, **more: Any) -> Key:
        return Key(f"{prefix}.{name}", f"{to}.{field}", convert=convert, **more)

    null = {"expert_tensor_parallel_size": Partly({None: None, "None": None})}
    return [
        *(key(name, field, null.get(name, SAME)) for name, field in SIZES),
        offloads(prefix, to),
        key("grad_offload", "offload_gradients", write_when=before("0.9")),
        key("use_distributed_optimizer", "distributed_optimizer"),
        checkpoint(
            prefix,
            to,
            "verl",
        ),
        *overrides(
            prefix,
            to,
            (None, None, None, ["core_attn"]),
            default=default,
            like=like,
            modules=Listed(),
            # 0.5.0 workers/megatron_workers.py; 0.4.0 models/mcore/config_converter.py, _get_base_transformer_config
            since=("0.5", "0.4"),
        ),
        bridge(
            prefix,
            to,
        ),
    ]


AS_TRAINED = "verl's log-prob passes use the unit of training; this affects only memory and speed"
STATIC = "verl's Megatron counts responses before 0.4; this affects only memory and speed"


def _counted_otherwise(view: Writing, by: str, size: int, why: str) -> tuple[str, int, str]:
    """A micro-batch in the other unit: the unit, its size and why."""
    longest = view.config.data.max_prompt_tokens + view.config.rollout.max_response_tokens
    if by == "tokens":
        return (
            "responses",
            max(1, size // longest),
            said("{size} tokens / {longest} per sequence; {why}", size=size, longest=longest, why=why),
        )
    return (
        "tokens",
        size * longest,
        said("{size} sequences x {longest} tokens; {why}", size=size, longest=longest, why=why),
    )


def micro_size(view: Reading, dynamic: str, keys: tuple[str, str, str], role: Role) -> tuple[bool, str, Any, str]:
    """Whether a micro-batch counts tokens, the key that holds its size, the size, and how it was computed.

    Args:
        view: the text.
        dynamic: the switch.
        keys: the tokens of a GPU, the responses of a GPU, and those of all GPUs, which may be empty.
        role: whose GPUs share a replica.
    """
    tokens, responses, total = keys
    if view.get(dynamic, False) and not is_static(view, tokens):
        size, factor = view.get(tokens), role.sharers(view)
        note = said("tokens of one GPU x {factor} GPUs of a replica", factor=factor) if factor > 1 else ""
        return True, tokens, size * factor if isinstance(size, int) else size, note
    if view.get(responses) is None and total and view.get(total) is not None:
        ranks = max(1, _devices(view) // role.replica(view))
        return False, total, max(1, int(view.get(total)) // ranks), "divided by the replicas"
    return False, responses, view.get(responses), ""


def is_static(view: Reading, tokens: str) -> bool:
    """Whether a composition has no number of tokens, so that its micro-batches count responses: Megatron's in 0.3."""
    return not view.written(tokens) and isinstance(view.default(DialectKey(tokens)), Absent)


def unread_sizes(view: Reading, dynamic: str, keys: Sequence[str], deciding: str) -> Flow:
    """The sizes that the switch leaves unread."""
    counts_tokens = bool(view.get(dynamic, False))
    reason = said("{dynamic} is {counts_tokens}", dynamic=dynamic, counts_tokens=str(counts_tokens).lower())
    return Flow((), None, tuple(view.path(key) for key in keys if key and key != deciding), "dead", reason)


def micro(
    to: str,
    *,
    dynamic: str,
    tokens: str,
    responses: str,
    total: str = "",
    like: Mapping[str, str] | None = None,
    role: Role | None = None,
    passes: Callable[[Writing], bool] | None = None,
) -> CustomRule:
    """A micro-batch: a switch, a number of tokens a GPU, a number of sequences a GPU.

    Args:
        to: the canonical section.
        dynamic: the switch.
        tokens: the number of tokens.
        responses: the number of sequences.
        total: an older key for the sequences of all GPUs.
        like: the actor's keys that a log-prob pass follows; verl refuses a pass that counts otherwise than training.
        role: whose GPUs share a replica.
        passes: of a log-prob pass of the actor or the reference, whether a config has it.
    """
    follow = like or {}
    owner, keys = role or ACTOR, (tokens, responses, total)

    def read(view: Reading) -> Iterator[Flow]:
        if follow and not view.written(*(key for key in (dynamic, tokens, responses, total) if key)):
            yield Flow(view.to(to), None, ())
            return
        counts_tokens, deciding, size, note = micro_size(view, dynamic, keys, owner)
        yield unread_sizes(view, dynamic, keys, deciding)
        switch: tuple[KeyPath, ...] = (view.path(dynamic),)
        used = (view.path(deciding),)
        if is_static(view, tokens):
            yield Flow((), None, switch, "dead", STATIC)
            switch = ()
        if size is None:
            why = "verl requires a micro-batch size. Wrote rlctl's default"
            both = (*switch, *used)
            yield Flow(view.to(to), None, both) if follow else Flow((), None, both, "mapped", why)
            return
        if follow:
            yield Flow(view.to(to), {}, (*switch, *used))
        yield Flow(view.to(f"{to}.unit"), "tokens" if counts_tokens else "responses", switch)
        yield Flow(view.to(f"{to}.size"), size, used, "derived" if note else "mapped", note)

    def write(view: Writing) -> Iterator[Out]:
        section, trained = view.get(to), view.get("batch.micro_batch")
        if follow and section is None and trained["unit"] == "responses" and (passes is None or passes(view)):
            note = "the micro-batch size of training. verl requires one without dynamic batching"
            yield Flow(view.path(responses), trained["size"], (view.to(to),), "derived", note, always=True)
        if not isinstance(section, Mapping):
            return
        by, size, note = section["unit"], section["size"], ""
        places = (view.to(f"{to}.unit"), view.to(f"{to}.size"))
        if passes is not None and by != trained["unit"]:
            by, size, note = _counted_otherwise(view, by, size, AS_TRAINED)
        if by == "tokens" and not view.has(DialectKey(tokens)) and view.has(DialectKey(responses)):
            by, size, note = _counted_otherwise(view, by, size, STATIC)
        yield Flow(view.path(dynamic), by == "tokens", places[:1], "derived" if note else "mapped", note)
        if by == "tokens":
            factor = owner.sharers_written(view)
            how: Provenance = "derived" if factor > 1 or note else "mapped"
            yield Flow(view.path(tokens), max(1, size // factor), places[1:], how, note)
        else:
            yield Flow(view.path(responses), size, places[1:], "derived" if note else "mapped", note, same=not note)

    own = (
        DialectKey(dynamic, takes=bool),
        DialectKey(tokens),
        DialectKey(responses),
        *((DialectKey(total),) if total else ()),
    )
    return CustomRule(
        f"micro-batch {to}",
        own,
        (to, f"{to}.unit", f"{to}.size"),
        read,
        write,
        "tokens a GPU x GPUs of a replica",
        by_key={key.name: f"{to}.unit" if key.name == dynamic else f"{to}.size" for key in own},
        why="A switch says which of three numbers counts, and each of them is counted per GPU or per replica.",
    )


def _devices(view: Reading) -> int:
    return int(view.get("trainer.nnodes", 1)) * int(view.get("trainer.n_gpus_per_node", 8))
