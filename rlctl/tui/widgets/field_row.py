"""One field of a form, a line of a table: mark, name, value, unit, and the key in the format of the file.

Below it, what is wrong with what was typed, if anything. A value that is linked, as to a variable, is shown as it is now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from rich.cells import cell_len
from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click, DescendantBlur, DescendantFocus, Focus, Paste
from textual.geometry import Size, Spacing
from textual.message import Message
from textual.reactive import Reactive
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Button, Input, Select
from textual.widgets._select import SelectCurrent

from rlctl.documents import KeyPath, dotted
from rlctl.editing.fields import FieldView
from rlctl.editing.naming import name_in
from rlctl.editing.values import NULL
from rlctl.tui.language import padded, say, shortened
from rlctl.tui.widgets.line import Line
from rlctl.tui.widgets.path_suggester import PathSuggester

SET = "set"
"""Of a section that may be missing: it is there."""
MARK, GAP = 3, 2
"""Cells of the mark before a name, and between two columns."""
NAME, VALUE, UNIT = (12, 34), (10, 44), 18
"""The fewest and the most cells of a name and of a value, and the most of a unit."""
KEY, OWN_KEY, WIDE = 9, 16, 56
"""The fewest cells of a key, of a framework's key next to a unit, and of a form that shows ranges."""
FLASH_SECONDS = 0.7
"""How long a field is bright that changed without being typed in."""
QUIET_SECONDS = 0.2
"""How long nobody types before a field takes another number of lines."""
UNSAVED, CHANGED = "●", "•"


@dataclass(frozen=True, slots=True)
class Columns:
    """How wide the columns of a form are; with a ``dialect``, the last one shows the keys of its files of this ``kind``."""

    name: int
    value: int
    unit: int
    key: int
    dialect: str
    kind: str

    @classmethod
    def of(cls, views: Sequence[FieldView], below: KeyPath, width: int, dialect: str, kind: str) -> Columns:
        """For the fields of a form of this width: names, then values; a framework's keys come before units, ranges after."""
        names = max((cell_len(_name(view, below)) for view in views), default=0)
        values = max((cell_len(shown_value(view)) + 2 for view in views), default=0)
        units = min(max((cell_len(view.unit) for view in views), default=0), UNIT)
        keys = max((cell_len(own_key(view, dialect, kind)) for view in views), default=0)
        name = max(NAME[0], min(names, NAME[1], width - MARK - GAP - VALUE[0]))
        left = width - MARK - name - GAP
        key_cells = OWN_KEY if dialect else KEY if width > WIDE else 0
        least = VALUE[0] + GAP + units + (GAP + key_cells if keys and key_cells else 0)
        unit = units if left >= least else 0
        left -= unit + GAP if unit else 0
        value = max(VALUE[0], min(values, VALUE[1], left - GAP - KEY if keys else left))
        key = left - value - GAP
        if not keys or key < KEY:
            return cls(name, max(1, min(left, VALUE[1])), unit, 0, dialect, kind)
        value += max(0, min(VALUE[1] - value, key - keys))  # what keys don't need
        return cls(name, value, unit, left - value - GAP, dialect, kind)

    def head(self, *, is_typed: bool = False) -> Content:
        """The names of the columns; ``is_typed``: letters go into a value."""
        value = Content.styled(say("EDIT"), "bold $background on $primary") if is_typed else Content(say("value"))
        parts = [Content(" " * MARK + padded(say("name"), self.name + GAP)), value]
        parts += [Content(" " * (self.value + GAP - value.cell_length))]
        parts += [Content(padded(say("unit"), self.unit + GAP))] if self.unit else []
        parts += [Content(self.dialect or say("range"))] if self.key else []
        return Content("").join(parts)


def own_key(view: FieldView, dialect: str, kind: str) -> str:
    """What the file's own format calls the field; of rlctl's own files its range, as the name is the key."""
    return name_in(view.pattern, dialect, kind) if dialect else view.range


