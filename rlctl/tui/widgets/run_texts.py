"""What is known of a run as lines of text: its head, the timeline of its phases, its groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.cells import cell_len
from textual.content import Content

from rlctl.common.language import later
from rlctl.common.messages.reasons import translated
from rlctl.common.messages.recorded import text_in
from rlctl.monitor.advisories import RECENT, RULES, Advice
from rlctl.monitor.histogram import histogram
from rlctl.monitor.metrics import Series, StepTable
from rlctl.monitor.phases import IDLE, timeline
from rlctl.monitor.samples import Group
from rlctl.monitor.watching import RunView, StageView
from rlctl.runs import RunInfo, Status
from rlctl.runtime.stopping import CHECKPOINT_FILE, STOP_FILE
from rlctl.tui.language import LANGUAGE, padded, plural, say, shortened
from rlctl.tui.themes import SERIES
from rlctl.tui.widgets.braille import blocks
from rlctl.tui.widgets.marks import marked
from rlctl.tui.widgets.sample_texts import plain

NAMED = 11
"""Cells of a name in the tile of numbers."""
LONGEST_NAME = 32
"""Most cells of a folder that stands for a name."""
EVIDENCE = 24
"""Most steps whose values stand beside an advice."""
METRIC_OF = {rule.code: rule.metric for rule in RULES}
FAILURE_LINES = 3
LABEL_GAP = 2
"""Cells between two names below the ribbon of phases."""
WIDE, WIDE_BAR, NARROW_BAR = 100, 20, 6
"""Cells of a wide head, and of the bar of progress in it and in others."""


SIGNS: dict[Status, str] = {"running": "●", "finished": "✓", "stopped": "■", "failed": "✗", "interrupted": "!"}
"""A mark for each status, so that it is not told by its color alone."""
STATUSES: dict[Status, str] = {
    "running": later("running"),
    "finished": later("finished"),
    "stopped": later("stopped"),
    "failed": later("failed"),
    "interrupted": later("interrupted"),
}


ASKED = {
    STOP_FILE: later("stopping after this step, with a checkpoint; press S again to stop now"),
    CHECKPOINT_FILE: later("the run saves a checkpoint after this step"),
}


DAY = 24 * 3600


def duration(seconds: float) -> str:
    """Seconds as a person says them: ``42 s``, ``3 min 05 s``, ``2 h 10 min``, ``3 d 04 h``."""
    whole = round(seconds)
    if whole < 60:
        return say("{seconds} s").format(seconds=f"{seconds:.1f}" if seconds < 10 else whole)
    if whole < 3600:
        return say("{minutes} min {seconds:02d} s").format(minutes=whole // 60, seconds=whole % 60)
    if whole < 2 * DAY:
        return say("{hours} h {minutes:02d} min").format(hours=whole // 3600, minutes=whole % 3600 // 60)
    return say("{days} d {hours:02d} h").format(days=whole // DAY, hours=whole % DAY // 3600)


def names_of(known: Iterable[RunInfo]) -> dict[Path, str]:
    """What each run of a list is called, by its folder: its name, or its folder if another run has this name."""
    listed = list(known)
    times = Counter(info.name for info in listed)
    return {
        info.folder: info.name if times[info.name] == 1 else shortened(str(info.folder), LONGEST_NAME)
        for info in listed
    }


def run_line(info: RunInfo, name: str = "") -> str:
    """A run in a line of a list: its status, how far it is, its name; ``name``: in place of its own."""
    step = f"{info.step}/{info.total_steps}" if info.total_steps else str(info.step)
    return plain(f"{SIGNS[info.status]} {padded(say(STATUSES[info.status]), 12)}{step:>9}  {name or info.name}")


def head_text(
    view: RunView,
    info: RunInfo | None,
    now: float,
    *,
    alive: tuple[int, int] | None = None,
    problem: str = "",
    asked: Collection[str] = (),
    name: str = "",
    width: int = 0,
) -> str:
    """How the run is and how far; what it does now against its usual time; what failed, or why the folder cannot be read.

    Args:
        view: what its log says.
        info: what run.json says; None where it cannot be read.
        now: seconds since the epoch.
        alive: processes that told not long ago, and all that are known; None where it does not run.
        problem: why something cannot be read.
        asked: what it was asked to do after its step.
        name: the run's, where nothing above says it.
        width: cells of a line, which break between two things that are told, not within one; 0 for any.
    """
    named = [name] if name else []
    cells = NARROW_BAR if 0 < width < WIDE else WIDE_BAR
    lines = _in_lines([*named, *_progress(view, info, now, cells)], [*_at_work(view, info, now, alive)], width)
    if info is not None and info.status == "running":
        lines += [say(told) for name, told in ASKED.items() if name in asked]
    if view.failure is not None:
        lines.append(_failure(view.failure))
    elif info is not None and info.cause:
        lines.append(translated(info.cause, LANGUAGE))
    elif info is not None and info.status == "interrupted":
        lines.append(say("its process is gone; you can resume it from its last checkpoint"))
    return plain("\n".join(line for line in [*lines, problem] if line))


def _in_lines(progress: list[str], work: list[str], width: int) -> list[str]:
    """All in one line, or in as many as they need; without a width a line each."""
    if not width:
        return ["   ".join(progress), "   ".join(work)]
    lines = [""]
    gap = " " * (2 if width < WIDE else 3)
    for part in [*progress, *work]:
        longer = f"{lines[-1]}{gap}{part}" if lines[-1] else part
        if cell_len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines


def _failure(event: Mapping[str, Any]) -> str:
    """The first cause of a failure, short enough for the head, with what to do; the events have the whole."""
    whole = text_in(event, "message", LANGUAGE).splitlines()
    message = "\n".join(whole[:FAILURE_LINES]) + (" …" if len(whole) > FAILURE_LINES else "")
    told = f"{say('failed')}: {event.get('actor', '')}: {message}"
    return f"{told}\n  {text_in(event, 'hint', LANGUAGE)}" if event.get("hint") else told


def _progress(view: RunView, info: RunInfo | None, now: float, cells: int) -> Iterator[str]:
    stage = view.stage
    yield f"{SIGNS[info.status]} {say(STATUSES[info.status])}" if info is not None else say("no run.json")
    if stage is not None:
        done = stage.steps.steps[-1] if len(stage.steps) else 0
        if _has_several_stages(view):
            yield say("stage {name}").format(name=stage.name)
        if stage.total_steps:
            share = min(1.0, done / stage.total_steps)
            yield (
                say("step {done}/{total}").format(done=done, total=stage.total_steps)
                + f"  {bar(share, cells)} {share:.0%}"
            )
        else:
            yield say("step {step}").format(step=done)
    if info is not None:
        took = say("{time} so far") if info.status == "running" else say("took {time}")
        yield took.format(time=duration(info.seconds))
        if info.resumed is not None:
            yield say("resumed {time} ago").format(time=duration(max(0.0, now - info.resumed.timestamp())))
        if info.status == "running" and view.seconds_left is not None:
            yield say("about {time} left").format(time=duration(view.seconds_left))


def _has_several_stages(view: RunView) -> bool:
    """Also where only the first has begun."""
    planned = (event.get("stages") for event in view.events if event["kind"] == "run_started")
    return len(view.stages) > 1 or any(isinstance(stages, list) and len(stages) > 1 for stages in planned)


def _at_work(view: RunView, info: RunInfo | None, now: float, alive: tuple[int, int] | None) -> Iterator[str]:
    if info is not None and info.status == "running" and (phase := view.phase) is not None:
        told = say("{phase} for {time}").format(phase=phase.name, time=duration(phase.elapsed(now)))
        usual = phase.usual
        yield told if usual is None else f"{told} ({say('usually {time}').format(time=duration(usual))})"
    steps = view.stage.steps.steps if view.stage is not None else ()
    if view.stage is not None and view.stage.weight_version not in (None, steps[-1] if steps else None):
        yield say("weights {version}").format(version=view.stage.weight_version)
    if alive is not None:
        told = say("{alive} of 1 process alive") if alive[1] == 1 else say("{alive} of {all} processes alive")
        yield told.format(alive=alive[0], all=alive[1])


def bar(share: float, width: int = 20) -> str:
    """A share as a bar."""
    full = round(share * width)
    return "━" * full + "╌" * (width - full)


def advice_card(advice: Advice, table: StepTable | None, change: str = "") -> Content:
    """What looks wrong with the values that say so, and below it what to try, and the change of config that a key makes."""
    values = table.latest(METRIC_OF.get(advice.code, str(advice.values.get("metric", ""))), EVIDENCE) if table else []
    scale = min([0.0, *values]), max([0.0, *values])
    evidence = (f"  {blocks(values, EVIDENCE, scale)}", "$warning") if len(values) > 1 else ""
    offer = Content.assemble("\n  ", ("f", "$footer-key-foreground bold"), f" {plain(change)}") if change else ""
    text = say(advice.text).format_map(advice.values)
    return Content.assemble(
        ("! ", "$warning bold"), (plain(text), "bold"), evidence, "\n  ", (say(advice.remedy), "$text-muted"), offer
    )


def ribbon(table: StepTable, width: int) -> tuple[Content, str]:
    """The phases of a step as one bar, by their mean over the last steps, each named below its part; a step's duration."""
    rows = timeline(table, RECENT)
    names = list(dict.fromkeys(name for _, phases in rows for name in phases))
    means = {name: fmean(phases.get(name, 0.0) for _, phases in rows) for name in names}
    total = sum(means.values())
    if not total:
        return Content(""), ""
    look = dict(zip((name for name in names if name != IDLE), cycle(SERIES), strict=False))
    ordered = sorted(names, key=lambda name: (name == IDLE, -means[name]))
    bars, parts = [], []
    start = 0.0
    for name in ordered:
        end, style = start + means[name] / total * width, look.get(name, "$border-blurred")
        if cells := round(end) - round(start):
            bars.append(("█" * (cells - 1) + "▌", style))  # half a cell separates two parts, also without color
        told = plain(f"{name} {means[name] / total:.0%}").replace(" ", "\u00a0")
        parts.append((round(start), Content.styled(told, look.get(name, "$text-muted"))))
        start = end
    return Content.assemble(*bars, "\n", _below(parts, width)), duration(total)


