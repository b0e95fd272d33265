"""Arguments of vLLM 0.32 that exclude each other: parallelism, experts, profiling, states, what is returned."""

from __future__ import annotations

import math

from rlctl.adapters.engine.vllm_given import COMPILE, EPLB, PROFILE, PROTON, Pair, proton

MEGA = ("flashinfer_moe_ep_cutedsl", "flashinfer_moe_ep_mega_deep_gemm")
"""Kernels of experts that exchange tokens themselves."""
HISPARSE = "attention_config.hisparse_config"
PD_CONNECTORS = ("NixlConnector", "NixlPullConnector", "NixlPushConnector", "MoRIIOConnector", "MooncakeConnector")

PAIRS: tuple[Pair, ...] = (
    (
        "moe_backend",
        "all2all_backend",
        lambda g: (
            g("moe_backend") in MEGA and g("all2all_backend", "allgather_reducescatter") != "allgather_reducescatter"
        ),
        "auto",
    ),
    (
        "all2all_backend",
        "moe_backend",
        lambda g: g("all2all_backend") == "passthrough" and g("moe_backend") not in MEGA,
        "allgather_reducescatter",
    ),
    (
        "engram_config.dp_shared_memory",
        "engram_config.cpu_offload",
        lambda g: g("engram_config.dp_shared_memory") and not g("engram_config.cpu_offload"),
        "false",
    ),
    (
        "engram_config.use_thp",
        "engram_config.cpu_offload",
        lambda g: (
            g("engram_config.use_thp") and (not g("engram_config.cpu_offload") or g("engram_config.dp_shared_memory"))
        ),
        "false",
    ),
    (
        "engram_config.dp_shared_memory",
        "data_parallel_size",
        lambda g: g("engram_config.dp_shared_memory") and g.size("data") <= 1,
        "false",
    ),
    (
        "engram_config.dp_shared_memory",
        "enable_elastic_ep",
        lambda g: g("engram_config.dp_shared_memory") and g("enable_elastic_ep"),
        "false",
    ),
    (
        "engram_config.embedding_across_dp",
        "enable_elastic_ep",
        lambda g: g("engram_config.embedding_across_dp") and g("enable_elastic_ep") and g.size("data") > 1,
        "false",
    ),
    (
        "enable_hc_sp",
        "pipeline_parallel_size",
        lambda g: g("enable_hc_sp") and g.size("tensor") > 1 and g.size("pipeline") != 1,
        "false",
    ),
    (
        "mm_tensor_ipc",
        "tensor_parallel_size",
        lambda g: g("mm_tensor_ipc") == "torch_shm" and g.size("tensor") * g.size("pipeline") * g.size("data") > 1,
        "direct_rpc",
    ),
    (
        "mm_shm_cache_max_object_size_mb",
        "mm_processor_cache_type",
        lambda g: g("mm_shm_cache_max_object_size_mb", 128) != 128 and g("mm_processor_cache_type", "lru") != "shm",
        "null",
    ),
    *(
        (
            f"mm_encoder_fp8_scale_{name}",
            "mm_encoder_attn_dtype",
            lambda g, name=name: g(f"mm_encoder_fp8_scale_{name}") and g("mm_encoder_attn_dtype") != "fp8",
            "null",
        )
        for name in ("path", "save_path")
    ),
    (
        "mm_encoder_fp8_scale_save_path",
        "mm_encoder_fp8_scale_path",
        lambda g: g("mm_encoder_fp8_scale_save_path") and g("mm_encoder_fp8_scale_path"),
        "null",
    ),
    (
        "collect_detailed_traces",
        "otlp_traces_endpoint",
        lambda g: g("collect_detailed_traces") and not g("otlp_traces_endpoint"),
        "null",
    ),
    (
        "offload_num_in_group",
        "offload_group_size",
        lambda g: (
            (g("offload_backend") == "prefetch" or g("offload_group_size", 0) > 0)
            and g("offload_num_in_group", 1) > g("offload_group_size", 0)
        ),
        1,
    ),
    (
        f"{EPLB}.use_async",
        f"{EPLB}.policy",
        lambda g: g(f"{EPLB}.use_async") and g(f"{EPLB}.policy", "default") != "default",
        "false",
    ),
    (
        f"{EPLB}.use_async",
        f"{EPLB}.communicator",
        lambda g: g(f"{EPLB}.use_async") and g(f"{EPLB}.communicator") in ("torch_nccl", "pynccl"),
        "false",
    ),
    (
        f"{EPLB}.num_redundant_experts",
        "enable_eplb",
        lambda g: g(f"{EPLB}.num_redundant_experts", 0) != 0 and not g("enable_eplb"),
        0,
    ),
    (
        "enable_eplb",
        "tensor_parallel_size",
        lambda g: g("enable_eplb") and g.size("tensor") * g.size("prefill_context") * g.size("data") <= 1,
        "false",
    ),
    ("data_parallel_size_local", "data_parallel_size", lambda g: g("data_parallel_size_local", 0) > g.size("data"), 1),
    (
        "data_parallel_external_lb",
        "data_parallel_size",
        lambda g: g("data_parallel_external_lb") and g.size("data") <= 1,
        "false",
    ),
    (
        "prefill_context_parallel_size",
        "decode_context_parallel_size",
        lambda g: (
            g.size("prefill_context") > 1
            and g.size("decode_context")
            not in (1, g.size("prefill_context"), g.size("prefill_context") * g.size("tensor"))
        ),
        1,
    ),
    ("nnodes", "data_parallel_backend", lambda g: g("nnodes", 1) > 1 and g("data_parallel_backend", "mp") != "mp", 1),
    (
        "nnodes",
        "tensor_parallel_size",
        lambda g: (
            g("nnodes", 1) > 1
            and g.size("tensor") * g.size("pipeline") * g.size("data") * g.size("prefill_context") % g("nnodes")
        ),
        1,
    ),
    (
        "data_parallel_external_lb",
        "nnodes",
        lambda g: (
            g("nnodes", 1) > 1
            and g("data_parallel_external_lb")
            and g.size("data") > 1
            and g("data_parallel_rank") is None
            and g("nnodes") % g.size("data")
        ),
        "false",
    ),
    ("enable_elastic_ep", "enable_eplb", lambda g: g("enable_elastic_ep") and not g("enable_eplb"), "false"),
    (
        "enable_elastic_ep",
        "pipeline_parallel_size",
        lambda g: g("enable_elastic_ep") and g.size("pipeline") > 1,
        "false",
    ),
    *(
        ("enable_elastic_ep", name, lambda g, name=name: g("enable_elastic_ep") and g(name), "false")
        for name in ("data_parallel_external_lb", "data_parallel_hybrid_lb")
    ),
    (
        "elastic_ep_max_dp_size",
        "data_parallel_size",
        lambda g: 0 < g("elastic_ep_max_dp_size", 0) < g.size("data"),
        "null",
    ),
    (
        "ray_workers_use_nsight",
        "distributed_executor_backend",
        lambda g: (
            g("ray_workers_use_nsight") and g("distributed_executor_backend") in ("mp", "uni", "external_launcher")
        ),
        "false",
    ),
    (
        "ubatch_size",
        "all2all_backend",
        lambda g: (
            (g("enable_dbo") or g("ubatch_size", 0) > 1)
            and g("all2all_backend") not in (None, "deepep_low_latency", "deepep_high_throughput", "nixl_ep")
        ),
        0,
    ),
    *(
        (
            f"dbo_{name}_token_threshold",
            "ubatch_size",
            lambda g, name=name: (
                (g("enable_dbo") or g("ubatch_size", 0) > 1)
                and g(f"dbo_{name}_token_threshold", math.inf) < max(2, g("ubatch_size", 0))
            ),
            32,
        )
        for name in ("decode", "prefill")
    ),
    (
        "enable_fault_tolerance",
        "data_parallel_external_lb",
        lambda g: (
            g("enable_fault_tolerance") and not g("data_parallel_external_lb") and g("data_parallel_rank") is None
        ),
        "false",
    ),
    (
        f"{COMPILE}.backend",
        f"{COMPILE}.mode",
        lambda g: (
            g(f"{COMPILE}.mode") in (3, "VLLM_COMPILE") and g(f"{COMPILE}.backend", "") not in ("", "eager", "inductor")
        ),
        "inductor",
    ),
    (
        "ec_manager_config.manager_config",
        "ec_manager_config.encoder_cache_manager_cls",
        lambda g: g("ec_manager_config.manager_config") and not g("ec_manager_config.encoder_cache_manager_cls"),
        "null",
    ),
    (
        "quantization",
        "allow_deprecated_quantization",
        lambda g: g("quantization") in ("fbgemm_fp8", "fp_quant") and not g("allow_deprecated_quantization"),
        "fp8",
    ),
    *(
        (
            "quantization_config.targets",
            f"quantization_config.{name}",
            lambda g, name=name: g("quantization_config.targets") and g(f"quantization_config.{name}"),
            "null",
        )
        for name in ("linear", "moe")
    ),
    (
        "structured_outputs_config.disable_any_whitespace",
        "structured_outputs_config.backend",
        lambda g: (
            g("structured_outputs_config.disable_any_whitespace")
            and g("structured_outputs_config.backend", "auto") not in ("xgrammar", "guidance")
        ),
        "false",
    ),
    (
        "structured_outputs_config.disable_additional_properties",
        "structured_outputs_config.backend",
        lambda g: (
            g("structured_outputs_config.disable_additional_properties")
            and g("structured_outputs_config.backend", "auto") != "guidance"
        ),
        "false",
    ),
    # profiling
    *(
        (
            f"{PROFILE}.{name}",
            f"{PROFILE}.profiler",
            lambda g, name=name: g(f"{PROFILE}.{name}") and g(f"{PROFILE}.profiler") != "torch",
            "null",
        )
        for name in ("torch_profiler_activities", "torch_profiler_dir", "capture_torch_profiler")
    ),
    *(
        (
            f"{PROFILE}.proton_{name}",
            f"{PROFILE}.profiler",
            lambda g, name=name: (
                g(f"{PROFILE}.profiler") != "proton" and proton(g, name) not in (PROTON.get(name), None, "", False)
            ),
            "null",
        )
        for name in ("profiler_dir", "context", "data", "backend", "mode", "hook", "output_format", "graph_attribution")
    ),
    (
        f"{PROFILE}.proton_graph_attribution",
        f"{PROFILE}.proton_data",
        lambda g: (
            g(f"{PROFILE}.profiler") == "proton" and proton(g, "graph_attribution") and proton(g, "data") != "tree"
        ),
        "false",
    ),
    (
        f"{PROFILE}.proton_graph_attribution",
        f"{PROFILE}.proton_mode",
        lambda g: (
            g(f"{PROFILE}.profiler") == "proton"
            and proton(g, "graph_attribution")
            and str(proton(g, "mode")).split(":")[0].lower() == "periodic_flushing"
        ),
        "false",
    ),
    (
        f"{PROFILE}.proton_output_format",
        f"{PROFILE}.proton_data",
        lambda g: (
            g(f"{PROFILE}.profiler") == "proton"
            and {"chrome_trace": "trace", "hatchet": "tree", "hatchet_msgpack": "tree"}.get(
                str(proton(g, "output_format")), proton(g, "data")
            )
            != proton(g, "data")
        ),
        "null",
    ),
    (
        f"{PROFILE}.proton_mode",
        "enforce_eager",
        lambda g: (
            g(f"{PROFILE}.profiler") == "proton"
            and str(proton(g, "mode")).split(":")[0].lower() == "pcsampling"
            and not g("enforce_eager")
        ),
        "null",
    ),
    (
        f"{PROFILE}.profiler",
        f"{PROFILE}.proton_graph_attribution",
        lambda g: (
            g(f"{PROFILE}.profiler") == "proton" and not g("enforce_eager") and not proton(g, "graph_attribution")
        ),
        "torch",
    ),
    # what is returned
    *(
        (
            "enable_return_routed_experts",
            name,
            lambda g, name=name: g("enable_return_routed_experts") and g.size(name.removesuffix("_parallel_size")) > 1,
            "false",
        )
        for name in ("decode_context_parallel_size", "prefill_context_parallel_size")
    ),
    (
        "enable_return_routed_experts",
        "enable_prefix_caching",
        lambda g: (
            g("enable_return_routed_experts")
            and g("aux_output_config.connector")
            and g("enable_prefix_caching") is False
        ),
        "false",
    ),
    (
        "enable_return_routed_experts",
        "kv_transfer_config.kv_connector",
        lambda g: g("enable_return_routed_experts") and g("kv_transfer_config.kv_connector") in PD_CONNECTORS,
        "false",
    ),
    (
        "return_sampling_mask",
        "logits_processors",
        lambda g: g("return_sampling_mask") and g("logits_processors"),
        "false",
    ),
    (
        "return_sampling_mask",
        "logprobs_mode",
        lambda g: g("return_sampling_mask") and g("logprobs_mode", "raw_logprobs") != "processed_logprobs",
        "false",
    ),
    (
        "enable_batch_sharded_sampling",
        "tensor_parallel_size",
        lambda g: g("enable_batch_sharded_sampling") and g.size("tensor") <= 1,
        "false",
    ),
    (
        "enable_batch_sharded_sampling",
        "max_num_seqs",
        lambda g: g("enable_batch_sharded_sampling") and g("max_num_seqs", math.inf) < g.size("tensor"),
        "false",
    ),
    (
        "enable_batch_sharded_sampling",
        "max_logprobs",
        lambda g: g("enable_batch_sharded_sampling") and g("max_logprobs", 20) < 0,
        "false",
    ),
    (
        "enable_batch_sharded_sampling",
        "return_sampling_mask",
        lambda g: g("enable_batch_sharded_sampling") and g("return_sampling_mask"),
        "false",
    ),
    # models with states
    (
        "enable_mamba_cache_stochastic_rounding",
        "mamba_ssm_cache_dtype",
        lambda g: g("enable_mamba_cache_stochastic_rounding") and g("mamba_ssm_cache_dtype") != "float16",
        "false",
    ),
    (
        "mamba_block_size",
        "enable_prefix_caching",
        lambda g: g("mamba_block_size") and g("enable_prefix_caching") is False,
        "null",
    ),
    (
        "mamba_cache_mode",
        "disable_chunked_mm_input",
        lambda g: g("mamba_cache_mode") == "align" and g("disable_chunked_mm_input"),
        "none",
    ),
    (
        "replayssm_buffer_len",
        "mamba_backend",
        lambda g: g("use_replayssm") and g("mamba_backend") == "flashinfer" and g("replayssm_buffer_len", 0) > 16,
        16,
    ),
    (
        "mamba_cache_mode",
        "mamba_backend",
        lambda g: g("use_replayssm") and g("mamba_backend") == "flashinfer" and g("mamba_cache_mode") == "align",
        "none",
    ),
    (
        "mamba_backend",
        "use_replayssm",
        lambda g: g("use_replayssm") and g("mamba_backend", "triton") not in ("triton", "flashinfer"),
        "triton",
    ),
    (
        "use_replayssm",
        "kv_transfer_config.kv_connector",
        lambda g: g("use_replayssm") and g("kv_transfer_config.kv_connector"),
        "false",
    ),
    # sparse attention
    (HISPARSE, "pipeline_parallel_size", lambda g: g(HISPARSE) and g.size("pipeline") > 1, "null"),
    (HISPARSE, "decode_context_parallel_size", lambda g: g(HISPARSE) and g.size("decode_context") > 1, "null"),
    (
        "kv_transfer_config.kv_connector",
        "kv_transfer_config.kv_connector_extra_config.host_pool_gib",
        lambda g: (
            g("kv_transfer_config.kv_connector") == "HiSparseConnector"
            and g("kv_transfer_config.kv_connector_extra_config.host_pool_gib") is None
        ),
        "null",
    ),
    (
        HISPARSE,
        f"{COMPILE}.cudagraph_mode",
        lambda g: g(HISPARSE) and g(f"{COMPILE}.cudagraph_mode") in ("FULL", 2),
        "null",
    ),
    (
        HISPARSE,
        "scheduler_reserve_full_isl",
        lambda g: g(HISPARSE) and g("scheduler_reserve_full_isl") is False,
        "null",
    ),
    (
        HISPARSE,
        "disable_hybrid_kv_cache_manager",
        lambda g: g(HISPARSE) and g("disable_hybrid_kv_cache_manager"),
        "null",
    ),
    # exchange of experts
    (
        "all2all_backend",
        "quantization",
        lambda g: g("all2all_backend") == "moonep" and g("quantization"),
        "allgather_reducescatter",
    ),
    (
        "all2all_backend",
        "dtype",
        lambda g: g("all2all_backend") == "moonep" and g("dtype") in ("float16", "half", "float32", "float"),
        "allgather_reducescatter",
    ),
    (
        "all2all_backend",
        "enable_eplb",
        lambda g: g("all2all_backend") == "moonep" and g("enable_eplb"),
        "allgather_reducescatter",
    ),
    (
        "all2all_backend",
        "expert_placement_strategy",
        lambda g: g("all2all_backend") == "moonep" and g("expert_placement_strategy", "linear") != "linear",
        "allgather_reducescatter",
    ),
    (
        "cp_kv_cache_interleave_size",
        "block_size",
        lambda g: (
            g.size("decode_context") > 1
            and g("block_size")
            and g("cp_kv_cache_interleave_size")
            and (
                g("block_size") % g("cp_kv_cache_interleave_size") or g("cp_kv_cache_interleave_size") > g("block_size")
            )
        ),
        1,
    ),
)
"""Arguments that exclude each other, but for those of speculation."""
