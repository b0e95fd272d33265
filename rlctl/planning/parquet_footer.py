"""What the footer of a Parquet file says, without pyarrow: its rows and its columns.

The footer is a ``FileMetaData`` in Thrift's compact protocol: field 2 holds the schema, flattened depth first,
field 3 the number of rows (https://github.com/apache/parquet-format, ``parquet.thrift``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STOP, TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
SCHEMA, ROWS, GROUPS = 2, 3, 4
"""Fields of ``FileMetaData``."""
COLUMNS, METADATA, PATH, STATISTICS, NULLS, HIGHEST, LOWEST = 1, 3, 3, 12, 3, 5, 6
"""Fields of ``RowGroup``, ``ColumnChunk``, ``ColumnMetaData`` and ``Statistics``."""
TYPE, NAME, CHILDREN, CONVERTED, LOGICAL = 1, 4, 5, 6, 10
"""Fields of ``SchemaElement``: the physical type, the name, the number of fields inside, and what a group stands for if it is no
struct."""
UTF8, MAPS, LISTS = 0, (1, 2), 3
"""Values of ``ConvertedType``."""
STRING_TYPE, MAP_TYPE, LIST_TYPE, NULL_TYPE = 1, 2, 3, 11
"""Fields of ``LogicalType``."""
MOST_BYTES = 2**28
"""Size of the largest footer that is read."""
DEEPEST = 64
"""Nesting that is followed; Parquet files of training data have less than ten."""


@dataclass(frozen=True, slots=True)
class SchemaNode:
    """A column of a Parquet file, or what is inside one."""

    name: str
    physical: int | None
    """The number of its type in ``parquet.thrift``; None for a group."""
    is_text: bool
    is_list: bool
    is_map: bool
    is_null: bool
    """Whether all of its values are null, so that they have no type."""
    children: tuple[SchemaNode, ...]


def parquet_rows(path: Path) -> int:
    """Rows of a Parquet file.

    Raises:
        ValueError: it is not a Parquet file, or its footer is damaged.
    """
    rows = _footer(path, ROWS).get(ROWS)
    if not isinstance(rows, int):
        raise ValueError(f"the footer of {path} lacks the number of rows")
    return rows


def parquet_fields(path: Path) -> tuple[tuple[str, ...], ...]:
    """The columns of a Parquet file, and the fields of structs, each with the names of what it is in first.

    Raises:
        ValueError: it is not a Parquet file, or its footer is damaged.
    """
    elements = iter(_footer(path, SCHEMA).get(SCHEMA) or ())
    root = next(elements, None)
    if not isinstance(root, Mapping):
        raise ValueError(f"the footer of {path} has no schema")
    try:
        return tuple(_inside(elements, int(root.get(CHILDREN, 0)), (), shown=True))
    except (StopIteration, RuntimeError, AttributeError, TypeError) as error:
        raise ValueError(f"the schema of {path} is damaged") from error


def parquet_schema(path: Path) -> tuple[SchemaNode, ...]:
    """The columns of a Parquet file with their types.

    Raises:
        ValueError: it is not a Parquet file, or its footer is damaged.
    """
    elements = iter(_footer(path, SCHEMA).get(SCHEMA) or ())
    try:
        return _node(next(elements), elements, 0).children
    except (StopIteration, RuntimeError, AttributeError, TypeError) as error:
        raise ValueError(f"the schema of {path} is damaged") from error


def _node(element: Mapping[int, Any], elements: Iterator[Any], depth: int) -> SchemaNode:
    if depth > DEEPEST:
        raise ValueError("a schema is nested too deep")
    converted, logical = element.get(CONVERTED), element.get(LOGICAL) or {}
    return SchemaNode(
        element.get(NAME, b"").decode("utf-8", "replace"),
        element.get(TYPE),
        is_text=converted == UTF8 or STRING_TYPE in logical,
        is_list=converted == LISTS or LIST_TYPE in logical,
        is_map=converted in MAPS or MAP_TYPE in logical,
        is_null=NULL_TYPE in logical,
        children=tuple([_node(next(elements), elements, depth + 1) for _ in range(int(element.get(CHILDREN, 0)))]),
    )


def parquet_texts(path: Path, column: Sequence[str]) -> list[str]:
    """Some values of a text column: the lowest and the highest of each row group, which the footer holds.

    Args:
        path: of the file.
        column: its name; of a nested one the names around it first, ``*`` for any that a list or map puts between.

    Raises:
        ValueError: it is not a Parquet file, or its footer is damaged.
    """
    ends = (statistics.get(end) for statistics in _statistics(path, column) for end in (LOWEST, HIGHEST))
    return list(dict.fromkeys(end.decode("utf-8", "replace") for end in ends if isinstance(end, bytes)))


def parquet_nulls(path: Path, column: Sequence[str]) -> int:
    """Rows of a column without a value, as far as the footer counts them.

    Raises:
        ValueError: it is not a Parquet file, or its footer is damaged.
    """
    counts = (statistics.get(NULLS) for statistics in _statistics(path, column))
    return sum(count for count in counts if isinstance(count, int))


def _statistics(path: Path, column: Sequence[str]) -> Iterator[Mapping[int, Any]]:
    """The statistics of a column in each row group."""
    for group in _footer(path, GROUPS).get(GROUPS) or ():
        for chunk in group.get(COLUMNS) or ():
            metadata = chunk.get(METADATA) or {}
            if _is_column([name.decode("utf-8", "replace") for name in metadata.get(PATH) or ()], column):
                yield metadata.get(STATISTICS) or {}


def _is_column(path: Sequence[str], column: Sequence[str]) -> bool:
    if "*" not in column:
        return list(path) == list(column)
    return len(path) > 1 and path[0] == column[0] and path[-1] == column[-1]


def _inside(elements: Iterator[Any], count: int, above: tuple[str, ...], *, shown: bool) -> Iterator[tuple[str, ...]]:
    """The next elements, those of lists and maps read and left away."""
    if len(above) > DEEPEST:
        raise ValueError("a schema is nested too deep")
    for _ in range(count):
        element = next(elements)
        name = (*above, element.get(NAME, b"").decode("utf-8", "replace"))
        if shown:
            yield name
        is_struct = CONVERTED not in element and LOGICAL not in element
        yield from _inside(elements, int(element.get(CHILDREN, 0)), name, shown=shown and is_struct)


def _footer(path: Path, wanted: int) -> Mapping[int, Any]:
    """The fields of a file's ``FileMetaData``, up to the one that is wanted."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        if end < 12:
            raise ValueError(f"{path} is too short for a Parquet file")
        file.seek(-8, 2)
        size, magic = int.from_bytes(file.read(4), "little"), file.read(4)
        if magic != b"PAR1":
            raise ValueError(f"{path} does not end as a Parquet file does")
        if not 0 < size <= min(end - 12, MOST_BYTES):
            raise ValueError(f"the footer of {path} is damaged")
        file.seek(-8 - size, 2)
        try:
            return _Compact(file.read(size)).struct(until=wanted)
        except (IndexError, RecursionError) as error:
            raise ValueError(f"the footer of {path} is damaged") from error


class _Compact:
    """A reader of Thrift's compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self, until: int | None = None) -> dict[int, Any]:
        """A struct by the numbers of its fields; what follows a field is not read if that is the last one wanted."""
        fields: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != STOP:
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            kind = head & 15
            fields[number] = kind == TRUE if kind in (TRUE, FALSE) else self._value(kind)
            if number == until:
                break
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE, BYTE):  # booleans in a list take a byte each
            return self._byte()
        if kind == DOUBLE:
            return self._bytes(8)
        if kind == BINARY:
            return self._bytes(self._varint())
        if kind in (LIST, SET):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._varint()
            return [self._value(head & 15) for _ in range(count)]
        if kind == MAP:
            count = self._varint()
            kinds = self._byte() if count else 0
            return [(self._value(kinds >> 4), self._value(kinds & 15)) for _ in range(count)]
        return self.struct() if kind == STRUCT else self._zigzag()

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        if len(found) < count:
            raise IndexError("the data ends within a value")
        self._at += count
        return found

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
