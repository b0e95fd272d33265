"""The command line: one module a command; ``output`` writes stdout, ``diagnostics`` writes stderr, nothing else does.

Command modules import what they need when they are called, so that ``rlctl --help`` and ``rlctl convert`` start fast.
To add a command: a module with a function, and a line below; the help lists them in this order.
"""

from __future__ import annotations

import copy
import os
import sys
from typing import Annotated

import typer
from typer.main import get_command
from typer.models import CommandInfo

from rlctl.cli import (
    arguments,
    batch,
    check,
    cluster,
    convert,
    data,
    diagnostics,
    diff,
    doctor,
    evaluate,
    explain,
    export,
    launch,
    output,
    plan,
    presets,
    quickstart,
    runs,
    schema,
    serve,
    set,
    try_out,
    tui,
    usage,
    version,
)
from rlctl.cli.commands import command
from rlctl.common import packages
from rlctl.common.errors import ExitCode, RlctlError
from rlctl.common.language import VARIABLE, chosen
from rlctl.common.messages import text

app = typer.Typer(
    name="rlctl",
    help="RL post-training configs of verl, Trinity-RFT and ROLL: convert, check, plan, run.\n\n"
    "Exit codes: 0 success, 1 failed, 2 wrong command line, 3 done with warnings.",
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": usage.HELP_OPTIONS},
)

BEFORE, RUNNING, ABOUT = "Before a run", "Runs", "About"
command(app, panel=BEFORE)(convert.convert)
command(app, panel=BEFORE)(check.check)
command(app, panel=BEFORE)(diff.diff)
command(app, "set", panel=BEFORE)(set.set_keys)
command(app, panel=BEFORE)(batch.batch)
command(app, panel=BEFORE)(plan.plan)
command(app, "try", panel=BEFORE)(try_out.try_out)
app.add_typer(presets.app, name="presets", rich_help_panel=BEFORE)
app.add_typer(data.app, name="data", rich_help_panel=BEFORE)
command(app, panel=RUNNING)(quickstart.quickstart)
command(app, panel=RUNNING)(launch.launch)
command(app, "eval", panel=RUNNING)(evaluate.evaluate)
command(app, panel=RUNNING)(export.export)
command(app, panel=RUNNING)(serve.serve)
app.add_typer(runs.app, name="runs", rich_help_panel=RUNNING)
app.add_typer(cluster.app, name="cluster", rich_help_panel=RUNNING)
command(app, panel=BEFORE)(tui.tui)
command(app, panel=ABOUT)(explain.explain)
command(app, panel=ABOUT)(schema.schema)
command(app, panel=ABOUT)(doctor.doctor)
command(app, panel=ABOUT)(version.version)


def _show_version(asked: bool) -> None:
    if asked:
        version.version()
        raise typer.Exit


def _language_of(words: list[str]) -> str:
    """The language of a command line, which ``--language`` before the command chooses."""
    for option, value in zip(words, [*words[1:], ""], strict=False):
        if not option.startswith("-"):
            break
        if option == "--language=zh" or (option == "--language" and value == "zh"):
            return "zh"
    return chosen()


def _speak(language: str | None) -> None:
    if language is not None:
        os.environ[VARIABLE] = arguments.known_language(language)


@app.callback()
def root(
    context: typer.Context,
    *,
    language: Annotated[
        str | None,
        typer.Option(
            metavar="en|zh",
            help=f"Language of messages (default: {VARIABLE}, then the system's language).",
            is_eager=True,
            callback=_speak,
        ),
    ] = None,
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        output.text(first_steps())
        arguments.finish(ExitCode.USAGE)


def first_steps() -> str:
    """What to type first, for ``rlctl`` alone."""
    steps = {
        "rlctl convert run.sh --to trinity -o run.yaml": text("start-convert"),
        "rlctl check run.sh": text("start-check"),
        "rlctl tui": text("start-tui"),
        "rlctl quickstart": text("start-quickstart"),
    }
    width = max(map(len, steps)) + 2
    return "\n".join(
        [text("start"), *(f"  {command:<{width}}{what}" for command, what in steps.items()), text("start-help")]
    )


def _with_only(word: str) -> typer.Typer:
    """The app with one command, because making all others takes longer than most commands; with all if none is called so."""
    slim = copy.copy(app)
    slim.registered_commands = [each for each in app.registered_commands if _name(each) == word]
    slim.registered_groups = [each for each in app.registered_groups if each.name == word]
    return slim if slim.registered_commands or slim.registered_groups else app


def _name(command: CommandInfo) -> str:
    return command.name or getattr(command.callback, "__name__", "").replace("_", "-")


def main() -> int:
    """The console script: run a command; errors that a user can act on are shown without a traceback."""
    try:
        command = get_command(_with_only(next((word for word in sys.argv[1:] if word[:1] != "-"), "")))
        if _language_of(sys.argv[1:]) == "zh":
            usage.run(command)
        else:
            command(prog_name="rlctl")
    except SystemExit as end:
        return _status(end)
    except RlctlError as problem:
        diagnostics.error(problem)
        return int(problem.exit_code)
    except KeyboardInterrupt:
        return 130
    except Exception as problem:
        if os.environ.get("RLCTL_DEBUG") == "1":
            raise
        return _unexpected(problem)
    finally:
        _flush()
    return int(ExitCode.OK)


def _unexpected(problem: Exception) -> int:
    """Show an exception that no command meant: a module that an extra installs, or else a bug of rlctl."""
    refusal = packages.explained(problem) if isinstance(problem, ModuleNotFoundError) else None
    if refusal is None:
        diagnostics.bug(problem)
    else:
        diagnostics.error(refusal)
    return int(ExitCode.FAILED)


def _status(end: SystemExit) -> int:
    return end.code if isinstance(end.code, int) else int(end.code is not None)


def _flush() -> None:
    """Write out what help texts left in stdout; its reader may have gone."""
    try:
        sys.stdout.flush()
    except (BrokenPipeError, ValueError):
        output.silence(1)
