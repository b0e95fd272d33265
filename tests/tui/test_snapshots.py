"""What each screen shows of a real run, as text, in a small and in a large terminal.

    make snapshots            # takes them anew; read what git says has changed

A tour is one start of the app: it presses keys, and the screen is compared after each.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlctl.editing.session import Session
from rlctl.tui.app import RlctlApp
from tests.tui import recorded
from tests.tui.conftest import drive, settled, text_of

FOLDER = Path(__file__).parent / "snapshots"
TAKE = os.environ.get("RLCTL_SNAPSHOTS") == "take"
SIZES = ((80, 24), (200, 60))
PATIENCE = 60.0
"""Seconds until a screen has to look as it should: what it shows comes from threads."""


@dataclass(frozen=True)
class Tour:
    """A start of the app, and what is looked at: a name, and the keys that lead there."""

    start: Callable[[], RlctlApp]
    stops: tuple[tuple[str, tuple[str, ...]], ...]


def two_runs() -> RlctlApp:
    """With a run beside the first that had another seed."""
    other = Path("runs/other")
    shutil.copytree("runs/addition", other)
    config = other / "config.yaml"
    config.write_text(config.read_text().replace("seed: 1\n", "seed: 2\n"))
    for path in other.rglob("*"):
        os.utime(path, (recorded.ended(), recorded.ended()))
    return RlctlApp()


TOURS = {
    "start": Tour(
        lambda: RlctlApp(),
        (("start", ()), ("help", ("f1",)), ("runs", ("escape", "a"))),
    ),
    "editor": Tour(
        lambda: RlctlApp(session=Session.open(Path("verl.yaml"))),
        (
            ("form", ()),
            ("jump", ("ctrl+o",)),
            ("findings", ("escape", "2")),
            ("plan", ("3",)),
            ("preview", ("4",)),
            ("difference", ("5",)),
        ),
    ),
    "monitor": Tour(
        lambda: RlctlApp(run=Path("runs/addition")),
        (
            ("overview", ()),
            ("metrics", ("2",)),
            ("samples", ("3",)),
            ("processes", ("4",)),
            ("logs", ("5",)),
            ("events", ("6",)),
        ),
    ),
    "compare": Tour(
        two_runs,
        (("runs", ("a",)), ("config", ("space", "down", "space", "c")), ("metrics", ("2",))),
    ),
}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the run and a config, a while after the run has ended."""
    folder = tmp_path / "work"
    recorded.place(folder / "runs")
    shutil.copy(recorded.FOLDER / "source1.yaml", folder / "verl.yaml")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(time, "time", lambda: recorded.ended() + 7200)
    yield folder
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "size",
    [
        SIZES[0],
        pytest.param(SIZES[1], marks=pytest.mark.soak),
    ],  # half the time, and seldom wrong where the small one is right
    ids=["small", "large"],
)
@pytest.mark.parametrize(
    "tour", [pytest.param(name, marks=pytest.mark.soak if name == "compare" else ()) for name in TOURS]
)  # it reads two whole runs
def test_the_screens_look_as_they_did(work: Path, tour: str, size: tuple[int, int]) -> None:
    async def act(_: Any, pilot: Any) -> None:
        for name, keys in TOURS[tour].stops:
            await pilot.press(*keys)
            await look(pilot, FOLDER / f"{tour}-{name}-{size[0]}x{size[1]}.txt")

    drive(TOURS[tour].start(), act, size)


async def look(pilot: Any, file: Path) -> None:
    """Wait until the screen is what the file says; or, where they are taken, until it changes no more, and write it."""
    deadline = time.monotonic() + PATIENCE
    wanted = None if TAKE else file.read_text()
    shown, since = "", time.monotonic()
    while True:
        await settled(pilot.app.screen, pilot)
        now = text_of(pilot.app)
        if now == wanted:
            return
        if now != shown:
            shown, since = now, time.monotonic()
        if wanted is None and time.monotonic() - since > 3:
            file.parent.mkdir(exist_ok=True)
            file.write_text(shown)
            return
        if time.monotonic() > deadline:
            assert shown == wanted, "make snapshots, where it is meant to look so"
        await asyncio.sleep(0.1)


def test_every_snapshot_is_looked_at() -> None:
    named = {
        f"{tour}-{name}-{width}x{height}.txt"
        for tour in TOURS
        for name, _ in TOURS[tour].stops
        for width, height in SIZES
    }
    assert {file.name for file in FOLDER.iterdir()} == named
