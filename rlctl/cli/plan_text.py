"""A plan as lines: which role uses which devices, how a batch flows, when things happen, and how full the memory is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rlctl.cli import layout
from rlctl.cli.progress import duration
from rlctl.common.messages import text
from rlctl.common.messages.reasons import translated

if TYPE_CHECKING:
    from rlctl.planning.memory import Fit, MemoryEstimate, PhaseEstimate, StepCost
    from rlctl.planning.plan import BatchPlan, Plan, RolePlan, SchedulePlan, StagePlan

DRAWN = 16
"""Devices that are drawn one by one; of more, one column is a node."""
CELL = 4
"""Columns of a device, or of a node."""
BAR = 10
"""Columns of a full memory."""
SHOWN_PARTS = 3
"""Parts of a phase's memory that are named; the others are added up."""


def lines(
    made: Plan,
    to: layout.Screen,
    suggest: Callable[[Fit], list[str]] = lambda fit: [],
    renamed: Callable[[str], str] = str,
) -> Iterator[str]:
    """A plan.

    Args:
        made: the plan.
        to: the screen.
        suggest: says the changes that would make a stage fit.
        renamed: a text with the keys of the file that was read for canonical ones.
    """
    yield to.styled(machines(made), layout.BOLD)
    for stage in made.stages:
        yield from _stage(made, stage, to, suggest)
    for title, texts in (("ignored", lambda stage: stage.not_used), ("notes", lambda stage: stage.notes)):
        yield from _listed(text(f"plan-{title}"), [renamed(entry) for entry in _of_stages(made, texts)], to)


def _of_stages(made: Plan, texts: Callable[[StagePlan], Sequence[str]]) -> list[str]:
    """Texts of all stages, each once, with the names of its stages unless all have it."""
    found: dict[str, list[str]] = {}
    for stage in made.stages:
        for entry in texts(stage):
            found.setdefault(entry, []).append(stage.name)
    return [
        entry
        if len(names) == len(made.stages)
        else text("in-stages", count=len(names), names=text("name-separator").join(names), message=entry)
        for entry, names in found.items()
    ]


def machines(made: Plan) -> str:
    """The run, and the machines that it is planned for."""
    kind = "gpus" if made.device == "cuda" else "cpus"
    return layout.clean(f"{made.run}: {text(f'plan-{kind}', nodes=made.nodes, each=made.devices_per_node)}")


def _stage(made: Plan, stage: StagePlan, to: layout.Screen, suggest: Callable[[Fit], list[str]]) -> Iterator[str]:
    yield ""
    if len(made.stages) > 1 or stage.name != "main":
        told = text("plan-continues") if stage.continues else ""
        yield (
            to.styled(layout.clean(text("plan-stage", name=stage.name, objective=stage.objective)), layout.BOLD) + told
        )
    yield from _picture(made, stage.roles, to)
    rows = {"batch": batch_lines(stage.batch), "schedule": [schedule_line(stage.schedule)]}
    names = ("batch", "schedule", "memory", "cost")
    titles = {name: text(f"plan-{name}") for name in names}
    width = max(map(layout.cells, titles.values())) + 2
    if memory := memory_lines(stage, to, 2 + width):
        rows["memory"] = memory
    if stage.cost is not None:
        rows["cost"] = [cost_line(stage.cost)]
    yield ""
    for name, found in rows.items():
        for index, line in enumerate(found):
            head = layout.padded("" if index else titles[name], width)
            first, *more = to.wrapped(line, 2 + width) if name != "memory" else [line]
            yield f"  {head}{first}"
            yield from (" " * (2 + width) + rest for rest in more)
    if stage.fit is not None and not stage.fit.fits:
        remedy = text("plan-remedy" if stage.fit.changes else "plan-no-remedy")
        told = f"{text('plan-overflow', problem=stage.fit.problem)}; {remedy}"
        yield from (f"  {to.styled(line, layout.RED)}" for line in to.wrapped(told, 2))
        for change in suggest(stage.fit):
            yield from layout.advice_lines(change, 4, to)


