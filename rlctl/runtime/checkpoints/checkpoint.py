"""Checkpoints of a run: whole or not there at all.

    checkpoints/<stage>/step-000040.partial/   being written
    checkpoints/<stage>/step-000040/           complete: renamed after everything in it is on the disk
        policy/          the train engine's own files (torch.distributed.checkpoint)
        critic/          the same of the critic, where there is one
        controller.json  step, data position, counters
        checksums.json   here and in each engine's folder: whether a file is as it was written
        manifest.json    the size of every file, so that a file cut off later is noticed too

A checkpoint that is damaged is passed over, and the one before it is used. One that is written in the background is begun at its
step and finished some steps later; until then it is not there. Copies elsewhere are made after that, one after the other; a
checkpoint stays until its copy is made.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rlctl.common.errors import PlanError
from rlctl.common.messages.reasons import said
from rlctl.common.regular_files import read_json
from rlctl.common.whole_files import replacing
from rlctl.config import Config, Stage
from rlctl.config.reveal import at_home
from rlctl.runtime import unwritten
from rlctl.runtime.checkpoints.checksums import damage, write_checksums
from rlctl.runtime.processes.calls import WorkerFailed, WorkerLost

FULL_BYTES = 1 << 20
"""A disk with less room than this is full: no file of a checkpoint fits."""
_NAME = re.compile(r"step-(\d{6,})")
PARTIAL = ".partial"
"""Ending of a checkpoint that is being written."""
LARGEST_STATE = 1 << 32
"""Bytes of controller.json, which may hold a buffer of responses."""
MANIFEST = "manifest.json"
ROLES = ("policy", "critic")
"""Folders of a checkpoint that hold an engine's state."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A complete checkpoint."""

    folder: Path
    step: int
    controller: dict[str, Any]
    """What the controller saved: counters and the data position."""


def place_of(stage: Stage, folder: Path) -> Path:
    """Where the checkpoints of a stage are: in the run folder, or under ``checkpoint.folder`` by run and stage."""
    chosen = stage.config.checkpoint.folder
    return (
        folder / "checkpoints" / stage.name
        if chosen is None
        else Path(at_home(chosen)).resolve() / folder.name / stage.name
    )


def check_contents(config: Config) -> None:
    """Refuse checkpoints that nothing could go on from.

    Raises:
        PlanError: they have no weights, or these are not taken up.
    """
    for key, contents in (("save", config.checkpoint.save_contents), ("load", config.checkpoint.load_contents)):
        if "model" not in contents:
            raise PlanError(
                said(
                    "checkpoint.{key}_contents is {value}; resuming needs the weights",
                    key=key,
                    value=", ".join(contents) or "empty",
                ),
                hint="add model; to start a new run from weights in Hugging Face format, set model.path to their folder",
            )


class Copies(Protocol):
    """Copies of checkpoints somewhere else."""

    def send(self, checkpoint: Path, *, keep: Collection[str]) -> None:
        """Begin to copy a checkpoint, after those before it; ``keep`` are the names of those that stay."""
        ...

    def under_way(self) -> Collection[str]:
        """The names of checkpoints that are not copied yet; raises what a copy failed of."""
        ...

    def wait(self, *, most: int = 0) -> None:
        """Wait until no more than ``most`` are under way; raises what a copy failed of."""
        ...

    def bring_newest(self, folder: Path) -> None:
        """Bring the newest whole copy into a folder that has none as new."""
        ...

    def holds(self, name: str) -> bool:
        """Whether there is a whole copy of the checkpoint of a name."""
        ...


