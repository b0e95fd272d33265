"""``rlctl mcp``: rlctl's answers as tools of a coding agent, over the Model Context Protocol on standard streams."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlctl.common import packages


def mcp(
    *,
    allow: Annotated[
        list[Path] | None,
        typer.Option(
            "--allow",
            metavar="FOLDER",
            help="Folder to read configs, data rows and runs from, besides the current one. Repeatable.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Serve rlctl's answers to a coding agent, over the Model Context Protocol (stdin and stdout).

    The agent's program starts this command. Its tools check, convert, plan, solve, diff and explain configs, look at training
    data and read runs. They start nothing and execute nothing that a config names. They show files of the folder in which the
    server was started, and of those of --allow. The only file that a tool writes is the output of a conversion, inside the
    first.

    [bold]Examples[/bold]

    [cyan]rlctl mcp[/cyan]

    [cyan]claude mcp add rlctl -- rlctl mcp[/cyan]
    """
    packages.require({"mcp": "rlctl mcp"})
    from rlctl.cli.mcp.server import server

    server(Path.cwd(), allow or ()).run()