def _listed(title: str, found: Sequence[str], to: layout.Screen) -> Iterator[str]:
    """Long texts under a title, one entry each."""
    if found:
        yield ""
        yield f"  {to.styled(title, layout.BOLD)}"
    for entry in found:
        first, *more = to.wrapped(entry, 4)
        yield f"  {to.mark('·')} {first}"
        yield from (f"    {line}" for line in more)


# The picture


def _picture(made: Plan, roles: Sequence[RolePlan], to: layout.Screen) -> Iterator[str]:
    """A row a role, a column a device, or a node if there are many devices."""
    total = made.nodes * made.devices_per_node
    each = 1 if total <= DRAWN else made.devices_per_node
    columns = total // each
    drawn = columns <= DRAWN and any(role.devices for role in roles)
    unit = text("plan-node" if each > 1 else "plan-device" if made.device == "cuda" else "plan-worker")
    names = [*(role.role for role in roles), unit]
    width = max(map(layout.cells, names)) + 2
    if drawn:
        yield f"  {layout.padded(unit, width)}" + "".join(f"{number:<{CELL}}" for number in range(columns)).rstrip()
    policy = next((role for role in roles if role.role == "policy"), None)
    for role in roles:
        cells = _cells(role, columns, each, to) if drawn else ""
        about = text("separator").join([engine(role), *_shares(role, policy), *([] if drawn else _where(role))])
        yield f"  {layout.padded(role.role, width)}{layout.padded(cells, columns * CELL * drawn)}{about}"


