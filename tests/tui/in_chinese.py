"""What the app shows in Chinese at 80 x 24, page by page, as JSON: in a process of its own, as a language is chosen once.

RLCTL_LANGUAGE=zh python -m tests.tui.in_chinese FOLDER
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from rlctl.config import presets
from rlctl.editing.session import Session
from rlctl.tui.app import RlctlApp
from tests.tui.conftest import settled, text_of
from tests.tui.recorded import place

SIZE = (80, 24)


async def pages(app: RlctlApp, keys: dict[str, list[str]]) -> dict[str, str]:
    """What is on the screen after each press, by the page's name."""
    found = {}
    async with app.run_test(size=SIZE) as pilot:
        while len(app.screen_stack) == 1:
            await settled(app.screen, pilot)
        for name, pressed in keys.items():
            await pilot.press(*pressed)
            await settled(app.screen, pilot)
            found[name] = text_of(app)
    return found


def main(folder: Path) -> None:
    os.chdir(folder)
    run = place(Path("runs"))
    file = Path("grpo.yaml")
    file.write_text(presets.text("grpo-1node"))
    tabs = {"overview": [], "metrics": ["2"], "samples": ["3"], "processes": ["4"], "logs": ["5"], "events": ["6"]}
    beside = {"beside": ["f5", "1"], "plan": ["3"], "help": ["f1"], "launch": ["escape", "f9"]}
    shown = {
        "start": (RlctlApp(runs_folder=Path("runs")), {"list": [], "help": ["f1"], "runs": ["escape", "a"]}),
        "editor": (RlctlApp(session=Session.open(file)), {"summary": [], "form": ["down", "tab", "down"], **beside}),
        "monitor": (RlctlApp(run=run), {**tabs, "help": ["f1"]}),
    }
    print(json.dumps({name: asyncio.run(pages(app, keys)) for name, (app, keys) in shown.items()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
