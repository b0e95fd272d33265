"""Runs an app without a terminal, and acts on it."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from textual.widgets import Static
from textual.worker import WorkerCancelled

from rlctl.runtime.reporting.events import Events
from rlctl.tui import app as app_module
from rlctl.tui.app import RlctlApp
from rlctl.tui.dialogs.dialog import Dialog

Act = Callable[[Any, Any], Awaitable[None]]


@pytest.fixture(autouse=True)
def left_untidied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The app collects garbage after each page; here, where all that the tests imported is searched, that takes longer than the page.

    Tests of what the app lets go of set the time themselves.
    """
    monkeypatch.setattr(app_module, "TIDY_SECONDS", 3600)


async def settled(screen: Any, pilot: Any) -> None:
    """Until what was done has come back from its thread; a newer check cancels an older one."""
    await pilot.pause(getattr(screen, "QUIET_SECONDS", 0) * 1.4 or None)  # an editor waits until nobody types
    while is_waiting(getattr(screen, "_quiet", None)):  # longer on a busy machine
        await pilot.pause(0.02)
    with contextlib.suppress(WorkerCancelled):
        await screen.app.workers.wait_for_complete()
    await pilot.pause()
    await pilot.pause()


async def until(pilot: Any, holds: Callable[[], object]) -> None:
    """Wait for what comes from a thread or a timer; ``drive`` ends a wait for what never comes."""
    while not holds():
        await pilot.pause(0.02)


def is_waiting(timer: Any) -> bool:
    """Whether a timer has still to go off."""
    return timer is not None and timer._task is not None and not timer._task.done()


ACT_SECONDS = 180
"""Many times what the longest takes alone: the machine may be busy."""


def drive(app: RlctlApp, act: Act, size: tuple[int, int] = (140, 45)) -> None:
    """Run an app headless and act on it: ``act(screen, pilot)``. An act that waits for what never comes fails."""

    async def go() -> None:
        async with app.run_test(size=size) as pilot:
            try:
                async with asyncio.timeout(ACT_SECONDS):
                    while (
                        len(app.screen_stack) == 1 and not app._exit
                    ):  # what is named is opened behind the first frame
                        await settled(app.screen, pilot)
                    await settled(app.screen, pilot)
                    await act(app.screen, pilot)
            except TimeoutError:
                raise AssertionError(f"not done within {ACT_SECONDS} s:\n{text_of(app)}") from None

    asyncio.run(go())


def text_of(app: Any) -> str:
    """What is on the screen, line by line, without colours; what is under a box as far as it can be seen."""
    width, height = app.size
    console = Console(
        width=width, height=height, file=io.StringIO(), force_terminal=True, record=True, legacy_windows=False
    )
    console.print(app.screen._compositor.render_update(full=True, screen_stack=app._background_screens))
    lines = console.export_text(styles=False).split("\n")[:height]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def text(screen: Any, name: str) -> str:
    """What a text of a screen says."""
    return str(screen.query_one(name, Static).render())


def writer(folder: Path) -> Events:
    """What a run in a folder writes its events with."""
    events = Events(folder / "events.jsonl", lambda event: None)
    events.enter_stage("grpo")
    return events


async def edit(screen: Any, pilot: Any, *path: str | int) -> None:
    """Put the cursor into the value of a field, behind what stands there."""
    await screen.jump(path)
    await settled(screen, pilot)
    await pilot.press("e")
    await pilot.pause()


async def answer(pilot: Any, name: str) -> None:
    """Give one of the answers of the box in sight, by its name."""
    names = [known for known, _ in pilot.app.screen.answers]
    await pilot.press(*["down"] * (1 + names.index(name)), "enter")


async def agree(pilot: Any) -> None:
    """Say yes to the box in sight."""
    await pilot.press("right", "enter")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let boxes take keys as soon as they are there."""
    monkeypatch.setattr(Dialog, "DEAF_SECONDS", 0)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not saved, and what a person chose, is kept in the test's own folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLORTERM", "truecolor")


@pytest.fixture
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The config of a test's module, in the folder that the test works in."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.yaml"
    path.write_text(request.module.FILE)
    return path
