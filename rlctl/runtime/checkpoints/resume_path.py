"""Going on from another run's checkpoint (``checkpoint.resume_path``): what of that run holds from there, and what differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlctl.config import Config, to_plain

TERMS = ("algorithm", "batch", "schedule", "train")
"""Sections that a checkpoint tells of: what its run was trained by."""
CURVE = ("train.lr_scheduler.", "train.optimizer.lr")
"""How keys begin that make the schedule of the learning rate."""
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
    curve = ", its learning-rate schedule (shape, length and peak)" if takes else ""
    from_there = f"its step ({step}), its place in the data{curve}"
    if other is None:
        return (
            f"resuming another run's checkpoint with {from_there}; its checkpoint does not record that run's settings"
        )
    mine = terms(config)
    differing = [key for key in sorted({*mine, *other}) if mine.get(key) != other.get(key)]
    lines = [
        f"\n  {key}: {other.get(key)!r} there, {mine.get(key)!r} here"
        + ("; the checkpoint's values continue" if takes and key.startswith(CURVE) else "")
        for key in differing[:SHOWN]
    ]
    more = f"\n  and {len(differing) - SHOWN} further keys" if len(differing) > SHOWN else ""
    told = f"; what differs:{''.join(lines)}{more}" if differing else "; both use the same training settings"
    return f"resuming another run's checkpoint with {from_there}{told}"
