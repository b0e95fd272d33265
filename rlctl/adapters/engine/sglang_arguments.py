"""What SGLang 0.5 refuses of its arguments, as rows of any framework that hands them on, read from 0.5.6's ``ServerArgs``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from rlctl.adapters.engine.requirements import Requirement, Values
from rlctl.adapters.engine.vllm_arguments import Engine, rows_of
from rlctl.adapters.engine.vllm_given import Given, Pair, Value
from rlctl.common.messages.reasons import said

SGLANG = Engine("SGLang", "sglang/srt/server_args.py, ServerArgs.check_server_args")
SPECULATION = "speculative_algorithm"


def _pages(g: Given) -> int:
    return int(g("page_size", 1))


def _chunks_unevenly(g: Given) -> bool:
    chunk = g("chunked_prefill_size", 0)
    return bool(chunk > 0 and chunk % _pages(g) and g("disaggregation_mode") != "decode")


def _adds_adapters(g: Given) -> object:
    return g("enable_lora")


PAIRS: tuple[Pair, ...] = (
    ("chunked_prefill_size", "page_size", _chunks_unevenly, -1),
    ("nnodes", "tp_size", lambda g: g("tp_size", 1) * g("pp_size", 1) % g("nnodes", 1), 1),
    ("pp_size", "disable_overlap_schedule", lambda g: g("pp_size", 1) > 1 and not g("disable_overlap_schedule"), 1),
    ("pp_size", SPECULATION, lambda g: g("pp_size", 1) > 1 and g(SPECULATION), 1),
    (
        "enable_mixed_chunk",
        "pp_size",
        lambda g: g("enable_mixed_chunk") and g("pp_size", 1) > 1,
        "false",
    ),
    ("enable_mixed_chunk", SPECULATION, lambda g: g("enable_mixed_chunk") and g(SPECULATION), "false"),
    (
        "dp_size",
        "nnodes",
        lambda g: g("dp_size", 1) > 1 and g("nnodes", 1) != 1 and not g("enable_dp_attention"),
        1,
    ),
    ("dp_size", "tp_size", lambda g: g("enable_dp_attention") and g("tp_size", 1) % g("dp_size", 1), 1),
    (
        "enable_dp_lm_head",
        "enable_dp_attention",
        lambda g: g("enable_dp_lm_head") and not g("enable_dp_attention"),
        "false",
    ),
    (
        "enable_dp_attention",
        SPECULATION,
        lambda g: g("enable_dp_attention") and g(SPECULATION) in ("STANDALONE", "NGRAM"),
        "false",
    ),
    ("enable_eplb", "ep_size", lambda g: g("enable_eplb") and g("ep_size", 1) <= 1, "false"),
    (
        "enable_eplb",
        "eplb_algorithm",
        lambda g: (
            g("enable_eplb")
            and g("elastic_ep_backend")
            and g("eplb_algorithm", "auto") not in ("auto", "elasticity_aware")
        ),
        "false",
    ),
    (
        "moe_runner_backend",
        "quantization",
        lambda g: (
            g("quantization")
            not in {
                "flashinfer_cutlass": ("modelopt_fp4", "modelopt_fp8", None),
                "flashinfer_trtllm": ("modelopt_fp4", "modelopt_fp8", "fp8"),
            }.get(g("moe_runner_backend"), (g("quantization"),))
        ),
        "auto",
    ),
    (
        "moe_runner_backend",
        "ep_size",
        lambda g: (
            (g("moe_runner_backend") == "flashinfer_cutlass" and g("ep_size", 1) not in (1, g("tp_size", 1)))
            or (g("moe_runner_backend") == "cutlass" and g("quantization") == "fp8" and g("ep_size", 1) != 1)
        ),
        "auto",
    ),
    (
        "attention_backend",
        SPECULATION,
        lambda g: g("attention_backend") == "flex_attention" and g(SPECULATION),
        "null",
    ),
    (
        "kv_cache_dtype",
        "attention_backend",
        lambda g: (
            "trtllm_mla" in (g("attention_backend"), g("decode_attention_backend"))
            and g("kv_cache_dtype", "auto") not in ("auto", "fp8_e4m3", "fp4_e2m1")
        ),
        "auto",
    ),
    (
        "speculative_eagle_topk",
        "attention_backend",
        lambda g: (
            g(SPECULATION) in ("EAGLE", "EAGLE3", "STANDALONE")
            and g("speculative_eagle_topk", 1) > 1
            and (
                "trtllm_mha" in (g("attention_backend"), g("decode_attention_backend"), g("prefill_attention_backend"))
                or (_pages(g) > 1 and g("attention_backend", "fa3") not in ("flashinfer", "fa3"))
            )
        ),
        1,
    ),
    *(
        (
            name,
            "speculative_num_steps",
            lambda g, name=name: g(SPECULATION) and g(name) is not None and g("speculative_num_steps") is None,
            "null",
        )
        for name in ("speculative_eagle_topk", "speculative_num_draft_tokens")
    ),
    (
        "enable_tokenizer_batch_encode",
        "enable_dynamic_batch_tokenizer",
        lambda g: g("enable_tokenizer_batch_encode") and g("enable_dynamic_batch_tokenizer"),
        "false",
    ),
    (
        "enable_hierarchical_cache",
        "disable_radix_cache",
        lambda g: g("enable_hierarchical_cache") and g("disable_radix_cache"),
        "false",
    ),
    (
        "enable_priority_scheduling",
        "schedule_policy",
        lambda g: g("enable_priority_scheduling") and g("schedule_policy", "fcfs") not in ("fcfs", "lof"),
        "false",
    ),
    *(
        (
            "enable_pdmux",
            name,
            lambda g, refused=refused: g("enable_pdmux") and refused(g),
            "false",
        )
        for name, refused in (
            ("pp_size", lambda g: g("pp_size", 1) != 1),
            ("chunked_prefill_size", lambda g: g("chunked_prefill_size") not in (None, -1)),
            ("disable_overlap_schedule", lambda g: not g("disable_overlap_schedule")),
        )
    ),
    (
        "enable_lora",
        SPECULATION,
        lambda g: _adds_adapters(g) and g(SPECULATION) not in (None, "NGRAM"),
        "false",
    ),
    (
        "max_loaded_loras",
        "max_loras_per_batch",
        lambda g: _adds_adapters(g) and g("max_loaded_loras", math.inf) < g("max_loras_per_batch", 8),
        "null",
    ),
    (
        "export_metrics_to_file",
        "export_metrics_to_file_dir",
        lambda g: g("export_metrics_to_file") and not g("export_metrics_to_file_dir"),
        "false",
    ),
)
"""Arguments that exclude each other."""

VALUES: tuple[Value, ...] = (
    (
        "attention_backend",
        lambda g: "fa4" in (g("attention_backend"), g("decode_attention_backend")),
        said("another backend than fa4, which is for prefill only"),
        "fa3",
    ),
    ("schedule_conservativeness", lambda g: g("schedule_conservativeness", 1) < 0, said("{low} or more", low=0), 1.0),
    ("base_gpu_id", lambda g: g("base_gpu_id", 0) < 0, said("{low} or more", low=0), 0),
    ("gpu_id_step", lambda g: g("gpu_id_step", 1) < 1, said("{low} or more", low=1), 1),
    ("moe_dense_tp_size", lambda g: g("moe_dense_tp_size", 1) != 1, said("null or 1"), 1),
    ("tokenizer_worker_num", lambda g: g("tokenizer_worker_num", 1) < 1, said("{low} or more", low=1), 1),
    ("served_model_name", lambda g: ":" in str(g("served_model_name", "")), said("a name without a colon"), "null"),
    ("max_loras_per_batch", lambda g: g("max_loras_per_batch", 1) < 1, said("{low} or more", low=1), 8),
    (
        "lora_target_modules",
        lambda g: (
            _adds_adapters(g)
            and "all" in g("lora_target_modules", [])
            and isinstance(g("lora_target_modules"), list)
            and len(g("lora_target_modules")) > 1
        ),
        said("all alone, or names of modules"),
        "[all]",
    ),
    (
        "max_lora_chunk_size",
        lambda g: _adds_adapters(g) and g("max_lora_chunk_size", 16) not in (16, 32, 64, 128),
        "16, 32, 64, 128",
        16,
    ),
)
"""Values that SGLang does not have."""


def sglang_rows(
    key: Callable[[str], str], model: str, applies: Callable[[Values], object], when: str, **releases: Any
) -> Iterator[Requirement]:
    """A row for each argument that SGLang refuses; the arguments are those of ``vllm_arguments.argument_rows``."""
    yield from rows_of(SGLANG, (PAIRS, VALUES), key, model, applies, when, **releases)
