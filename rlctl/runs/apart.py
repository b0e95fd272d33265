"""A run in a process of its own, which outlives whoever asks for it; what it says is a log of the run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlctl.errors import RunError
from rlctl.runs.folder import make_folder

LOG = Path("logs", "controller.log")
"""In the run folder."""
TAIL = 4096
"""Bytes of the log that tell why a process ended."""


@dataclass(frozen=True)
class Apart:
    """The process of a run."""

    process: subprocess.Popen[bytes]
    log: Path

    def refused(self, within: float) -> str:
        """Why the run did not begin, where its process fails within so many seconds; empty otherwise."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline and self.process.poll() is None:
            time.sleep(0.1)
        if self.process.poll() in (None, 0, 3):
            return ""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - TAIL))
            lines = file.read().decode(errors="replace").strip().splitlines()
        return "\n".join(lines[-8:]) or f"its process ended with {self.process.returncode}"


def start_apart(folder: Path, arguments: Sequence[str]) -> Apart:
    """Run ``rlctl ARGUMENTS``, which starts the run of a folder or goes on with it.

    Raises:
        RunError: the folder or its log cannot be written.
    """
    make_folder(folder)
    log = folder / LOG
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "rlctl", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise RunError(f"{log} cannot be written: {error.strerror}") from error
    return Apart(process, log)


def resume_apart(folder: Path, *, step: int | None = None) -> Apart:
    """Go on with a run, as ``rlctl runs resume`` does.

    Args:
        folder: of the run.
        step: of the checkpoint to go on from; None is the newest.

    Raises:
        RunError: the folder cannot be written.
    """
    chosen = [] if step is None else ["--step", str(step)]
    return start_apart(folder, ["runs", "resume", str(folder.resolve()), *chosen])
