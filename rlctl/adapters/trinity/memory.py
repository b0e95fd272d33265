"""What Trinity-RFT's trainer holds on a device (``rlctl.planning.memory_terms``).

Trinity trains with verl's actor, so logits have the same bytes: logits 2, the gradients of log-probs and of the entropy 2 each,
and their sum 2. Trinity's own estimate has the same 8 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlctl.planning.memory_terms import MemoryTerms, WholeLogits, terms_of

_SOURCES = {
    "logits": "trinity/common/config_validator.py, _calc_fsdp_activation_memory",
    "megatron_logits": "trinity/trainer/verl/megatron_actor.py, logits_processor",
    "entropy_always": "trinity/trainer/verl/dp_actor.py, update_policy",
    "optimizer_step": "torch/optim/adam.py, _multi_tensor_adam",
    "frozen_on_cpu": "trinity/trainer/verl/fsdp_workers.py, _build_model_optimizer",
    "fused_layers": "verl/models/mcore/model_initializer.py, get_gpt_decoder_block_spec",
    "expandable_segments": "trinity/common/config_validator.py, fsdp_memory_check",
}
TERMS: Mapping[str, MemoryTerms] = {
    "0.5": MemoryTerms(
        "trinity",
        "0.5",
        logits=WholeLogits(train=4, train_entropy=8, forward=2, forward_entropy=2, eager_entropy=8),
        megatron_logits=WholeLogits(train=8, train_entropy=20, forward=4, forward_entropy=16),
        entropy_always=True,
        frozen_copy="fsdp",
        optimizer_step=1,
        frozen_on_cpu=True,
        fused_layers=True,
        expandable_segments=False,
        sources=_SOURCES,
    )
}
"""By the first release that has them."""


def memory_terms(release: str, values: Mapping[str, Any]) -> MemoryTerms:
    """The terms of a release.

    Args:
        release: as ``0.6``.
        values: what a file sets, by key.
    """
    terms = replace(terms_of(TERMS, release), release=release)
    return replace(terms, entropy_always=False) if values.get("algorithm.entropy_loss_fn") == "none" else terms
