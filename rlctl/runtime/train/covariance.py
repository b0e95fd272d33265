"""Which tokens of a mini-batch ``clip_cov`` and ``kl_cov`` choose: known only over the whole mini-batch, so before its update.

One more pass gives the log-probs of the moment. Workers tell each other what they found, and each chooses over all tokens in
the order of the mini-batch, so that neither micro-batches nor workers change the choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rlctl.config.sections.algorithm import Algorithm, OtherLoss, PolicyLoss
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.runtime.algorithms.further_losses import covers_for_clip, covers_for_kl
from rlctl.runtime.seeds import derive_seed
from rlctl.runtime.train.interface import TrainEngine
from rlctl.runtime.types import Sample

KINDS = ("clip_cov", "kl_cov")
Found = dict[int, tuple[Tensor, Tensor, Tensor]]
"""Log-probs of the moment, old log-probs and advantages of the counted tokens, by place in the mini-batch."""


def chooses(algorithm: Algorithm) -> bool:
    """Whether the policy loss is one of these."""
    loss = algorithm.policy_loss
    return isinstance(loss, OtherLoss) and loss.kind in KINDS and algorithm.objective.choice in ("rl", "mix")


def mark(
    engine: TrainEngine,
    samples: Sequence[Sample],
    places: Sequence[int],
    loss: PolicyLoss,
    *,
    micro: MicroBatchSize,
    seed: int,
    number: int,
    temperature: float,
    old_is_current: bool,
) -> None:
    """Write the column ``chosen`` of a worker's share: 1 for the tokens that the loss treats apart. Every worker is to call it.

    Args:
        engine: of this worker.
        samples: its share.
        places: where each stands in the mini-batch.
        loss: the section ``algorithm.policy_loss``.
        micro: a micro-batch of that pass.
        seed: of the run, for the random choice.
        number: of the mini-batch, for the same.
        temperature: of the log-probs.
        old_is_current: whether the log-probs of the moment stand for the old ones.
    """
    now = engine.log_probs(samples, temperature=temperature, micro=micro)
    mine: Found = {}
    for place, sample, log_probs in zip(places, samples, now, strict=True):
        old = log_probs if old_is_current else sample.columns["old_log_probs"]
        mine[place] = tuple(each[sample.mask] for each in (log_probs, old, sample.columns["advantages"]))  # type: ignore[assignment]
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    found: Found = {place: tensors for part in everyone for place, tensors in part.items()}
    chosen = dict(zip(sorted(found), _choose(loss, found, seed, number), strict=True))
    for place, sample in zip(places, samples, strict=True):
        sample.columns["chosen"] = torch.zeros(len(sample)).masked_scatter(sample.mask, chosen[place])


def _choose(loss: PolicyLoss, found: Found, seed: int, number: int) -> tuple[Tensor, ...]:
    """Of each sequence, in the order of the mini-batch, which counted tokens are chosen: float32, 0 or 1."""
    assert isinstance(loss, OtherLoss), "a loss of another kind chooses nothing"
    ordered = [found[place] for place in sorted(found)]
    if not ordered:
        return ()
    log_probs, old, advantages = (torch.cat(column) for column in zip(*ordered, strict=True))
    args: Mapping[str, Any] = {name: value for name, value in loss.args.items() if value is not None}
    if loss.kind == "kl_cov":
        chosen = covers_for_kl(log_probs, advantages, ratio=args.get("kl_cov_ratio", 0.0002))
    else:
        names = {"clip_cov_ratio": "ratio", "clip_cov_lb": "low", "clip_cov_ub": "high"}
        options = {ours: args[name] for name, ours in names.items() if name in args}
        bounds = {name: args[name] for name in ("clip_low", "clip_high") if name in args}
        generator = torch.Generator().manual_seed(derive_seed(seed, "clip_cov", number))
        chosen = covers_for_clip(log_probs, old, advantages, generator, **options, **bounds)
    return chosen.float().split([len(each[0]) for each in ordered])
