"""What the shape of a model allows: the sizes by which engines can split its heads, its MLP and its experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.requirements import NEAREST, Remedy, Requirement, Values
from rlctl.common.messages.reasons import said
from rlctl.planning.models import ModelShape, read_shape

Fault = Callable[[ModelShape, int], str]
"""What of a model a size does not divide, as ``28 attention heads``; empty if it divides all."""
Count = Callable[[Values], int]
Applies = Callable[[Values], object]

VLLM, SGLANG, ULYSSES = "vLLM", "SGLang", "Ulysses"
SOURCES = {
    VLLM: "vllm/config/model.py, ModelConfig.verify_with_parallel_config",
    SGLANG: "sglang/srt/models/qwen2.py, Qwen2Attention.__init__",
}


def shape_at(values: Values, key: str) -> ModelShape | None:
    """The shape of the model that a key names; None if rlctl does not know it."""
    path = values[key]
    return read_shape(path) if isinstance(path, str) and path else None


def tensor_parallel_fault(shape: ModelShape, size: int) -> str:
    """What a rollout engine cannot split into so many parts; it pads the vocabulary."""
    is_latent = any(kind.attention == "latent" for kind in shape.kinds)
    if shape.heads % size:
        return said("{count} attention heads", count=shape.heads)
    if not is_latent and _uneven(shape.kv_heads, size):
        return said("{count} key-value heads", count=shape.kv_heads)
    if shape.dense_layers and shape.intermediate % size:
        return said("MLP size of {count}", count=shape.intermediate)
    return ""


def ulysses_fault(shape: ModelShape, size: int) -> str:
    """What Ulysses cannot share among so many GPUs; it repeats key-value heads if there are fewer."""
    if shape.heads % size:
        return said("{count} attention heads", count=shape.heads)
    return said("{count} key-value heads", count=shape.kv_heads) if _uneven(shape.kv_heads, size) else ""


def _uneven(heads: int, size: int) -> bool:
    return bool(heads % size and size % heads)


def nearest_size(shape: ModelShape, size: int, fault: Fault) -> int:
    """The largest size up to this one that divides all."""
    return next(each for each in range(size, 0, -1) if not fault(shape, each))


def split_row(
    key: str,
    model: str,
    count: Count,
    applies: Applies,
    engine: str,
    when: str = "when it starts",
    source: str = "",
    **releases: Any,
) -> Requirement:
    """A row that refuses a size that does not divide the model.

    Args:
        key: that sets the size.
        model: the key that names the model.
        count: the size.
        applies: whether the run splits the model so.
        engine: what splits it.
        when: the run stops.
        source: what refuses it; by default the engine's own.
        releases: ``since``, ``older`` and ``until`` of the row.
    """
    fault = ulysses_fault if engine == ULYSSES else tensor_parallel_fault

    def found(values: Values) -> str:
        size = count(values)
        shape = shape_at(values, model) if size > 1 and applies(values) else None
        return "" if shape is None else fault(shape, size)

    def fits(values: Values) -> int:
        shape = shape_at(values, model)
        assert shape is not None  # the row was broken by it
        return nearest_size(shape, count(values), fault)

    numbers: Mapping[str, Callable[[Values], object]] = {"size": count, "part": found}
    return Requirement(
        key,
        found,
        said(
            "{key} is {{size}}, which does not divide the model's {{part}}: {engine} cannot split them over the GPUs, and the "
            "run stops {when}",
            key=key,
            engine=engine,
            when=when,
        ),
        source or SOURCES[engine],
        Remedy(key, fits),
        numbers=numbers,
        **releases,
    )


def batched_tokens_rows(
    names: Mapping[str, str], longest: Count, applies: Applies, **releases: Any
) -> Iterator[Requirement]:
    """vLLM's limits on the tokens and sequences of a step of its scheduler.

    Args:
        names: keys of ``tokens``, ``sequences`` and ``chunked``.
        longest: the context of the engine, in tokens.
        applies: whether a file has such an engine.
        releases: ``since``, ``older`` and ``until`` of the rows.
    """
    tokens, sequences, chunked = names["tokens"], names["sequences"], names["chunked"]
    source = "vllm/config/scheduler.py, SchedulerConfig"
    yield Requirement(
        tokens,
        lambda v: applies(v) and v[chunked] is False and 0 < v.number(tokens, 0) < longest(v),
        said(
            "{tokens} ({{{tokens}}}) is less than the engine's context of {{longest}} tokens, and {chunked} is false: vLLM stops "
            "when it starts",
            tokens=tokens,
            chunked=chunked,
        ),
        source,
        said("set {tokens} to {{longest}} or more, or {chunked} to true", tokens=tokens, chunked=chunked),
        numbers={"longest": longest},
        **releases,
    )
    yield Requirement(
        tokens,
        lambda v: applies(v) and 0 < v.number(tokens, 0) < v.number(sequences, 0),
        said(
            "{tokens} ({{{tokens}}}) is less than {sequences} ({{{sequences}}}): vLLM stops when it starts",
            tokens=tokens,
            sequences=sequences,
        ),
        source,
        Remedy(tokens, NEAREST, sequences),
        **releases,
    )


def memory_share_row(key: str, applies: Applies, **releases: Any) -> Requirement:
    """The share of a GPU's memory that an engine takes is above 0 and at most 1."""
    return Requirement(
        key,
        lambda v: applies(v) and v[key] is not None and not 0 < float(v[key]) <= 1,
        said("{key} is {{{key}}}; expected more than 0 and at most 1: the engine stops when it starts", key=key),
        "vllm/config/cache.py, CacheConfig",
        Remedy(key, 0.6),
        **releases,
    )
