"""What a run was, once it is over: the table at the end of ``launch`` and in ``runs show``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlctl.cli import diagnostics, progress
from rlctl.common.errors import RlctlError

if TYPE_CHECKING:
    from rich.table import Table

    from rlctl.runs import RunResult


def as_data(result: RunResult) -> dict[str, Any]:
    """A result as plain data."""
    return {"status": result.status, "folder": str(result.folder), "cause": result.cause, "stages": dict(result.stages)}


def tell(result: RunResult) -> None:
    """Tell how a run ended, what it learned, where its time went, and what can be done next."""
    if result.stages:
        diagnostics.show(table(result.stages))
    diagnostics.note(ending(result))
    for line in next_steps(result.status, result.folder):
        diagnostics.note(f"  {line}")


def table(stages: Mapping[str, Mapping[str, Any]]) -> Table:
    """Evaluations before and after each stage, its time by phase, and its tokens per second."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("stage", "steps", "evaluation before -> after", "time", "tokens/s", "by phase"):
        made.add_column(title, no_wrap=title != "by phase")
    for name, stage in stages.items():
        made.add_row(*map(escape, (name, str(stage.get("steps", "")), evaluation(stage), *times(stage))))
    return made


def evaluation(stage: Mapping[str, Any]) -> str:
    """``gsm8k accuracy 0.120 -> 0.580``, by held-out source; a line each."""
    found = stage.get("evaluated", {})
    first, last = progress.evaluated(found.get("first", {})), progress.evaluated(found.get("last", {}))
    return (
        "\n".join(f"{name} {first.get(name, float('nan')):.3f} -> {value:.3f}" for name, value in last.items()) or "-"
    )


def times(stage: Mapping[str, Any]) -> tuple[str, str, str]:
    """Whole time, tokens per second of it, and the share of each phase."""
    phases = {name: float(value) for name, value in stage.get("seconds", {}).items()}
    total = sum(phases.values())
    if not total:
        return "-", "-", "-"
    shares = sorted(phases.items(), key=lambda item: -item[1])
    pace = f"{stage['tokens'] / total:,.0f}" if stage.get("tokens") else "-"
    return progress.duration(total), pace, ", ".join(f"{name} {value / total:.0%}" for name, value in shares)


def ending(result: RunResult) -> str:
    """How a run ended, in a line, with the cause of a failure below."""
    told = {"finished": "finished", "stopped": "stopped before its end", "failed": "failed"}[result.status]
    return f"{told}: {result.folder}" + (f"\n  {result.cause}" if result.cause else "")


def next_steps(status: str, folder: Path) -> list[str]:
    """What can be done with a run that ended so, or goes on."""
    steps = [f"look at it:  rlctl runs show {folder}"]
    if status == "running":
        steps.append(f"follow it:   rlctl runs follow {folder}")
    elif status != "finished":
        steps += [*_saved(folder), f"resume:      rlctl runs resume {folder}"]
    exports = sorted(folder.glob("checkpoints/*/hf"))
    return steps + [f"weights:     {path}  (Hugging Face format)" for path in exports]


def _saved(folder: Path) -> list[str]:
    """What is saved of a run, and from where it would go on; nothing of a folder that does not tell."""
    from rlctl import runs

    try:
        found = runs.standing(folder)
    except RlctlError:
        return []
    over = f"{_listed(found.finished)} finished" if found.finished else ""
    if found.stage is None:
        return [f"saved:       {over}"]
    if found.kept:
        newest = found.kept[0]
        return [f"saved:       {over + ', ' if over else ''}step {newest.step} of {newest.stage}: {newest.folder}"]
    if over:
        return [f"saved:       {over}, no step of {found.stage} yet; a resumed run starts {found.stage}"]
    return ["saved:       nothing yet; a resumed run starts from the beginning"]


def _listed(stages: list[str]) -> str:
    """Stages by their names."""
    return f"stage {stages[0]}" if len(stages) == 1 else f"stages {', '.join(stages)}"
