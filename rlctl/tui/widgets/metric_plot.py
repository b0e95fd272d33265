"""A metric large: over steps, smoothed or not, linear or logarithmic. The plot library loads when it is first shown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from rlctl.monitor.metrics import Series
from rlctl.monitor.watching import StageView

if TYPE_CHECKING:
    from textual_plot import PlotWidget

POINTS = 2000
SMOOTHING = (0.0, 0.6, 0.95)


class MetricPlot(Vertical):
    """One metric of a stage."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.metric = ""
        self.smoothing = 0.0
        self.logarithmic = False
        self._plot: PlotWidget | None = None
        self._stage: StageView | None = None

    def compose(self) -> ComposeResult:
        yield Static("", id="plot-title", markup=False)

    def next_scale(self) -> None:
        """The other scale."""
        self.logarithmic = not self.logarithmic
        self._draw()

    def next_smoothing(self) -> None:
        """The next of none, a little, much."""
        self.smoothing = SMOOTHING[(SMOOTHING.index(self.smoothing) + 1) % len(SMOOTHING)]
        self._draw()

    def show(self, stage: StageView) -> None:
        """Show the metric of a stage as it is now; nothing is drawn while the plot cannot be seen."""
        self._stage = stage
        if self.metric and self.region.height:
            self._draw()

    def on_show(self) -> None:
        self._draw()

    def _draw(self) -> None:
        stage = self._stage
        if stage is None or not self.metric:
            return
        if self._plot is None:
            from textual_plot import PlotWidget

            self._plot = PlotWidget()
            self.mount(self._plot)
            self.call_after_refresh(self._draw)
            return
        table = stage.steps if self.metric in stage.steps.columns else stage.evaluations
        series = self._scaled(table.series(self.metric))
        self._plot.clear()
        if len(series):
            if self.smoothing:
                self._line(series, "grey50")
            self._line(series.smoothed(self.smoothing), "green")
        how = [f"smoothed {self.smoothing:g}"] if self.smoothing else []
        how += ["log10"] if self.logarithmic else []
        newest = f"{series.values[-1]:.6g}" if len(series) else "no values"
        self.query_one("#plot-title", Static).update(f"{self.metric}  {newest}  {', '.join(how)}")

    def _line(self, series: Series, style: str) -> None:
        from textual_plot import HiResMode

        thin = series.thinned(POINTS)
        assert self._plot is not None
        self._plot.plot(list(thin.steps), list(thin.values), line_style=style, hires_mode=HiResMode.BRAILLE)

    def _scaled(self, series: Series) -> Series:
        if not self.logarithmic:
            return series
        pairs = [
            (step, math.log10(value)) for step, value in zip(series.steps, series.values, strict=True) if value > 0
        ]
        return Series([step for step, _ in pairs], [value for _, value in pairs])
