"""Keystroke to screen in the editor with a config of 1,061 fields, and in a bare Textual app with one input, in one run.

    python benchmarks/tui_editor.py
    python benchmarks/tui_editor.py --rounds 1

Both apps run without a terminal. A key is timed from the moment it is sent to the first frame that is drawn after the field
holds it; the bare app shows what Textual and this machine take for that alone. Both take turns, because a shared machine is
slower at times. CPU is the time of the app's own thread, which depends less on the load. Keys come every 120 ms, so checks fall
between them as they do when you type.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from textual.app import App, ComposeResult
from textual.widgets import Input

from rlctl.editing.session import Session
from rlctl.tui.app import RlctlApp
from rlctl.tui.widgets.field_row import FieldRow

ROUNDS, KEYS = 3, 20
"""Turns of both apps, and the keys of each."""
PAUSE = 0.12
PROMPTS = ("batch", "prompts_per_step")
SOURCES = 24
"""Data sources of the config: with them it has about 900 fields."""


class Bare(App[None]):
    """A text field and nothing else."""

    def compose(self) -> ComposeResult:
        yield Input(compact=True)


def big_config(folder: Path) -> Path:
    """A config of about 900 fields."""
    sources = "".join(f"  - {{path: data-{number}.parquet, prompt_key: question}}\n" for number in range(SOURCES))
    path = folder / "run.yaml"
    path.write_text(
        "rlctl: 1\nrun: {name: big}\nmodel: {path: m}\nschedule: {total_steps: 10}\ncritic: {}\n"
        'checkpoint: {folder: "checkpoints/${run.project}"}\n'
        f"data:\n  train:\n{sources}"
    )
    return path


async def timed(app: App[Any], pilot: Any, field: Input) -> tuple[list[float], list[float]]:
    """Milliseconds from key to frame, and of CPU, for each key."""
    frames: list[float] = []
    display = app._display

    def drawn(screen: Any, renderable: Any) -> None:
        display(screen, renderable)
        frames.append(time.perf_counter())

    app._display = drawn  # type: ignore[method-assign]
    field.focus()
    await pilot.pause(0.5)
    waits, cpu = [], []
    for number in range(KEYS):
        await asyncio.sleep(PAUSE)
        before = field.value
        began, began_cpu = time.perf_counter(), time.thread_time()
        frames.clear()
        app.simulate_key("backspace" if number % 2 else "1")
        while field.value == before or not frames:
            await asyncio.sleep(0.001)
        waits.append((frames[0] - began) * 1000)
        cpu.append((time.thread_time() - began_cpu) * 1000)
    return waits, cpu


async def bare() -> tuple[list[float], list[float]]:
    """The same keys in a bare app."""
    app = Bare()
    async with app.run_test(size=(120, 40)) as pilot:
        return await timed(app, pilot, app.query_one(Input))


async def editor(folder: Path) -> tuple[int, tuple[list[float], list[float]]]:
    """Fields of the config, and the keys typed into one of them."""
    app = RlctlApp(session=Session.open(big_config(folder)))
    async with app.run_test(size=(120, 40)) as pilot:
        while len(app.screen_stack) == 1:
            await pilot.pause(0.1)
        screen: Any = app.screen
        await pilot.pause(3)
        await app.workers.wait_for_complete()
        await screen.jump(PROMPTS)
        await pilot.pause(1)
        while not (rows := [row for row in screen.query(FieldRow) if row.view.path == PROMPTS]):
            await pilot.pause(0.2)
        return len(screen.views), await timed(app, pilot, rows[0].query_one(Input))


def told(name: str, times: tuple[list[float], list[float]]) -> None:
    waits, cpu = (sorted(part) for part in times)
    high = int(0.95 * len(waits))
    middle = statistics.median(waits)
    print(
        f"{name:<10} key to frame: median {middle:5.1f} ms, 95 % {waits[high]:5.1f} ms, most {waits[-1]:5.1f} ms"
        f"   CPU: median {statistics.median(cpu):5.1f} ms, 95 % {cpu[high]:5.1f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    plain: tuple[list[float], list[float]] = ([], [])
    ours: tuple[list[float], list[float]] = ([], [])
    count = 0
    for _ in range(parser.parse_args().rounds):
        add(plain, asyncio.run(bare()))
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_STATE_HOME"] = folder  # or the next turn would offer this one's unsaved changes
            count, found = asyncio.run(editor(Path(folder)))
        add(ours, found)
    print(f"{count} fields, {len(ours[0])} keys each")
    told("bare", plain)
    told("editor", ours)
    ratios = [statistics.median(mine) / statistics.median(other) for mine, other in zip(ours, plain, strict=True)]
    print(f"ratio of medians {ratios[0]:.1f}, of CPU {ratios[1]:.1f}")


def add(known: tuple[list[float], list[float]], found: tuple[list[float], list[float]]) -> None:
    """Add the times of a turn."""
    for all_, new in zip(known, found, strict=True):
        all_.extend(new)


if __name__ == "__main__":
    main()
