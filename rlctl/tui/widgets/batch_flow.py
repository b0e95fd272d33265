"""The batch of a step as boxes, from prompts to what one device computes at a time; what does not divide is marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content

from rlctl.common.messages.reasons import translated
from rlctl.config.chinese import in_words
from rlctl.planning.batch_table import Row
from rlctl.tui.language import LANGUAGE, padded, say

ARROW = "→"
ROWS = 2
"""Most rows of boxes; a longer flow is one column, because boxes of three rows would not be in line."""


@dataclass(frozen=True, slots=True)
class Box:
    """A number of the flow; ``edge``: what is done to the one before to get it; ``bad``: it does not divide."""

    value: str
    label: str
    edge: str = ""
    bad: bool = False

    @property
    def shown(self) -> str:
        return f"✗ {self.value}" if self.bad else self.value

    @property
    def width(self) -> int:
        return max(cell_len(self.shown), cell_len(self.label)) + 2


def name_of(row: Row) -> str:
    """What a number is, in the app's language."""
    return in_words(translated(row.name))


def unit_of(row: Row) -> str:
    """The unit of a number, in the app's language: of one thing, in English, without the ending of several."""
    if row.value != 1 or LANGUAGE != "en":
        return in_words(row.unit)
    noun, on, where = row.unit.partition(" on ")
    return noun.removesuffix("es" if noun.endswith(("ches", "sses")) else "s") + on + where


def boxes(rows: Sequence[Row]) -> list[Box]:
    """The flow of a stage, out of the rows of its arithmetic."""
    return list(_boxes({row.name: row for row in rows}))


def _boxes(rows: dict[str, Row]) -> Iterator[Box]:
    step, mini = rows["responses of a step"], rows["mini-batch"]
    if group := rows.get("responses of a prompt"):
        prompts = rows["prompts of a step"].value
        yield Box(_number(prompts), say("prompt") if prompts == 1 else say("prompts"))
        responses = say("response") if step.value == 1 else say("responses")
        yield Box(_number(step.value), responses, f"×{_number(group.value)}")
    else:
        yield Box(_number(step.value), say("row") if step.value == 1 else say("rows"))
    count, passes = rows["mini-batches of a pass"], rows["passes over a step"]
    parts = _divided(step.value, mini.value)
    minis = say("mini-batch") if parts == "1" else say("mini-batches")
    yield Box(parts, minis, f"÷{_number(mini.value)}", bool(count.note))
    if passes.value != 1:
        yield Box(_number(rows["optimizer steps of a step"].value), say("optimizer steps"), f"×{passes.value}")
    replicas, share = rows.get("replicas"), rows.get("mini-batch on a replica")
    if replicas is not None and share is None:
        yield Box(say("none"), say("replicas"), "", bad=True)
    if replicas is not None and share is not None:
        edge = f"{_number(mini.value)}÷{replicas.value}"
        yield Box(_number(share.value), say("on a replica"), edge, bool(share.note))
    if micro := rows.get("micro-batch"):
        yield Box(
            f"≤ {_number(micro.value)}",
            unit_of(micro).removesuffix(" on a replica"),
            say("micro"),
            bool(micro.note),
        )


def _number(value: float | str) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _divided(value: float | str, by: float | str) -> str:
    if isinstance(value, str) or isinstance(by, str) or not by:
        return str(value)
    return _number(value // by) if isinstance(value, int) and value % by == 0 else f"{value / by:.4g}"


def notes(rows: Sequence[Row]) -> list[Content]:
    """What does not divide, in words."""
    return [Content.styled(f"✗ {name_of(row)}: {translated(row.note)}", "$error") for row in rows if row.note]


def in_lines(flow: Sequence[Box], width: int) -> Content:
    """The flow without boxes, in as few lines as there is room for."""
    lines, line = [], Content("")
    for number, box in enumerate(flow):
        edge = f" ─{box.edge}{ARROW} " if number else ""
        style = "$error bold" if box.bad else "bold"
        part = Content.assemble((edge, "$primary"), (box.shown, style), (f" {box.label}", "$text-muted"))
        if number and line.cell_length + part.cell_length > width:
            lines.append(line)
            line = Content(" ")
        line = Content.assemble(line, part)
    return Content("\n").join([*lines, line])


def in_boxes(flow: Sequence[Box], width: int) -> Content:
    """The flow as boxes: in one row, in two, or, if these are too few, one below another."""
    rows: list[list[Box]] = [[]]
    for box in flow:
        if rows[-1] and sum(_room(other, not number) for number, other in enumerate([*rows[-1], box])) > width:
            rows.append([])
        rows[-1].append(box)
    if len(rows) > ROWS:
        return Content("\n").join(_column(flow))
    return Content("\n").join(line for number, row in enumerate(rows) for line in _row(row, is_first=not number))


def _column(flow: Sequence[Box]) -> list[Content]:
    """Boxes one below another, each with its arithmetic at its left."""
    edge = max(cell_len(box.edge) for box in flow)
    value, label = (max(map(cell_len, texts)) for texts in zip(*((box.shown, box.label) for box in flow), strict=True))
    wide, gap = "─" * (value + label + 3), " " * (edge + 3)
    lines = []
    for number, box in enumerate(flow):
        joint = f"├{wide}┤" if number else f"╭{wide}╮"
        arrow = f"{padded(box.edge, edge)} ─{ARROW}" if box.edge else gap
        lines += [
            Content.assemble(gap, (joint, "$text-muted")),
            Content.assemble(
                (arrow, "$primary"), ("│ ", "$text-muted"),
                (" " * (value - cell_len(box.shown)) + box.shown, "$error bold" if box.bad else "bold"),
                (f" {padded(box.label, label)} ", "$text-muted"), ("│", "$text-muted"),
            ),
        ]  # fmt: skip
    return [*lines, Content.assemble(gap, (f"╰{wide}╯", "$text-muted"))]


def _room(box: Box, is_first: bool) -> int:
    return box.width + 2 + (0 if is_first else cell_len(box.edge) + 4)


def _row(row: Sequence[Box], *, is_first: bool) -> list[Content]:
    lines = [Content("")] * 4
    for number, box in enumerate(row):
        style = "$error" if box.bad else "$text-muted"
        leads = bool(number) or not is_first
        edge = box.edge if leads else ""
        gap = cell_len(edge) + 2 if leads else 0
        arrow = f"─{'─' * cell_len(edge)}{ARROW}" if leads else ""
        parts = (
            Content.assemble(" " * gap, (f"╭{'─' * box.width}╮", style)),
            Content.assemble(
                (f" {edge} " if leads else "", "$primary"), ("│", style),
                (_centred(box.shown, box.width), "$error bold" if box.bad else "bold"), ("│", style),
            ),
            Content.assemble(
                (arrow, "$primary"), ("│", style),
                (_centred(box.label, box.width), "$text-muted"), ("│", style),
            ),
            Content.assemble(" " * gap, (f"╰{'─' * box.width}╯", style)),
        )  # fmt: skip
        lines = [Content.assemble(line, part) for line, part in zip(lines, parts, strict=True)]
    return lines


def _centred(text: str, width: int) -> str:
    left = (width - cell_len(text)) // 2
    return " " * left + text + " " * (width - cell_len(text) - left)
