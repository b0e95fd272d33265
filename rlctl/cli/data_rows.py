"""``rlctl data convert`` and ``rlctl data sample``: files of rows, without any config."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlctl.cli import arguments, diagnostics, output
from rlctl.common.errors import ExitCode, RunError, UsageError
from rlctl.common.messages.reasons import said

if TYPE_CHECKING:
    from rlctl.porting.reading import DataFile
    from rlctl.porting.rows import Names
    from rlctl.porting.writing import Moved


class Target(StrEnum):
    """Whose columns are written."""

    VERL = "verl"
    TRINITY = "trinity"
    ROLL = "roll"
    RLCTL = "rlctl"


class RowFormat(StrEnum):
    """What rows are written as."""

    PARQUET = "parquet"
    JSONL = "jsonl"


Sources = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILES", help="Parquet, JSON Lines, JSON or CSV files, or folders of them.", show_default=False
    ),
]


def convert(
    sources: Sources,
    *,
    to: Annotated[
        Target, typer.Option("--to", metavar="FRAMEWORK", help="Whose columns to write: verl, trinity, roll or rlctl.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder to write to, one file a split.")],
    prompt_key: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column with the prompt: text or messages. Found by default.")
    ] = None,
    answer_key: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column with the answer, such as reward_model.ground_truth.")
    ] = None,
    source_key: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column with the data source of each row.")
    ] = None,
    data_source: Annotated[
        str, typer.Option(metavar="NAME", help="Data source of rows that name none (default: the file's name).")
    ] = "",
    system_prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="System message to put first in each row.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(metavar="NAME", help="Split of all rows (default: what each file's name says).")
    ] = None,
    form: Annotated[RowFormat, typer.Option("--format", help="File format of the rows.")] = RowFormat.PARQUET,
    force: arguments.Force = False,
    json: arguments.Json = False,
) -> None:
    """Write rows in another framework's columns.

    Reads a few rows at a time, so files may be larger than memory. Every row is written, or listed in [bold]skipped.jsonl[/bold]
    with the reason. The column [bold]source_row[/bold] keeps each row of the source as JSON text, so that no value is lost. Exits
    3 if rows were skipped.

    [bold]Examples[/bold]

    [cyan]rlctl data convert train.parquet test.parquet --to trinity -o data/trinity[/cyan]

    [cyan]rlctl data convert questions.jsonl --to verl -o data/verl --prompt-key question --data-source gsm8k[/cyan]
    """
    from rlctl.porting.folder import whole_folder
    from rlctl.porting.reading import data_files
    from rlctl.porting.writing import write_rows

    files = [each for source in sources for each in data_files(source, split)]
    given = [(each, names(each, prompt_key, answer_key, source_key, system_prompt)) for each in files]
    with whole_folder(out, force=force) as folder, progress() as seen:
        moved = write_rows(given, to.value, folder, form=form.value, name=data_source, seen=seen)
    if json:
        output.data(moved.as_data())
    else:
        for line in lines_of(moved, out, form.value):
            diagnostics.note(line)
    arguments.finish(ExitCode.FINDINGS if moved.skipped else ExitCode.OK)


def names(
    file: DataFile, prompt: str | None, answer: str | None, source: str | None, system_prompt: str | None = None
) -> Names:
    """The columns of a file, which its first row shows."""
    from dataclasses import replace

    from rlctl.planning.row_sample import value_at
    from rlctl.porting.reading import rows_of
    from rlctl.porting.rows import guessed

    first = next((placed.row for placed in rows_of(file.path) if placed.row is not None), None)
    if first is None:
        raise RunError(said("{file} has no rows", file=file.path), hint="check the file")
    columns = ", ".join(first)
    for option, key in (("--prompt-key", prompt), ("--answer-key", answer), ("--source-key", source)):
        if key is not None and value_at(first, key) is None and key.partition(".")[0] not in first:
            raise UsageError(
                said(
                    "{file} has no column {key!r}; its columns are {columns}", file=file.path, key=key, columns=columns
                ),
                hint=said("set {option} to one of them", option=option),
            )
    found = guessed(list(first), prompt=prompt, answer=answer, source=source)
    if found is None:
        raise UsageError(
            said(
                "no column of {file} has the name of a prompt; its columns are {columns}",
                file=file.path,
                columns=columns,
            ),
            hint="name it with --prompt-key",
        )
    return replace(found, system_prompt=system_prompt)


def lines_of(moved: Moved, folder: Path, form: str) -> Iterator[str]:
    """What came of the rows, as lines."""
    for each in moved.files:
        yield said(
            "{file}: {rows} rows, {written} written to {target}, {skipped} skipped",
            file=each.file,
            rows=each.rows,
            written=each.written,
            target=folder / f"{each.split}.{form}",
            skipped=each.skipped,
        )
    for reason, count in moved.reasons.most_common():
        yield said("{count} rows skipped: {reason}", count=count, reason=reason)
    if moved.skipped:
        from rlctl.porting.writing import SKIPPED

        yield said("{file} lists the skipped rows", file=folder / SKIPPED)
    if moved.without_answer:
        yield said("{count} rows have no answer; their answer is empty", count=moved.without_answer)
    if moved.named_after_file:
        yield said("{count} rows name no data source; it is the name of their file", count=moved.named_after_file)
    if moved.binary:
        yield said("columns of bytes were not written: {names}", names=", ".join(sorted(moved.binary)))
    if moved.as_text:
        yield said(
            "source_row has values as text that JSON lacks, such as dates: {names}",
            names=", ".join(sorted(moved.as_text)),
        )


@contextmanager
def progress() -> Iterator[Callable[[int], None]]:
    """Counts rows on a terminal; elsewhere it shows nothing."""
    if not diagnostics.is_terminal():
        yield lambda rows: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f}"), TimeElapsedColumn())
    with Progress(*columns, console=diagnostics.console(), transient=True) as shown:
        task = shown.add_task("", total=None)
        yield lambda rows: shown.advance(task, rows)


def sample(
    sources: Sources,
    *,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="Rows to take.")] = 100,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed takes the same rows.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Parquet or JSON Lines file; stdout by default."),
    ] = None,
    force: arguments.Force = False,
) -> None:
    """Take random rows of data files, unchanged.

    Reads every row once and keeps their order. Without [bold]-o[/bold], prints JSON Lines.

    [bold]Examples[/bold]

    [cyan]rlctl data sample train.parquet -n 8[/cyan]

    [cyan]rlctl data sample data/ -n 1000 --seed 7 -o small.parquet[/cyan]
    """
    from rlctl.porting.reading import data_files
    from rlctl.porting.sampling import sampled, write_file

    files = [each for source in sources for each in data_files(source)]
    if out is not None:
        writable(out, force=force)
    with progress() as seen:
        taken, of = sampled(files, rows, seed, seen)
    if out is None:
        for row in taken:
            output.line(row)
    else:
        write_file(taken, out, files if all(each.path.suffix == ".parquet" for each in files) else ())
        diagnostics.note(said("{count} of {total} rows written to {file}", count=len(taken), total=of, file=out))


def writable(out: Path, *, force: bool) -> None:
    """Refuse a file of rows that exists or has another suffix.

    Raises:
        UsageError: it is one.
    """
    if out.suffix not in (".parquet", ".jsonl"):
        raise UsageError(said("{file} is neither .parquet nor .jsonl", file=out), hint="choose one of the two suffixes")
    if out.exists() and not force:
        raise UsageError(said("{file} exists", file=out), hint="choose another name, or pass --force")
