"""Files of rows in another framework's columns: every row is written, or listed with the reason."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.porting.columns import LAYOUTS, Layout, raw_text
from rlctl.porting.reading import BATCH, DataFile, parquet_modules, rows_of
from rlctl.porting.rows import Names, Row, row_of

SKIPPED = "skipped.jsonl"
"""The file that lists the rows that were not written."""


@dataclass
class FileCount:
    """What came of the rows of one file."""

    file: str
    split: str
    rows: int = 0
    written: int = 0
    skipped: int = 0


@dataclass
class Moved:
    """What came of all rows."""

    files: list[FileCount] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    """By reason, the rows that were skipped."""
    splits: Counter[str] = field(default_factory=Counter)
    """By split, the rows that were written."""
    without_answer: int = 0
    with_images: int = 0
    named_after_file: int = 0
    """Rows without a data source, which got the name of their file."""
    binary: set[str] = field(default_factory=set)
    """Columns of bytes that are not written."""
    as_text: set[str] = field(default_factory=set)
    """Columns with values that JSON lacks, which the source's row keeps as text."""

    @property
    def rows(self) -> int:
        """Rows that were read."""
        return sum(each.rows for each in self.files)

    @property
    def written(self) -> int:
        """Rows that were written."""
        return sum(each.written for each in self.files)

    @property
    def skipped(self) -> int:
        """Rows that were not written."""
        return sum(each.skipped for each in self.files)

    def as_data(self) -> dict[str, Any]:
        """The counts as plain data."""
        return {
            "rows": self.rows, "written": self.written, "skipped": self.skipped,
            "files": [vars(each) for each in self.files], "reasons": dict(self.reasons), "splits": dict(self.splits),
            "without_answer": self.without_answer, "named_after_file": self.named_after_file,
            "binary": sorted(self.binary), "as_text": sorted(self.as_text),
        }  # fmt: skip


def write_rows(
    files: Iterable[tuple[DataFile, Names]],
    target: str,
    folder: Path,
    *,
    form: str = "parquet",
    name: str = "",
    seen: Callable[[int], None] = lambda rows: None,
    taken: Callable[[str, int, Row], None] = lambda split, place, row: None,
) -> Moved:
    """Write the rows of files in a framework's columns, one file a split.

    Args:
        files: files of rows with their columns.
        target: a framework of ``LAYOUTS``.
        folder: an empty folder.
        form: ``parquet`` or ``jsonl``.
        name: the data source of rows that name none; by default the name of their file.
        seen: called with the number of rows that were read since the last call.
        taken: called for each row that is written, with its split and its place in the file.

    Raises:
        RunError: a file cannot be read, or no row can be moved.
        MissingDependency: pyarrow is needed and not installed.
    """
    layout, moved = LAYOUTS[target], Moved()
    writers: dict[str, _Writer] = {}
    listed = folder / SKIPPED
    with listed.open("w", encoding="utf-8") as skipped:
        try:
            for file, names in files:
                count = FileCount(str(file.path), file.split)
                moved.files.append(count)
                for placed in rows_of(file.path):
                    count.rows += 1
                    if not count.rows % BATCH:
                        seen(BATCH)
                    row = row_of(placed.row, names) if placed.row is not None else placed.reason
                    if isinstance(row, Row) and row.images is not None and not layout.images:
                        row = "the row has images, and its target has no column for them here"
                    if not isinstance(row, Row):
                        count.skipped += 1
                        moved.reasons[row] += 1
                        line = {"file": count.file, "row": placed.number, "reason": str(row)}
                        print(json.dumps(line, ensure_ascii=False), file=skipped)
                        continue
                    if file.split not in writers:
                        writers[file.split] = _Writer(folder / f"{file.split}.{form}", layout, form)
                    made = _columns(row, names, layout, moved.splits[file.split], file, name, moved)
                    writers[file.split].add(made)
                    taken(file.split, moved.splits[file.split], row)
                    moved.with_images += row.images is not None
                    moved.splits[file.split] += 1
                    count.written += 1
                seen(count.rows % BATCH)
        finally:
            for writer in writers.values():
                writer.close()
    if not moved.skipped:
        listed.unlink()
    if not moved.written:
        reason = moved.reasons.most_common(1)
        raise RunError(
            said("no row can be moved: {reason}", reason=reason[0][0]) if reason else "the files have no rows",
            hint="name the columns with --prompt-key and --answer-key",
        )
    return moved


def _columns(
    row: Row, names: Names, layout: Layout, number: int, file: DataFile, name: str, moved: Moved
) -> dict[str, Any]:
    """A row as the columns of a layout; what was filled in is counted."""
    if row.answer is None:
        moved.without_answer += 1
    if not row.source and not row.tag:
        moved.named_after_file += not name
        row = Row(row.messages, row.answer, name or file.path.name.partition(".")[0], "", row.images, row.raw)
    with_images = layout.images and row.images is not None
    without = (names.images,) if with_images and names.images else ()
    raw, binary, changed = raw_text(row.raw, without)
    moved.binary |= binary
    moved.as_text |= changed
    made = layout.write(row, number, file.split, raw)
    return {**made, "images": row.images} if with_images else made


class _Writer:
    """One file of rows; a batch of them is in memory."""

    def __init__(self, path: Path, layout: Layout, form: str) -> None:
        self._path, self._layout, self._form = path, layout, form
        self._rows: list[dict[str, Any]] = []
        self._file: Any = None
        self._schema: Any = None

    def add(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) >= 4 * BATCH:
            self._flush()

    def close(self) -> None:
        self._flush()
        if self._file is not None:
            self._file.close()

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._form == "jsonl":
            if self._file is None:
                self._file = self._path.open("w", encoding="utf-8")
            for row in self._rows:
                print(json.dumps(row, ensure_ascii=False), file=self._file)
        else:
            pa, parquet = parquet_modules()
            if self._file is None:
                self._schema = _schema(self._layout, self._rows, pa)
                self._file = parquet.ParquetWriter(self._path, self._schema)
            try:
                self._file.write_table(pa.Table.from_pylist(self._rows, self._schema))
            except (pa.ArrowException, TypeError) as error:
                raise RunError(
                    said(
                        "{file} cannot hold a row: {reason}", file=self._path.name, reason=str(error).partition("\n")[0]
                    ),
                    hint="rows of a split need the same columns, images included",
                ) from error
        self._rows = []


def _schema(layout: Layout, rows: list[dict[str, Any]], pa: Any) -> Any:
    """The columns' types, which hold for all rows; only images have the type of the first rows."""
    fields = [pa.field(name, _type(kind, pa)) for name, kind in layout.columns.items()]
    if any("images" in row for row in rows):
        fields.append(pa.field("images", pa.array([row.get("images") for row in rows]).type))
    return pa.schema(fields)


def _type(kind: Any, pa: Any) -> Any:
    if isinstance(kind, Mapping):
        return pa.struct([pa.field(name, _type(inner, pa)) for name, inner in kind.items()])
    if isinstance(kind, list):
        return pa.list_(_type(kind[0], pa))
    return getattr(pa, kind)()