def _below(parts: Sequence[tuple[int, Content]], width: int) -> Content:
    """Names below their places in one line, moved to the left if they would overlap; without room, one after another."""
    places, free = [], width
    for at, told in reversed(parts):
        places.append(min(at, free - told.cell_length))
        free = places[-1] - LABEL_GAP
    line = Content("")
    for at, (_, told) in zip(reversed(places), parts, strict=True):
        gap = max(at - line.cell_length, LABEL_GAP if line.cell_length else 0)
        line = Content.assemble(line, " " * gap, told)
    return line if line.cell_length <= width else Content("   ").join(told for _, told in parts)


@dataclass(frozen=True, slots=True)
class TileRow:
    """A number of the tile: its name, its metric, how it is written, and whether more is better (None: neither)."""

    name: str
    metric: str
    format: str
    is_better_up: bool | None = None


TILES = (
    TileRow(later("reward"), "reward/mean", "{:.4g}", True),
    TileRow(later("tokens/s"), "throughput/tokens_per_second", "{:,.0f}", True),
    TileRow(later("length"), "response/length_mean", "{:.1f}"),
    TileRow(later("entropy"), "policy/entropy", "{:.3g}"),
    TileRow(later("KL"), "policy/approx_kl", "{:.3g}"),
    TileRow(later("grad norm"), "policy/grad_norm", "{:.3g}"),
)


