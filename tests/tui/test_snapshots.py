"""What each screen shows of a real run, as text, in three sizes; and of the smallest what each color stands for, in both palettes.

    make snapshots            # takes them again; read what git says has changed

A tour is one start of the app: it presses keys, and the screen is compared after each. A file ``*.looks.txt`` has, for each
character on the screen, a letter for the role of its color (`LETTERS`): the light palette has to use the same roles as the dark one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

import pytest
from rich.color import Color
from rich.color_triplet import ColorTriplet
from textual._compositor import LayoutUpdate

from rlctl.editing.session import Session
from rlctl.tui.app import RlctlApp
from rlctl.tui.themes import COLORS, ROLES, whole_name
from tests.tui import recorded
from tests.tui.conftest import drive, settled, text_of

FOLDER = Path(__file__).parent / "snapshots"
TAKE = os.environ.get("RLCTL_SNAPSHOTS") == "take"
SIZES = ((80, 24), (120, 40), (200, 60))
LETTERS = {
    "foreground": ".", "primary": "p", "success": "g", "warning": "a", "error": "r", "text-muted": "m", "text-disabled": "m",
    "border-blurred": "b", "background": "k", "series-3": "3", "series-4": "4", "series-5": "5", "series-6": "6",
}  # fmt: skip
"""A letter for each role of a color; those of the first two series are the accent's and the color of what is good."""
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
            ("summary", ()),
            ("form", ("down",)),
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
    ("size", "theme"),
    [
        (SIZES[0], "dark"),
        *(
            pytest.param(size, theme, marks=pytest.mark.soak)
            for size, theme in ((SIZES[0], "light"), (SIZES[1], "dark"), (SIZES[2], "dark"))
        ),
    ],  # four times the time, and seldom wrong where the small one is right
    ids=["small", "light", "middle", "large"],
)
@pytest.mark.parametrize(
    "tour", [pytest.param(name, marks=pytest.mark.soak if name == "compare" else ()) for name in TOURS]
)  # it reads two whole runs
def test_the_screens_look_as_they_did(work: Path, tour: str, size: tuple[int, int], theme: str) -> None:
    async def act(_: Any, pilot: Any) -> None:
        for name, keys in TOURS[tour].stops:
            await pilot.press(*keys)
            await look(pilot, *files_of(tour, name, size))

    app = TOURS[tour].start()
    app.theme = whole_name(theme)
    drive(app, act, size)


def files_of(tour: str, name: str, size: tuple[int, int]) -> list[Path]:
    """The snapshots of a stop: its text, and for the smallest size what its colors stand for."""
    text = FOLDER / f"{tour}-{name}-{size[0]}x{size[1]}.txt"
    return [text, text.with_suffix(".looks.txt")] if size == SIZES[0] else [text]


async def look(pilot: Any, *files: Path) -> None:
    """Wait until the screen is what the files say; or, where they are taken, until it changes no more, and write them."""
    deadline = time.monotonic() + PATIENCE
    wanted = None if TAKE else [file.read_text() for file in files]
    shown, since = [""], time.monotonic()
    while True:
        await settled(pilot.app.screen, pilot)
        now = [text_of(pilot.app), looks_of(pilot.app)][: len(files)]
        if now == wanted:
            return
        if now != shown:
            shown, since = now, time.monotonic()
        if wanted is None and time.monotonic() - since > 3:
            FOLDER.mkdir(exist_ok=True)
            for file, text in zip(files, shown, strict=True):
                file.write_text(text)
            return
        if time.monotonic() > deadline:
            assert shown == wanted, "make snapshots, where it is meant to look so"
        await asyncio.sleep(0.1)


def looks_of(app: RlctlApp) -> str:
    """For each character on the screen the letter of the role whose color is nearest to its own."""
    colors = [
        (Color.parse(value).triplet, LETTERS[role])
        for role, value in zip(ROLES, COLORS[app.theme, "truecolor"], strict=True)
        if role in LETTERS
    ]
    update = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens)
    lines = []
    for strips in cast(LayoutUpdate, update).strips:
        line = ""
        for text, style, _ in chain.from_iterable(strips):
            shown = style.color if style is not None else None
            letter = "." if shown is None else _nearest(shown.get_truecolor(), colors)
            line += "".join(" " if character == " " else letter for character in text)
        lines.append(f"{line.rstrip()}\n")
    return "".join(lines)


def _nearest(shown: ColorTriplet, colors: Sequence[tuple[ColorTriplet | None, str]]) -> str:
    return min(
        (sum((a - b) ** 2 for a, b in zip(shown, known or shown, strict=True)), letter) for known, letter in colors
    )[1]


def test_every_snapshot_is_looked_at() -> None:
    named = {
        file.name
        for tour in TOURS
        for name, _ in TOURS[tour].stops
        for size in SIZES
        for file in files_of(tour, name, size)
    }
    assert {file.name for file in FOLDER.iterdir()} == named
