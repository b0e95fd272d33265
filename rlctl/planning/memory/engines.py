"""Bytes of a rollout engine on one of its devices: weights in their type or quantized, and numbers of the KV cache.

Quantized weights are those of linear layers; embedding, output head and vision tower keep their type. Scales are part of the
bytes: one of 16 bits for 128 weights of 4 bits (AWQ, GPTQ), of 8 bits for 16 (NVFP4) or 32 (MX formats) weights.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlctl.config import Config
from rlctl.planning.arithmetic import Device
from rlctl.planning.memory.parts import BYTES
from rlctl.planning.models import ModelShape, read_shape

QUANTIZED: Mapping[str, float] = {
    "fp8": 1.0,
    "mxfp8": 1 + 1 / 32,
    "int8": 1.0,
    "mxfp4": 0.5 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,
    "awq": 0.5 + 2 / 128,
    "gptq": 0.5 + 2 / 128,
    "bitsandbytes": 0.5 + 4 / 64,
}
"""Bytes of a weight by the first word of ``rollout.memory.quantization`` (``awq_marlin``, ``fp8``)."""


def rollout_bytes(config: Config, device: Device) -> int:
    """Bytes of a number in the rollout engine: its own type, or the one that training computes in; float32 on CPU."""
    precision = config.rollout.precision
    if precision == "auto":
        return 4 if device == "cpu" else BYTES[config.train.precision.compute]
    return BYTES[precision]


def cache_bytes(config: Config, device: Device) -> int:
    """Bytes of a number in the KV cache."""
    return 1 if config.rollout.memory.kv_cache_dtype.startswith("fp8") else rollout_bytes(config, device)


def linear_bytes(config: Config, device: Device) -> float:
    """Bytes of a weight of a linear layer; a quantization that is not known counts as none."""
    each = rollout_bytes(config, device)
    kind = (config.rollout.memory.quantization or "").lower().replace("-", "_").partition("_")[0]
    return min(each, QUANTIZED.get(kind, each))


def draft_bytes(config: Config, device: Device) -> float:
    """Bytes of the weights of a draft model on one device: of ``speculative_config`` or ``speculative_draft_model_path``.

    0 if there is none, or its size is not known. vLLM cuts it over the tensor workers of the policy unless it says otherwise
    (``draft_tensor_parallel_size`` in ``vllm/config/speculative.py``).
    """
    args, parallel = config.rollout.engine.args, config.rollout.parallel
    speculative = args.get("speculative_config")
    asked = speculative if isinstance(speculative, Mapping) else {}
    path = asked.get("model") or args.get("speculative_draft_model_path")
    shape = read_shape(path) if isinstance(path, str) else None
    if shape is None:
        return 0.0
    split = asked.get("draft_tensor_parallel_size") or parallel.tensor_parallel_size
    return rollout_bytes(config, device) * shape.parameters / (split if isinstance(split, int) else 1)


def weight_bytes(config: Config, shape: ModelShape, device: Device) -> float:
    """Bytes of the weights on one device: experts are spread over the tensor workers, or over more devices."""
    parallel, each = config.rollout.parallel, rollout_bytes(config, device)
    linear = linear_bytes(config, device)
    kept = shape.embedding_parameters + shape.vision_parameters
    dense = each * kept + linear * (shape.parameters - shape.expert_parameters - kept)
    spread = max(parallel.tensor_parallel_size, parallel.expert_parallel_size)
    experts = linear * shape.expert_parameters / spread
    return (dense / parallel.tensor_parallel_size + experts) / parallel.pipeline_parallel_size
