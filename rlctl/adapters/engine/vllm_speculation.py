"""Arguments of vLLM 0.32 for speculation, adaptive verification and watermarks that exclude each other."""

from __future__ import annotations

import math

from rlctl.adapters.engine.vllm_given import COMPILE, SPEC, Given, Pair, drafter

DRAFTERS = ("eagle", "eagle3", "mtp", "dspark", "dflash", "draft_model", "ngram_gpu", "extract_hidden_states")
"""Ways of speculation that asynchronous scheduling takes, beside the old names of mtp."""


def is_async_drafter(g: Given) -> bool:
    method = drafter(g)
    return not method or method in DRAFTERS or method.endswith("_mtp")


def budget(g: Given) -> float:
    """Tokens of a step that adapters and speculation need; 0 without both."""
    tokens, rows = g(f"{SPEC}.num_speculative_tokens", 0), g("max_num_seqs", 0)
    return rows * (tokens + 1) if tokens and g("enable_lora") else 0


SPECULATION: tuple[Pair, ...] = (
    (
        f"{SPEC}.synthetic_acceptance_rates",
        f"{SPEC}.rejection_sample_method",
        lambda g: (
            g(f"{SPEC}.synthetic_acceptance_rates") and g(f"{SPEC}.rejection_sample_method", "standard") != "synthetic"
        ),
        "null",
    ),
    (
        f"{SPEC}.synthetic_acceptance_length",
        f"{SPEC}.rejection_sample_method",
        lambda g: (
            g(f"{SPEC}.synthetic_acceptance_length") and g(f"{SPEC}.rejection_sample_method", "standard") != "synthetic"
        ),
        "null",
    ),
    (
        f"{SPEC}.rejection_sample_method",
        f"{SPEC}.synthetic_acceptance_rates",
        lambda g: (
            g(f"{SPEC}.rejection_sample_method") == "synthetic"
            and (g(f"{SPEC}.synthetic_acceptance_rates") is None) == (g(f"{SPEC}.synthetic_acceptance_length") is None)
        ),
        "standard",
    ),
    (
        f"{SPEC}.num_speculative_tokens",
        f"{SPEC}.method",
        lambda g: (
            g(f"{SPEC}.num_speculative_tokens")
            and not g(f"{SPEC}.model")
            and drafter(g) in ("", "draft_model", "eagle", "eagle3", "medusa", "mlp_speculator", "dflash")
        ),
        "null",
    ),
    (
        f"{SPEC}.dspark_draft_topk",
        f"{SPEC}.method",
        lambda g: g(f"{SPEC}.model") and g(f"{SPEC}.dspark_draft_topk") and drafter(g) not in ("", "dspark"),
        "null",
    ),
    (
        f"{SPEC}.index_share_for_mtp_iteration",
        f"{SPEC}.method",
        lambda g: (
            g(f"{SPEC}.index_share_for_mtp_iteration") is not None
            and drafter(g) not in ("", "mtp")
            and not drafter(g).endswith("_mtp")
        ),
        "null",
    ),
    (
        f"{SPEC}.enable_adaptive_verification",
        f"{SPEC}.use_local_argmax_reduction",
        lambda g: (
            g(f"{SPEC}.enable_adaptive_verification")
            and g(f"{SPEC}.use_local_argmax_reduction")
            and drafter(g) not in ("", "dspark")
        ),
        "false",
    ),
    (
        f"{SPEC}.max_model_len",
        "max_model_len",
        lambda g: g(f"{SPEC}.max_model_len", 0) > g("max_model_len", math.inf),
        "null",
    ),
    (
        f"{SPEC}.draft_tensor_parallel_size",
        "tensor_parallel_size",
        lambda g: g(f"{SPEC}.draft_tensor_parallel_size", 1) not in (1, g.size("tensor")),
        1,
    ),
    (
        f"{SPEC}.use_heterogeneous_vocab",
        f"{SPEC}.method",
        lambda g: g(f"{SPEC}.use_heterogeneous_vocab") and drafter(g) not in ("", "draft_model"),
        "false",
    ),
    (
        f"{SPEC}.use_heterogeneous_vocab",
        f"{SPEC}.draft_sample_method",
        lambda g: g(f"{SPEC}.use_heterogeneous_vocab") and g(f"{SPEC}.draft_sample_method", "greedy") != "greedy",
        "false",
    ),
    *(
        (
            f"spec_{flag}",
            f"{SPEC}.{name}",
            lambda g, flag=flag, name=name: g(f"spec_{flag}") is not None and g(f"{SPEC}.{name}") is not None,
            "null",
        )
        for flag, name in (("method", "method"), ("model", "model"), ("tokens", "num_speculative_tokens"))
    ),
    (
        "max_num_batched_tokens",
        f"{SPEC}.num_speculative_tokens",
        lambda g: g("max_num_batched_tokens", math.inf) < budget(g),
        "null",
    ),
    ("async_scheduling", f"{SPEC}.method", lambda g: g("async_scheduling") and not is_async_drafter(g), "false"),
    (
        "async_scheduling",
        f"{SPEC}.disable_padded_drafter_batch",
        lambda g: g("async_scheduling") and g(f"{SPEC}.disable_padded_drafter_batch"),
        "false",
    ),
    (
        "per_request_spec_decode_metrics",
        SPEC,
        lambda g: (
            g("per_request_spec_decode_metrics", "none") != "none"
            and not g(SPEC)
            and not g("spec_method")
            and not g("spec_model")
        ),
        "none",
    ),
    (
        "kv_sharing_fast_prefill",
        f"{SPEC}.method",
        lambda g: (
            g("kv_sharing_fast_prefill")
            and (drafter(g) in ("eagle", "eagle3", "mtp", "dflash") or drafter(g).endswith("_mtp"))
        ),
        "false",
    ),
    (
        "enable_lora",
        f"{SPEC}.enable_adaptive_verification",
        lambda g: g("enable_lora") and g(f"{SPEC}.enable_adaptive_verification"),
        "false",
    ),
    *(
        (
            f"{SPEC}.enable_adaptive_verification",
            name,
            lambda g, name=name, refused=refused: g(f"{SPEC}.enable_adaptive_verification") and refused(g),
            "false",
        )
        for name, refused in (
            ("enable_return_routed_experts", lambda g: g("enable_return_routed_experts")),
            ("return_sampling_mask", lambda g: g("return_sampling_mask")),
            (
                f"{COMPILE}.cudagraph_mode",
                lambda g: g("enforce_eager") or g(f"{COMPILE}.cudagraph_mode") in ("NONE", "PIECEWISE", 0, 1),
            ),
            ("pipeline_parallel_size", lambda g: g.size("pipeline") > 1),
        )
    ),
    # watermarks
    *(
        (
            f"{SPEC}.{name}",
            "watermark_config",
            lambda g, refused=refused: g("watermark_config") and g(SPEC) and refused(g),
            fix,
        )
        for name, refused, fix in (
            (
                "draft_sample_method",
                lambda g: g(f"{SPEC}.draft_sample_method", "greedy") != "probabilistic",
                "probabilistic",
            ),
            (
                "rejection_sample_method",
                lambda g: g(f"{SPEC}.rejection_sample_method", "standard") != "standard",
                "standard",
            ),
            ("parallel_drafting", lambda g: g(f"{SPEC}.parallel_drafting") and drafter(g) != "dspark", "false"),
            ("method", lambda g: drafter(g) and drafter(g) not in ("dspark", "eagle", "eagle3", "mtp"), "eagle3"),
        )
    ),
)
"""Arguments of speculation, and those that exclude it."""
