"""What is known of a run as lines of text: its head, the timeline of its phases, its groups."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import cycle
from statistics import fmean
from typing import Any

from rich.cells import cell_len
from textual.content import Content

from rlctl.common.language import later
from rlctl.monitor.advisories import RECENT, Advice
from rlctl.monitor.histogram import histogram
from rlctl.monitor.metrics import StepTable
from rlctl.monitor.phases import IDLE, timeline
from rlctl.monitor.samples import Group
from rlctl.monitor.watching import RunView
from rlctl.runs import RunInfo, Status
from rlctl.runtime.stopping import CHECKPOINT_FILE, STOP_FILE
from rlctl.tui.language import say
from rlctl.tui.widgets.sample_texts import plain

TIMELINE_STEPS = 12
FAILURE_LINES = 3
COLORS = ("$primary", "$success", "$warning", "$accent", "$secondary", "$error")


STATUSES: dict[Status, str] = {
    "running": later("running"),
    "finished": later("finished"),
    "stopped": later("stopped"),
    "failed": later("failed"),
    "interrupted": later("interrupted"),
}


ASKED = {
    STOP_FILE: later("asked to stop: it ends after this step, with a checkpoint; S once more ends it now"),
    CHECKPOINT_FILE: later("asked for a checkpoint: it is written after this step"),
}


def duration(seconds: float) -> str:
    """Seconds as a person says them: ``42 s``, ``3 min 05 s``, ``2 h 10 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def run_line(info: RunInfo) -> str:
    """A run in a line of a list: its status, how far it is, its name."""
    step = say("step {step}").format(step=info.step)
    return plain(f"{say(STATUSES[info.status]):<12} {step:<12} {info.name}")


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
    lines = _in_lines([*named, *_progress(view, info, now)], [*_at_work(view, info, now, alive)], width)
    if info is not None and info.status == "running":
        lines += [say(told) for name, told in ASKED.items() if name in asked]
    if view.failure is not None:
        lines.append(_failure(view.failure))
    elif info is not None and info.cause:
        lines.append(info.cause)
    elif info is not None and info.status == "interrupted":
        lines.append(say("its process is gone; resumed, it goes on from its last checkpoint"))
    return plain("\n".join(line for line in [*lines, problem] if line))


def _in_lines(progress: list[str], work: list[str], width: int) -> list[str]:
    """A line each, or as many as they need where the first does not fit."""
    if not width or cell_len("   ".join(progress)) <= width:
        return ["   ".join(progress), "   ".join(work)]
    lines = [""]
    for part in [*progress, *work]:
        longer = f"{lines[-1]}   {part}" if lines[-1] else part
        if cell_len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines


def _failure(event: Mapping[str, Any]) -> str:
    """The first cause of a failure, short enough for the head, with what to do; the events have the whole."""
    message = "\n".join(str(event.get("message", "")).splitlines()[:FAILURE_LINES])
    told = f"{say('failed')}: {event.get('actor', '')}: {message}"
    return f"{told}\n  {event['hint']}" if event.get("hint") else told


def _progress(view: RunView, info: RunInfo | None, now: float) -> Iterator[str]:
    stage = view.stage
    yield say(STATUSES[info.status]) if info is not None else say("no run.json")
    if stage is not None:
        done = stage.steps.steps[-1] if len(stage.steps) else 0
        if _has_several_stages(view):
            yield say("stage {name}").format(name=stage.name)
        if stage.total_steps:
            share = min(1.0, done / stage.total_steps)
            yield say("step {done}/{total}").format(done=done, total=stage.total_steps) + f"  {bar(share)} {share:.0%}"
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
    if view.stage is not None and view.stage.weight_version is not None:
        yield say("weights {version}").format(version=view.stage.weight_version)
    if alive is not None:
        yield say("{alive} of {all} processes alive").format(alive=alive[0], all=alive[1])


def bar(share: float, width: int = 20) -> str:
    """A share as a bar."""
    full = round(share * width)
    return "█" * full + "░" * (width - full)


def advice_text(advice: Advice) -> str:
    """What looks wrong, and below it what to try."""
    return f"! {say(advice.text).format_map(advice.values)}\n  {say(advice.remedy)}"


def timeline_text(table: StepTable, width: int, steps: int = TIMELINE_STEPS) -> Content:
    """The phases of the last steps as bars to one scale, each with its letter, and what the letters mean."""
    rows = timeline(table, steps)
    longest = max((sum(phases.values()) for _, phases in rows), default=0.0)
    if not longest:
        return Content("")
    names = list(dict.fromkeys(name for _, phases in rows for name in phases))
    look = dict(zip((name for name in names if name != IDLE), cycle(COLORS), strict=False))
    letters = _letters(names)
    room = max(10, width - 18)
    lines = []
    for step, phases in rows:
        bars = (
            (letters[name] * round(seconds / longest * room), look.get(name, "")) for name, seconds in phases.items()
        )
        lines.append(Content.assemble(f"{step:>7} ", *bars, f" {sum(phases.values()):.1f} s"))
    means = {name: fmean(phases.get(name, 0.0) for _, phases in rows) for name in names}
    told = {name: plain(f"{letters[name]} {name} {mean:.2f} s").replace(" ", "\u00a0") for name, mean in means.items()}
    legend = Content("  ").join(Content.styled(text, look.get(name, "")) for name, text in told.items())
    return Content("\n").join([*lines, Content.assemble("        ", legend)])


def rewards_text(groups: Sequence[Group], step: int) -> str:
    """How the rewards of the responses that a step shows are spread."""
    rewards = [response.reward for group in groups for response in group.responses]
    parts = histogram(rewards)
    if not parts:
        return ""
    most = max(count for _, _, count in parts)
    head = say("rewards of step {step}: {responses} responses of {groups} groups that are shown")
    lines = [head.format(step=step, responses=len(rewards), groups=len(groups))]
    for low, high, count in parts:
        name = f"{low:.3g}" if low == high else say("{low:.3g} to {high:.3g}").format(low=low, high=high)
        lines.append(f"{name:>16} {'█' * max(1 if count else 0, round(count / most * 24))} {count}")
    return "\n".join(lines)


SHARES = (
    ("group/equal_share", later("groups with one reward for all, which teach nothing")),
    ("response/truncated_share", later("responses cut off at the limit")),
    ("reward/failed_share", later("rewards that failed")),
)


def shares_text(table: StepTable) -> str:
    """What of the last steps' groups and responses cannot teach."""
    found = ((name, table.latest(name, RECENT)) for name, _ in SHARES)
    means = {name: fmean(values) for name, values in found if values}
    lines = [f"{bar(means[name], 10)} {means[name]:6.1%}  {say(text)}" for name, text in SHARES if name in means]
    if not lines:
        return ""
    return "\n".join([say("mean of the last {steps} steps").format(steps=min(RECENT, len(table))), *lines])


def _letters(names: list[str]) -> dict[str, str]:
    """One letter a phase, of its own name where it is free, so that no color is needed; idle is a dot."""
    found: dict[str, str] = {}
    for name in names:
        free = [
            letter
            for letter in f"{name.upper()}ABCDEFGHIJKLMNOPQRSTUVWXYZ"
            if letter.isalpha() and letter not in found.values()
        ]
        found[name] = "." if name == IDLE else free[0]
    return found
