"""A small page that asks for runs of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import SelectionList, Static
from textual.widgets.selection_list import Selection

from rlctl import runs
from rlctl.tui.dialogs.dialog import Dialog
from rlctl.tui.language import say
from rlctl.tui.widgets.footer import Footer
from rlctl.tui.widgets.run_texts import run_line


class PickRunsScreen(Dialog[list[Path] | None]):
    """Gives the folders of the runs that were marked; None where it was left."""

    DEFAULT_CSS = """
    PickRunsScreen { align: center middle; }
    PickRunsScreen SelectionList { height: auto; max-height: 20; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", say("Use these"), id="pick.take", priority=True),
        Binding("escape", "dismiss(None)", say("Back"), id="pick.leave"),
    ]

    class Found(Message):
        """The runs of the folder."""

        def __init__(self, found: Sequence[runs.RunInfo]) -> None:
            self.found = found
            super().__init__()

    def __init__(self, folder: Path, *, without: Path, chosen: Sequence[Path]) -> None:
        super().__init__()
        self.folder, self.without, self.chosen = folder, without, chosen

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(say("looking for runs ..."), id="pick-title", markup=False)
            yield SelectionList[Path](id="pick-list")
        yield Footer()

    def on_mount(self) -> None:
        self._look()

    @work(thread=True)
    def _look(self) -> None:
        found = runs.list_runs(self.folder)
        self.post_message(self.Found([info for info in found if info.folder.resolve() != self.without.resolve()]))

    @on(Found)
    def _show(self, message: Found) -> None:
        title = say("space marks runs, enter confirms") if message.found else say("no other runs in {folder}")
        self.query_one("#pick-title", Static).update(title.format(folder=self.folder))
        listed = self.query_one("#pick-list", SelectionList)
        for info in message.found:
            listed.add_option(Selection(Content(run_line(info)), info.folder, info.folder in self.chosen))
        self.set_focus(listed)
        listed.action_first()

    def action_take(self) -> None:
        listed = self.query_one("#pick-list", SelectionList)
        marked = list(listed.selected)
        at = listed.highlighted
        if not marked and at is not None:  # nothing was marked: the one under the cursor is meant
            marked = [listed.get_option_at_index(at).value]
        self.dismiss(marked)
