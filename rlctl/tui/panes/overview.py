"""The first tab: what looks wrong, the reward, the newest numbers, where the time goes, what groups are worth, other curves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widgets import Static

from rlctl.common.errors import RlctlError
from rlctl.common.messages.recorded import text_in
from rlctl.monitor.metrics import EMPTY, Series
from rlctl.monitor.samples import Group
from rlctl.monitor.watching import RunView, StageView
from rlctl.runs import RunInfo
from rlctl.tui.dialogs.ask import ChooseScreen
from rlctl.tui.language import LANGUAGE, say
from rlctl.tui.panes.pane import Pane
from rlctl.tui.widgets.run_texts import advice_card, rewards_text, ribbon, shares_text, tiles
from rlctl.tui.widgets.sample_texts import plain
from rlctl.tui.widgets.spark import Spark

MAIN = "reward/mean"
"""What the large chart shows; of a run that has no reward, its loss, or else its first metric."""
SPARK = (28, 6, 11)
"""Fewest cells of a small chart, and its fewest and most lines."""
TURN_SECONDS = 0.01
"""Between the drawing of two charts."""
INSTEAD = ("policy/loss", "sft/loss", "loss")
FIRST_METRICS = (
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
    """Advice, curves, time and groups of the stage that runs."""

    SCOPED_CSS = False  # else nothing could hang on how wide the screen is
    DEFAULT_CSS = """
    OverviewPane .part { display: none; height: auto; }
    OverviewPane .part.-told { display: block; }
    OverviewPane #nothing { padding: 0 1; }
    OverviewPane #advice { border: round $warning; border-title-color: $warning; border-title-style: bold; padding: 0 1; }
    OverviewPane #top.-told { height: 1fr; min-height: 10; }
    OverviewPane #top Spark { height: 1fr; width: 2fr; }
    OverviewPane #tiles { width: 1fr; height: 1fr; min-width: 32; max-width: 46; text-wrap: nowrap; }
    OverviewPane #groups.-told { layout: horizontal; }
    OverviewPane #rewards { width: 1fr; height: 100%; }
    OverviewPane #shares { width: 1fr; height: auto; }
    OverviewPane #sparks { layout: grid; grid-rows: 6; height: auto; }
    .-small OverviewPane #groups.-told, .-narrow OverviewPane #groups.-told { layout: vertical; }
    .-small OverviewPane #rewards, .-small OverviewPane #shares,
    .-narrow OverviewPane #rewards, .-narrow OverviewPane #shares { width: 100%; height: auto; }
    OverviewPane #zero { color: $text-muted; padding: 0 1; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "apply", say("Apply advice"), id="overview.apply",
                tooltip=say("Open the config of a next run with the change that an advice names, from the last checkpoint")),
    ]  # fmt: skip

    class Apply(Message):
        """A person wants a next run with the change of an advice."""

        def __init__(self, stage: str, code: str) -> None:
            self.stage, self.code = stage, code
            super().__init__()

    class Offered(Message):
        """It was read what the advices of a stage would change."""

        def __init__(self, asked: tuple[str, tuple[str, ...]], changes: dict[str, str]) -> None:
            self.asked, self.changes = asked, changes
            super().__init__()

    class Rewards(Message):
        """The groups of a step were read."""

        def __init__(self, step: int, groups: Sequence[Group]) -> None:
            self.step, self.groups = step, groups
            super().__init__()

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[RunView, int] | None = None
        """View and version of what is drawn."""
        self._fitted: Size | None = None
        """The size that it is drawn for."""
        self._last: tuple[RunView, RunInfo | None] | None = None
        self._left: float | None = None
        """Seconds until the end; None if they are not known."""
        self._rewards_of: tuple[str, int] | None = None
        self._asked: tuple[str, tuple[str, ...]] | None = None
        """The stage and the advices whose changes were read last."""
        self._changes: dict[str, str] = {}
        """What an advice would change in the config, by its code."""

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(say("the run has recorded nothing yet"), id="nothing", classes="part -told", markup=False)
            yield Static("", id="advice", classes="part", markup=False)
            with Horizontal(id="top", classes="part"):
                yield Spark(MAIN, id="main", by_height=True)
                yield Static("", id="tiles", classes="panel", markup=False)
            yield Static("", id="timeline", classes="part panel", markup=False)
            yield Container(id="sparks")
            yield Static("", id="zero", classes="part", markup=False)
            with Container(id="groups", classes="part"):
                yield Static("", id="shares", classes="panel", markup=False)
                yield Static("", id="rewards", classes="panel", markup=False)

    def on_mount(self) -> None:
        self.query_one("#advice").border_title = say("! advice")
        self.query_one("#tiles").border_title = say("now")

    def show(self, view: RunView, info: RunInfo | None) -> None:
        self._last = (view, info)
        now = time.time() if info is not None and info.status == "running" else 0.0  # only what runs can stall
        advices = view.advice(now)
        table = view.stage.steps if view.stage is not None else None
        self._ask_changes(view, tuple(advice.code for advice in advices))
        cards = [advice_card(advice, table, self._changes.get(advice.code, "")) for advice in advices]
        self._tell("#advice", Content("\n").join(cards))
        if view.stage is None or not len(view.stage.steps):
            self.query_one("#nothing", Static).update(_before_steps(view, info))
        if view.stage is None or not self.size.width:
            return
        if (view, view.version) != self._shown:
            self._shown = (view, view.version)
            self._draw(view, view.stage, info)
        elif self.size != self._fitted:
            self._fit(view.stage, len(self.query("#sparks Spark")))

    def _draw(self, view: RunView, stage: StageView, info: RunInfo | None) -> None:
        has_steps = bool(len(stage.steps))
        self.query_one("#nothing").set_class(not has_steps, "-told")
        self.query_one("#top").set_class(has_steps, "-told")
        self._left = view.seconds_left if info is not None and info.status == "running" else None
        self.call_after_refresh(self._show_tiles)  # their panel has no size before it is seen
        self.query_one("#shares", Static).update(shares_text(stage.steps))
        self.query_one("#shares").border_title = say("groups and responses")
        self._tell_groups()
        self._fit(stage, self._show_curves(stage))
        self.call_after_refresh(self._read_rewards, view, stage.name)

    def _fit(self, stage: StageView, small: int) -> None:
        """Lay out and draw what depends on the size; charts draw themselves when they have theirs."""
        self._fitted = self.size
        told, seconds = ribbon(stage.steps, self.size.width - 5)
        self._tell("#timeline", told)
        self.query_one("#timeline").border_title = say("a step takes {time}").format(time=seconds)
        self._lay_out(small)

    def _ask_changes(self, view: RunView, codes: tuple[str, ...]) -> None:
        """Read what the advices would change, where they are others than before."""
        asked = (view.stage.name, codes) if view.stage is not None else None
        if asked is None or asked == self._asked:
            return
        self._asked = asked
        if asked[1]:
            self.call_after_refresh(self._read_changes, view.folder, asked)

    @work(thread=True, exclusive=True, group="changes")
    def _read_changes(self, folder: Path, asked: tuple[str, tuple[str, ...]]) -> None:
        from rlctl.tui.advised import offered

        try:
            changes = offered(folder, *asked)
        except (RlctlError, OSError):  # the advice is shown without a change
            changes = {}
        self.post_message(self.Offered(asked, changes))

    @on(Offered)
    def _show_changes(self, message: Offered) -> None:
        if message.asked == self._asked and message.changes != self._changes:
            self._changes = message.changes
            self.refresh_bindings()
            if self._last is not None:
                self.show(*self._last)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """An advice is applied where one changes the config."""
        return action != "apply" or bool(self._offers())

    def _offers(self) -> list[tuple[str, str]]:
        """The advices in sight that change the config, each with its change."""
        codes = self._asked[1] if self._asked is not None else ()
        return [(code, self._changes[code]) for code in codes if code in self._changes]

    def action_apply(self) -> None:
        """Open the next run, with the one change that is offered, or the one that a person chooses."""
        offers = self._offers()
        if len(offers) == 1:
            self._apply(offers[0][0])
            return
        answers = [(str(number), change) for number, (_, change) in enumerate(offers, start=1)]
        question = say("Which change should the config of the next run have?")
        self.app.push_screen(
            ChooseScreen(question, answers), lambda answer: self._apply(offers[int(answer) - 1][0]) if answer else None
        )

    def _apply(self, code: str) -> None:
        if self._asked is not None:
            self.post_message(self.Apply(self._asked[0], code))

    def on_resize(self) -> None:
        if self._last is not None:
            self.show(*self._last)
        self.call_after_refresh(self._show_tiles)  # once their panel has its new size

    def _show_tiles(self) -> None:
        stage = self._last[0].stage if self._last is not None else None
        panel = self.query_one("#tiles", Static)
        size = panel.content_size
        if stage is not None and size.width:
            panel.update(tiles(stage, self._left, size.width, size.height), layout=False)

    def _tell(self, name: str, text: str | Content) -> None:
        part = self.query_one(name, Static)
        part.set_class(bool(str(text)), "-told")
        part.update(text)

    @work(thread=True, exclusive=True)
    def _read_rewards(self, view: RunView, stage: str) -> None:
        steps = view.samples.steps(stage)
        if steps and self._rewards_of != (stage, steps[-1]):
            self._rewards_of = (stage, steps[-1])
            self.post_message(self.Rewards(steps[-1], view.samples.groups(stage, steps[-1])))

    @on(Rewards)
    def _show_rewards(self, message: Rewards) -> None:
        rewards = self.query_one("#rewards", Static)
        rewards.border_title = say("rewards of step {step}").format(step=message.step)
        rewards.update(rewards_text(message.groups))
        self._tell_groups()

    def _tell_groups(self) -> None:
        """Show what there is of groups and rewards: supervised fine-tuning has neither."""
        parts = [self.query_one(name, Static) for name in ("#shares", "#rewards")]
        for part in parts:
            part.display = bool(str(part.content))
        self.query_one("#groups").set_class(any(part.display for part in parts), "-told")

    def _show_curves(self, stage: StageView) -> int:
        """The main chart, and a chart for each other curve: how many. Those that are 0 throughout are only named."""
        known = stage.steps.columns
        main = next((name for name in (MAIN, *INSTEAD) if name in known), next(iter(known), MAIN))
        chart = self.query_one("#main", Spark)
        chart.metric = main
        names = [name for name in FIRST_METRICS if name in known]
        if not names and main != MAIN:
            names = [name for name in known if name != main][:6]
        names += [name for name in stage.evaluations.columns if name.endswith(("accuracy", "reward"))][:2]
        series = {name: stage.table_of(name).series(name) for name in names}
        zero = [name for name, found in series.items() if found.is_zero]
        self._tell("#zero", say("0 throughout: {names}").format(names=", ".join(map(plain, zero))) if zero else "")
        shown = [name for name in names if name not in zero]
        sparks = {spark.metric: spark for spark in self.query("#sparks Spark").results(Spark)}
        if list(sparks) != shown:
            self.query("#sparks Spark").remove()
            sparks = {name: Spark(name) for name in shown}
            self.query_one("#sparks").mount_all(sparks.values())
        shown_now = [(chart, stage.steps.series(main), _evaluations(stage) if main == MAIN else EMPTY)]
        self._draw_each([*shown_now, *((spark, series[name], EMPTY) for name, spark in sparks.items())])
        return len(sparks)

    @work(exclusive=True, group="charts")
    async def _draw_each(self, charts: Sequence[tuple[Spark, Series, Series]]) -> None:
        """Draw one chart after another, with a turn for keys between them: together, those of a long run hold a key up."""
        for chart, series, marks in charts:
            chart.show(series, marks)
            await asyncio.sleep(TURN_SECONDS)

    def _lay_out(self, count: int) -> None:
        """Give small charts as few rows as fit, filled evenly, and more lines where the screen is tall."""
        rows = -(-count // max(1, self.size.width // SPARK[0])) or 1
        grid = self.query_one("#sparks").styles
        grid.grid_size_columns = -(-count // rows) or 1
        height = max(SPARK[1], min(SPARK[2], self.size.height // (4 * rows)))
        grid.grid_rows = str(height)
        for spark in self.query("#sparks Spark"):
            spark.styles.height = height


def _evaluations(stage: StageView) -> Series:
    """Of the first data that is evaluated, the rewards: they are on the scale of the reward."""
    name = next((name for name in stage.evaluations.columns if name.endswith("/reward")), "")
    return stage.evaluations.series(name)


def _before_steps(view: RunView, info: RunInfo | None) -> str:
    """What stands where there is no step yet: that the run starts, and what it has told of that."""
    if info is None or info.status != "running":
        return say("the run has recorded nothing yet")
    told = [
        text_in(event, "message", LANGUAGE)
        for event in view.events
        if event["kind"] in ("advisory", "log") and event.get("message")
    ]
    starts = say(
        "Starting: Ray and the workers start, the model loads, then the first step begins. See 5 and 6 for details."
    )
    return "\n".join([starts, *(f"  {plain(message)}" for message in told[-8:])])
