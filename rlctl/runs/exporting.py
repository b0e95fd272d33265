"""Weights of a run in Hugging Face format, at any time: of its newest whole checkpoint, or of the one of a step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rlctl.common import packages, quoting
from rlctl.common.errors import RunError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config import Stage, revealed, stages_of
from rlctl.planning.megatron.starting import from_weights
from rlctl.runs.folder import read_config
from rlctl.runs.inspection import RunInfo


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export: the folder, and the checkpoint that it holds."""

    folder: Path
    step: int
    skipped: list[Path]
    """Newer checkpoints that are damaged, the oldest first."""


def export(
    run: RunInfo, *, stage: str | None = None, step: int | None = None, to: Path | None = None, force: bool = False
) -> Exported:
    """Write the weights of a checkpoint as Transformers and vLLM load them; the run may be running.

    Args:
        run: whose they are.
        stage: None is the last one that has a checkpoint.
        step: None is the newest whole one.
        to: None is ``export/<stage>-step-NNNNNN`` in the run folder.
        force: replace a folder ``to`` that has files.

    Raises:
        RunError: there is no such checkpoint, or it cannot be read or written.
        MissingDependency: the runtime is not installed.
    """
    packages.require({packages.RUNTIME: "exporting weights"})
    from rlctl.runtime.checkpoints.checkpoint import newest_step, place_of
    from rlctl.runtime.checkpoints.export import checkpoint_of
    from rlctl.runtime.checkpoints.export import export as write

    stages = stages_of(revealed(read_config(run.folder)))
    chosen = _chosen(stages, stage, [each for each in stages if newest_step(place_of(each, run.folder)) >= 0])
    saved, skipped = checkpoint_of(chosen, run.folder, step)
    folder = to or run.folder / "export" / f"{chosen.name}-step-{saved.step:06d}"
    before = stages[: stages.index(chosen)]
    if (
        chosen.continues and before
    ):  # what is not in the checkpoint, such as the base of adapters, is where the stage began
        left = place_of(before[-1], run.folder) / "hf"
        model = replace(chosen.config.model, path=str(left) if left.exists() else chosen.config.model.path)
        chosen = replace(chosen, config=replace(from_weights(chosen.config), model=model))
    if folder.is_symlink():
        raise RunError(
            said("{folder} is a link; rlctl replaces no folder through a link", folder=folder),
            hint=said("pass --to {target}", target=quoting.word(folder.resolve())),
        )
    if to is not None and not force and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(
            said("{folder} exists and is not empty; the export would replace it", folder=folder),
            hint="pass --force to replace it, or name another folder",
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    write(chosen, saved, folder)
    return Exported(folder, saved.step, skipped)


def _chosen(stages: list[Stage], name: str | None, with_checkpoints: list[Stage]) -> Stage:
    """The stage that is meant.

    Raises:
        RunError: there is none.
    """
    if name is None and with_checkpoints:
        return with_checkpoints[-1]
    if name is None:
        raise RunError("the run has no checkpoint yet", hint="checkpoint.every sets how often rlctl saves one")
    for stage in stages:
        if stage.name == name:
            return stage
    names = [stage.name for stage in stages]
    raise RunError(
        said("the run has no stage {name!r}", name=name),
        hint=nearest(name, names) or said("it has {names}", names=", ".join(names)),
    )
