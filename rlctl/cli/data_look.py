"""``rlctl data inspect`` of files and ``rlctl data mix``: what rows contain, and rows of several files in proportion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlctl.cli import arguments, data_rows, diagnostics, output
from rlctl.common.errors import UsageError
from rlctl.common.messages.reasons import said, spoken, translated

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rlctl.config import Config
    from rlctl.porting.inspecting import Inspected, Lengths
    from rlctl.porting.reading import DataFile
    from rlctl.porting.rows import Names

BAR, BARS = 24, " ▏▎▍▌▋▊▉█"
"""Cells of the longest bar of a histogram, and eighths of a cell."""
KINDS = {
    "prompt_characters": "prompts, in characters",
    "prompt_tokens": "prompts, in tokens",
    "answer_characters": "answers, in characters",
}
SHOWN = 20
"""Data sources and reasons that are shown."""


def data_inputs(inputs: Sequence[str]) -> list[DataFile] | None:
    """The files of rows among arguments, if they are nothing else; None if they are a config."""
    from rlctl.porting.reading import ENDINGS, data_files

    if any("=" in each and not Path(each).exists() for each in inputs):
        return None
    paths = [Path(each) for each in inputs]
    if not all(path.is_dir() or path.name.lower().endswith(ENDINGS) for path in paths):
        return None
    if any(
        path.is_dir() and not any(each.name.lower().endswith(ENDINGS) for each in path.rglob("*")) for path in paths
    ):
        return None
    if any(path.suffix.lower() == ".json" and path.is_file() and not _is_rows(path) for path in paths):
        return None
    return [file for path in paths for file in data_files(path)]


def _is_rows(path: Path) -> bool:
    """Whether a JSON file has a list, or several objects, and not one config."""
    with path.open("rb") as stream:
        first = next((line.strip() for line in stream if line.strip()), b"")
        return first.startswith(b"[") or (first.endswith(b"}") and any(line.strip() for line in stream))


def files_of_config(config: Config) -> list[tuple[DataFile, Names]]:
    """The files of a config's data with the columns that it names."""
    from rlctl.porting.reading import data_files
    from rlctl.porting.rows import names_of

    parts = (("train", config.data.train), ("test", config.data.eval))
    return [
        (file, names_of(source))
        for split, sources in parts
        for source in sources
        for file in data_files(Path(source.path.removeprefix("file://")).expanduser(), source.split or split)
    ]


def show(files: Sequence[tuple[DataFile, Names]], *, tokenizer: str | None, limit: int | None, json: bool) -> None:
    """Print what files of rows contain."""
    from rlctl.porting.inspecting import inspected

    tokens = None if tokenizer is None else _counter(tokenizer)
    with data_rows.progress() as seen:
        found = inspected(files, tokens=tokens, limit=limit, seen=seen)
    if json:
        output.data(found.as_data())
        return
    output.show(*_tables(found))
    unit = "tokens" if tokens else "characters"
    for line in _lines(found, limit, unit):
        output.text(translated(line) + "\n")


def _counter(name: str) -> Callable[[Sequence[Mapping[str, str]]], int]:
    """Counts the tokens of a prompt after the chat template, as training sees it."""
    from dataclasses import replace

    from rlctl.config.sections.model import Model
    from rlctl.runtime.data.tokenizer import load_tokenizer

    loaded = load_tokenizer(replace(Model(), path=name))

    def count(messages: Sequence[Mapping[str, str]]) -> int:
        if loaded.chat_template is None:
            return len(loaded("\n".join(each["content"] for each in messages))["input_ids"])
        text = loaded.apply_chat_template([dict(each) for each in messages], tokenize=False, add_generation_prompt=True)
        return len(loaded(text, add_special_tokens=False)["input_ids"])

    return count


def _tables(found: Inspected) -> Iterator[RenderableType]:
    from rich.text import Text

    files = _table("file", "split", "rows")
    for file, split, rows in found.files:
        files.add_row(Text(file, overflow="fold"), split, f"{rows:,}")
    yield files
    columns = _table("column", "type", "empty")
    for column in found.columns.values():
        types = ", ".join(
            f"{kind} ({count:,})" if len(column.types) > 1 else kind for kind, count in column.types.most_common()
        )
        columns.add_row(Text(column.name, overflow="fold"), types or "–", f"{column.empty:,}" if column.empty else "")
    yield columns
    for name, lengths in found.lengths.items():
        yield Text(f"{spoken(KINDS[name])}: {_percentiles(lengths)}")
        yield _histogram(lengths)


