"""Some rows of data files, unchanged."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rlctl.porting.reading import DataFile, rows_of


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


def write_sample(rows: list[dict[str, Any]], path: Path, like: DataFile) -> None:
    """Write rows to a file: Parquet with the columns of a file that they are from, else JSON Lines.

    Raises:
        MissingDependency: pyarrow is needed and not installed.
    """
    import json

    from rlctl.common.whole_files import replacing
    from rlctl.porting.reading import parquet_modules

    with replacing(path) as partial:
        if path.suffix != ".parquet":
            with partial.open("w", encoding="utf-8") as stream:
                for row in rows:
                    print(json.dumps(row, ensure_ascii=False, default=str), file=stream)
            return
        pa, parquet = parquet_modules()
        schema = parquet.read_schema(like.path) if like.path.suffix == ".parquet" else None
        parquet.write_table(pa.Table.from_pylist(rows, schema), partial)
