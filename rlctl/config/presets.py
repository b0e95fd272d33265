"""Configs that come with rlctl: ``presets/NAME.yaml`` beside the package in a checkout, inside it in an installed wheel.

A preset starts with comment lines: what it is, ``needs``, ``run``, ``expect``, ``source`` (where its settings come from),
``plan`` (the command that plans it for its cluster), and the schema for editors. To add one: a file of that form, at most 48
lines, and Chinese of its first two in ``rlctl/common/messages/reasons.zh.tsv``. A test checks and plans every preset for the
cluster that it names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlctl.common.errors import UsageError, nearest
from rlctl.common.messages.reasons import said

_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Preset:
    """What a list shows of a preset."""

    name: str
    title: str
    """What it is for."""
    needs: str
    """The hardware it is written for."""


def names() -> list[Preset]:
    """Every preset, by name."""
    return [_preset(file) for file in sorted(folder().glob("*.yaml"))]


def text(name: str) -> str:
    """The file of a preset.

    Raises:
        UsageError: there is no such preset.
    """
    known = {preset.name: preset for preset in names()}
    if name not in known:
        raise UsageError(
            said("there is no preset {name!r}; expected one of {known}", name=name, known=", ".join(known)),
            hint=nearest(name, known) or "rlctl presets list describes each",
        )
    return (folder() / f"{name}.yaml").read_text(encoding="utf-8")


def folder() -> Path:
    """Where the presets are: beside the package in a checkout, inside it in an installed wheel."""
    installed = _PACKAGE / "presets_data"
    return installed if installed.is_dir() else _PACKAGE.parent / "presets"


def _preset(file: Path) -> Preset:
    first, second, *_ = file.read_text(encoding="utf-8").splitlines()
    return Preset(file.stem, first.removeprefix("# "), second.removeprefix("# needs: "))
