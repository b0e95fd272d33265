"""``rlctl check``: what would go wrong, before anything starts; each file is checked on its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlctl.cli import arguments, code_scanning, diagnostics, output
from rlctl.cli.folders import is_another_script
from rlctl.common import quoting
from rlctl.common.errors import ExitCode, Location, RlctlError, TranslationError, UsageError
from rlctl.common.filenames import SCRIPT_ENDINGS, YAML_ENDINGS, is_file, is_folder
from rlctl.common.messages import text
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level, Report, finding

if TYPE_CHECKING:
    from rlctl.config import Loaded
    from rlctl.translation.checking import Checked, Question


class Format(StrEnum):
    """What the findings are printed as."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


class FailOn(StrEnum):
    """The least grave findings that make the exit code other than 0."""

    WARNING = "warning"
    ERROR = "error"


def check(
    inputs: arguments.Inputs,
    *,
    runner: Annotated[
        arguments.Runner | None,
        typer.Option(
            help="Which framework runs the config: by default the file's own; rlctl for [b]rlctl launch[/b].",
            show_default=False,
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="MACHINES",
            help="Check that it fits these: [b]2x8[/b], [b]2x8:H100[/b], [b]cpu:2[/b] or [b]local[/b].",
        ),
    ] = None,
    data: Annotated[
        bool, typer.Option("--data", help="Also tokenize a few rows of the training data to see whether they fit.")
    ] = False,
    here: Annotated[
        bool,
        typer.Option(
            "--here",
            help="Also ask this machine and the services of the run: GPUs, disk, ports, Ray, the hub, trackers, endpoints.",
        ),
    ] = False,
    dialect: arguments.Dialect = None,
    assignments: arguments.Assignments = [],  # noqa: B006 - typer reads it, nothing changes it
    trace: arguments.Trace = False,
    variables: arguments.Variables = [],  # noqa: B006
    allow_unknown: arguments.AllowUnknown = [],  # noqa: B006
    only_configs: Annotated[
        bool, typer.Option("--only-configs", help="Skip files that are not configs, even if all of them are skipped.")
    ] = False,
    ignored: Annotated[
        list[str],
        typer.Option(
            "--ignore",
            metavar="CODE",
            help="Do not report findings of this code; a comment [b]# rlctl: ignore CODE[/b] does it for a line. Repeatable.",
        ),
    ] = [],  # noqa: B006
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings, too.")] = False,
    fail_on: Annotated[
        FailOn, typer.Option(help="Exit with 0 if all findings are less severe than this.")
    ] = FailOn.WARNING,
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="Text (stderr), JSON, SARIF 2.1.0, or annotations for GitHub Actions (stdout).",
        ),
    ] = Format.TEXT,
    html: arguments.Html = None,
    force: arguments.Force = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show notes, too.")] = False,
    json: arguments.Json = False,
) -> None:
    """Check configs before a run: keys, batch arithmetic, placement, memory, paths, reward code, data columns, model folders.

    A file is checked for the framework that it is written for: what that one refuses, ignores or does otherwise. With
    [b]--runner rlctl[/b] it is checked for [b]rlctl launch[/b].

    Each finding has a code, a file and line, and what to do about it. Nothing is changed, imported or started. Several files,
    and the configs of a folder, are checked one by one. A path that is missing on this machine is a warning, because the
    config may be for another one; [b]--here[/b] says that it is for this one, and asks its services, too. Exits 1 if a config
    has errors, 3 if it has warnings only.

    [b]--ignore CODE[/b], or a comment [b]# rlctl: ignore CODE[/b] on a line, alone above it, or at the top of the file, silences
    findings; the summary counts them.

    [bold]Examples[/bold]

    [cyan]rlctl check run.yaml[/cyan]

    [cyan]rlctl check run.yaml --set batch.mini_batch_responses=256[/cyan]

    [cyan]rlctl check verl.yaml trainer.nnodes=4 --cluster 4x8:H100 --json[/cyan]

    [cyan]rlctl check run.yaml --here[/cyan]

    [cyan]rlctl check verl.yaml --runner rlctl[/cyan]

    [cyan]rlctl check configs/ --format github --fail-on error[/cyan]
    """
    from rlctl.checks.silence import refuse_unknown
    from rlctl.translation.checking import VERIFIED, Question

    if json and form not in (Format.TEXT, Format.JSON):
        raise UsageError(said("--json and --format {form} are two formats", form=form), hint="give one of them")
    form = Format.JSON if json else form
    if strict and fail_on is FailOn.ERROR:
        raise UsageError("--strict and --fail-on error contradict each other", hint="give one of them")
    refuse_unknown(ignored)
    question = Question(
        dialect=dialect,
        assignments=assignments,
        trace=trace,
        variables=variables,
        cluster=arguments.cluster_of(cluster) if cluster else None,
        allow_unknown=allow_unknown,
        runner=runner or "",
        data=data,
        here=here,
        ignored=ignored,
        most=None if verbose else VERIFIED,
    )
    files = list(inputs) if only_configs and all(map(is_file, inputs)) else _files(inputs)
    checked = (
        [_checked([file], question, skips=True, only_configs=only_configs) for file in files]
        if files
        else [_checked(inputs, question)]
    )
    found = [item for item in checked if item is not None]
    _refuse_unused(found, allow_unknown)
    if html is not None:
        from rlctl.cli import pages

        pages.write(html, quoting.command(["rlctl", "check", *inputs]), pages.check(found), force=force)
    _print(found, form, several=bool(files), verbose=verbose)
    if not found and only_configs:
        return
    code = worst([exit_code(item.report) for item in found])
    code = ExitCode.FAILED if strict and code is ExitCode.FINDINGS else code
    arguments.finish(ExitCode.OK if code is ExitCode.FINDINGS and fail_on is FailOn.ERROR else code)


