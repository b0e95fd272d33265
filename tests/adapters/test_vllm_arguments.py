"""Arguments that vLLM refuses are errors, each tried on vLLM's own config class where one section decides."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.adapters.roll.engine_limits import ROWS as ROLL_ROWS
from rlctl.adapters.verl.combination_limits import VLLM_ARGS
from rlctl.documents import read_yaml, write_yaml
from rlctl.translation.acceptance import findings_of
from rlctl.translation.translate import read_document
from tests.adapters.refused import R, changed, tree

DENSE, LATENT = "Qwen/Qwen2.5-7B-Instruct", "deepseek-ai/DeepSeek-V3"
OWN = {
    "tensor_parallel_size": f"{R}.tensor_model_parallel_size",
    "pipeline_parallel_size": f"{R}.pipeline_model_parallel_size",
}
ROLLOUT = ("data_parallel_size", "max_num_batched_tokens", "max_num_seqs", "max_model_len", "enforce_eager", "dtype")
ROLLOUT += ("enable_prefix_caching", "logprobs_mode")

SECTIONS: list[tuple[str, str, dict[str, Any], str]] = [
    ("compilation.CompilationConfig", "compilation_config", {"mode": "FAST"}, "mode"),
    (
        "compilation.CompilationConfig",
        "compilation_config",
        {"compile_cache_save_format": "zip"},
        "compile_cache_save_format",
    ),
    ("compilation.CompilationConfig", "compilation_config", {"custom_ops": ["rms_norm"]}, "custom_ops"),
    ("compilation.CompilationConfig", "compilation_config", {"custom_ops": ["all", "none"]}, "custom_ops"),
    ("compilation.CompilationConfig", "compilation_config", {"custom_ops": ["none", "+a", "-a"]}, "custom_ops"),
    ("compilation.CompilationConfig", "compilation_config", {"mode": "VLLM_COMPILE", "backend": "onnx"}, "backend"),
    (
        "compilation.CompilationConfig",
        "compilation_config",
        {"encoder_cudagraph_token_budgets": [0]},
        "encoder_cudagraph_token_budgets",
    ),
    (
        "compilation.CompilationConfig",
        "compilation_config",
        {"decoder_replay_cudagraph_capture_sizes": [0]},
        "decoder_replay_cudagraph_capture_sizes",
    ),
    (
        "compilation.CompilationConfig",
        "compilation_config",
        {"cudagraph_mm_encoder": True, "encoder_cudagraph_max_frames_per_batch": -1},
        "encoder_cudagraph_max_frames_per_batch",
    ),
    ("attention.AttentionConfig", "attention_config", {"backend_per_kind": {"full": "FLASH_ATTN"}}, "backend_per_kind"),
    ("kv_transfer.KVTransferConfig", "kv_transfer_config", {"kv_connector": "A", "kv_role": "both"}, "kv_role"),
    ("ec_transfer.ECTransferConfig", "ec_transfer_config", {"ec_connector": "A", "ec_role": "both"}, "ec_role"),
    (
        "ec_manager_config.EncoderCacheManagerConfig",
        "ec_manager_config",
        {"manager_config": {"a": 1}},
        "manager_config",
    ),
    ("engram.EngramConfig", "engram_config", {"dp_shared_memory": True, "cpu_offload": False}, "dp_shared_memory"),
    ("engram.EngramConfig", "engram_config", {"use_thp": True, "cpu_offload": False}, "use_thp"),
    ("parallel.EPLBConfig", "eplb_config", {"use_async": True, "communicator": "pynccl"}, "use_async"),
    (
        "parallel.EPLBConfig",
        "eplb_config",
        {"log_balancedness": True, "log_balancedness_interval": 0},
        "log_balancedness_interval",
    ),
    ("profiler.ProfilerConfig", "profiler_config", {"torch_profiler_dir": "t"}, "torch_profiler_dir"),
    ("profiler.ProfilerConfig", "profiler_config", {"proton_data": "trace"}, "proton_data"),
    (
        "profiler.ProfilerConfig",
        "profiler_config",
        {"profiler": "proton", "proton_profiler_dir": "s3://a"},
        "proton_profiler_dir",
    ),
    (
        "profiler.ProfilerConfig",
        "profiler_config",
        {"profiler": "proton", "proton_profiler_dir": "t", "proton_output_format": "chrome_trace"},
        "proton_output_format",
    ),
    (
        "profiler.ProfilerConfig",
        "profiler_config",
        {"profiler": "proton", "proton_profiler_dir": "t", "proton_graph_attribution": True, "proton_data": "trace"},
        "proton_graph_attribution",
    ),
    ("profiler.ProfilerConfig", "profiler_config", {"delay_iterations": -1}, "delay_iterations"),
    ("quantization.QuantizationConfigArgs", "quantization_config", {"targets": ["a"]}, "targets"),
    ("quantization.QuantizationConfigArgs", "quantization_config", {"targets": {"re:(": "mxfp8"}}, "targets"),
    (
        "structured_outputs.StructuredOutputsConfig",
        "structured_outputs_config",
        {"disable_any_whitespace": True},
        "disable_any_whitespace",
    ),
    (
        "structured_outputs.StructuredOutputsConfig",
        "structured_outputs_config",
        {"backend": "xgrammar", "disable_additional_properties": True},
        "disable_additional_properties",
    ),
]
"""Classes of vLLM, their section, arguments and the one that is told."""

FLAT: list[tuple[dict[str, Any], str]] = [
    ({"moe_backend": "flashinfer_moe_ep_cutedsl", "all2all_backend": "deepep_low_latency"}, "moe_backend"),
    ({"all2all_backend": "passthrough"}, "all2all_backend"),
    ({"enable_eplb": True, "tensor_parallel_size": 1}, "enable_eplb"),
    ({"eplb_config.num_redundant_experts": 2}, "eplb_config.num_redundant_experts"),
    ({"data_parallel_size_local": 4}, "data_parallel_size_local"),
    ({"enable_elastic_ep": True}, "enable_elastic_ep"),
    ({"nnodes": 3}, "nnodes"),
    ({"mm_shm_cache_max_object_size_mb": 64}, "mm_shm_cache_max_object_size_mb"),
    ({"collect_detailed_traces": ["all"]}, "collect_detailed_traces"),
    ({"custom_histogram_buckets": {"latency": [2, 1]}}, "custom_histogram_buckets"),
    ({"numa_bind_cpus": ["7-4"]}, "numa_bind_cpus"),
    ({"offload_group_size": 2, "offload_num_in_group": 3}, "offload_num_in_group"),
    ({"quantization": "fp_quant"}, "quantization"),
    ({"return_sampling_mask": True, "logprobs_mode": "raw_logprobs"}, "return_sampling_mask"),
    ({"enable_batch_sharded_sampling": True, "tensor_parallel_size": 1}, "enable_batch_sharded_sampling"),
    ({"spec_method": "ngram", "speculative_config.method": "ngram"}, "spec_method"),
    ({"async_scheduling": True, "speculative_config.method": "suffix"}, "async_scheduling"),
    ({"speculative_config.draft_tensor_parallel_size": 3}, "speculative_config.draft_tensor_parallel_size"),
    ({"watermark_config.key": 2**64}, "watermark_config.key"),
    ({"mamba_block_size": 8, "enable_prefix_caching": False}, "mamba_block_size"),
    ({"use_replayssm": True, "mamba_backend": "flashinfer", "mamba_cache_mode": "align"}, "mamba_cache_mode"),
    ({"decode_context_parallel_size": 2, "tensor_parallel_size": 4}, "decode_context_parallel_size"),
    ({"dtype": 16}, "dtype"),
    ({"device_ids": [0, 0]}, "device_ids"),
]
FREE: list[dict[str, Any]] = [
    {"compilation_config": {"mode": 3, "cudagraph_mode": "FULL_AND_PIECEWISE", "custom_ops": ["none", "+rms_norm"]}},
    {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}, "async_scheduling": True},
    {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}},
    {"kv_transfer_config": {"kv_connector": "A", "kv_role": "kv_both"}},
    {"eplb_config": {"log_balancedness": True, "use_async": True}},
    {"mm_processor_cache_gb": 0, "attention_backend": "FLASH_ATTN", "all2all_backend": "allgather_reducescatter"},
    {"structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True}, "max_logprobs": -1},
]
"""Arguments that people write and vLLM takes."""


def found(arguments: dict[str, Any]) -> list[str]:
    """The arguments that are reported."""
    own = {**OWN, **{name: f"{R}.{name}" for name in ROLLOUT}}
    keys = {own.get(name, f"{VLLM_ARGS}.{name}"): value for name, value in arguments.items()}
    document = read_yaml(write_yaml(tree(changed("verl", {"actor_rollout_ref.model.path": DENSE, **keys}))), "run.yaml")
    loaded, report = read_document(document, dialect="verl@0.9", environment={})
    told = [item.key for item in findings_of("verl", loaded, report) if item.code == "runner-refuses"]
    names = {key: name for name, key in own.items()}
    return [names.get(key, key.removeprefix(f"{VLLM_ARGS}.")) for key in told]


def test_what_a_section_of_vllm_refuses_is_told() -> None:
    for _, section, arguments, told in SECTIONS:
        keys = {f"{section}.{key}": value for key, value in arguments.items()}
        assert f"{section}.{told}" in found(keys), (arguments, told)


@pytest.mark.upstream
def test_vllm_refuses_what_is_told_of_a_section() -> None:
    from importlib import import_module

    for name, _, arguments, _ in SECTIONS:
        module, _, kind = name.rpartition(".")
        with pytest.raises((ValueError, TypeError, AssertionError)):
            getattr(import_module(f"vllm.config.{module}"), kind)(**arguments)


@pytest.mark.parametrize(("arguments", "key"), FLAT, ids=lambda part: part if isinstance(part, str) else "")
def test_arguments_that_exclude_each_other_are_told(arguments: dict[str, Any], key: str) -> None:
    assert key in found(arguments)


def test_arguments_that_people_write_are_not() -> None:
    for arguments in FREE:
        assert [key for key in found(arguments) if key.partition(".")[0] in arguments] == [], arguments


def test_roll_hands_the_same_arguments_on() -> None:
    assert any(row.key.endswith("strategy_config.compilation_config.mode") for row in ROLL_ROWS)


SGLANG: list[tuple[dict[str, Any], str]] = [
    ({"chunked_prefill_size": 100, "page_size": 64}, "chunked_prefill_size"),
    ({"enable_mixed_chunk": True, "speculative_algorithm": "EAGLE"}, "enable_mixed_chunk"),
    ({"enable_dp_lm_head": True}, "enable_dp_lm_head"),
    ({"enable_hierarchical_cache": True, "disable_radix_cache": True}, "enable_hierarchical_cache"),
    ({"enable_lora": True, "max_loaded_loras": 2, "max_loras_per_batch": 4}, "max_loaded_loras"),
    ({"enable_priority_scheduling": True, "schedule_policy": "lpm"}, "enable_priority_scheduling"),
    ({"attention_backend": "fa4"}, "attention_backend"),
    ({"max_lora_chunk_size": 48, "enable_lora": True}, "max_lora_chunk_size"),
    ({"moe_runner_backend": "flashinfer_trtllm"}, "moe_runner_backend"),
]
SGLANG_FREE: list[dict[str, Any]] = [
    {"chunked_prefill_size": 8192, "page_size": 64, "attention_backend": "fa3", "mem_fraction_static": 0.8},
    {
        "speculative_algorithm": "EAGLE",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "max_running_requests": 64,
    },
    {"disable_radix_cache": True, "enable_deterministic_inference": True, "schedule_policy": "fcfs"},
]


def test_what_sglang_refuses_is_told() -> None:
    section = f"{R}.engine_kwargs.sglang"
    for arguments, key in [*SGLANG, *((free, "") for free in SGLANG_FREE)]:
        keys = {f"{section}.{name}": value for name, value in arguments.items()}
        document = read_yaml(write_yaml(tree(changed("verl", {f"{R}.name": "sglang", **keys}))), "run.yaml")
        loaded, report = read_document(document, dialect="verl@0.9", environment={})
        told = [item.key for item in findings_of("verl", loaded, report) if item.code == "runner-refuses"]
        assert [name for name in told if name.startswith(section)] == ([f"{section}.{key}"] if key else []), arguments
