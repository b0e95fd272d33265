"""The command line: one module a command; ``output`` writes stdout, ``diagnostics`` writes stderr, nothing else does.

A command's module is imported when the command is called, and imports what it needs then, so that ``rlctl convert`` starts fast.
To add a command: a module with a function, and a line below; the help lists them in this order.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.main import get_command

from rlctl.cli import arguments, diagnostics, output, usage
from rlctl.cli.commands import command
from rlctl.common import packages
from rlctl.common.errors import ExitCode, RlctlError, UsageError
from rlctl.common.language import VARIABLE, chosen
from rlctl.common.messages import text
from rlctl.common.messages.reasons import said

BEFORE, RUNNING, ABOUT = "Before a run", "Runs", "About"


class Command(NamedTuple):
    """A command of the app."""

    name: str
    panel: str
    function: str = ""
    """Of the module ``rlctl.cli.NAME``; empty if the command is a group, the module's ``app``."""
    module: str = ""
    """If it is not ``rlctl.cli.NAME``."""


COMMANDS = (
    Command("convert", BEFORE, "convert"),
    Command("port", BEFORE, "port"),
    Command("check", BEFORE, "check"),
    Command("diff", BEFORE, "diff"),
    Command("review", BEFORE, "review"),
    Command("set", BEFORE, "set_keys"),
    Command("batch", BEFORE, "batch"),
    Command("plan", BEFORE, "plan"),
    Command("try", BEFORE, "try_out", module="try_out"),
    Command("presets", BEFORE),
    Command("data", BEFORE),
    Command("quickstart", RUNNING, "quickstart"),
    Command("launch", RUNNING, "launch"),
    Command("eval", RUNNING, "evaluate", module="evaluate"),
    Command("export", RUNNING, "export"),
    Command("serve", RUNNING, "serve"),
    Command("runs", RUNNING),
    Command("cluster", RUNNING),
    Command("tui", BEFORE, "tui"),
    Command("lsp", ABOUT, "lsp"),
    Command("mcp", ABOUT, "mcp"),
    Command("explain", ABOUT, "explain"),
    Command("schema", ABOUT, "schema"),
    Command("doctor", ABOUT, "doctor"),
    Command("version", ABOUT, "version"),
)


def _show_version(asked: bool) -> None:
    if asked:
        from rlctl.cli import version

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
    return "\n".join([text("start"), *(f"  {command:<{width}}{what}" for command, what in steps.items())])


def app_of(commands: Iterable[Command]) -> typer.Typer:
    """An app with some commands."""
    made = typer.Typer(
        name="rlctl",
        help="RL post-training configs of verl, Trinity-RFT and ROLL: convert, check, plan, run.\n\n"
        "Exit codes: 0 success, 1 failed, 2 wrong command line, 3 done with warnings.",
        invoke_without_command=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": usage.HELP_OPTIONS},
    )
    made.callback()(root)
    for each in commands:
        module = import_module(f"rlctl.cli.{each.module or each.name}")
        if each.function:
            command(made, each.name, panel=each.panel)(getattr(module, each.function))
        else:
            made.add_typer(module.app, name=each.name, rich_help_panel=each.panel)
    return made


def __getattr__(name: str) -> Any:
    """``app``, with all commands: made when it is read, because it imports every command's module."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return app_of(COMMANDS)


OTHER_WORDS = {
    **{word: f"rlctl runs {word}" for word in ("list", "show", "follow", "stop", "checkpoint", "resume", "remove")},
    **dict.fromkeys(("logs", "log", "watch", "tail"), "rlctl runs follow"),
    **dict.fromkeys(("ls", "ps"), "rlctl runs list"),
    **dict.fromkeys(("status", "info"), "rlctl runs show"),
    **dict.fromkeys(("rm", "delete"), "rlctl runs remove"),
    **dict.fromkeys(("kill", "cancel"), "rlctl runs stop"),
    **dict.fromkeys(("run", "train", "start"), "rlctl launch"),
    **dict.fromkeys(("validate", "lint"), "rlctl check"),
    **dict.fromkeys(("evaluate", "test"), "rlctl eval"),
    **dict.fromkeys(("edit", "monitor", "ui"), "rlctl tui"),
    **dict.fromkeys(("estimate", "memory"), "rlctl plan"),
    "translate": "rlctl convert",
}
"""Words of other tools, and of ``rlctl runs``, that are typed as a command, and the command that does it."""


def _refuse_other_word(word: str) -> None:
    """Name the command for a word that is none.

    Raises:
        UsageError: the word is one of ``OTHER_WORDS``.
    """
    if word in OTHER_WORDS and not any(each.name == word for each in COMMANDS):
        raise UsageError(
            said("rlctl has no command {word!r}", word=word), hint=said("use {command}", command=OTHER_WORDS[word])
        )


def _called(word: str) -> Iterable[Command]:
    """The command with a name alone, because making all others takes longer than most commands; all if there is none."""
    return [each for each in COMMANDS if each.name == word] or COMMANDS


def main() -> int:
    """The console script: run a command; errors that a user can act on are shown without a traceback."""
    try:
        word = next((word for word in sys.argv[1:] if word[:1] != "-"), "")
        _refuse_other_word(word)
        called = get_command(app_of(_called(word)))
        if usage.shows_help(called, sys.argv[1:]):
            usage.show_whole_texts()
        if _language_of(sys.argv[1:]) == "zh":
            usage.run(called)
        else:
            called(prog_name="rlctl")
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
