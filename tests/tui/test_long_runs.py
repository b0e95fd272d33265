"""A run of 100,000 steps: what the app does with its own thread while the run loads and the terminal is resized."""

from __future__ import annotations

import asyncio
import cProfile
import gc
import json
import random
from asyncio.events import Handle
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
MOST_CALLS = 350_000
"""Calls of functions in one turn: about 0.1 s of a quiet core. Unlike seconds, they do not depend on other programs."""
SIZES = [Size(80, 24), Size(200, 60), Size(120, 40)]
"""Each has other classes than the one before."""


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
def turns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Calls of functions in each turn of the event loop; a key waits for the turn that is on."""
    found: list[int] = []
    turn = Handle._run

    def counted(handle: Handle) -> None:
        profile = cProfile.Profile()
        profile.runcall(turn, handle)
        found.append(sum(entry.callcount for entry in profile.getstats()))  # type: ignore[attr-defined]

    monkeypatch.setattr(Handle, "_run", counted)
    return found


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


def test_no_frame_takes_long_while_a_long_run_loads_and_the_terminal_is_resized(run: Path, turns: list[int]) -> None:
    longest: dict[str, int] = {}

    async def go() -> None:
        app = RlctlApp(run=run)
        async with app.run_test(size=(140, 45)) as pilot:
            while not isinstance(app.screen, MonitorScreen):
                await asyncio.sleep(0.002)
            for page in ("", "1", "2", "3"):
                if page:
                    await pilot.press(page)
                turns.clear()
                for size in SIZES:
                    await resized(app, size)
                while steps(app.screen) < STEPS:
                    await resized(app, SIZES[len(turns) % len(SIZES)])
                longest[page or "loading"] = max(turns)

    asyncio.run(go())
    assert {what: calls for what, calls in longest.items() if calls > MOST_CALLS} == {}
    assert max(longest.values()) > MOST_CALLS / 10, "frames were counted"


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
