"""``rlctl diff``: what differs in meaning between two configs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rlctl.cli import arguments, diagnostics, output
from rlctl.common.errors import ExitCode, UsageError
from rlctl.common.messages import text
from rlctl.common.report_lines import release

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rlctl.translation.difference import Difference, Side

File = Annotated[
    str,
    typer.Argument(metavar="FILE", help="A config or launch script of any supported framework.", show_default=False),
]


def diff(
    first: File,
    second: File,
    *,
    dialect: arguments.Dialect = None,
    variables: arguments.Variables = [],  # noqa: B006 - typer reads it, nothing changes it
    json: arguments.Json = False,
) -> None:
    """Show how two configs differ in meaning, across frameworks.

    Compares effective values, defaults included, in the same units: two files that mean the same have no difference, however
    they are written. Each row has both values, and for each the file's own key with file and line. Values that rlctl keeps in
    comments for converting back are not compared, because no framework reads them. Exits 0 if the configs mean the same, 3 if
    they differ. [bold]--env[/bold] applies to launch scripts.

    [bold]Examples[/bold]

    [cyan]rlctl diff verl.yaml trinity.yaml[/cyan]

    [cyan]rlctl diff run_old.sh run_new.sh --json[/cyan]
    """
    from rlctl.translation.difference import compare
    from rlctl.translation.sources import is_script_file

    files = (first, second)
    scripts = [file for file in files if is_script_file(file)]
    if variables and not scripts:
        raise UsageError(text("diff-no-script", first=first, second=second))
    ours, theirs = (
        arguments.must_read([file], dialect=dialect, variables=variables if file in scripts else (), without_kept=True)
        for file in files
    )
    compared, mine, other = compare(ours, theirs), ours[1], theirs[1]
    found = compared.differences
    for file, report in ((first, mine), (second, other)):
        if uncompared := [entry.key for entry in report.accounting if entry.bucket in ("unknown", "unsupported")]:
            diagnostics.note(text("diff-not-compared", file=file, keys=", ".join(uncompared)))
    if json:
        output.data(compared.as_data())
    elif found:
        output.show(*_tables(found, first, second))
    diagnostics.note(text("diff-found", first=release(mine.dialect), second=release(other.dialect), count=len(found)))
    arguments.finish(ExitCode.FINDINGS if found else ExitCode.OK)


def _tables(found: Sequence[Difference], first: str, second: str) -> list[RenderableType]:
    """One table, with a line between sections."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in (text("diff-key"), first, text("diff-from"), second, text("diff-from")):
        made.add_column(title)
    for place, item in enumerate(found):
        last = place + 1 < len(found) and found[place + 1].section != item.section
        cells = (item.key, *_cells(item.first, first), *_cells(item.second, second))
        made.add_row(*(Text(cell) for cell in cells), end_section=last)
    return [made]


def _cells(side: Side, file: str) -> tuple[str, str]:
    """A value and where it is from; of the file in the heading, only the line."""
    if side.file == file:
        place = f"{text('place-line', line=side.line)} " if side.line else ""
    else:
        place = f"{side.file}:{side.line} " if side.line else f"{side.file} " if side.file else ""
    return diagnostics.shown(side.shown), text("diff-default") if side.default else f"{place}{side.key}"
