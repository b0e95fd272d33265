"""Escape goes one step back and never ends the app; ctrl+q does, and the terminal then names the runs that continue."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from textual.widgets import Button

from rlctl.editing.session import Session
from rlctl.runs.launching import Launched
from rlctl.runs.record import began
from rlctl.tui.app import RlctlApp
from rlctl.tui.dialogs.ask import ChooseScreen
from rlctl.tui.farewell import MOST, still_running
from rlctl.tui.screens.runs import RunsScreen
from rlctl.tui.screens.start import StartScreen
from tests.tui.conftest import drive, settled, text_of
from tests.tui.terminal import terminal

FILE = "rlctl: 1\nrun: {name: demo, seed: 1}\nmodel: {path: m}\ndata: {train: [{path: t.parquet}]}\n"


def running(folder: Path, name: str = "demo") -> Path:
    """The folder of a run whose process is this one."""
    run = folder / "runs" / name
    run.mkdir(parents=True)
    record = {"name": name, "status": "running", "pid": os.getpid(), "host": socket.gethostname(), "started": time.time() - 90,
              "process_began": began(os.getpid())}  # fmt: skip
    (run / "run.json").write_text(json.dumps(record))
    return run


def test_escape_pressed_again_and_again_ends_at_the_start_page(file: Path) -> None:
    async def act(screen: Any, pilot: Any) -> None:
        await screen.jump(("run", "name"))
        await pilot.press(*["escape"] * 6)
        await settled(pilot.app.screen, pilot)
        assert pilot.app.is_running
        assert pilot.app._exit is False
        assert isinstance(pilot.app.screen, StartScreen)
        await pilot.press(*["escape"] * 3)
        await settled(pilot.app.screen, pilot)
        assert [told.message for told in pilot.app._notifications] == ["ctrl+q quits rlctl"]

    drive(RlctlApp(session=Session.open(file)), act)


def test_an_answer_that_is_given_twice_closes_one_box(file: Path) -> None:
    """Textual takes the uppermost screen away for each: of three answers the last one would end the app."""

    async def act(screen: Any, pilot: Any) -> None:
        answers: list[str | None] = []
        box = ChooseScreen("which?", [("l", "later"), ("d", "away")])
        pilot.app.push_screen(box, answers.append)
        await settled(box, pilot)
        for _ in range(3):
            box.query_one("#answer-1", Button).post_message(Button.Pressed(box.query_one("#answer-1", Button)))
        await settled(screen, pilot)
        assert pilot.app.screen is screen
        assert answers == ["d"]

    drive(RlctlApp(session=Session.open(file)), act)


def test_a_late_key_leaves_no_screen_below(file: Path, tmp_path: Path) -> None:
    async def act(start: Any, pilot: Any) -> None:
        await pilot.press("a")
        await settled(pilot.app.screen, pilot)
        page = pilot.app.screen
        assert isinstance(page, RunsScreen)
        for _ in range(3):
            page.action_leave()
        await settled(start, pilot)
        assert pilot.app.screen is start

    drive(RlctlApp(runs_folder=tmp_path / "runs"), act)


def test_escape_leaves_the_monitor_for_the_start_page(tmp_path: Path) -> None:
    async def act(screen: Any, pilot: Any) -> None:
        await pilot.press(*["escape"] * 6)
        await settled(pilot.app.screen, pilot)
        assert pilot.app._exit is False
        assert isinstance(pilot.app.screen, StartScreen)

    run = running(tmp_path)
    drive(RlctlApp(run=run, runs_folder=run.parent), act)


def test_what_a_script_wants_can_be_left_for_the_start_page(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(
        'set -u\npython3 -m verl.trainer.main_ppo data.train_files=t.parquet trainer.project_name="$NAME"\n'
    )

    async def act(screen: Any, pilot: Any) -> None:
        assert "$NAME" in text_of(pilot.app)
        await pilot.press(*["escape"] * 3)
        await settled(pilot.app.screen, pilot)
        assert pilot.app._exit is False
        assert isinstance(pilot.app.screen, StartScreen)

    drive(RlctlApp(session=lambda given: Session.open(script, given=given)), act)


def test_the_terminal_names_the_runs_that_continue(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(FILE)
    running(tmp_path)
    with terminal(tmp_path, "run.yaml") as app:
        app.sees("run.yaml", "sampling")
        app.press("Escape", "Escape", "Escape")
        app.sees("open a run, a file or a preset")
        app.press("C-q")
        left = app.ended()
    assert "demo is still running. Watch it: rlctl tui runs/demo    Stop it: rlctl runs stop runs/demo" in left


def test_a_watched_run_of_another_folder_and_a_starting_one_are_named_and_many_are_counted(tmp_path: Path) -> None:
    elsewhere = running(tmp_path / "elsewhere", "watched")
    for number in range(MOST + 1):
        running(tmp_path, f"run-{number}")
    with subprocess.Popen(["sleep", "600"]) as process:
        launched = [Launched(("launch", "my run.yaml"), tmp_path / "out.log", time.time(), process)]
        first, *_, more, starting = still_running(tmp_path / "runs", {elsewhere, tmp_path / "gone"}, launched)
        process.kill()
    assert first.startswith("watched is still running.")
    assert more == f"2 more runs are still running. List them: rlctl runs list --folder {tmp_path / 'runs'}"
    assert starting.startswith(f"rlctl launch 'my run.yaml' is still starting (process {process.pid}).")
    assert [*still_running(tmp_path / "none", set(), launched)] == []
