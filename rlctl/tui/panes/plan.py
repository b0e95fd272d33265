"""The plan as a picture: a step's batch from prompts to optimizer steps, and the devices node by node with who is on each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from rlctl.common.language import later
from rlctl.common.messages.reasons import translated
from rlctl.config.chinese import in_words
from rlctl.documents import dotted
from rlctl.editing.planning import Limits, Node, Planned, changes_that_fit, machines_of, nodes, planned
from rlctl.editing.session import Change, Session
from rlctl.editing.values import text_of
from rlctl.planning.batch_table import Row
from rlctl.planning.plan import LETTERS, Plan, StagePlan
from rlctl.tui.dialogs.facts import in_app
from rlctl.tui.language import padded, plural, say
from rlctl.tui.navigation import navigation
from rlctl.tui.panes.editor import EditorPane
from rlctl.tui.summary import evaluation_of
from rlctl.tui.widgets.batch_flow import boxes, in_boxes, name_of, notes, unit_of
from rlctl.tui.widgets.rack import Tile, bar_of, legend, looks
from rlctl.tui.widgets.rack import node as rack_node
from rlctl.tui.widgets.run_texts import duration

BAR = 24
"""Most cells of the bar of a phase."""


class PlanPane(EditorPane):
    """What would run where."""

    DEFAULT_CSS = """
    PlanPane VerticalScroll { height: 1fr; padding: 0 1; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "fit", say("Fit"), id="plan.fit", tooltip=say("Make the changes with which the config fits")),
    ]

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._found: Planned | None = None
        self._changes: list[Change] = []

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static("", classes="plan-text", markup=False)

    def read(self, session: Session) -> Any:
        found = planned(session, machines_of(navigation(self.app).machines, session.config))
        return found, changes_that_fit(found, session.config)

    def take(self, found: Any) -> None:
        self._found, self._changes = found
        self._draw()
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """There has to be a change that makes the config fit."""
        return action != "fit" or bool(self._changes)

    def action_fit(self) -> None:
        self.post_message(self.Apply(self._changes))

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        found = self._found
        if found is None or not self.size.width:
            return
        text = drawn(found, max(24, self.size.width - 3))
        if found.plan is not None and any(stage.schedule.total_steps is None for stage in found.plan.stages):
            told = say("F: give the number of rows of the data to compute the steps")
            text = Content.assemble(text, "\n\n", (told, "$text-muted"))
        if found.plan is not None and found.cluster is None and found.plan.device == "cuda":
            told = say("m: choose the GPUs, to see whether the config fits their memory")
            text = Content.assemble(text, "\n\n", (told, "$text-muted"))
        self.query_one(".plan-text", Static).update(text)


def drawn(found: Planned, width: int) -> Content:
    """The picture, as wide as there is room."""
    lines: list[Content] = []
    if found.plan is None:
        lines += [Content.styled(say("✗ no plan"), "$error bold"), Content(in_app(found.refusal)), Content("")]
        for name, rows in found.rows:
            lines += [
                _heading(say("stage {name}").format(name=name)),
                *_batch(rows, width),
                Content(""),
                *_table(rows),
                Content(""),
            ]
        return Content("\n").join(lines)
    plan = found.plan
    kind = say("GPUs") if plan.device == "cuda" else say("CPU workers")
    lines.append(Content.assemble((plan.run, "bold"), f"  {plan.nodes} × {plan.devices_per_node} {_kind(found, kind)}"))
    for stage, (_, rows), limits in zip(plan.stages, found.rows, found.limits, strict=False):
        lines += [
            Content(""),
            _heading(say("stage {name}: {objective}").format(name=stage.name, objective=stage.objective)),
        ]
        lines += [*_batch(rows, width), Content("")]
        lines += [*_devices(plan, stage, width), Content(""), *_phases(stage, width, found.framework)]
        lines += [
            *map(Content, _roles(stage)),
            Content(""),
            Content(_schedule(stage, limits)),
            *map(Content, _time(stage)),
            Content(""),
        ]
        lines += [*_table(rows), *(Content.styled(f"· {translated(note)}", "$text-muted") for note in stage.notes)]
    return Content("\n").join(lines)


def _kind(found: Planned, kind: str) -> str:
    """What the devices are called, with their memory, where it is known which they are."""
    cluster, fit = (
        found.cluster,
        next((stage.fit for stage in found.plan.stages if stage.fit), None) if found.plan else None,
    )
    named = (cluster.gpu if cluster is not None else None) or kind
    return named if fit is None else say("{gpu} of {gib:g} GiB").format(gpu=named, gib=fit.gib)


def _heading(text: str) -> Content:
    return Content.styled(text, "$primary bold")


def _batch(rows: Sequence[Row], width: int) -> list[Content]:
    """The flow of the batch, and what does not divide in it."""
    return [in_boxes(boxes(rows), width), *notes(rows)]


def _devices(plan: Plan, stage: StagePlan, width: int) -> Iterator[Content]:
    """The rack of a stage's devices, node by node; nodes that are alike are drawn once."""
    names = {LETTERS[role.role]: role.role for role in stage.roles if role.devices}
    look = looks(list(names))
    room = None if stage.fit is None else stage.fit.gib
    for found in nodes(plan, stage):
        tiles = [
            Tile(str(device.number), device.letters, device.gib, over=device.is_over, at_least=room is None)
            for device in found.devices
        ]
        yield from rack_node(_node_name(found), tiles, width, look, room)
    yield legend(names, look)


