"""``rlctl plan``: what will run where, on one screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlctl.cli import arguments, diagnostics, output
from rlctl.cli.progress import duration
from rlctl.common.errors import ExitCode

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from rlctl.common.report import Finding
    from rlctl.config import Loaded
    from rlctl.planning.memory import Fit, MemoryEstimate, StepCost
    from rlctl.planning.plan import BatchPlan, Cluster, Plan, SchedulePlan, StagePlan


def plan(
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
    dialect: arguments.Dialect = None,
    assignments: arguments.Assignments = [],  # noqa: B006 - typer reads it, nothing changes it
    trace: arguments.Trace = False,
    variables: arguments.Variables = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Save the plan, for `launch --plan`.")
    ] = None,
    force: arguments.Force = False,
    json: arguments.Json = False,
) -> None:
    """Show what will run: devices by role, the flow of a batch, the schedule, and memory.

    The plan is computed from the config; nothing is started, and this machine is not inspected except with
    [bold]--cluster local[/bold]. `rlctl launch` runs exactly this plan, and refuses a saved one that no longer fits.
    Exits 1 if the config uses something that `rlctl launch` can't run yet.

    If the GPU's memory is known ([bold]1x8:H100[/bold]), the plan shows what each phase needs on one GPU, and the nearest
    settings that would fit. Rows of local Parquet, JSON and CSV files are counted to turn epochs into steps.

    [bold]Examples[/bold]

    [cyan]rlctl plan run.yaml[/cyan]

    [cyan]rlctl plan run.yaml --cluster 2x8:cuda:80GiB --rows 7473[/cyan]

    [cyan]rlctl plan run.yaml --cluster local -o plan.json[/cyan]

    [cyan]rlctl plan run_qwen3_8b.sh --cluster 1x8:H100[/cyan]
    """
    from rlctl.planning.dataset_rows import count_rows
    from rlctl.planning.plan import make_plan
    from rlctl.translation.advice import in_own_keys, in_own_words

    loaded, report = arguments.must_read(
        inputs, dialect=dialect, assignments=assignments, trace=trace, variables=variables
    )
    diagnostics.findings(report.findings)
    machines = arguments.cluster_of(cluster) if cluster else None
    counted = count_rows(loaded.config) if rows is None else None
    if counted is not None:
        diagnostics.note(f"the training data has {counted} rows; overlong prompts that are dropped are counted too")
    with in_own_keys(loaded, report.dialect):
        made = make_plan(loaded.config, cluster=machines, rows=rows or counted)
    refused = refusals(loaded, machines)
    if out is not None and not refused:
        output.file(out, output.as_json(made.as_data()) + "\n", force=force)
        diagnostics.note(f"saved as {out}; `rlctl launch ... --plan {out}` executes it")
    if json:
        output.data(made.as_data())
    elif out is None:
        output.show(*rendered(made, partial(suggestions, loaded=loaded, source=report.dialect)))
    if refused:
        diagnostics.findings(in_own_words(refused, loaded, report.dialect))
        diagnostics.note(
            "runs of this version do not honour that, so the plan cannot be launched"
            + (", and was not saved" if out else "")
        )
        arguments.finish(ExitCode.FAILED)


def refusals(loaded: Loaded, cluster: Cluster | None) -> list[Finding]:
    """What the plan asks for and runs do not do."""
    from rlctl.checks import check

    found = loaded.as_written(check(loaded.config, locate=loaded.locate, cluster=cluster, silent=loaded.silent))
    return [finding for finding in found if finding.code == "not-supported"]


def suggestions(fit: Fit, *, loaded: Loaded, source: str) -> list[str]:
    """The changes that would make a stage fit, in the keys of the file that was read."""
    from rlctl.checks.hints import in_canonical_words
    from rlctl.common.report import Finding, Level
    from rlctl.translation.advice import in_own_words

    lines = []
    for change in fit.changes:
        fixes = ((change.key, change.after),)
        hint = in_canonical_words("{first}", fixes)
        finding = Finding("memory", Level.NOTE, "", hint=hint, fixes=fixes, template="{first}", candidates=fixes)
        [own] = in_own_words([finding], loaded, source)
        is_own = source.partition("@")[0] in ("", "rlctl")
        lines.append((own.advice or hint) + (f" (is {change.before})" if is_own else ""))
    return lines


def rendered(made: Plan, suggest: Callable[[Fit], list[str]] = lambda fit: []) -> list[RenderableType]:
    """A plan for a person; ``suggest`` says the changes that would make a stage fit."""
    devices = "GPUs" if made.device == "cuda" else "CPU workers"
    parts: list[RenderableType] = [f"[bold]{_escaped(made.run)}[/]  {made.nodes} x {made.devices_per_node} {devices}"]
    for stage in made.stages:
        parts += ["", *_stage(stage, suggest)]
    return parts


def _stage(stage: StagePlan, suggest: Callable[[Fit], list[str]]) -> list[RenderableType]:
    origin = ", goes on from the weights before" if stage.continues else ""
    parts: list[RenderableType] = [f"[bold]stage {_escaped(stage.name)}[/]: {stage.objective}{origin}", _roles(stage)]
    parts += [
        f"  batch     {line}" if not index else f"            {line}"
        for index, line in enumerate(batch_lines(stage.batch))
    ]
    parts.append(f"  schedule  {schedule_line(stage.schedule)}")
    lines = (
        memory_lines(stage.memory) if stage.fit is None else [*fit_lines(stage.fit), *map(_then, suggest(stage.fit))]
    )
    parts += [f"  {'memory' if not index else '':<8}  {line}" for index, line in enumerate(lines)]
    if stage.cost is not None:
        parts.append(f"  cost      {cost_line(stage.cost)}")
    parts += [f"  note      {_escaped(note)}" for note in stage.notes]
    return parts + [f"  not used  {_escaped(line)}" for line in stage.not_used]


def _roles(stage: StagePlan) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=True)
    for title in ("role", "engine", "processes", "replicas", "devices", "CPUs each"):
        table.add_column(title, justify="right" if title in ("processes", "replicas", "CPUs each") else "left")
    for role in stage.roles:
        counts = (str(role.processes), str(role.replicas))
        table.add_row(role.role, role.engine, *counts, ranges(role.devices), str(role.cpus_per_process))
    return table


def batch_lines(batch: BatchPlan) -> list[str]:
    """The arithmetic of a step, with its units."""
    responses = f"{batch.responses_per_step} responses a step"
    drawn = f"{batch.prompts_per_step} prompts x {batch.responses_per_prompt} responses = {responses}"
    step = drawn if batch.responses_per_step != batch.prompts_per_step else responses
    size = f"{batch.responses_per_step} / {batch.mini_batch_responses} = {batch.mini_batches_per_epoch} mini-batches"
    passes = f"x {batch.ppo_epochs} epoch{'s' * (batch.ppo_epochs != 1)}"
    return [
        step,
        f"{size} {passes} = {batch.optimizer_steps_per_step} optimizer steps a step",
        f"{batch.responses_per_replica:g} responses of a mini-batch on each replica",
    ]


def schedule_line(schedule: SchedulePlan) -> str:
    """When things happen, in steps."""
    total = f"{schedule.total_steps} steps" if schedule.total_steps else ""
    if schedule.until_dry:
        total = f"{total} at most, or until the buffer is dry" if total else "until the buffer is dry"
    total = total or "as many steps as the data has (--rows says how long it is)"
    evaluate = f"evaluates every {schedule.evaluate_every}" if schedule.evaluate_every else "no evaluation on the way"
    save = f"saves every {schedule.save_every}" if schedule.save_every else "no checkpoint on the way"
    return f"{total}; {evaluate}; {save}"


def fit_lines(fit: Fit) -> list[str]:
    """What each phase needs on one device, of what, and whether it fits."""
    several = len({phase.devices for phase in fit.phases}) > 1
    lines = []
    for phase in fit.phases:
        where = f" on {ranges(phase.devices)}" if several else ""
        parts = sorted((part for part in phase.parts if part.gib >= 0.05), key=lambda part: -part.gib)
        told = ", ".join(f"{part.name} {part.gib:.1f}" for part in parts)
        lines.append(f"{phase.phase}{where}: {phase.gib:.0f} of {fit.gib:g} GiB: {told}")
    if fit.fits:
        return lines
    remedy = "to make it fit:" if fit.changes else "no change of its settings that rlctl tried would make it fit"
    return [*lines, f"[bold]does not fit[/]: {fit.problem}; {remedy}"]


def _then(line: str) -> str:
    return f"  {_escaped(line)}"


def memory_lines(estimates: Sequence[MemoryEstimate]) -> list[str]:
    """What each role needs on one of its devices, and of what."""
    if not estimates:
        return ["not estimated: the size of the model is not known"]
    return [
        f"{estimate.role} {estimate.gib:.1f} GiB a device: "
        + ", ".join(f"{part.name} {part.gib:.1f}" for part in estimate.parts if part.gib >= 0.05)
        for estimate in estimates
    ]


def cost_line(cost: StepCost) -> str:
    """The arithmetic of a step, and its time where the GPU is known."""
    parts = [f"up to {cost.flops:.2g} operations a step"]
    times = (("training", cost.training_seconds), ("generation", cost.generation_seconds))
    parts += [f"{name} {duration(seconds)}" for name, seconds in times if seconds is not None]
    return "; ".join(parts)


def ranges(numbers: Sequence[int]) -> str:
    """Device numbers in short: ``0-3, 8``; ``CPU`` where there are none."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) or "CPU"


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
