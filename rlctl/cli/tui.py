"""``rlctl tui``: edit a config, or watch a run, in the terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlctl.cli import arguments
from rlctl.cli.runs import RUNS
from rlctl.errors import UsageError

if TYPE_CHECKING:
    from rlctl.editing.session import Session


def tui(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|RUN]",
            help="A config of any dialect, a script, a preset, or a run.",
            show_default=False,
        ),
    ] = None,
    *,
    dialect: arguments.Dialect = None,
    assignments: arguments.Assignments = [],  # noqa: B006 - typer reads it, nothing changes it
    folder: Annotated[Path, typer.Option("--folder", metavar="FOLDER", help="Folder that holds run folders.")] = RUNS,
    readonly: Annotated[bool, typer.Option("--readonly", help="Write no file, and stop no run.")] = False,
) -> None:
    """Edit a config, or watch a run, in the terminal.

    A config opens as a form with the meaning of every field beside it, checked while it is edited, and is saved in its own
    dialect with comments kept. A run, by name or folder, opens with what it does now, its metrics, samples and events, and what
    looks wrong. Without either, runs, files and presets are listed. [bold]F1[/bold] shows the keys.

    [bold]Examples[/bold]

    [cyan]rlctl tui verl.yaml[/cyan]

    [cyan]rlctl tui runs/gsm8k-grpo[/cyan]
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("rlctl tui needs a terminal", hint="`rlctl runs show` and `rlctl set` need none")
    from rlctl.tui.app import RlctlApp

    session, run = _opened(target, folder, dialect, assignments)
    RlctlApp(session=session, run=run, runs_folder=folder, readonly=readonly).run()


def _opened(
    target: str | None, folder: Path, dialect: str | None, assignments: list[str]
) -> tuple[Session | None, Path | None]:
    """The session or the run folder that a word names: a run, a file, or a preset."""
    from rlctl import presets, runs
    from rlctl.editing.session import Session

    if target is None:
        return None, None
    path = Path(target)
    if (path / "run.json").exists() or (folder / target / "run.json").exists():
        return None, runs.find(target, folder).folder
    if not path.exists() and target in {preset.name for preset in presets.names()}:
        return Session.of_text(presets.text(target), f"{target}.yaml"), None
    return Session.open(path, dialect=dialect, assignments=assignments), None