class Checkpoints:
    """The checkpoints of one stage."""

    def __init__(
        self,
        folder: Path,
        *,
        keep_last: int | None,
        keep_last_critic: int | None = None,
        copies: Copies | None = None,
        delete_previous: bool = False,
    ) -> None:
        self.folder = folder
        self.under_way: int | None = None
        """The step of a checkpoint that is begun and not finished."""
        self._delete_previous = delete_previous
        self._damaged: set[Path] = set()
        self._copies = copies
        self._keep_last = keep_last
        self._keep_last_critic = keep_last_critic

    def save(self, step: int, controller: dict[str, Any], write: Callable[[Path], None]) -> Path:
        """Write a checkpoint and its copy; see ``begin``."""
        self.begin(step, controller, write)
        final = self.finish()
        self.settle()
        return final

    def begin(self, step: int, controller: dict[str, Any], write: Callable[[Path], None]) -> None:
        """Begin a checkpoint: ``write`` puts the engines' files into the folder it is given, or begins to.

        Raises:
            WorkerFailed: it could not be written; what was there before is untouched.
            RunError: one of those before it could not be copied.
        """
        if self._copies is not None:
            self._copies.wait(most=0 if self._delete_previous else 1)
        if self._delete_previous:
            for folder in self._folders():
                shutil.rmtree(folder, ignore_errors=True)
        partial = self._partial(step)
        with self._told(step):
            for left in self.folder.glob(f"step-*{PARTIAL}"):  # by a run that ended while it wrote them
                shutil.rmtree(left, ignore_errors=True)
            partial.mkdir(parents=True)
            write(partial)
            _write_json(partial / "controller.json", {"step": step, **controller})
        self.under_way = step

    def finish(self, wait: Callable[[], object] = lambda: None) -> Path:
        """Put the checkpoint that is under way in its place, once ``wait`` returns: the engines' files are written then.

        Raises:
            WorkerFailed: it could not be written; what was there before is untouched.
        """
        assert self.under_way is not None, "a checkpoint was started"
        step, self.under_way = self.under_way, None
        partial, final = self._partial(step), self.folder / f"step-{step:06d}"
        with self._told(step):
            wait()
            write_checksums(partial)
            _write_json(partial / MANIFEST, _sizes(partial))
            replace_folder(partial, final)
        if self._copies is not None:
            kept = set(self._folders()) - set(self._before_last(self._keep_last))
            self._copies.send(final, keep=[folder.name for folder in kept])
        self._prune()
        return final

    def check_copies(self) -> None:
        """Raise what a copy that is made in the background failed of.

        Raises:
            RunError: it could not be made.
        """
        if self._copies is not None:
            self._copies.under_way()

    def settle(self) -> None:
        """Wait for the copies of all that are finished.

        Raises:
            RunError: one could not be made.
            StopRequested: the run was asked to end at once.
        """
        if self._copies is not None:
            self._copies.wait()
            self._prune()

    def _partial(self, step: int) -> Path:
        return self.folder / f"step-{step:06d}{PARTIAL}"

    @contextmanager
    def _told(self, step: int) -> Iterator[None]:
        """Say of what goes wrong that a checkpoint could not be written, unless a worker is lost: it says nothing of the disk."""
        try:
            yield
        except WorkerLost:
            raise
        except (OSError, WorkerFailed) as error:
            known = unwritten.cause(str(error))
            raise WorkerFailed(
                said(
                    "the checkpoint of step {step} could not be written: {error}",
                    step=step,
                    error=known or self._reason(error),
                ),
                actor=error.actor if isinstance(error, WorkerFailed) else "controller",
                trace=error.trace if isinstance(error, WorkerFailed) and not known else "",
                hint=said(
                    "free disk space or fix the permissions of {folder}; earlier checkpoints are complete",
                    folder=self.folder,
                ),
            ) from error

    def _reason(self, error: OSError | WorkerFailed) -> str:
        """Why writing failed; a worker's account of a full disk may be one of file positions that do not agree."""
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
        if self.folder.is_dir() and shutil.disk_usage(self.folder).free < FULL_BYTES:
            return os.strerror(errno.ENOSPC)
        return error.message if isinstance(error, WorkerFailed) else str(error)

    def newest(self) -> Saved | None:
        """The newest checkpoint that is whole, of those here and their copies, None where there is none."""
        if self._copies is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._copies.bring_newest(self.folder)
        for folder in reversed(self._folders()):
            saved = verified(folder)
            if saved is not None:
                return saved
            self._damaged.add(folder)
        return None

    def damaged(self) -> list[Path]:
        """Checkpoints that are not whole, or were found not to be as they were written when the newest was looked for."""
        return [folder for folder in self._folders() if folder in self._damaged or read_checkpoint(folder) is None]

    def forget(self, saved: Saved) -> bool:
        """Delete a checkpoint of this stage that has a whole copy elsewhere; whether it had."""
        copied = (
            self._copies is not None and saved.folder.parent == self.folder and self._copies.holds(saved.folder.name)
        )
        if copied:
            shutil.rmtree(saved.folder, ignore_errors=True)
        return copied

    def _folders(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        named = [folder for folder in self.folder.iterdir() if _NAME.fullmatch(folder.name)]
        return sorted(named, key=lambda folder: step_of(folder.name))

    def _prune(self) -> None:
        """Delete what is not to be kept, but of what is still copied nothing."""
        copied = () if self._copies is None else self._copies.under_way()
        for folder in self._before_last(self._keep_last):
            if folder.name not in copied:
                shutil.rmtree(folder, ignore_errors=True)
        for folder in self._before_last(self._keep_last_critic):
            if folder.name not in copied:
                _without_critic(folder)

    def _before_last(self, count: int | None) -> list[Path]:
        """All checkpoints but the last ``count``; none where there is no such limit."""
        return [] if count is None else self._folders()[:-count]


def step_of(name: str) -> int:
    """The step of a checkpoint's folder, -1 of a name that is none's."""
    return int(name.removeprefix("step-")) if _NAME.fullmatch(name) else -1


def verified(folder: Path) -> Saved | None:
    """A checkpoint if it is whole, and what a run goes on from is as it was written; reads all of that."""
    saved = read_checkpoint(folder)
    if saved is None or any(damage(part) for part in (folder, *(folder / role for role in ROLES)) if part.is_dir()):
        return None
    return saved


def read_checkpoint(folder: Path) -> Saved | None:
    """A checkpoint if it is whole: every file of its manifest is there in full."""
    try:
        manifest = read_json(folder / MANIFEST)
        controller = read_json(folder / "controller.json", LARGEST_STATE)
    except (OSError, ValueError):
        return None
    sizes = _sizes(folder)
    if not isinstance(manifest, dict) or not {"controller.json"} <= set(manifest):
        return None
    if not isinstance(controller, dict) or not {"step", "progress", "data"} <= set(controller):
        return None
    if any(sizes.get(name) != size for name, size in manifest.items()) or not isinstance(controller["step"], int):
        return None
    return Saved(folder, int(controller["step"]), controller)


def newest_step(place: Path) -> int:
    """The step of the newest checkpoint in a stage's folder, whole or not; -1 if there is none."""
    return max((step_of(folder.name) for folder in place.glob("step-*")), default=-1)


def newest_here(place: Path) -> Saved | None:
    """The newest checkpoint in a stage's folder that has all of its files, whose content is not read."""
    folders = sorted(place.glob("step-*"), key=lambda folder: step_of(folder.name), reverse=True)
    return next(filter(None, (read_checkpoint(folder) for folder in folders if step_of(folder.name) >= 0)), None)


def _without_critic(folder: Path) -> None:
    """Remove the critic of a checkpoint, which stays whole without it: its manifest is the first to go without."""
    manifest = folder / MANIFEST
    if not (folder / "critic").is_dir() or not manifest.is_file():
        return
    sizes = json.loads(manifest.read_text())
    with replacing(manifest) as partial:
        _write_json(partial, {name: size for name, size in sizes.items() if not name.startswith("critic/")})
    shutil.rmtree(folder / "critic", ignore_errors=True)


def replace_folder(partial: Path, final: Path) -> None:
    """Put a folder that was written under another name in its place, once it is on the disk.

    Raises:
        OSError: it cannot be written.
    """
    _sync_tree(partial)
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)
    _sync(final.parent)


def _sizes(folder: Path) -> dict[str, int]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}


def _write_json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False))


def _sync_tree(folder: Path) -> None:
    """Have a folder on the disk, with all that is in it: files, and the folders that name them."""
    for path in folder.rglob("*"):
        if path.is_file() or path.is_dir():
            _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
