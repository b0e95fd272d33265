"""What is on a page of HTML: a check, a conversion, a plan, a difference, a run; the same words as on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlctl.cli import diagnostics, output, plan_text, summary
from rlctl.cli.html import Child, Markup, element, fragment, group, items, page, table
from rlctl.common.errors import Location
from rlctl.common.messages import text
from rlctl.common.messages.reasons import translated
from rlctl.common.report import Finding, Level, Report
from rlctl.common.report_lines import Line, Part, causes, lines, release

if TYPE_CHECKING:
    from rlctl.planning.plan import Plan, StagePlan
    from rlctl.translation.checking import Checked
    from rlctl.translation.difference import Difference, Side

SHARE = 0.05
"""GiB of a part of a phase's memory below which it is not named."""


__all__ = ["check", "conversion", "differences", "findings", "group", "notebook", "plan", "run", "write"]


def write(path: Path, title: str, body: Child, *, force: bool) -> None:
    """Write a page; a file that exists is overwritten only with ``force``."""
    output.file(path, page(title, body), force=force)


def notebook(result: object) -> str:
    """A result of the Python API as a part of a notebook.

    Raises:
        TypeError: the result is none of these.
    """
    from rlctl.planning.plan import Plan
    from rlctl.translation.checking import Checked
    from rlctl.translation.difference import Comparison
    from rlctl.translation.translate import Translation

    if isinstance(result, Checked):
        return fragment(check([result]))
    if isinstance(result, Translation):
        return fragment(conversion(result.report, result.text))
    if isinstance(result, Plan):
        return fragment(plan(result))
    if isinstance(result, Comparison):
        return fragment(differences(result.differences, result.first, result.second))
    raise TypeError(type(result).__name__)


# Findings


def findings(found: Sequence[Finding]) -> Markup:
    """Findings, those of one cause together, errors first."""
    order = (Level.ERROR, Level.WARNING, Level.NOTE)
    told = sorted(causes(found), key=lambda cause: order.index(cause.level))
    return items(
        [
            element(
                "li",
                element("strong", text(f"level-{cause.level}")),
                " ",
                _place(cause.at),
                cause.message,
                " ",
                element("code", f"[{cause.first.code}]", classes="dim"),
                _advice(cause.advice),
                classes=str(cause.level),
            )
            for cause in told
        ]
    )


def _advice(told: str) -> Markup | None:
    return element("div", told, classes="advice") if told else None


def _place(at: Location | None) -> Markup | None:
    return group(element("code", str(at)), ": ") if at is not None else None


def check(checked: Sequence[Checked]) -> Markup:
    """What was found in files, and what was checked."""
    return group(*(_file(item, several=len(checked) > 1) for item in checked))


def _file(item: Checked, *, several: bool) -> Markup:
    scope = []
    for name, unchecked in (("check-checked", False), ("check-unchecked", True)):
        subjects = [str(subject) for subject in item.scope if bool(subject.reason) is unchecked]
        if subjects:
            told = text(name, subjects=text("scope-separator").join(subjects))
            scope.append(element("p", told, classes="dim"))
    codes = ", ".join(sorted({finding.code for finding in item.silenced}))
    ignored = text("check-ignored", count=len(item.silenced), codes=codes) if codes else None
    return group(
        element("h2", item.file) if several else None,
        element("p", diagnostics.verdict(item.report, item.runner)),
        findings(item.report.findings),
        element("p", ignored, classes="dim") if ignored else None,
        *scope,
    )


# Conversions


def conversion(report: Report, content: str | None) -> Markup:
    """What became of every key, and the text."""
    if report.errors:
        return group(element("p", diagnostics.headline(report)), findings(report.findings))
    told = sorted(lines(report, every=True, computed=True), key=lambda line: list(Part).index(line.part))
    parts: list[Child] = [element("p", diagnostics.headline(report))]
    for (part, heading), found in groupby(told, _part_and_heading):
        title = element("summary", element("strong", heading or text(f"part-{part}")))
        shown = items([_line(line) for line in found])
        parts.append(element("details", title, shown, **({} if part is Part.REST else {"open": "open"})))
    if content is not None:
        parts += [element("h2", release(report.target)), element("pre", content)]
    return group(*parts)


def _part_and_heading(line: Line) -> tuple[Part, str]:
    return line.part, line.heading if line.part is Part.REST else ""


def _line(line: Line) -> Markup:
    kinds = {
        "error": "error",
        "warning": "warning",
        "unknown": "error",
        "unsupported": "error",
        "approximated": "warning",
    }
    if line.finding is not None:
        body: list[Child] = [line.finding.message]
    else:
        body = [group(*_entry(line))]
    return element("li", _place(line.at), *body, _advice(line.advice), classes=kinds.get(line.kind, ""))


