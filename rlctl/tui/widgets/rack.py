"""Devices as a rack: a frame for each node, a tile for each device, with the roles on it and a bar for its memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content

from rlctl.tui.language import say, shortened
from rlctl.tui.themes import SERIES

LEAST = 7
"""Fewest cells of a tile."""
MOST = 16
FULL, EMPTY = "█", "░"


@dataclass(frozen=True, slots=True)
class Tile:
    """A device: its name, the letters of its roles, the memory in use or needed, and a word of its state."""

    name: str
    letters: str
    gib: float | None = None
    told: str = ""
    bad: bool = False
    use: float | None = None
    """Share of the time that it computes; above 1 for several cores."""
    room: float | None = None
    """GiB that it has, where devices differ."""
    over: bool = False
    """Whether it is asked for more memory than it can give."""
    at_least: bool = False
    """Whether it needs ``gib`` or more."""


def looks(letters: Sequence[str]) -> dict[str, str]:
    """A color for each letter."""
    return {letter: SERIES[place % len(SERIES)] for place, letter in enumerate(letters)}


def node(title: str, tiles: Sequence[Tile], width: int, look: Mapping[str, str], room: float | None) -> list[Content]:
    """A node: its tiles in one row, or in two or more of the same frame; ``room``: GiB of a device, if known."""
    inside = max(LEAST, width - 4)
    per_row = next((count for count in (8, 4, 2) if count <= len(tiles) and inside // count >= LEAST), 1)
    per_row = len(tiles) if inside // max(1, len(tiles)) >= LEAST and len(tiles) <= 8 else per_row
    size = min(MOST, inside // per_row)
    total = size * per_row + 2
    head = f"─ {title} "
    lines = [Content.styled(f"╭{head}{'─' * max(0, total - cell_len(head))}╮", "$text-muted")]
    total = max(total, cell_len(head))
    for start in range(0, len(tiles), per_row):
        cells = [_tile(tile, size, look, room) for tile in tiles[start : start + per_row]]
        for row in zip(*cells, strict=True):
            text = Content("").join(row)
            rest = " " * (total - 1 - text.cell_length)
            lines.append(Content.assemble(("│ ", "$text-muted"), text, rest, ("│", "$text-muted")))
    return [*lines, Content.styled(f"╰{'─' * total}╯", "$text-muted")]


def _tile(tile: Tile, size: int, look: Mapping[str, str], room: float | None) -> list[Content]:
    wide = size - 1
    name = Content.styled(tile.name, "$error bold" if tile.bad else "$text-muted")
    roles = Content(" ").join(
        [Content.styled(letter, f"{look.get(letter, '')} bold") for letter in tile.letters] or ["–"]
    )
    lines = [name, roles]
    room = tile.room or room
    if tile.use is not None:
        told = f" {tile.use:.0%}"
        lines.append(
            Content.assemble(bar_of(min(1.0, tile.use), max(1, wide - len(told)), "$series-2"), (told, "$text-muted"))
        )
    if tile.gib is not None:
        share = None if not room else tile.gib / room
        told = f"{tile.gib:.0f}G" if tile.gib >= 10 else f"{tile.gib:.1f}G"
        told = f"≥{told}" if tile.at_least else told
        is_over = tile.over or (share or 0.0) > 1
        lines.append(bar_of(share, wide, is_over=is_over) if share is not None else Content(told))
        if share is not None:
            of = f"{told}/{room:.0f}"
            told = of if cell_len(of) <= wide else told
            lines.append(Content.styled(told, "$error bold" if is_over else "$text-muted"))
    if tile.told:
        lines.append(Content.styled(shortened(tile.told, wide), "$error" if tile.bad else "$text-muted"))
    return [_padded(line, size) for line in lines]


def bar_of(share: float, width: int, look: str = "$primary", *, is_over: bool = False) -> Content:
    """A bar of memory or use; one that is too full says so."""
    full = max(0, min(width, round(share * width)))
    if is_over:
        return Content.styled(FULL * (width - 1) + "✗", "$error")
    return Content.assemble((FULL * full, look), (EMPTY * (width - full), "$border-blurred"))


def _padded(line: Content, size: int) -> Content:
    return Content.assemble(line, " " * max(0, size - line.cell_length))


def legend(names: Mapping[str, str], look: Mapping[str, str]) -> Content:
    """What the letters mean; a dash is a device without a role."""
    parts = [Content.assemble((letter, f"{look.get(letter, '')} bold"), f" {name}") for letter, name in names.items()]
    return Content("   ").join(parts) if parts else Content(say("no device has a role"))
