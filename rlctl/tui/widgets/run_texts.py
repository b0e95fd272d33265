"""What is known of a run as lines of text: its head, the timeline of its phases, its groups."""

from __future__ import annotations

from itertools import cycle
from statistics import fmean

from textual.markup import escape

from rlctl.monitor.advisories import Advice
from rlctl.monitor.metrics import StepTable
from rlctl.monitor.phases import IDLE, timeline
from rlctl.monitor.samples import Group
from rlctl.monitor.watching import RunView
from rlctl.runs import RunInfo
from rlctl.tui.language import say

TIMELINE_STEPS = 12
COLORS = ("$primary", "$success", "$warning", "$accent", "$secondary", "$error")


def duration(seconds: float) -> str:
    """Seconds as a person says them: ``42 s``, ``3 min 05 s``, ``2 h 10 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def head_text(view: RunView, info: RunInfo | None, now: float) -> str:
    """Status, step, phase against its usual time, what is left, weight version; the first cause of a failure."""
    stage = view.stage
    parts: list[str] = [info.status if info is not None else "no run.json"]
    if stage is not None:
        done = stage.steps.steps[-1] if len(stage.steps) else 0
        parts.append(f"stage {stage.name}  step {done}" + (f"/{stage.total_steps}" if stage.total_steps else ""))
    running = info is not None and info.status == "running"
    if running and (phase := view.phase) is not None:
        usual = "" if phase.usual is None else f" (usually {duration(phase.usual)})"
        parts.append(f"{phase.name} for {duration(phase.elapsed(now))}{usual}")
    if running and view.seconds_left is not None:
        parts.append(f"about {duration(view.seconds_left)} left")
    if stage is not None and stage.weight_version is not None:
        parts.append(f"weights {stage.weight_version}")
    if view.behind:
        parts.append(f"reading, {view.behind >> 20} MiB to go")
    lines = ["   ".join(parts)]
    if view.failure is not None:
        lines.append(f"failed: {view.failure.get('actor', '')}: {view.failure.get('message', '')}")
    elif info is not None and info.cause:
        lines.append(info.cause)
    return "\n".join(lines)


def advice_text(advice: Advice) -> str:
    """What looks wrong, and below it what to try."""
    return f"! {say(advice.text).format_map(advice.values)}\n  {say(advice.remedy)}"


def timeline_text(table: StepTable, width: int) -> str:
    """The phases of the last steps as bars to one scale, each with its letter, and what the letters mean."""
    rows = timeline(table, TIMELINE_STEPS)
    longest = max((sum(phases.values()) for _, phases in rows), default=0.0)
    if not longest:
        return ""
    names = list(dict.fromkeys(name for _, phases in rows for name in phases))
    look = dict(zip((name for name in names if name != IDLE), cycle(COLORS), strict=False))
    letters = _letters(names)
    room = max(10, width - 18)
    lines = []
    for step, phases in rows:
        bar = "".join(
            _colored(letters[name] * round(seconds / longest * room), look.get(name))
            for name, seconds in phases.items()
        )
        lines.append(f"{step:>7} {bar} {sum(phases.values()):.1f} s")
    means = {name: fmean(phases.get(name, 0.0) for _, phases in rows) for name in names}
    legend = "  ".join(_colored(f"{letters[name]} {name} {mean:.2f} s", look.get(name)) for name, mean in means.items())
    return "\n".join([*lines, f"        {legend}"])


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


def _colored(text: str, color: str | None) -> str:
    return f"[{color}]{text}[/]" if color and text else text


def list_line(group: Group) -> str:
    """A group in a line: mean reward, how many responses, its prompt."""
    mark = "=" if group.is_equal else " "
    prompt = escape(" ".join(group.prompt.split())[:200])
    return f"{group.mean_reward:6.2f}{mark} {len(group.responses):>2}  {prompt}" if group.responses else prompt


def group_text(group: Group) -> str:
    """A group whole: its prompt, its answer, and its responses from best to worst, with what each reward said."""
    lines = ["prompt", _indented(group.prompt)]
    if group.answer:
        lines += ["answer", _indented(group.answer)]
    mean = group.mean_reward
    for response in sorted(group.responses, key=lambda response: -response.reward):
        parts = "  ".join(f"{name} {value:g}" for name, value in response.components.items())
        against = f"({response.reward - mean:+.3g} to the group's mean)"
        lines += [f"reward {response.reward:g} {against}  {parts}", _indented(response.text)]
    if group.is_equal:
        lines.append("all rewards are equal: nothing is learned from this group")
    return "\n".join(lines)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines() or [""])
