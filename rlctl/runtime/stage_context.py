"""What a stage is put together from, as its parts are handed it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlctl.config import Stage
from rlctl.planning.plan import Device, StagePlan
from rlctl.runtime.checkpoints.checkpoint import place_of
from rlctl.runtime.reporting.events import Events
from rlctl.runtime.roles import Policy, ReferencePolicy, Rewards, RolloutEngines, ValueModel
from rlctl.runtime.stage_inputs import StageInputs
from rlctl.runtime.stopping import StopSwitch


@dataclass(frozen=True)
class StageContext:
    """A stage before it is one: what it is, what was read for it, where it is, and whom it tells and obeys."""

    stage: Stage
    plan: StagePlan
    device: Device
    materials: StageInputs
    folder: Path
    """Of the run."""
    events: Events
    stop: StopSwitch
    accept_changes: bool = False
    """Whether the stage goes on from a checkpoint though its training data was changed since."""

    @property
    def place(self) -> Path:
        """Where the stage keeps its checkpoints."""
        return place_of(self.stage, self.folder)


@dataclass(frozen=True)
class Roles:
    """The model roles and rewards of a stage; None for those that it has not."""

    policy: Policy | None
    critic: ValueModel | None
    reference: ReferencePolicy | None
    rollout: RolloutEngines | None
    rewards: Rewards | None
