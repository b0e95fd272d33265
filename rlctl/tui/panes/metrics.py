"""The tab of metrics: any of a stage, several at once, other runs over them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from rlctl.monitor.watching import RunView
from rlctl.runs import RunInfo
from rlctl.tui.language import say
from rlctl.tui.panes.pane import Pane
from rlctl.tui.screens.pick_runs import PickRunsScreen
from rlctl.tui.widgets.metric_browser import MetricBrowser
from rlctl.tui.widgets.metric_plot import Source


class MetricsPane(Pane):
    """The metrics of the run's stage, and of other runs that are laid over it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "overlay", say("Other runs"), id="metrics.runs", tooltip=say("Lay other runs over this one")),
    ]

    class Overlaid(Message):
        """Other runs were read."""

        def __init__(self, views: list[RunView]) -> None:
            self.views = views
            super().__init__()

    def __init__(self) -> None:
        super().__init__()
        self.others: list[RunView] = []
        self._view: RunView | None = None
        self._shown: tuple[RunView, int] | None = None

    def compose(self) -> ComposeResult:
        yield MetricBrowser()

    def focus_first(self) -> None:
        self.query_one(MetricBrowser).focus_list()

    def show(self, view: RunView, info: RunInfo | None) -> None:
        self._view = view
        if (view, view.version) != self._shown:
            self._shown = (view, view.version)
            self._draw()

    def _draw(self) -> None:
        views = [view for view in [self._view, *self.others] if view is not None]
        sources = [Source(view.folder.name, view.stage) for view in views if view.stage is not None]
        if sources:
            self.query_one(MetricBrowser).show(sources)

    def action_overlay(self) -> None:
        if self._view is not None:
            chosen = [view.folder for view in self.others]
            picker = PickRunsScreen(self._view.folder.absolute().parent, without=self._view.folder, chosen=chosen)
            self.app.push_screen(picker, self._overlay)

    def _overlay(self, folders: list[Path] | None) -> None:
        if folders is not None:
            self._read(folders)

    @work(thread=True, exclusive=True)
    def _read(self, folders: list[Path]) -> None:
        known = {view.folder: view for view in self.others}
        views = []
        for folder in folders:
            try:
                views.append(known.get(folder) or RunView(folder).read_whole())
            except OSError as error:
                self.app.call_from_thread(self.notify, str(error), severity="error", markup=False)
        self.post_message(self.Overlaid(views))

    @on(Overlaid)
    def _overlaid(self, message: Overlaid) -> None:
        self.others = message.views
        self._draw()