def _phases(stage: StagePlan, width: int, framework: str) -> Iterator[Content]:
    """How full a device is in each phase of a step of a framework, whether the stage fits, and what would make it fit."""
    fit = stage.fit
    if fit is None:
        return
    yield Content.styled(say("memory of a device, as {framework} runs it").format(framework=framework), "$text-muted")
    several = len({phase.devices for phase in fit.phases}) > 1
    names = [
        in_words(phase.phase.replace("_", " ")) + (f" ({_range(phase.devices)})" if several else "")
        for phase in fit.phases
    ]
    widest = max(map(cell_len, names))
    for name, phase in zip(names, fit.phases, strict=True):
        is_over = not fit.holds(phase)
        size = say("{gib:.0f} of {room:g} GiB").format(gib=phase.gib, room=fit.gib)
        room = max(6, min(BAR, width - widest - cell_len(size) - 5))
        yield Content.assemble(
            padded(name, widest + 1),
            bar_of(phase.gib / fit.gib, room, is_over=is_over),
            (f" {size}", "$error bold" if is_over else ""),
        )
    worst = fit.worst
    if fit.fits:
        told = say("✓ fits: {gib:.0f} GiB at most, in the phase {phase}; phases take turns")
        told = told.format(gib=worst.gib, phase=in_words(worst.phase.replace("_", " ")))
        yield Content.styled(told, "$success")
    else:
        yield Content.styled(say("✗ does not fit: {problem}").format(problem=translated(fit.problem)), "$error bold")
        for change in fit.changes:
            yield Content(f"    {dotted(change.key)} = {text_of(change.after)}")
        if fit.changes:
            with_them = (
                say("f: with this change it fits") if len(fit.changes) == 1 else say("f: with these changes it fits")
            )
            yield Content.styled(f"    {with_them}", "$text-muted")
    yield Content("")


def _range(devices: Sequence[int]) -> str:
    """Numbers of devices, those that follow each other as one range."""
    return f"{devices[0]}" if len(devices) == 1 else f"{devices[0]}–{devices[-1]}"


def _node_name(found: Node) -> str:
    if found.first == found.last:
        return say("node {number}").format(number=found.first)
    return say("nodes {first} to {last} (identical)").format(first=found.first, last=found.last)


def _roles(stage: StagePlan) -> Iterator[str]:
    needs = {estimate.role: estimate for estimate in stage.memory}
    for role in stage.roles:
        where = plural(len(role.devices), later("1 device"), later("{count} devices")) if role.devices else say("CPU")
        processes = plural(role.processes, later("1 process"), later("{count} processes"))
        replicas = plural(role.replicas, later("1 replica"), later("{count} replicas"))
        told = say("{processes}, {replicas} on {where}").format(processes=processes, replicas=replicas, where=where)
        yield f"{LETTERS[role.role]} {role.role}: {role.engine}, {told}"
        if estimate := needs.get(role.role):
            parts = ", ".join(f"{translated(part.name)} {part.gib:.1f}" for part in estimate.shown_parts)
            if estimate.least < estimate.gib and not estimate.is_little:
                told = say(
                    "    weights {gib:.1f} GiB a device; the KV cache takes what is left, {most:.1f} GiB at most"
                )
                yield told.format(gib=estimate.least, most=estimate.gib - estimate.least)
                continue
            little, whole = later("    less than 0.1 GiB a device"), later("    {gib:.1f} GiB a device: {parts}")
            yield say(little if estimate.is_little else whole).format(gib=estimate.gib, parts=parts)
    if not needs:
        yield say("memory is not estimated: the size of the model is not known")
    elif stage.fit is None:
        yield say("≥: what the largest role needs; how much more rests next to it depends on the GPU")


def _schedule(stage: StagePlan, limits: Limits) -> str:
    """How long a stage is, and when it evaluates and saves."""
    schedule = stage.schedule
    if schedule.total_steps is not None:
        length = plural(schedule.total_steps, later("1 step"), later("{count} steps"))
    elif limits.epochs is None:
        length = say("as many steps as the data has")
    elif limits.steps is None:
        length = plural(limits.epochs, later("1 epoch of the data"), later("{count} epochs of the data"))
    else:
        length = say("{steps} or {epochs}, whichever comes first").format(
            steps=plural(limits.steps, later("1 step"), later("{count} steps")),
            epochs=plural(limits.epochs, later("1 epoch of the data"), later("{count} epochs of the data")),
        )
    evaluates, saves = schedule.evaluate_every, schedule.save_every
    return " · ".join(
        (
            length,
            evaluation_of(evaluates),
            plural(saves, later("saves every step"), later("saves every {count} steps"))
            if saves
            else say("never saves"),
        )
    )


def _time(stage: StagePlan) -> Iterator[str]:
    """How long a step takes, where the GPU is known by its name."""
    cost = stage.cost
    if cost is None or cost.step_seconds is None or cost.longest_seconds is None:
        return
    parts = (
        (later("training {time}"), cost.training_seconds),
        (later("generation {time}"), cost.generation_seconds),
    )
    told = [say(words).format(time=duration(seconds)) for words, seconds in parts if seconds]
    told.append(say("{time} if every response is as long as allowed").format(time=duration(cost.longest_seconds)))
    yield " · ".join((say("about {time} a step").format(time=duration(cost.step_seconds)), *told))


def _table(rows: Sequence[Row]) -> Iterator[Content]:
    """Each number of the batch with its formula, and where it is written."""
    width = max((cell_len(name_of(row)) for row in rows), default=0)
    for row in rows:
        style = "$error bold" if row.note else "bold"
        value = translated(row.value) if isinstance(row.value, str) else row.value
        yield Content.assemble(padded(name_of(row), width + 2), (f"{value}", style), f" {unit_of(row)}")
        formula = f"= {translated(row.formula)}" if row.formula else ""
        place = f"{row.key}:{row.line}" if row.line else row.key
        if formula or place:
            yield Content.styled(f"    {formula}{'  ' if formula and place else ''}{place}", "$text-muted")
