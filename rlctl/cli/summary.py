"""What a run was, once it is over: the table at the end of ``launch`` and in ``runs show``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlctl.cli import diagnostics, layout, progress
from rlctl.common import quoting
from rlctl.common.errors import RlctlError
from rlctl.common.messages import text
from rlctl.common.messages.reasons import translated

if TYPE_CHECKING:
    from rich.table import Table

    from rlctl.runs import RunResult

_TITLES = 12
"""Columns of the titles of what can be done next."""
LONGEST_PHASES = 3


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
    for title in ("stage", "steps", "evaluation", "time", "pace", "phases"):
        made.add_column(text(f"end-{title}"), no_wrap=title != "evaluation")
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
    """Whole time, tokens per second of it, and the shares of the longest phases, a line each."""
    phases = {name: float(value) for name, value in stage.get("seconds", {}).items()}
    total = sum(phases.values())
    if not total:
        return "-", "-", "-"
    shares = sorted(phases.items(), key=lambda item: -item[1])
    pace = f"{stage['tokens'] / total:,.0f}" if stage.get("tokens") else "-"
    told = "\n".join(f"{name} {value / total:.0%}" for name, value in shares[:LONGEST_PHASES] if value / total >= 0.005)
    return progress.duration(total), pace, told


def ending(result: RunResult) -> str:
    """How a run ended, in a line, with the cause of a failure below."""
    return text(f"end-{result.status}", folder=result.folder) + (
        f"\n  {translated(result.cause)}" if result.cause else ""
    )


def next_steps(status: str, folder: Path) -> list[str]:
    """What can be done with a run that ended so, or goes on."""
    steps = [_step("show", quoting.command(["rlctl", "runs", "show", folder]))]
    if status == "running":
        steps.append(_step("follow", quoting.command(["rlctl", "runs", "follow", folder])))
    elif status != "finished":
        steps += [*_saved(folder), _step("resume", quoting.command(["rlctl", "runs", "resume", folder]))]
    exports = sorted(folder.glob("checkpoints/*/hf"))
    return steps + [_step("weights", text("end-hugging-face", path=path)) for path in exports]


def _step(name: str, content: str) -> str:
    """A line of what can be done next: its title in a column."""
    return f"{layout.padded(text(f'end-{name}'), _TITLES)} {content}"


def _saved(folder: Path) -> list[str]:
    """What is saved of a run, and from where it would go on; nothing of a folder that does not tell."""
    from rlctl import runs

    try:
        found = runs.standing(folder)
    except RlctlError:
        return []
    over = (
        text("end-stages", count=len(found.finished), names=text("name-separator").join(found.finished))
        if found.finished
        else ""
    )
    if found.stage is None:
        return [_step("saved", over)]
    if found.kept:
        newest = found.kept[0]
        last = text("end-step", step=newest.step, stage=newest.stage, folder=newest.folder)
        return [_step("saved", text("separator").join(part for part in (over, last) if part))]
    if over:
        return [_step("saved", text("end-no-step", over=over, stage=found.stage))]
    return [_step("saved", text("end-nothing"))]
