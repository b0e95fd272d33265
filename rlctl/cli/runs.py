"""``rlctl runs``: what ran and runs, from the run folders alone; on another cluster, through its job server."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlctl.cli import arguments, completion, diagnostics, jobs, layout, output, progress, summary
from rlctl.cli.commands import command, group
from rlctl.cli.launch import EXIT_CODES
from rlctl.common import quoting
from rlctl.common.errors import ExitCode, UsageError
from rlctl.common.messages import text
from rlctl.common.messages.reasons import said, spoken, translated
from rlctl.common.terminal import safe

if TYPE_CHECKING:
    from rich.table import Table

    from rlctl.monitor.watching import RunView
    from rlctl.runs import RunInfo

app = group(
    "List, show, follow, checkpoint, stop, resume and remove runs.\n\nThese commands read the run's folder, so they work "
    "during a run and from any machine that has the folder. With [bold]--address http://HOST:8265[/bold] they manage runs that "
    "are jobs of a Ray cluster."
)
Folder = Annotated[Path, typer.Option("--folder", metavar="FOLDER", help="Folder with the run folders.")]
Name = Annotated[
    str, typer.Argument(metavar="RUN", help="Name of a run, or path of its folder.", autocompletion=completion.runs)
]
RUNS = arguments.RUNS


@command(app, "list")
def list_runs(*, folder: Folder = RUNS, address: jobs.OfCluster = None, json: arguments.Json = False) -> None:
    """List the runs of a folder, newest first.

    [bold]Examples[/bold]

    [cyan]rlctl runs list[/cyan]

    [cyan]rlctl runs list --folder /data/runs --json[/cyan]

    [cyan]rlctl runs list --address http://head:8265[/cyan]
    """
    from rlctl import runs

    if address is not None:
        jobs.show(jobs.server_of(address), json=json)
        return
    found = runs.list_runs(folder)
    if json:
        output.data([as_data(info) for info in found])
    elif found:
        output.show(_table(found))
    else:
        diagnostics.note(said("there are no runs in {folder}", folder=folder))


@command(app)
def show(
    name: Name,
    *,
    folder: Folder = RUNS,
    html: arguments.Html = None,
    force: arguments.Force = False,
    json: arguments.Json = False,
) -> None:
    """Show one run: progress, evaluation results, time by phase, warnings, and the cause of a failure.

    [bold]Examples[/bold]

    [cyan]rlctl runs show gsm8k-grpo[/cyan]

    [cyan]rlctl runs show runs/gsm8k-grpo --json[/cyan]
    """
    from rlctl import runs

    info = runs.find(name, folder)
    known = known_of(info)
    stages, at, accepted = known["stages"], known["now"], known["accepted_changes"]
    lines = [*_description(info), *_accepted_lines(accepted), *([_now_line(at)] if at else [])]
    if html is not None:
        from rich.text import Text

        from rlctl.cli import pages

        facts = [Text.from_markup(line).plain.strip() for line in lines]
        pages.write(html, info.name, pages.run(known, facts), force=force)
    if json:
        output.data(known)
        return
    output.show(*lines, *([summary.table(stages)] if stages else []))
    for item in known["advice"]:
        diagnostics.note(f"{translated(item['message'])}\n  {translated(item['remedy'])}")
    for line in summary.next_steps(info.status, info.folder)[1:]:
        diagnostics.note(line)


@command(app)
def follow(
    name: Name,
    *,
    folder: Folder = RUNS,
    address: jobs.OfCluster = None,
    json: Annotated[bool, typer.Option("--json", help="Print each event as one line of JSON on stdout.")] = False,
) -> None:
    """Stream a run's progress until it ends. For a job, streams its output.

    [bold]Examples[/bold]

    [cyan]rlctl runs follow gsm8k-grpo[/cyan]

    [cyan]rlctl runs follow gsm8k-grpo --json | jq .metrics[/cyan]

    [cyan]rlctl runs follow gsm8k-grpo --address http://head:8265[/cyan]
    """
    from rlctl import runs

    if address is not None:
        if json:
            raise UsageError(
                "--json prints the events in the run's folder, which a job keeps on the cluster",
                hint="run the command on a machine that has the folder",
            )
        server = jobs.server_of(address)
        jobs.watch(server, server.find(name).id)
        return

    info = runs.find(name, folder)
    try:
        with progress.Progress(quiet=json) as watch:
            for event in runs.events(info, follow=True):
                watch(event)
                if json:
                    output.line(event)
    except KeyboardInterrupt:
        diagnostics.note(said("the run continues: rlctl runs follow {folder}", folder=quoting.word(info.folder)))
        raise
    info = runs.find(str(info.folder), folder)
    diagnostics.note(f"{spoken(info.status)}: {info.folder}" + (f"\n  {translated(info.cause)}" if info.cause else ""))


@command(app)
def stop(
    name: Name,
    *,
    folder: Folder = RUNS,
    address: jobs.OfCluster = None,
    now: Annotated[
        bool,
        typer.Option(
            "--now", help="Stop immediately, without a checkpoint. Except for jobs, only on the machine of the run."
        ),
    ] = False,
) -> None:
    """Stop a run after its current step and save a checkpoint.

    [bold]Examples[/bold]

    [cyan]rlctl runs stop gsm8k-grpo[/cyan]

    [cyan]rlctl runs stop gsm8k-grpo --now[/cyan]

    [cyan]rlctl runs stop gsm8k-grpo --address http://head:8265[/cyan]
    """
    from rlctl import runs

    if address is not None:
        jobs.stop(jobs.server_of(address), name, now=now)
        return

    info = runs.find(name, folder)
    runs.stop(info, now=now)
    when = "now" if now else "after its current step"
    diagnostics.note(
        said(
            "{name} ends {when}; resume it with: rlctl runs resume {folder}",
            name=info.name,
            when=when,
            folder=quoting.word(info.folder),
        )
    )


@command(app)
def checkpoint(name: Name, *, folder: Folder = RUNS, address: jobs.OfCluster = None) -> None:
    """Save a checkpoint after the run's current step; the run continues.

    [bold]Examples[/bold]

    [cyan]rlctl runs checkpoint gsm8k-grpo[/cyan]

    [cyan]rlctl runs checkpoint gsm8k-grpo --address http://head:8265[/cyan]
    """
    from rlctl import runs

    if address is not None:
        jobs.checkpoint(jobs.server_of(address), name)
        return
    info = runs.find(name, folder)
    runs.checkpoint(info)
    diagnostics.note(
        said(
            "{name} writes a checkpoint after its current step: {value}",
            name=info.name,
            value=info.folder / "checkpoints",
        )
    )


@command(app)
def resume(
    name: Name,
    *,
    folder: Folder = RUNS,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Resume on a Ray cluster: [b]auto[/b], [b]HOST:PORT[/b], or the job server [b]http://HOST:8265[/b].",
        ),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(
            metavar="STEP",
            help="Resume from the checkpoint of this step. Later checkpoints are moved aside, not deleted.",
        ),
    ] = None,
    accept_changes: arguments.AcceptChanges = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Submit the job and return immediately.")] = False,
    passed: Annotated[
        list[str],
        typer.Option("--pass", metavar="NAME", help="Forward a local environment variable to the job. Repeatable."),
    ] = [],  # noqa: B006 - typer reads it, nothing changes it
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and the final result.")] = False,
    json: arguments.Json = False,
) -> None:
    """Resume a run from its latest checkpoint, with the config and plan in its folder.

    Relative paths in the config start from the folder in which the run was first started. If the training data has changed
    since the checkpoint, rlctl refuses to resume; it reports other changes, such as of the model or the reward code.

    [bold]Examples[/bold]

    [cyan]rlctl runs resume gsm8k-grpo[/cyan]

    [cyan]rlctl runs resume gsm8k-grpo --step 40[/cyan]

    [cyan]rlctl runs resume /shared/runs/gsm8k-grpo --address http://head:8265[/cyan]
    """
    from rlctl import runs
    from rlctl.cluster.address import address_of

    if address is not None and address_of(address).jobs is not None:
        if step is not None:
            raise UsageError(
                "--step needs the run's folder, which a job keeps on the cluster",
                hint="run the command without --address on a machine that has the folder",
            )
        server = jobs.server_of(address)
        flags = [flag for flag, wanted in (("--accept-changes", accept_changes), ("--quiet", quiet)) if wanted]
        jobs.resume(server, name, flags=flags, passed=passed, detach=detach, json=json)
        return
    if detach or passed:
        raise UsageError("--detach and --pass are for a job", hint="name a job server: --address http://HOST:8265")
    info = runs.find(name, folder)
    if info.directory and Path(info.directory) != Path.cwd():
        is_there = Path(info.directory).is_dir()
        told = (
            "in {folder}, where it was started"
            if is_there
            else "{folder}, where it was started, no longer exists: relative paths start from the current folder"
        )
        diagnostics.note(said(told, folder=info.directory))
    every = runs.read_config(info.folder).runtime.log_every
    with progress.Progress(quiet=quiet, every=every) as watch:
        result = runs.resume(info, observer=watch, address=address, step=step, accept_changes=accept_changes)
    if json:
        output.data(summary.as_data(result))
    summary.tell(result)
    arguments.finish(EXIT_CODES[result.status])


@command(app)
def remove(
    name: Name,
    *,
    folder: Folder = RUNS,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a run's folder, with its checkpoints and exported weights.

    [bold]Examples[/bold]

    [cyan]rlctl runs remove gsm8k-grpo[/cyan]

    [cyan]rlctl runs remove gsm8k-grpo --yes[/cyan]
    """
    from rlctl import runs

    info = runs.find(name, folder)
    if not yes:
        if not diagnostics.can_ask():
            raise UsageError(
                said("refusing to delete {folder} without confirmation (no terminal)", folder=info.folder),
                hint="pass --yes",
            )
        if not typer.confirm(spoken("Delete {folder} and everything in it?", folder=safe(str(info.folder))), err=True):
            arguments.finish(ExitCode.FAILED)
    runs.remove(info)
    diagnostics.note(said("removed {folder}", folder=info.folder))


