"""A step goes the way that ``docs/architecture.md`` draws: the calls of its table, in that order."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import rlctl.runtime
from tests.runtime.local import run_here

ROOT = Path(__file__).parents[2]
RUNTIME = str(Path(rlctl.runtime.__file__).parent)


def _drawn() -> list[str]:
    """The calls in the page's table, row by row."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## One prompt")[2]
    rows = [line for line in page.splitlines() if re.match(r"\| \d", line)]
    return [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]


class _Calls:
    """Functions of the runtime in the order in which the first step calls them first, of all threads of this process."""

    def __init__(self, start: str) -> None:
        self.start = start
        self.names: dict[str, None] = {}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        name = frame.f_code.co_qualname
        if event == "call" and frame.f_code.co_filename.startswith(RUNTIME) and (self.names or name == self.start):
            self.names.setdefault(name)


def test_a_step_goes_the_way_that_is_drawn(task: Any, tmp_path: Path) -> None:
    drawn = _drawn()
    calls = _Calls(drawn[0])
    config = task.config(tmp_path, schedule={"total_steps": 2}, algorithm={"advantage": {"type": "grpo"}})
    sys.setprofile(calls)
    threading.setprofile(calls)
    try:
        run_here(config, tmp_path / "run")
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    way = list(calls.names)
    assert [name for name in drawn if name not in way] == [], "the step does not call them"
    assert [name for name in way if name in drawn] == drawn
