"""A metric in three lines: name, newest value and range, and its course."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Label, Sparkline

from rlctl.monitor.metrics import Series

POINTS = 400


class Spark(Vertical):
    """One metric of the first page."""

    def __init__(self, metric: str) -> None:
        super().__init__(classes="spark")
        self.metric = metric

    def compose(self) -> ComposeResult:
        yield Label(self.metric, markup=False)
        yield Sparkline([])

    def show(self, series: Series) -> None:
        """Show the metric as it is now."""
        if not len(series):
            return
        low, high = min(series.values), max(series.values)
        text = f"{self.metric}  {series.values[-1]:.4g}  ({low:.3g} to {high:.3g})"
        self.query_one(Label).update(text)
        self.query_one(Sparkline).data = [value - low for value in series.thinned(POINTS).values]
