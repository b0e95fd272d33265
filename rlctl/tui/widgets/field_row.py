"""One field of a form: its key, what it is edited with, where its value was written, and what is wrong with it."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.events import DescendantFocus
from textual.message import Message
from textual.widgets import Input, Label, Select

from rlctl.editing.fields import FieldView
from rlctl.editing.values import NULL


class FieldRow(Vertical):
    """A field that a person changes; it tells what was typed and shows what came of it."""

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

    def __init__(self, view: FieldView, *, whole_key: bool = False) -> None:
        """``whole_key``: show the key with its section, as among results of a search."""
        super().__init__(classes="field")
        self.view, self._whole_key = view, whole_key

    def compose(self) -> ComposeResult:
        yield Label(self._title(), classes="key", markup=False)
        if self._chosen:
            options = [(name, name) for name in self._names()]
            yield Select(options, value=self._now(), allow_blank=False, classes="value")
        else:
            yield Input(self.view.text, classes="value", placeholder=self.view.default, compact=True)
        yield Label("", classes="problem", markup=False)

    def on_mount(self) -> None:
        self._dress()

    @property
    def _chosen(self) -> bool:
        return self.view.kind in ("choice", "enum", "bool")

    def _names(self) -> list[str]:
        names = list(self.view.options) or ["true", "false"]
        optional = NULL in self.view.type.split(" or ") or self.view.text == NULL or self.view.default == NULL
        names += [NULL] if optional and NULL not in names else []
        return names if self._now() in names else [self._now(), *names]

    def _now(self) -> str:
        return self.view.text

    def _title(self) -> str:
        path = ".".join(map(str, self.view.path))
        name = path if self._whole_key else str(self.view.path[-1])
        marks = ("*" if self.view.edited else "") + ("" if self.view.applies else " (not used by this run)")
        unit = f" [{self.view.unit}]" if self.view.unit else ""
        return f"{name}{unit}{marks}"

    def _dress(self) -> None:
        self.query_one(".key", Label).update(self._title())
        self.set_class(self.view.changed, "-changed")
        self.set_class(self.view.edited, "-edited")
        self.set_class(not self.view.applies, "-dormant")

    def show(self, view: FieldView) -> None:
        """Show the field as it is now; what is being typed in it stays."""
        self.view = view
        if self._chosen:
            select = self.query_one(Select)
            if select.value != view.text:
                with select.prevent(Select.Changed):
                    select.set_options([(name, name) for name in self._names()])
                    select.value = view.text
        else:
            field = self.query_one(Input)
            if not field.has_focus and field.value != view.text:
                with field.prevent(Input.Changed):
                    field.value = view.text
        self._dress()

    def tell(self, problem: str) -> None:
        """Show what is wrong with what was typed; nothing where nothing is."""
        self.query_one(".problem", Label).update(problem)
        self.set_class(bool(problem), "-wrong")

    def focus_field(self) -> None:
        """Put the cursor where the value is changed."""
        self.query_one(".value").focus()

    @on(Input.Changed)
    def _typed(self, message: Input.Changed) -> None:
        message.stop()
        self.post_message(self.Typed(self, message.value))

    @on(Select.Changed)
    def _picked(self, message: Select.Changed) -> None:
        message.stop()
        if str(message.value) != self.view.text:
            self.post_message(self.Typed(self, str(message.value)))

    @on(Input.Submitted)
    def _done(self, message: Input.Submitted) -> None:
        message.stop()
        self.screen.focus_next()

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        self.post_message(self.Looked(self.view))
