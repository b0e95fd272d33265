"""The plan as a picture: a step's batch from prompts to optimizer steps, and the devices node by node with who is on each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from rlctl.common.messages.reasons import translated
from rlctl.config.chinese import in_words
from rlctl.editing.planning import LETTERS, Limits, Node, Planned, nodes, planned
from rlctl.editing.session import Session
from rlctl.planning.batch_table import Row
from rlctl.planning.plan import Plan, StagePlan
from rlctl.tui.dialogs.facts import in_app
from rlctl.tui.language import padded, say
from rlctl.tui.panes.editor import EditorPane

BLOCKS = 24
"""Most mini-batches that are drawn one by one."""


class PlanPane(EditorPane):
    """What would run where."""

    DEFAULT_CSS = """
    PlanPane VerticalScroll { height: 1fr; padding: 0 1; }
    """

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static("", id="plan-text", markup=False)

    def read(self, session: Session) -> Any:
        return planned(session)

    def take(self, found: Any) -> None:
        text = drawn(found, max(40, self.size.width - 4))
        if found.plan is not None and any(stage.schedule.total_steps is None for stage in found.plan.stages):
            text += "\n\n" + say("F10: say how many rows the data has, and the steps are counted")
        self.query_one("#plan-text", Static).update(text)


def drawn(found: Planned, width: int) -> str:
    """The picture, as wide as there is room."""
    lines: list[str] = []
    if found.plan is None:
        lines += [say("No plan:"), in_app(found.refusal), ""]
        for name, rows in found.rows:
            lines += [say("stage {name}").format(name=name), *_table(rows), ""]
        return "\n".join(lines)
    plan = found.plan
    kind = say("GPUs") if plan.device == "cuda" else say("CPU workers")
    lines.append(f"{plan.run}: {plan.nodes} x {plan.devices_per_node} {kind}")
    for stage, (_, rows), limits in zip(plan.stages, found.rows, found.limits, strict=False):
        lines += ["", say("stage {name}: {objective}").format(name=stage.name, objective=stage.objective)]
        lines += [*_batch(stage), "", *_devices(plan, stage, width), *_roles(stage, found.gib_per_device), ""]
        lines += [_schedule(stage, limits), "", *_table(rows)]
        lines += [f"! {name_of(row)}: {translated(row.note)}" for row in rows if row.note]
        lines += [f"· {note}" for note in stage.notes]
    return "\n".join(lines)


def _batch(stage: StagePlan) -> Iterator[str]:
    batch = stage.batch
    if batch.responses_per_step != batch.prompts_per_step:
        yield f"  {batch.prompts_per_step} {say('prompts')} x {batch.responses_per_prompt} {say('responses')}"
    yield say("  = {count} responses a step").format(count=batch.responses_per_step)
    count, each = batch.mini_batches_per_epoch, batch.mini_batch_responses
    if count <= BLOCKS:
        sizes = [min(each, batch.responses_per_step - number * each) for number in range(count)]
        yield "  |" + "|".join(f" {max(size, 0)} " for size in sizes) + "|"
    told = say("  {count} mini-batches of {each}, passed over {passes} x = {steps} optimizer steps")
    yield told.format(count=count, each=each, passes=batch.ppo_epochs, steps=batch.optimizer_steps_per_step)
    yield say("  {share:g} responses of a mini-batch on each replica").format(share=batch.responses_per_replica)


def _devices(plan: Plan, stage: StagePlan, width: int) -> Iterator[str]:
    for node in nodes(plan, stage):
        yield from _node(node, width)


def _node(node: Node, width: int) -> Iterator[str]:
    name = say("node {number}").format(number=node.first if node.first == node.last else f"{node.first}-{node.last}")
    cells = [[str(device.number), device.letters or "-"] for device in node.devices]
    for cell, device in zip(cells, node.devices, strict=True):
        if device.gib is not None:
            cell.append(f"{device.gib:.0f}G")
    size = max(len(text) for cell in cells for text in cell)
    fits = max(1, (width - 4) // (size + 3))
    per_row = next(count for count in (8, 4, 2, 1) if count <= fits)
    for start in range(0, len(cells), per_row):
        row = cells[start : start + per_row]
        here = say("devices {first} to {last}").format(first=row[0][0], last=row[-1][0])
        yield name if len(cells) <= per_row else f"{name}, {here}"
        edge = "+".join(["", *("-" * (size + 2) for _ in row), ""])
        yield f"  {edge}"
        for line in range(max(len(cell) for cell in row)):
            texts = (cell[line] if line < len(cell) else "" for cell in row)
            yield "  |" + "|".join(f" {text:<{size}} " for text in texts) + "|"
        yield f"  {edge}"


def _roles(stage: StagePlan, room: float | None) -> Iterator[str]:
    needs = {estimate.role: estimate for estimate in stage.memory}
    for role in stage.roles:
        where = say("{count} devices").format(count=len(role.devices)) if role.devices else say("CPU")
        told = say("{processes} processes, {replicas} replicas on {where}")
        told = told.format(processes=role.processes, replicas=role.replicas, where=where)
        yield f"{LETTERS[role.role]} {role.role}: {role.engine}, {told}"
        if role.role in needs:
            parts = ", ".join(f"{part.name} {part.gib:.1f}" for part in needs[role.role].parts if part.gib >= 0.05)
            yield say("    {gib:.1f} GiB a device: {parts}").format(gib=needs[role.role].gib, parts=parts)
    if not needs:
        yield say("memory is not estimated: the size of the model is not known")
    elif room is not None:
        yield say("a device here has {gib:.0f} GiB").format(gib=room)


def _schedule(stage: StagePlan, limits: Limits) -> str:
    schedule = stage.schedule
    total: object = schedule.total_steps
    if total is None:
        told = (
            say("as many as the data has")
            if limits.steps is None
            else say("{steps} at most, or {epochs} epochs of the data")
        )
        told = told if limits.epochs is None or limits.steps is not None else say("{epochs} epochs of the data")
        total = told.format(steps=limits.steps, epochs=limits.epochs)
    told = say("steps {total}; evaluates every {evaluate}; saves every {save}")
    return told.format(total=total, evaluate=schedule.evaluate_every or "-", save=schedule.save_every or "-")


def name_of(row: Row) -> str:
    """What a number is, in the app's language."""
    return in_words(translated(row.name))


def _table(rows: Sequence[Row]) -> Iterator[str]:
    width = max((cell_len(name_of(row)) for row in rows), default=0)
    for row in rows:
        value = translated(row.value) if isinstance(row.value, str) else row.value
        yield f"{padded(name_of(row), width)}  {value} {in_words(row.unit)}"
        formula = f"= {translated(row.formula)}" if row.formula else ""
        place = f"{row.key}:{row.line}" if row.line else row.key
        if formula or place:
            yield f"    {formula}{'  ' if formula and place else ''}{place}"