def tiles(stage: StageView, left: float | None, width: int, height: int) -> Content:
    """The newest numbers of a stage, each with how it moved against the steps before; where there is room, with its course.

    Args:
        stage: of the run.
        left: seconds until the end; None if they are not known.
        width: cells of a line.
        height: lines that there is room for.
    """
    rows = [(say(row.name), stage.steps.series(row.metric), row) for row in TILES]
    evaluations = []
    for metric in [name for name in stage.evaluations.columns if name.endswith(("accuracy", "reward"))][:2]:
        is_share = metric.endswith("accuracy")
        row = TileRow("", metric, "{:.1%}" if is_share else "{:.4g}", True)
        name = say("accuracy") if is_share else say("evaluation")
        evaluations.append((name, stage.evaluations.series(metric), row))
    known = [row for row in (*rows[:1], *evaluations, *rows[1:]) if len(row[1])]
    room = (height - (left is not None)) // max(1, len(known))
    parts = []
    for name, series, row in known:
        parts.append(_tile(name, series, row))
        if room > 1:
            parts.append(_course(series, width))
        if room > 2:
            parts.append(Content(""))
    if left is not None:
        parts.append(Content.assemble((padded(say("time left"), NAMED), "$text-muted"), (duration(left), "bold")))
    return Content("\n").join(parts)


