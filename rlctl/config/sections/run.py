"""What the run is called, where it is kept, and how it ends: section ``run``."""

from __future__ import annotations

from typing import Annotated, Literal

from rlctl.config.fields import Range, Seconds, Steps, Unit, section


@section
class Skip:
    """Stand-ins for slow parts while debugging; a run that uses them is marked in its folder."""

    rollout: Literal["off", "dump", "replay"] = "off"
    """Keep every step's responses on disk (dump), or read them back instead of generating (replay)."""
    folder: str | None = None
    """Where dumped responses are kept; null puts them in the run folder."""


@section
class Run:
    """Name, seed, mode and folder of a run."""

    project: str = "rlctl"
    """Groups runs in trackers."""
    name: str = "run"
    """Name of the run and of its folder. Launching the same name again resumes it if the config means the same."""
    group: str | None = None
    """A level between project and name in trackers that have one."""
    seed: Annotated[int, Range(at_least=0)] = 42
    """Base of every random stream that has no seed of its own. Another value gives another run."""
    deterministic: bool = False
    """Use only kernels that give the same bits each time. Slower on GPU; CPU runs are deterministic anyway."""
    folder: str = "runs"
    """Folder that holds run folders."""
    mode: Literal["full", "rollout_only", "train_only", "evaluate_only"] = "full"
    """Which parts of the loop run: all of it, only rollout (fills a buffer), only training (drains one), only evaluation."""
    max_steps_this_session: Steps | None = None
    """End cleanly after this many steps of one launch, for queues with a time limit. null never does."""
    max_restarts: Annotated[int, Unit("restarts"), Range(at_least=0)] = 0
    """How often a run with a dead worker goes on by itself from its last checkpoint. Raised, it survives more failures."""
    on_end: str | None = None
    """Shell command called when the run ends well; it finds RLCTL_RUN and RLCTL_STATUS in its environment."""
    on_failure: str | None = None
    """Shell command called when the run fails; RLCTL_ERROR holds the first cause."""
    time_limit: Seconds | None = None
    """Save a checkpoint and end cleanly after this long. null never does."""
    skip: Skip = Skip()
    """Debugging aids that leave parts of a step out."""
