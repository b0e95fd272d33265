"""What ROLL's strategies hold on a device (``rlctl.planning.memory_terms``).

Bytes of logits, for each token and entry of the vocabulary. FSDP2 and DeepSpeed: logits 2, log-probs of all entries in float32
4, their gradient and that of the logits 4 each; with an entropy bonus a float32 copy and the softmax, and their gradients, 4
each. Megatron: logits in float32 4, their gradient 4; with the entropy softmax and products, 4 each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlctl.planning.memory_terms import MemoryTerms, WholeLogits, terms_of

_SOURCES = {
    "logits": "roll/utils/functionals.py, log_probs_from_logits",
    "megatron_logits": "roll/distributed/strategy/megatron_strategy.py, op_compute_log_probs",
    "optimizer_step": "torch/optim/adam.py, _multi_tensor_adam",
    "engine_processes": "roll/pipeline/base_worker.py, InferWorker",
    "engines_sleep": "roll/distributed/strategy/vllm_strategy.py, offload_states",
    "fused_layers": "mcore_adapter/models/model_factory.py, get_gpt_layer_with_transformer_engine_spec",
    "expandable_segments": "roll/platforms/cuda.py, get_custom_env_vars",
}
TERMS: Mapping[str, MemoryTerms] = {
    "2026.8": MemoryTerms(
        "roll",
        "2026.8",
        logits=WholeLogits(train=14, train_entropy=22, forward=10, forward_entropy=14),
        megatron_logits=WholeLogits(train=8, train_entropy=16, forward=8, forward_entropy=12),
        engine_processes=True,
        engines_sleep=True,
        optimizer_step=1,
        fused_layers=True,
        sources=_SOURCES,
    )
}
"""By the first release that has them."""


REDUCES = "actor_train.strategy_args.strategy_config.reduce_scatter_during_grad_accumulation"
"""Whether gradients are reduced after every micro-batch; true if a file does not say."""


def memory_terms(release: str, values: Mapping[str, Any]) -> MemoryTerms:
    """The terms of a release.

    Args:
        release: as ``2026.8``.
        values: what a file sets, by key.
    """
    terms = replace(terms_of(TERMS, release), release=release)
    if values.get(REDUCES) is not False:
        return terms
    place = "roll/distributed/strategy/fsdp2_strategy.py, _grad_accumulation_context"
    return replace(terms, kept_gradients={"fsdp2": 4}, sources={**terms.sources, "kept_gradients": place})
