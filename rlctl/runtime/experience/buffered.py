"""Exploring and training through a buffer: in one run, or as two runs that share it.

    full          Explorer ──▶ Buffered (put, take) ──▶ RolloutBatchBuilder
    rollout_only  Explorer ──▶ BufferWriter (put) ──▶ buffer
    train_only    buffer ──▶ BufferReader (take) ──▶ RolloutBatchBuilder

Two runs that share a buffer bring weights across through a folder (``weight_sync.method: checkpoint``): every
``weight_sync.every`` steps the one that trains writes its weights there, as long as somebody explores, and announces them in
the buffer; the one that explores takes the newest.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.planning.rollout_schedule import SyncSchedule
from rlctl.runtime.buffers.interface import Buffer, SharedBuffer
from rlctl.runtime.checkpoints.checkpoint import replace_folder
from rlctl.runtime.experience.explore import GroupSource, Phase, StepRollouts, SynchronousSource, metrics_of
from rlctl.runtime.experience.samples import RolloutGroup
from rlctl.runtime.experience.shaping import Shaping
from rlctl.runtime.roles import Policy, RolloutEngines
from rlctl.runtime.sync.bucket import MIB
from rlctl.runtime.sync.machine import Files, UnreadableWeights

KEPT_WEIGHTS = 2
"""Folders of weights that stay: the newest, and the one that somebody may be reading."""


@dataclass
class _IntoBuffer(SynchronousSource):
    """Groups that an explorer puts into a buffer."""

    schedule: SyncSchedule
    explorer: GroupSource
    buffer: Buffer
    _saved: dict[str, Any] = field(default_factory=dict, kw_only=True)

    def state(self) -> dict[str, Any]:
        self._saved = self.buffer.state()
        return {"explorer": self.explorer.state(), "buffer": self._saved}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.explorer.restore(state["explorer"])
        self.buffer.restore(state["buffer"])

    def saved(self) -> None:
        self.explorer.saved()
        self.buffer.acknowledge(self._saved)

    def finished(self) -> None:
        self.explorer.finished()
        self.buffer.end_writing()

    def close(self) -> None:
        self.explorer.close()
        self.buffer.close()


@dataclass
class Buffered(_IntoBuffer):
    """Groups that pass through a buffer between exploring and training in one run (``run.mode: full``)."""

    _version: int = 0

    def take(self, step: int, phase: Phase) -> StepRollouts:
        explored = self.explorer.take(step, phase)
        with phase("buffer"):
            self.buffer.put(explored.kept)
            oldest = self.schedule.oldest_version(self._version)
            groups = self.buffer.take(len(explored.kept), oldest_version=oldest)
        return StepRollouts(groups, explored.drawn, explored.metrics | self.buffer.statistics().metrics())

    def trained(self, version: int) -> None:
        self._version = version
        self.explorer.trained(version)

    def new_weights(self, step: int, version: int, phase: Phase) -> AbstractContextManager[None]:
        self._version = version
        return self.explorer.new_weights(step, version, phase)


@dataclass
class BufferWriter(_IntoBuffer):
    """Groups that go into a buffer, and are trained on elsewhere (rollout_only)."""

    buffer: SharedBuffer
    rollout: RolloutEngines
    _version: int = -1
    """Of the weights that were taken from who trains; -1 are those that the run began with."""
    _begun: bool = False

    def take(self, step: int, phase: Phase) -> StepRollouts:
        if not self._begun or self.schedule.due(step - 1):
            self._begun = True
            with self.explorer.new_weights(step - 1, max(self._version, 0), phase), phase("sync"):
                self._version = self._newest_weights(above=self._version)
        explored = self.explorer.take(step, phase)
        with phase("buffer"):
            self.buffer.put(explored.kept)
        told = {"buffer/weight_version": float(max(self._version, 0))} | self.buffer.statistics().metrics()
        return StepRollouts(explored.kept, explored.drawn, explored.metrics | told)

    def renew(self, engine: int) -> None:
        """Bring an engine that took the place of a lost one to the weights that the others have, or to newer ones."""
        if self._version >= 0:
            self._newest_weights(above=-1, engines=(engine,))

    def _newest_weights(self, *, above: int, engines: Collection[int] = ()) -> int:
        """Give engines, by default all, the newest weights that were announced, where their version is above one.

        Returns:
            The version that they have then, or ``above``.

        Raises:
            RunError: they cannot be read.
        """
        found = self.buffer.announced()
        while found is not None and found[0] > above:
            version, folder = found
            source = Files(folder, self.schedule.sync.bucket_mib * MIB, self.rollout.share)
            try:
                self.rollout.load_weights(source, version, engines)
                return version
            except UnreadableWeights as error:
                found, before = self.buffer.announced(), found
                if found == before:  # else newer ones have taken their place meanwhile
                    raise RunError(
                        said(
                            "the weights published by the training run cannot be read: {message}", message=error.message
                        ),
                        hint="both runs need that folder: put the training run's run.folder on shared storage",
                    ) from error
        return above


@dataclass
class BufferReader(SynchronousSource):
    """Groups from a buffer that another run fills, or has filled (train_only)."""

    schedule: SyncSchedule
    buffer: SharedBuffer
    policy: Policy
    folder: Path
    """Where weights are written for who explores."""
    shaping: Shaping
    """Its filters of groups, for those that nobody has filtered before."""
    tell: Callable[[str], None]
    _ahead: list[RolloutGroup] = field(default_factory=list)
    """The groups of the next step, without those that are made up for."""
    _drawn: list[RolloutGroup] = field(default_factory=list)
    """All that were taken for it."""
    _version: int = 0
    _saved: dict[str, Any] = field(default_factory=dict)

    def more(self, step: int, phase: Phase) -> bool:
        wanted, oldest = self.schedule.prompts_per_step, self.schedule.oldest_version(self._version)
        self._ahead, self._drawn = [], []
        with phase("buffer"):
            while lacking := wanted - len(self._ahead):
                found = self.buffer.take(lacking, oldest_version=oldest)
                self._drawn += found
                self._ahead += self.shaping.kept_groups(found) if self.shaping.refills else found
                if len(found) < lacking:
                    break
        if self._ahead and len(self._ahead) < wanted:
            self.tell(
                said(
                    "the buffer ends with {count} unused groups, but a step needs {wanted}",
                    count=len(self._ahead),
                    wanted=wanted,
                )
            )
        return len(self._ahead) == wanted

    def take(self, step: int, phase: Phase) -> StepRollouts:
        kept = self._ahead if self.shaping.refills else self.shaping.kept_groups(self._ahead)
        metrics = metrics_of(self._drawn) | self.buffer.statistics().metrics()
        if self.shaping.drops:
            metrics["filter/kept_groups_share"] = len(kept) / len(self._drawn)
        return StepRollouts(kept, self._drawn, metrics)

    def trained(self, version: int) -> None:
        self._version = version
        if self.schedule.due(version) and self.buffer.listened():
            self._write_weights(version)

    def _write_weights(self, version: int) -> None:
        """Write the weights of now for who explores."""
        final = self.folder / f"version-{version:08d}"
        partial = final.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        self.policy.export(partial)
        try:
            replace_folder(partial, final)
        except OSError as error:
            raise RunError(
                said("the weights cannot be written to {final}: {strerror}", final=final, strerror=error.strerror)
            ) from error
        self.buffer.announce(version, final)
        for old in sorted(self.folder.glob("version-????????"))[:-KEPT_WEIGHTS]:
            shutil.rmtree(old, ignore_errors=True)

    def state(self) -> dict[str, Any]:
        self._saved = self.buffer.state()
        return {"buffer": self._saved, "version": self._version}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.buffer.restore(state["buffer"])
        self._version = state["version"]

    def saved(self) -> None:
        self.buffer.acknowledge(self._saved)

    def close(self) -> None:
        self.buffer.close()
