"""What worker processes do with engines that replay experts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from torch import Tensor

from rlctl.config import Config
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.config.sections.model import Model
from rlctl.config.sections.train import Fsdp2, Train
from rlctl.runtime.algorithms.aggregation import Totals
from rlctl.runtime.models.routers import Routers
from rlctl.runtime.processes.group import LocalGroup
from rlctl.runtime.roles import Policy
from rlctl.runtime.specs.trained import policy_spec, trainer_spec
from rlctl.runtime.train.engines import make_train_engine
from rlctl.runtime.train.interface import LossTerms, TrainEngine
from rlctl.runtime.train.losses import totals_of
from rlctl.runtime.types import Sample
from rlctl.runtime.workers.trainer import Place, Trainer
from tests.runtime.train.megatron.engine_jobs import replica_of

TEMPERATURE = 0.7
NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Likelihood:
    """Minus the sum of all log-probs."""

    columns: tuple[str, ...] = ()

    def __call__(self, tensors: Mapping[str, Tensor], totals: Totals) -> LossTerms:
        loss = -tensors["log_probs"].sum()
        return LossTerms(loss, {"likelihood": loss.detach()})


def make(folder: Path, train: Train, **options: Any) -> TrainEngine:
    return make_train_engine(
        Model(path=str(folder), **options), train, role="policy", seed=1, scheduler_steps=10, replays=True
    )


@dataclass
class Replayed:
    """What a worker has of a pass that records, a pass that replays, an update, and passes after it."""

    replica: int
    recorded: list[Tensor]
    experts: list[Tensor]
    replayed: list[Tensor]
    metrics: dict[str, float]
    after: list[Tensor]
    """Of the changed weights, to the recorded experts."""
    own: list[Tensor]
    """Of the changed weights, to the experts that they choose."""


def record_and_replay(
    folder: Path, train: Train, samples: Sequence[Sample], micro: MicroBatchSize, target: Path
) -> Replayed:
    """Record in one pass, and replay in another, in an update, and after it; the weights go to ``target`` then."""
    engine = make(folder, train)
    replica, replicas = replica_of(train.engine)
    if isinstance(train.engine, Fsdp2) and train.engine.ulysses_sequence_parallel_size > 1:
        replica, replicas = 0, 1  # in these tests all workers share every sequence
    mine = [dataclasses.replace(sample) for sample in samples[replica::replicas]]
    pass_of = {"temperature": TEMPERATURE, "micro": micro}
    with engine.routed("recorded"):
        recorded = engine.log_probs(mine, **pass_of)
    experts = [sample.routed_experts for sample in mine]
    assert all(each is not None for each in experts)
    with engine.routed("given"):
        replayed = engine.log_probs(mine, **pass_of)
        metrics = engine.update(mine, Likelihood(), totals=totals_of(samples), **pass_of)
        after = engine.log_probs(mine, **pass_of)
    engine.export_hf(target, tokenizer=None).result()
    own = engine.log_probs(mine, **pass_of)
    return Replayed(replica, recorded, experts, replayed, metrics, after, own)


def given(
    folder: Path, train: Train, samples: Sequence[Sample], micro: MicroBatchSize, model: Mapping[str, Any] = NOTHING
) -> list[Tensor]:
    """Log-probs where tokens go to the samples' experts."""
    engine = make(folder, train, **model)
    with engine.routed("given"):
        return engine.log_probs(samples, temperature=TEMPERATURE, micro=micro)


def step(
    config: Config, folder: Path, samples: Sequence[Sample]
) -> tuple[list[Sample], list[Tensor], dict[str, float]]:
    """A step of the controller's with one worker: the samples as they are trained on, what the updates went to, metrics."""
    trainer = Trainer(
        trainer_spec(config, str(folder), 8), Place(0, 1, "unused: the process is in its group already", 0)
    )
    policy = Policy(LocalGroup("policy", trainer), policy_spec(config))
    went: list[Tensor] = []
    replaying = Routers.replaying

    def watched(self: Routers, experts: Tensor) -> Any:
        went.append(experts)
        return replaying(self, experts)

    with patch.object(Routers, "replaying", watched):
        policy.add_old_log_probs(samples)
        assert not went, "the pass for the old log-probs chooses"
        metrics = policy.train(samples, step=1, old_is_current=False)
    return list(samples), went, metrics
