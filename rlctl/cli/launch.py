"""``rlctl launch``: run a config here in the foreground, or on another cluster as a job."""

from __future__ import annotations

import json as json_library
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlctl.cli import arguments, diagnostics, jobs, output, progress, scaled, summary
from rlctl.cli.plan_text import batch_lines, machines, on_devices, schedule_line
from rlctl.common.errors import ExitCode, PlanError, UsageError
from rlctl.common.messages import text
from rlctl.common.messages.reasons import COMMAS, lines_of, said, together, translated
from rlctl.common.numbers import natural

if TYPE_CHECKING:
    from rlctl.common.report import Report
    from rlctl.config import Loaded
    from rlctl.planning.plan import Cluster, Plan

EXIT_CODES = {"finished": ExitCode.OK, "stopped": ExitCode.FINDINGS, "failed": ExitCode.FAILED}
"""A run that was asked to stop did what it was told, and is not at its end."""


def launch(
    inputs: arguments.Inputs,
    *,
    dialect: arguments.Dialect = None,
    assignments: arguments.Assignments = [],  # noqa: B006 - typer reads it, nothing changes it
    trace: arguments.Trace = False,
    variables: arguments.Variables = [],  # noqa: B006
    plan_file: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="Run this saved plan; fails if it no longer fits the config."),
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="Start a new run even if one with this name exists.")] = False,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Run on a Ray cluster: [b]auto[/b] or [b]HOST:PORT[/b] for the cluster of this machine, or "
            "[b]http://HOST:8265[/b] to submit a job.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the run and of its folder.")] = None,
    accept_changes: arguments.AcceptChanges = False,
    baseline: Annotated[bool, typer.Option("--baseline", help="Evaluate the initial weights before training.")] = False,
    trace_steps: Annotated[
        str | None,
        typer.Option(
            "--trace-steps", metavar="N,N", help="Write a Perfetto timeline of these steps to the run folder."
        ),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Submit the job and return immediately.")] = False,
    passed: Annotated[
        list[str],
        typer.Option("--pass", metavar="NAME", help="Forward a local environment variable to the job. Repeatable."),
    ] = [],  # noqa: B006
    strict: Annotated[bool, typer.Option("--strict", help="Treat check warnings as errors.")] = False,
    allow_unknown: arguments.AllowUnknown = [],  # noqa: B006
    cpu: Annotated[
        bool,
        typer.Option(
            "--cpu", help="Scale the config down to this machine's CPU cores, after showing the changes and asking."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --cpu, do not ask.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and the final result.")] = False,
    json: arguments.Json = False,
) -> None:
    """Run a config: check it, plan it, train, and show progress.

    The run writes everything to its folder, [bold]runs/NAME[/bold]. If a run of this name was interrupted, it is resumed if
    the config means the same; otherwise rlctl shows the difference and stops. Ctrl-C stops the run immediately,
    [cyan]rlctl runs stop[/cyan] after a checkpoint. Exits 3 if the run was stopped before its end.

    With [bold]--address http://HOST:8265[/bold] the run becomes a Ray job: rlctl, the config and the code that it names are
    copied to the cluster, and the job's output is shown in this terminal. Ctrl-C then ends the output, not the run.

    If the config needs more GPUs or CPU cores than this machine has, rlctl refuses it: [cyan]--cpu[/cyan] scales it down, and
    [cyan]rlctl try --tiny[/cyan] tries it with a small random model.

    [bold]Examples[/bold]

    [cyan]rlctl launch run.yaml[/cyan]

    [cyan]rlctl launch grpo.yaml data.train_batch_size=64 --name try-64[/cyan]

    [cyan]rlctl launch run.yaml --set schedule.total_steps=10 --json > result.json[/cyan]

    [cyan]rlctl launch eight-gpus.yaml --cpu[/cyan]

    [cyan]rlctl launch run.yaml --address http://head:8265 --pass WANDB_API_KEY[/cyan]
    """
    from rlctl import runs
    from rlctl.checks import ABOUT_THIS_MACHINE
    from rlctl.cluster.address import address_of
    from rlctl.config.baseline import with_baseline
    from rlctl.translation.advice import in_own_keys

    loaded, report = arguments.must_read(
        inputs, dialect=dialect, assignments=assignments, trace=trace, variables=variables
    )
    if cpu:
        if address is not None:
            raise UsageError("--cpu scales a config down to this machine, and --address names another machine")
        loaded = scaled.on_cpu(loaded, runs.local_cluster(), yes=yes)
    loaded = runs.with_ray_that_is_there(_changed(loaded, name, address))
    if trace_steps is not None:
        loaded = _traced(loaded, trace_steps)
    where = address_of(loaded.config.runtime.ray.address) if loaded.config.runtime.ray.address else None
    if where is not None and where.jobs is not None:
        checked(
            loaded,
            report,
            cluster=None,
            codes_left_out=ABOUT_THIS_MACHINE,
            strict=strict,
            allow_unknown=allow_unknown,
            files=False,
        )
        given = {"--new": new, "--baseline": baseline, "--quiet": quiet, "--accept-changes": accept_changes}
        flags = [flag for flag, wanted in given.items() if wanted]
        jobs.submit(loaded, where, flags=flags, passed=passed, plan_file=plan_file, detach=detach, json=json)
        return
    if detach or passed:
        raise UsageError("--detach and --pass are for a job", hint="name a job server: --address http://HOST:8265")
    cluster = runs.local_cluster() if where is None else None
    words = scaled.words_of(inputs, dialect=dialect, assignments=assignments, trace=trace, variables=variables)
    checked(loaded, report, cluster=cluster, strict=strict, allow_unknown=allow_unknown, words=words)
    if baseline:
        loaded = with_baseline(loaded)
    with in_own_keys(loaded, report.dialect):
        made = _plan(loaded, plan_file, cluster)
    if not quiet:
        for line in compact(made):
            diagnostics.note(line)
    with progress.Progress(quiet=quiet, every=loaded.config.runtime.log_every) as watch:
        result = runs.start(loaded, plan=made, observer=watch, new=new, accept_changes=accept_changes)
    if json:
        output.data(summary.as_data(result))
    summary.tell(result)
    arguments.finish(EXIT_CODES[result.status])


def _changed(loaded: Loaded, name: str | None, address: str | None) -> Loaded:
    from rlctl.config import put

    if name is not None:
        if not name or "/" in name or name in (".", ".."):
            raise UsageError(said("--name {name!r} cannot be used as a folder name", name=name))
        loaded = put(loaded, ("run", "name"), name, by="--name")
    if address is not None:
        loaded = put(loaded, ("runtime", "ray", "address"), address, by="--address")
    return loaded


def _traced(loaded: Loaded, steps: str) -> Loaded:
    """With a timeline of steps, given as ``3,4``."""
    from rlctl.config import put

    profiling = loaded.config.profiling
    if profiling.tool is not None:
        raise UsageError(
            said("--trace-steps and profiling.tool {tool} both write a timeline", tool=profiling.tool),
            hint="set profiling.steps",
        )
    numbers = [natural(part.strip()) for part in steps.split(",")]
    if not all(numbers):
        raise UsageError(said("--trace-steps {steps}: expected step numbers from 1, such as 3,4", steps=steps))
    loaded = put(loaded, ("profiling", "tool"), "timeline", by="--trace-steps")
    return put(loaded, ("profiling", "steps"), numbers, by="--trace-steps")


def checked(
    loaded: Loaded,
    report: Report,
    *,
    cluster: Cluster | None,
    codes_left_out: Collection[str] = (),
    strict: bool = False,
    allow_unknown: Collection[str] = (),
    words: Sequence[str] = (),
    files: bool = True,
) -> None:
    """Show what reading and checking found; ends the command where something cannot run, or, strictly, may surprise.

    ``files``: also check the code, data and models that the config names, which the run finds on this machine.
    ``words`` are the command's arguments, for the commands that run a config which this machine is too small for.
    """
    from rlctl.checks import RULES_OF_FILES, check, of_reading, refuse_unused
    from rlctl.checks.placement import TOO_SMALL
    from rlctl.common.report import Level
    from rlctl.translation.advice import in_own_words

    refuse_unused(report.findings, allow_unknown)

    symbolic = loaded.expressions.keys()
    problems = check(
        loaded.config,
        locate=loaded.locate_any,
        cluster=cluster,
        symbolic=symbolic,
        silent=loaded.silent,
        more=RULES_OF_FILES if files else (),
    )
    found = [
        *of_reading(report, allow_unknown),
        *loaded.as_written(in_own_words(problems, loaded, report.dialect)),
    ]
    found = [finding for finding in found if finding.code not in codes_left_out]
    diagnostics.findings(found, notes=False)
    if any(finding.level is Level.ERROR or (strict and finding.level is Level.WARNING) for finding in found):
        diagnostics.note(text("launch-not-started"))
        scaled.ask_for_paths(found)
        if words and any(finding.code == TOO_SMALL for finding in found):
            scaled.offer(words)
        arguments.finish(ExitCode.FAILED)


def _plan(loaded: Loaded, saved: Path | None, cluster: Cluster | None) -> Plan:
    """The plan for these machines; with a saved one, that it is the same.

    Raises:
        PlanError: the saved plan cannot be read, or is for another config or other machines.
    """
    from rlctl import runs

    fresh = runs.prepare(loaded, cluster)
    if saved is None:
        return fresh
    kept = replace(read_plan(saved), run=fresh.run)
    different = differences(shape(kept), shape(fresh))
    if different:
        raise PlanError(
            lines_of(
                different[:10], said("the plan in {saved} does not match this config on these machines:", saved=saved)
            ),
            hint="plan again, with --cluster local or for the cluster it is to run on",
        )
    return fresh


def read_plan(path: Path) -> Plan:
    """A plan that ``rlctl plan -o`` saved.

    Raises:
        PlanError: it is not one.
    """
    from rlctl.documents import read_text
    from rlctl.planning.plan import plan_from

    try:
        data = json_library.loads(read_text(path))
    except ValueError as error:
        raise PlanError(
            said("{path} is not a saved plan: {error}", path=path, error=error),
            hint="create one with rlctl plan -o FILE",
        ) from None
    except RecursionError:
        raise PlanError(said("{path} is not a saved plan: it is nested too deep", path=path)) from None
    if not isinstance(data, dict):
        raise PlanError(
            said("{path} is not a saved plan: it is not a JSON object", path=path),
            hint="create one with rlctl plan -o FILE",
        )
    return plan_from(data)


def shape(made: Plan) -> dict[str, Any]:
    """What of a plan is fixed by config and machines: not notes, nor what depends on the length of the data."""
    return {
        "device": made.device,
        "nodes": made.nodes,
        "devices_per_node": made.devices_per_node,
        "stages": [
            {"name": stage.name, "roles": [asdict(role) for role in stage.roles], "batch": asdict(stage.batch)}
            for stage in made.stages
        ],
    }


def differences(kept: Any, fresh: Any, where: str = "") -> list[str]:
    """The places where two plans differ, as ``where: kept, is fresh``."""
    if isinstance(kept, dict) and isinstance(fresh, dict):
        return [
            line
            for key in kept | fresh
            for line in differences(kept.get(key), fresh.get(key), f"{where}.{key}".lstrip("."))
        ]
    if isinstance(kept, list) and isinstance(fresh, list) and len(kept) == len(fresh):
        return [
            line
            for index, pair in enumerate(zip(kept, fresh, strict=True))
            for line in differences(*pair, f"{where}[{index}]")
        ]
    return [] if kept == fresh else [f"{where}: planned {diagnostics.shown(kept)}, is {diagnostics.shown(fresh)}"]


def compact(made: Plan) -> list[str]:
    """A plan in a few lines."""
    lines = [machines(made)]
    for stage in made.stages:
        roles = together(f"{role.role} ({role.engine}) {on_devices(role)}" for role in stage.roles)
        batch = together(batch_lines(stage.batch), COMMAS)
        lines += [f"  {stage.name}: {translated(roles)}", f"    {translated(batch)}"]
        lines.append(f"    {schedule_line(stage.schedule)}")
        lines += [f"    {note}" for note in stage.notes]
    return lines
