"""What vLLM 0.32 refuses of its arguments, as rows of any framework that hands them on."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from rlctl.adapters.engine.requirements import Remedy, Requirement, Values
from rlctl.adapters.engine.vllm_given import COMPILE, EPLB, PROFILE, SPEC, Given, Pair, Refused, Value, drafter
from rlctl.adapters.engine.vllm_pairs import PAIRS
from rlctl.adapters.engine.vllm_speculation import SPECULATION
from rlctl.common.messages.reasons import said
from rlctl.common.records import record

MODES = ("NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE", "VLLM_COMPILE")
POOL = "kv_transfer_config.kv_connector_extra_config.host_pool_gib"
RANGE = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*", re.ASCII)


def _custom_ops(g: Given) -> list[str]:
    return list(g(f"{COMPILE}.custom_ops", []))


def _rates(g: Given) -> list[float]:
    return list(g(f"{SPEC}.synthetic_acceptance_rates", []))


def _one_of(*names: str) -> str:
    return said("one of {names}", names=", ".join(names))


def _outside(name: str, low: float, high: float = math.inf) -> Refused:
    return lambda g: g(name) is not None and not low <= g(name) <= high


def _none_of(name: str, *names: str) -> Refused:
    return lambda g: g(name) is not None and g(name) not in names


VALUES: tuple[Value, ...] = (
    (
        f"{COMPILE}.mode",
        lambda g: isinstance(g(f"{COMPILE}.mode"), str) and g(f"{COMPILE}.mode").upper() not in MODES,
        _one_of(*MODES),
        "VLLM_COMPILE",
    ),
    (
        f"{COMPILE}.compile_cache_save_format",
        _none_of(f"{COMPILE}.compile_cache_save_format", "binary", "unpacked"),
        _one_of("binary", "unpacked"),
        "binary",
    ),
    (
        f"{COMPILE}.inductor_passes",
        lambda g: any(not isinstance(value, str) for value in g(f"{COMPILE}.inductor_passes", {}).values()),
        said("names of functions"),
        "null",
    ),
    (
        f"{COMPILE}.custom_ops",
        lambda g: any(op not in ("all", "none") and (len(op) < 2 or op[0] not in "+-") for op in _custom_ops(g)),
        _one_of("all", "none", "+op", "-op"),
        "[none]",
    ),
    (
        f"{COMPILE}.custom_ops",
        lambda g: len({op for op in _custom_ops(g) if op in ("all", "none")}) > 1,
        said("at most one of all and none"),
        "[none]",
    ),
    (
        f"{COMPILE}.custom_ops",
        lambda g: {op[1:] for op in _custom_ops(g) if op[0] == "+"} & {op[1:] for op in _custom_ops(g) if op[0] == "-"},
        said("each operation once"),
        "[none]",
    ),
    *(
        (
            f"{COMPILE}.{name}",
            lambda g, name=name: any(size <= 0 for size in g(f"{COMPILE}.{name}", [])),
            said("numbers above 0"),
            "null",
        )
        for name in ("decoder_replay_cudagraph_capture_sizes", "encoder_cudagraph_token_budgets")
    ),
    *(
        (
            f"{COMPILE}.{name}",
            lambda g, name=name: g(f"{COMPILE}.cudagraph_mm_encoder") and g(f"{COMPILE}.{name}", 0) < 0,
            said("{low} or more", low=0),
            0,
        )
        for name in ("encoder_cudagraph_max_vision_items_per_batch", "encoder_cudagraph_max_frames_per_batch")
    ),
    (
        "attention_config.backend_per_kind",
        lambda g: (
            set(g("attention_config.backend_per_kind", {}))
            - {
                "full_attention",
                "mla_attention",
                "sliding_window",
                "sliding_window_mla",
                "chunked_local_attention",
                "mamba",
                "cross_attention",
                "encoder_only_attention",
                "sink_full_attention",
                "sparse",
                "indexer",
                "unknown",
            }
        ),
        said("kinds of attention as keys"),
        "null",
    ),
    (
        "kv_transfer_config.kv_role",
        _none_of("kv_transfer_config.kv_role", "kv_producer", "kv_consumer", "kv_both"),
        _one_of("kv_producer", "kv_consumer", "kv_both"),
        "kv_both",
    ),
    (
        "ec_transfer_config.ec_role",
        _none_of("ec_transfer_config.ec_role", "ec_producer", "ec_consumer", "ec_both"),
        _one_of("ec_producer", "ec_consumer", "ec_both"),
        "ec_both",
    ),
    (
        POOL,
        lambda g: g("kv_transfer_config.kv_connector") == "HiSparseConnector" and g(POOL, 1) <= 0,
        said("more than 0"),
        8,
    ),
    (
        "mm_encoder_attn_backend",
        lambda g: str(g("mm_encoder_attn_backend")).upper() == "XFORMERS",
        said("a backend other than XFORMERS, which vLLM no longer has"),
        "null",
    ),
    (
        "custom_histogram_buckets",
        lambda g: any(_is_bad_bucket(bounds) for bounds in g("custom_histogram_buckets", {}).values()),
        said("for each family a list of numbers above 0 that rise"),
        "null",
    ),
    (
        "offload_prefetch_step",
        lambda g: (
            (g("offload_backend") == "prefetch" or g("offload_group_size", 0) > 0) and g("offload_prefetch_step", 1) < 1
        ),
        said("{low} or more", low=1),
        1,
    ),
    (
        f"{EPLB}.log_balancedness_interval",
        lambda g: g(f"{EPLB}.log_balancedness") and g(f"{EPLB}.log_balancedness_interval", 1) <= 0,
        said("{low} or more", low=1),
        1,
    ),
    (
        "numa_bind_nodes",
        lambda g: g("numa_bind_nodes") == [] or any(node < 0 for node in g("numa_bind_nodes", [])),
        said("a list of numbers, 0 or more"),
        "null",
    ),
    (
        "numa_bind_cpus",
        lambda g: g("numa_bind_cpus") == [] or any(_is_bad_range(cpus) for cpus in g("numa_bind_cpus", [])),
        said("a list of ranges that rise, as 0-3"),
        "null",
    ),
    (
        "distributed_executor_backend",
        lambda g: (
            g("distributed_executor_backend") is not None and not isinstance(g("distributed_executor_backend"), str)
        ),
        _one_of("ray", "mp", "uni", "external_launcher"),
        "mp",
    ),
    (
        "dtype",
        lambda g: g("dtype") is not None and not isinstance(g("dtype"), str),
        _one_of("auto", "bfloat16", "float16", "float32"),
        "auto",
    ),
    (
        "device_ids",
        lambda g: (
            len(set(g("device_ids", []))) < len(g("device_ids", []))
            or len({isinstance(each, str) for each in g("device_ids", [])}) > 1
        ),
        said("numbers, or names, each once"),
        "null",
    ),
    (
        "quantization_config.targets",
        lambda g: g("quantization_config.targets") is not None and not _are_targets(g("quantization_config.targets")),
        said("patterns of layers, each with the name of a quantization"),
        "null",
    ),
    *(
        (
            f"quantization_config.{part}.{name}",
            lambda g, part=part, name=name: (
                g(f"quantization_config.{part}.{name}") is not None
                and not isinstance(g(f"quantization_config.{part}.{name}"), str)
            ),
            said("the name of a quantization"),
            "null",
        )
        for part in ("linear", "moe")
        for name in ("weight", "activation")
    ),
    (
        f"{PROFILE}.profile_prefix",
        lambda g: (
            g(f"{PROFILE}.profile_prefix") is not None
            and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", str(g(f"{PROFILE}.profile_prefix")), re.ASCII)
        ),
        said("at most 128 letters, numbers, dots, dashes and underscores"),
        "run",
    ),
    *(
        (f"{PROFILE}.{name}", _outside(f"{PROFILE}.{name}", 0), said("{low} or more", low=0), 0)
        for name in ("delay_iterations", "max_iterations")
    ),
    (
        f"{PROFILE}.torch_profiler_activities",
        lambda g: (
            len(set(g(f"{PROFILE}.torch_profiler_activities", []))) < len(g(f"{PROFILE}.torch_profiler_activities", []))
        ),
        said("each activity once"),
        "null",
    ),
    (
        f"{PROFILE}.proton_profiler_dir",
        lambda g: "://" in g(f"{PROFILE}.proton_profiler_dir", ""),
        said("a local folder"),
        "traces",
    ),
    (
        f"{SPEC}.synthetic_acceptance_rates",
        lambda g: (
            g(f"{SPEC}.rejection_sample_method") == "synthetic"
            and (
                len(_rates(g)) not in (0, g(f"{SPEC}.num_speculative_tokens", len(_rates(g))))
                or any(not 0 <= rate <= 1 for rate in _rates(g))
                or any(a < b for a, b in pairwise(_rates(g)))
            )
        ),
        said("a rate from 0 to 1 for each speculative token, that never rise"),
        "null",
    ),
    (
        f"{SPEC}.synthetic_acceptance_length",
        lambda g: (
            g(f"{SPEC}.rejection_sample_method") == "synthetic"
            and not 1
            <= g(f"{SPEC}.synthetic_acceptance_length", 1)
            <= g(f"{SPEC}.num_speculative_tokens", math.inf) + 1
        ),
        said("from 1 to one more than num_speculative_tokens"),
        "null",
    ),
    (
        f"{SPEC}.suffix_decoding_max_spec_factor",
        lambda g: drafter(g) == "suffix" and g(f"{SPEC}.suffix_decoding_max_spec_factor", 1) < 0,
        said("{low} or more", low=0),
        1.0,
    ),
    (
        f"{SPEC}.suffix_decoding_min_token_prob",
        lambda g: drafter(g) == "suffix" and not 0 <= g(f"{SPEC}.suffix_decoding_min_token_prob", 0) <= 1,
        said("a number from 0 to 1"),
        0.1,
    ),
    (
        f"{SPEC}.dspark_draft_topk",
        lambda g: drafter(g) == "dspark" and g(f"{SPEC}.dspark_draft_topk", 1) < 1,
        said("{low} or more", low=1),
        "null",
    ),
    ("watermark_config.key", _outside("watermark_config.key", 0, 2**64 - 1), said("a whole number of 64 bits"), 1),
    (
        "decode_context_parallel_size",
        lambda g: g.size("decode_context") > 1 and _is_grouped(g) and not _shares_heads(g),
        said(
            "at most tensor_parallel_size divided by the model's key-value heads, and a divisor of the query heads of each"
        ),
        1,
    ),
    (
        "kv_cache_dtype",
        lambda g: (
            str(g("kv_cache_dtype")).startswith("nvfp4")
            and not str(g("kv_cache_dtype")).endswith("_ds_mla")
            and _is_latent(g)
        ),
        said("a type that multi-latent attention has, as fp8"),
        "fp8",
    ),
    (
        "max_num_batched_tokens",
        lambda g: (
            g(SPEC)
            and g(f"{SPEC}.num_speculative_tokens")
            and g(f"{SPEC}.model")
            and g("max_num_batched_tokens", math.inf) <= g("max_num_seqs", 0) * g(f"{SPEC}.num_speculative_tokens")
            and g(f"{SPEC}.parallel_drafting")
        ),
        said("more than the draft tokens of all sequences"),
        "null",
    ),
)
"""Values that vLLM does not have."""


def _is_bad_bucket(bounds: Any) -> bool:
    numbers = list(bounds)
    return (
        not numbers
        or any(isinstance(each, bool) or not math.isfinite(each) or each <= 0 for each in numbers)
        or any(a >= b for a, b in pairwise(numbers))
    )


def _is_bad_range(cpus: str) -> bool:
    if not RANGE.fullmatch(cpus):
        return True
    ranges = [part.split("-") for part in cpus.split(",")]
    return any(int(part[0]) > int(part[-1]) for part in ranges)


def _are_targets(targets: Any) -> bool:
    if not isinstance(targets, Mapping):
        return False
    for pattern, name in targets.items():
        if not isinstance(pattern, str) or not isinstance(name, str):
            return False
        if pattern.startswith("re:"):
            try:
                re.compile(pattern[3:])
            except re.error:
                return False
    return True


def _is_latent(g: Given) -> bool:
    return g.shape is not None and any(kind.attention == "latent" for kind in g.shape.kinds)


def _is_grouped(g: Given) -> bool:
    """Whether the model is known, and repeats key-value heads over ranks."""
    return g.shape is not None and not _is_latent(g)


def _shares_heads(g: Given) -> bool:
    """Whether ranks with the same key-value heads can share a sequence among them."""
    assert g.shape is not None  # asked before
    heads, tensor, share = g.shape.kv_heads, g.size("tensor"), g.size("decode_context")
    return tensor > heads and share <= tensor // heads and (g.shape.heads // heads) % share == 0


@record
class Engine:
    """An engine that a framework hands arguments to."""

    name: str
    source: str
    """Its file and function that refuse them."""


VLLM = Engine("vLLM", "vllm/engine/arg_utils.py, EngineArgs.create_engine_config")


def argument_rows(
    key: Callable[[str], str], model: str, applies: Callable[[Values], object], when: str, **releases: Any
) -> Iterator[Requirement]:
    """A row for each argument that vLLM refuses.

    Args:
        key: the framework's key of an argument.
        model: the key that names the model.
        applies: whether a file has such an engine.
        when: the framework stops, as in the messages ``when-...``.
        releases: ``since``, ``older`` and ``until`` of the rows.
    """
    yield from rows_of(VLLM, ((*PAIRS, *SPECULATION), VALUES), key, model, applies, when, **releases)


def rows_of(
    engine: Engine,
    tables: tuple[tuple[Pair, ...], tuple[Value, ...]],
    key: Callable[[str], str],
    model: str,
    applies: Callable[[Values], object],
    when: str,
    **releases: Any,
) -> Iterator[Requirement]:
    """A row for each line of an engine's tables of arguments that exclude each other, and of values that it does not have."""

    def on(refused: Refused) -> Callable[[Values], object]:
        return lambda values: applies(values) and refused(Given(values, key, model))

    pairs, wrong = tables
    for name, other, refused, fix in pairs:
        yield Requirement(
            key(name),
            on(refused),
            said(
                "{key} is {{{key}}}, which {engine} does not combine with {other} = {{{other}}}",
                key=key(name),
                engine=engine.name,
                other=key(other),
            ),
            engine.source,
            Remedy(key(name), fix, key(other)),
            when=when,
            **releases,
        )
    for name, refused, expected, fix in wrong:
        yield Requirement(
            key(name),
            on(refused),
            said("{key} is {{{key}}}; expected {expected}", key=key(name), expected=expected),
            engine.source,
            Remedy(key(name), fix),
            when=when,
            **releases,
        )
