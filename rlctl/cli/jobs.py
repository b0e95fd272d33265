"""Runs on another cluster, for the commands that know of them: submitted as jobs, followed, and asked to end.

``launch`` and ``runs`` come here when ``--address`` names a job server. Ctrl-C while a job is followed ends the following
alone: the run goes on, since its controller is not here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlctl.cli import arguments, diagnostics, layout, output, progress
from rlctl.common import quoting
from rlctl.common.errors import ExitCode, RunError, UsageError
from rlctl.common.messages.reasons import said, spoken

if TYPE_CHECKING:
    from rlctl.cluster.address import Address
    from rlctl.cluster.jobs import Job, JobServer
    from rlctl.cluster.package import Package
    from rlctl.config import Loaded

OfCluster = Annotated[
    str | None,
    typer.Option("--address", metavar="ADDRESS", help="Job server of a Ray cluster, such as [b]http://HOST:8265[/b]."),
]
EXIT_CODES = {"finished": ExitCode.OK, "stopped": ExitCode.FINDINGS, "failed": ExitCode.FAILED}
INTERRUPTED = 130
"""What a shell says of a command that Ctrl-C ended."""
PYTHON = ("python", "-P", "-m")


def server_of(address: str) -> JobServer:
    """The job server that ``--address`` names.

    Raises:
        UsageError: the address is that of a cluster that this machine belongs to.
        RunError: nothing answers there.
    """
    from rlctl.cluster.address import address_of

    where = address_of(address)
    if where.jobs is None:
        raise UsageError(
            said(
                "--address {address} is a cluster that this machine belongs to: its runs are folders and need no address",
                address=address,
            ),
            hint="omit --address, or name a job server: http://HOST:8265",
        )
    return _server(where)


def _server(where: Address) -> JobServer:
    from rlctl.cluster.jobs import JobServer

    assert where.jobs is not None, "the address is that of a job server"
    if where.note:
        diagnostics.note(where.note)
    return JobServer(where.jobs)


def submit(
    loaded: Loaded,
    where: Address,
    *,
    flags: Sequence[str],
    passed: Sequence[str],
    plan_file: Path | None,
    detach: bool,
    json: bool,
) -> None:
    """Submit a run as a job, and follow it; ends the command with the run's exit code."""
    from rlctl.cluster.package import CONFIG, FILES, pack

    package = pack(loaded)
    variables = passed_on(passed)
    run = loaded.config.run
    with tempfile.TemporaryDirectory(prefix="rlctl-job-") as folder:
        directory = Path(folder)
        (directory / CONFIG).write_text(package.config, encoding="utf-8")
        for name, content in package.files.items():
            (directory / FILES / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / FILES / name).write_bytes(content)
        command = [*PYTHON, "rlctl", "--job", package.home, "launch", CONFIG, "--address", "auto", *flags]
        if plan_file is not None:
            (directory / "plan.json").write_bytes(plan_file.read_bytes())
            command += ["--plan", "plan.json"]
        tell_needs(package, variables)
        server = _server(where)
        name = run.name
        if "--new" in flags:  # here, so that the job is known by the folder that the run really has
            name = free_name(name, {job.run for job in server.jobs()})
            command += ["--name", name]
        identity = server.submit(
            command, run=name, folder=f"{run.folder}/{name}", directory=directory, variables=variables
        )
    diagnostics.note(said("submitted: job {identity} on {url}", identity=identity, url=server.url))
    watch(server, identity, detach=detach, json=json)


def free_name(name: str, taken: Collection[str]) -> str:
    """The name of a run beside those of that name."""
    number = 2
    wanted = name
    while wanted in taken:
        wanted, number = f"{name}-{number}", number + 1
    return wanted


def passed_on(names: Sequence[str]) -> dict[str, str]:
    """Variables of this environment, for the job.

    Raises:
        UsageError: one is not set here.
    """
    import os

    missing = [name for name in names if name not in os.environ]
    if missing:
        raise UsageError(
            said("--pass {missing}: there is no such variable in this environment", missing=missing[0]),
            hint="set the variable, or omit this --pass",
        )
    return {name: os.environ[name] for name in names}


def tell_needs(package: Package, variables: Sequence[str] | dict[str, str]) -> None:
    """Say what travels, and what the cluster must have."""
    from rlctl import __version__

    files = ", ".join(package.sources[name] for name in sorted(package.files))
    if files:
        diagnostics.note(
            said("the job includes rlctl {version}, the config and {files}", version=__version__, files=files)
        )
    else:
        diagnostics.note(said("the job includes rlctl {version} and the config", version=__version__))
    diagnostics.note("every node of the cluster needs, under the same path:")
    diagnostics.note("  Python with the packages of rlctl[runtime]")
    for place in package.places:
        diagnostics.note(f"  {place}")
    unset = [name for name in package.variables if name not in variables]
    if unset:
        diagnostics.note(
            said(
                "  the variables {names} (--pass NAME copies a variable from this environment)", names=", ".join(unset)
            )
        )


