"""Reading a shell script as bash would run it, without running anything: assignments, conditions, and the commands it starts.

Whatever only running could tell (what a program prints, whether a file is there) is not guessed: what depends on it is a
value that is not known, with the line. A check that only prints and exits is taken for passed, and a stand-in is taken for the
address of the machine; both are said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from rlctl.common.errors import DocumentError, Location
from rlctl.common.messages.reasons import said
from rlctl.shell.calls import Calls
from rlctl.shell.flow import Flow
from rlctl.shell.launch import program_of
from rlctl.shell.state import MissingError, State
from rlctl.shell.statements import Command, End, Return
from rlctl.shell.syntax import parse
from rlctl.shell.text import Text


def is_program(command: Command) -> bool:
    """Whether a command starts a program of Python, behind whatever starts it."""
    program = program_of(command.words, command.at)
    return program is not None and (program.name.endswith(".py") or "." in program.name)


class _Reader(Flow, Calls):
    """Reads every statement of bash that rlctl knows."""


@dataclass
class ScriptReading:
    """The result of reading a script: its variables and the programs that it starts."""

    state: State
    commands: list[Command] = field(default_factory=list)
    """The programs that are started, in order."""
    ended: Location | None = None
    """Where the script ends itself, if it does."""
    failed: str = ""
    """The command whose failure ends it (``set -e``), if one does."""
    said: list[Text] = field(default_factory=list)
    """What it prints until then."""


def read_script(
    text: str,
    name: str,
    *,
    arguments: Sequence[Text] = (),
    environment: Mapping[str, str],
    given: Mapping[str, str] | None = None,
    is_trainer: Callable[[Command], bool] = is_program,
) -> ScriptReading:
    """Read a script to its end.

    Args:
        text: the script.
        name: its file name, for messages and ``$0``.
        arguments: what follows the script on the command line.
        environment: what a variable is that the script does not set.
        given: variables given for this reading, which keep their values.
        is_trainer: whether a command is one whose start a condition that is not decided may decide.

    Raises:
        DocumentError: it is no bash script, or says something that reading alone cannot decide.
    """
    state = State(name, list(arguments), environment, given or {})
    try:
        return _whole(text, state, is_trainer)
    except MissingError as error:
        wanted = survey(text, name, arguments=arguments, environment=environment, given=given, is_trainer=is_trainer)
        if len(wanted) < 2:
            raise
        message = said(
            "the script needs {count} values that are not given: {names}", count=len(wanted), names=listed(wanted, name)
        )
        raise MissingError(message, at=error.at, wanted=wanted) from None


def _whole(text: str, state: State, is_trainer: Callable[[Command], bool]) -> ScriptReading:
    reader = _Reader(state, is_trainer)
    script = parse(text, state.script)
    try:
        reader.block(script, script.root)
    except (End, Return):
        pass
    except MissingError as error:
        if not any(map(is_trainer, reader.commands)):
            raise
        reader.ended = error.at  # after the trainer, so that this is none of the run's concern
    except RecursionError:
        raise DocumentError("is nested too deep", at=Location(state.script)) from None
    return ScriptReading(state, reader.commands, reader.ended, reader.failed if reader.ended else "", reader.said)


def survey(
    text: str,
    name: str,
    *,
    arguments: Sequence[Text] = (),
    environment: Mapping[str, str],
    given: Mapping[str, str] | None = None,
    is_trainer: Callable[[Command], bool] = is_program,
) -> dict[str, tuple[Location, str]]:
    """Every variable and argument that a script ends without, where and why: it is read on as far as that can be."""
    state = State(name, list(arguments), environment, given or {}, surveys=True)
    with suppress(DocumentError):
        _whole(text, state, is_trainer)
    return state.missing


def listed(wanted: Mapping[str, tuple[Location, str]], name: str) -> str:
    """The variables that a script needs, with lines and reasons, as a list in text."""
    return ", ".join(
        f"${variable} ({f'line {at.line}' if at.file == name else at}{f': {why}' if why else ''})"
        for variable, (at, why) in wanted.items()
    )
