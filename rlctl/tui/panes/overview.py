"""The first tab: what looks wrong, where the time of the last steps went, what the groups are worth, and the main curves."""

from __future__ import annotations

import time
from collections.abc import Sequence

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from rlctl.monitor.samples import Group
from rlctl.monitor.watching import RunView, StageView
from rlctl.runs import RunInfo
from rlctl.tui.language import say
from rlctl.tui.panes.pane import Pane
from rlctl.tui.widgets.run_texts import advice_text, rewards_text, shares_text, timeline_text
from rlctl.tui.widgets.sample_texts import plain
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
    """Advice, timeline, groups and curves of the stage that runs."""

    SCOPED_CSS = False  # else nothing could hang on how wide the screen is
    DEFAULT_CSS = """
    OverviewPane .part { height: auto; padding: 0 1; margin-bottom: 1; display: none; }
    OverviewPane .part.-told { display: block; }
    OverviewPane #advice { color: $warning; border-left: thick $warning; }
    OverviewPane #groups { layout: grid; grid-size: 2; grid-rows: auto; grid-gutter: 0 2; }
    OverviewPane #groups Static { height: auto; }
    OverviewPane #sparks { layout: grid; grid-size: 2; grid-rows: auto; grid-gutter: 0 2; height: auto; }
    .-small OverviewPane #groups, .-narrow OverviewPane #groups, .-small OverviewPane #sparks { grid-size: 1; }
    .-very-wide OverviewPane #sparks { grid-size: 3; }
    """

    class Rewards(Message):
        """The groups of a step were read."""

        def __init__(self, step: int, groups: Sequence[Group]) -> None:
            self.step, self.groups = step, groups
            super().__init__()

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[RunView, int, int] | None = None
        """View, version and width of what is drawn."""
        self._last: tuple[RunView, RunInfo | None] | None = None
        self._rewards_of: tuple[str, int] | None = None

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(say("nothing is known of this run yet"), id="nothing", classes="part -told", markup=False)
            yield Static("", id="advice", classes="part", markup=False)
            yield Static("", id="timeline", classes="part", markup=False)
            with Container(id="groups", classes="part"):
                yield Static("", id="rewards", markup=False)
                yield Static("", id="shares", markup=False)
            yield Container(id="sparks")

    def show(self, view: RunView, info: RunInfo | None) -> None:
        self._last = (view, info)
        now = time.time() if info is not None and info.status == "running" else 0.0  # only what runs can stall
        self._tell("#advice", "\n".join(map(advice_text, view.advice(now))))
        if view.stage is None or not len(view.stage.steps):
            self.query_one("#nothing", Static).update(_before_steps(view, info))
        looked_at = (view, view.version, self.size.width)
        if view.stage is None or looked_at == self._shown or not self.size.width:
            return
        self._shown = looked_at
        stage = view.stage
        self.query_one("#nothing").set_class(not len(stage.steps), "-told")
        self._tell("#timeline", timeline_text(stage.steps, self.size.width - 6, 12 if self.size.height > 30 else 4))
        shares = shares_text(stage.steps)
        self.query_one("#shares", Static).update(shares)
        self.query_one("#groups").set_class(bool(shares) or self._rewards_of is not None, "-told")
        self._show_curves(stage)
        self._read_rewards(view, stage.name)

    def on_resize(self) -> None:
        if self._last is not None:
            self.show(*self._last)

    def _tell(self, name: str, text: str | Content) -> None:
        part = self.query_one(name, Static)
        part.set_class(bool(text), "-told")
        part.update(text)

    @work(thread=True, exclusive=True)
    def _read_rewards(self, view: RunView, stage: str) -> None:
        steps = view.samples.steps(stage)
        if steps and self._rewards_of != (stage, steps[-1]):
            self._rewards_of = (stage, steps[-1])
            self.post_message(self.Rewards(steps[-1], view.samples.groups(stage, steps[-1])))

    @on(Rewards)
    def _show_rewards(self, message: Rewards) -> None:
        self.query_one("#rewards", Static).update(rewards_text(message.groups, message.step))
        self.query_one("#groups").add_class("-told")

    def _show_curves(self, stage: StageView) -> None:
        names = [name for name in FIRST_METRICS if name in stage.steps.columns] or list(stage.steps.columns)[:6]
        names += [name for name in stage.evaluations.columns if name.endswith(("accuracy", "reward"))][:2]
        known = {spark.metric: spark for spark in self.query(Spark)}
        if list(known) != names:
            self.query(Spark).remove()
            known = {name: Spark(name) for name in names}
            self.query_one("#sparks").mount_all(known.values())
        for name, spark in known.items():
            spark.show(stage.table_of(name).series(name))


def _before_steps(view: RunView, info: RunInfo | None) -> str:
    """What stands where there is no step yet: that the run starts, and what it has told of that."""
    if info is None or info.status != "running":
        return say("nothing is known of this run yet")
    told = [
        str(event["message"]) for event in view.events if event["kind"] in ("advisory", "log") and event.get("message")
    ]
    starts = say(
        "It starts: Ray and the workers come up, the model is loaded. The first step follows. 5 and 6 tell more."
    )
    return "\n".join([starts, *(f"  {plain(message)}" for message in told[-8:])])