def _files(inputs: Sequence[str]) -> list[str]:
    """The files to check one by one: those of folders, or several; empty for one file with overrides or arguments.

    Raises:
        UsageError: there is a folder, or several files, and an override.
    """
    folders = [name for name in inputs if is_folder(name) and Path(name).name != ".hydra"]
    if not folders and not arguments.are_files(inputs):
        return []
    others = [name for name in inputs if name not in folders and not name.endswith((*YAML_ENDINGS, *SCRIPT_ENDINGS))]
    if others:
        raise UsageError(
            said("{first!r} is an override, but several files are given", first=others[0]),
            hint="check one file, or use --set",
        )
    return [file for name in inputs for file in (_in_folder(Path(name)) if name in folders else [name])]


def _in_folder(folder: Path) -> Iterator[str]:
    """The configs below a folder, without hidden files."""
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden and path.suffix in (*YAML_ENDINGS, *SCRIPT_ENDINGS):
            yield str(path)


def _checked(
    inputs: Sequence[str], question: Question, *, skips: bool = False, only_configs: bool = False
) -> Checked | None:
    """What is found in one config; None for a file of several that is no config."""
    from rlctl.translation.checking import Checked, checked, read_for

    file = inputs[0] if inputs and is_file(inputs[0]) else ""

    def read(without_kept: bool) -> tuple[Loaded | None, Report]:
        return arguments.read_inputs(
            inputs,
            dialect=question.dialect,
            assignments=question.assignments,
            trace=question.trace and file.endswith(SCRIPT_ENDINGS),
            variables=question.variables,
            without_kept=without_kept,
        )

    try:
        loaded, report, runner = read_for(question.runner, read)
    except RlctlError as error:
        if not skips:
            raise
        if (
            isinstance(error, TranslationError)
            or is_another_script(Path(file))
            or (only_configs and is_other_yaml(file))
        ):
            diagnostics.note(text("check-skipped", file=file, reason=error.message))
            return None
        report = Report()
        at = error.at or Location(file)
        report.findings.append(finding("unreadable", Level.ERROR, at=at, reason=error.message, advice=error.hint))
        return Checked(file, report)
    return checked(loaded, report, replace(question, runner=runner), file)


def is_other_yaml(file: str) -> bool:
    """Whether a YAML file that cannot be read is of another tool, like a GitHub workflow with its ``on:``."""
    from rlctl.translation.translate import is_unlike_all

    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return file.endswith(YAML_ENDINGS) and is_unlike_all(re.findall(r"^(\w+)\s*:", text, re.MULTILINE))


def _refuse_unused(found: Sequence[Checked], allowed: Sequence[str]) -> None:
    from rlctl.checks import refuse_unused

    refuse_unused([finding for item in found for finding in item.report.findings], allowed)


def _print(found: Sequence[Checked], form: Format, *, several: bool, verbose: bool) -> None:
    """Print what was found; text goes to stderr, everything else to stdout."""
    if form is Format.JSON:
        data = [
            {
                "dialect": item.report.dialect,
                "reason": item.report.reason,
                "findings": [finding.as_data() for finding in item.report.findings],
                "ignored": [finding.as_data() for finding in item.silenced],
                "checked": [str(subject) for subject in item.scope if not subject.reason],
                "not_checked": [str(subject) for subject in item.scope if subject.reason],
            }
            for item in found
        ]
        output.data(
            {"files": [{"file": i.file, **d} for i, d in zip(found, data, strict=True)]} if several else data[0]
        )
    elif form is Format.SARIF:
        output.data(code_scanning.sarif([(item.file, item.report.findings) for item in found]))
    elif form is Format.GITHUB:
        lines = [
            code_scanning.github(finding, item.file)
            for item in found
            for finding in code_scanning.ordered(item.report.findings)
            if verbose or finding.level is not Level.NOTE  # on a pull request as on a terminal
        ]
        output.text("\n".join(lines)) if lines else None
    for item in found:
        brief = form in (Format.SARIF, Format.GITHUB)
        diagnostics.checked(
            item.report,
            item.scope,
            file=item.file,
            runner=item.runner,
            notes=verbose,
            brief=brief,
            silenced=item.silenced,
        )
    if several and not found:
        diagnostics.note(text("check-none"))


def exit_code(report: Report) -> ExitCode:
    """What a check ends with; notes are no findings to act on."""
    if report.errors:
        return ExitCode.FAILED
    return ExitCode.FINDINGS if report.warnings else ExitCode.OK


def worst(codes: Sequence[ExitCode]) -> ExitCode:
    """The exit code of several files; without any, nothing was checked."""
    return next((code for code in (ExitCode.FAILED, ExitCode.FINDINGS, ExitCode.OK) if code in codes), ExitCode.FAILED)
