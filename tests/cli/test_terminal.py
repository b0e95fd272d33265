"""Control characters of files and processes do not reach the terminal, by any way that text is shown."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from rlctl.cli import diagnostics, output, progress
from rlctl.common.report import Finding, Level
from rlctl.common.terminal import safe, without_controls

ATTACK = "a\x1b]0;owned\x07b\x1b[2Jc\x9b31md\u202ee\x7ff\rg"
FORBIDDEN = re.compile("\x1b(?!\\[[0-9;]*m)|[\x07\x7f\x9b\u202e]")


def test_what_becomes_of_it() -> None:
    assert safe("plain\n\ttext é 中") == "plain\n\ttext é 中"
    assert safe("\x1b[31mred\x1b[0m\x07") == "red\u2407"
    assert not FORBIDDEN.search(safe(ATTACK))
    assert without_controls("a\x1b[2Jb\u202ec") == "a[2Jbc"


@pytest.mark.parametrize("terminal", [False, True])
def test_no_writer_passes_it_on(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import sys

    from rich.table import Table
    from rich.text import Text

    from rlctl.common.errors import Location, RunError

    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    table = Table()
    table.add_column(ATTACK)
    table.add_row(ATTACK)
    output.show(table, Text(ATTACK))
    diagnostics.show(table)
    diagnostics.note(ATTACK)
    diagnostics.passage(ATTACK)
    diagnostics.error(RunError(ATTACK, at=Location(ATTACK), hint=ATTACK))
    diagnostics.findings([Finding(ATTACK, Level.ERROR, ATTACK, at=Location(ATTACK), hint=ATTACK)])
    with progress.Progress() as watch:
        watch({"kind": "stage_started", "stage": ATTACK, "total_steps": 2})
        watch({"kind": "phase", "name": ATTACK})
        watch({"kind": "advisory", "message": ATTACK, "hint": ATTACK})
        watch({"kind": "evaluation", "metrics": {f"evaluation/{ATTACK}/accuracy": 0.5}})
        if watch._display is not None:
            watch._display.refresh()
    if terminal:
        output.text(ATTACK)
    shown = "".join(capfd.readouterr())
    sent = re.sub(r"\x1b\[(\?25[lh]|1?[AK]|2K)", "", shown)  # of the live display itself
    assert "owned" in sent
    assert not FORBIDDEN.search(sent), repr(FORBIDDEN.search(sent))


def test_neither_does_a_run_that_somebody_else_wrote(rlctl: Any, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "evil"
    folder.mkdir(parents=True)
    record = {
        "name": ATTACK,
        "status": "failed",
        "pid": 1,
        "host": ATTACK,
        "started": 1.0,
        "ended": 2.0,
        "cause": ATTACK,
    }
    (folder / "run.json").write_text(json.dumps(record))
    events = [
        {"time": 1.0, "kind": "run_started", "run": ATTACK, "stages": [ATTACK]},
        {"time": 1.0, "kind": "stage_started", "stage": ATTACK, "step": 0, "total_steps": 1},
        {"time": 1.0, "kind": "advisory", "stage": ATTACK, "message": ATTACK, "hint": ATTACK},
        {"time": 1.0, "kind": "failure", "message": ATTACK, "actor": ATTACK, "traceback": ATTACK},
        {"time": 2.0, "kind": "run_ended", "status": "failed", "cause": ATTACK, "stages": {ATTACK: {"steps": 1}}},
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    for command in (["list"], ["show", "evil"], ["follow", "evil"], ["list", "--json"], ["show", "evil", "--json"]):
        shown = rlctl("runs", *command, "--folder", str(tmp_path / "runs"))
        assert "owned" in shown.out + shown.err, command
        assert not re.search("[\x1b\x07]", shown.out + shown.err), command


def test_the_app_draws_none(tmp_path: Path) -> None:
    from textual.app import ComposeResult
    from textual.screen import Screen
    from textual.widgets import Static

    from rlctl.tui.app import RlctlApp

    class Shown(Screen[None]):
        def compose(self) -> ComposeResult:
            yield Static(ATTACK, markup=False)

    async def drawn() -> str:
        app = RlctlApp(runs_folder=tmp_path)
        async with app.run_test(size=(80, 24)) as pilot:
            while type(app.screen).__name__ != "StartScreen":
                await pilot.pause(0.02)
            await app.push_screen(Shown())
            await pilot.pause()
            widget = app.screen.query_one(Static)
            lines = widget.render_lines(widget.size.region)
            return "".join(segment.text for line in lines for segment in line)

    text = asyncio.run(drawn())
    assert "owned" in text
    assert not FORBIDDEN.search(text)
