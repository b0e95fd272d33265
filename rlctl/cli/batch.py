"""``rlctl batch``: the batch arithmetic of a config as one table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlctl.cli import arguments, diagnostics, output
from rlctl.common.messages import text
from rlctl.common.messages.reasons import translated

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rlctl.planning.batch_table import Row


def batch(
    inputs: arguments.Inputs,
    *,
    dialect: arguments.Dialect = None,
    assignments: arguments.Assignments = [],  # noqa: B006 - typer reads it, nothing changes it
    variables: arguments.Variables = [],  # noqa: B006
    json: arguments.Json = False,
) -> None:
    """Show the batch arithmetic: from the prompts per step to the micro-batches.

    Each row has a number, its formula, and the file's own key that it comes from. If a number doesn't divide evenly, rlctl shows
    the two nearest numbers that do, and the frameworks that refuse it.

    [bold]Examples[/bold]

    [cyan]rlctl batch run.yaml[/cyan]

    [cyan]rlctl batch run_qwen.sh trainer.nnodes=4 --json[/cyan]
    """
    from rlctl.planning.batch_table import rows_by_stage

    loaded, report = arguments.must_read(inputs, dialect=dialect, assignments=assignments, variables=variables)
    diagnostics.findings(report.findings)
    stages = rows_by_stage(loaded, report)
    if json:
        data = [{"stage": name, "rows": [row.as_data() for row in found]} for name, found in stages]
        output.data({"dialect": report.dialect, "stages": data})
        return
    shown: list[RenderableType] = []
    for name, found in stages:
        shown += [
            *(["", f"[bold]{text('batch-stage', name=name)}[/]"] if len(stages) > 1 else []),
            table(found),
            *notes(found),
        ]
    output.show(*shown)


def table(found: Sequence[Row]) -> RenderableType:
    """The numbers, their formulas, and where they come from."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from rlctl.config.chinese import in_words

    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("what", "value", "unit", "formula", "key", "where"):
        made.add_column(text(f"batch-{title}"), justify="right" if title == "value" else "left")
    for row in found:
        place = f"{row.file}:{row.line}" if row.line else row.file or ""
        where = place or (text("batch-default") if row.key else "")
        cells = (
            in_words(translated(row.name)),
            translated(row.value) if isinstance(row.value, str) else str(row.value),
            in_words(row.unit),
            translated(row.formula),
            row.key,
            where,
        )
        made.add_row(*(Text(cell) for cell in cells))
    return made


def notes(found: Sequence[Row]) -> list[RenderableType]:
    """What does not divide, a line each."""
    from rich.text import Text

    from rlctl.config.chinese import in_words

    return [Text(f"{in_words(translated(row.name))}: {translated(row.note)}") for row in found if row.note]
