"""The tab of logs: the log of any process, from its end, as it grows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.markup import escape
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from rlctl.monitor.logs import LogFile, LogLine, LogTail, logs_of
from rlctl.monitor.watching import RunView
from rlctl.runs import RunInfo
from rlctl.tui.language import say
from rlctl.tui.panes.pane import Pane
from rlctl.tui.widgets.line import Line
from rlctl.tui.widgets.log_view import LogView


class LogsPane(Pane):
    """The logs of a run beside one of them."""

    SCOPED_CSS = False  # else nothing could hang on how wide the screen is
    DEFAULT_CSS = """
    LogsPane #logs { layout: vertical; height: 1fr; }
    LogsPane #log-list { height: auto; max-height: 6; }
    LogsPane #log-head { height: auto; padding: 0 1; color: $text-muted; display: none; }
    LogsPane #log-head.-told { display: block; }
    LogsPane #log-filter { display: none; }
    LogsPane #log-filter.-open { display: block; }
    LogsPane #log-view { height: 1fr; }
    .-low LogsPane #log-list { max-height: 3; border: none; padding: 0 1; }
    .-wide LogsPane #logs, .-very-wide LogsPane #logs { layout: horizontal; }
    .-wide LogsPane #log-list, .-very-wide LogsPane #log-list { width: 28; height: 1fr; max-height: 100%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", say("Filter"), id="logs.filter", key_display="/", tooltip=say(
            "Lines that match a regular expression or have these letters in order"
        )),
        Binding("x", "errors", say("Errors only"), id="logs.errors", tooltip=say("Lines that look like an error, or all")),
        Binding("t", "follow", say("Follow"), id="logs.follow", tooltip=say("Go to the end, and stay there as it grows")),
        Binding("b", "earlier", say("Load more"), id="logs.earlier", tooltip=say("Load more lines from before")),
        Binding("escape", "back", say("Back"), id="logs.back", show=False),
    ]  # fmt: skip

    class Read(Message):
        """The logs were looked at, and one of them was read."""

        def __init__(
            self, logs: Sequence[LogFile], tail: LogTail | None, lines: Sequence[LogLine], problem: str
        ) -> None:
            self.logs, self.tail, self.lines, self.problem = logs, tail, lines, problem
            super().__init__()

    def __init__(self) -> None:
        super().__init__()
        self.level = ""
        self.logs: Sequence[LogFile] = ()
        self.tail: LogTail | None = None
        self._wanted: str | None = None
        """The name of the log that is to be opened when it is there."""
        self._run: Path | None = None
        self._reading = self._once_more = self._to_end = False

    def compose(self) -> ComposeResult:
        with Container(id="logs"):
            yield OptionList(id="log-list", classes="panel", markup=False)
            with Vertical():
                yield Static("", id="log-head", markup=False)
                yield Line(placeholder=say("a regular expression, or letters in order"), id="log-filter", compact=True)
                yield LogView(id="log-view", classes="panel")

    def on_mount(self) -> None:
        self.query_one("#log-list").border_title = say("Logs")

    def show(self, view: RunView, info: RunInfo | None) -> None:
        self._run = view.folder
        self._look()

    def open(self, name: str) -> None:
        """Show the log of a process, when it is there."""
        self._wanted = name
        self._look()

    def _look(self) -> None:
        """Read what is new; one thread at a time, as they share the log."""
        if self._run is None:
            return
        if self._reading:
            self._once_more = True
            return
        self._reading = True
        self._read(self._run, self.tail, self.query_one("#log-filter", Input).value, self.level)

    @work(thread=True, group="logs")
    def _read(self, run: Path, tail: LogTail | None, wanted: str, level: str, further: bool = False) -> None:
        logs, lines, problem = logs_of(run), [], ""
        try:
            if tail is not None:
                if further:
                    tail.earlier()
                while tail.poll():
                    pass
                lines = tail.matching(wanted, level=level)
        except OSError as error:
            problem = f"{tail.path if tail else run}: {error.strerror}"
        self.post_message(self.Read(logs, tail, lines, problem))

    @on(Read)
    def _shown(self, message: Read) -> None:
        self._reading = False
        self._list(message.logs)
        if message.tail is self.tail and self.tail is not None:
            view = self.query_one(LogView)
            view.show(message.lines, to_end=self._to_end)
            self._to_end = False
            self._tell_head(message.problem)
        if self._once_more:
            self._once_more = False
            self._look()

    def _list(self, logs: Sequence[LogFile]) -> None:
        listed = self.query_one("#log-list", OptionList)
        names = [log.name for log in logs]
        if names != [log.name for log in self.logs]:
            before = self._opened()
            listed.clear_options()
            listed.add_options([Option(name) for name in names])
            if before in names:
                listed.highlighted = names.index(before)
        self.logs = logs
        if not logs:
            self._tell(say("There are no logs yet; each process writes one."))
        elif self._wanted is not None:
            found = [place for place, name in enumerate(names) if name.split("/")[-1] == self._wanted]
            if not found:
                self.notify(say("{name} has written no log").format(name=self._wanted), markup=False)
            else:
                listed.highlighted = found[0]
            self._wanted = None
        if logs and listed.highlighted is None:
            listed.highlighted = 0

    def _opened(self) -> str:
        """Of the log that is shown."""
        return next((log.name for log in self.logs if self.tail is not None and log.path == self.tail.path), "")

    def _tell_head(self, problem: str) -> None:
        assert self.tail is not None, "a log is shown"
        view = self.query_one(LogView)
        view.border_title = escape(self._opened())
        count = len(view.lines)
        parts = [say("1 line") if count == 1 else say("{count} lines").format(count=count)]
        if self.level or self.query_one("#log-filter", Input).value:
            total = len(self.tail.lines)
            told = say("{count} of 1 line") if total == 1 else say("{count} of {total} lines")
            parts[0] = told.format(count=count, total=total)
        if self.level:
            parts.append(say("errors only"))
        if self.tail.skipped:
            parts.append(say("{size} before these lines, b loads more").format(size=_size(self.tail.skipped)))
        parts.append(say("following") if view.follows else say("paused, t follows"))
        view.border_subtitle = escape(" · ".join(parts))
        self._tell(problem)

    def _tell(self, told: str) -> None:
        """Say above the log why there is none, or why it cannot be read."""
        head = self.query_one("#log-head", Static)
        head.set_class(bool(told), "-told")
        head.update(told)

    @on(OptionList.OptionHighlighted, "#log-list")
    def _pick(self, message: OptionList.OptionHighlighted) -> None:
        if message.option_index < len(self.logs):
            path = self.logs[message.option_index].path
            if self.tail is None or self.tail.path != path:
                self.tail, self._to_end = LogTail(path), True
                self._look()

    @on(OptionList.OptionSelected, "#log-list")
    def _enter(self) -> None:
        self.screen.set_focus(self.query_one(LogView))

    def action_filter(self) -> None:
        field = self.query_one("#log-filter", Input)
        field.add_class("-open")
        self.screen.set_focus(field)

    @on(Input.Changed, "#log-filter")
    def _filtered(self) -> None:
        self._to_end = True
        self._look()

    @on(Input.Submitted, "#log-filter")
    def _done(self) -> None:
        self.screen.set_focus(self.query_one(LogView))

    def action_errors(self) -> None:
        self.level, self._to_end = "" if self.level else "error", True
        self._look()

    def action_follow(self) -> None:
        self._to_end = True
        self._look()

    def action_earlier(self) -> None:
        if self.tail is not None and self.tail.skipped and not self._reading and self._run is not None:
            self._reading = True
            self._read(self._run, self.tail, self.query_one("#log-filter", Input).value, self.level, further=True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Escape is the screen's where there is nothing to leave here."""
        return action != "back" or self.query_one("#log-filter").has_class("-open")

    def action_back(self) -> None:
        """Leave the filter."""
        field = self.query_one("#log-filter", Input)
        field.remove_class("-open")
        field.value = ""
        self.screen.set_focus(self.query_one(LogView))


def _size(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB" if count >= 1 << 20 else f"{count / 1024:.0f} KiB"
