"""``rlctl export``: weights of a run's checkpoint in Hugging Face format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlctl.cli import arguments, diagnostics, output
from rlctl.cli.runs import RUNS, Folder, Name
from rlctl.common.errors import ExitCode
from rlctl.common.messages.reasons import said


def export(
    name: Name,
    *,
    step: Annotated[int | None, typer.Option(min=1, metavar="N", help="Step to export (default: the latest).")] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Output folder (default: inside the run folder).")
    ] = None,
    stage: Annotated[str | None, typer.Option(metavar="NAME", help="Stage to export (default: the last).")] = None,
    folder: Folder = RUNS,
    force: arguments.Force = False,
    json: arguments.Json = False,
) -> None:
    """Export a checkpoint to Hugging Face format, which Transformers and vLLM load.

    Needs neither GPUs nor Ray; the run may continue meanwhile. If the newest checkpoint is damaged, an older one is exported, and
    the exit code is 3.

    [bold]Examples[/bold]

    [cyan]rlctl export gsm8k-grpo[/cyan]

    [cyan]rlctl export gsm8k-grpo --step 40 --to weights/step-40[/cyan]
    """
    from rlctl import runs

    done = runs.export(runs.find(name, folder), stage=stage, step=step, to=to, force=force)
    for skipped in done.skipped:
        diagnostics.note(
            said("warning: {folder} is damaged; exported the checkpoint of step {step}", folder=skipped, step=done.step)
        )
    if json:
        skipped_folders = [str(each) for each in done.skipped]
        output.data({"folder": str(done.folder), "step": done.step, "skipped": skipped_folders})
    diagnostics.note(said("weights: {written}", written=done.folder))
    if done.skipped:
        arguments.finish(ExitCode.FINDINGS)
