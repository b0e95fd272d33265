"""``rlctl plan --solve``: the best values that fit, in the keys of the file, and what stops further ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rlctl.cli import arguments, diagnostics, layout, output
from rlctl.common.errors import ExitCode
from rlctl.common.messages import text
from rlctl.common.messages.reasons import translated
from rlctl.common.report_lines import release

if TYPE_CHECKING:
    from rlctl.common.report import Report
    from rlctl.config import Loaded
    from rlctl.planning.memory_terms import MemoryTerms
    from rlctl.planning.plan import Cluster
    from rlctl.planning.solving import Machines, Solution, Solved, Stop
    from rlctl.translation.proposals import Proposals


def solve(
    names: Sequence[str],
    loaded: Loaded,
    report: Report,
    cluster: Cluster | None,
    terms: MemoryTerms,
    read: Callable[[Sequence[str]], tuple[Loaded | None, Report]],
    *,
    json: bool,
) -> None:
    """Answer ``--solve``; exits with 1 if no value fits.

    Args:
        names: of ``rlctl.planning.solving.QUANTITIES``.
        loaded: the config.
        report: of reading it.
        cluster: the machines that it has to fit.
        terms: what the framework that runs it holds in memory.
        read: reads the file again, with overrides in its own format.
        json: whether to print data.
    """
    names, solved, proposals, machines = solutions(names, loaded, report, cluster, terms, read)
    if json:
        output.data(as_data(solved, proposals, machines, names))
    else:
        to = layout.screen(sys.stdout)
        told = text("name-separator").join(text(f"plan-solve-{name}") for name in names)
        title = text(
            "plan-solve-title",
            names=told,
            runner=_whose(terms),
        )
        output.laid_out([to.styled(layout.clean(title), layout.BOLD), *_lines(solved, proposals, machines, names, to)])
    if not solved.solutions:
        reason = translated(solved.refusal)
        diagnostics.note(text("plan-solve-refused", reason=reason) if reason else text("plan-solve-none"))
        arguments.finish(ExitCode.FAILED)


def solutions(
    names: Sequence[str],
    loaded: Loaded,
    report: Report,
    cluster: Cluster | None,
    terms: MemoryTerms,
    read: Callable[[Sequence[str]], tuple[Loaded | None, Report]],
) -> tuple[Sequence[str], Solved, Proposals, Machines]:
    """The quantities in the order of their columns, what was found, what says it in the keys of the file, and the machines.

    The arguments are those of ``solve``.

    Raises:
        UsageError: a quantity is unknown, or the memory of the machines is.
    """
    from rlctl.planning.solving import in_order, machines_of, quantity
    from rlctl.planning.solving import solve as search
    from rlctl.translation.proposals import Proposals

    for name in names:
        quantity(name)
    names = in_order(names)
    machines = machines_of(loaded.config, cluster, terms)
    assert cluster is not None  # or its memory would not be known
    proposals = Proposals(loaded, report, cluster, terms.framework, read)
    return names, search(loaded.config, names, machines, proposals.why_refused), proposals, machines


def _whose(terms: MemoryTerms) -> str:
    return release(f"{terms.framework}@{terms.release}") if terms.release else terms.framework


def as_data(solved: Solved, proposals: Proposals, machines: Machines, names: Sequence[str]) -> dict[str, Any]:
    """The solutions as plain data."""
    return {
        "solve": list(names),
        "runner": machines.terms.framework,
        "solutions": [
            {
                "values": dict(zip(names, each.values, strict=True)),
                "settings": {
                    setting.key: setting.values[0] if setting.values else None
                    for setting in proposals.settings_of(each.fixes)
                },
                "removed": [setting.key for setting in proposals.settings_of(each.fixes) if not setting.values],
                "phase": each.worst.phase,
                "gib": each.worst.gib + each.worst.asleep,
                "device_gib": machines.gib,
                "stop": None
                if each.stop is None
                else {
                    "value": each.stop.value,
                    "phase": each.stop.phase,
                    "part": each.stop.part,
                    "gib": each.stop.gib,
                    "reason": each.stop.reason,
                },
            }
            for each in solved.solutions
        ],
        "refusal": solved.refusal,
    }


def _lines(
    solved: Solved, proposals: Proposals, machines: Machines, names: Sequence[str], to: layout.Screen
) -> Iterator[str]:
    if len(names) > 1:
        yield from _table(solved.solutions, proposals, machines)
        return
    for each in solved.solutions:
        from rlctl.planning.solving import quantity

        now = quantity(names[0]).now(proposals.loaded.config)
        value = text("plan-solve-value", value=_shown(each.values[0]), now="none" if now is None else _shown(now))
        rows = [("plan-solve-best", value), ("plan-solve-needs", _needs(each, machines))]
        rows.append(("plan-solve-stops", _stopped(each.stop, machines)))
        width = max(layout.cells(text(head)) for head, _ in rows) + 2
        for head, told in rows:
            first, *more = to.wrapped(told, 2 + width)
            yield f"  {layout.padded(text(head), width)}{first}"
            yield from (" " * (2 + width) + line for line in more)
        for setting in proposals.settings_of(each.fixes):
            yield from layout.advice_lines(str(setting), 4, to)


def _table(solutions: Sequence[Solution], proposals: Proposals, machines: Machines) -> Iterator[str]:
    """A row a solution, a column a key of the file that has several values; what all rows set or remove comes last."""
    found = [proposals.settings_of(each.fixes) for each in solutions]
    cells = [{setting.key: _shown(setting.values[0]) for setting in settings if setting.values} for settings in found]
    keys = list(dict.fromkeys(key for row in cells for key in row))
    varied = [key for key in keys if len({row.get(key) for row in cells}) > 1 or len(cells) == 1]
    rows = [
        [
            *(row.get(key) or _shown(proposals.now(key)) for key in varied),
            _needs(each, machines),
            _stopped(each.stop, machines),
        ]
        for each, row in zip(solutions, cells, strict=True)
    ]
    heads = [*varied, text("plan-solve-needs"), text("plan-solve-stops")]
    widths = [max(map(layout.cells, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows) if rows else ():
        yield "  " + "  ".join(layout.padded(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
    shared = (setting for settings in found for setting in settings if setting.key not in varied)
    yield from dict.fromkeys(f"  {setting}" for setting in shared)


def _needs(solution: Solution, machines: Machines) -> str:
    worst = solution.worst
    gib = f"{worst.gib + worst.asleep:.1f}"
    return text("plan-solve-peak", phase=worst.phase.replace("_", " "), gib=gib, of=f"{machines.gib:g}")


def _stopped(stop: Stop | None, machines: Machines) -> str:
    from rlctl.planning.solving import room

    if stop is None:
        return text("plan-solve-end")
    if stop.reason:
        return text("plan-solve-stop-refused", value=_shown(stop.value), reason=translated(stop.reason))
    return text(
        "plan-solve-stop",
        value=_shown(stop.value),
        phase=stop.phase.replace("_", " "),
        gib=f"{stop.gib:.1f}",
        room=f"{room(machines):.1f}",
        part=translated(stop.part),
    )


def _shown(value: Any) -> str:
    from rlctl.checks.hints import shown

    return shown(value)
