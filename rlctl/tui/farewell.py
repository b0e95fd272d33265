"""What the terminal says after the app has ended: the runs that continue without it, and how to get back to each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rlctl import runs
from rlctl.common import quoting
from rlctl.common.errors import RlctlError
from rlctl.common.filenames import is_folder
from rlctl.runs.launching import Launched
from rlctl.tui.language import say

MOST = 5
"""Runs that are named; the others are counted."""


def still_running(runs_folder: Path, watched: set[Path], launched: Sequence[Launched]) -> Iterator[str]:
    """A line for each run that continues, those that the app showed first; and one for what is still starting.

    Args:
        runs_folder: where the app looked for runs.
        watched: the folders of the runs that it showed.
        launched: the commands that it started.
    """
    found = [info for folder in sorted(watched) if (info := _inspected(folder)) is not None]
    known = {info.folder.resolve() for info in found}
    others = runs.list_runs(runs_folder) if is_folder(runs_folder) else []
    found += [info for info in others if info.folder.resolve() not in known]
    running = [info for info in found if info.status == "running"]
    told = say("{name} is still running. Watch it: {watch}    Stop it: {stop}")
    for info in running[:MOST]:
        watch, stop = (quoting.command(["rlctl", *words, info.folder]) for words in (["tui"], ["runs", "stop"]))
        yield told.format(name=info.name, watch=watch, stop=stop)
    if len(running) > MOST:
        more = len(running) - MOST
        told = say("1 more run is still running. List it: {command}")
        told = told if more == 1 else say("{count} more runs are still running. List them: {command}")
        yield told.format(count=more, command=quoting.command(["rlctl", "runs", "list", "--folder", runs_folder]))
    pids = {info.pid for info in running}
    starting = say("{command} is still starting (process {pid}). Its output: {output}")
    for one in launched:
        if one.exit_code is None and one.process.pid not in pids:
            command = quoting.command(["rlctl", *one.words])
            yield starting.format(command=command, pid=one.process.pid, output=one.output)


def _inspected(folder: Path) -> runs.RunInfo | None:
    """What a run folder says; None where it is gone or cannot be read."""
    try:
        return runs.inspect(folder)
    except (RlctlError, OSError):
        return None