def _cells(role: RolePlan, columns: int, each: int, to: layout.Screen) -> str:
    """The devices of a role: a mark each, or a bracket over the devices of one engine."""
    if each > 1:
        counts = [sum(number // each == column for number in role.devices) for column in range(columns)]
        return "".join(f"{count or '':<{CELL}}" for count in counts)
    group = len(role.devices) // role.processes if role.processes else 1
    row = [" " * CELL] * columns
    for start in range(0, len(role.devices), max(group, 1)):
        taken = role.devices[start : start + group]
        if group > 1 and taken[-1] - taken[0] == group - 1:
            bar = "[" + "=" * (CELL * group - 3) + "] "
            for place, number in enumerate(taken):
                row[number] = bar[place * CELL : (place + 1) * CELL]
        else:
            for number in taken:
                row[number] = layout.padded(to.mark("■") if to.width is not None else "#", CELL)
    return "".join(row)


def engine(role: RolePlan) -> str:
    """What computes a role, and in how many parts."""
    if not role.devices:
        return text("plan-on-cpu", engine=role.engine, count=role.processes)
    group = len(role.devices) // role.processes if role.processes else 1
    if group > 1 or role.role in ("rollout", "judge", "auxiliary"):
        return text("plan-engines", engine=role.engine, count=role.processes, each=group)
    return text("plan-replicas", engine=role.engine, count=role.replicas)


def _shares(role: RolePlan, policy: RolePlan | None) -> list[str]:
    """Whether a role takes turns with training on the same devices."""
    shared = policy is not None and role is not policy and set(role.devices) & set(policy.devices)
    return [text("plan-turns")] if shared else []


def _where(role: RolePlan) -> list[str]:
    return [on_devices(role)] if role.devices else []


def on_devices(role: RolePlan) -> str:
    """The devices of a role, or that it is on the CPU."""
    return text("plan-on", devices=ranges(role.devices), count=len(role.devices))


def ranges(numbers: Sequence[int]) -> str:
    """Device numbers in short: ``0-3, 8``; ``CPU`` if there are none."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) or "CPU"


# Numbers


def batch_lines(batch: BatchPlan) -> list[str]:
    """How a step's prompts become responses, mini-batches and shares of each replica."""
    prompts, responses = batch.prompts_per_step, batch.responses_per_step
    drawn = responses != prompts
    first = text(
        "plan-prompts" if drawn else "plan-responses",
        prompts=prompts,
        each=batch.responses_per_prompt,
        responses=responses,
    )
    mini, count = batch.mini_batch_responses, batch.mini_batches_per_epoch
    uneven = count * mini != responses
    split = text("plan-mini-batches", count=count, size=mini, last=responses - (count - 1) * mini if uneven else "none")
    share = text("plan-share", each=f"{batch.responses_per_replica:g}")
    steps = text("plan-optimizer", count=batch.optimizer_steps_per_step, passes=batch.ppo_epochs)
    return [f"{first} -> {split} -> {share}", steps]


def schedule_line(schedule: SchedulePlan) -> str:
    """When things happen, in steps."""
    total = text("plan-steps", count=schedule.total_steps) if schedule.total_steps else ""
    if schedule.until_dry:
        total = text("plan-dry-within", steps=total) if total else text("plan-dry")
    every, save = schedule.evaluate_every, schedule.save_every
    evaluate = text("plan-evaluates", count=every) if every else text("plan-evaluates-never")
    saved = text("plan-saves", count=save) if save else text("plan-saves-never")
    return text("semicolon").join((total or text("plan-steps-unknown"), evaluate, saved))


def memory_lines(stage: StagePlan, to: layout.Screen, indent: int = 0) -> list[str]:
    """How full a device is in each phase, or what each role needs if the device is not known."""
    if stage.fit is None:
        return [line for estimate in estimates_text(stage.memory) for line in to.wrapped(estimate, indent)]
    phases = stage.fit.phases
    several = len({phase.devices for phase in phases}) > 1
    names = [phase.phase.replace("_", " ") + (f" ({ranges(phase.devices)})" if several else "") for phase in phases]
    sizes = [text("plan-gib", gib=f"{phase.gib:.0f}", of=f"{stage.fit.gib:g}") for phase in phases]
    widths = [max(map(layout.cells, column)) for column in (names, sizes)]
    found = []
    for name, size, phase in zip(names, sizes, phases, strict=True):
        bar, colour = _bar(phase.gib / stage.fit.gib, to), layout.RED if phase.gib > stage.fit.gib else ""
        column = widths[0] + 2 + BAR + 2 + widths[1] + 2
        first, *more = to.wrapped(_parts(phase), indent + column)
        gap = " " * (widths[1] - layout.cells(size))
        found.append(f"{layout.padded(name, widths[0])}  {to.styled(bar, colour)}  {gap}{size}  {first}")
        found += [" " * column + line for line in more]
    return found


def _bar(full: float, to: layout.Screen) -> str:
    """A memory as a bar, as full as it is."""
    filled = min(round(full * BAR), BAR)
    full_mark, free_mark = ("█", "░") if to.width is not None else ("#", ".")
    return to.mark(full_mark * filled + free_mark * (BAR - filled))


def _parts(phase: PhaseEstimate) -> str:
    """The largest parts of a phase's memory, and the sum of the others."""
    parts = sorted((part for part in phase.parts if part.gib >= 0.05), key=lambda part: -part.gib)
    told = [f"{translated(part.name)} {part.gib:.1f}" for part in parts[:SHOWN_PARTS]]
    if len(parts) > SHOWN_PARTS:
        told.append(text("plan-rest", gib=f"{sum(part.gib for part in parts[SHOWN_PARTS:]):.1f}"))
    return ", ".join(told)


def estimates_text(estimates: Sequence[MemoryEstimate]) -> list[str]:
    """What each role needs on one of its devices, and of what."""
    return [_estimate(estimate) for estimate in estimates]


def _estimate(estimate: MemoryEstimate) -> str:
    if estimate.is_little:
        return text("plan-role-memory-little", role=estimate.role)
    parts = ", ".join(f"{translated(part.name)} {part.gib:.1f}" for part in estimate.shown_parts)
    return text("plan-role-memory", role=estimate.role, gib=f"{estimate.gib:.1f}", parts=parts)


def cost_line(cost: StepCost) -> str:
    """The arithmetic of a step, and its time if the GPU is known."""
    parts = [text("plan-operations", flops=f"{cost.flops:.2g}")]
    if cost.step_seconds is not None and cost.longest_seconds is not None:
        parts.append(text("plan-step-time", time=duration(cost.step_seconds), longest=duration(cost.longest_seconds)))
    times = (
        ("plan-training-time", cost.training_seconds),
        ("plan-generation-time", cost.generation_seconds),
        ("plan-moving-time", cost.moving_seconds),
    )
    parts += [text(name, time=duration(seconds)) for name, seconds in times if seconds]
    return text("separator").join(parts)
