"""What every worker of a train engine can do, whatever its role: make room and take it again, save and load, leave."""

from __future__ import annotations

from pathlib import Path

from rlctl.runtime.train.distributed import leave
from rlctl.runtime.train.interface import TrainEngine


class EngineWorker:
    """One process of a model that is spread over workers. All of them get the same calls in the same order."""

    _engine: TrainEngine

    def save(self, folder: Path) -> None:
        """Write everything that training goes on from."""
        self._engine.save(folder)

    def load(self, folder: Path) -> None:
        """Go on from what ``save`` wrote.

        Raises:
            RunError: it is damaged, or of another model.
        """
        self._engine.load(folder)

    def offload(self) -> None:
        """Make room on the device for another role."""
        self._engine.offload()

    def reload(self) -> None:
        """Take the device again."""
        self._engine.reload()

    def close(self) -> None:
        """Leave the other workers."""
        leave()
