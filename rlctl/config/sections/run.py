"""What the run is called, where it is kept, and how it ends: section ``run``."""

from __future__ import annotations

from typing import Annotated, Literal

from rlctl.config.fields import Local, Range, Seconds, Steps, Unit, section


@section
class Skip:
    """Replaces slow parts for debugging. The run folder is marked."""

    rollout: Literal["off", "dump", "replay"] = "off"
    """dump: save every step's responses. replay: load saved responses instead of generating."""
    folder: str | None = None
    """Folder of dumped responses. null = in the run folder."""


@section
class Run:
    """Name, seed, mode and folder of a run."""

    project: str = "rlctl"
    """Groups runs in trackers."""
    name: str = "run"
    """Name of the run and of its folder. Launching the same name again resumes it if the config means the same."""
    group: str | None = None
    """Level between project and name in trackers that have one."""
    seed: Annotated[int, Range(at_least=0)] = 42
    """Base of all random streams that have no other seed."""
    deterministic: bool = False
    """Use only kernels with reproducible results. Slower on GPU; CPU runs are always deterministic."""
    folder: Annotated[str, Local()] = "runs"
    """Folder that holds run folders."""
    mode: Literal["full", "rollout_only", "train_only", "evaluate_only"] = "full"
    """full: the whole loop. rollout_only: fill a buffer. train_only: read one. evaluate_only: evaluate."""
    max_steps_this_session: Steps | None = None
    """End cleanly after this many steps per launch, for queues with a time limit. null = no limit."""
    max_restarts: Annotated[int, Unit("restarts"), Range(at_least=0)] = 0
    """How often a run with a dead worker restarts from its last checkpoint. Higher values survive more failures."""
    on_end: str | None = None
    """Shell command run after a successful end, with RLCTL_RUN and RLCTL_STATUS in its environment."""
    on_failure: str | None = None
    """Shell command run after a failure. RLCTL_ERROR contains the first error."""
    time_limit: Seconds | None = None
    """Save a checkpoint and end cleanly after this long. null = no limit."""
    skip: Skip = Skip()
    """Debugging aids that replace parts of a step."""
