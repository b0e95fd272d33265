"""The tab of samples: the responses of a step, group by group or sorted; one prompt over the steps; the worst of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from rlctl.common.language import later
from rlctl.monitor.courses import Courses
from rlctl.monitor.metrics import operated
from rlctl.monitor.samples import EVALUATION, SORTS, STEP, Group, Row, SampleIndex, rows_of, worst
from rlctl.monitor.watching import RunView
from rlctl.runs import RunInfo
from rlctl.tui.language import plural, say
from rlctl.tui.panes.pane import Pane
from rlctl.tui.widgets.line import Line
from rlctl.tui.widgets.sample_texts import (
    HEAD,
    course_line,
    difference_content,
    group_content,
    group_line,
    response_content,
    row_line,
    strip_of,
)

LIST_STRIP = 10
"""Most steps of a strip in the list."""

SORT_NAMES = {
    None: later("by group"),
    "reward": later("lowest reward first"),
    "length": later("longest first"),
    "advantage": later("lowest advantage first"),
    "mismatch": later("highest mismatch first"),
}
FILTER = later("By words, truncated, wrong, failed, reward<0.5, length>100, mismatch>0.1")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be shown."""

    stage: str
    kind: str = STEP
    step: int | None = None
    """None is the newest."""
    prompt: tuple[str, int] | None = None
    """Followed over the steps: its source and number."""
    worst: bool = False
    """Whether the worst responses of all steps are wanted."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the files say of it."""

    wanted: Wanted
    step: int | None
    steps: Sequence[int]
    groups: Sequence[tuple[int, Group]]
    courses: Courses


