"""Metrics of one run or several: a list to pick from by letters or expression, beside the plot of those that are picked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from rlctl.monitor.metrics import EMPTY, Series, names_matching
from rlctl.tui.language import say
from rlctl.tui.widgets.line import Line
from rlctl.tui.widgets.metric_grid import MetricGrid
from rlctl.tui.widgets.metric_plot import MetricPlot, Source
from rlctl.tui.widgets.sample_texts import plain

FIRST = ("reward/mean", "policy/loss", "sft/loss", "loss")
"""What is drawn first: the first of these that there is."""
OF_THE_PLOT = ("mark", "mark_all", "log_scale", "smooth", "own_range", "plot")
"""What does nothing in the grid."""


class MetricBrowser(Vertical):
    """What is marked is drawn, and what is under the cursor of the list."""

    DEFAULT_CSS = """
    MetricBrowser > Horizontal { width: 100%; }
    MetricBrowser #metric-list { width: 38; max-width: 50%; text-wrap: nowrap; text-overflow: ellipsis; }
    MetricBrowser MetricPlot { width: 1fr; }
    MetricBrowser MetricGrid { display: none; width: 1fr; padding: 0 1; }
    MetricBrowser.-grid MetricGrid { display: block; }
    MetricBrowser.-grid MetricPlot, MetricBrowser.-grid #metric-list { display: none; }
    MetricBrowser #filter { margin: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", say("Filter"), id="metrics.filter", key_display="/",
                tooltip=say("Pick metrics by expression or letters")),
        Binding("space", "mark", say("Mark"), id="metrics.mark", tooltip=say("Plot this metric together with others")),
        Binding("a", "mark_all", say("Mark all"), id="metrics.mark_all",
                tooltip=say("Plot all listed metrics, or none")),
        Binding("l", "log_scale", say("Log scale"), id="metrics.log"),
        Binding("m", "smooth", say("Smooth"), id="metrics.smooth", tooltip=say("Off, light or strong")),
        Binding("n", "own_range", say("Own range"), id="metrics.range",
                tooltip=say("Each curve between its lowest and highest value")),
        Binding("g", "grid", say("Grid"), id="metrics.grid", tooltip=say("All listed metrics as small charts, and back")),
        Binding("p", "plot", say("To the plot"), id="metrics.plot", tooltip=say("Cursor and zoom; p goes back")),
        Binding("escape", "clear_filter", say("Clear filter"), id="metrics.clear", show=False),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.marked: list[str] = []
        self._sources: Sequence[Source] = ()
        self._listed: list[str] = []

    def compose(self) -> ComposeResult:
        yield Line(
            placeholder=say("/ filters by a regular expression, or by letters in order"), id="filter", compact=True
        )
        with Horizontal():
            yield OptionList(id="metric-list", classes="panel")
            yield MetricPlot(id="curves", classes="panel")
            yield MetricGrid(id="grid")

    def on_mount(self) -> None:
        self.query_one("#metric-list").border_title = say("Metrics")

    def show(self, sources: Sequence[Source], *, always_named: bool = False) -> None:
        """Show the metrics of runs as they are now; with ``always_named`` the run is told where it is the only one."""
        self._sources = sources
        self.query_one(MetricPlot).always_named = always_named
        self._list()
        self._plot()

    @property
    def is_grid(self) -> bool:
        """Whether all listed metrics are shown as small charts."""
        return self.has_class("-grid")

    def focus_list(self) -> None:
        self.screen.set_focus(self.query_one(MetricGrid) if self.is_grid else self.query_one("#metric-list"))

    def action_grid(self) -> None:
        """Show all listed metrics as small charts, or one of them large."""
        self.set_class(not self.is_grid, "-grid")
        self.refresh_bindings()
        self._plot()
        self.call_after_refresh(self.focus_list)

    @on(MetricGrid.Opened)
    def _open(self, message: MetricGrid.Opened) -> None:
        message.stop()
        self._options.highlighted = self._listed.index(message.metric)
        self.action_grid()

    def _series(self, name: str) -> Series:
        """A metric of the first run that has it."""
        for source in self._sources:
            if len(found := source.stage.table_of(name).series(name)):
                return found
        return EMPTY

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "clear_filter":
            return self.query_one("#filter").has_focus or bool(self.query_one("#filter", Input).value)
        return not self.is_grid or action not in OF_THE_PLOT

    @property
    def _options(self) -> OptionList:
        return self.query_one("#metric-list", OptionList)

    def _list(self) -> None:
        tables = [table for source in self._sources for table in (source.stage.steps, source.stage.evaluations)]
        names = dict.fromkeys(name for table in tables for name in table.columns)
        found = names_matching(names, self.query_one("#filter", Input).value)
        if found == self._listed:
            return
        under = self._under
        self._listed = found
        self._options.clear_options()
        self._options.add_options([Option(self._line(name), id=name) for name in found])
        if found:
            first = next((name for name in FIRST if name in found), found[0])
            self._options.highlighted = found.index(under if under in found else first)

    @property
    def _under(self) -> str | None:
        """The metric under the cursor of the list."""
        at = self._options.highlighted
        return self._listed[at] if at is not None and at < len(self._listed) else None

    def _line(self, name: str) -> Content:
        return Content(plain(f"[{'x' if name in self.marked else ' '}] {name}"))

    def _plot(self) -> None:
        if self.is_grid:
            ordered = sorted(self._listed, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
            self.query_one(MetricGrid).show([(name, self._series(name)) for name in ordered])
            return
        under = [name for name in [self._under] if name is not None and name not in self.marked]
        self.query_one(MetricPlot).show(self._sources, [*self.marked, *under])

    @on(OptionList.OptionHighlighted, "#metric-list")
    def _move(self) -> None:
        self._plot()

    @on(OptionList.OptionSelected, "#metric-list")
    def _select(self) -> None:
        self.action_mark()

    @on(Input.Changed, "#filter")
    def _filter(self) -> None:
        self._list()
        self._plot()

    @on(Input.Submitted, "#filter")
    def _filtered(self) -> None:
        self.focus_list()

    def action_filter(self) -> None:
        self.screen.set_focus(self.query_one("#filter"))

    def action_clear_filter(self) -> None:
        self.query_one("#filter", Input).value = ""
        self.focus_list()

    def action_mark(self) -> None:
        if (name := self._under) is not None:
            self._set_marked(
                [known for known in self.marked if known != name] if name in self.marked else [*self.marked, name]
            )

    def action_mark_all(self) -> None:
        more = [name for name in self._listed if name not in self.marked]
        self._set_marked([*self.marked, *more] if more else [name for name in self.marked if name not in self._listed])

    def _set_marked(self, names: list[str]) -> None:
        self.marked = names
        for name in self._listed:
            self._options.replace_option_prompt(name, self._line(name))
        self._plot()

    def action_plot(self) -> None:
        if self._options.has_focus:
            self.query_one(MetricPlot).focus_plot()
        else:
            self.focus_list()

    def action_log_scale(self) -> None:
        self.query_one(MetricPlot).next_scale()

    def action_smooth(self) -> None:
        self.query_one(MetricPlot).next_smoothing()

    def action_own_range(self) -> None:
        self.query_one(MetricPlot).next_range()
