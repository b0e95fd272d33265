"""A conversion in three columns: the key of the source, the field, and what the target says, with a mark between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content

from rlctl.common.report import Bucket, Entry, Report
from rlctl.common.secrets import redacted
from rlctl.config.chinese import in_words
from rlctl.editing.values import text_of
from rlctl.tui.language import padded, say, shortened

MARKS = {
    Bucket.UNKNOWN: ("?", "$error bold"),
    Bucket.UNSUPPORTED: ("✗", "$error bold"),
    Bucket.APPROXIMATED: ("≈", "$warning bold"),
    Bucket.DEAD: ("-", "$text-muted"),
    Bucket.DERIVED: ("=", "$primary"),
    Bucket.MAPPED: ("✓", "$success"),
}
"""What becomes of a key: lost, approximated, computed, the same; a dot: kept as a comment."""
OTHER = ("·", "$text-muted")
ORDER = (Bucket.UNKNOWN, Bucket.UNSUPPORTED, Bucket.APPROXIMATED, Bucket.DEAD, Bucket.DERIVED)
"""What needs a look first; the rest follows in the order of the file."""
LEAST = 84
"""Fewest cells in which three columns can be read."""


@dataclass(frozen=True, slots=True)
class PortLine:
    """A key on its way: as the source has it, the fields that it sets, and what the target says."""

    entry: Entry
    source: str
    fields: tuple[str, ...]
    targets: tuple[str, ...]

    @property
    def bucket(self) -> Bucket:
        return self.entry.bucket

    def target(self, cells: int) -> str:
        """The target's keys; if they don't fit, the first one and the number of others."""
        whole = ", ".join(self.targets) or in_words(self.bucket)
        if cell_len(whole) <= cells or len(self.targets) < 2:
            return _cut(whole, cells)
        more = f"  +{len(self.targets) - 1}"
        return _cut(self.targets[0], cells - len(more)) + more


def port_lines(read: Report, written: Report) -> list[PortLine]:
    """A line for each key of the source, those first that are lost or changed.

    Args:
        read: of reading the source, which says the fields that a key sets.
        written: of writing the target.
    """
    fields = {entry.key: tuple(key for key, _ in entry.targets) for entry in read.accounting}
    lines = [_line(entry, fields) for entry in written.accounting]
    return sorted(lines, key=lambda line: ORDER.index(line.bucket) if line.bucket in ORDER else len(ORDER))


def _line(entry: Entry, fields: Mapping[str, tuple[str, ...]]) -> PortLine:
    said = tuple(f"{key} = {redacted(text_of(value))}" for key, value in entry.targets)
    source = f"{entry.key} = {redacted(text_of(entry.value))}"
    return PortLine(entry, source, fields.get(entry.key, ()), said)


def counts(lines: Sequence[PortLine]) -> Content:
    """How many keys end how, with their marks."""
    found: dict[Bucket, int] = {}
    for line in lines:
        found[line.bucket] = found.get(line.bucket, 0) + 1
    parts = []
    for bucket, number in found.items():
        mark, style = MARKS.get(bucket, OTHER)
        parts.append(Content.assemble((mark, style), f" {number} {in_words(bucket)}"))
    return Content("   ").join(parts)


def heads(source: str, target: str, width: int) -> Content:
    """The names of the columns."""
    left, middle, _right = _widths(width)
    text = f"{padded(source, left)}   {padded(say('canonical'), middle)}     {target}"
    return Content.styled(shortened(text, width), "$text-muted")


def drawn(line: PortLine, width: int) -> Content:
    """A line as wide as there is room."""
    left, middle, right = _widths(width)
    mark, style = MARKS.get(line.bucket, OTHER)
    fields = ", ".join(line.fields) or "–"
    lost = line.bucket in (Bucket.UNKNOWN, Bucket.UNSUPPORTED)
    return Content.assemble(
        padded(_cut(line.source, left), left),
        (" → ", "$border-blurred"),
        (padded(_cut(fields, middle), middle), "$text-muted"),
        (" → ", "$border-blurred"),
        (mark, style),
        " ",
        (line.target(right), "$error" if lost else ""),
    )


def _widths(width: int) -> tuple[int, int, int]:
    room = max(30, width - 8)
    middle = min(34, room // 4)
    left = (room - middle) // 2
    return left, middle, room - middle - left


def _cut(text: str, cells: int) -> str:
    """A text that is too long without the beginning of its key: keys differ at their end, and values are after it."""
    text = " ".join(text.split())
    if cell_len(text) <= cells:
        return text
    key, between, value = text.partition(" = ")
    room = cells - cell_len(between) - cell_len(value) - 1
    return f"…{key[-room:]}{between}{value}" if between and room >= 8 else shortened(text, cells)