class SamplesPane(Pane):
    """A list of responses beside one of them."""

    SCOPED_CSS = False  # else nothing could hang on how wide the screen is
    DEFAULT_CSS = """
    SamplesPane #samples { layout: vertical; height: 1fr; }
    SamplesPane #sample-side { height: 45%; }
    SamplesPane #sample-head { height: auto; max-height: 2; padding: 0 1; color: $text-muted; }
    SamplesPane #sample-filter { display: none; }
    SamplesPane #sample-filter.-open { display: block; }
    SamplesPane #sample-list { height: 1fr; text-wrap: nowrap; text-overflow: ellipsis; }
    SamplesPane #sample-scroll { height: 1fr; }
    SamplesPane #sample-text { height: auto; }
    .-low SamplesPane #sample-side { min-height: 4; }
    .-low SamplesPane #sample-head { max-height: 2; }
    .-low SamplesPane #sample-list { border: none; padding: 0 1; }
    .-wide SamplesPane #samples, .-very-wide SamplesPane #samples { layout: horizontal; }
    .-wide SamplesPane #sample-side { width: 48%; height: 1fr; }
    .-very-wide SamplesPane #sample-side { width: 72; height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "step(-1)", say("Step before"), id="samples.before", key_display="["),
        Binding("right_square_bracket", "step(1)", say("Step after"), id="samples.after", key_display="]"),
        Binding("w", "worst", say("Worst"), id="samples.worst", tooltip=say("Go to the response with the lowest reward")),
        Binding("W", "worst_of_run", say("Worst of run"), id="samples.worst_of_run",
                tooltip=say("The responses with the lowest rewards of all steps, and back")),
        Binding("v", "compare", say("Compare"), id="samples.compare",
                tooltip=say("Compare other responses with this one word by word; press again to stop")),
        Binding("o", "sort", say("Order"), id="samples.sort", tooltip=say("By group, reward, length, advantage, mismatch")),
        Binding("slash", "filter", say("Filter"), id="samples.filter", key_display="/", tooltip=say(FILTER)),
        Binding("f", "follow", say("Follow prompt"), id="samples.follow", tooltip=say("This prompt in all steps, and back")),
        Binding("e", "evaluation", say("Evaluation"), id="samples.evaluation", tooltip=say(
            "Responses of evaluations, or of training"
        )),
        Binding("s", "stage", say("Stage"), id="samples.stage", tooltip=say("The next stage of the run")),
        Binding("n", "newest", say("Newest"), id="samples.newest", tooltip=say(
            "The newest step, and new ones as they come"
        )),
        Binding("escape", "back", say("Back"), id="samples.back", show=False),
    ]  # fmt: skip

    class Loaded(Message):
        """Samples were read."""

        def __init__(self, found: Found) -> None:
            self.found = found
            super().__init__()

    def __init__(self) -> None:
        super().__init__()
        self.kind, self.step, self.prompt = STEP, None, None  # type: str, int | None, tuple[str, int] | None
        self.worst_of_run = False
        self.compared: Row | None = None
        """The response that others are compared with."""
        self.stage: str | None = None
        """The one that was picked; None is the one that runs, or ran last."""
        self.sort: str | None = None
        self.found: Found | None = None
        self.entries: list[Group | Row] = []
        """What the lines of the list are."""
        self._steps: dict[int, int] = {}
        """The step of each group of the list, by the group's identity."""
        self._view: RunView | None = None
        self._asked: tuple[Wanted, int] | None = None
        """What was read last, and which version of the view it was."""
        self._chosen_here = -1
        """The line that was highlighted by no person."""

    def compose(self) -> ComposeResult:
        yield Static("", id="sample-head", markup=False)
        with Container(id="samples"):
            with Vertical(id="sample-side"):
                yield Line(placeholder=say("words, truncated, wrong, reward<0.5 ..."), id="sample-filter", compact=True)
                yield OptionList(id="sample-list", classes="panel", markup=False)
            yield VerticalScroll(Static("", id="sample-text", markup=False), id="sample-scroll", classes="panel")

    def on_mount(self) -> None:
        self.query_one("#sample-list").border_title = say(HEAD)

    def focus_first(self) -> None:
        self.screen.set_focus(self.query_one("#sample-list"))

    def show(self, view: RunView, info: RunInfo | None) -> None:
        self._view = view
        if view.stage is None:
            self._say_nothing()
            return
        wanted = self._wanted(self._stage_of(view))
        if self._asked != (wanted, view.version):
            self._asked = (wanted, view.version)
            self._read(view.samples, wanted)

    def _wanted(self, stage: str) -> Wanted:
        return Wanted(stage, self.kind, self.step, self.prompt, self.worst_of_run)

    def _stage_of(self, view: RunView) -> str:
        """The stage whose samples are shown; a run begun anew may not have the one that was picked."""
        newest = view.stage.name if view.stage is not None else ""
        return self.stage if self.stage in view.stages else newest

    def _again(self) -> None:
        if self._view is not None:
            self.show(self._view, None)

    @work(thread=True, exclusive=True, group="samples")
    def _read(self, index: SampleIndex, wanted: Wanted) -> None:
        steps = index.steps(wanted.stage, wanted.kind)
        step = min(
            steps, key=lambda known: abs(known - (steps[-1] if wanted.step is None else wanted.step)), default=None
        )
        if wanted.worst:
            groups = index.worst(wanted.stage, wanted.kind)
        elif wanted.prompt is not None:
            groups = index.follow(wanted.stage, wanted.kind, *wanted.prompt)
        else:
            groups = [] if step is None else [(step, group) for group in index.groups(wanted.stage, step, wanted.kind)]
        courses = index.courses(wanted.stage, wanted.kind)
        self.post_message(self.Loaded(Found(wanted, step, steps, groups, courses)))

    @on(Loaded)
    def _loaded(self, message: Loaded) -> None:
        stage = message.found.wanted.stage if self._view is None else self._stage_of(self._view)
        if message.found.wanted != self._wanted(stage):
            return  # another one is on its way
        same = self.found is not None and message.found.groups == self.found.groups
        self.found = message.found
        if same and self.entries:
            self._tell_head()
        else:
            self._list()

    def _list(self, at: int | None = None) -> None:
        """Fill the list, and put the highlight where it was, or ``at`` a line."""
        found, listed = self.found, self.query_one("#sample-list", OptionList)
        if found is None:
            return
        before = listed.highlighted or 0
        wanted = self.query_one("#sample-filter", Input).value
        sort = self.sort or ("reward" if found.wanted.worst else None)
        rows = rows_of(found.groups, sort=sort, wanted=wanted)
        self.entries = list(rows) if sort is not None else _grouped(rows, found.groups, everything=not wanted)
        self._steps = {id(group): step for step, group in found.groups}
        listed.clear_options()
        listed.add_options([Option(self._line(entry)) for entry in self.entries])
        self._tell_head()
        if self.entries:
            self._chosen_here = min(before if at is None else at, len(self.entries) - 1)
            listed.highlighted = self._chosen_here
        else:
            self._say_nothing()

    def _line(self, entry: Group | Row) -> Content:
        if isinstance(entry, Group):
            step = self._steps[id(entry)] if self.prompt is not None else None
            return group_line(entry, step, self._strip(entry) if step is None else "")
        return row_line(entry, of_group=self.sort is None and not self.worst_of_run, step=self.worst_of_run)

    def _strip(self, group: Group) -> str:
        if self.found is None:
            return ""
        courses = self.found.courses
        return strip_of(courses.of(group.source, group.prompt_id), courses.extremes(), LIST_STRIP)

    def _course(self, group: Group) -> Content | None:
        if self.found is None:
            return None
        courses = self.found.courses
        return course_line(courses.of(group.source, group.prompt_id), courses.extremes())

    def _tell_head(self) -> None:
        found = self.found
        if found is None or found.step is None:
            self.query_one("#sample-head", Static).update("")
            return
        kind = say("evaluation after step {step}") if self.kind == EVALUATION else say("step {step}")
        parts = [kind.format(step=found.step)]
        if self.prompt is not None:
            parts = [
                say("prompt {number} of {source} over the steps").format(number=self.prompt[1], source=self.prompt[0])
            ]
        elif self.worst_of_run:
            parts = [plural(len(found.steps), later("the worst of 1 step"), later("the worst of {count} steps"))]
        elif found.step != found.steps[-1]:
            parts.append(say("newest is {step}").format(step=found.steps[-1]))
        if self._view is not None and len(self._view.stages) > 1:
            parts.insert(0, say("stage {name}").format(name=found.wanted.stage))
        rows = sum(isinstance(entry, Row) for entry in self.entries)
        parts += [
            plural(rows, later("1 response"), later("{count} responses")),
            say(SORT_NAMES[self.sort or ("reward" if self.worst_of_run else None)]),
        ]
        if self._view is not None and self.kind == STEP and self.prompt is None and not self.worst_of_run:
            steps = self._view.stages[found.wanted.stage].steps
            parts += [f"{name} {before} → {after}" for name, before, after in operated(steps, found.step)]
        self.query_one("#sample-head", Static).update(" · ".join(parts))

    def _say_nothing(self) -> None:
        """Say why there is nothing to show."""
        told = say("This stage has no responses to show yet.")
        if self.found is not None and self.found.groups:
            told = say("No response passes the filter.")
        elif self.kind == EVALUATION:
            told = say("No evaluation of this stage has responses to show yet; e goes back to training.")
        if self._view is not None and len(self._view.stages) > 1:
            told = say("stage {name}").format(name=self._stage_of(self._view)) + ". " + told
        self.query_one("#sample-text", Static).update(told)

    @on(OptionList.OptionHighlighted, "#sample-list")
    def _look_at(self, message: OptionList.OptionHighlighted) -> None:
        if message.option_index >= len(self.entries) or self.found is None:
            return
        if message.option_index != self._chosen_here and self.step is None and not (self.prompt or self.worst_of_run):
            self.step = self.found.step  # who reads is not taken away from what is read
        self._chosen_here = -1
        self._show(self.entries[message.option_index])

    def _show(self, entry: Group | Row) -> None:
        """Show a group or a response whole, or how it differs from the one that others are compared with."""
        row = self._row(entry)
        group = entry.group if isinstance(entry, Row) else entry
        panel = self.query_one("#sample-scroll", VerticalScroll)
        panel.border_title = say("Response") if isinstance(entry, Row) else say("Group")
        if self.compared is not None and row is not None and row.response is not self.compared.response:
            content = difference_content(self.compared, row)
            panel.border_title = say("compared word by word; v ends it")
        elif isinstance(entry, Row):
            content = response_content(entry, self._course(group))
        else:
            content = group_content(entry, self._steps[id(entry)], self._course(group))
        self.query_one("#sample-text", Static).update(content)
        panel.scroll_home(animate=False)

    def _row(self, entry: Group | Row) -> Row | None:
        """The response of an entry; of a group its best one."""
        if isinstance(entry, Row):
            return entry
        best = max(entry.responses, key=lambda response: response.reward, default=None)
        return None if best is None else Row(self._steps[id(entry)], entry, best)

    def _here(self) -> Group | Row | None:
        """What is under the cursor of the list."""
        place = self.query_one("#sample-list", OptionList).highlighted
        return self.entries[place] if place is not None and place < len(self.entries) else None

    def action_compare(self) -> None:
        """Keep the response under the cursor, so that the next ones are compared with it; or end that."""
        entry = self._here()
        if self.compared is not None:
            self.compared = None
        elif entry is not None and (row := self._row(entry)) is not None:
            self.compared = row
            self.notify(say("go to another response; f follows this prompt over the steps"))
        else:
            self.notify(say("no response is under the cursor"))
        if entry is not None:
            self._show(entry)

    def action_step(self, by: int) -> None:
        found = self.found
        if found is None or found.step is None or self.prompt is not None:
            return
        place = found.steps.index(found.step) + by
        if 0 <= place < len(found.steps):
            self.step = found.steps[place]
            self._again()

    def action_newest(self) -> None:
        self._leave_lists()
        self._again()

    def _leave_lists(self) -> None:
        """Back to the newest step, by group."""
        self.step = self.prompt = None
        self.worst_of_run = False

    def action_worst_of_run(self) -> None:
        self.worst_of_run, self.prompt = not self.worst_of_run, None
        self._again()

    def action_worst(self) -> None:
        rows = [(place, entry) for place, entry in enumerate(self.entries) if isinstance(entry, Row)]
        place = worst([row for _, row in rows])
        if place is None:
            self.notify(say("no response has a reward"))
            return
        listed = self.query_one("#sample-list", OptionList)
        listed.highlighted = rows[place][0]
        self.screen.set_focus(listed)

    def action_sort(self) -> None:
        names = list(SORT_NAMES)
        self.sort = names[(names.index(self.sort) + 1) % len(names)]
        self._list(at=0)

    def action_filter(self) -> None:
        field = self.query_one("#sample-filter", Input)
        field.add_class("-open")
        self.screen.set_focus(field)

    @on(Input.Changed, "#sample-filter")
    def _filtered(self) -> None:
        self._list(at=0)

    @on(Input.Submitted, "#sample-filter")
    def _done(self) -> None:
        self.screen.set_focus(self.query_one("#sample-list"))

    def action_follow(self) -> None:
        """The prompt that is looked at over the steps; back to the step where it is followed already."""
        if self.prompt is not None:
            self.prompt = None
        else:
            entry = self._here()
            group = entry.group if isinstance(entry, Row) else entry
            if group is None or group.prompt_id is None:
                self.notify(say("there is no prompt to follow"))
                return
            self.prompt, self.worst_of_run = (group.source, group.prompt_id), False
        self._again()

    def action_stage(self) -> None:
        """The samples of the stage after the one that is shown; of the first after the last."""
        names = list(self._view.stages) if self._view is not None else []
        if self._view is None or not names:
            return
        self.stage = names[(names.index(self._stage_of(self._view)) + 1) % len(names)]
        self._leave_lists()
        self._again()

    def action_evaluation(self) -> None:
        self.kind = STEP if self.kind == EVALUATION else EVALUATION
        self._leave_lists()
        self._again()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Escape is the screen's where there is nothing to leave here; stages are picked where there are several."""
        if action == "stage":
            return self._view is not None and len(self._view.stages) > 1
        is_inside = self.prompt is not None or self.worst_of_run or self.compared is not None
        return action != "back" or is_inside or self.query_one("#sample-filter").has_class("-open")

    def action_back(self) -> None:
        """One thing less: the filter, or the prompt that is followed."""
        field = self.query_one("#sample-filter", Input)
        if field.has_class("-open"):
            field.remove_class("-open")
            field.value = ""
            self.screen.set_focus(self.query_one("#sample-list"))
        elif self.compared is not None:
            self.action_compare()
        elif self.worst_of_run:
            self.action_worst_of_run()
        else:
            self.action_follow()


def _grouped(rows: Sequence[Row], groups: Sequence[tuple[int, Group]], *, everything: bool) -> list[Group | Row]:
    """Rows under the heads of their groups; with ``everything`` the heads of groups without rows too."""
    by_group = {number: list(each) for number, each in groupby(rows, key=lambda row: id(row.group))}
    entries: list[Group | Row] = []
    for _, group in groups:
        if everything or id(group) in by_group:
            entries += [group, *by_group.get(id(group), [])]
    return entries


assert set(SORT_NAMES) == {None, *SORTS}, "every order has a name"