def _entry(line: Line) -> Iterator[Child]:
    """The keys of a line with their values, and why."""
    for number, entry in enumerate(line.entries):
        yield ", " if number else None
        yield element("code", f"{entry.key} = {diagnostics.shown(entry.value)}")
        targets = ", ".join(f"{key} = {diagnostics.shown(value)}" for key, value in entry.targets[:3])
        yield group(" → ", element("code", targets)) if targets else None
    if note := line.note:
        yield element("div", note, classes="dim")


# Plans


def plan(made: Plan) -> Markup:
    """Devices by role, the flow of a batch, the schedule, memory by phase, and the cost of a step."""
    named = len(made.stages) > 1
    notes = list(dict.fromkeys(note for stage in made.stages for note in (*stage.not_used, *stage.notes)))
    return group(
        element("p", plan_text.machines(made)),
        *(_stage(stage, named=named) for stage in made.stages),
        element("h2", text("plan-notes")) if notes else None,
        items([element("li", note, classes="note") for note in map(translated, notes)]),
    )


def _stage(stage: StagePlan, *, named: bool) -> Markup:
    roles = [[role.role, plan_text.engine(role), plan_text.ranges(role.devices)] for role in stage.roles]
    rows = [
        [text("plan-batch"), "\n".join(plan_text.batch_lines(stage.batch))],
        [text("plan-schedule"), plan_text.schedule_line(stage.schedule)],
    ]
    if stage.fit is None and stage.memory:
        rows.append([text("plan-memory"), "\n".join(plan_text.estimates_text(stage.memory))])
    if stage.cost is not None:
        rows.append([text("plan-cost"), plan_text.cost_line(stage.cost)])
    facts: list[list[str]] = [[title, group(*_broken(told))] for title, told in rows]
    return group(
        element("h2", text("plan-stage", name=stage.name, objective=stage.objective)) if named else None,
        table(["", "", text("plan-device")], roles),
        table([], facts),
        _memory(stage),
    )


def _broken(told: str) -> Iterator[Child]:
    for number, line in enumerate(told.split("\n")):
        yield Markup("<br>") if number else None
        yield line


def _memory(stage: StagePlan) -> Markup:
    """How full a device is in each phase."""
    if stage.fit is None:
        return Markup()
    rows = []
    for phase in stage.fit.phases:
        full = phase.gib / stage.fit.gib
        bar = element("meter", min="0", max="1", high="0.9", optimum="0", value=f"{min(full, 1):.3f}")
        size = text("plan-gib", gib=f"{phase.gib:.0f}", of=f"{stage.fit.gib:g}")
        parts = ", ".join(f"{translated(part.name)} {part.gib:.1f}" for part in phase.parts if part.gib >= SHARE)
        over = element("span", size, classes="over") if full > 1 else size
        rows.append([phase.phase.replace("_", " "), bar, over, parts])
    problem = element("p", stage.fit.problem, classes="over") if not stage.fit.fits else None
    return group(element("h3", text("plan-memory")), table([], rows), problem)


# Differences


def differences(found: Sequence[Difference], first: str, second: str) -> Markup:
    """A row a canonical key that two configs give different values."""
    rows = [[element("code", item.key), _side(item.first, first), _side(item.second, second)] for item in found]
    return table([text("diff-key"), first, second], [[*row] for row in rows])


def _side(side: Side, file: str) -> Markup:
    place = f"{text('place-line', line=side.line)} " if side.line and side.file == file else ""
    place = place or (f"{side.file}:{side.line} " if side.line else "")
    told = text("diff-default") if side.default else f"{place}{side.key}"
    return group(element("code", diagnostics.shown(side.shown)), element("div", told, classes="dim"))


# Runs


def run(known: dict[str, Any], facts: Sequence[str]) -> Markup:
    """A run: its facts, its stages, and its warnings.

    Args:
        known: what ``rlctl runs show --json`` prints.
        facts: the lines that ``rlctl runs show`` begins with, without markup.
    """
    heads = [text(f"end-{title}") for title in ("stage", "steps", "evaluation", "time", "pace", "phases")]
    rows = [
        [
            name,
            str(stage.get("steps", "")),
            *(group(*_broken(cell)) for cell in (summary.evaluation(stage), *summary.times(stage))),
        ]
        for name, stage in known["stages"].items()
    ]
    advice = [
        element("li", translated(item["message"]), _advice(translated(item["remedy"])), classes="warning")
        for item in known["advice"]
    ]
    return group(items([element("li", fact) for fact in facts]), table(heads, rows), items(advice))
