"""``rlctl lsp``: what rlctl knows of a config, in an editor, over the Language Server Protocol."""

from __future__ import annotations

from typing import Annotated

import typer

from rlctl.cli import arguments
from rlctl.common import packages


def lsp(
    *,
    runner: Annotated[
        arguments.Runner | None,
        typer.Option(help="Framework that runs the configs (default: that of each file)."),
    ] = None,
    stdio: Annotated[bool, typer.Option("--stdio", help="Speak on stdin and stdout, the default.", hidden=True)] = True,
) -> None:
    """Serve rlctl's answers to an editor, over the Language Server Protocol (stdin and stdout).

    The editor starts this command. It shows findings while you type, with quick fixes that are verified, explains keys, completes
    keys and values of the file's release, and shows what a batch comes to. It works for YAML configs and launch scripts of all
    formats, and starts nothing.

    [bold]Examples[/bold]

    [cyan]rlctl lsp[/cyan]

    [cyan]rlctl lsp --runner verl[/cyan]
    """
    packages.require({"lsp": "rlctl lsp"})
    from rlctl.cli.lsp.server import server

    server(runner.value if runner is not None else "").start_io()
