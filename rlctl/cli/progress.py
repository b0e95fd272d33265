"""The progress of a run for somebody who watches: what its events say, live on a terminal, a line a step elsewhere.

Reads events only; ``launch``, ``runs follow`` and ``runs resume`` show the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, Self

from rlctl.cli import diagnostics
from rlctl.common.messages.reasons import spoken, translated
from rlctl.common.messages.recorded import text_in

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import RenderableType
    from rich.live import Live

Event = Mapping[str, Any]
SHOWN = (("reward", "reward/mean"), ("loss", "policy/loss"), ("tokens/s", "throughput/tokens_per_second"))
"""What a step's line shows, and the metric it comes from."""


class Progress:
    """Collects events; a context manager that keeps a live display on a terminal."""

    def __init__(self, *, quiet: bool = False, live: bool | None = None, every: int = 1) -> None:
        """
        Args:
            quiet: tell nothing.
            live: keep a display; None does on a terminal.
            every: steps between two lines of a step, ``runtime.log_every``; the last step has one.
        """
        self.quiet = quiet
        self.every = every
        self.live = (diagnostics.is_terminal() if live is None else live) and not quiet
        self.run = ""
        self.stage = ""
        self.phase = ""
        self.step = 0
        self.total_steps: int | None = None
        self.metrics: dict[str, Any] = {}
        self.evaluated: dict[str, float] = {}
        self._step_seconds: list[float] = []
        self._display: Live | None = None

    def __enter__(self) -> Self:
        if self.live:
            from rich.live import Live

            self._display = Live(
                get_renderable=self.renderable,
                console=diagnostics.console(),
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,
            )
            self._display.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._display is not None:
            self._display.stop()
            self._display = None

    def __call__(self, event: Event) -> None:
        """Take in one event, and tell of it."""
        self._update(event)
        line = event_line(event, self)
        if line and not self.quiet:
            self._tell(line)

    def _tell(self, line: str) -> None:
        if self._display is None:
            diagnostics.note(line)
        else:
            from rich.text import Text

            self._display.console.print(Text(line))

    def _update(self, event: Event) -> None:
        kind = event.get("kind")
        self.stage = str(event.get("stage", self.stage))
        if kind == "run_started":
            self.run = str(event.get("run", ""))
        elif kind == "stage_started":
            self.total_steps, self.step, self.metrics = event.get("total_steps"), int(event.get("step") or 0), {}
            self._step_seconds.clear()
        elif kind == "resumed":
            self.step = int(event.get("step") or 0)
        elif kind == "phase":
            self.phase = str(event.get("name", ""))
        elif kind == "step":
            self.step, self.total_steps = int(event.get("step") or 0), event.get("total_steps", self.total_steps)
            self.metrics = dict(event.get("metrics", {}))
            if isinstance(seconds := self.metrics.get("time/step"), int | float) and isfinite(seconds):
                self._step_seconds.append(seconds)
        elif kind == "evaluation":
            self.evaluated = evaluated(event.get("metrics", {}))

    def seconds_left(self) -> float | None:
        """Time to the end of the stage at the pace of its last ten steps; None while unknown."""
        recent = self._step_seconds[-10:]
        if not recent or self.total_steps is None:
            return None
        return sum(recent) / len(recent) * max(0, self.total_steps - self.step)

    def renderable(self) -> RenderableType:
        """The live display: a bar with step and time left, and the newest numbers below."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        top = Table.grid(padding=(0, 1))
        left = self.seconds_left()
        top.add_row(
            Text(self.stage or self.run, "bold"),
            ProgressBar(total=self.total_steps, completed=self.step, width=30, pulse=self.total_steps is None),
            Text(step_text(self.step, self.total_steps)),
            Text(spoken("{time} left", time=duration(left)) if left is not None else "", "cyan"),
            Text(self.phase, "dim"),
        )
        below = [*headline(self.metrics), *(f"{name} {value:.3f}" for name, value in self.evaluated.items())]
        grid = Table.grid()
        grid.add_row(top)
        grid.add_row(Text("   ".join(below), "green"))
        return grid


def event_line(event: Event, state: Progress) -> str:
    """What is told of an event in a line of its own, or nothing."""
    kind = event.get("kind")
    prefix = f"{state.stage}: " if state.stage else ""
    if kind == "stage_started":
        return prefix + (
            spoken("until the buffer is dry")
            if state.total_steps is None
            else spoken("{count} steps", count=state.total_steps)
        )
    if kind == "step" and state.step % state.every and state.step != state.total_steps:
        return ""
    if kind == "step":
        left = state.seconds_left()
        parts = [step_text(state.step, state.total_steps), *headline(state.metrics)]
        return prefix + "  ".join([*parts, spoken("{time} left", time=duration(left))] if left is not None else parts)
    if kind == "evaluation":
        return (
            prefix
            + f"{step_text(event.get('step', 0), None)}  "
            + "  ".join(f"{name} {value:.3f}" for name, value in state.evaluated.items())
        )
    if kind in ("checkpoint", "resumed"):
        step, folder = event.get("step"), event.get("folder")
        if kind == "checkpoint":
            return prefix + spoken("saved at step {step}: {folder}", step=step, folder=folder)
        return prefix + spoken("resumed at step {step}: {folder}", step=step, folder=folder)
    if kind == "changes_accepted":
        listed = "".join(f"\n  {translated(change)}" for change in event.get("changes", ()))
        told = "continues from step {step} with changed training data, as --accept-changes says:"
        return prefix + spoken(told, step=event.get("step")) + listed
    if kind == "advisory":
        hint = text_in(event, "hint")
        return f"{prefix}{text_in(event, 'message')}" + (f" ({hint})" if hint else "")
    return ""


def step_text(step: int, total: int | None) -> str:
    """``step 3/50``."""
    return spoken("step {step}", step=f"{step}/{total}" if total else step)


def headline(metrics: Mapping[str, Any]) -> list[str]:
    """The few numbers of a step that are always shown, those that it has."""
    return [f"{spoken(label)} {number(metrics[name])}" for label, name in SHOWN if name in metrics]


def number(value: Any) -> str:
    """A number in few characters."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"


HEADLINE = ("accuracy", "reward", "loss")
"""Metrics of an evaluation dataset: the first of them that it has is shown."""


def evaluated(metrics: Mapping[str, Any]) -> dict[str, float]:
    """``gsm8k accuracy`` of each evaluation dataset; ``gsm8k reward`` if rewards give no accuracy; ``gsm8k loss`` in sft."""
    found: dict[str, dict[str, float]] = {}
    for name, value in metrics.items():
        group, _, rest = name.partition("/")
        source, _, what = rest.rpartition("/")
        if group == "evaluation" and source and what in HEADLINE and isinstance(value, int | float):
            found.setdefault(source, {})[what] = value
    chosen = {source: next(what for what in HEADLINE if what in values) for source, values in found.items()}
    return {f"{source} {what}": found[source][what] for source, what in chosen.items()}


def duration(seconds: float) -> str:
    """``42s``, ``3m 20s``, ``2h 05m``."""
    whole = round(seconds)
    if whole < 60:
        return spoken("{seconds}s", seconds=whole)
    if whole < 3600:
        return spoken("{minutes}m {seconds:02d}s", minutes=whole // 60, seconds=whole % 60)
    return spoken("{hours}h {minutes:02d}m", hours=whole // 3600, minutes=whole % 3600 // 60)
