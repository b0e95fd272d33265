"""``rlctl presets``: configs that come with rlctl."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlctl.cli import arguments, completion, diagnostics, output
from rlctl.cli.commands import command, group
from rlctl.common import quoting
from rlctl.common.messages.reasons import said, spoken, translated

if TYPE_CHECKING:
    from rlctl.config.presets import Preset

app = group(
    "List, show and write the configs that come with rlctl.\n\nEach preset sets only the keys that differ from the defaults."
)
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of a preset.", autocompletion=completion.presets, show_default=False)
]


@command(app, "list")
def list_presets(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORD", help="Show presets that contain every WORD, such as dapo 32b.", show_default=False
        ),
    ] = None,
    *,
    json: arguments.Json = False,
) -> None:
    """List published runs with their results, and starting points by hardware.

    Published runs are settings of papers and official examples, each from a named commit.

    [bold]Examples[/bold]

    [cyan]rlctl presets list[/cyan]

    [cyan]rlctl presets list dapo 32b[/cyan]
    """
    from rlctl.config import presets

    runs = presets.matching(presets.published(), words or ())
    starts = presets.matching(presets.names(), words or ())
    if json:
        output.data([*map(_run, runs), *map(_start, starts)])
        return
    if not runs and not starts:
        diagnostics.note(said("no preset contains {words}", words=" ".join(words or ())))
    if runs:
        rows = [(run.name, run.model, run.algorithm, run.hardware, run.result, run.cited) for run in runs]
        _show("Published runs", ("name", "model", "algorithm", "hardware", "result", "source"), rows)
    if runs and starts:
        output.text("\n")
    if starts:
        lines = [(start.name, translated(start.title), translated(start.needs)) for start in starts]
        _show("Starting points", ("name", "what it is for", "needs"), lines)


def _show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        *map(spoken, columns),
        title=spoken(title),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    for row in rows:
        table.add_row(*map(escape, row))
    output.show(table)


def _run(preset: Preset) -> dict[str, Any]:
    return {
        "name": preset.name,
        "published": True,
        "title": preset.title,
        "needs": preset.needs,
        "model": preset.model,
        "data": preset.data,
        "algorithm": preset.algorithm,
        "hardware": preset.hardware,
        "result": preset.result,
        "stated": preset.stated,
        "source": preset.link,
        "arxiv": preset.paper,
        "notes": list(preset.notes),
    }


def _start(preset: Preset) -> dict[str, Any]:
    return {"name": preset.name, "published": False, "title": preset.title, "needs": preset.needs}


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