def watch(server: JobServer, identity: str, *, detach: bool = False, json: bool = False) -> None:
    """Follow a job to its end, and end the command as it did."""
    run = server.job(identity)
    if detach:
        _tell_handles(server, run)
        if json:
            output.data(as_data(run) | {"address": server.url})
        return
    try:
        ended = server.follow(identity, diagnostics.passage)
    except KeyboardInterrupt:
        diagnostics.passage("\n")
        diagnostics.note(said("no longer following; the run continues as job {identity}", identity=identity))
        _tell_handles(server, run)
        raise typer.Exit(INTERRUPTED) from None
    diagnostics.note(said("{status}: job {identity} on {url}", status=ended.status, identity=identity, url=server.url))
    if ended.status == "failed" and ended.exit_code is None:
        diagnostics.note(f"  {ended.message}")
    if json:
        output.data(as_data(ended) | {"address": server.url})
    arguments.finish(EXIT_CODES[ended.status])


def _tell_handles(server: JobServer, run: Job) -> None:
    for word, what in (("follow", "follow it"), ("stop", "end it")):
        title = layout.padded(f"{spoken(what)}:", 12)
        diagnostics.note(f"  {title} {quoting.command(['rlctl', 'runs', word, run.run, '--address', server.url])}")


def show(server: JobServer, *, json: bool) -> None:
    """List the runs that a cluster knows as jobs."""
    found = server.jobs()
    if json:
        output.data([as_data(job) for job in found])
    elif found:
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for title in ("run", "status", "took", "folder on the cluster", "job"):
            table.add_column(title, no_wrap=True)
        for job in found:
            table.add_row(*map(escape, (job.run, job.status, progress.duration(job.seconds), job.folder, job.id)))
        output.show(table)
    else:
        diagnostics.note(said("{url} knows no runs", url=server.url))


def stop(server: JobServer, name: str, *, now: bool) -> None:
    """Ask a run to end after its step, by the same command on the cluster; or end its process."""
    job = server.find(name)
    if job.over:
        raise RunError(
            said("run {run} is not running; job {id} is {status}", run=job.run, id=job.id, status=job.status)
        )
    if now:
        server.end(job.id)
    else:
        server.ask([*PYTHON, "rlctl", "runs", "stop", job.folder])
    diagnostics.note(
        said(
            "{run} ends {when}; resume it with: rlctl runs resume {run} --address {url}",
            run=quoting.word(job.run),
            when="now" if now else "after its current step",
            url=server.url,
        )
    )


def checkpoint(server: JobServer, name: str) -> None:
    """Ask a run for a checkpoint after its step, by the same command on the cluster."""
    job = server.find(name)
    if job.over:
        raise RunError(
            said("run {run} is not running; job {id} is {status}", run=job.run, id=job.id, status=job.status)
        )
    server.ask([*PYTHON, "rlctl", "runs", "checkpoint", job.folder])
    diagnostics.note(said("{run} writes a checkpoint after its current step", run=job.run))


def resume(
    server: JobServer, name: str, *, flags: Sequence[str], passed: Sequence[str], detach: bool, json: bool
) -> None:
    """Go on with a run on the cluster, in a new job; a path is the run's folder there."""
    known = [job for job in server.jobs() if name.rstrip("/") in (job.run, job.folder, job.id)]
    if not known and not name.startswith("/"):
        server.find(name)
    running = [job for job in known if not job.over]
    if running:
        raise RunError(
            said("run {run} is running: job {id}", run=running[0].run, id=running[0].id),
            hint=said("rlctl runs follow {name} --address {url}", name=quoting.word(name), url=server.url),
        )
    folder = known[0].folder if known else name.rstrip("/")
    command = [*PYTHON, "rlctl", "runs", "resume", folder, "--address", "auto", *flags]
    identity = server.submit(command, run=Path(folder).name, folder=folder, variables=passed_on(passed))
    diagnostics.note(said("submitted: job {identity} on {url}", identity=identity, url=server.url))
    watch(server, identity, detach=detach, json=json)


def as_data(job: Job) -> dict[str, Any]:
    """A job as plain data."""
    from dataclasses import asdict

    return asdict(job) | {"started": job.started.isoformat() if job.started else None}
