"""Looking at runs from outside, and asking one to end or to write a checkpoint: only the run folder is read."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rlctl.common import quoting
from rlctl.common.errors import RunError, nearest
from rlctl.common.filenames import is_file, is_there
from rlctl.common.messages.reasons import said
from rlctl.common.messages.recorded import with_reasons
from rlctl.common.regular_files import LONGEST_LINE, from_json, open_regular, read_json
from rlctl.runs.record import NUMBER, Status, is_alive, record_of
from rlctl.runtime.stopping import CHECKPOINT_FILE, STOP_FILE

BLOCK = 1 << 16
"""Bytes that are read at a time from the end of a log."""
FURTHEST = 1 << 28
"""Bytes before the end of a log beyond which no event is looked for."""
_STEP_KINDS: dict[str, type | tuple[type, ...]] = {"stage": str, "step": int, "total_steps": (int, type(None))}
"""What an event says of how far a run is; what is of another kind is not taken from a damaged one."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run as its folder shows it."""

    name: str
    folder: Path
    status: Status
    """``interrupted``: it was running when its process or machine went away."""
    stage: str
    step: int
    total_steps: int | None
    started: datetime
    seconds: float
    cause: str
    pid: int
    host: str
    directory: str = ""
    """Where it was started; empty where that is not known."""
    resumed: datetime | None = None
    """When a run that was resumed began last; ``started`` is when it began first, ``seconds`` are those that it ran in all."""


def list_runs(folder: Path) -> list[RunInfo]:
    """All runs in a folder, newest first."""
    found = [_inspect_any(path.parent) for path in folder.glob("*/run.json")]
    return sorted((info for info in found if info), key=lambda info: info.started, reverse=True)


def with_others(listed: list[RunInfo], folders: Iterable[Path]) -> list[RunInfo]:
    """Runs, and those of further folders among them, newest first."""
    known = {info.folder.resolve() for info in listed}
    others = [
        info for folder in folders if folder.resolve() not in known and (info := _inspect_any(folder)) is not None
    ]
    return sorted([*listed, *others], key=lambda info: info.started, reverse=True)


def _inspect_any(folder: Path) -> RunInfo | None:
    """``inspect`` for lists of runs: a run that cannot be read counts as interrupted. None if the folder is gone."""
    try:
        return inspect(folder)
    except (RunError, OSError) as error:
        try:
            began = datetime.fromtimestamp((folder / "run.json").stat().st_mtime, tz=UTC)
        except OSError:
            return None
        cause = error.message if isinstance(error, RunError) else str(error)
        return RunInfo(folder.name, folder, "interrupted", "", 0, None, began, 0.0, cause, 0, "")


def find(name_or_path: str, folder: Path) -> RunInfo:
    """A run by its name in ``folder``, or by the path of its own folder.

    Raises:
        RunError: there is no such run; the nearest name is suggested.
    """
    for candidate in (folder / name_or_path, Path(name_or_path)):
        if is_there(candidate / "run.json"):
            return inspect(candidate)
    known = [path.parent.name for path in folder.glob("*/run.json")]
    listed = said("`rlctl runs list` shows the {count} runs of {folder}", count=len(known), folder=folder)
    none = "the folder has no runs yet; --folder names another one"
    hint = nearest(name_or_path, known) or (listed if known else none)
    raise RunError(said("there is no run {name!r} in {folder}", name=name_or_path, folder=folder), hint=hint)


