"""Some rows of data files, unchanged."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rlctl.common.errors import RunError, UsageError
from rlctl.common.messages.reasons import said
from rlctl.common.whole_files import replacing
from rlctl.porting.reading import BATCH, DataFile, parquet_modules, rows_of


def sampled(
    files: Iterable[DataFile], count: int, seed: int, seen: Callable[[int], None] = lambda rows: None
) -> tuple[list[dict[str, Any]], int]:
    """A uniform sample without replacement, in the order of the files, and the number of rows that it was taken from.

    Reads every row once and holds ``count`` of them (algorithm R, Vitter 1985); lines that are no rows are passed over.

    Args:
        files: the files.
        count: rows to take; all, if there are fewer.
        seed: of the random numbers; the same seed takes the same rows.
        seen: called for every row with 1.
    """
    chance = random.Random(seed)
    kept: list[tuple[int, dict[str, Any]]] = []
    number = 0
    for file in files:
        for placed in rows_of(file.path):
            if placed.row is None:
                continue
            seen(1)
            place = number if number < count else chance.randint(0, number)
            if place < count:
                item = (number, dict(placed.row))
                if place < len(kept):
                    kept[place] = item
                else:
                    kept.append(item)
            number += 1
    return [row for _, row in sorted(kept, key=lambda item: item[0])], number


def mixed(
    sources: Sequence[Sequence[DataFile]],
    weights: Sequence[float],
    count: int | None,
    seed: int,
    seen: Callable[[int], None] = lambda rows: None,
) -> tuple[Iterator[dict[str, Any]], list[int], list[int]]:
    """Rows of several sources in proportion, unchanged: a uniform sample of each, merged at random.

    Reads the sources twice, and holds one row. Within a source, rows keep their order.

    Args:
        sources: the files of each.
        weights: shares of the sources, of any sum.
        count: rows in all; None is the most that keeps the proportion.
        seed: of the random numbers.
        seen: called with 1 for every row that is read.

    Returns:
        The rows; of each source, the rows that are taken and those that it has.

    Raises:
        UsageError: a source has too few rows for its share.
    """
    have = [sum(_read(files, seen)) for files in sources]
    total = sum(weights)
    most = min(int(rows * total / weight) for rows, weight in zip(have, weights, strict=True))
    wanted = shares(most if count is None else count, weights)
    for files, rows, due in zip(sources, have, wanted, strict=True):
        if due > rows:
            raise UsageError(
                said("{file} has {rows} rows, and its share is {due}", file=files[0].path, rows=rows, due=due),
                hint=said("pass --rows {most} or fewer, or other weights", most=most),
            )
    return _merged(sources, have, wanted, seed, seen), wanted, have


def shares(count: int, weights: Sequence[float]) -> list[int]:
    """A number in whole parts by weight; the largest remainders get what is left."""
    exact = [count * weight / sum(weights) for weight in weights]
    parts = [int(each) for each in exact]
    order = sorted(range(len(parts)), key=lambda place: parts[place] - exact[place])
    for place in order[: count - sum(parts)]:
        parts[place] += 1
    return parts


def _read(files: Sequence[DataFile], seen: Callable[[int], None]) -> Iterator[int]:
    for file in files:
        for placed in rows_of(file.path):
            seen(1)
            yield placed.row is not None


def _merged(
    sources: Sequence[Sequence[DataFile]],
    have: Sequence[int],
    wanted: Sequence[int],
    seed: int,
    seen: Callable[[int], None],
) -> Iterator[dict[str, Any]]:
    """Rows of all sources; which one is next depends on how many each has left."""
    chance = random.Random(seed)
    streams = [
        _chosen(files, rows, due, random.Random(f"{seed}/{place}"), seen)
        for place, (files, rows, due) in enumerate(zip(sources, have, wanted, strict=True))
    ]
    left = list(wanted)
    while any(left):
        (place,) = chance.choices(range(len(left)), left)
        left[place] -= 1
        yield next(streams[place])


def _chosen(
    files: Sequence[DataFile], rows: int, due: int, chance: random.Random, seen: Callable[[int], None]
) -> Iterator[dict[str, Any]]:
    """``due`` of ``rows`` rows with equal chance, in their order (selection sampling, Knuth, vol. 2, 3.4.2, S)."""
    for file in files:
        for placed in rows_of(file.path):
            seen(1)
            if placed.row is None:
                continue
            if chance.random() * rows < due:
                due -= 1
                yield dict(placed.row)
            rows -= 1


def write_file(rows: Iterable[dict[str, Any]], path: Path, files: Sequence[DataFile] = ()) -> None:
    """Write rows of files to one file, a batch at a time: Parquet with the columns of all of them, else JSON Lines.

    Args:
        rows: the rows.
        path: the file to write.
        files: where the rows are from; without any, Parquet gets the columns of the rows, which are then all held in memory.

    Raises:
        RunError: the files have a column of different types, which Parquet cannot hold.
        MissingDependency: pyarrow is needed and not installed.
    """
    with replacing(path) as partial:
        if path.suffix != ".parquet":
            with partial.open("w", encoding="utf-8") as stream:
                for row in rows:
                    print(json.dumps(row, ensure_ascii=False, default=str), file=stream)
            return
        pa, parquet = parquet_modules()
        try:
            rows = rows if files else list(rows)
            schemas = [_schema_of(file, pa, parquet) for file in files] or [pa.Table.from_pylist(rows).schema]
            schema = pa.unify_schemas(schemas, promote_options="permissive")
            with parquet.ParquetWriter(partial, schema) as writer:
                left = iter(rows)
                while batch := list(islice(left, 4 * BATCH)):
                    writer.write_table(pa.Table.from_pylist(batch, schema))
        except (pa.ArrowException, TypeError) as error:
            raise RunError(
                said("a column has different types in the files: {reason}", reason=str(error).partition("\n")[0]),
                hint="write .jsonl, or give all files the same columns first, with rlctl data convert",
            ) from error


def _schema_of(file: DataFile, pa: Any, parquet: Any) -> Any:
    """The types of a file's columns; of other files than Parquet, those of all their rows."""
    if file.path.suffix == ".parquet":
        return parquet.read_schema(file.path)
    rows, schemas = (placed.row for placed in rows_of(file.path) if placed.row is not None), [pa.schema([])]
    while batch := [dict(row) for row in islice(rows, 4 * BATCH)]:
        schemas = [pa.unify_schemas([*schemas, pa.Table.from_pylist(batch).schema], promote_options="permissive")]
    return schemas[0]
