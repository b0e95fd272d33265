"""``rlctl tui``: edit a config, or watch a run, in the terminal."""

from __future__ import annotations

import gc
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlctl.cli import arguments
from rlctl.cli.arguments import RUNS
from rlctl.common import packages, quoting
from rlctl.common.errors import UsageError
from rlctl.common.filenames import is_file, is_folder
from rlctl.common.language import VARIABLE
from rlctl.common.messages.reasons import said

if TYPE_CHECKING:
    from rlctl.editing.session import Session

MODULES = ("numpy", "textual", "textual_plot")
"""What the app needs. To read it from rlctl's metadata takes a tenth of the time to the first frame: only if one is missing."""
LOOPBACK = "127.0.0.1"
RUN_FILES = ("run.json", "events.jsonl", "lock")
"""Each makes a folder one of a run."""
SERVED = "TEXTUAL_DRIVER"
"""Set by the server for the apps that it starts: they talk to a browser, and have no terminal."""


def tui(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|RUN]",
            help="A config, launch script, preset or run.",
            show_default=False,
        ),
    ] = None,
    *,
    dialect: arguments.Dialect = None,
    assignments: arguments.Assignments = [],  # noqa: B006 - typer reads it, nothing changes it
    variables: arguments.Variables = [],  # noqa: B006 - as above
    folder: Annotated[Path, typer.Option("--folder", metavar="FOLDER", help="Folder with the run folders.")] = RUNS,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="MACHINES",
            help="Plan configs for these: [b]2x8:H100[/b], [b]2x8:cuda:80GiB[/b] or [b]local[/b].",
            show_default=False,
        ),
    ] = None,
    readonly: Annotated[bool, typer.Option("--readonly", help="Don't write files or stop runs.")] = False,
    theme: Annotated[
        str | None,
        typer.Option(
            "--theme", metavar="NAME", help="dark, light, contrast, or a theme of Textual.", show_default=False
        ),
    ] = None,
    language: Annotated[
        str | None, typer.Option("--language", metavar="en|zh", help="UI language.", show_default=False)
    ] = None,
    web: Annotated[bool, typer.Option("--web", help="Open the app in a browser instead.")] = False,
    host: Annotated[str, typer.Option("--host", help="Address for --web.")] = LOOPBACK,
    port: Annotated[int, typer.Option("--port", help="Port for --web.")] = 8000,
) -> None:
    """Open the terminal UI to edit a config or monitor a run.

    A config opens as a form with help for every field. It is checked while you edit, and saved in its own format with its
    comments. A run, by name or folder, opens with its progress, metrics, samples, events and warnings. Without an argument, the
    app lists runs, files and presets. [bold]F1[/bold] shows the keyboard shortcuts.

    [bold]--web[/bold] serves the app to a browser on this machine. It prints an address with a token; anyone with that address
    can edit and launch as you.

    [bold]Examples[/bold]

    [cyan]rlctl tui verl.yaml[/cyan]

    [cyan]rlctl tui runs/gsm8k-grpo[/cyan]
    """
    if web:
        packages.require({"web": "rlctl tui --web"})
    elif not all(map(packages.is_found, MODULES)):
        packages.require({packages.TUI: "rlctl tui"})
    _speak(language)
    if cluster is not None:
        arguments.cluster_of(cluster)
    given = arguments.pairs(variables, "--env")
    words_of_script = {name: value for name, value in given.items() if name.isdecimal()}
    os.environ.update(
        {name: value for name, value in given.items() if name not in words_of_script}
    )  # a launch sees them
    if web:
        words = [f"--from={dialect}"] if dialect is not None else []
        words += [f"--set={assignment}" for assignment in assignments]
        words += [f"--env={name}={value}" for name, value in words_of_script.items()]
        words += [f"--cluster={cluster}"] if cluster is not None else []
        words += ["--readonly"] if readonly else []
        words += [f"--theme={theme}"] if theme is not None else []
        words += [f"--folder={folder}", "--", *([target] if target is not None else [])]
        _serve(["tui", *words], host, port)
        return
    if not (os.environ.get(SERVED) or (sys.stdin.isatty() and sys.stdout.isatty())):
        hint = "`rlctl tui --web` serves it to a browser; `rlctl runs show` and `rlctl set` need no terminal"
        raise UsageError("rlctl tui needs a terminal", hint=hint)
    gc.disable()  # until the app is up: what is loaded is no garbage, and to look for some takes a twentieth of the time
    from rlctl.cli import diagnostics
    from rlctl.tui.app import RlctlApp

    run = None if target is None else _run(target, folder)
    is_config = target is not None and run is None
    if words_of_script and not is_config:
        raise UsageError("--env 1=VALUE is an argument of a launch script, but none is named")
    session = (
        partial(_session, target, dialect, assignments, words_of_script) if target is not None and is_config else None
    )
    app = RlctlApp(session=session, run=run, runs_folder=folder, readonly=readonly, theme=theme, machines=cluster or "")
    app.run_to_end()
    from rlctl.tui.farewell import still_running  # imports the schema and the plan, so not before the first frame

    for line in still_running(folder, app.watched, app.launched):
        diagnostics.note(line)


def _run(target: str, folder: Path) -> Path | None:
    """The folder of the run that a word names, also of one that begins, or lost its record; None where it names none."""
    places = [place for place in (Path(target), folder / target) if is_folder(place)]
    found = next((place for place in places if any(is_file(place / name) for name in RUN_FILES)), None)
    if found is None and is_folder(target):
        hint = said(
            "name a run, a file or a preset; rlctl tui --folder {target} lists the runs in it",
            target=quoting.word(target),
        )
        raise UsageError(said("{target} is a folder without run.json, so it is not a run", target=target), hint=hint)
    return found


def _session(
    target: str, dialect: str | None, assignments: list[str], words: dict[str, str], given: dict[str, str]
) -> Session:
    """The config that a word names: a file, or a preset; ``given``: what was said in the app that a script wants."""
    from rlctl.config import presets
    from rlctl.editing.session import Session

    path = Path(target)
    if not path.exists() and target in {preset.name for preset in (*presets.names(), *presets.published())}:
        return Session.of_text(presets.text(target), f"{target}.yaml")
    return Session.open(path, dialect=dialect, assignments=assignments, given={**words, **given})


def _speak(language: str | None) -> None:
    """Choose the language, before any text is: as asked, else the environment's, else as remembered."""
    from rlctl.tui import settings

    wanted = (
        arguments.known_language(language)
        if language is not None
        else (settings.read().get("language") if VARIABLE not in os.environ else None)
    )
    if wanted is not None:
        os.environ[VARIABLE] = wanted


def _serve(words: list[str], host: str, port: int) -> None:
    """Serve the app with these words to whoever opens its page."""
    from rlctl.cli import diagnostics
    from rlctl.tui.web import is_loopback, serve

    if not is_loopback(host):
        diagnostics.note(
            said(
                "warning: {host}:{port} is not encrypted; anyone on the network can read its address, and edit and launch as you",
                host=host,
                port=port,
            )
        )
    serve(words, host, port)
