"""The plan as a picture: a step's batch from prompts to optimizer steps, and the devices node by node with who is on each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from rlctl.common.language import later
from rlctl.common.messages.reasons import translated
from rlctl.config.chinese import in_words
from rlctl.editing.planning import Limits, Node, Planned, nodes, planned
from rlctl.editing.session import Session
from rlctl.planning.batch_table import Row
from rlctl.planning.plan import LETTERS, Plan, StagePlan
from rlctl.tui.dialogs.facts import in_app
from rlctl.tui.language import padded, say
from rlctl.tui.panes.editor import EditorPane
from rlctl.tui.widgets.batch_flow import boxes, in_boxes, name_of, notes
from rlctl.tui.widgets.rack import Tile, legend, looks
from rlctl.tui.widgets.rack import node as rack_node


class PlanPane(EditorPane):
    """What would run where."""

    DEFAULT_CSS = """
    PlanPane VerticalScroll { height: 1fr; padding: 0 1; }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._found: Planned | None = None

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static("", classes="plan-text", markup=False)

    def read(self, session: Session) -> Any:
        return planned(session)

    def take(self, found: Any) -> None:
        self._found = found
        self._draw()

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
    lines.append(Content.assemble((plan.run, "bold"), f"  {plan.nodes} × {plan.devices_per_node} {kind}"))
    for stage, (_, rows), limits in zip(plan.stages, found.rows, found.limits, strict=False):
        lines += [
            Content(""),
            _heading(say("stage {name}: {objective}").format(name=stage.name, objective=stage.objective)),
        ]
        lines += [*_batch(rows, width), Content("")]
        lines += [*_devices(plan, stage, width, found.gib_per_device), Content("")]
        lines += [
            *map(Content, _roles(stage, found.gib_per_device)),
            Content(""),
            Content(_schedule(stage, limits)),
            Content(""),
        ]
        lines += [*_table(rows), *(Content.styled(f"· {translated(note)}", "$text-muted") for note in stage.notes)]
    return Content("\n").join(lines)


def _heading(text: str) -> Content:
    return Content.styled(text, "$primary bold")


def _batch(rows: Sequence[Row], width: int) -> list[Content]:
    """The flow of the batch, and what does not divide in it."""
    return [in_boxes(boxes(rows), width), *notes(rows)]


def _devices(plan: Plan, stage: StagePlan, width: int, room: float | None) -> Iterator[Content]:
    """The rack of a stage's devices, node by node; nodes that are alike are drawn once."""
    names = {LETTERS[role.role]: role.role for role in stage.roles if role.devices}
    look = looks(list(names))
    for found in nodes(plan, stage):
        tiles = [Tile(str(device.number), device.letters, device.gib) for device in found.devices]
        yield from rack_node(_node_name(found), tiles, width, look, room)
    yield legend(names, look)


def _node_name(found: Node) -> str:
    if found.first == found.last:
        return say("node {number}").format(number=found.first)
    return say("nodes {first} to {last} (identical)").format(first=found.first, last=found.last)


def _roles(stage: StagePlan, room: float | None) -> Iterator[str]:
    needs = {estimate.role: estimate for estimate in stage.memory}
    for role in stage.roles:
        where = _counted(len(role.devices), later("1 device"), later("{count} devices")) if role.devices else say("CPU")
        processes = _counted(role.processes, later("1 process"), later("{count} processes"))
        replicas = _counted(role.replicas, later("1 replica"), later("{count} replicas"))
        told = say("{processes}, {replicas} on {where}").format(processes=processes, replicas=replicas, where=where)
        yield f"{LETTERS[role.role]} {role.role}: {role.engine}, {told}"
        if estimate := needs.get(role.role):
            parts = ", ".join(f"{translated(part.name)} {part.gib:.1f}" for part in estimate.shown_parts)
            little, whole = later("    less than 0.1 GiB a device"), later("    {gib:.1f} GiB a device: {parts}")
            yield say(little if estimate.is_little else whole).format(gib=estimate.gib, parts=parts)
    if not needs:
        yield say("memory is not estimated: the size of the model is not known")
    elif room is not None:
        yield say("a device here has {gib:.0f} GiB").format(gib=room)


def _counted(count: int, one: str, many: str) -> str:
    return say(one) if count == 1 else say(many).format(count=count)


def _schedule(stage: StagePlan, limits: Limits) -> str:
    """How long a stage is, and when it evaluates and saves."""
    schedule = stage.schedule
    if schedule.total_steps is not None:
        length = _counted(schedule.total_steps, later("1 step"), later("{count} steps"))
    elif limits.epochs is None:
        length = say("as many steps as the data has")
    elif limits.steps is None:
        length = _counted(limits.epochs, later("1 epoch of the data"), later("{count} epochs of the data"))
    else:
        length = say("{steps} steps or {epochs} epochs at most").format(steps=limits.steps, epochs=limits.epochs)
    evaluates, saves = schedule.evaluate_every, schedule.save_every
    return " · ".join(
        (
            length,
            _counted(evaluates, later("evaluates every step"), later("evaluates every {count} steps"))
            if evaluates
            else say("never evaluates"),
            _counted(saves, later("saves every step"), later("saves every {count} steps"))
            if saves
            else say("never saves"),
        )
    )


def _table(rows: Sequence[Row]) -> Iterator[Content]:
    """Each number of the batch with its formula, and where it is written."""
    width = max((cell_len(name_of(row)) for row in rows), default=0)
    for row in rows:
        style = "$error bold" if row.note else "bold"
        value = translated(row.value) if isinstance(row.value, str) else row.value
        yield Content.assemble(padded(name_of(row), width + 2), (f"{value}", style), f" {in_words(row.unit)}")
        formula = f"= {translated(row.formula)}" if row.formula else ""
        place = f"{row.key}:{row.line}" if row.line else row.key
        if formula or place:
            yield Content.styled(f"    {formula}{'  ' if formula and place else ''}{place}", "$text-muted")