def _table(*titles: str) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in titles:
        table.add_column(spoken(title), justify="right" if title in ("rows", "empty") else "left")
    return table


def _percentiles(lengths: Lengths) -> str:
    half, most, longest = (f"{lengths.at(share):,}" for share in (50, 99, 100))
    return spoken(
        "half are up to {half}, 99 % up to {most}, the longest is {longest}", half=half, most=most, longest=longest
    )


def _histogram(lengths: Lengths) -> RenderableType:
    from rich.table import Table

    bins = lengths.bins()
    highest = max((count for _, _, count in bins), default=1)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(justify="right")
    table.add_column()
    table.add_column(justify="right")
    for low, high, count in bins:
        eighths = round(count / highest * BAR * 8)
        bar = "█" * (eighths // 8) + BARS[eighths % 8].strip() or ("▏" if count else "")
        table.add_row(f"{low:,}–{high:,}" if high > low else f"{low:,}", bar, f"{count:,}")
    return table


def _lines(found: Inspected, limit: int | None, unit: str) -> Iterator[str]:
    """What is wrong or worth knowing, one line each."""
    names = found.names[0]
    answer = names.answer or next((name for name in names.answers if name in found.columns), None)
    yield said("prompts are read from the column {name}", name=names.prompt)
    yield said("answers are read from the column {name}", name=answer) if answer else "no column of answers was found"
    sources = ", ".join(f"{name} {count:,}" for name, count in found.sources.most_common(SHOWN) if name)
    if sources:
        yield said("data sources ({count}): {names}", count=len(found.sources), names=sources)
    if found.more_columns:
        yield "further columns are not shown"
    for reason, count in found.reasons.most_common(SHOWN):
        yield said("{count} rows cannot be used: {reason}", count=count, reason=reason)
    if found.without_answer:
        yield said("{count} rows have no answer", count=found.without_answer)
    if found.with_images:
        yield said("{count} rows have images", count=found.with_images)
    if found.repeated:
        yield said(
            "prompts that their split has already: {count}, with another answer: {other}",
            count=found.repeated,
            other=found.contradicting,
        )
    if found.shared:
        yield said("{count} rows have a prompt that is in another split too", count=found.shared)
    if found.too_long:
        yield said("{count} prompts are longer than {limit} {unit}", count=found.too_long, limit=limit, unit=unit)


def mix(
    sources: data_rows.Sources,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Parquet or JSON Lines file.")],
    weights: Annotated[
        str, typer.Option(metavar="W,W,...", help="Share of each file or folder (default: equal shares).")
    ] = "",
    rows: Annotated[
        int | None,
        typer.Option("--rows", "-n", min=1, help="Rows in all (default: the most that keeps the shares)."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed gives the same rows in the same order.")] = 0,
    force: arguments.Force = False,
) -> None:
    """Mix rows of several data files in proportion, unchanged.

    Takes a random sample of each file or folder and merges them at random. No row is taken twice. Reads a few rows at a time, so
    files may be larger than memory.

    [bold]Examples[/bold]

    [cyan]rlctl data mix math.parquet code.parquet --weights 0.7,0.3 -o mixed.parquet[/cyan]

    [cyan]rlctl data mix math/ code/ --weights 2,1 -n 30000 --seed 7 -o mixed.jsonl[/cyan]
    """
    from rlctl.porting.reading import data_files
    from rlctl.porting.sampling import mixed, write_file

    if len(sources) < 2:
        raise UsageError("a mix needs at least two files or folders", hint="use rlctl data sample for one")
    shares = _shares(weights, len(sources))
    data_rows.writable(out, force=force)
    files = [data_files(source) for source in sources]
    with data_rows.progress() as seen:
        made, taken, have = mixed(files, shares, rows, seed, seen)
        write_file(made, out, [file for each in files for file in each])
    for source, count, total in zip(sources, taken, have, strict=True):
        diagnostics.note(said("{file}: {count} of {total} rows", file=source, count=count, total=total))
    diagnostics.note(said("{count} rows written to {file}", count=sum(taken), file=out))


def _shares(weights: str, count: int) -> list[float]:
    if not weights:
        return [1.0] * count
    try:
        found = [float(each) for each in weights.split(",")]
    except ValueError:
        found = []
    if len(found) != count or not all(0 < each < float("inf") for each in found):
        raise UsageError(
            said("--weights is {text}; expected {count} positive numbers", text=weights, count=count),
            hint="write one number for each file or folder, such as --weights 0.7,0.3",
        )
    return found
