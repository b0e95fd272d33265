"""A metric in three lines: name, newest value and range, and its course."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Label, Sparkline

from rlctl.monitor.metrics import EMPTY, Series
from rlctl.tui.language import say

POINTS = 400


class Spark(Vertical):
    """One metric of the first page."""

    DEFAULT_CSS = """
    Spark { height: 4; width: 1fr; padding: 0 1; }
    Spark Sparkline { height: 2; }
    """

    def __init__(self, metric: str) -> None:
        super().__init__()
        self.metric = metric
        self._series: Series = EMPTY

    def compose(self) -> ComposeResult:
        yield Label(self.metric, markup=False)
        yield Sparkline([])

    def on_mount(self) -> None:
        self._draw()

    def show(self, series: Series) -> None:
        """Show the metric as it is now."""
        self._series = series
        if self.is_mounted:
            self._draw()

    def _draw(self) -> None:
        series = self._series
        if not len(series):
            return
        low, high = series.extremes()
        around = say("{low:.3g} to {high:.3g}").format(low=low, high=high)
        text = f"{self.metric}  {series.values[-1]:.4g}  ({around})"
        self.query_one(Label).update(text)
        self.query_one(Sparkline).data = [value - low for value in series.thinned(POINTS).values]
