"""The page that opens with nothing named: runs, presets and config files of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.markup import escape
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, Header, OptionList
from textual.widgets.option_list import Option

from rlctl import presets, runs
from rlctl.editing.session import Session
from rlctl.errors import RlctlError
from rlctl.filenames import SCRIPT_ENDINGS, YAML_ENDINGS
from rlctl.tui.screens.editor import EditorScreen
from rlctl.tui.screens.monitor import MonitorScreen

FILES = 200
"""Most files that are listed."""


class StartScreen(Screen[None]):
    """Runs to watch, files and presets to edit."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "new", "New config", id="start.new", tooltip="Begin with rlctl's defaults"),
        Binding("r", "refresh", "Look again", id="start.refresh", tooltip="List runs and files anew"),
    ]

    class Found(Message):
        """What there is to open."""

        def __init__(self, found: list[tuple[str, str, str]]) -> None:
            self.found = found
            super().__init__()

    def __init__(self, folder: Path, *, readonly: bool) -> None:
        super().__init__()
        self.folder, self.readonly = folder, readonly

    def compose(self) -> ComposeResult:
        yield Header()
        yield OptionList(id="choices")
        yield Footer()

    def on_mount(self) -> None:
        self.sub_title = "open a run, a file or a preset"
        self.action_refresh()

    @work(thread=True, exclusive=True)
    def action_refresh(self) -> None:
        found = [
            ("run", str(info.folder), f"{info.status:<12} step {info.step:<7} {info.name}")
            for info in (runs.list_runs(self.folder) if self.folder.is_dir() else [])
        ]
        names = (path for path in sorted(Path.cwd().iterdir()) if path.suffix in (*YAML_ENDINGS, *SCRIPT_ENDINGS))
        found += [("file", str(path), path.name) for path, _ in zip(names, range(FILES), strict=False)]
        found += [("preset", preset.name, f"{preset.name:<16} {preset.title}") for preset in presets.names()]
        self.post_message(self.Found(found))

    @on(Found)
    def _show(self, message: Found) -> None:
        choices = self.query_one("#choices", OptionList)
        choices.clear_options()
        for number, (kind, name, shown) in enumerate(message.found):
            if number == 0 or message.found[number - 1][0] != kind:
                choices.add_option(Option(f"[b]{kind.capitalize()}s[/b]", disabled=True))
            choices.add_option(Option(f"  {escape(shown)}", id=f"{kind}:{name}"))
        choices.focus()
        choices.action_first()

    @on(OptionList.OptionSelected)
    def _open(self, message: OptionList.OptionSelected) -> None:
        kind, _, name = (message.option_id or "").partition(":")
        try:
            if kind == "run":
                self.app.push_screen(MonitorScreen(Path(name), readonly=self.readonly))
            elif kind == "file":
                self.app.push_screen(EditorScreen(Session.open(Path(name)), readonly=self.readonly))
            elif kind == "preset":
                session = Session.of_text(presets.text(name), f"{name}.yaml")
                self.app.push_screen(EditorScreen(session, readonly=self.readonly))
        except RlctlError as error:
            self.notify(error.message, title=f"{name} cannot be opened", severity="error", markup=False)

    def action_new(self) -> None:
        self.app.push_screen(EditorScreen(Session.new(), readonly=self.readonly))
