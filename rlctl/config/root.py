"""The canonical config itself: its sections, in the order a person thinks of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rlctl.config.fields import Range, section
from rlctl.config.sections.algorithm import Algorithm
from rlctl.config.sections.batch import Batch, Schedule
from rlctl.config.sections.data import Data
from rlctl.config.sections.execution import Buffer, MemoryBuffer, Placement, Service, WeightSync
from rlctl.config.sections.model import Model
from rlctl.config.sections.output import Checkpoint, ConsoleTracker, Profiling, RuntimeSettings, Tracker
from rlctl.config.sections.rewards import Reward, RewardLoop, RuleReward
from rlctl.config.sections.rollout import Rollout
from rlctl.config.sections.run import Run
from rlctl.config.sections.train import Critic, Reference, Train

SCHEMA_VERSION = 1


@section
class Config:
    """One run: what is trained, on what, how, where."""

    rlctl: Annotated[Literal[1], Range(at_least=1)] = 1
    """Version of this schema. Every canonical file starts with it."""
    run: Run = Run()
    """Name, seed, mode and folder."""
    model: Model = Model()
    """The model that is trained."""
    data: Data = Data()
    """Datasets for training and evaluation."""
    batch: Batch = Batch()
    """Batch sizes of rollout and training."""
    schedule: Schedule = Schedule()
    """Length of the run and evaluation interval."""
    algorithm: Algorithm = Algorithm()
    """Objective, advantages, loss and reward shaping."""
    rollout: Rollout = Rollout()
    """How responses are generated."""
    train: Train = Train()
    """How the policy is trained."""
    critic: Critic | None = None
    """The value model, needed by gae. null = none."""
    reference: Reference = Reference()
    """The model that KL is measured against. Loaded only if something needs it."""
    rewards: tuple[Reward, ...] = (RuleReward(),)
    """How responses are scored."""
    reward_loop: RewardLoop = RewardLoop()
    """How scoring is organized."""
    weight_sync: WeightSync = WeightSync()
    """How new weights reach the rollout engines."""
    placement: Placement = Placement()
    """Nodes, devices, and how roles share them."""
    buffer: Buffer = MemoryBuffer()
    """Where responses wait for training."""
    checkpoint: Checkpoint = Checkpoint()
    """What is saved and resumed."""
    tracking: tuple[Tracker, ...] = (ConsoleTracker(),)
    """Services that receive metrics."""
    profiling: Profiling = Profiling()
    """Traces of selected steps."""
    runtime: RuntimeSettings = RuntimeSettings()
    """Environment variables, logs and the cluster."""
    service: Service = Service()
    """Helper services of the run."""
    stages: tuple[dict[str, Any], ...] = ()
    """Stages run in order. Each has a ``name`` and overrides. A stage without ``model.path`` starts from the
    previous stage's weights."""
    extensions: dict[str, dict[str, Any]] = {}
    """Keys that only one framework has, by framework and dotted key: ``{verl: {trainer.esi_redundant_time: 0}}``."""

    def carried_for(self, dialect: str) -> dict[str, Any]:
        """The keys of ``extensions`` that only this dialect has; none if there are none."""
        return self.extensions.get(dialect, {})
