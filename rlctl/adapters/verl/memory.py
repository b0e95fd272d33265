"""What verl holds on a device, by release (``rlctl.planning.memory_terms``).

Bytes of logits, for each token and entry of the vocabulary. FSDP: logits 2; their gradient 2, which flash attention's
cross-entropy writes over the logits unless the entropy needs them; the gradient before the division by the temperature 2; with
an entropy bonus the gradient of the entropy 2 and the sum of both 2. Megatron: logits in float32 4, their gradient before the
temperature 4; with the entropy a copy of the logits, softmax and products, 4 each.

Since 0.9.1 logits at temperature 1 are not divided, so that no gradient is there before it; at another temperature the division
makes a second copy, which a pass without gradient holds too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlctl.planning.memory_terms import MemoryTerms, WholeLogits, terms_of

_FSDP = WholeLogits(train=4, train_entropy=8, forward=2, forward_entropy=2, eager_entropy=8)
_UNDIVIDED = replace(_FSDP, train=2)
_DIVIDED = replace(_FSDP, forward=4, forward_entropy=4)
_MEGATRON = WholeLogits(train=8, train_entropy=20, forward=4, forward_entropy=16)
_SOURCES = {
    "logits": "verl/workers/actor/dp_actor.py, _forward_micro_batch",
    "megatron_logits": "verl/workers/actor/megatron_actor.py, logits_processor",
    "optimizer_step": "torch/optim/adam.py, _multi_tensor_adam",
    "frozen_on_cpu": "verl/workers/fsdp_workers.py, _build_model_optimizer",
    "expandable_segments": "verl/utils/device.py, set_expandable_segments",
    "fused_layers": "verl/models/mcore/model_initializer.py, get_gpt_decoder_block_spec",
}
_ENGINE = {
    **_SOURCES,
    "logits": "verl/workers/engine/fsdp/transformer_impl.py, prepare_model_outputs",
    "megatron_logits": "verl/workers/engine/megatron/transformer_impl.py, vocab_parallel_entropy",
    "frozen_on_cpu": "verl/workers/engine/fsdp/transformer_impl.py, _build_fsdp_module",
    "expandable_segments": "verl/workers/engine_workers.py, set_expandable_segments",
}
_FIRST = MemoryTerms(
    "verl",
    "0.3",
    logits=_FSDP,
    megatron_logits=_MEGATRON,
    entropy_always=True,
    frozen_copy="fsdp",
    optimizer_step=1,
    frozen_on_cpu=True,
    fused_layers=True,
    expandable_segments=False,
    sources={
        **_SOURCES,
        "entropy_always": "verl/workers/actor/dp_actor.py, update_policy",
    },
)
_WITHOUT_ENTROPY = replace(_FIRST, release="0.4", entropy_always=False, sources=_SOURCES)
_EXPANDABLE = replace(
    _WITHOUT_ENTROPY,
    release="0.6",
    expandable_segments=True,
    sources={
        **_SOURCES,
        "expandable_segments": "verl/workers/fsdp_workers.py, set_expandable_segments",
    },
)
_SERVERS = replace(
    _EXPANDABLE,
    release="0.7",
    engine_processes=True,
    sources={
        **_EXPANDABLE.sources,
        "engine_processes": "verl/workers/rollout/vllm_rollout/vllm_async_server.py, vLLMHttpServer",
    },
)
_NEW_ENGINE = replace(
    _SERVERS, release="0.8", sources={**_ENGINE, "engine_processes": _SERVERS.sources["engine_processes"]}
)
TERMS: Mapping[str, MemoryTerms] = {
    "0.3": _FIRST,
    "0.4": _WITHOUT_ENTROPY,
    "0.6": _EXPANDABLE,
    "0.7": _SERVERS,
    "0.8": _NEW_ENGINE,
    "0.9": replace(
        _NEW_ENGINE,
        release="0.9",
        logits=_UNDIVIDED,
        sources={
            **_NEW_ENGINE.sources,
            "logits": "verl/workers/engine/fsdp/transformer_impl.py, _scale_logits_by_temperature",
        },
    ),
}
"""By the first release that has them."""

TEMPERATURE = "actor_rollout_ref.rollout.temperature"
"""Of sampling, by which log-probs are computed too; 1.0 in verl's own YAML."""
DEFERS = "fsdp_config.use_no_sync_for_gradient_accumulation"
"""Since 0.9.1, whether gradients are reduced after the last micro-batch only; false in verl's own YAML."""
_DEFERRED = {"fsdp": 2, "fsdp2": 4}
"""Bytes of a gradient that waits: in the type of FSDP1's flat parameters, in that of FSDP2's reduction."""


def memory_terms(release: str, values: Mapping[str, Any]) -> MemoryTerms:
    """The terms of a release.

    Args:
        release: as ``0.9``.
        values: what a file sets, by key.
    """
    terms = replace(terms_of(TERMS, release), release=release)
    if terms.logits is _UNDIVIDED and values.get(TEMPERATURE, 1.0) != 1:
        terms = replace(terms, logits=_DIVIDED)
    if values.get(f"actor_rollout_ref.actor.{DEFERS}") is not True:
        return terms
    place = "verl/workers/engine/fsdp/transformer_impl.py, _gradient_sync_context"
    return replace(terms, kept_gradients=_DEFERRED, sources={**terms.sources, "kept_gradients": place})
