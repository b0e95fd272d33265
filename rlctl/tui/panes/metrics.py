"""The tab of metrics: any of a stage, large."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from rlctl.monitor.metrics import names_matching
from rlctl.monitor.watching import RunView, StageView
from rlctl.runs import RunInfo
from rlctl.tui.language import say
from rlctl.tui.panes.pane import Pane
from rlctl.tui.widgets.metric_plot import MetricPlot


class MetricsPane(Pane):
    """A list of metrics beside the plot of one."""

    DEFAULT_CSS = """
    MetricsPane #metric-list { width: 34; }
    MetricsPane #plot { width: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "slash",
            "filter",
            say("Filter"),
            id="metrics.filter",
            key_display="/",
            tooltip=say("Pick metrics by expression or letters"),
        ),
        Binding("l", "log_scale", say("Log scale"), id="metrics.log"),
        Binding("m", "smooth", say("Smooth"), id="metrics.smooth", tooltip=say("Not, a little, much")),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._stage: StageView | None = None
        self._listed: list[str] = []

    def compose(self) -> ComposeResult:
        yield Input(placeholder=say("filter: an expression, or letters in their order"), id="filter", compact=True)
        with Horizontal():
            yield OptionList(id="metric-list")
            yield MetricPlot(id="plot")

    def focus_first(self) -> None:
        self.query_one("#metric-list").focus()

    def show(self, view: RunView, info: RunInfo | None) -> None:
        self._stage = view.stage
        if view.stage is not None:
            self._list(view.stage)
            self.query_one(MetricPlot).show(view.stage)

    def _list(self, stage: StageView) -> None:
        names = [*stage.steps.columns, *stage.evaluations.columns]
        found = names_matching(names, self.query_one("#filter", Input).value)
        if found == self._listed:
            return
        self._listed = found
        listed = self.query_one("#metric-list", OptionList)
        listed.clear_options()
        listed.add_options([Option(name, id=name) for name in found])
        if found:
            listed.highlighted = 0

    @on(OptionList.OptionHighlighted, "#metric-list")
    def _pick(self, message: OptionList.OptionHighlighted) -> None:
        if message.option_id is not None and self._stage is not None:
            plot = self.query_one(MetricPlot)
            plot.metric = message.option_id
            plot.show(self._stage)

    @on(Input.Changed, "#filter")
    def _filter(self) -> None:
        if self._stage is not None:
            self._list(self._stage)

    @on(Input.Submitted, "#filter")
    def _filtered(self) -> None:
        self.focus_first()

    def action_filter(self) -> None:
        self.query_one("#filter").focus()

    def action_log_scale(self) -> None:
        self.query_one(MetricPlot).next_scale()

    def action_smooth(self) -> None:
        self.query_one(MetricPlot).next_smoothing()