def known_of(info: RunInfo) -> dict[str, Any]:
    """Everything that ``rlctl runs show`` knows of a run, as plain data."""
    import time
    from dataclasses import asdict

    from rlctl import runs
    from rlctl.monitor.watching import RunView

    now, view = time.time(), RunView(info.folder).read_whole()
    at = _now(view, now) if info.status == "running" else {}
    advice = [{**asdict(item), "message": item.message} for item in view.advice(now if at else 0.0)]
    accepted = runs.accepted_changes(info)
    return as_data(info) | {"stages": _stages(view), "now": at, "advice": advice, "accepted_changes": accepted}


def as_data(info: RunInfo) -> dict[str, Any]:
    """A run as plain data."""
    from dataclasses import asdict

    resumed = info.resumed.isoformat() if info.resumed is not None else None
    return asdict(info) | {"folder": str(info.folder), "started": info.started.isoformat(), "resumed": resumed}


def _table(found: list[RunInfo]) -> Table:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("run", "status", "stage", "step", "started", "took", "folder"):
        table.add_column(spoken(title), no_wrap=True)
    for info in found:
        progressed = f"{info.step}/{info.total_steps}" if info.total_steps else str(info.step)
        cells = (
            info.name,
            spoken(info.status),
            info.stage,
            progressed,
            ago(info.started),
            progress.duration(info.seconds),
        )
        table.add_row(*map(escape, (*cells, str(info.folder))))
    return table


