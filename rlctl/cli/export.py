"""``rlctl export``: weights of a run's checkpoint in Hugging Face format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlctl.cli import arguments, diagnostics, output
from rlctl.cli.runs import RUNS, Folder, Name
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
    json: arguments.Json = False,
) -> None:
    """Export a checkpoint to Hugging Face format, which Transformers and vLLM load.

    Needs neither GPUs nor Ray; the run may continue meanwhile.

    [bold]Examples[/bold]

    [cyan]rlctl export gsm8k-grpo[/cyan]

    [cyan]rlctl export gsm8k-grpo --step 40 --to weights/step-40[/cyan]
    """
    from rlctl import runs

    written = runs.export(runs.find(name, folder), stage=stage, step=step, to=to)
    if json:
        output.data({"folder": str(written)})
    diagnostics.note(said("weights: {written}", written=written))
