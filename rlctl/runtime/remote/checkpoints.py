"""Copies of a stage's checkpoints at a URL: each is sent once it is whole here, and the newest is brought back on resume.

They are sent by a thread, one after the other, so that whoever saves chooses when to wait for them.
"""

from __future__ import annotations

import shutil
import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from rlctl.config import Stage
from rlctl.runtime.checkpoints.checkpoint import MANIFEST, read_checkpoint, replace_folder, step_of
from rlctl.runtime.processes.calls import StopRequested
from rlctl.runtime.remote import files as remote

KEY = "checkpoint.remote"
POLL_SECONDS = 0.2
"""How often whoever waits for a copy looks whether the run is asked to end."""


@dataclass
class RemoteCopies:
    """The copies of one stage."""

    url: str
    stopped: Callable[[], bool] = lambda: False
    """Whether the run is asked to end at once, which ends every wait."""
    _orders: deque[tuple[Path, Collection[str]]] = field(default_factory=deque)
    """Checkpoints that are not copied yet, the first of them under way, and the names of those that stay then."""
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _failure: Exception | None = None
    _thread: threading.Thread | None = None

    def send(self, checkpoint: Path, *, keep: Collection[str]) -> None:
        """Begin to copy a checkpoint, its manifest last; then the copies of those that are not kept are deleted."""
        with self._changed:
            self._orders.append((checkpoint, keep))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="copies", daemon=True)
                self._thread.start()

    def under_way(self) -> list[str]:
        """The names of checkpoints that are not copied yet.

        Raises:
            RunError: one could not be copied.
        """
        with self._changed:
            if self._failure is not None:
                raise self._failure
            return [checkpoint.name for checkpoint, _ in self._orders]

    def wait(self, *, most: int = 0) -> None:
        """Wait until no more than ``most`` checkpoints are under way.

        Raises:
            RunError: one could not be copied.
            StopRequested: the run was asked to end at once.
        """
        while len(self.under_way()) > most:
            with self._changed:
                self._changed.wait(POLL_SECONDS)
            if self.stopped():
                raise StopRequested

    def _work(self) -> None:
        """Make the copies that are asked for, until there are none or one fails."""
        while True:
            with self._changed:
                if not self._orders or self._failure is not None:
                    self._thread = None
                    return
                order = self._orders[0]
            try:
                self._copy(*order)
            except Exception as error:  # noqa: BLE001 - it is raised where copies are waited for
                self._failure = error
            with self._changed:
                if self._failure is None:
                    self._orders.popleft()
                self._changed.notify_all()

    def _copy(self, checkpoint: Path, keep: Collection[str]) -> None:
        remote.send(checkpoint, f"{self.url}/{checkpoint.name}", key=KEY, last=(MANIFEST,))
        for name in self._names():
            if name not in keep:
                remote.remove(f"{self.url}/{name}", key=KEY)

    def bring_newest(self, folder: Path) -> None:
        """Bring the newest whole copy into a folder that has no whole checkpoint as new.

        Raises:
            RunError: it cannot be brought.
        """
        whole = [step_of(path.name) for path in folder.glob("step-*") if read_checkpoint(path) is not None]
        for name in sorted(self._names(), key=step_of, reverse=True):
            if max(whole, default=-1) >= step_of(name):
                return
            partial = folder / f"{name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            remote.bring_into(f"{self.url}/{name}", partial, key=KEY)
            if read_checkpoint(partial) is not None:
                replace_folder(partial, folder / name)
                return
            shutil.rmtree(partial, ignore_errors=True)  # an empty folder there leaves none here

    def holds(self, name: str) -> bool:
        """Whether there is a whole copy of the checkpoint of a name: its manifest is sent last.

        Raises:
            RunError: the place cannot be read.
        """
        return MANIFEST in remote.names_in(f"{self.url}/{name}", key=KEY)

    def _names(self) -> list[str]:
        return [name for name in remote.names_in(self.url, key=KEY) if step_of(name) >= 0]


def copies_of(stage: Stage, folder: Path, stopped: Callable[[], bool] = lambda: False) -> RemoteCopies | None:
    """The copies of a stage, under ``checkpoint.remote`` by run and stage; None where the config names none.

    Args:
        stage: whose checkpoints they are.
        folder: of the run.
        stopped: whether the run is asked to end at once.

    Raises:
        MissingDependency: what writes to such URLs is not installed.
        RunError: it is no URL.
    """
    chosen = stage.config.checkpoint.remote
    if chosen is None:
        return None
    remote.file_system(chosen, key=KEY)
    return RemoteCopies(f"{chosen.rstrip('/')}/{folder.name}/{stage.name}", stopped)