def shown_value(view: FieldView) -> str:
    """The text of a field as it is seen: of a section whether it is set, of all else its value, after ``=`` if it is linked."""
    if view.kind == "section" and not view.is_linked:
        return NULL if view.value is None else SET
    return f"= {view.now}" if view.is_linked else view.text


def _name(view: FieldView, below: KeyPath) -> str:
    return dotted(view.path[len(below) :] or view.path)


class FieldInput(Line):
    """Takes one line; what is pasted with more of them is handed on whole.

    It is one line high and as wide as the form whatever is typed, so that a key lays nothing out again. The cursor goes to its
    end, with nothing selected: a key that comes by mistake replaces nothing.
    """

    DEFAULT_CSS = """
    FieldInput:focus > .input--cursor { background: $background; color: $primary; text-style: bold; }
    """
    virtual_size = Reactive(Size(0, 0), layout=False)
    seen = "", ""
    """A text, and what is shown instead of it while the cursor is elsewhere."""

    class Pasted(Message):
        """A text of several lines was pasted."""

        def __init__(self, text: str) -> None:
            self.text = text
            super().__init__()

    def render_line(self, y: int) -> Strip:
        if self.has_focus or self.password:
            return super().render_line(y)
        width = self.size.width
        link, now = self.seen
        text = Segment(shortened(now if self.value == link else self.value, width - 1))
        if not self.value:
            style = self.get_component_rich_style("input--placeholder")
            text = Segment(shortened(str(self.placeholder), width - 1), style)
        return Strip([text]).extend_cell_length(width).apply_style(self.rich_style)

    def _on_paste(self, event: Paste) -> None:
        lines = event.text.splitlines()  # terminals end them with \r
        if len("\n".join(lines).strip().splitlines()) > 1:
            self.post_message(self.Pasted("\n".join(lines)))
            event.prevent_default()
            event.stop()


class FieldSelect(Select[str], inherit_bindings=False):
    """Takes one of several, out of a list that a key opens; once that is closed, the cursor is on the line of the field."""

    class Clicked(Message):
        """The value is clicked."""

    def focus(self, scroll_visible: bool = True) -> Self:
        """Put the cursor on the line: Textual wants it here once the list is closed."""
        if isinstance(self.parent, Widget):
            self.parent.focus(scroll_visible)
        return self

    @on(SelectCurrent.Toggle)
    def _leave_clicks(self, event: SelectCurrent.Toggle) -> None:
        """The line says what a click does."""
        event.prevent_default()
        event.stop()
        self.post_message(self.Clicked())


