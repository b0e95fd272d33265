"""``rlctl cluster``: a run as a batch script of Slurm, or as a manifest of KubeRay."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlctl.cli import arguments, diagnostics, output
from rlctl.cli.commands import command, group
from rlctl.cli.launch import checked
from rlctl.common.errors import UsageError
from rlctl.common.filenames import expanded

if TYPE_CHECKING:
    from rlctl.config import Loaded
    from rlctl.planning.plan import Plan

app = group(
    "Write what a scheduler needs to run a config: machines from its plan, and one command that launches it there.\n\n"
    "Nothing is submitted, and no scheduler is asked."
)
Out = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write this file; else stdout.")]


@command(app)
def slurm(
    inputs: arguments.Inputs,
    *,
    dialect: arguments.Dialect = None,
    assignments: arguments.Assignments = [],  # noqa: B006 - typer reads it, nothing changes it
    trace: arguments.Trace = False,
    variables: arguments.Variables = [],  # noqa: B006
    allow_unknown: arguments.AllowUnknown = [],  # noqa: B006
    time: Annotated[
        float | None,
        typer.Option(min=1, metavar="MINUTES", help="Time of one job; else run.time_limit, else the partition's."),
    ] = None,
    grace: Annotated[
        int, typer.Option(min=60, metavar="SECONDS", help="Time to end a step and save before the job's time is over.")
    ] = 600,
    memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory of each node, as [b]512G[/b]; [b]0[/b] is all that it has.")
    ] = "0",
    options: Annotated[
        list[str], typer.Option("--sbatch", metavar="OPTION", help="Further option of sbatch; may be repeated.")
    ] = [],  # noqa: B006
    setup: Annotated[
        list[str], typer.Option(metavar="LINE", help="Line of shell before anything starts; may be repeated.")
    ] = [],  # noqa: B006
    auth: Annotated[
        bool, typer.Option("--auth/--no-auth", help="Whether Ray asks for a token of the job's own.")
    ] = True,
    out: Out = None,
    force: arguments.Force = False,
) -> None:
    """Write a Slurm batch script: Ray on the job's nodes, and the run on them.

    Nodes, GPUs and cores are the plan's. Before its time is over Slurm signals the script: the run saves and ends after its
    step, the job goes back into the queue, and goes on from there. Submit it with [bold]sbatch[/bold].

    [bold]Examples[/bold]

    [cyan]rlctl cluster slurm run.yaml -o run.sbatch[/cyan]

    [cyan]rlctl cluster slurm run.yaml --time 240 --sbatch=--partition=gpu --setup 'module load cuda' -o run.sbatch[/cyan]
    """
    from rlctl.cluster.machines import machines_of
    from rlctl.cluster.slurm import Batch, script

    if "-" in inputs:
        raise UsageError("a script cannot read standard input when it runs", hint="name a file")
    loaded, made = _planned(inputs, dialect, assignments, trace, variables, allow_unknown)
    run = loaded.config.run
    given = (
        ("--from", [dialect] if dialect else []),
        ("--set", assignments),
        ("--env", variables),
        ("--allow-unknown", allow_unknown),
    )
    words = [
        "rlctl",
        "launch",
        *inputs,
        *(word for option, values in given for value in values for word in (option, value)),
    ]
    seconds = time * 60 - grace if time is not None else run.time_limit
    if seconds is not None and seconds <= 0:
        raise UsageError(f"--time {time:g} minutes leave nothing beside the {grace} seconds of --grace")
    text = script(
        Batch(
            run=run.name,
            folder=str(expanded(Path(run.folder) / run.name).absolute()),
            machines=machines_of(made),
            launch=[*words, *(["--trace"] if trace else []), "--address", "auto"],
            directory=str(Path.cwd()),
            path=str(Path(sys.executable).parent),
            seconds=seconds,
            grace=grace,
            memory=memory,
            options=options,
            setup=setup,
            authenticate=auth,
        )
    )
    _write(text, out, force=force, executable=True, then="submit it with: sbatch")


@command(app)
def kuberay(
    inputs: arguments.Inputs,
    *,
    image: Annotated[str, typer.Option(metavar="IMAGE", help="Image with Ray and rlctl\\[runtime].")],
    dialect: arguments.Dialect = None,
    assignments: arguments.Assignments = [],  # noqa: B006 - typer reads it, nothing changes it
    trace: arguments.Trace = False,
    variables: arguments.Variables = [],  # noqa: B006
    allow_unknown: arguments.AllowUnknown = [],  # noqa: B006
    volumes: Annotated[
        list[str],
        typer.Option("--volume", metavar="CLAIM:PATH", help="Volume that all pods share; may be repeated."),
    ] = [],  # noqa: B006
    secrets: Annotated[
        list[str],
        typer.Option("--secret", metavar="NAME", help="Secret whose entries become variables; may be repeated."),
    ] = [],  # noqa: B006
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory of a worker pod, as [b]512Gi[/b].")] = None,
    selector: Annotated[
        list[str],
        typer.Option("--node-selector", metavar="KEY=VALUE", help="Label of the workers' nodes. Repeatable."),
    ] = [],  # noqa: B006
    tolerations: Annotated[
        list[str],
        typer.Option("--toleration", metavar="KEY[=VALUE][:EFFECT]", help="Taint that all pods tolerate. Repeatable."),
    ] = [],  # noqa: B006
    pull_secrets: Annotated[
        list[str], typer.Option("--pull-secret", metavar="NAME", help="Secret that pulls the image. Repeatable.")
    ] = [],  # noqa: B006
    service_account: Annotated[
        str | None, typer.Option(metavar="NAME", help="Service account of all pods.", show_default=False)
    ] = None,
    queue: Annotated[
        str | None, typer.Option(metavar="NAME", help="Kueue's local queue for the run.", show_default=False)
    ] = None,
    retries: Annotated[int, typer.Option(min=0, help="How often a run that did not finish goes on, on new pods.")] = 0,
    namespace: Annotated[str | None, typer.Option(metavar="NAME", help="Namespace of Kubernetes.")] = None,
    auth: Annotated[bool, typer.Option("--auth/--no-auth", help="Whether Ray asks for a token (KubeRay 1.5).")] = False,
    out: Out = None,
    force: arguments.Force = False,
) -> None:
    """Write a KubeRay manifest: the config and its code in a ConfigMap, and a RayJob that runs it.

    One worker pod is one node of the plan; the controller runs on the head. Apply it with [bold]kubectl apply -f[/bold].

    [bold]Examples[/bold]

    [cyan]rlctl cluster kuberay run.yaml --image registry/rlctl:0.1 --volume shared:/shared -o run.k8s.yaml[/cyan]
    """
    from rlctl.cluster.kuberay import HOME, Manifest, manifest, toleration
    from rlctl.cluster.machines import machines_of
    from rlctl.cluster.package import pack

    loaded, made = _planned(inputs, dialect, assignments, trace, variables, allow_unknown)
    run = loaded.config.run
    package = pack(loaded, home=HOME)
    text = manifest(
        Manifest(
            run=run.name,
            folder=f"{run.folder}/{run.name}",
            machines=machines_of(made),
            package=package,
            image=image,
            volumes=[_claim(volume) for volume in volumes],
            secrets=secrets,
            memory=memory,
            retries=retries,
            namespace=namespace,
            authenticate=auth,
            ray_version=_ray_version(),
            node_selector=arguments.pairs(selector, "--node-selector"),
            tolerations=[toleration(text) for text in tolerations],
            pull_secrets=pull_secrets,
            service_account=service_account,
            queue=queue,
        )
    )
    if memory is None:
        diagnostics.note("the worker pods have no memory limit; --memory SIZE sets one, and Ray's object store by it")
    for place in package.places:
        diagnostics.note(f"the pods need {place}")
    if package.variables:
        diagnostics.note(
            f"the pods need the variables {', '.join(package.variables)}: --secret NAME sets those of a Secret"
        )
    _write(text, out, force=force, executable=False, then="start it with: kubectl apply -f")


def _planned(
    inputs: list[str],
    dialect: str | None,
    assignments: list[str],
    trace: bool,
    variables: list[str],
    allow_unknown: list[str],
) -> tuple[Loaded, Plan]:
    """The config, checked for what does not depend on this machine, and its plan."""
    from rlctl.checks import ABOUT_THIS_MACHINE
    from rlctl.planning.plan import make_plan
    from rlctl.translation.advice import in_own_keys

    loaded, report = arguments.must_read(
        inputs, dialect=dialect, assignments=assignments, trace=trace, variables=variables
    )
    checked(loaded, report, cluster=None, codes_left_out=ABOUT_THIS_MACHINE, allow_unknown=allow_unknown)
    with in_own_keys(loaded, report.dialect):
        return loaded, make_plan(loaded.config)


def _claim(text: str) -> tuple[str, str]:
    claim, colon, path = text.partition(":")
    if not claim or not colon or not path.startswith("/"):
        raise UsageError(f"--volume {text!r} is not CLAIM:/PATH")
    return claim, path


def _ray_version() -> str | None:
    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:
        return None


def _write(text: str, out: Path | None, *, force: bool, executable: bool, then: str) -> None:
    if out is None:
        output.text(text)
        return
    output.file(out, text, force=force, executable=executable)
    diagnostics.note(f"written: {out}; {then} {out}")
