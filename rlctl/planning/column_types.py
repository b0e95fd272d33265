"""Types of the columns of a data file: from the footer of a Parquet file, or the first rows of JSON. No row group is read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from rlctl.planning.parquet_footer import SchemaNode, parquet_schema

TEXT, NUMBER, BOOLEAN, BYTES, LIST, STRUCT, MAP, NULL = (
    *("text", "number", "boolean", "bytes", "list", "struct", "map", "null"),
)
ROWS = 100
"""Rows of a JSON file whose types are joined."""
JSON_LINES = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column, or of what is inside one."""

    kind: str
    fields: Mapping[str, ColumnType] = field(default_factory=dict)
    """Of a struct, by name."""
    item: ColumnType | None = None
    """Of a list."""

    def __str__(self) -> str:
        if self.kind == LIST:
            return f"list<{self.item or NULL}>"
        if self.kind == STRUCT:
            return f"struct<{', '.join(f'{name}: {self.fields[name]}' for name in sorted(self.fields))}>"
        return self.kind

    def joins(self, other: ColumnType) -> bool:
        """Whether the datasets package can join columns of the two types: null joins with any."""
        if NULL in (self.kind, other.kind):
            return True
        if self.kind != other.kind or (self.kind == STRUCT and set(self.fields) != set(other.fields)):
            return False
        if self.kind == STRUCT:
            return all(inside.joins(other.fields[name]) for name, inside in self.fields.items())
        return self.item is None or other.item is None or self.item.joins(other.item)


def column_types(path: Path) -> dict[str, ColumnType]:
    """The columns of a Parquet or JSON file with their types; empty for other files, and for damaged ones."""
    try:
        if path.suffix == ".parquet":
            return {node.name: _of_node(node) for node in parquet_schema(path)}
        if path.suffix in JSON_LINES:
            return _of_rows(_first_lines(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return {}


def _of_node(node: SchemaNode) -> ColumnType:
    if node.is_list and node.children:
        inside = node.children[0]
        wrapped = len(inside.children) == 1 and inside.name in ("list", "bag", "array")
        return ColumnType(LIST, item=_of_node(inside.children[0] if wrapped else inside))
    if node.is_map:
        return ColumnType(MAP)
    if node.children:
        return ColumnType(STRUCT, {child.name: _of_node(child) for child in node.children})
    if node.is_null:
        return ColumnType(NULL)
    return ColumnType(TEXT if node.is_text else PHYSICAL.get(-1 if node.physical is None else node.physical, BYTES))


PHYSICAL = {0: BOOLEAN, 1: NUMBER, 2: NUMBER, 3: NUMBER, 4: NUMBER, 5: NUMBER}
"""Kinds by Parquet's physical types; the others are bytes."""


def _first_lines(path: Path) -> Iterator[Any]:
    with path.open("rb") as stream:
        for line in islice((line for line in stream if line.strip()), ROWS):
            yield json.loads(line)


def _of_rows(rows: Iterable[Any]) -> dict[str, ColumnType]:
    joined: dict[str, ColumnType] = {}
    for row in rows:
        if isinstance(row, Mapping):
            for name, value in row.items():
                joined[str(name)] = _joined(joined.get(str(name)), _of_value(value))
    return joined


def _of_value(value: Any) -> ColumnType:
    if isinstance(value, Mapping):
        return ColumnType(STRUCT, {str(name): _of_value(inside) for name, inside in value.items()})
    if isinstance(value, list):
        item: ColumnType | None = None
        for each in value:
            item = _joined(item, _of_value(each))
        return ColumnType(LIST, item=item)
    if value is None:
        return ColumnType(NULL)
    if isinstance(value, bool):
        return ColumnType(BOOLEAN)
    return ColumnType(TEXT if isinstance(value, str) else NUMBER)


def _joined(known: ColumnType | None, new: ColumnType) -> ColumnType:
    """The type of a column with values of two types: null takes on the other, structs have the fields of both."""
    if known is None or known.kind == NULL:
        return new
    if new.kind != known.kind:
        return known
    fields = {
        name: _joined(known.fields.get(name), new.fields[name]) if name in new.fields else known.fields[name]
        for name in dict.fromkeys((*known.fields, *new.fields))
    }
    item = known.item if new.item is None else _joined(known.item, new.item)
    return ColumnType(known.kind, fields, item)
