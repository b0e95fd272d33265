"""Runs from the outside: start one, list, follow, stop, resume, remove. Owns the layout of the run folder.

    runs/<name>/
        run.json        name, status, process, when it began and ended, the cause of a failure
        config.yaml     the canonical config as resolved; secrets stay interpolations
        source.*        the files as they were given
        plan.json       the plan that is executed
        events.jsonl    what happens, one JSON object a line
        logs/           output of every worker
        checkpoints/    by stage
        samples/        some responses of each step and evaluation, by stage
        processes/      what each process was last seen to use
        stop            its presence asks the run to save and end after the current step
        checkpoint      its presence asks the run to save after the current step, and go on
        alive           touched while the run goes on, for whoever looks from another machine
        lock            held by the process of the run

Only ``starting``, ``returning`` and ``exporting`` import the runtime; everything else reads and writes the folder.
"""

from __future__ import annotations

from rlctl.runs.exporting import export
from rlctl.runs.folder import folder_of, read_config, symbolic
from rlctl.runs.inspection import (
    RunInfo,
    accepted_changes,
    asked_of,
    checkpoint,
    events,
    find,
    inspect,
    list_runs,
    remove,
    stop,
    with_others,
)
from rlctl.runs.launching import resume_apart
from rlctl.runs.machine import local_cluster
from rlctl.runs.record import Status
from rlctl.runs.rollback import Kept, Standing, checkpoints, standing
from rlctl.runs.starting import (
    Observer,
    RunResult,
    TryResult,
    differences,
    prepare,
    resume,
    start,
    try_out,
    with_ray_that_is_there,
)

__all__ = [
    "Kept",
    "Observer",
    "RunInfo",
    "RunResult",
    "Standing",
    "Status",
    "TryResult",
    "accepted_changes",
    "asked_of",
    "checkpoint",
    "checkpoints",
    "differences",
    "events",
    "export",
    "find",
    "folder_of",
    "inspect",
    "list_runs",
    "local_cluster",
    "prepare",
    "read_config",
    "remove",
    "resume",
    "resume_apart",
    "standing",
    "start",
    "stop",
    "symbolic",
    "try_out",
    "with_others",
    "with_ray_that_is_there",
]
