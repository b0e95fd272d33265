"""The checkpoints that a run can go on from, and going back to one that is not the newest."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config import Config, stages_of
from rlctl.runs.folder import read_config

ASIDE = "aside-"
"""Before the step of a checkpoint that is no longer gone on from."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A whole checkpoint of the stage that is under way."""

    stage: str
    step: int
    saved: datetime
    folder: Path


@dataclass(frozen=True, slots=True)
class Standing:
    """The stages and checkpoints of a run, and where it would resume."""

    finished: list[str]
    """Its stages that are over, which are not run again."""
    stage: str | None
    """The one that it would go on with; None where all are over."""
    kept: list[Kept]
    """Of that one, the newest first."""


def standing(folder: Path) -> Standing:
    """The stages and checkpoints of a run, and where it would resume.

    Raises:
        RunError: the run's config cannot be read.
    """
    config = read_config(folder)
    names = [stage.name for stage in stages_of(config)]
    found = _under_way(config, folder)
    if found is None:
        return Standing(names, None, [])
    return Standing(names[: names.index(found[0])], found[0], _whole(*found))


def checkpoints(folder: Path) -> list[Kept]:
    """The whole checkpoints of the stage that a run is in, the newest first; none of a run that is over.

    Raises:
        RunError: the run's config cannot be read.
    """
    return standing(folder).kept


def _under_way(config: Config, folder: Path) -> tuple[str, Path] | None:
    """The stage that a run is in, and where its checkpoints are."""
    from rlctl.runtime.checkpoints.checkpoint import place_of

    for stage in stages_of(config):
        place = place_of(stage, folder)
        if not (place / "finished.json").exists():
            return stage.name, place
    return None


def _whole(stage: str, place: Path) -> list[Kept]:
    from rlctl.runtime.checkpoints.checkpoint import read_checkpoint, step_of

    found = []
    for path in place.glob("step-*"):
        if step_of(path.name) >= 0 and read_checkpoint(path) is not None:
            saved = datetime.fromtimestamp((path / "manifest.json").stat().st_mtime, tz=UTC)
            found.append(Kept(stage, step_of(path.name), saved, path))
    return sorted(found, key=lambda kept: kept.step, reverse=True)


def go_back(config: Config, folder: Path, step: int) -> None:
    """Set aside the checkpoints after a step of the stage that a run is in, so that it goes on from that one.

    They stay on the disk as ``aside-NNNNNN``, until they are deleted or one of the same step is set aside.

    Raises:
        RunError: there is no whole checkpoint of that step, or the run cannot go back.
    """
    from rlctl.runtime.checkpoints.checkpoint import step_of, verified

    found = _under_way(config, folder)
    kept = [] if found is None else _whole(*found)
    newest = kept[0].step if kept else None
    chosen = next((each.folder for each in kept if each.step == step), None)
    if found is None or chosen is None or verified(chosen) is None:
        steps = ", ".join(str(each.step) for each in kept) or "none"
        raise RunError(
            said("there is no complete checkpoint of step {step} to resume from", step=step),
            hint=said("the run's current stage has checkpoints of steps {steps}", steps=steps),
        )
    if step == newest:
        return
    if config.checkpoint.remote is not None:
        raise RunError(
            said(
                "the run cannot go back to step {step}: {remote} has a newer checkpoint",
                step=step,
                remote=config.checkpoint.remote,
            ),
            hint="launch it under another name, with checkpoint.resume path and this checkpoint as checkpoint.resume_path",
        )
    if config.buffer.choice != "memory":
        raise RunError(
            said(
                "the run cannot go back to step {step}: its {choice} buffer has dropped responses that later steps trained on",
                step=step,
                choice=config.buffer.choice,
            ),
            hint="resume from the latest checkpoint",
        )
    _, place = found
    for path in place.glob("step-*"):
        later = step_of(path.name)
        if later > step:
            aside = place / f"{ASIDE}{later:06d}"
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
