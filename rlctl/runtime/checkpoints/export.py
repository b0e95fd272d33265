"""Weights of a checkpoint in Hugging Face format, in this process: no Ray, no devices but this machine's memory."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config import Stage
from rlctl.runtime.checkpoints.checkpoint import Checkpoints, Saved, place_of, step_of, verified
from rlctl.runtime.remote.checkpoints import copies_of


def checkpoint_of(stage: Stage, folder: Path, step: int | None) -> tuple[Saved, list[Path]]:
    """The checkpoint of a step, or the newest that is whole; with it, the newer ones that are damaged.

    Args:
        stage: whose it is.
        folder: of the run.
        step: None is the newest.

    Raises:
        RunError: there is none.
    """
    place = place_of(stage, folder)
    checkpoints = Checkpoints(place, keep_last=None, copies=copies_of(stage, folder))
    saved = checkpoints.newest() if step is None else verified(place / f"step-{step:06d}")
    if saved is not None:
        damaged = checkpoints.damaged() if step is None else []
        return saved, [path for path in damaged if step_of(path.name) > saved.step]
    steps = sorted(step_of(path.name) for path in place.glob("step-*"))
    have = ", ".join(str(each) for each in steps if each >= 0)
    which = "whole checkpoint" if step is None else said("complete checkpoint of step {step}", step=step)
    found = said("there are steps {have}", have=have) if step else said("those of steps {have} are damaged", have=have)
    raise RunError(
        said("stage {name} of {folder_name} has no {which}", name=stage.name, folder_name=folder.name, which=which),
        hint=found if have else "",
    )


def export(stage: Stage, saved: Saved, to: Path) -> None:
    """Write the weights of a checkpoint, with config and tokenizer, as Transformers and vLLM load them.

    Args:
        stage: whose checkpoint it is; where it goes on from another stage, ``model.path`` is what that stage left.
        saved: the checkpoint.
        to: the folder, which is replaced.

    Raises:
        RunError: it cannot be read or written.
    """
    from rlctl.runtime.specs.trained import trainer_spec
    from rlctl.runtime.train.distributed import leave
    from rlctl.runtime.train.engines import alone
    from rlctl.runtime.workers.trainer import Place, enter, make_engine

    config = replace(stage.config, train=alone(stage.config.train))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    try:
        spec = trainer_spec(config, config.model.path, scheduler_steps=1)
        enter(spec.join, Place(0, 1, "127.0.0.1", port))
        engine = make_engine(spec, "cpu")
        engine.load(saved.folder / "policy", replace(config.checkpoint, load_contents=("model",)))
        engine.export_hf(to, tokenizer=config.model.tokenizer or config.model.path)
    finally:
        leave()
