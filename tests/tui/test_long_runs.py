"""A run of 100,000 steps: what the app does with its own thread while the run loads and the terminal is resized."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import time
from asyncio.events import Handle
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.events import Resize
from textual.geometry import Size

from rlctl.tui import app as app_module
from rlctl.tui.app import RlctlApp
from rlctl.tui.screens.monitor import MonitorScreen
from rlctl.tui.widgets.spark import Spark
from tests.tui.conftest import drive, settled

STEPS = 100_000
NAMES = ("reward/mean", "policy/entropy", "policy/approx_kl", "policy/clip_fraction", "policy/grad_norm",
         "response/length_mean", "group/equal_share", "throughput/tokens_per_second", "time/rollout", "time/train",
         "time/sync")  # fmt: skip
LONGEST = 0.1
"""Seconds of processor time that keys wait at most."""
SIZES = [Size(80, 24), Size(200, 60), Size(120, 40)]
"""Each has other classes than the one before."""
LOOP = 0.02
"""Seconds that ``busy`` takes on a quiet machine."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of so many steps."""
    folder = tmp_path_factory.mktemp("runs") / "long"
    folder.mkdir()
    record = {"name": "long", "status": "finished", "pid": 0, "host": "here", "started": 1e9, "ended": 2e9}
    (folder / "run.json").write_text(json.dumps(record))
    draw = random.Random(0)
    told = [json.dumps({name: draw.random() for name in NAMES} | {"time/step": 3.0}) for _ in range(1000)]
    with (folder / "events.jsonl").open("w") as file:
        start = {"time": 1e9, "kind": "stage_started", "stage": "main", "total_steps": STEPS, "step": 0}
        file.write(json.dumps(start) + "\n")
        for step in range(1, STEPS + 1):
            head = f'"time": {1e9 + step}, "kind": "step", "stage": "main", "step": {step}, "total_steps": {STEPS}'
            file.write(f'{{{head}, "metrics": {told[step % len(told)]}}}\n')
    return folder


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Seconds that the thread of the event loop computes in each of its turns; a key waits for the one that is on."""
    found: list[float] = []
    turn = Handle._run

    def timed(handle: Handle) -> None:
        began = time.thread_time()
        turn(handle)
        found.append(time.thread_time() - began)

    monkeypatch.setattr(Handle, "_run", timed)
    return found


def busy() -> float:
    """How many times as long as on a quiet machine a thread computes here and now: other programs use its cache and core."""
    began = time.thread_time()
    sum(number * number % 7 for number in range(500_000))
    return max(1.0, (time.thread_time() - began) / LOOP)


def steps(screen: Any) -> int:
    return len(screen.view.stage.steps) if isinstance(screen, MonitorScreen) and screen.view.stage else 0


async def resized(app: RlctlApp, size: Size) -> None:
    """Resize the terminal, and wait until a frame of that size is drawn, not until there is nothing to do."""
    app._driver._size = size  # type: ignore[union-attr]
    app.post_message(Resize(size, size))
    async with asyncio.timeout(60):
        while app.screen._compositor.size != size:
            await asyncio.sleep(0.002)
    await asyncio.sleep(0.05)


def test_no_frame_takes_long_while_a_long_run_loads_and_the_terminal_is_resized(run: Path, turns: list[float]) -> None:
    """Of each the best of up to three times: the machine may be busy."""
    longest: defaultdict[str, list[float]] = defaultdict(list)

    def too_long() -> dict[str, float]:
        return {what: min(found) for what, found in longest.items() if min(found) > LONGEST}

    async def once() -> None:
        app = RlctlApp(run=run)
        async with app.run_test(size=(140, 45)) as pilot:
            while not isinstance(app.screen, MonitorScreen):
                await asyncio.sleep(0.002)
            for page in ("", "1", "2", "3"):
                if page:
                    await pilot.press(page)
                slowness = busy()
                turns.clear()
                for size in SIZES:
                    await resized(app, size)
                while steps(app.screen) < STEPS:
                    await resized(app, SIZES[len(turns) % len(SIZES)])
                longest[page or "loading"].append(max(turns) / max(slowness, busy()))

    for _ in range(3):
        asyncio.run(once())
        if not too_long():
            break
    assert too_long() == {}


def test_a_resize_draws_each_chart_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it gives the page other classes, and the charts other places."""
    drawn: list[str] = []
    draw = Spark._draw

    def counted(chart: Spark) -> None:
        drawn.append(chart.metric)
        draw(chart)

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await settled(screen, pilot)
        monkeypatch.setattr(Spark, "_draw", counted)
        await pilot.resize_terminal(164, 45)
        await settled(screen, pilot)
        assert len(drawn) > 4
        assert len(drawn) <= len(set(drawn)) + 1, drawn

    drive(RlctlApp(run=run), act, size=(150, 45))


def test_the_search_for_garbage_waits_for_the_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks through all that is there at once, which takes as long as a frame may."""
    monkeypatch.setattr(app_module, "TIDY_SECONDS", 0.01)
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(getattr(app.screen, "is_reading", False)))
    app = RlctlApp(run=run)

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        while not frozen:
            await pilot.pause(0.01)
        assert frozen == [False]
        assert steps(screen) == STEPS

    drive(app, act)
