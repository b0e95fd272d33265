"""The first page of a config: its lines, the flow of its batch, how much is set and what fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual import on
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from rlctl.common.language import later
from rlctl.common.report import Level
from rlctl.common.report_lines import Cause
from rlctl.config import Config
from rlctl.documents import KeyPath
from rlctl.editing.fields import FieldView
from rlctl.tui.language import padded, plural, say, shortened
from rlctl.tui.summary import items
from rlctl.tui.widgets.batch_flow import Box, in_boxes, in_lines

SHOWN_CAUSES = 3
"""Most findings on the page; all of them are in the list of findings."""
AFTER = 3
"""Items before the flow of the batch: the model, the data and the objective."""
FEWEST_CELLS = 30
"""Room for the flow beside its name."""
SPARE_LINES = 12
"""Lines that must be left over for the flow to be drawn as boxes."""


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """What a line shows, and where it leads: to a field, or to one of the panes beside the form."""

    text: Content
    path: KeyPath = ()
    tab: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """What the page is made from: the config, its fields, the flow of the batch by stage, and what the checks say."""

    config: Config
    views: Sequence[FieldView]
    flow: Sequence[tuple[str, list[Box]]]
    causes: Sequence[Cause] | None
    """The gravest first; None where nothing was checked yet."""


class Summary(OptionList):
    """The lines of the first page; Enter on one leads to where it is edited."""

    DEFAULT_CSS = """
    Summary, Summary:focus { height: 1fr; border: none; padding: 0; }
    """

    class Picked(Message):
        """A person wants to edit what a line says, or to read the pane that it is about."""

        def __init__(self, line: SummaryLine) -> None:
            self.line = line
            super().__init__()

    class Looked(Message):
        """The cursor is on a line about a field."""

        def __init__(self, path: KeyPath) -> None:
            self.path = path
            super().__init__()

    def __init__(self) -> None:
        super().__init__(id="summary")
        self._state: State | None = None
        self._listed: list[SummaryLine] = []

    def show(self, state: State) -> None:
        """Show a config."""
        self._state = state
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        state, size = self._state, self.content_size
        if state is None or not size.width:
            return
        lines = [*_fields(state, size), *_set(state.views)]
        spare = size.height - sum(str(line.text).count("\n") + 1 for line in lines)
        lines = [*_found(state.causes, size.width, max(1, min(SHOWN_CAUSES, spare))), *lines]
        if lines == self._listed:
            return
        at, self._listed = self.highlighted, lines
        self.clear_options()
        self.add_options([Option(line.text) for line in lines])
        self.highlighted = min(at or 0, len(lines) - 1)

    @on(OptionList.OptionSelected)
    def _pick(self, message: OptionList.OptionSelected) -> None:
        message.stop()
        self.post_message(self.Picked(self._listed[message.option_index]))

    @on(OptionList.OptionHighlighted)
    def _look(self, message: OptionList.OptionHighlighted) -> None:
        message.stop()
        if path := self._listed[message.option_index].path:
            self.post_message(self.Looked(path))


def _fields(state: State, size: Size) -> list[SummaryLine]:
    """The items of the config, and after its objective the flow of the batch."""
    changed = [view.path for view in state.views if view.changed]
    found = list(items(state.config))
    room = max(cell_len(name) for name in (say("batch"), *(item.name for item in found))) + 2
    lines = []
    for item in found:
        is_set = any(path[: len(own)] == own for own in item.paths for path in changed)
        value = Content.styled(item.text, "$primary" if is_set else "$text-muted")
        lines.append(
            SummaryLine(_named(item.name, value.truncate(size.width - room, ellipsis=True), room), item.paths[0])
        )
    for name, boxes in reversed(state.flow):
        told = say("batch") if len(state.flow) == 1 else f"{say('batch')} {name}"
        is_tall = len(state.flow) == 1 and size.height - len(found) > SPARE_LINES
        lines.insert(
            AFTER, SummaryLine(_flow(told, boxes, room, size.width, is_tall=is_tall), ("batch", "prompts_per_step"))
        )
    return lines


def _flow(name: str, boxes: Sequence[Box], room: int, width: int, *, is_tall: bool) -> Content:
    """The flow of a stage beside its name; below it, where there is little room."""
    if width - room < FEWEST_CELLS:
        return Content("\n").join([_named(name, Content(""), room), _named("", in_lines(boxes, width - 2), 2)])
    return _named(name, (in_boxes if is_tall else in_lines)(boxes, width - room), room)


def _named(name: str, value: Content, room: int) -> Content:
    """A value of one or several lines, with its name before the first."""
    first, *others = value.split("\n", allow_blank=True)
    head = padded(shortened(name, room - 1) if name else "", room)
    lines = [Content.assemble((head, "$text-muted"), first), *(Content.assemble(" " * room, line) for line in others)]
    return Content("\n").join(lines)


def _set(views: Sequence[FieldView]) -> list[SummaryLine]:
    """How many fields are not what they are by default; all of them are in the difference."""
    changed = sum(view.changed for view in views)
    one, many = later("1 of {total} fields is set"), later("{count} of {total} fields are set")
    told = say(one if changed == 1 else many).format(count=changed, total=len(views))
    return [SummaryLine(Content.styled(f"• {told}", "$text-muted"), tab="diff")]


def _found(causes: Sequence[Cause] | None, width: int, most: int) -> list[SummaryLine]:
    """The gravest findings in so many lines, the last of which says how many there are more."""
    if causes is None:
        return []
    grave = [cause for cause in causes if cause.level is not Level.NOTE]
    if not grave:
        return [SummaryLine(Content.styled(say("✓ no problems"), "$success"), tab="findings")]
    lines = []
    for cause in grave[: most if len(grave) <= most else max(1, most - 1)]:
        mark, style = ("✗", "$error bold") if cause.level is Level.ERROR else ("!", "$warning bold")
        key = cause.first.key
        told = cause.message if not key or key in cause.message else f"{key}: {cause.message}"
        text = Content.assemble(
            (f"{mark} ", style), Content(told.partition("\n")[0]).truncate(width - 2, ellipsis=True)
        )
        lines.append(SummaryLine(text, tab="findings"))
    if (more := len(grave) - len(lines)) > 0 and most > 1:
        told = plural(more, later("  and 1 more"), later("  and {count} more"))
        lines.append(SummaryLine(Content.styled(told, "$text-muted"), tab="findings"))
    return lines
