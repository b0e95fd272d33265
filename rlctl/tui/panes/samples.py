"""The tab of samples: prompts, responses and rewards of a step, group by group."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import OptionList, Static

from rlctl.monitor.samples import Group
from rlctl.monitor.watching import RunView
from rlctl.runs import RunInfo
from rlctl.tui.language import say
from rlctl.tui.panes.pane import Pane
from rlctl.tui.widgets.run_texts import group_text, list_line


class SamplesPane(Pane):
    """The groups of a step beside one of them."""

    DEFAULT_CSS = """
    SamplesPane #group-list { width: 40; }
    SamplesPane #group-text { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "step(-1)", say("Step before"), id="samples.before", key_display="["),
        Binding("right_square_bracket", "step(1)", say("Step after"), id="samples.after", key_display="]"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.step: int | None = None
        """Whose samples are shown; None follows the newest."""
        self._view: RunView | None = None
        self._groups: list[Group] = []

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield OptionList(id="group-list")
            yield VerticalScroll(Static("", id="group-text", markup=False))

    def show(self, view: RunView, info: RunInfo | None) -> None:
        self._view = view
        steps = self._steps()
        if not steps or view.stage is None:
            self.query_one("#group-text", Static).update(say("no responses are shown of this stage yet"))
            return
        step = steps[-1] if self.step is None else min(steps, key=lambda known: abs(known - (self.step or 0)))
        listed = self.query_one("#group-list", OptionList)
        groups = view.samples.groups(view.stage.name, step)
        listed.border_title = say("step {step}").format(step=step)
        if groups == self._groups:
            return
        self._groups = groups
        at = listed.highlighted or 0
        listed.clear_options()
        listed.add_options([list_line(group) for group in groups])
        if groups:
            listed.highlighted = min(at, len(groups) - 1)

    def _steps(self) -> list[int]:
        view = self._view
        return view.samples.steps(view.stage.name) if view is not None and view.stage is not None else []

    @on(OptionList.OptionHighlighted, "#group-list")
    def _pick(self, message: OptionList.OptionHighlighted) -> None:
        if message.option_index < len(self._groups):
            self.query_one("#group-text", Static).update(group_text(self._groups[message.option_index]))

    def action_step(self, by: int) -> None:
        steps = self._steps()
        if self._view is None or not steps:
            return
        now = steps.index(min(steps, key=lambda known: abs(known - (self.step or steps[-1]))))
        place = max(0, min(len(steps) - 1, now + by))
        self.step = None if place == len(steps) - 1 else steps[place]
        self.show(self._view, None)
