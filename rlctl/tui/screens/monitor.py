"""The monitor: what a run does now, what it learned, what it answers, and what looks wrong. It only reads the run folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, VerticalScroll
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, Header, Input, OptionList, RichLog, Static, TabbedContent, TabPane
from textual.widgets.option_list import Option

from rlctl import runs
from rlctl.errors import RlctlError
from rlctl.monitor.metrics import names_matching
from rlctl.monitor.watching import RunView, StageView
from rlctl.tui.screens.ask import AskScreen
from rlctl.tui.widgets.metric_plot import MetricPlot
from rlctl.tui.widgets.run_texts import group_text, head_text, list_line, timeline_text
from rlctl.tui.widgets.spark import Spark

EVERY_SECONDS = 1.0
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
"""On the first page, where a run has them; of one that has none of them, its own first ones."""


class MonitorScreen(Screen[None]):
    """Watches one run, live or over."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "tab('overview')", "Overview", id="run.overview", tooltip="Phase, time, and the main curves"),
        Binding("2", "tab('metrics')", "Metrics", id="run.metrics", tooltip="Any metric, large"),
        Binding("3", "tab('samples')", "Samples", id="run.samples", tooltip="Prompts, responses and rewards of a step"),
        Binding("4", "tab('events')", "Events", id="run.events", tooltip="What happened"),
        Binding("left_square_bracket", "step(-1)", "Step before", id="run.before", key_display="["),
        Binding("right_square_bracket", "step(1)", "Step after", id="run.after", key_display="]"),
        Binding(
            "slash",
            "filter",
            "Filter",
            id="run.filter",
            key_display="/",
            tooltip="Pick metrics by expression or letters",
        ),
        Binding("l", "log_scale", "Log scale", id="run.log"),
        Binding("m", "smooth", "Smooth", id="run.smooth", tooltip="Not, a little, much"),
        Binding("S", "stop", "Stop", id="run.stop", tooltip="End the run after its step, with a checkpoint"),
        Binding("escape", "leave", "Back", id="run.leave"),
    ]

    class News(Message):
        """There is something new in the folder, or the time went on."""

        def __init__(self, something: bool, info: runs.RunInfo | None) -> None:
            self.something, self.info = something, info
            super().__init__()

    def __init__(self, folder: Path, *, readonly: bool = False) -> None:
        super().__init__()
        self.folder, self.readonly = folder, readonly
        self.view = RunView(folder)
        self.info: runs.RunInfo | None = None
        self.step: int | None = None
        """Whose samples are shown; None follows the newest."""
        self._shown_names: list[str] = []
        self._shown = False
        self._events_shown = 0

    def compose(self) -> ComposeResult:
        yield Header()
        yield Static("reading the run ...", id="run-head", markup=False)
        with TabbedContent(id="tabs"):
            with TabPane("1 Overview", id="overview"), VerticalScroll():
                yield Static("", id="timeline")
                yield Static("", id="advice", markup=False)
                yield Container(id="sparks")
            with TabPane("2 Metrics", id="metrics"):
                yield Input(placeholder="filter: an expression, or letters in their order", id="filter", compact=True)
                with Horizontal():
                    yield OptionList(id="metric-list")
                    yield MetricPlot(id="plot")
            with TabPane("3 Samples", id="samples"), Horizontal():
                yield OptionList(id="group-list")
                yield VerticalScroll(Static("", id="group-text", markup=False))
            with TabPane("4 Events", id="events"):
                yield RichLog(id="event-log", wrap=True, markup=False, max_lines=2000)
        yield Footer()

    def on_mount(self) -> None:
        self.title = self.folder.name
        self._poll()
        self.set_interval(EVERY_SECONDS, self._poll)

    @work(thread=True, exclusive=True, group="poll")
    def _poll(self) -> None:
        something = False
        try:
            while self.view.poll():
                something = True
            info: runs.RunInfo | None = runs.inspect(self.folder)
        except (RlctlError, OSError):
            info = None
        self.post_message(self.News(something, info))

    @on(News)
    async def _news(self, message: News) -> None:
        self.info = message.info
        now = time.time()
        self.query_one("#run-head", Static).update(head_text(self.view, self.info, now))
        advice = self.view.advice(now)  # also when nothing is new: a phase that stalls tells nothing
        self.query_one("#advice", Static).update("\n".join(f"! {item.message}\n  {item.remedy}" for item in advice))
        if self.view.stage is not None and (message.something or not self._shown):
            await self._show_stage(self.view.stage)
            self._shown = True
        self._show_events()

    async def _show_stage(self, stage: StageView) -> None:
        self.query_one("#timeline", Static).update(timeline_text(stage.steps, self.size.width - 4))
        await self._show_sparks(stage)
        self._list_metrics(stage)
        self._list_groups(stage)
        self.query_one(MetricPlot).show(stage)

    async def _show_sparks(self, stage: StageView) -> None:
        sparks = self.query_one("#sparks")
        names = [name for name in FIRST_METRICS if name in stage.steps.columns] or list(stage.steps.columns)[:6]
        names += [name for name in stage.evaluations.columns if name.endswith(("accuracy", "reward"))][:2]
        known = {spark.metric: spark for spark in self.query(Spark)}
        if list(known) != names:
            await sparks.remove_children()
            await sparks.mount_all([Spark(name) for name in names])
            known = {spark.metric: spark for spark in self.query(Spark)}
        for name, spark in known.items():
            table = stage.steps if name in stage.steps.columns else stage.evaluations
            spark.show(table.series(name))

    def _list_metrics(self, stage: StageView) -> None:
        names = [*stage.steps.columns, *stage.evaluations.columns]
        found = names_matching(names, self.query_one("#filter", Input).value)
        if found == self._shown_names:
            return
        self._shown_names = found
        listed = self.query_one("#metric-list", OptionList)
        listed.clear_options()
        listed.add_options([Option(name, id=name) for name in found])
        if found:
            listed.highlighted = 0

    def _list_groups(self, stage: StageView) -> None:
        steps = self.view.samples.steps(stage.name)
        if not steps:
            self.query_one("#group-text", Static).update("no responses are shown of this stage yet")
            return
        step = steps[-1] if self.step is None else min(steps, key=lambda known: abs(known - (self.step or 0)))
        groups = self.view.samples.groups(stage.name, step)
        listed = self.query_one("#group-list", OptionList)
        at = listed.highlighted or 0
        listed.clear_options()
        listed.add_options([list_line(group) for group in groups])
        listed.border_title = f"step {step}"
        if groups:
            listed.highlighted = min(at, len(groups) - 1)

    def _show_events(self) -> None:
        log = self.query_one("#event-log", RichLog)
        if self.view.events_told < self._events_shown:  # the log was begun anew
            log.clear()
            self._events_shown = 0
        new = min(self.view.events_told - self._events_shown, len(self.view.events))
        self._events_shown = self.view.events_told
        for event in list(self.view.events)[len(self.view.events) - new :]:
            when = time.strftime("%H:%M:%S", time.localtime(event.get("time", 0)))
            rest = {
                key: value for key, value in event.items() if key not in ("time", "kind") and value not in ("", None)
            }
            log.write(f"{when}  {event['kind']:<14} " + "  ".join(f"{key}={value}" for key, value in rest.items()))

    @on(OptionList.OptionHighlighted, "#metric-list")
    def _pick_metric(self, message: OptionList.OptionHighlighted) -> None:
        if message.option_id is not None and self.view.stage is not None:
            plot = self.query_one(MetricPlot)
            plot.metric = message.option_id
            plot.show(self.view.stage)

    @on(OptionList.OptionHighlighted, "#group-list")
    def _pick_group(self, message: OptionList.OptionHighlighted) -> None:
        stage = self.view.stage
        if stage is None:
            return
        steps = self.view.samples.steps(stage.name)
        step = steps[-1] if self.step is None else min(steps, key=lambda known: abs(known - (self.step or 0)))
        groups = self.view.samples.groups(stage.name, step)
        if message.option_index < len(groups):
            self.query_one("#group-text", Static).update(group_text(groups[message.option_index]))

    @on(Input.Changed, "#filter")
    def _filter(self) -> None:
        if self.view.stage is not None:
            self._list_metrics(self.view.stage)

    @on(Input.Submitted, "#filter")
    def _filtered(self) -> None:
        self.query_one("#metric-list").focus()

    def action_tab(self, name: str) -> None:
        self.query_one("#tabs", TabbedContent).active = name
        wanted = {"metrics": "#metric-list", "samples": "#group-list", "events": "#event-log"}.get(name)
        if wanted is not None:
            self.query_one(wanted).focus()

    def action_step(self, by: int) -> None:
        stage = self.view.stage
        steps = self.view.samples.steps(stage.name) if stage is not None else []
        if stage is None or not steps:
            return
        now = steps.index(min(steps, key=lambda known: abs(known - (self.step or steps[-1]))))
        place = max(0, min(len(steps) - 1, now + by))
        self.step = None if place == len(steps) - 1 else steps[place]
        self._list_groups(stage)

    def action_filter(self) -> None:
        self.action_tab("metrics")
        self.query_one("#filter").focus()

    def action_log_scale(self) -> None:
        self.query_one(MetricPlot).next_scale()

    def action_smooth(self) -> None:
        self.query_one(MetricPlot).next_smoothing()

    def action_stop(self) -> None:
        if self.readonly:
            self.notify("opened to watch only", severity="warning")
        elif self.info is None or self.info.status != "running":
            self.notify("the run is not running")
        else:
            question = f"Stop {self.info.name} after its step, with a checkpoint to go on from?"
            self.app.push_screen(AskScreen(question, "Stop"), lambda yes: self._stop() if yes else None)

    def _stop(self) -> None:
        try:
            if self.info is not None:
                runs.stop(self.info)
                self.notify(
                    f"{self.info.name} ends after its step; rlctl runs resume {self.folder} goes on", markup=False
                )
        except RlctlError as error:
            self.notify(str(error), severity="error", markup=False)

    def action_leave(self) -> None:
        if self.focused is self.query_one("#filter"):
            self.query_one("#metric-list").focus()
        elif len(self.app.screen_stack) > 2:
            self.app.pop_screen()
        else:
            self.app.exit()
