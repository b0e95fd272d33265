"""``rlctl plan``: what will run where, on one screen; ``plan_text`` lays it out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlctl.cli import arguments, diagnostics, layout, output, plan_text
from rlctl.common import quoting
from rlctl.common.errors import ExitCode, PlanError, UsageError
from rlctl.common.messages import text

if TYPE_CHECKING:
    from rlctl.common.report import Finding, Report
    from rlctl.config import Loaded
    from rlctl.planning.memory import Fit
    from rlctl.planning.plan import Cluster


def _list_gpus(asked: bool) -> None:
    """Answer ``--gpus``."""
    if not asked:
        return
    from rlctl.planning.memory import GPUS

    rows = [
        (name, f"{gpu.gib:g}", f"{gpu.terabytes_per_second:g}", f"{gpu.tflops:g}", gpu.source)
        for name, gpu in GPUS.items()
    ]
    heads = ("GPU", "GiB", "TB/s", "TFLOP/s", text("plan-gpu-source"))
    widths = [max(map(layout.cells, column)) for column in zip(heads, *rows, strict=True)]
    lines = (
        "  ".join(layout.padded(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (heads, *rows)
    )
    output.text("\n".join(lines))
    arguments.finish(ExitCode.OK)


def plan(
    context: typer.Context,
    inputs: arguments.Inputs,
    *,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="MACHINES", help="Plan for these: [b]2x8[/b], [b]2x8:H100[/b], [b]cpu:2[/b] or [b]local[/b]."
        ),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Rows of the training data, to turn epochs into steps.")
    ] = None,
    list_gpus: Annotated[
        bool,
        typer.Option(
            "--gpus", help="List the GPUs that are known by name, and exit.", is_eager=True, callback=_list_gpus
        ),
    ] = False,
    runner: Annotated[
        arguments.Runner | None, typer.Option(help="Framework whose memory is estimated (default: that of the file).")
    ] = None,
    model_shape: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The config.json of the model, if rlctl does not know it by the name in the file."
        ),
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTHS",
            help="How long responses are: [b]p50=1200,p99=8000[/b], a JSON file of lengths or counts, or the folder of a run.",
        ),
    ] = None,
    solve: Annotated[
        list[str],
        typer.Option(
            "--solve",
            metavar="QUANTITY",
            help="Find the best value that fits: [b]micro-batch[/b], [b]tokens[/b] (of a micro-batch), "
            "[b]max_response_length[/b], [b]gpu_memory_utilization[/b] or the fewest [b]gpus[/b]. Several give a table.",
        ),
    ] = [],  # noqa: B006 - typer reads it, nothing changes it
    dialect: arguments.Dialect = None,
    assignments: arguments.Assignments = [],  # noqa: B006 - typer reads it, nothing changes it
    trace: arguments.Trace = False,
    variables: arguments.Variables = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Save the plan, for `launch --plan`.")
    ] = None,
    html: arguments.Html = None,
    force: arguments.Force = False,
    json: arguments.Json = False,
) -> None:
    """Show what will run: devices by role, the flow of a batch, the schedule, and memory.

    The plan is computed from the config; nothing is started, and this machine is not inspected except with
    [bold]--cluster local[/bold]. `rlctl launch` runs exactly this plan, and refuses a saved one that no longer fits.
    Exits 1 if the config uses something that `rlctl launch` can't run yet.

    If the GPU's memory is known ([bold]1x8:H100[/bold]), the plan shows what each phase needs on one GPU, and the nearest
    settings that would fit. The memory is that of the framework and release that the file is for, or of
    [bold]--runner[/bold]; `rlctl launch` uses rlctl's. Rows of local Parquet, JSON and CSV files are counted to turn
    epochs into steps.

    [bold]Examples[/bold]

    [cyan]rlctl plan run.yaml[/cyan]

    [cyan]rlctl plan run.yaml --cluster 2x8:cuda:80GiB --rows 7473[/cyan]

    [cyan]rlctl plan run.yaml --cluster local -o plan.json[/cyan]

    [cyan]rlctl plan run_qwen3_8b.sh --cluster 1x8:H100[/cyan]

    [cyan]rlctl plan verl.yaml --cluster 1x8:H100 --solve micro-batch[/cyan]
    """
    from rlctl.adapters import memory_terms
    from rlctl.checks import without_equivalent
    from rlctl.cli.plan_lengths import known_lengths
    from rlctl.planning.dataset_rows import count_rows
    from rlctl.planning.plan import make_plan
    from rlctl.translation.advice import in_own_keys, in_own_words, own_names

    loaded, report = arguments.must_read(
        inputs, dialect=dialect, assignments=assignments, trace=trace, variables=variables
    )
    if model_shape is not None:
        from rlctl.planning.models import shape_given

        context.with_resource(shape_given(loaded.config.model.path, model_shape))
    machines = arguments.cluster_of(cluster) if cluster else None
    json, out = json or out == output.STANDARD_OUTPUT, None if out == output.STANDARD_OUTPUT else out
    terms = memory_terms(report, runner or "")
    if solve and html is not None:
        raise UsageError("--html shows a plan, not the answer of --solve", hint="leave one of them out")
    if solve:
        from rlctl.cli.plan_solve import solve as answer

        def again(overrides: Sequence[str]) -> tuple[Loaded | None, Report]:
            return arguments.read_inputs(
                [*inputs, *overrides],
                dialect=report.dialect,
                assignments=assignments,
                trace=trace,
                variables=variables,
            )

        with in_own_keys(loaded, report.dialect):
            answer(solve, loaded, report, machines, terms, again, json=json)
        return
    counted = count_rows(loaded.config) if rows is None else None
    read = [*report.findings, *without_equivalent(report)]
    try:
        with in_own_keys(loaded, report.dialect):
            made = make_plan(
                loaded.config,
                cluster=machines,
                rows=rows or counted,
                terms=terms,
                lengths=known_lengths(lengths) if lengths else None,
            )
    except PlanError:
        diagnostics.findings(read, notes=False)
        raise
    refused = refusals(loaded, machines, terms.framework)
    if out is not None and not refused:
        output.file(out, output.as_json(made.as_data()) + "\n", force=force)
    if html is not None:
        from rlctl.cli import pages

        found = in_own_words([*read, *refused], loaded, report.dialect)
        body = pages.group(pages.plan(made), pages.findings(found))
        pages.write(html, quoting.command(["rlctl", "plan", *inputs]), body, force=force)
    if json:
        output.data(made.as_data())
    elif out is None:
        suggest = partial(suggestions, loaded=loaded, source=report.dialect)
        renamed = own_names(loaded, report.dialect)
        output.laid_out(plan_text.lines(made, layout.screen(sys.stdout), suggest, renamed))
    diagnostics.findings([*read, *in_own_words(refused, loaded, report.dialect)], notes=False)
    if counted is not None:
        diagnostics.note(text("plan-rows", count=counted))
    if refused:
        diagnostics.note(text("plan-refused_saved" if out is not None else "plan-refused"))
        arguments.finish(ExitCode.FAILED)
    if out is not None:
        diagnostics.note(text("plan-saved", file=out))
        told = [*(["--from", dialect] if dialect else []), *(["--trace"] if trace else [])]
        told += [word for text_ in assignments for word in ("--set", text_)]
        told += [word for text_ in variables for word in ("--env", text_)]
        diagnostics.note(
            text("plan-next", command=quoting.command(["rlctl", "launch", *inputs, *told, "--plan", str(out)]))
        )


def refusals(loaded: Loaded, cluster: Cluster | None, runner: str) -> list[Finding]:
    """What the plan asks for and ``rlctl launch`` cannot run, and whether the cluster is too small for the runner."""
    from rlctl.checks import check

    place = partial(check, loaded.config, locate=loaded.locate_any, cluster=cluster, silent=loaded.silent)
    here = [finding for finding in place() if finding.code == "not-supported"]
    there = [finding for finding in place(runner=runner) if finding.code == "cluster-too-small"]
    return loaded.as_written([*here, *there])


def suggestions(fit: Fit, *, loaded: Loaded, source: str) -> list[str]:
    """The changes that would make a stage fit, in the keys of the file that was read."""
    from rlctl.checks.hints import in_canonical_words
    from rlctl.common.report import Finding, Fix, Level
    from rlctl.translation.advice import Adviser, in_own_words

    changes: list[Fix] = [(change.key, change.after) for change in fit.changes]
    if source.partition("@")[0] not in ("", "rlctl") and (settings := Adviser(loaded, source, {}).together(changes)):
        return [str(setting) for setting in settings]
    lines = []
    for change in fit.changes:
        fixes = ((change.key, change.after),)
        hint = in_canonical_words("{first}", fixes)
        finding = Finding("memory", Level.NOTE, "", hint=hint, fixes=fixes, template="{first}", candidates=fixes)
        [own] = in_own_words([finding], loaded, source)
        is_own = source.partition("@")[0] in ("", "rlctl")
        now = text("plan-now", value=diagnostics.shown(change.before)) if is_own else ""
        lines.append((own.advice or hint) + now)
    return lines
