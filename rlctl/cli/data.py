"""``rlctl data``: what the operators of a config make of its training data; ``data_rows`` has the commands without a config."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from json import dumps as encode
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlctl.cli import arguments, data_look, data_rows, diagnostics, output
from rlctl.cli.commands import command, group
from rlctl.common.errors import UsageError
from rlctl.common.messages import text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rlctl.config import Config
    from rlctl.runtime.data.operators import Prepared, Tokens

app = group(
    "Look at training data before a run, and write it in another framework's columns.\n\n"
    "All commands work without a config, on Parquet, JSON Lines, JSON and CSV files."
)


@command(app)
def inspect(
    inputs: arguments.Inputs,
    *,
    dialect: arguments.Dialect = None,
    assignments: arguments.Assignments = [],  # noqa: B006 - typer reads it, nothing changes it
    variables: arguments.Variables = [],  # noqa: B006
    samples: Annotated[
        int, typer.Option(help="Rows to show of each result, and of those that were dropped.", min=0)
    ] = 2,
    lengths: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write histograms of the lengths of all rows, in tokens and characters, for [b]rlctl plan --lengths[/b].",
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Also count prompts in tokens, after the chat template of this model."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Count prompts that are longer, in tokens with --tokenizer, else in characters."),
    ] = None,
    prompt_key: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Of data files, the column with the prompt. Found by default.")
    ] = None,
    answer_key: Annotated[str | None, typer.Option(metavar="COLUMN", help="The same for the answer.")] = None,
    source_key: Annotated[str | None, typer.Option(metavar="COLUMN", help="The same for the data source.")] = None,
    json: arguments.Json = False,
) -> None:
    """Show what data files contain, or what the operators of a config keep.

    Of data files, or of a config without operators: columns and their types, lengths, duplicates, missing answers, data sources.

    Of a config with operators: runs them, and shows the rows in and out of each, some rows that it dropped, and the first rows of
    the result. The result is cached, so that a run with the same data and operators starts without computing it again.

    [bold]Examples[/bold]

    [cyan]rlctl data inspect train.parquet test.parquet[/cyan]

    [cyan]rlctl data inspect data/ --tokenizer Qwen/Qwen3-8B --limit 1024[/cyan]

    [cyan]rlctl data inspect run.yaml[/cyan]

    [cyan]rlctl data inspect run.yaml --samples 5 --json[/cyan]

    [cyan]rlctl data inspect run.yaml --lengths lengths.json[/cyan]
    """
    from rlctl.runtime.data.operators import prepare, shown_rows, tokens_by
    from rlctl.runtime.data.tokenizer import load_tokenizer
    from rlctl.runtime.specs.data import operator_spec

    files = data_look.data_inputs(inputs)
    if files is not None:
        named = [(each, data_rows.names(each, prompt_key, answer_key, source_key)) for each in files]
        data_look.show(named, tokenizer=tokenizer, limit=limit, json=json)
        return
    loaded, report = arguments.must_read(inputs, dialect=dialect, assignments=assignments, variables=variables)
    diagnostics.findings(report.findings)
    config = loaded.config
    if not config.data.operators and config.data.priority is None and lengths is None:
        model = config.model.tokenizer or config.model.path
        of_model = tokenizer or (model if model and Path(model).is_dir() else None)
        most = limit or (config.data.max_prompt_tokens if of_model else None)
        data_look.show(data_look.files_of_config(config), tokenizer=of_model, limit=most, json=json)
        return
    if lengths is not None and Path(lengths).exists():
        raise UsageError(text("data-lengths-exist", file=lengths), hint=text("data-lengths-hint"))

    @cache
    def tokens() -> Tokens:
        """Loaded by the first operator that counts tokens."""
        return tokens_by(load_tokenizer(config.model, trust_remote_code=config.data.trust_remote_code))

    data, done = prepare(operator_spec(config), lambda value: tokens()(value))
    counted = None if lengths is None else _write_lengths(replace(config, data=data), Path(lengths))
    columns = [source.prompt_key for source in config.data.train[: len(done)]]
    first = {each.key: list(shown_rows(each.file, column, samples)) for each, column in zip(done, columns, strict=True)}
    if json:
        output.data([{**vars(each), "counts": [vars(one) for one in each.counts], "file": str(each.file),
                      "first": first[each.key]} for each in done])  # fmt: skip
        return
    for each in done:
        output.show(*_shown(each, first[each.key], samples))
    if counted is not None:
        output.show(_lengths(counted))


def _write_lengths(config: Config, file: Path) -> dict[str, dict[int, int]]:
    """Histograms of the training data, which a file gets."""
    from rlctl.common.whole_files import write_whole
    from rlctl.runtime.data.histograms import histograms
    from rlctl.runtime.specs.data import data_spec

    counted = histograms(data_spec(config))
    write_whole(file, encode(counted))
    return counted


def _lengths(counted: dict[str, dict[int, int]]) -> RenderableType:
    """Percentiles of lengths as a table."""
    from rich import box
    from rich.table import Table

    from rlctl.common.numbers import percentile

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("data-counted", "data-row-count", "data-half", "data-most", "data-longest"):
        table.add_column(text(title), justify="left" if title == "data-counted" else "right")
    for name, histogram in counted.items():
        cells = (sum(histogram.values()), *(percentile(histogram, each) for each in (50, 99, 100)))
        table.add_row(text(f"data-{name.replace('_', '-')}"), *map(str, cells))
    return table


def _shown(each: Prepared, first: list[str], samples: int) -> list[RenderableType]:
    """The counts as a table, and rows as text."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("operator", "in", "out"):
        table.add_column(text(f"data-{title}"), justify="left" if title == "operator" else "right")
    for place, one in enumerate(each.counts, start=1):
        table.add_row(Text(f"{place} {one.name}"), str(one.before), str(one.after))
    told: list[RenderableType] = [Text(f"{each.key}: {each.file}", no_wrap=True, overflow="ignore"), table]
    for place, one in enumerate(each.counts, start=1):
        told += [
            Text(f"{text('data-dropped', operator=f'{place} {one.name}')}: {row}") for row in one.dropped[:samples]
        ]
    return [*told, *(Text(f"{text('data-kept')}: {row}") for row in first)]


command(app)(data_rows.convert)
command(app)(data_rows.sample)
command(app)(data_look.mix)
