"""Copies of a stage's checkpoints at a URL: each is sent once it is whole here, and the newest is brought back on resume."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from rlctl.config import Stage
from rlctl.runtime import remote
from rlctl.runtime.checkpoint import MANIFEST, read_checkpoint, replace_folder, step_of

KEY = "checkpoint.remote"


@dataclass(frozen=True, slots=True)
class RemoteCopies:
    """The copies of one stage."""

    url: str

    def send(self, checkpoint: Path, *, keep: Collection[str]) -> None:
        """Copy a checkpoint, its manifest last, and delete the copies of those that are not kept.

        Raises:
            RunError: it cannot be copied.
        """
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
            shutil.rmtree(partial)

    def _names(self) -> list[str]:
        return [name for name in remote.names_in(self.url, key=KEY) if step_of(name) >= 0]


def copies_of(stage: Stage, folder: Path) -> RemoteCopies | None:
    """The copies of a stage, under ``checkpoint.remote`` by run and stage; None where the config names none.

    Args:
        stage: whose checkpoints they are.
        folder: of the run.

    Raises:
        MissingDependency: what writes to such URLs is not installed.
        RunError: it is no URL.
    """
    chosen = stage.config.checkpoint.remote
    if chosen is None:
        return None
    remote.file_system(chosen, key=KEY)
    return RemoteCopies(f"{chosen.rstrip('/')}/{folder.name}/{stage.name}")
