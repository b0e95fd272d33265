"""What one trainer or reference process does in these tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rlctl.config import Config
from rlctl.runtime.algorithms.distributions import LOG_PROBS
from rlctl.runtime.specs.trained import critic_spec, reference_spec, trainer_spec
from rlctl.runtime.sync.transport import HostMemory
from rlctl.runtime.types import Sample
from rlctl.runtime.workers.critic import Critic
from rlctl.runtime.workers.reference import Reference
from rlctl.runtime.workers.trainer import Place, Share, Trainer


def _place() -> Place:
    return Place(dist.get_rank(), dist.get_world_size(), "unused: the process is in its group already", 0)


def train(config: Config, model: Path, steps: Sequence[Sequence[Sequence[Share]]], old_is_current: bool) -> Any:
    """Take steps; ``steps[s][rank]`` are a worker's shares. Weights and metrics."""
    trainer = Trainer(trainer_spec(config, str(model), 8), _place())
    metrics = [trainer.train_step(shares[dist.get_rank()], old_is_current) for shares in steps]
    return weights_of(trainer), metrics


def weights_of(trainer: Trainer, bucket_bytes: int = 1 << 20, senders: Sequence[int] = (0,)) -> dict[str, torch.Tensor]:
    """The weights that a worker gives out to rollout engines, all buckets together; none if it is no sender."""
    message = trainer.begin_weights(HostMemory(), bucket_bytes, senders)
    found: dict[str, torch.Tensor] = {}
    while message is not None:
        bucket, last = message.content, message.last
        assert len(bucket.table.names) == 1 or bucket.table.nbytes <= 1.1 * bucket_bytes
        found |= {name: tensor.clone() for name, tensor in bucket.tensors()}
        message = trainer.next_bucket()
        assert last is (message is None)
    return found


def give_out(config: Config, model: Path, bucket_bytes: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The weights in buckets, after a sync that was broken off, and as they are exported; log-probs can be computed after."""
    trainer = Trainer(trainer_spec(config, str(model), 8), _place())
    trainer.begin_weights(HostMemory(), bucket_bytes)
    if dist.get_rank() == 0:
        trainer.next_bucket()
        trainer.end_weights()
    sent = weights_of(trainer, bucket_bytes)
    return sent, {name: tensor.clone() for name, tensor in trainer._engine.export_weights()}


def give_out_by(config: Config, model: Path, senders: Sequence[int]) -> list[dict[str, torch.Tensor]]:
    """The weights that this worker gives out in small buckets, twice: the first worker alone, and as one of some senders."""
    trainer = Trainer(trainer_spec(config, str(model), 8), _place())
    return [weights_of(trainer, 4096), weights_of(trainer, 4096, senders)]


def policy_and_reference(
    config: Config, model: Path, steps: Sequence[Sequence[Sequence[Share]]], samples: Sequence[Sample]
) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor], Sequence[torch.Tensor]]:
    """Log-probs of the reference, of the policy before training, and after it."""
    trainer = Trainer(trainer_spec(config, str(model), 8), _place())
    reference = Reference(reference_spec(config, str(model)), _place())
    [before] = trainer.statistics(samples, (LOG_PROBS,))
    for shares in steps:
        trainer.train_step(shares[dist.get_rank()], True)
    [after] = trainer.statistics(samples, (LOG_PROBS,))
    return reference.log_probs(samples), before, after


@dataclass
class OfCritic:
    """What a critic did."""

    before: Sequence[torch.Tensor]
    """Values of samples."""
    metrics: list[list[dict[str, float]]]
    after: Sequence[torch.Tensor]


def critic(
    config: Config,
    model: Path,
    steps: Sequence[Sequence[Sequence[Share]]],
    samples: Sequence[Sample],
    source: Path | None = None,
    target: Path | None = None,
    save_after: int = 0,
) -> OfCritic:
    """Take steps, from a checkpoint where there is one; save after so many."""
    worker = Critic(critic_spec(config, str(model), 8), _place())
    if source is not None:
        worker.load(source)
    before, metrics = list(worker.values(samples)), []
    for number, shares in enumerate(steps, 1):
        metrics.append(worker.train_step(shares[dist.get_rank()]))
        if target is not None and number == save_after:
            worker.save(target)
    return OfCritic(before, metrics, list(worker.values(samples)))


def train_and_save_policy(config: Config, model: Path, target: Path) -> None:
    """A checkpoint of a policy."""
    Trainer(trainer_spec(config, str(model), 8), _place()).save(target)
