"""``rlctl check``: what would go wrong, before anything starts."""

from __future__ import annotations

from typing import Annotated

import typer

from rlctl.cli import arguments, diagnostics, output
from rlctl.errors import ExitCode
from rlctl.report import Report


def check(
    inputs: arguments.Inputs,
    *,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="MACHINES", help="Check that it fits: [b]2x8[/b], [b]2x8:H100[/b], [b]cpu:2[/b] or [b]local[/b]."
        ),
    ] = None,
    dialect: arguments.Dialect = None,
    assignments: arguments.Assignments = [],  # noqa: B006 - typer reads it, nothing changes it
    trace: arguments.Trace = False,
    variables: arguments.Variables = [],  # noqa: B006
    allow_unknown: arguments.AllowUnknown = [],  # noqa: B006
    json: arguments.Json = False,
) -> None:
    """Check a config before anything starts: units, divisibility, placement, memory, paths.

    Each finding has a code, a file and line, and what to do about it; nothing is changed and nothing is started. Configs of
    any dialect are checked for what rlctl would run. Exit code 1 says that it cannot run as it is, 3 that something
    deserves a second look.

    [bold]Examples[/bold]

    [cyan]rlctl check run.yaml[/cyan]

    [cyan]rlctl check run.yaml --set batch.mini_batch_responses=256[/cyan]

    [cyan]rlctl check verl.yaml trainer.nnodes=4 --cluster 4x8:H100 --json[/cyan]
    """
    from rlctl.advice import in_own_words
    from rlctl.checks import check as run_checks
    from rlctl.checks import refuse_unused, with_mistyped_keys

    loaded, report = arguments.read_inputs(
        inputs, dialect=dialect, assignments=assignments, trace=trace, variables=variables
    )
    refuse_unused(report.findings, allow_unknown)
    report.findings = with_mistyped_keys(report.findings, allow_unknown)
    if loaded is not None:
        machines = arguments.cluster_of(cluster) if cluster else None
        symbolic = loaded.expressions.keys()
        checked = run_checks(
            loaded.config, locate=loaded.locate, cluster=machines, symbolic=symbolic, silent=loaded.silent
        )
        report.extend(loaded.as_written(in_own_words(checked, loaded, report.dialect)))
    if json:
        found = [finding.as_data() for finding in report.findings]
        output.data({"dialect": report.dialect, "reason": report.reason, "findings": found})
    diagnostics.findings(report.findings)
    diagnostics.note(verdict(report, readable=loaded is not None))
    arguments.finish(exit_code(report, readable=loaded is not None))


def verdict(report: Report, *, readable: bool) -> str:
    """The findings in one line."""
    errors, warnings = len(report.errors), len(report.warnings)
    if not errors and not warnings:
        return f"{report.dialect}: nothing to complain about" if readable else "nothing could be read"
    return f"{report.dialect}: {errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}"


def exit_code(report: Report, *, readable: bool) -> ExitCode:
    """What a check ends with; notes are no findings to act on."""
    if report.errors or not readable:
        return ExitCode.FAILED
    return ExitCode.FINDINGS if report.warnings else ExitCode.OK
