"""What every worker of a train engine can do, whatever its role: make room and take it again, save and load, leave."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

from rlctl.common.errors import RunError
from rlctl.config.sections.output import Checkpoint
from rlctl.runtime.train.checkpoint import DEFAULTS
from rlctl.runtime.train.distributed import leave
from rlctl.runtime.train.interface import TrainEngine


class EngineWorker:
    """One process of a model that is spread over workers. All of them get the same calls in the same order."""

    _engine: TrainEngine
    _writing: tuple[Future[None], ...] = ()
    """The parts of the last checkpoint."""

    def save(self, folder: Path, settings: Checkpoint = DEFAULTS) -> None:
        """Write everything that training goes on from, or what ``settings`` say of it; under ``asynchronous`` begin to."""
        self._writing = (self._engine.save(folder, settings),)

    def is_saved(self, wait: bool = False) -> bool:
        """Whether the last checkpoint is written, its own errors included; ``wait`` until it is.

        Raises:
            RunError: it could not be.
        """
        if not wait and not all(part.done() for part in self._writing):
            return False
        writing, self._writing = self._writing, ()
        try:
            for part in writing:
                part.result()
        except Exception as error:
            raise RunError(str(error)) from error
        return True

    def load(self, folder: Path, settings: Checkpoint = DEFAULTS) -> None:
        """Go on from what ``save`` wrote.

        Raises:
            RunError: it is of another model.
        """
        self._engine.load(folder, settings)

    def offload(self) -> None:
        """Make room on the device for another role."""
        self._engine.offload()

    def vacate(self) -> None:
        """Leave the device as far as possible until the engine is used again."""
        self._engine.vacate()

    def reload(self) -> None:
        """Take the device again."""
        self._engine.reload()

    def close(self) -> None:
        """Leave the other workers."""
        leave()
