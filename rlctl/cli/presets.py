"""``rlctl presets``: configs that come with rlctl."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlctl.cli import arguments, completion, diagnostics, output
from rlctl.cli.commands import command, group
from rlctl.common import quoting
from rlctl.common.messages.reasons import said, spoken, translated

app = group(
    "List, show and write the configs that come with rlctl.\n\nEach preset sets only the keys that differ from the defaults."
)
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of a preset.", autocompletion=completion.presets, show_default=False)
]


@command(app, "list")
def list_presets(*, json: arguments.Json = False) -> None:
    """List the presets with their purpose and hardware.

    [bold]Examples[/bold]

    [cyan]rlctl presets list[/cyan]
    """
    from rlctl.config import presets

    found = presets.names()
    if json:
        output.data([{"name": preset.name, "title": preset.title, "needs": preset.needs} for preset in found])
        return
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        *map(spoken, ("name", "what it is for", "needs")), box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False
    )
    for preset in found:
        table.add_row(*map(escape, (preset.name, translated(preset.title), translated(preset.needs))))
    output.show(table)


@command(app)
def show(name: Name) -> None:
    """Print a preset.

    [bold]Examples[/bold]

    [cyan]rlctl presets show grpo-1node[/cyan]
    """
    from rlctl.config import presets

    output.text(presets.text(name))


@command(app)
def write(
    name: Name,
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Output file (default: NAME.yaml).")
    ] = None,
    force: arguments.Force = False,
) -> None:
    """Copy a preset to a file that you can edit and run.

    [bold]Examples[/bold]

    [cyan]rlctl presets write grpo-1node -o run.yaml[/cyan]
    """
    from rlctl.config import presets

    path = out or Path(f"{name}.yaml")
    output.file(path, presets.text(name), force=force)
    diagnostics.note(said("wrote {path}; next: rlctl check {file}", path=path, file=quoting.word(str(path))))
