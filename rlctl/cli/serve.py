"""``rlctl serve``: a policy behind the OpenAI API."""

from __future__ import annotations

import os
from contextlib import chdir, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlctl.cli import arguments, diagnostics, output
from rlctl.cli.runs import RUNS, Folder
from rlctl.common.messages.reasons import said

if TYPE_CHECKING:
    from rlctl.runs.serving import Address

TOKEN_VARIABLE = "RLCTL_SERVE_TOKEN"
LOOPBACK = "127.0.0.1"
PORT = 8000


def serve(
    what: Annotated[
        str,
        typer.Argument(metavar="RUN|CONFIG|CHECKPOINT", help="A run, a config file, a checkpoint or a model folder."),
    ],
    *,
    dialect: arguments.Dialect = None,
    assignments: arguments.Assignments = [],  # noqa: B006 - typer reads it, nothing changes it
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = LOOPBACK,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Port; 0 takes a free one. Default: rollout.openai_server.port, else 8000."
        ),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Serve the checkpoint of this step of a run, and no newer one."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Load newer checkpoints of a run as it writes them.")
    ] = True,
    tool_format: Annotated[
        str,
        typer.Option(
            metavar="FORMAT", help="How the model writes tool calls, such as hermes; auto asks its chat template."
        ),
    ] = "auto",
    collect: Annotated[
        bool,
        typer.Option(
            "--collect", help="Take feedback on answers, and write what has it into the config's buffer for training."
        ),
    ] = False,
    folder: Folder = RUNS,
    json: arguments.Json = False,
) -> None:
    """Serve a policy over the OpenAI API: chat completions and completions, streamed if asked for, until Ctrl-C.

    One rollout engine of the config, on this machine, generates with the config's sampling unless a request sets its own. Clients
    need the token that is printed; [bold]RLCTL_SERVE_TOKEN[/bold] sets it. The server listens on this machine only, unless
    [bold]--host[/bold] says otherwise.

    [bold]Examples[/bold]

    [cyan]rlctl serve gsm8k-grpo[/cyan]

    [cyan]rlctl serve runs/gsm8k-grpo/checkpoints/main/step-000040[/cyan]

    [cyan]rlctl serve run.yaml --port 9000[/cyan]

    [cyan]rlctl serve serve.yaml --collect[/cyan]
    """
    from rlctl.runs import serving

    served = serving.served_by(what, folder, step=step)
    if served is None:
        loaded, _ = arguments.must_read([what], dialect=dialect, assignments=assignments)
        served = serving.of_config(loaded.config)

    def ready(address: Address) -> None:
        url = f"http://{address.host}:{address.port}/v1"
        if json:
            output.data({"base_url": url, "api_key": address.token, "model": served.name})
        else:
            output.text(f"export OPENAI_BASE_URL={url}\nexport OPENAI_API_KEY={address.token}")
        diagnostics.note(said("serving {name}; Ctrl-C ends it", name=served.name))

    if host not in (LOOPBACK, "::1", "localhost"):
        diagnostics.note(said("{host} may be reached by other machines; requests are not encrypted", host=host))
    there = chdir(served.directory) if served.directory and Path(served.directory).is_dir() else nullcontext()
    with there:
        serving.serve(
            served,
            host=host,
            port=port if port is not None else served.config.rollout.openai_server.port or PORT,
            token=os.environ.get(TOKEN_VARIABLE) or None,
            follow=follow,
            tool_format=tool_format,
            collect=collect,
            ready=ready,
            loaded=lambda version: diagnostics.note(said("serving the weights of step {version}", version=version)),
            warn=lambda message: diagnostics.note(said("warning: {message}", message=message)),
        )
