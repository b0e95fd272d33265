"""Pictures of the app for the docs, from a real run: ``docs/images/*.svg``.

    python -m tests.tui.pictures                 # of the run that the tests keep
    python -m tests.tui.pictures runs/mine       # of another run

The app runs without a terminal, keys are pressed, and Textual draws what is on the screen.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {"RLCTL_LANGUAGE": "en", "COLORTERM": "truecolor"}  # the palette is that of a terminal with all colors

from rlctl.editing.session import Session
from rlctl.tui.app import RlctlApp
from tests.tui import recorded
from tests.tui.conftest import drive, settled

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SIZE = (132, 38)
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


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    run = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else recorded.FOLDER
    with tempfile.TemporaryDirectory() as name:
        os.environ |= {"XDG_STATE_HOME": name, "XDG_CONFIG_HOME": name, "TZ": "UTC"}
        time.tzset()
        work = Path(name) / "work"
        shutil.copytree(run, work / RUN)
        shutil.copy(run / "source1.yaml", work / CONFIG)
        os.chdir(work)
        for title, (start, act) in PICTURES.items():

            async def take(screen: Any, pilot: Any, act: Any = act, title: str = title) -> None:
                await act(screen, pilot)
                for _ in range(3):
                    await settled(screen, pilot)
                    await pilot.pause(1.0)
                (IMAGES / f"tui-{title}.svg").write_text(screen.app.export_screenshot(title="rlctl tui"))

            drive(start(), take, SIZE)
            print(IMAGES / f"tui-{title}.svg")


if __name__ == "__main__":
    main()
