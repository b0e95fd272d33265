"""Going on from another run's checkpoint (``checkpoint.resume_path``): what of that run holds from there, and what differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlctl.common.messages.reasons import lines_of, said, together
from rlctl.config import Config, to_plain

TERMS = ("algorithm", "batch", "schedule", "train")
"""Sections that a checkpoint tells of: what its run was trained by."""
CURVE = ("train.lr_scheduler.", "train.optimizer.lr")
"""How keys begin that make the schedule of the learning rate."""
DIFFERS = "  {key}: {there} in the checkpoint, {here} in this run"
DIFFERS_BUT_CONTINUES = "  {key}: {there} in the checkpoint, {here} in this run; the checkpoint's values continue"
SHOWN = 12
"""Keys that are listed at most."""


def terms(config: Config) -> dict[str, Any]:
    """What a stage is trained by, by key, as a checkpoint holds it."""
    plain = to_plain(config)
    return {key: value for section in TERMS for key, value in _flat(plain[section], section)}


def _flat(value: Any, key: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        return [each for name, item in value.items() for each in _flat(item, f"{key}.{name}")]
    return [(key, list(value) if isinstance(value, tuple) else value)]


def describe_resume_diff(config: Config, step: int, other: Mapping[str, Any] | None) -> str:
    """What is told of a run that begins at another one's checkpoint.

    Args:
        config: of the stage that goes on.
        step: of the checkpoint.
        other: ``terms`` of the run that wrote it; None of a checkpoint that does not tell.
    """
    takes = config.train.lr_scheduler.restore_from_checkpoint and "extra" in config.checkpoint.load_contents
    taken = said("its step ({step}) and its place in the data", step=step)
    if takes:
        taken = said("{taken}, and its learning-rate schedule (shape, length and peak)", taken=taken)
    resuming = said("resuming another run's checkpoint with {taken}", taken=taken)
    if other is None:
        return together([resuming, "the checkpoint does not record that run's settings"])
    mine = terms(config)
    differing = [key for key in sorted({*mine, *other}) if mine.get(key) != other.get(key)]
    if not differing:
        return together([resuming, "both use the same training settings"])
    lines = [
        said(DIFFERS_BUT_CONTINUES if takes and key.startswith(CURVE) else DIFFERS, key=key, there=there, here=here)
        for key in differing[:SHOWN]
        for there, here in [(repr(other.get(key)), repr(mine.get(key)))]
    ]
    more = said("  and {count} further keys", count=len(differing) - SHOWN) if len(differing) > SHOWN else ""
    return lines_of([*lines, more], said("{resuming}; what differs:", resuming=resuming))