def inspect(folder: Path) -> RunInfo:
    """Read a run's folder.

    Raises:
        RunError: run.json is damaged, or a file of the run is not a regular file.
    """
    try:
        record = record_of(read_json(folder / "run.json"))
    except (OSError, ValueError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise RunError(
            said("{value} is damaged: {why}", value=folder / "run.json", why=why),
            hint=said("remove or repair {folder}", folder=folder),
        ) from error
    with _readable(folder):
        progress = _progress(folder)
    status, cause = record.status, record.cause
    if status == "running" and not is_alive(record, folder):
        status, cause = _told_end(progress["last"], record.started)
    ended = record.ended or (time.time() if status == "running" else progress["time"] or record.started)
    return RunInfo(
        name=record.name,
        folder=folder,
        status=status,  # type: ignore[arg-type]
        stage=progress["stage"],
        step=progress["step"],
        total_steps=progress["total_steps"],
        started=datetime.fromtimestamp(record.first_started or record.started, tz=UTC),
        seconds=record.earlier_seconds + ended - record.started,
        cause=cause,
        pid=record.pid,
        host=record.host,
        directory=record.directory,
        resumed=datetime.fromtimestamp(record.started, tz=UTC) if record.first_started else None,
    )


def before_resume(folder: Path) -> tuple[float, float]:
    """When the run of a folder began first, and how many seconds it has run; zeros without a run that can be read."""
    try:
        info = inspect(folder)
    except RunError:
        return 0.0, 0.0
    return info.started.timestamp(), max(0.0, info.seconds)


def _told_end(last: dict[str, Any], started: float) -> tuple[str, str]:
    """Status and cause of a run whose process is gone and left no record of it: what its last event tells, if it is that."""
    status, cause, when = (last.get(name) for name in ("status", "cause", "time"))
    told = last.get("kind") == "run_ended" and isinstance(when, NUMBER) and when >= started
    if told and status in ("finished", "stopped", "failed") and isinstance(cause, str):
        return str(status), cause
    return "interrupted", ""


def _progress(folder: Path) -> dict[str, Any]:
    """Stage and step of the last step event, the last event, and its time. A long log is read from its end."""
    found: dict[str, Any] = {"stage": "", "step": 0, "total_steps": None, "time": None, "last": {}}
    for event in _newest_events(folder / "events.jsonl"):
        found["last"] = found["last"] or event
        if found["time"] is None and isinstance(event.get("time"), NUMBER):
            found["time"] = event["time"]
        if event.get("kind") in ("step", "stage_started"):
            told = {key: event[key] for key in _STEP_KINDS if key in event}
            return found | {key: value for key, value in told.items() if isinstance(value, _STEP_KINDS[key])}
    return found


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Raise a RunError if the events of a run cannot be read."""
    try:
        yield
    except OSError as error:
        message = said(
            "{file} cannot be read: {reason}",
            file=error.filename or folder / "events.jsonl",
            reason=error.strerror or error,
        )
        raise RunError(message, hint=said("remove or repair {folder}", folder=folder)) from error


def _newest_events(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of an event log, from the last to the first."""
    if not path.exists():
        return
    with open_regular(path) as file:
        start, rest = file.seek(0, os.SEEK_END), [b""]
        first = max(0, start - FURTHEST)
        while start > first:
            size = min(start, BLOCK)
            start -= size
            file.seek(start)
            block = file.read(size)
            if b"\n" not in block:  # joined once: a line of many blocks would be copied for each of them
                rest = [block, *rest] if len(rest) * BLOCK < LONGEST_LINE else [b"\0"]
                continue
            begin, *lines = b"".join([block, *rest]).split(b"\n")
            rest = [begin]
            yield from filter(None, map(_event, reversed(lines)))
        yield from filter(None, [_event(b"".join(rest))])


def _read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Whole lines of an event log; a line cut off by a crash is passed over."""
    if not path.exists():
        return
    with open_regular(path) as file:
        while line := file.readline(LONGEST_LINE):
            if event := _event(line):
                yield event


def events(run: RunInfo, *, follow: bool = False, every: float = 0.5) -> Iterator[dict[str, Any]]:
    """The events of a run; with ``follow``, new ones as they come, until the run is over."""
    path = run.folder / "events.jsonl"
    if not follow:
        with _readable(run.folder):
            yield from _read_events(path)
        return
    seen, over = 0, False
    while True:
        with _readable(run.folder):
            lines, seen = _lines_after(path, seen)
        yield from filter(None, map(_event, lines))
        if lines:
            continue
        if over:
            return
        over = inspect(run.folder).status != "running"  # what was written before that is read once more
        if not over:
            time.sleep(every)


def accepted_changes(run: RunInfo) -> list[dict[str, Any]]:
    """When a run continued on changed training data, because somebody accepted that: ``stage``, ``step`` and ``changes``."""
    return [
        {"stage": str(event.get("stage", "main")), "step": event["step"], "changes": _texts(event["changes"])}
        for event in events(run)
        if event.get("kind") == "changes_accepted" and isinstance(event.get("changes"), list) and "step" in event
    ]


def _texts(values: list[Any]) -> list[str]:
    """Values as texts, whatever a file of a run holds; a reason stays one."""
    return [value if isinstance(value, str) else str(value) for value in values]


LARGEST = 1 << 63
"""A larger number is no step, and no metric."""


def _lines_after(path: Path, position: int) -> tuple[list[bytes], int]:
    """Whole lines after a position in bytes, and the position after them."""
    if not path.exists():
        return [], position
    with open_regular(path) as file:
        file.seek(position)
        block = file.read(LONGEST_LINE)
    if b"\n" not in block:  # a line that is still being written, or that is too long to be an event
        return ([], position) if len(block) < LONGEST_LINE else ([b""], position + len(block))
    whole, newline, _ = block.rpartition(b"\n")
    return whole.split(b"\n"), position + len(whole) + len(newline)


def _event(line: bytes | str) -> dict[str, Any] | None:
    """An event from its line; None for a line that a crash cut off, or that is not an event of a run."""
    try:
        event = from_json(line)
    except ValueError:
        return None
    return with_reasons(event) if isinstance(event, dict) and _is_whole(event) else None


_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("step", "total_steps"), (int, type(None))),
    **dict.fromkeys(
        ("kind", "stage", "run", "name", "status", "cause", "message", "hint", "folder"), (str, type(None))
    ),
    "time": NUMBER,
    "metrics": (dict,),
    "changes": (list,),
}
"""What the fields of an event are that every reader of a log uses."""


def _is_whole(event: dict[str, Any]) -> bool:
    """Whether the fields of an event are what its readers expect, if it has them: anyone can write into a folder."""
    if any(name in event and not isinstance(event[name], kinds) for name, kinds in _KINDS.items()):
        return False
    numbers = (value for value in (*event.values(), *event.get("metrics", {}).values()) if isinstance(value, int))
    return all(abs(value) < LARGEST for value in numbers)


def stop(run: RunInfo, *, now: bool = False) -> None:
    """Ask a run to end: after its current step, with a checkpoint; or at once, without.

    Raises:
        RunError: it is not running, its folder is gone, or ``now`` is asked of a run on another machine.
    """
    run = _running(run)
    if not now:
        (run.folder / STOP_FILE).touch()
    elif run.host != socket.gethostname():
        raise RunError(
            said("run {name} runs on {host}", name=run.name, host=run.host),
            hint="stop it on that machine, or here without --now",
        )
    else:
        os.kill(run.pid, signal.SIGINT)


def asked_of(folder: Path) -> frozenset[str]:
    """The pending requests to a running run, by the names of their files: to stop, or to write a checkpoint, after the
    current step."""
    return frozenset(name for name in (STOP_FILE, CHECKPOINT_FILE) if is_file(folder / name))


def checkpoint(run: RunInfo) -> None:
    """Ask a run to write a checkpoint after its current step, and to go on.

    Raises:
        RunError: it is not running.
    """
    (_running(run).folder / CHECKPOINT_FILE).touch()


def _running(run: RunInfo) -> RunInfo:
    """The run as it is now: its process may have ended since, and another one may have its number."""
    run = inspect(run.folder)
    if run.status != "running":
        raise RunError(
            said("run {name} is not running; it is {status}", name=run.name, status=run.status),
            hint=said("rlctl runs show {name} shows how it ended", name=quoting.word(run.name)),
        )
    return run


def remove(run: RunInfo) -> None:
    """Delete a run's folder.

    Raises:
        RunError: it is running, is a link to a folder, or cannot be deleted.
    """
    if run.status == "running":
        raise RunError(
            said("run {name} is running", name=run.name),
            hint=said("rlctl runs stop {name}", name=quoting.word(run.name)),
        )
    if run.folder.is_symlink():
        raise RunError(
            said(
                "{folder} is a link to {target}; rlctl deletes no folder through a link",
                folder=run.folder,
                target=run.folder.resolve(),
            ),
            hint=said("rlctl runs remove {target}", target=quoting.word(run.folder.resolve())),
        )
    try:
        shutil.rmtree(run.folder)
    except OSError as error:
        what = said(
            "{folder} cannot be deleted: {reason}", folder=error.filename or run.folder, reason=error.strerror or error
        )
        raise RunError(what, hint="what is left of the run is still there") from error
