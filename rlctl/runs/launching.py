"""A run in a process of its own, which outlives whoever starts it or goes on with it; what it says is kept in a file."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rlctl.common import own_python, quoting
from rlctl.common.errors import ExitCode, RunError
from rlctl.common.messages.reasons import said
from rlctl.common.regular_files import read_json
from rlctl.runs.folder import make_folder
from rlctl.runs.record import record_of

LOG = Path("logs", "controller.log")
"""What a run that was gone on with says, in its folder."""
TAIL = 1 << 16
"""Bytes at the end of its output that are read."""
LAST_LINES = 8
"""Of its output, that tell why it ended."""


@dataclass(frozen=True)
class Launched:
    """A command of rlctl that was started."""

    words: tuple[str, ...]
    """The command without ``rlctl``, as a person would type it."""
    output: Path
    began: float
    process: subprocess.Popen[bytes]

    @property
    def exit_code(self) -> int | None:
        """None while it is there."""
        return self.process.poll()

    def text(self) -> str:
        """The end of what it said; nothing where somebody deleted it."""
        try:
            with self.output.open("rb") as file:
                file.seek(max(0, self.output.stat().st_size - TAIL))
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def refused(self, within: float) -> str:
        """Why it did not begin, where it fails within so many seconds; empty otherwise."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline and self.exit_code is None:
            time.sleep(0.1)
        if self.exit_code in (None, ExitCode.OK, ExitCode.FINDINGS):
            return ""
        lines = self.text().strip().splitlines()
        return "\n".join(lines[-LAST_LINES:]) or f"its process ended with {self.exit_code}"

    def folder(self, runs: Path) -> Path | None:
        """The folder of the run that it became, among those in a folder; None while there is none."""
        for record in runs.glob("*/run.json"):
            with suppress(OSError, ValueError, TypeError):
                if record.stat().st_mtime >= self.began - 1:
                    told = record_of(read_json(record))
                    if told.pid == self.process.pid and told.started >= self.began - 1:
                        return record.parent
        return None


def state_folder() -> Path:
    """The folder for rlctl's state of this user on this machine: ``$XDG_STATE_HOME/rlctl``, by default
    ``~/.local/state/rlctl``."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "rlctl"


def place(name: str, ending: str) -> Path:
    """A new file for a launch, for its owner's eyes only.

    Raises:
        RunError: it cannot be made.
    """
    folder = state_folder() / "launches"
    safe = re.sub(r"[^\w.-]", "_", name)[:40]
    made = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{time.monotonic_ns() % 10**6}-{safe}{ending}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        made.touch(mode=0o600)
    except OSError as error:
        raise RunError(
            said("{folder} cannot be written: {reason}", folder=made, reason=error.strerror),
            hint="set XDG_STATE_HOME to a writable folder",
        ) from error
    return made


def begin(words: Sequence[str], output: Path) -> Launched:
    """Start a command of rlctl, as ``launch run.yaml``; closing the terminal or leaving the app does not end it.

    Args:
        words: the command.
        output: what it says is added to this file.

    Raises:
        RunError: it cannot be started.
    """
    began = time.time()
    try:
        with output.open("ab") as file:
            process = subprocess.Popen(
                own_python.module("rlctl", *words),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise RunError(
            said("rlctl {names} cannot be started: {error}", names=quoting.command(words), error=error)
        ) from error
    return Launched(tuple(words), output, began, process)


def resume_apart(folder: Path, *, step: int | None = None) -> Launched:
    """Go on with a run, as ``rlctl runs resume`` does.

    Args:
        folder: of the run.
        step: of the checkpoint to go on from; None is the newest.

    Raises:
        RunError: the folder cannot be written.
    """
    make_folder(folder)
    chosen = [] if step is None else ["--step", str(step)]
    return begin(["runs", "resume", str(folder.resolve()), *chosen], folder / LOG)
