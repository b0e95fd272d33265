"""The tab of metrics: any of a stage, several at once, other runs over them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from rlctl.monitor.watching import RunView, StageView
from rlctl.runs import RunInfo
from rlctl.tui.dialogs.pick_runs import PickRunsScreen
from rlctl.tui.language import say
from rlctl.tui.panes.pane import Pane
from rlctl.tui.widgets.metric_browser import MetricBrowser
from rlctl.tui.widgets.metric_plot import Source


class MetricsPane(Pane):
    """The metrics of the run's stage, and of other runs that are laid over it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "overlay", say("Other runs"), id="metrics.runs", tooltip=say("Plot other runs with this one")),
        Binding("s", "stage", say("Stage"), id="metrics.stage", tooltip=say("The next stage of the run")),
    ]

    class Overlaid(Message):
        """Other runs were read."""

        def __init__(self, views: list[RunView]) -> None:
            self.views = views
            super().__init__()

    def __init__(self) -> None:
        super().__init__()
        self.others: list[RunView] = []
        self.stage: str | None = None
        """The one that was picked; None is the one that runs, or ran last."""
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
        sources = [
            Source(self._named(view, stage), stage) for view in views if (stage := self._stage_of(view)) is not None
        ]
        if sources:
            self.query_one(MetricBrowser).show(sources, always_named=self.stage is not None)

    def _stage_of(self, view: RunView) -> StageView | None:
        """The stage whose metrics are drawn; of a run without the one that was picked, its own."""
        return view.stages.get(self.stage or "", view.stage)

    def _named(self, view: RunView, stage: StageView) -> str:
        name = view.folder.name
        return f"{name}, {say('stage {name}').format(name=stage.name)}" if len(view.stages) > 1 else name

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Stages are picked where there are several."""
        return action != "stage" or (self._view is not None and len(self._view.stages) > 1)

    def action_stage(self) -> None:
        """The metrics of the stage after the one that is drawn; of the first after the last."""
        if self._view is None or (shown := self._stage_of(self._view)) is None:
            return
        names = list(self._view.stages)
        self.stage = names[(names.index(shown.name) + 1) % len(names)]
        self._draw()

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
