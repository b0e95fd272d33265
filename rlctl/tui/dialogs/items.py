"""The items of a list, or the keys of a mapping: add, take away, put elsewhere, edit."""

from __future__ import annotations

from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Button, Input, Label, OptionList, Select, Static
from textual.widgets.option_list import Option

from rlctl.common.errors import RlctlError
from rlctl.documents import KeyPath, dotted
from rlctl.editing import items
from rlctl.editing.session import Session
from rlctl.editing.values import value_of
from rlctl.tui.dialogs.ask import TextScreen
from rlctl.tui.dialogs.dialog import Dialog
from rlctl.tui.language import say
from rlctl.tui.widgets.footer import Footer
from rlctl.tui.widgets.line import Line

NAME = "(name)"
"""Of the field for the name of a mapping's new key; no field of a section is called so."""


class ItemsScreen(Dialog["KeyPath | None"]):
    """A list or mapping; what comes back is the item whose fields a person wants to see in the form."""

    DEFAULT_CSS = """
    ItemsScreen { align: center middle; }
    ItemsScreen > Vertical { width: 90%; max-width: 110; height: 80%; border: round $primary; background: $background; }
    ItemsScreen OptionList { height: 1fr; }
    ItemsScreen .problem { color: $error; height: auto; max-height: 6; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a,insert", "add", say("Add"), id="items.add"),
        Binding("delete", "remove", say("Remove"), id="items.remove"),
        Binding("K,shift+up", "move(-1)", say("Up"), id="items.up"),
        Binding("J,shift+down", "move(1)", say("Down"), id="items.down"),
        Binding("e", "text", say("As text"), id="items.text"),
        Binding("u,ctrl+z", "undo", say("Undo"), id="items.undo"),
        Binding("escape", "leave", say("Close"), id="items.close"),
    ]

    def __init__(self, session: Session, path: KeyPath) -> None:
        super().__init__()
        self.session, self.path = session, path
        self._begun = len(session.changes)
        """How many changes there were before: those are not taken back here, where they cannot be seen."""

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Label(say("{key}: enter opens an item").format(key=dotted(self.path)), markup=False)
            yield OptionList(id="items", markup=False)
            yield Static("", classes="problem", markup=False)
            yield Footer()

    def on_mount(self) -> None:
        self._show(0)

    def _show(self, at: int) -> None:
        listed = self.query_one("#items", OptionList)
        listed.clear_options()
        self.items = items.items(self.session, self.path)
        for item in self.items:
            listed.add_option(Option(f"{item.name}: {item.text}" if isinstance(item.name, str) else item.text))
        if not self.items:
            listed.add_option(Option(say("empty: press a to add an item"), disabled=True))
        else:
            listed.highlighted = min(at, len(self.items) - 1)
        listed.focus()

    def _try(self, do: Any, at: int) -> None:
        told = ""
        try:
            do()
        except RlctlError as error:
            told = error.shown
        self.query_one(".problem", Static).update(told)
        self._show(at)

    @property
    def _at(self) -> int:
        return self.query_one("#items", OptionList).highlighted or 0

    def action_add(self) -> None:
        def added(path: KeyPath | None) -> None:
            if path is not None:
                self._show(len(self.items))

        self.app.push_screen(NewItemScreen(self.session, self.path), added)

    def action_remove(self) -> None:
        if self.items:
            at = self._at
            self._try(lambda: items.remove(self.session, self.path, self.items[at].name), at)

    def action_move(self, by: int) -> None:
        at = self._at
        if self.items and isinstance(self.items[at].name, int):
            target = min(max(at + by, 0), len(self.items) - 1)
            self._try(lambda: items.move(self.session, self.path, at, by), target)

    def action_undo(self) -> None:
        if len(self.session.changes) > self._begun:
            self.session.undo()
            self._show(self._at)
        else:
            self.notify(say("nothing to undo"))

    def action_text(self) -> None:
        if self.items:
            self._edit((*self.path, self.items[self._at].name))

    @on(OptionList.OptionSelected)
    def _open(self, message: OptionList.OptionSelected) -> None:
        path = (*self.path, self.items[message.option_index].name)
        if items.required(self.session, self.path, self._option(path)) is None:
            self._edit(path)
        else:
            self.dismiss(path)

    def _option(self, path: KeyPath) -> str:
        options = items.options(self.session, self.path)
        return options[0] if options else ""

    def _edit(self, path: KeyPath) -> None:
        at = self._at

        def take(text: str) -> None:
            self.session.set(path, items.from_yaml(text, path))

        text = items.yaml_of(self.session, path)
        self.app.push_screen(TextScreen(dotted(path), text, take), lambda done: self._show(at) if done else None)

    def action_leave(self) -> None:
        self.dismiss(None)


class NewItemScreen(Dialog["KeyPath | None"]):
    """What a new item needs: which of several it is, and the fields without a default."""

    DEAF_SECONDS = 0
    DEFAULT_CSS = """
    NewItemScreen { align: center middle; }
    NewItemScreen VerticalScroll { height: auto; max-height: 60vh; }
    NewItemScreen .problem { color: $error; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", say("Cancel"), id="new.cancel")]

    def __init__(self, session: Session, path: KeyPath) -> None:
        super().__init__()
        self.session, self.path = session, path
        self.options = items.options(session, path)
        self.is_mapping = items.is_mapping(session, path)

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Label(say("A new item of {key}").format(key=dotted(self.path)), markup=False)
            if self.options:
                names = [(name, name) for name in self.options]
                yield Select(names, value=self.options[0], allow_blank=False, id="option", compact=True)
            yield VerticalScroll(id="needed", can_focus=False)
            yield Static("", classes="problem", markup=False)
            with Horizontal(classes="buttons"):
                yield Button(say("Cancel"), id="cancel", compact=True)
                yield Button(say("Add"), id="add", variant="primary", compact=True)

    async def on_mount(self) -> None:
        await self._ask()

    @property
    def _option(self) -> str:
        return str(self.query_one("#option", Select).value) if self.options else ""

    async def _ask(self) -> None:
        self.needed = items.required(self.session, self.path, self._option)
        shown: list[Label | Input] = []
        if self.is_mapping:
            shown += [Label(say("name")), Line(name=NAME, compact=True)]
        for info in self.needed or []:
            shown += [Label(info.name, markup=False), Line(name=info.name, compact=True)]
        if self.needed is None:
            shown += [Label(say("value")), Line(name="value", compact=True)]
        held = self.query_one("#needed", VerticalScroll)
        await held.remove_children()
        await held.mount_all(shown)
        if inputs := held.query(Input):
            inputs.first().focus()
        else:
            self.query_one("#add").focus()

    @on(Select.Changed, "#option")
    async def _chosen(self) -> None:
        await self._ask()

    @on(Button.Pressed, "#add")
    @on(Input.Submitted)
    def _add(self) -> None:
        given = {str(field.name): field.value for field in self.query("#needed Input").results(Input)}
        try:
            name = given.pop(NAME, "") if self.is_mapping else ""
            value = self._value(given)
            path = items.add(self.session, self.path, value, name)
        except RlctlError as error:
            self.query_one(".problem", Static).update(error.shown)
        else:
            self.dismiss(path)

    def _value(self, given: dict[str, str]) -> Any:
        if self.needed is None:
            return items.from_yaml(f"{items.ITEM}: {given['value']}", (0,)) if given["value"] else ""
        read = {info.name: value_of(given[info.name], info) for info in self.needed}
        return items.item_of(self.session, self.path, read, self._option)

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        self.dismiss(None)
