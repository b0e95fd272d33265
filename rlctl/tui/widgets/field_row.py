"""One field of a form: its key, what it is edited with, what it is linked to, and what is wrong with what was typed."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.events import DescendantFocus, Paste
from textual.geometry import Size
from textual.message import Message
from textual.reactive import Reactive
from textual.suggester import Suggester
from textual.widgets import Button, Input, Label, Select

from rlctl.common.filenames import expanded, is_folder
from rlctl.documents import KeyPath, dotted
from rlctl.editing.fields import FieldView
from rlctl.editing.values import NULL
from rlctl.tui.language import say
from rlctl.tui.widgets.line import Line

SET = "set"
"""Of a section that may be missing: it is there."""


class PathSuggester(Suggester):
    """Completes the name of a file or folder."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        return completed(value)


def completed(value: str) -> str | None:
    """The first path that begins with what was typed; a folder ends in ``/``."""
    folder, _, start = value.rpartition("/")
    place = expanded(f"{folder}/" if "/" in value else ".")
    if not value or "://" in value or "${" in value:
        return None
    try:
        found = min((entry for entry in place.iterdir() if entry.name.startswith(start)), default=None)
    except (OSError, ValueError):
        return None
    if found is None:
        return None
    return value[: len(value) - len(start)] + found.name + ("/" if is_folder(found) else "")


class FieldInput(Line):
    """Takes one line; what is pasted with more of them is handed on whole.

    It is one line high and as wide as the form whatever is typed, so that a key lays nothing out again.
    """

    virtual_size = Reactive(Size(0, 0), layout=False)

    class Pasted(Message):
        """A text of several lines was pasted."""

        def __init__(self, text: str) -> None:
            self.text = text
            super().__init__()

    def _on_paste(self, event: Paste) -> None:
        lines = event.text.splitlines()  # terminals end them with \r
        if len("\n".join(lines).strip().splitlines()) > 1:
            self.post_message(self.Pasted("\n".join(lines)))
            event.prevent_default()
            event.stop()


class FieldSelect(Select[str], inherit_bindings=False):
    """Takes one of several; up and down go to the fields above and below, as everywhere in a form."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space", "show_overlay", say("Choose"), show=False)]


class FieldRow(Vertical):
    """A field that a person changes; it tells what was typed and shows what came of it."""

    DEFAULT_CSS = """
    FieldRow { height: auto; margin-bottom: 1; }
    FieldRow .key { color: $text-muted; width: 100%; }
    FieldRow.-changed .key { color: $text; text-style: bold; }
    FieldRow.-edited .key { color: $warning; text-style: bold; }
    FieldRow.-dormant { opacity: 60%; }
    FieldRow .link { color: $accent; width: 100%; display: none; }
    FieldRow.-linked .link { display: block; }
    FieldRow .problem { display: none; color: $error; width: 100%; }
    FieldRow.-wrong .problem { display: block; height: auto; }
    FieldRow Horizontal { height: auto; }
    FieldRow .value { width: 1fr; }
    FieldRow FieldInput { height: 1; }
    FieldRow .more { width: auto; min-width: 9; margin-left: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "app.focus_previous", say("Field above"), show=False, id="field.up"),
        Binding("down", "app.focus_next", say("Field below"), show=False, id="field.down"),
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

    def __init__(self, view: FieldView, *, below: KeyPath = ()) -> None:
        """``below``: the section of the form, which the shown name leaves out."""
        super().__init__(classes="field")
        self.view, self._below = view, below
        self._taken: str | None = None
        """What was typed and told last; None where nothing was since the field was shown."""
        self._told = ["", "", ""]
        """The title, link and problem that are shown: what is the same is not laid out again for each key."""

    def compose(self) -> ComposeResult:
        yield Label(self._title(), classes="key", markup=False)
        if self.is_chosen:
            options = [(name, name) for name in self._names()]
            yield FieldSelect(options, value=self._now(), allow_blank=False, classes="value", compact=True)
        elif self._is_long:
            yield Button(self._first_line(), classes="value text", compact=True)
        else:
            with Horizontal():
                yield self._input()
                if self.view.kind in ("list", "mapping"):
                    more = Button(say("items F6"), classes="more", compact=True)
                    more.can_focus = False
                    yield more
        yield Label("", classes="link", markup=False)
        yield Label("", classes="problem", markup=False)

    def _input(self) -> FieldInput:
        is_path = self.view.kind == "path"
        return FieldInput(
            self.view.text,
            classes="value",
            placeholder=self.view.default,
            compact=True,
            password=self.view.info.secret and not self.view.is_linked,
            suggester=PathSuggester() if is_path else None,
        )

    def on_mount(self) -> None:
        self._dress()

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

    def _now(self) -> str:
        if self.view.kind == "section" and not self.view.is_linked:
            return NULL if self.view.value is None else SET
        return self.view.text

    def _title(self) -> str:
        name = dotted(self.view.path[len(self._below) :] or self.view.path)
        unit = f" [{self.view.unit}]" if self.view.unit else ""
        range_ = f" {self.view.range}" if self.view.range else ""
        marks = ("  *" if self.view.edited else "") + ("" if self.view.applies else say("  (not used by this run)"))
        return f"{name}{unit}{range_}{marks}"

    def _dress(self) -> None:
        self._say(0, ".key", self._title())
        self.set_class(self.view.changed, "-changed")
        self.set_class(self.view.edited, "-edited")
        self.set_class(not self.view.applies, "-dormant")
        linked = self.view.is_linked and not self.view.info.secret
        self.set_class(linked, "-linked")
        if linked:
            told = say("= {value}, follows {link}").format(value=self.view.now, link=self.view.text)
            self._say(1, ".link", told)

    def _say(self, place: int, label: str, text: str) -> None:
        if self._told[place] != text:
            self._told[place] = text
            self.query_one(label, Label).update(text)

    def show(self, view: FieldView, *, anew: bool = False) -> None:
        """Show the field as it is now; what is being typed in it stays, unless ``anew``."""
        if view is self.view and not anew:
            return
        self.view = view
        if self.is_chosen:
            select = self.query_one(FieldSelect)
            if select.value != self._now():
                with select.prevent(Select.Changed):
                    select.set_options([(name, name) for name in self._names()])
                    select.value = self._now()
        elif found := self.query(FieldInput):
            field = found.first()
            if field.value != view.text and (anew or not field.has_focus):
                self._taken = None
                with field.prevent(Input.Changed):
                    field.value = view.text
                self.tell("")
        elif self.query(Button):
            self.query_one(".text", Button).label = self._first_line()
        self._dress()

    def tell(self, problem: str) -> None:
        """Show what is wrong with what was typed; nothing where nothing is."""
        self._say(2, ".problem", problem)
        self.set_class(bool(problem), "-wrong")

    @property
    def is_wrong(self) -> bool:
        """Whether what stands in it is not the config's value, as it does not fit."""
        return self.has_class("-wrong")

    def focus_field(self) -> None:
        """Put the cursor where the value is changed."""
        self.query_one(".value").focus()

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
        self.screen.focus_next()

    @on(Button.Pressed)
    def _pressed(self, message: Button.Pressed) -> None:
        message.stop()
        self.post_message(self.Opened(self.view))

    @on(FieldInput.Pasted)
    def _pasted(self, message: FieldInput.Pasted) -> None:
        message.stop()
        self.post_message(self.Opened(self.view, message.text))

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        self.post_message(self.Looked(self.view))
