"""The first tab: where the time of the last steps went, what looks wrong, and the main curves."""

from __future__ import annotations

import time

from textual.app import ComposeResult
from textual.containers import Container, VerticalScroll
from textual.widgets import Static

from rlctl.monitor.watching import RunView, StageView
from rlctl.runs import RunInfo
from rlctl.tui.panes.pane import Pane
from rlctl.tui.widgets.run_texts import advice_text, timeline_text
from rlctl.tui.widgets.spark import Spark

FIRST_METRICS = (
    "reward/mean",
    "response/length_mean",
    "policy/entropy",
    "policy/approx_kl",
    "policy/clip_fraction",
    "policy/grad_norm",
    "throughput/tokens_per_second",
    "staleness/mean",
)
"""Shown where a run has them; of one that has none of them, its own first ones."""


class OverviewPane(Pane):
    """Timeline, advice and curves of the stage that runs."""

    DEFAULT_CSS = """
    OverviewPane #timeline { height: auto; padding: 0 1; margin-bottom: 1; }
    OverviewPane #advice { height: auto; padding: 0 1; color: $warning; }
    OverviewPane #sparks { layout: grid; grid-size: 2; grid-gutter: 0 2; height: auto; }
    .-narrow OverviewPane #sparks { grid-size: 1; }
    """

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static("", id="timeline")
            yield Static("", id="advice", markup=False)
            yield Container(id="sparks")

    def show(self, view: RunView, info: RunInfo | None) -> None:
        advice = view.advice(time.time())
        self.query_one("#advice", Static).update("\n".join(advice_text(item) for item in advice))
        if view.stage is not None:
            self.query_one("#timeline", Static).update(timeline_text(view.stage.steps, self.size.width - 4))
            self._show_curves(view.stage)

    def _show_curves(self, stage: StageView) -> None:
        names = [name for name in FIRST_METRICS if name in stage.steps.columns] or list(stage.steps.columns)[:6]
        names += [name for name in stage.evaluations.columns if name.endswith(("accuracy", "reward"))][:2]
        known = {spark.metric: spark for spark in self.query(Spark)}
        if list(known) != names:
            self.query(Spark).remove()
            known = {name: Spark(name) for name in names}
            self.query_one("#sparks").mount_all(known.values())
        for name, spark in known.items():
            table = stage.steps if name in stage.steps.columns else stage.evaluations
            spark.show(table.series(name))
