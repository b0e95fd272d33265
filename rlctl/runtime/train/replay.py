"""The experts of samples, ``Sample.routed_experts``, as the rows of a micro-batch, and back.

A row that no token of a sample lies in, padding or what fills a micro-batch up, has some experts: nothing counts what they say.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.train.microbatch import MicroBatch
from rlctl.runtime.train.rows import to_device
from rlctl.runtime.types import Sample


def rows_of(samples: Sequence[Sample], batch: MicroBatch) -> Tensor:
    """The experts of every place of a micro-batch with these samples, one at least: int64 [places, layers, k].

    Raises:
        RunError: of a sample they are not known, or not of all tokens that it is fed.
    """
    given = [_fed(sample, width) for sample, width in zip(samples, batch.widths, strict=True)]
    rows = filler(batch.inputs["input_ids"].numel(), *given[0].shape[1:])
    rows[batch.places] = torch.cat(given).long()
    return to_device(rows, batch.select.device)


def filler(places: int, layers: int, chosen: int) -> Tensor:
    """Some experts, all different in a layer."""
    return torch.arange(chosen).repeat(places, layers, 1)


def give(samples: Sequence[Sample], batch: MicroBatch, rows: Tensor) -> None:
    """Write down on each sample what was chosen for its tokens; ``rows`` is int64 [places, layers, k]."""
    chosen = narrowed(rows.cpu()[batch.places])
    for sample, own in zip(samples, chosen.split(batch.widths), strict=True):
        sample.routed_experts = own.clone()


def narrowed(experts: Tensor) -> Tensor:
    """The same as small numbers, to keep and to send."""
    highest = int(experts.max()) if experts.numel() else 0
    return experts.to(torch.uint8 if highest < 256 else torch.int16)


def _fed(sample: Sample, width: int) -> Tensor:
    known = sample.routed_experts
    if known is None or len(known) < width:
        raise RunError(
            said(
                "algorithm.router_replay: a sample has recorded experts for {value} tokens, but the model receives "
                "{width} tokens",
                value=0 if known is None else len(known),
                width=width,
            ),
            hint="set algorithm.router_replay to off",
        )
    return known[:width]
