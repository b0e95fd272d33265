"""``rlctl quickstart``: the whole of rlctl in five minutes on a laptop. It runs commands that anyone can type, and shows them."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from rlctl.cli import arguments, diagnostics
from rlctl.common import own_python, packages, quoting
from rlctl.common.errors import ExitCode
from rlctl.common.messages.reasons import said, translated

FILES = ("sft.yaml", "grpo.yaml", "reward.py")
PLACE = "FOLDER"
"""What stands in the files for the folder they are written to."""


def quickstart(
    *,
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the model, data and configs.")] = Path(
        "quickstart"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Random seed for model and data.")] = 1,
    fast: Annotated[bool, typer.Option("--fast", help="Run only a few steps, to see that everything works.")] = False,
) -> None:
    """Train a tiny model to add numbers: no GPU, no download, about five minutes on two cores.

    Creates a model, a tokenizer and a dataset, converts an SFT and a GRPO config of verl into one Trinity-RFT config, trains
    both as two stages on this machine, and prints a table of the results.

    [bold]Examples[/bold]

    [cyan]rlctl quickstart[/cyan]

    [cyan]rlctl quickstart --folder /tmp/demo --fast[/cyan]
    """
    _make(folder, seed)
    sft, grpo = str(folder / "sft.yaml"), str(folder / "grpo.yaml")
    _run(
        "convert", sft, grpo, "--to", "trinity", "-o", str(folder / "trinity.yaml"), "--force", accept=ExitCode.FINDINGS
    )
    shorter = ["--set", "stages.0.schedule.total_steps=3", "--set", "schedule.total_steps=3"] if fast else []
    settings = ["--set", f"run.folder={folder / 'runs'}", "--set", "checkpoint.export=last"]
    _run("launch", sft, grpo, "--baseline", "--new", *settings, *shorter)


def _make(folder: Path, seed: int) -> None:
    packages.require({packages.RUNTIME: "the quickstart"})
    diagnostics.note(said("creating a tiny model, its tokenizer and a dataset in {folder}", folder=folder))
    from rlctl.runtime import quickstart as maker

    maker.make_quickstart(folder, seed=seed)
    made = "a {layers}-layer model of width {width}; {train} training and {test} evaluation problems"
    diagnostics.note(f"  {translated(said(made, **maker.sizes(folder)))}")
    for name in FILES:
        text = _preset_file(name).replace(PLACE, str(folder))
        (folder / name).write_text(text, encoding="utf-8")


def _preset_file(name: str) -> str:
    from rlctl.config.presets import folder

    return (folder() / "quickstart" / name).read_text(encoding="utf-8")


def _run(*words: str, accept: ExitCode = ExitCode.OK) -> None:
    """Run an rlctl command in a process of its own, as typed; ends this command where it fails."""
    diagnostics.note("")
    diagnostics.note("$ " + quoting.command(["rlctl", *words]))
    code = _ended(subprocess.Popen(own_python.module("rlctl", *words)))
    if code not in (ExitCode.OK, accept):
        arguments.finish(ExitCode(code) if code in set(map(int, ExitCode)) else ExitCode.FAILED)


def _ended(process: subprocess.Popen[bytes]) -> int:
    """The exit code of a command, which a signal ends and not this process first: a terminal sends it Ctrl-C itself."""

    def take(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            process.terminate()

    before = {number: signal.signal(number, take) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)}
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
