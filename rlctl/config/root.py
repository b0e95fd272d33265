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
    """Where prompts come from."""
    batch: Batch = Batch()
    """How much is rolled out and trained on at once."""
    schedule: Schedule = Schedule()
    """How long, and how often it evaluates."""
    algorithm: Algorithm = Algorithm()
    """What is learned from what."""
    rollout: Rollout = Rollout()
    """How responses are generated."""
    train: Train = Train()
    """How the policy is trained."""
    critic: Critic | None = None
    """The value model; null has none. Needed by gae."""
    reference: Reference = Reference()
    """The model that KL is measured against; made only where something measures it."""
    rewards: tuple[Reward, ...] = (RuleReward(),)
    """How responses are scored."""
    reward_loop: RewardLoop = RewardLoop()
    """How scoring is organised."""
    weight_sync: WeightSync = WeightSync()
    """How new weights reach rollout."""
    placement: Placement = Placement()
    """Nodes, devices, and who shares them."""
    buffer: Buffer = MemoryBuffer()
    """Where responses wait to be trained on."""
    checkpoint: Checkpoint = Checkpoint()
    """What is saved and resumed."""
    tracking: tuple[Tracker, ...] = (ConsoleTracker(),)
    """Where metrics go; several at once are fine."""
    profiling: Profiling = Profiling()
    """Traces of chosen steps."""
    runtime: RuntimeSettings = RuntimeSettings()
    """Variables, logs and the cluster."""
    service: Service = Service()
    """Helper services beside the run."""
    stages: tuple[dict[str, Any], ...] = ()
    """Parts run one after the other, each a ``name`` and the keys that differ. A stage that sets no ``model.path`` goes on
    from the weights of the one before."""
    extensions: dict[str, dict[str, Any]] = {}
    """Keys that only one dialect has, by dialect and dotted key: ``{verl: {trainer.esi_redundant_time: 0}}``."""

    def carried_for(self, dialect: str) -> dict[str, Any]:
        """The keys of ``extensions`` that only this dialect has; none if there are none."""
        return self.extensions.get(dialect, {})
