"""What a framework holds on a device: the terms in which frameworks differ, as data that adapters pass to planning.

``rlctl/adapters/<framework>/memory.py`` has the values of each release, with the place in the framework's source. rlctl's own
are below. Planning reads terms and knows no framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from rlctl.common.records import record

Version = tuple[int, ...]


@record
class WholeLogits:
    """Bytes for each token and entry of the vocabulary, if a framework holds the logits of a micro-batch whole."""

    train: float
    """Forward and backward pass of a loss without a gradient of the entropy."""
    train_entropy: float
    """The same with a gradient of the entropy."""
    forward: float
    """Log-probs without gradient."""
    forward_entropy: float
    """Old log-probs, with the entropy that is logged."""
    eager_entropy: float = 0.0
    """More of them while the entropy is computed without torch.compile, unless it is chunked or recomputed."""


@record
class MemoryTerms:
    """What decides the memory of a run in one release of a framework."""

    framework: str = "rlctl"
    release: str = ""
    logits: WholeLogits | None = None
    """Of FSDP and DeepSpeed; None if log-probs are computed from chunks of rows."""
    megatron_logits: WholeLogits | None = None
    """Of Megatron, where tensor-parallel workers share the vocabulary."""
    entropy_always: bool = False
    """Whether the loss has a gradient of the entropy even if its coefficient is 0."""
    kept_gradients: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each unsharded gradient that stays on the device between micro-batches, by ``Fsdp2.source``."""
    frozen_copy: str = ""
    """The ``Fsdp2.source`` under which the frozen weights of a model with adapters have a copy (``fitted.FROZEN_COPY``)."""
    optimizer_step: int = 0
    """Numbers for each parameter of a shard, of its type, that an optimizer step allocates and frees again."""
    engines_sleep: bool = False
    """Whether engines on devices that training uses always give them their memory; else as in rlctl, if colocated."""
    engine_processes: bool = False
    """Whether engines are processes of their own, which keep some memory while they sleep (``memory.phases.ASLEEP``)."""
    frozen_on_cpu: bool = False
    """Whether the weights of a frozen model wait in CPU memory, and layers come to the device one by one (FSDP)."""
    fused_layers: bool = False
    """Whether Megatron's layers are Transformer Engine's, which keep fewer activations."""
    expandable_segments: bool = True
    """Whether training allocates in expandable segments, which hardly fragment."""
    full_lengths: bool = False
    """Whether every sequence of a micro-batch is taken to be as long as allowed; else one is."""
    mean_share: float | None = None
    """Length of the other sequences of a micro-batch as a share of the longest, if it is known (``fitted.MEAN_LENGTH`` else)."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The place in the framework's source of each of these."""


OWN = MemoryTerms()
"""Terms of rlctl's runtime."""


def terms_of(table: Mapping[str, MemoryTerms], release: str) -> MemoryTerms:
    """The terms of a release: those of the newest entry that is not newer.

    Args:
        table: terms by the first release that has them.
        release: as ``0.6``.
    """
    asked = _version(release)
    known = [since for since in table if _version(since) <= asked]
    return table[max(known or table, key=_version)] if known else table[min(table, key=_version)]


def _version(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))
