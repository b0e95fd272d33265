"""What commands share: how files, overrides and assignments are told apart, and reading them into a config.

An argument with ``=`` in it, or ``+`` or ``~`` before it, is an override in the file's own dialect; anything else, and any
file that exists, is a file. ``-`` is standard input. What follows a launch script is given to the script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from rlctl.cli import completion, diagnostics
from rlctl.common.errors import ExitCode, UsageError
from rlctl.common.filenames import SCRIPT_ENDINGS, YAML_ENDINGS, is_file
from rlctl.common.language import LANGUAGES
from rlctl.common.messages.reasons import said

if TYPE_CHECKING:
    from rlctl.common.report import Report
    from rlctl.config import Loaded
    from rlctl.planning.plan import Cluster


class Runner(StrEnum):
    """Who is to run the config."""

    RLCTL = "rlctl"
    VERL = "verl"
    TRINITY = "trinity"
    ROLL = "roll"


RUNS = Path("runs")
"""The default folder of runs."""

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="FILES",
        help="Config files, a launch script, or '-' for stdin, followed by [b]key=value[/b] overrides in the file's own "
        "format. Arguments after a script are passed to it.",
        show_default=False,
    ),
]
Dialect = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="FORMAT",
        help="Input format, such as [b]verl[/b] or [b]verl@0.6[/b]. Detected by default.",
        autocompletion=completion.dialects,
    ),
]
Assignments = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a key of rlctl's own config. Repeatable.",
        autocompletion=completion.assignments,
    ),
]
Trace = Annotated[
    bool, typer.Option("--trace", help="Run a launch script in a sandbox to see its command, instead of parsing it.")
]
Variables = Annotated[
    list[str],
    typer.Option(
        "--env",
        metavar="NAME=VALUE",
        help="Fix a script variable ([b]NAME=VALUE[/b]), whatever the script assigns, or a positional argument "
        "([b]1=VALUE[/b]). Repeatable.",
    ),
]
AllowUnknown = Annotated[
    list[str],
    typer.Option(
        "--allow-unknown",
        metavar="KEY",
        help="Accept this key, although the file's framework does not have it and it looks mistyped; not in rlctl's own "
        "format. Repeatable.",
    ),
]
AcceptChanges = Annotated[
    bool,
    typer.Option(
        "--accept-changes",
        help="Resume from a checkpoint even if the training data has changed since; the run records the change.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Assumptions = Annotated[
    list[str],
    typer.Option(
        "--assume",
        metavar="KEY=VALUE",
        help="Supply a value that the source lacks: explorer_gpus=N, dataset_rows=N, stage=NAME. Repeatable.",
    ),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Also write the result as one HTML page, for a review or a wiki."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]


def finish(code: ExitCode) -> NoReturn:
    """End the command with an exit code."""
    raise typer.Exit(int(code))


def split_inputs(inputs: Sequence[str]) -> tuple[list[str], list[str]]:
    """The files and the overrides among arguments.

    Raises:
        UsageError: a file stands after an override.
    """
    files: list[str] = []
    overrides: list[str] = []
    for argument in inputs:
        if _is_override(argument):
            overrides.append(argument)
        elif overrides:
            raise UsageError(
                said("the file {file!r} comes after the override {override!r}", file=argument, override=overrides[0]),
                hint="write files first; an override is key=value, +key=value or ~key",
            )
        else:
            files.append(argument)
    return files, overrides


def _is_override(argument: str) -> bool:
    looks_so = argument.startswith(("+", "~")) or "=" in argument
    return looks_so and not is_file(argument)


def pairs(assignments: Sequence[str], option: str) -> dict[str, str]:
    """``key=value`` arguments of an option as a mapping.

    Raises:
        UsageError: one has no key or no value, or comes twice.
    """
    found: dict[str, str] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(said("{option} {text!r} is not key=value", option=option, text=text))
        if key in found:
            raise UsageError(said("{option} {key} is given twice", option=option, key=key))
        found[key] = value
    return found


def read_inputs(
    inputs: Sequence[str],
    *,
    dialect: str | None,
    assignments: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    trace: bool = False,
    variables: Sequence[str] = (),
    without_kept: bool = False,
) -> tuple[Loaded | None, Report]:
    """Read one file with overrides, a launch script, several files as stages, or overrides alone, into a config.

    Raises:
        UsageError: there is nothing to read, or it cannot be told what it is.
        RlctlError: a text cannot be read.
    """
    from rlctl.translation import translate

    given = pairs(variables, "--env")
    script = bool(inputs) and not are_files(inputs) and translate.is_script_file(inputs[0])
    files, overrides = (inputs[:1], inputs[1:]) if script else split_inputs(inputs)
    if not files and (trace or given):
        raise UsageError("--trace and --env are for a launch script, but none is named")
    return translate.read_many(
        files,
        dialect=dialect,
        overrides=overrides,
        assignments=assignments,
        options=options,
        trace=trace,
        variables=given,
        without_kept=without_kept,
    )


def are_files(inputs: Sequence[str]) -> bool:
    """Whether all of several arguments are files of configs, so the stages of one run."""
    return len(inputs) > 1 and all(name.endswith((*SCRIPT_ENDINGS, *YAML_ENDINGS)) and is_file(name) for name in inputs)


def must_read(
    inputs: Sequence[str],
    *,
    dialect: str | None,
    assignments: Sequence[str] = (),
    trace: bool = False,
    variables: Sequence[str] = (),
    without_kept: bool = False,
) -> tuple[Loaded, Report]:
    """As ``read_inputs``, for commands that need the config: shows the findings and ends where there is none."""
    loaded, report = read_inputs(
        inputs,
        dialect=dialect,
        assignments=assignments,
        trace=trace,
        variables=variables,
        without_kept=without_kept,
    )
    if loaded is None:
        diagnostics.findings(report.findings)
        finish(ExitCode.FAILED)
    return loaded, report


def cluster_of(text: str) -> Cluster:
    """The machines that ``--cluster`` names: ``2x8``, ``2x8:H100``, ``2x8:cuda:80GiB``, ``cpu:2``, ``local`` for this one.

    Raises:
        UsageError: it is none of these.
    """
    if text == "local":
        from rlctl.runs import local_cluster

        return local_cluster()
    from rlctl.planning.machines import named_cluster

    return named_cluster(text)


def known_language(language: str) -> str:
    """The language, if rlctl has it.

    Raises:
        UsageError: rlctl does not have it.
    """
    if language not in LANGUAGES:
        raise UsageError(
            said("the language is {language!r}; expected one of {names}", language=language, names=", ".join(LANGUAGES))
        )
    return language
