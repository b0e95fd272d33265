"""``rlctl cluster``: a run as a batch script of Slurm, or as a manifest of KubeRay."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlctl.cli import arguments, diagnostics, output
from rlctl.cli.commands import command, group
from rlctl.cli.launch import checked
from rlctl.common import quoting
from rlctl.common.errors import UsageError
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.common.terminal import UNSEEN_IN_LINE

if TYPE_CHECKING:
    from rlctl.config import Loaded
    from rlctl.planning.plan import Plan

app = group(
    "Write a Slurm script or a KubeRay manifest that runs a config on the machines of its plan.\n\n"
    "rlctl submits nothing and contacts no scheduler."
)
Out = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Output file (default: stdout).")]


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
        typer.Option(
            min=1, metavar="MINUTES", help="Time limit of one job (default: run.time_limit, then the partition's)."
        ),
    ] = None,
    grace: Annotated[
        int,
        typer.Option(
            min=60, metavar="SECONDS", help="Time before the limit that is reserved for ending the step and saving."
        ),
    ] = 600,
    memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory per node, such as [b]512G[/b]; [b]0[/b] means all.")
    ] = "0",
    options: Annotated[
        list[str], typer.Option("--sbatch", metavar="OPTION", help="Additional sbatch option. Repeatable.")
    ] = [],  # noqa: B006
    setup: Annotated[
        list[str], typer.Option(metavar="LINE", help="Shell line to run first, such as module load. Repeatable.")
    ] = [],  # noqa: B006
    auth: Annotated[
        bool, typer.Option("--auth/--no-auth", help="Protect the job's Ray cluster with its own token.")
    ] = True,
    out: Out = None,
    force: arguments.Force = False,
) -> None:
    """Write a Slurm batch script that starts Ray on the job's nodes and runs the config.

    Nodes, GPUs and cores come from the plan. Before the time limit, Slurm signals the script: the run saves a checkpoint and
    stops after its step, and the job is requeued and resumes. Submit the script with [bold]sbatch[/bold].

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
        raise UsageError(
            said("--time {time:g} minutes is not longer than the {grace} seconds of --grace", time=time, grace=grace)
        )
    if not re.fullmatch(r"\d+[KMGT]?", memory):
        raise UsageError(
            said("--memory {memory!r} is not an amount of memory", memory=memory),
            hint="expected a size such as 512G, or 0 for all memory of a node",
        )
    if unseen := next((option for option in options if UNSEEN_IN_LINE.search(option)), None):
        raise UsageError(
            said("--sbatch {option!r} contains a line end or a control character", option=unseen),
            hint="pass one option a time: --sbatch=--partition=gpu",
        )
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
        typer.Option("--volume", metavar="CLAIM:PATH", help="Volume that all pods mount. Repeatable."),
    ] = [],  # noqa: B006
    secrets: Annotated[
        list[str],
        typer.Option("--secret", metavar="NAME", help="Secret whose entries become environment variables. Repeatable."),
    ] = [],  # noqa: B006
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory per worker pod, such as [b]512Gi[/b].")
    ] = None,
    selector: Annotated[
        list[str],
        typer.Option("--node-selector", metavar="KEY=VALUE", help="Node label that worker pods require. Repeatable."),
    ] = [],  # noqa: B006
    tolerations: Annotated[
        list[str],
        typer.Option("--toleration", metavar="KEY[=VALUE][:EFFECT]", help="Taint that all pods tolerate. Repeatable."),
    ] = [],  # noqa: B006
    pull_secrets: Annotated[
        list[str], typer.Option("--pull-secret", metavar="NAME", help="Image pull secret. Repeatable.")
    ] = [],  # noqa: B006
    service_account: Annotated[
        str | None, typer.Option(metavar="NAME", help="Service account of all pods.", show_default=False)
    ] = None,
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="Local queue of Kueue.", show_default=False)] = None,
    retries: Annotated[int, typer.Option(min=0, help="How many times an unfinished run is resumed on new pods.")] = 0,
    namespace: Annotated[str | None, typer.Option(metavar="NAME", help="Kubernetes namespace.")] = None,
    auth: Annotated[
        bool, typer.Option("--auth/--no-auth", help="Protect the Ray cluster with a token (needs KubeRay 1.5).")
    ] = False,
    out: Out = None,
    force: arguments.Force = False,
) -> None:
    """Write a KubeRay manifest: a ConfigMap with the config and its code, and a RayJob that runs it.

    One worker pod is one node of the plan. The controller runs on the head pod. Apply the manifest with
    [bold]kubectl apply -f[/bold].

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
        diagnostics.note(
            "the worker pods have no memory limit; --memory SIZE sets one, which also limits Ray's object store"
        )
    if package.files:
        files = ", ".join(package.sources[name] for name in sorted(package.files))
        diagnostics.note(said("the manifest includes the files {files}", files=files))
    for place in package.places:
        diagnostics.note(said("the pods need {place}", place=place))
    if package.variables:
        diagnostics.note(
            said(
                "the pods need the variables {names}: --secret NAME sets those of a Secret",
                names=", ".join(package.variables),
            )
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
    checked(loaded, report, cluster=None, codes_left_out=ABOUT_THIS_MACHINE, allow_unknown=allow_unknown, files=False)
    with in_own_keys(loaded, report.dialect):
        return loaded, make_plan(loaded.config)


def _claim(text: str) -> tuple[str, str]:
    claim, colon, path = text.partition(":")
    if not claim or not colon or not path.startswith("/"):
        raise UsageError(said("--volume {text!r} is not CLAIM:/PATH", text=text))
    return claim, path


def _ray_version() -> str | None:
    from importlib import metadata

    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:
        return None


def _write(text: str, out: Path | None, *, force: bool, executable: bool, then: str) -> None:
    if out is None:
        output.text(text)
        return
    output.file(out, text, force=force, executable=executable)
    diagnostics.note(said("written: {out}; {then} {out}", out=quoting.word(out), then=then))
