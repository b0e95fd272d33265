"""``run.json``: what a run's process says of itself, and whether that process is still there."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from rlctl.common.messages.reasons import said
from rlctl.common.messages.recorded import with_reasons, with_templates
from rlctl.common.whole_files import write_whole

Status = Literal["running", "finished", "stopped", "failed", "interrupted"]
ALIVE_FILE = "alive"
ALIVE_EVERY_SECONDS = 10.0
ALIVE_FOR_SECONDS = 90.0
"""A run on another machine that has not touched its file for this long is taken to be gone; clocks may differ a little."""


@dataclass(frozen=True, slots=True)
class Record:
    """The content of run.json."""

    name: str
    status: str
    pid: int
    host: str
    started: float
    ended: float | None = None
    cause: str = ""
    process_began: float = 0.0
    """When the process began, so that another one with its number is not taken for it."""
    directory: str = ""
    """Where it was started: relative paths of its config are from there."""
    first_started: float = 0.0
    """When a run that was resumed began first; 0 for one that was not."""
    earlier_seconds: float = 0.0
    """How long a run that was resumed had run before."""


NUMBER = (int, float)
_KINDS = {name: kind | int if isinstance(0.0, kind) else kind for name, kind in get_type_hints(Record).items()}
"""Of each field, with whole numbers where any are: JSON knows no other."""
_LAST = 1e11
"""Seconds since the epoch, which no time of a run reaches."""


def record_of(told: Any) -> Record:
    """The record that a run.json holds.

    Raises:
        TypeError: it is no record.
        ValueError: a value is none that a run writes.
    """
    if not isinstance(told, dict):
        raise TypeError("it is not a mapping")
    record = Record(**with_reasons(told))
    for name, kind in _KINDS.items():
        if not isinstance(value := getattr(record, name), kind):
            raise ValueError(said("{name} is {value!r}", name=name, value=value))
    for moment in (record.started, record.ended or 0.0, record.first_started):
        if not 0 <= moment < _LAST:
            raise ValueError(said("a time is {moment!r}", moment=moment))
    if record.status not in get_args(Status):
        raise ValueError(
            said("status is {status!r}, not one of {known}", status=record.status, known=", ".join(get_args(Status)))
        )
    return record


def write_record(folder: Path, record: Record) -> None:
    write_whole(folder / "run.json", json.dumps(with_templates(asdict(record)), indent=1))


def is_alive(record: Record, folder: Path) -> bool:
    """Whether the process is there; of another machine's, whether it has touched its file not long ago."""
    if record.host != socket.gethostname():
        try:
            return time.time() - (folder / ALIVE_FILE).stat().st_mtime < ALIVE_FOR_SECONDS
        except OSError:
            return False
    return bool(record.process_began) and began(record.pid) == record.process_began


def began(pid: int) -> float:
    """When a process of this machine began, by the system's clock of processes; 0 where there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return 0.0 if fields[0] == "Z" else float(fields[19])
    except (OSError, IndexError):
        return _began_elsewhere(pid)


def _began_elsewhere(pid: int) -> float:
    """When a process began, on systems without /proc: any running process with this number counts."""
    if Path("/proc/self").exists():
        return 0.0
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return 0.0
    except PermissionError:
        return 1.0
    return 1.0
