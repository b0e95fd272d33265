"""How a long run opens in the monitor, and how it goes on: a run of 100,000 steps and 20 metrics, then 10 more steps a second.

    python benchmarks/tui_run.py
    python benchmarks/tui_run.py --steps 20000

The app runs without a terminal, 120 x 40, with all that it does. The script prints the seconds until something of the run is
seen, and until the whole is there, by the clock and of the processor. It also prints how long a key would have waited before the
run is seen, while it is read and while it grows: a task wakes every 10 ms and measures how late it is, and how long the app's
own thread computed meanwhile, which does not depend on other programs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rlctl.tui.app import RlctlApp
from rlctl.tui.screens.monitor import MonitorScreen

PHASES = ("rollout", "reward", "advantages", "train", "sync")
WAKE = 0.01
LIMIT = 0.1
"""The aim: no frame takes longer."""
GROWING_SECONDS = 10
UNITS = "ms: median, 99th percentile, longest and how many over 100 ms, by the clock; the same in thread time"


def lines(first: int, last: int, total: int) -> Iterator[str]:
    """What a run tells of its steps."""
    draw = random.Random(first)
    names = ["reward/mean", "policy/entropy", "policy/approx_kl", "response/length_mean", "group/equal_share"]
    names += [f"policy/metric_{number}" for number in range(9)]
    for step in range(first, last + 1):
        for phase in PHASES:
            yield json.dumps({"time": 1e9 + step, "kind": "phase", "stage": "main", "step": step - 1, "name": phase})
        metrics = {name: draw.random() for name in names}
        metrics |= {f"time/{phase}": draw.random() for phase in PHASES} | {"time/step": 3.0}
        event = {"time": 1e9 + step, "kind": "step", "stage": "main", "step": step, "total_steps": total}
        yield json.dumps(event | {"metrics": metrics})


def make_run(folder: Path, steps: int) -> Path:
    """A run folder with so many steps, of half as many again to come."""
    folder.mkdir()
    record = {"name": "long", "status": "finished", "pid": 0, "host": "here", "started": 1e9, "ended": 1e9 + steps}
    (folder / "run.json").write_text(json.dumps(record))
    with (folder / "events.jsonl").open("w") as file:
        file.write(
            json.dumps({"time": 1e9, "kind": "stage_started", "stage": "main", "total_steps": steps, "step": 0}) + "\n"
        )
        file.writelines(f"{line}\n" for line in lines(1, steps, steps))
    return folder


class Waits:
    """How late a task is that wakes every 10 ms: so long a key would have waited."""

    def __init__(self) -> None:
        self.found: list[tuple[float, float]] = []

    async def watch(self) -> None:
        while True:
            before, computed = time.perf_counter(), time.thread_time()
            await asyncio.sleep(WAKE)
            self.found.append((time.perf_counter() - before - WAKE, time.thread_time() - computed))

    def told(self) -> str:
        """The median, the 99th percentile, the longest, and how many are over 100 ms; then starts over."""
        found, self.found = self.found, []
        return "   ".join(_spread([pair[place] for pair in found]) for place in (0, 1))


def processor_seconds() -> float:
    """Of this process, and of those it started that are over: a long log is read in a separate one."""
    return sum(os.times()[:4])


def _spread(seconds: list[float]) -> str:
    found = sorted(seconds)
    middle, late = found[len(found) // 2], found[int(len(found) * 0.99)]
    return f"{1e3 * middle:6.1f} {1e3 * late:6.1f} {1e3 * found[-1]:6.1f} {sum(each > LIMIT for each in found):3}"


async def measure(run: Path, steps: int) -> None:
    waits = Waits()
    app = RlctlApp(run=run)
    began, worked = time.perf_counter(), processor_seconds()
    async with app.run_test(size=(120, 40)) as pilot:
        watcher = asyncio.create_task(waits.watch())

        def last_step() -> int:
            screen = app.screen
            stage = screen.view.stage if isinstance(screen, MonitorScreen) else None
            return stage.steps.steps[-1] if stage is not None and len(stage.steps) else 0

        def known_steps() -> int:
            screen = app.screen
            stage = screen.view.stage if isinstance(screen, MonitorScreen) else None
            return len(stage.steps) if stage is not None else 0

        def passed() -> str:
            return f"{time.perf_counter() - began:5.2f} s  (processor {processor_seconds() - worked:.2f} s)"

        while last_step() < steps:
            await asyncio.sleep(0.005)
        print(f"something of the run after  {passed()}")
        print(f"waits until then            {waits.told()}  {UNITS}")
        while known_steps() < steps:
            await asyncio.sleep(0.005)
        print(f"the whole run after         {passed()}")
        print(f"waits while it was read     {waits.told()}  {UNITS}")
        for name, keys in (("overview", ()), ("metrics, three of them", ("2", "space", "down", "space", "down"))):
            await pilot.press(*keys)
            await asyncio.sleep(2)
            waits.told()
            await grow(run, last_step())
            print(f"waits while it grew         {waits.told()}  ms on the page {name}")
        watcher.cancel()
    print(f"main memory                 {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB at most")


async def grow(run: Path, steps: int) -> None:
    """Ten steps a second."""
    for number in range(GROWING_SECONDS):
        first = steps + 10 * number + 1
        with (run / "events.jsonl").open("a") as file:
            file.writelines(f"{line}\n" for line in lines(first, first + 9, steps))
        await asyncio.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory(prefix="rlctl-tui-run-") as name:
        run = make_run(Path(name) / "long", steps)
        print(f"{steps} steps of 20 metrics, {(run / 'events.jsonl').stat().st_size >> 20} MiB")
        asyncio.run(measure(run, steps))


if __name__ == "__main__":
    main()