def ago(moment: datetime) -> str:
    """How long ago something was."""
    return spoken("{time} ago", time=progress.duration(max(0.0, (datetime.now(UTC) - moment).total_seconds())))


def _description(info: RunInfo) -> list[str]:
    from rich.markup import escape

    resumed = spoken(", resumed {time}", time=ago(info.resumed)) if info.resumed is not None else ""
    process = spoken(", process {pid} on {host}", pid=info.pid, host=info.host)
    facts = {
        "folder": str(info.folder),
        "stage": f"{info.stage}  {progress.step_text(info.step, info.total_steps)}",
        "started": f"{ago(info.started)}{resumed}{process}",
        "took": progress.duration(info.seconds),
        "cause": translated(info.cause),
    }
    head = f"[bold]{escape(info.name)}[/]  {spoken(info.status)}"
    return [head, *(f"  {layout.padded(spoken(name), 8)} {escape(told)}" for name, told in facts.items() if told)]


def _accepted_lines(accepted: list[dict[str, Any]]) -> list[str]:
    """The changes with which somebody had the run continue."""
    from rich.markup import escape

    return [
        escape(
            f"  {layout.padded(spoken('changed'), 8)} "
            + spoken(
                "{change} (accepted at step {step} of {stage})",
                change=translated(change),
                step=entry["step"],
                stage=entry["stage"],
            )
        )
        for entry in accepted
        for change in entry["changes"]
    ]


def _stages(view: RunView) -> dict[str, dict[str, Any]]:
    """What is known of each stage: its summary where it ended, else what its last events say."""
    stages: dict[str, dict[str, Any]] = {}
    for name, stage in view.stages.items():
        found = stages[name] = {"steps": stage.steps.steps[-1]} if len(stage.steps) else {}
        if len(stage.evaluations):
            found["evaluated"] = {"first": stage.evaluations.row(0), "last": stage.evaluations.row(-1)}
        found |= {key: stage.ended[key] for key in ("evaluated", "seconds", "tokens") if key in stage.ended}
    return {name: stage for name, stage in stages.items() if stage}


def _now(view: RunView, now: float) -> dict[str, Any]:
    """What a run is at."""
    phase = view.phase
    if phase is None:
        return {}
    return {
        "phase": phase.name,
        "seconds": phase.elapsed(now),
        "usual_seconds": phase.usual,
        "seconds_left": view.seconds_left,
    }


def _now_line(at: dict[str, Any]) -> str:
    usual, left = at["usual_seconds"], at["seconds_left"]
    parts = [spoken("{phase} for {time}", phase=at["phase"], time=progress.duration(at["seconds"]))]
    parts += [spoken("usually {time}", time=progress.duration(usual))] if usual is not None else []
    parts += [spoken("about {time} left", time=progress.duration(left))] if left is not None else []
    return f"  {layout.padded(spoken('now'), 8)} {text('name-separator').join(parts)}"