class FieldRow(Widget, can_focus=True):
    """A field that a person changes; it tells what was typed and shows what came of it.

    The cursor is either on the line, where letters are keys, or in its value, where they are text.
    """

    DEFAULT_CSS = """
    FieldRow { height: 1; layout: horizontal; text-wrap: nowrap; text-overflow: ellipsis; }
    FieldRow.-two { height: 2; }
    FieldRow:focus, FieldRow:focus-within { background: $row-cursor; }
    FieldRow.-dormant { color: $text-disabled; }
    FieldRow .value { height: 1; border: none; padding: 0; }
    FieldRow Button.value { text-align: left; content-align: left middle; min-width: 1; }
    FieldRow SelectCurrent { padding: 0; border: none; }
    FieldRow SelectCurrent Static#label, FieldRow Button.value { text-wrap: nowrap; text-overflow: ellipsis; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "edit", say("Edit"), id="field.edit", tooltip=say("Type another value; Enter or Esc ends that")),
        Binding("enter", "edit", say("Edit"), id="field.edit_too", show=False),
        Binding("up", "go(-1)", say("Field above"), show=False, id="field.up"),
        Binding("down", "go(1)", say("Field below"), show=False, id="field.down"),
        Binding("home", "go(-9999)", say("First field"), show=False, id="field.first"),
        Binding("end", "go(9999)", say("Last field"), show=False, id="field.last"),
        Binding("pageup", "go(-10)", say("Ten fields up"), show=False, id="field.page_up"),
        Binding("pagedown", "go(10)", say("Ten fields down"), show=False, id="field.page_down"),
        Binding("tab", "leave(1)", say("Next panel"), show=False, id="field.after"),
        Binding("shift+tab", "leave(-1)", say("Panel before"), show=False, id="field.before"),
    ]

    class Typed(Message):
        """A person typed or chose something in the field."""

        def __init__(self, row: FieldRow, text: str) -> None:
            self.row, self.text = row, text
            super().__init__()

    class Looked(Message):
        """A person looks at the field."""

        def __init__(self, view: FieldView) -> None:
            self.view = view
            super().__init__()

    class Opened(Message):
        """A person wants more room for the value: its items, or its whole text."""

        def __init__(self, view: FieldView, text: str = "") -> None:
            self.view, self.text = view, text
            super().__init__()

    class Editing(Message):
        """The cursor went into a value, or out of it."""

    class Left(Message):
        """A person goes on to the next panel, or to the one before."""

        def __init__(self, way: int) -> None:
            self.way = way
            super().__init__()

    def __init__(self, view: FieldView, columns: Columns, *, below: KeyPath = ()) -> None:
        """``below``: the section of the form, which the shown name leaves out."""
        super().__init__(classes="field")
        self.view, self.below, self._columns = view, below, columns
        self._taken: str | None = None
        """What was typed and told last; None where nothing was since the field was shown."""
        self._problem = ""
        self._quiet: Timer | None = None
        self._is_new = True
        """Whether the line has not been clicked since the cursor came to it: pressing the mouse on it brings the cursor, too."""

    def compose(self) -> ComposeResult:
        if self.is_chosen:
            options = self._options()
            value: Widget = FieldSelect(options, value=self._now(), allow_blank=False, classes="value", compact=True)
        elif self._is_long:
            value = Button(self._first_line(), classes="value text", compact=True)
        else:
            value = self._input()
        value.can_focus = False
        yield value

    def _input(self) -> FieldInput:
        is_path = self.view.kind == "path"
        field = FieldInput(
            self.view.text,
            classes="value",
            placeholder=self.view.default,
            compact=True,
            password=self.view.info.secret and not self.view.is_linked,
            suggester=PathSuggester() if is_path else None,
            select_on_focus=False,
        )
        field.cursor_blink = False
        field.seen = self.view.text, self._seen
        return field

    @property
    def _seen(self) -> str:
        """The value as it is shown without the cursor in it: of a secret the link, not what it is now."""
        return self.view.text if self.view.info.secret else shown_value(self.view)

    def on_mount(self) -> None:
        self.lay_out(self._columns)
        self._dress()

    def lay_out(self, columns: Columns) -> None:
        """Put the value where its column is."""
        self._columns = columns
        value = self._value
        value.styles.margin = Spacing(0, 0, 0, MARK + columns.name + GAP)
        value.styles.width = columns.value
        self.refresh()

    @property
    def _value(self) -> Widget:
        return self.query_one(".value")

    def render(self) -> Content:
        columns, view = self._columns, self.view
        here = self.has_focus or self.is_edited
        mark = UNSAVED if view.edited else CHANGED if view.changed else " "
        mark_style = "$primary bold" if view.edited else "$text-muted"
        name = padded(shortened(_name(view, self.below), columns.name), columns.name)
        unit = padded(shortened(view.unit, columns.unit), columns.unit) + " " * GAP if columns.unit else ""
        own = own_key(view, columns.dialect, columns.kind)
        key = _end_of(own, columns.key) if view.applies else say("not used by this run")
        line = Content.assemble(
            ("▌", "$primary") if here else " ",
            (mark, mark_style),
            " ",
            (name, "bold" if here or view.changed else ""),
            " " * (GAP + columns.value + GAP),
            (unit, "$text-muted"),
            (shortened(key, columns.key) if columns.key else "", "$text-muted"),
        )
        line = line.rstrip()
        if self._problem and not self.has_class("-two"):
            before = MARK + columns.name + GAP + columns.value + GAP
            line = Content.assemble(line[:before], (f"✗ {self._reason}", "$error"))
        if not (below := self._told_below()):
            return line
        return Content.assemble(line, "\n", " " * (MARK + 1), below)

    def _told_below(self) -> Content | None:
        if self._problem:
            return Content.styled(f"✗ {self._reason}", "$error")
        return None

    @property
    def _reason(self) -> str:
        """Why what was typed does not fit, on one line, without the key that stands above it."""
        return " ".join(self._problem.split()).removeprefix(f"'{dotted(self.view.path)}' ")

    @property
    def is_edited(self) -> bool:
        """Whether the cursor is in the value."""
        return any(widget.has_focus for widget in self.query("*"))

    @property
    def is_typed_in(self) -> bool:
        """Whether letters go into the value."""
        return any(field.has_focus for field in self.query(FieldInput))

    @property
    def is_chosen(self) -> bool:
        """Whether it takes one of several, not what is typed."""
        return self.view.kind in ("choice", "enum", "bool", "section")

    @property
    def _is_long(self) -> bool:
        """Whether it is text of several lines, which one line cannot show without losing them."""
        return self.view.kind in ("text", "path") and "\n" in self.view.text

    def _first_line(self) -> str:
        lines = self.view.text.splitlines()
        return say("{first} ... ({count} lines)").format(first=lines[0].replace("[", "\\["), count=len(lines))

    def _names(self) -> list[str]:
        names = [NULL, SET] if self.view.kind == "section" else list(self.view.options) or ["true", "false"]
        optional = NULL in self.view.type.split(" or ") or self.view.text == NULL or self.view.default == NULL
        names += [NULL] if optional and NULL not in names else []
        return names if self._now() in names else [self._now(), *names]

    def _options(self) -> list[tuple[str, str]]:
        """What can be chosen, as it is shown and as it is written; the link that stands there is shown as what it is now."""
        is_linked = self.view.is_linked and not self.view.info.secret
        return [(self._seen if is_linked and name == self.view.text else name, name) for name in self._names()]

    def _now(self) -> str:
        return self.view.text if self.view.is_linked else shown_value(self.view)

    def _settle(self) -> None:
        """Show the field again, and give it the lines that it needs once nobody types: that lays out the whole screen."""
        self.refresh()
        if self._quiet is not None:
            self._quiet.stop()
        self._quiet = self.set_timer(QUIET_SECONDS, self._dress)

    def _dress(self) -> None:
        self.set_class(not self.view.applies, "-dormant")
        self.set_class(self.view.edited or self.view.changed, "-set")
        self.set_class(self._told_below() is not None, "-two")
        self.refresh()

    def show(self, view: FieldView, *, discard_typed: bool = False) -> None:
        """Show the field as it is now; what is being typed in it stays, unless ``discard_typed``."""
        if view is self.view and not discard_typed:
            return
        self.view = view
        if not self.children:  # it is not composed yet, or is taken away already
            return
        if self.is_chosen:
            select = self.query_one(FieldSelect)
            if not select.query("#label"):  # nor is what is in it
                self.call_after_refresh(lambda: self.show(self.view, discard_typed=True))
            elif select.value != self._now():
                with select.prevent(Select.Changed):
                    select.set_options(self._options())
                    select.value = self._now()
        elif found := self.query(FieldInput):
            field = found.first()
            if field.seen != (view.text, self._seen):
                field.seen = view.text, self._seen
                field.refresh()
            if field.value != view.text and (discard_typed or not field.has_focus):
                self._taken = None
                with field.prevent(Input.Changed):
                    field.value = view.text
                self.tell("")
        elif self.query(Button):
            self.query_one(".text", Button).label = self._first_line()
        self._settle()

    def flash(self) -> None:
        """Be bright for a moment: the value changed, and not by what was typed in it."""
        self.add_class("-flash")
        self.set_timer(FLASH_SECONDS, lambda: self.remove_class("-flash"))

    def tell(self, problem: str) -> None:
        """Show what is wrong with what was typed; nothing where nothing is."""
        if problem != self._problem:
            self._problem = problem
            self.set_class(bool(problem), "-wrong")
            self._settle()

    @property
    def is_wrong(self) -> bool:
        """Whether what stands in it is not the config's value, as it does not fit."""
        return self.has_class("-wrong")

    @property
    def draft(self) -> tuple[str, str]:
        """What stands in it and does not fit, and why."""
        return self.query_one(FieldInput).value, self._problem

    def take_up(self, text: str, problem: str) -> None:
        """Show again what does not fit."""
        field = self.query_one(FieldInput)
        with field.prevent(Input.Changed):
            field.value = text
        self._taken = text
        self.tell(problem)

    def focus_field(self) -> None:
        """Put the cursor where the value is changed, behind the text."""
        value = self._value
        if isinstance(value, FieldInput):
            value.can_focus = True
            self.screen.set_focus(value)  # at once: the next key is for it
            value.cursor_position = len(value.value)
        else:
            value.focus()

    def action_edit(self) -> None:
        if isinstance(self._value, Button):
            self.post_message(self.Opened(self.view))
            return
        if isinstance(self._value, FieldSelect):
            self._value.action_show_overlay()
        else:
            self.focus_field()

    def action_go(self, lines: int) -> None:
        """Go to the line of another field."""
        rows = [row for row in self.parent.children if isinstance(row, FieldRow)] if self.parent else []
        at = rows.index(self)
        other = rows[max(0, min(len(rows) - 1, at + lines))]
        if other is not self:
            other.focus()

    def action_leave(self, way: int) -> None:
        if self.is_edited:
            self.action_go(way)
        else:
            self.post_message(self.Left(way))

    def on_click(self, event: Click) -> None:
        """A line that is clicked gets the cursor; its value, if it is clicked there once more."""
        if event.widget is not self and event.widget is not None:
            self._clicked()

    @on(FieldSelect.Clicked)
    def _choice_clicked(self, message: FieldSelect.Clicked) -> None:
        message.stop()
        self._clicked()

    def _clicked(self) -> None:
        if not self.is_edited and not self._is_new:
            self.action_edit()
        self._is_new = False

    def on_focus(self, event: Focus) -> None:
        self._is_new = True
        self.refresh()
        self.post_message(self.Looked(self.view))

    def on_blur(self) -> None:
        self.refresh()

    def on_descendant_blur(self, event: DescendantBlur) -> None:
        self.refresh()
        if event.widget is self._value and not self.query("*:focus"):
            event.widget.can_focus = False
        self.post_message(self.Editing())

    @on(Input.Changed)
    def _typed(self, message: Input.Changed) -> None:
        message.stop()
        if self._taken is not None or message.value != self.view.text:  # that it is shown is no change
            self.post_message(self.Typed(self, message.value))

    @property
    def untold(self) -> str | None:
        """What stands in it and is on its way to the config still; None where nothing is."""
        found = self.query(FieldInput)
        if not found or found.first().value in (self._taken, self.view.text):
            return None
        return found.first().value

    def holds(self, text: str) -> bool:
        """Whether a text stands in it still; what is told of another one came too late, as after an undo."""
        found = self.query(FieldInput)
        return not found or found.first().value == text

    def take(self, text: str) -> None:
        """Note that what was typed has come to the config."""
        self._taken = text

    @on(Select.Changed)
    def _picked(self, message: Select.Changed) -> None:
        message.stop()
        if str(message.value) != self._now():
            self.post_message(self.Typed(self, str(message.value)))

    @on(Input.Submitted)
    def _done(self, message: Input.Submitted) -> None:
        message.stop()
        self.focus()

    @on(Button.Pressed)
    def _pressed(self, message: Button.Pressed) -> None:
        message.stop()
        self.post_message(self.Opened(self.view))

    @on(FieldInput.Pasted)
    def _pasted(self, message: FieldInput.Pasted) -> None:
        message.stop()
        self.post_message(self.Opened(self.view, message.text))

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        self.refresh()
        self.post_message(self.Looked(self.view))
        self.post_message(self.Editing())


def _end_of(key: str, cells: int) -> str:
    """A key that is too long without its beginning: keys differ at their end."""
    if cell_len(key) <= cells:
        return key
    return f"…{key[len(key) - cells + 1 :]}" if cells > 1 else ""
