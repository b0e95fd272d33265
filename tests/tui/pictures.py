"""Pictures of the app for the docs, from a real run, and a tour of several screens as one moving picture: ``docs/images/*.svg``.

    python -m tests.tui.pictures                 # of the run that the tests keep, in both languages
    python -m tests.tui.pictures runs/mine       # of another run

The app runs without a terminal, keys are pressed, and Textual draws what is on the screen. The tour is the pictures of its
stops one after another, shown in turns by the picture's own style sheet, which needs no player.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# the language and the palette are chosen when the app is imported
os.environ |= {"RLCTL_LANGUAGE": "zh" if "--chinese" in sys.argv else "en", "COLORTERM": "truecolor"}

from rlctl.editing.session import Session
from rlctl.tui.app import RlctlApp
from tests.tui import recorded
from tests.tui.conftest import drive, settled

CHINESE = "--chinese"
LANGUAGE = os.environ["RLCTL_LANGUAGE"]
IMAGES = Path(__file__).parents[2] / "docs" / "images"
SIZE = (132, 38)
TOUR_SIZE, SECONDS = (110, 32), 3
"""Size of the tour's screens, and how long each is shown."""
CONFIG, RUN = Path("verl.yaml"), Path("runs/addition")

PICTURES: dict[str, tuple[Callable[[], RlctlApp], Callable[[Any, Any], Any]]] = {}


def picture(start: Callable[[], RlctlApp]) -> Callable[[Callable[[Any, Any], Any]], None]:
    """Take one of this app after what the function does, under the function's name."""

    def add(act: Callable[[Any, Any], Any]) -> None:
        PICTURES[act.__name__] = (start, act)

    return add


@picture(lambda: RlctlApp(session=Session.open(CONFIG)))
async def editor(screen: Any, pilot: Any) -> None:
    await screen.jump(("train", "optimizer", "lr"))


@picture(lambda: RlctlApp(session=Session.open(CONFIG)))
async def plan(screen: Any, pilot: Any) -> None:
    await screen.jump(("batch", "prompts_per_step"))
    await settled(screen, pilot)
    screen.action_tab("plan")


@picture(lambda: RlctlApp(run=RUN))
async def overview(screen: Any, pilot: Any) -> None:
    await pilot.press("1")


@picture(lambda: RlctlApp(run=RUN))
async def samples(screen: Any, pilot: Any) -> None:
    await pilot.press("3")


TOUR: tuple[tuple[Callable[[], RlctlApp], tuple[str, ...]], ...] = (
    (lambda: RlctlApp(session=Session.open(CONFIG)), ("down", "down", "down", "enter")),
    (lambda: RlctlApp(session=Session.open(CONFIG)), ("p", "n")),
    (lambda: RlctlApp(session=Session.open(CONFIG)), ("3", "z")),
    (lambda: RlctlApp(run=RUN), ("1",)),
    (lambda: RlctlApp(run=RUN), ("2", "g")),
    (lambda: RlctlApp(run=RUN), ("3", "W")),
)
"""The screens of the tour, each with the keys that lead there."""


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    given = [Path(name).resolve() for name in sys.argv[1:] if name != CHINESE]
    run = given[0] if given else recorded.FOLDER
    with tempfile.TemporaryDirectory() as name:
        os.environ |= {"XDG_STATE_HOME": name, "XDG_CONFIG_HOME": name, "TZ": "UTC"}
        time.tzset()
        work = Path(name) / "work"
        shutil.copytree(run, work / RUN)
        shutil.copy(run / "source1.yaml", work / CONFIG)
        os.chdir(work)
        if LANGUAGE == "en":
            for title, (start, act) in PICTURES.items():
                draw(start(), act, SIZE, IMAGES / f"tui-{title}.svg")
        frames = [work / f"{number}.svg" for number in range(len(TOUR))]
        for (start, keys), frame in zip(TOUR, frames, strict=True):
            draw(start(), pressing(keys), TOUR_SIZE, frame)
        file = IMAGES / ("tui-tour.svg" if LANGUAGE == "en" else f"tui-tour.{LANGUAGE}.svg")
        file.write_text(moving([frame.read_text() for frame in frames]))
        print(file)
    if LANGUAGE == "en":
        root = Path(__file__).parents[2]
        subprocess.run([sys.executable, "-m", "tests.tui.pictures", *map(str, given), CHINESE], check=True, cwd=root)


def pressing(keys: tuple[str, ...]) -> Callable[[Any, Any], Any]:
    """Press keys one after another."""

    async def act(screen: Any, pilot: Any) -> None:
        for key in keys:
            await pilot.press(key)
            await settled(pilot.app.screen, pilot)

    return act


def draw(app: RlctlApp, act: Callable[[Any, Any], Any], size: tuple[int, int], file: Path) -> None:
    """Write the picture of what is on the screen after an act."""

    async def take(screen: Any, pilot: Any) -> None:
        await act(screen, pilot)
        for _ in range(3):
            await settled(screen, pilot)
            await pilot.pause(1.0)
        file.write_text(screen.app.export_screenshot(title="rlctl tui"))

    drive(app, take, size)
    print(file)


def moving(frames: list[str]) -> str:
    """One picture that shows several in turns, for ever."""
    found = re.search(r'viewBox="([^"]+)"', frames[0])
    assert found is not None
    share = 100 / len(frames)
    style = (
        f".frame {{ visibility: hidden; animation: turn {SECONDS * len(frames)}s step-end infinite; }}"
        f" @keyframes turn {{ 0% {{ visibility: visible; }} {share:.3f}% {{ visibility: hidden; }} }}"
    )
    parts = [
        f'<g class="frame" style="animation-delay: {SECONDS * place}s">{frame}</g>'
        for place, frame in enumerate(frames)
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{found[1]}">'
    return "\n".join([head, f"<style>{style}</style>", *parts, "</svg>", ""])


if __name__ == "__main__":
    main()
