"""Metrics large: several of several runs over their steps, with what each says at the cursor.

The plot library loads when something is first drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.color import Color
from textual.containers import Vertical
from textual.content import Content
from textual.markup import escape
from textual.widgets import Static

from rlctl.config.chinese import in_words
from rlctl.monitor.metrics import Series
from rlctl.monitor.watching import StageView
from rlctl.tui.language import say
from rlctl.tui.themes import SERIES
from rlctl.tui.widgets.sample_texts import plain

if TYPE_CHECKING:
    from rlctl.tui.widgets.curves_plot import CurvesPlot

POINTS = 600
"""Points of a curve: about two a column of a wide terminal, lowest and highest."""
SMOOTHING = (0.0, 0.6, 0.95)
MARKS = 5
"""Places along a curve where its letter stands."""
MOST = 12
"""Curves at a time."""


@dataclass(frozen=True)
class Source:
    """A run whose metrics are drawn."""

    name: str
    stage: StageView


@dataclass(frozen=True)
class Curve:
    """A metric of a run, with the letter by which it is known."""

    letter: str
    metric: str
    run: str
    color: str
    series: Series
    smooth: Series
    """As it is drawn, but for the scale."""


class MetricPlot(Vertical):
    """Curves, and a line of each with its letter, its name and its value."""

    DEFAULT_CSS = """
    MetricPlot #plot-place { height: 1fr; }
    MetricPlot #plot-values { height: auto; max-height: 12; padding: 0 1; }
    """

    def __init__(self, *, id: str, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.metrics: list[str] = []
        self.smoothing = SMOOTHING[1]
        self.logarithmic = False
        self.own_range = False
        """Each curve between its own lowest and highest value, so that curves of other sizes are seen together."""
        self.always_named = False
        """Whether the run of a curve is told where it is the only one."""
        self._sources: Sequence[Source] = ()
        self._plot: CurvesPlot | None = None
        self._ready = False
        """Whether the plot can be drawn on."""
        self._curves: list[Curve] = []

    def compose(self) -> ComposeResult:
        yield Vertical(id="plot-place")
        yield Static("", id="plot-values", markup=False)

    def next_scale(self) -> None:
        """The other scale."""
        self.logarithmic = not self.logarithmic
        self._draw()

    def next_smoothing(self) -> None:
        """The next of none, a little, much."""
        self.smoothing = SMOOTHING[(SMOOTHING.index(self.smoothing) + 1) % len(SMOOTHING)]
        self._draw()

    def next_range(self) -> None:
        """Each curve in its own range, or all in one."""
        self.own_range = not self.own_range
        self._draw()

    def show(self, sources: Sequence[Source], metrics: list[str]) -> None:
        """Show metrics of runs as they are now; nothing is drawn while the plot cannot be seen."""
        self._sources, self.metrics = sources, metrics[:MOST]
        if self.region.height:
            self._draw()

    def on_show(self) -> None:
        self._draw()

    def focus_plot(self) -> None:
        """Where the keys of the plot go."""
        if self._plot is not None:
            self.screen.set_focus(self._plot)

    def _draw(self) -> None:
        if not self._sources or not self.metrics:
            return
        if self._plot is None:
            from rlctl.tui.widgets.curves_plot import CurvesPlot

            self._plot = CurvesPlot()
            self.query_one("#plot-place").mount(self._plot)
        if not self._ready:
            return
        self._curves = list(self._made())
        self.border_title = escape(", ".join(self.metrics))
        self._draw_curves(self._plot)
        self._tell_values()

    def _made(self) -> Iterator[Curve]:
        pairs = [(source, metric) for metric in self.metrics for source in self._sources]
        variables = self.app.get_css_variables()
        for place, (source, metric) in enumerate(pairs[:MOST]):
            color = Color.parse(variables[SERIES[place % len(SERIES)].removeprefix("$")])
            series = source.stage.table_of(metric).series(metric)
            low, high = series.extremes() if len(series) else (0.0, 0.0)
            yield Curve(
                letter=chr(ord("A") + place),
                metric=metric,
                run=source.name if self.always_named or len(self._sources) > 1 else "",
                color=color.hex,
                series=series,
                # of a constant, smoothing would draw the rounding
                smooth=series.smoothed(self.smoothing) if low < high else series,
            )

    def _scaled(self, points: Series, whole: Series) -> Series:
        """Points of a curve on the chosen scale."""
        if not self.logarithmic and not self.own_range:
            return points
        steps, values = points.steps, points.values
        low, high = whole.extremes()
        if self.logarithmic:
            pairs = [(step, math.log10(value)) for step, value in zip(steps, values, strict=True) if value > 0]
            steps, values = [step for step, _ in pairs], [value for _, value in pairs]
            low, high = (
                (math.log10(low) if low > 0 else min(values, default=0.0)),
                math.log10(high) if high > 0 else 0.0,
            )
        if self.own_range:
            values = [(value - low) / (high - low) if high > low else 0.5 for value in values]
        return Series(steps, values)

    def _seen_points(self, curve: Curve, plot: CurvesPlot) -> Series:
        """What is drawn of a curve: of the steps that are seen, few enough, and on the chosen scale."""
        seen = curve.smooth if plot.whole else curve.smooth.between(*plot.seen)
        return self._scaled(seen.thinned(POINTS), curve.smooth) if len(seen) else seen

    def _draw_curves(self, plot: CurvesPlot) -> None:
        from textual_plot import HiResMode

        plot.clear()
        known = [curve.smooth.steps for curve in self._curves if len(curve.smooth)]
        plot.steps = (min(steps[0] for steps in known), max(steps[-1] for steps in known)) if known else None
        drawn = [(curve, points) for curve in self._curves if len(points := self._seen_points(curve, plot))]
        plot.make_room(
            {s for _, points in drawn for s in points.steps}, {v for _, points in drawn for v in points.values}
        )
        faint = Color.parse(self.app.get_css_variables()["border-blurred"]).hex
        for curve, points in drawn:
            if self.smoothing and len(drawn) == 1:  # raw values behind the curve; behind several they would hide others
                raw = self._seen_points(replace(curve, smooth=curve.series), plot)
                plot.plot(list(raw.steps), list(raw.values), line_style=faint, hires_mode=HiResMode.BRAILLE)
            plot.plot(list(points.steps), list(points.values), line_style=curve.color, hires_mode=HiResMode.BRAILLE)
            # letters along a curve tell it from others without its color; one is all there is of a single point
            if len(self._curves) > 1 or len(points) == 1:
                places = sorted({round(part * (len(points) - 1) / MARKS) for part in range(1, MARKS + 1)})
                marks: dict[str, Any] = {"marker": curve.letter, "marker_style": f"bold {curve.color}"}
                plot.scatter([points.steps[at] for at in places], [points.values[at] for at in places], **marks)
        if plot.cursor is not None:
            plot.add_v_line(plot.cursor, line_style=Color.parse(self.app.get_css_variables()["foreground"]).hex)

    def _tell_values(self) -> None:
        cursor = self._plot.cursor if self._plot is not None else None
        lines = [self._value_line(curve, cursor) for curve in self._curves]
        how = [say("smoothed {weight}").format(weight=self.smoothing)] if self.smoothing else []
        how += [say("log10")] if self.logarithmic else []
        how += [say("each in its own range")] if self.own_range else []
        told = [*lines, *([Content(", ".join(how))] if how else [])]
        self.query_one("#plot-values", Static).update(Content("\n").join(told))

    def _value_line(self, curve: Curve, cursor: float | None) -> Content:
        series = curve.series
        found = series.at(series.steps[-1] if cursor is None else cursor) if len(series) else None
        name = plain("  ".join(part for part in (curve.metric, curve.run) if part))
        letter = (curve.letter, curve.color)
        if found is None:
            return Content.assemble(letter, f" {name}  {say('no values')}")
        told = f" {name}  {found[1]:.6g} " + say("at step {step}").format(step=found[0])
        if self.smoothing and (smooth := curve.smooth.at(found[0])):
            told += "  " + say("smoothed {value}").format(value=f"{smooth[1]:.6g}")
        return Content.assemble(letter, f"{told}  ({meaning(curve.metric)})" if len(self._curves) == 1 else told)

    def on_curves_plot_ready(self) -> None:
        self._ready = True
        self._draw()

    def on_plot_widget_scale_changed(self) -> None:
        if self._plot is not None:
            self._draw_curves(self._plot)

    def on_curves_plot_cursor_moved(self) -> None:
        if self._plot is not None:
            self._draw_curves(self._plot)
            self._tell_values()


def meaning(metric: str) -> str:
    """What a metric is, with its unit; empty for one that is not known."""
    from rlctl.runtime.reporting.metrics import describe

    found = describe(metric)
    return "" if found is None else say(found.help) + (f" [{in_words(found.unit)}]" if found.unit else "")
