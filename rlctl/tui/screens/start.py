"""The page that opens with nothing named: runs, config files of this folder, and presets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rich.cells import cell_len
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from rlctl.common.filenames import configs_and_runs, expanded, is_file, is_folder
from rlctl.common.language import later
from rlctl.common.messages.reasons import translated
from rlctl.tui.language import padded, say
from rlctl.tui.navigation import navigation
from rlctl.tui.screens.page import Page
from rlctl.tui.widgets.footer import Footer
from rlctl.tui.widgets.head import Head
from rlctl.tui.widgets.line import Line
from rlctl.tui.widgets.path_suggester import PathSuggester

FILES = 200
"""Most files that are listed."""
RUNS = 8
"""Newest runs that are listed; all are on a page of their own."""
SECTIONS = {"run": later("Runs"), "file": later("Configs and scripts"), "preset": later("Presets to start from")}


@dataclass(frozen=True, slots=True)
class Choice:
    """Something to open."""

    kind: str
    name: str
    """The path of a run or a file, the name of a preset."""
    shown: str


class StartScreen(Page):
    """Runs to watch, files and presets to edit."""

    DEFAULT_CSS = """
    StartScreen #start-filter { margin: 0 1; }
    StartScreen #choices { width: 100%; height: 1fr; text-wrap: nowrap; text-overflow: ellipsis; }
    StartScreen #start-told { height: auto; padding: 0 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "new", say("New config"), id="start.new", tooltip=say("Start from rlctl's defaults")),
        Binding(
            "a", "runs", say("All runs"), id="start.runs", tooltip=say("A table of runs: sort, filter, compare two")
        ),
        Binding("slash", "filter", say("Filter"), id="start.filter", key_display="/"),
        Binding("r", "refresh", say("Refresh"), id="start.refresh", tooltip=say("Reload the list of runs and files")),
        Binding("escape", "clear", say("Clear filter"), id="start.clear", show=False),
    ]

    class Found(Message):
        """What there is to open."""

        def __init__(self, found: list[Choice]) -> None:
            self.found = found
            super().__init__()

    def __init__(self, folder: Path, *, readonly: bool) -> None:
        super().__init__()
        self.folder, self.readonly = folder, readonly
        self._found: list[Choice] = []
        self._formats: dict[Path, tuple[int, str]] = {}
        """Of each config, when it was written and its format."""
        self._run_places: set[Path] = set()
        """Folders with runs below this one."""
        self._place = Path()
        """The folder that configs and runs are looked for in, and below."""

    def compose(self) -> ComposeResult:
        yield Head()
        told = say("/ filters by words of a name; enter opens a path: file, run or folder")
        yield Line(placeholder=told, id="start-filter", suggester=PathSuggester(), compact=True)
        yield OptionList(id="choices", classes="panel")
        yield Static(say("looking for runs and files ..."), id="start-told", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#choices").border_title = say("Open")
        self.sub_title = say("open a run, a file or a preset")
        self.set_focus(self.query_one("#choices"))

    def on_screen_resume(self) -> None:
        drawn = self.app.call_after_refresh
        drawn(drawn, self.action_refresh)  # its imports would delay the first frame

    @work(thread=True, exclusive=True)
    def action_refresh(self) -> None:
        from rlctl import runs
        from rlctl.config import presets
        from rlctl.tui.run_rows import age
        from rlctl.tui.widgets.run_texts import duration, names_of, run_line

        place = self._place
        configs, folders = configs_and_runs(place)
        self._run_places = {folder.parent for folder in folders}
        listed = runs.list_runs(self.folder) if place == Path() and is_folder(self.folder) else []
        known = runs.with_others(listed, folders)
        names = names_of(known)
        lines = [
            (run_line(info, names[info.folder]), say("{time} ago").format(time=duration(age(info))))
            for info in known[:RUNS]
        ]
        cells = max((cell_len(line) for line, _ in lines), default=0)
        found = [
            Choice("run", str(info.folder), f"{padded(line, cells)}  {began}")
            for info, (line, began) in zip(known, lines, strict=False)
        ]
        found += [self._file(path) for path in configs[:FILES]]
        found += [
            Choice("preset", preset.name, f"{preset.name:<16} {translated(preset.title)}") for preset in presets.names()
        ]
        self.post_message(self.Found(found))

    def _file(self, path: Path) -> Choice:
        """A config with its format, which is read again only if the file has changed."""
        from rlctl.editing.formats import format_of
        from rlctl.tui.widgets.sample_texts import plain

        try:
            written = path.stat().st_mtime_ns
        except OSError:
            written = 0
        if self._formats.get(path, (-1, ""))[0] != written:
            self._formats[path] = written, format_of(path)
        return Choice("file", str(path), f"{self._formats[path][1] or '–':<9}{plain(str(path))}")

    @on(Found)
    def _take(self, message: Found) -> None:
        if message.found != self._found:
            self._found = message.found
            self._show()

    def _show(self) -> None:
        words = self.query_one("#start-filter", Input).value.lower().split()
        found = [choice for choice in self._found if all(word in choice.shown.lower() for word in words)]
        choices = self.query_one("#choices", OptionList)
        under = choices.highlighted_option.id if choices.highlighted_option is not None else None
        choices.clear_options()
        for number, choice in enumerate(found):
            if number == 0 or found[number - 1].kind != choice.kind:
                choices.add_option(Option(f"[$primary bold]{say(SECTIONS[choice.kind])}[/]", disabled=True))
            choices.add_option(Option(Content(f"  {choice.shown}"), id=f"{choice.kind}:{choice.name}"))
        if any(f"{choice.kind}:{choice.name}" == under for choice in found):
            choices.highlighted = choices.get_option_index(under or "")
        else:
            choices.action_first()
        known = [choice.kind for choice in self._found]
        told = say("no runs in {folder} yet; a preset or a file opens in the editor, and is launched from there")
        if words and not found:
            told = say("no matching name; enter opens a path")
        elif self._place != Path():
            told = say("in {folder}; escape goes back")
        elif "run" in known:
            told = ""
        line = self.query_one("#start-told", Static)
        line.display = bool(told)
        line.update(told.format(folder=self.folder if self._place == Path() else self._place))

    @on(OptionList.OptionSelected)
    def _open(self, message: OptionList.OptionSelected) -> None:
        app = navigation(self.app)
        kind, _, name = (message.option_id or "").partition(":")
        if kind == "run":
            app.watch_run(Path(name))
        elif kind == "file":
            app.edit_file(Path(name))
        elif kind == "preset":
            app.edit_preset(name)

    @on(Input.Changed, "#start-filter")
    def _filter(self) -> None:
        self._show()

    @on(Input.Submitted, "#start-filter")
    def _filtered(self, message: Input.Submitted) -> None:
        app, typed, choices = navigation(self.app), message.value.strip(), self.query_one("#choices", OptionList)
        path = expanded(typed)
        if typed and is_file(path):
            app.edit_file(path)
        elif typed and is_file(path / "run.json"):
            app.watch_run(path)
        elif typed and is_folder(path):
            self._place = path
            message.input.value = ""
            self.action_refresh()
            self.set_focus(choices)
        elif choices.option_count:
            self.set_focus(choices)
        else:
            told = say("no file, run or folder {path}, and nothing in the list matches these words")
            self.notify(told.format(path=typed), severity="warning", markup=False)

    def action_filter(self) -> None:
        self.set_focus(self.query_one("#start-filter"))

    def action_clear(self) -> None:
        """Leave the filter; on the list itself there is nothing behind it, and escape never ends the app."""
        words = self.query_one("#start-filter", Input)
        if not words.value and not words.has_focus:
            if self._place == Path():
                self.app.clear_notifications()  # pressed again, it covers the list no further
                self.notify(say("ctrl+q quits rlctl"))
            self._place = Path()
            self.action_refresh()
        words.value = ""
        self.set_focus(self.query_one("#choices"))

    def action_new(self) -> None:
        from rlctl.editing.session import Session

        navigation(self.app).edit(say("a new config"), lambda given: Session.new())

    def action_runs(self) -> None:
        from rlctl.tui.screens.runs import RunsScreen

        self.app.push_screen(RunsScreen(self.folder, self._run_places, readonly=self.readonly))