def _tile(name: str, series: Series, row: TileRow) -> Content:
    value = row.format.format(series.values[-1])
    line = Content.assemble((padded(name, NAMED), "$text-muted"), (f"{value:<8}", "bold"))
    before = list(series.values[-1 - RECENT : -1])
    change = series.values[-1] - fmean(before) if before else 0.0
    told = row.format.format(abs(change))
    if value == row.format.format(series.values[-1] - change):  # a change that the value does not show
        return line
    told = told if row.format.endswith(("%}", "f}")) else f"{abs(change):.2g}"
    sign = "▲" if change > 0 else "▼"
    style = "$text-muted" if row.is_better_up is None else "$success" if (change > 0) == row.is_better_up else "$error"
    return Content.assemble(line, (f" {sign} {told}", style))


def _course(series: Series, width: int) -> Content:
    """A metric from its first step to its newest in one line; nothing of one that never changes."""
    values = series.thinned(width).values
    if min(values) == max(values):
        return Content("")
    return Content.styled(blocks([values[x * len(values) // width] for x in range(width)], width), "$primary")


def rewards_text(groups: Sequence[Group]) -> Content:
    """How the rewards of the responses that a step shows are spread."""
    rewards = [response.reward for group in groups for response in group.responses]
    parts = histogram(rewards)
    if not parts:
        return Content("")
    most = max(count for _, _, count in parts)
    told = say("{responses} of {groups} shown").format(
        responses=plural(len(rewards), later("1 response"), later("{count} responses")),
        groups=plural(len(groups), later("1 group"), later("{count} groups")),
    )
    lines = [Content.styled(told, "$text-muted")]
    for low, high, count in parts:
        name = f"{low:.3g}" if low == high else say("{low:.3g} to {high:.3g}").format(low=low, high=high)
        bars = "█" * max(1 if count else 0, round(count / most * 24))
        lines.append(Content.assemble(f"{name:>16} ", (bars, "$primary"), f" {count}"))
    return Content("\n").join(lines)


SHARES = (
    ("group/equal_share", later("groups with equal rewards: no signal")),
    ("response/truncated_share", later("responses cut off at the limit")),
    ("reward/failed_share", later("rewards that failed")),
)


def shares_text(table: StepTable) -> Content:
    """What of the last steps' groups and responses cannot teach."""
    found = ((name, table.latest(name, RECENT)) for name, _ in SHARES)
    means = {name: fmean(values) for name, values in found if values}
    lines = [marked(f"{bar(means[name], 6)} {means[name]:6.1%}  {say(text)}") for name, text in SHARES if name in means]
    if not lines:
        return Content("")
    told = plural(min(RECENT, len(table)), later("the last step"), later("mean of the last {count} steps"))
    return Content("\n").join([Content.styled(told, "$text-muted"), *lines])
