"""The monitor shows what the run folder says, and goes on as it grows."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input, OptionList

from rlctl.monitor.watching import Batch, RunView
from rlctl.runs.record import began
from rlctl.runtime.reporting.sample_files import STEP, SampleFiles
from rlctl.runtime.stopping import STOP_FILE
from rlctl.tui.app import RlctlApp
from rlctl.tui.dialogs.pick_runs import PickRunsScreen
from rlctl.tui.screens.editor import EditorScreen
from rlctl.tui.screens.monitor import MonitorScreen
from rlctl.tui.screens.page import Page
from rlctl.tui.screens.start import StartScreen
from rlctl.tui.widgets.metric_grid import MetricGrid
from rlctl.tui.widgets.metric_plot import MetricPlot
from rlctl.tui.widgets.spark import Spark
from tests.tui.conftest import agree, drive, settled, text, text_of, until, writer


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of this process that has taken eight steps."""
    folder = tmp_path / "runs" / "demo"
    folder.mkdir(parents=True)
    record = {"name": "demo", "status": "running", "pid": os.getpid(), "host": socket.gethostname(), "started": time.time() - 90,
              "ended": None, "cause": "", "process_began": began(os.getpid())}  # fmt: skip
    (folder / "run.json").write_text(json.dumps(record))
    events = writer(folder)
    events.emit("run_started", folder=str(folder), run="demo", stages=["grpo"])
    events.emit("stage_started", total_steps=20, step=0, notes=[])
    for step in range(1, 9):
        shown = {"prompt": f"[{step}]+1=", "answer": "2", "responses": ["two", "2", "[b]"], "rewards": [0.0, 1.0, 0.0],
                 "components": [{"math": 0.0}, {"math": 1.0}, {"math": 0.0}], "weight_version": step}  # fmt: skip
        SampleFiles(folder, "grpo", pytest.fail).write(STEP, step, [shown, {**shown, "prompt": "second"}])
        events.emit("samples", step=step)
        metrics = {
            "reward/mean": step / 10,
            "group/equal_share": 0.75,
            "time/rollout": 2.0,
            "time/train": 1.0,
            "time/step": 3.0,
        }
        events.emit("step", step=step, total_steps=20, metrics=metrics)
    events.emit("phase", step=8, name="rollout")
    return folder


def test_what_the_run_does_and_what_looks_wrong(run: Path) -> None:
    async def act(screen: MonitorScreen, pilot: Any) -> None:
        head = text(screen, "#run-head")
        assert "running" in head
        assert "step 8/20" in head
        assert "rollout for" in head
        assert "usually 2.0 s" in head
        assert "about 36 s left" in head
        assert "75% of the groups" in text(screen, "#advice")
        assert "█▌█" in text(screen, "#timeline")
        assert "rollout 67%" in text(screen, "#timeline").replace("\u00a0", " ")
        assert [spark.metric for spark in screen.query(Spark)] == ["reward/mean"]
        tiles = text(screen, "#tiles")
        assert re.search(r"reward +0.8 +▲ 0.4", tiles)
        assert "time left  36 s" in tiles

    drive(RlctlApp(run=run), act)


def test_a_page_is_styled_once_before_its_first_frame(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual would style all of it again when it comes into sight."""
    styled = []
    style = Page.update_node_styles

    def counted(page: Page, *, animate: bool = True) -> None:
        styled.append(len(page.query("*")))
        style(page, animate=animate)

    monkeypatch.setattr(Page, "update_node_styles", counted)

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        assert not any(styled)
        await pilot.resize_terminal(60, 15)
        await until(pilot, lambda: any(styled))

    drive(RlctlApp(run=run), act)


def test_evaluations_of_a_reward_that_is_a_number_have_a_curve(run: Path) -> None:
    """Such a reward tells no right answers, so there is no accuracy."""
    writer(run).emit("evaluation", step=8, metrics={"evaluation/maths/reward": 0.25})

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        assert [spark.metric for spark in screen.query(Spark)] == ["reward/mean", "evaluation/maths/reward"]

    drive(RlctlApp(run=run), act)


def test_a_run_without_groups_shows_no_empty_panels(run: Path) -> None:
    """Supervised fine-tuning keeps samples, but has neither groups nor rewards."""
    log = run / "events.jsonl"
    log.write_text(log.read_text().replace("reward/mean", "policy/loss").replace("group/equal_share", "policy/entropy"))
    shown = {"prompt": "1+1=", "answer": "2", "responses": [], "rewards": [], "components": [], "weight_version": 1}
    for step in range(1, 9):
        SampleFiles(run, "grpo", pytest.fail).write(STEP, step, [shown])

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await settled(screen, pilot)
        assert not screen.query_one("#groups").display
        assert "groups and responses" not in text_of(screen.app)

    drive(RlctlApp(run=run), act)


def test_keys_get_a_turn_between_two_charts(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn together, the charts of a long run would hold up a key."""
    metrics = {"reward/mean": 1.0, "policy/entropy": 2.0, "policy/grad_norm": 3.0, "time/step": 3.0}
    writer(run).emit("step", step=9, total_steps=20, metrics=metrics)
    told: list[str] = []

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        monkeypatch.setattr(Spark, "_draw", lambda spark: told.append(spark.metric))

        async def other() -> None:
            while True:
                told.append("")
                await asyncio.sleep(0.001)

        task = asyncio.create_task(other())
        writer(run).emit("step", step=10, total_steps=20, metrics=metrics)
        screen._poll()
        await settled(screen, pilot)
        task.cancel()
        first, last = told.index("reward/mean"), told.index("policy/grad_norm")
        assert [name for name, _ in itertools.groupby(told[first : last + 1])][::2] == [
            "reward/mean",
            "policy/entropy",
            "policy/grad_norm",
        ]

    drive(RlctlApp(run=run), act)


def test_the_thread_that_reads_waits_while_the_app_is_busy(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (run / "events.jsonl").open("a") as file:
        file.writelines(
            f'{{"time": 1, "kind": "step", "stage": "grpo", "step": {step}, "metrics": {{"reward/mean": 0.5, "x": "{"." * 900}"}}}}\n'
            for step in range(9, 5009)
        )
    whole, read = threading.Event(), RunView.read
    counted: list[int] = []

    def counting(view: RunView) -> Batch:
        counted.append(len(counted))
        whole.set()
        return read(view)

    monkeypatch.setattr(RunView, "read", counting)

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        counted.clear()
        whole.clear()
        screen._whole._clear()
        screen._whole.log.position = 0
        screen._poll()
        await asyncio.sleep(0)
        assert whole.wait(60)
        time.sleep(0.08)  # as a frame that takes long: the app's own thread does nothing else
        assert len(counted) == 1
        await settled(screen, pilot)
        assert len(counted) > 4

    drive(RlctlApp(run=run), act)


def test_it_follows_the_run(run: Path) -> None:
    async def act(screen: MonitorScreen, pilot: Any) -> None:
        writer(run).emit("step", step=9, total_steps=20, metrics={"reward/mean": 0.9, "time/step": 3.0})
        screen._poll()
        await settled(screen, pilot)
        assert "step 9/20" in text(screen, "#run-head")

    drive(RlctlApp(run=run), act)


def test_a_stall_is_told_although_nothing_is_new(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(screen: MonitorScreen, pilot: Any) -> None:
        assert "phase rollout" not in text(screen, "#advice")
        later = time.time() + 7200
        monkeypatch.setattr("rlctl.tui.screens.monitor.time.time", lambda: later)
        screen._poll()
        await settled(screen, pilot)
        assert "the phase rollout has taken 120 minutes" in text(screen, "#advice")

    drive(RlctlApp(run=run), act)


def test_an_advice_opens_a_next_run_with_its_change(run: Path) -> None:
    (run / "config.yaml").write_text(
        "rlctl: 1\nrun: {name: demo}\nmodel: {path: m}\ndata: {train: [{path: t.parquet}]}\nstages: [{name: grpo}]\n"
    )

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        assert "f algorithm.filters + zero_variance_groups" in text(screen, "#advice")
        await pilot.press("f")
        for _ in range(3):
            await settled(pilot.app.screen, pilot)
        editor = pilot.app.screen
        assert isinstance(editor, EditorScreen)
        assert [found.choice for found in editor.session.config.algorithm.filters] == ["zero_variance_groups"]
        assert editor.session.config.run.name == "demo-2"
        assert editor.session.config.checkpoint.resume == "auto", "nothing was saved that it could go on from"
        assert editor.section == ("algorithm",), "the change is in sight"

    drive(RlctlApp(run=run), act)


def test_metrics_are_a_grid_of_charts_and_open_on_the_reward(run: Path) -> None:
    writer(run).emit("step", step=9, total_steps=20, metrics={"reward/mean": 1.0, "policy/never": 0.0})

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await pilot.press("2")
        await settled(screen, pilot)
        assert screen.query_one("#metric-list", OptionList).highlighted_option.id == "reward/mean"  # type: ignore[union-attr]
        await pilot.press("g")
        await settled(screen, pilot)
        await settled(screen, pilot)
        grid = screen.query_one(MetricGrid)
        assert grid.has_focus
        assert [name for name, _ in grid.charts] == [
            "reward/mean", "group/equal_share", "time/rollout", "time/step", "time/train",
        ]  # fmt: skip
        shown = text_of(screen.app)
        assert "─ group/equal_share ─" in shown
        assert "0 throughout: policy/never" in shown
        footer = shown.splitlines()[-1]
        assert "enter Large" in footer
        assert "Log scale" not in footer, "what does nothing in the grid is not offered"
        await pilot.press("right", "right", "enter")
        await settled(screen, pilot)
        assert screen.query_one(MetricPlot).metrics == ["time/rollout"]
        await settled(screen, pilot)
        assert "Log scale" in text_of(screen.app).splitlines()[-1]

    drive(RlctlApp(run=run), act)


def test_a_metric_is_picked_and_drawn(run: Path) -> None:
    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await pilot.press("2")
        await settled(screen, pilot)
        await pilot.press("slash")
        screen.query_one("#filter", Input).value = "rwmn"
        await settled(screen, pilot)
        listed = screen.query_one("#metric-list", OptionList)
        assert [option.id for option in listed.options] == ["reward/mean"]
        await pilot.press("enter")
        await settled(screen, pilot)
        plot = screen.query_one(MetricPlot)
        assert plot.metrics == ["reward/mean"]
        assert plot._plot is not None
        await pilot.press("m", "l")
        await settled(screen, pilot)
        assert "smoothed 0.95, log10" in text(screen, "#plot-values")

    drive(RlctlApp(run=run), act)


def test_stopping_asks_first(run: Path) -> None:
    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await pilot.press("S")
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert not (run / STOP_FILE).exists()
        await pilot.press("S")
        await pilot.pause()
        await agree(pilot)
        await pilot.pause()
        assert (run / STOP_FILE).exists()

    drive(RlctlApp(run=run), act)


def test_who_only_watches_stops_nothing(run: Path) -> None:
    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await pilot.press("S")
        await pilot.pause()
        assert screen.app.screen is screen

    drive(RlctlApp(run=run, readonly=True), act)
    assert not (run / STOP_FILE).exists()


def test_a_folder_that_is_half_written_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"name": "x", "sta')
    (tmp_path / "events.jsonl").write_text(
        '{"time": 1, "kind": "step", "step": 1, "metrics": {"x": 1}}\n{"time": 2, "ki'
    )

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        assert "no run.json" in text(screen, "#run-head")
        assert list(screen.view.stages["main"].steps.columns) == ["x"]

    drive(RlctlApp(run=tmp_path), act)


def test_the_start_page_opens_runs_files_and_presets(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("rlctl: 1\nrun: {name: mine}\n")

    async def act(screen: StartScreen, pilot: Any) -> None:
        choices = screen.query_one("#choices", OptionList)
        ids = [option.id for option in choices.options if option.id]
        assert ids[0] == f"run:{run}"
        assert "file:mine.yaml" in ids
        assert "preset:grpo-1node" in ids
        await pilot.press("enter")
        await settled(screen.app.screen, pilot)
        assert isinstance(screen.app.screen, MonitorScreen)
        await pilot.press("escape")
        await pilot.pause()
        choices.highlighted = choices.get_option_index("preset:grpo-1node")
        await pilot.press("enter")
        await settled(screen.app.screen, pilot)
        assert isinstance(screen.app.screen, EditorScreen)
        assert screen.app.screen.session.file is None

    drive(RlctlApp(runs_folder=tmp_path / "runs"), act)


async def looked_again(screen: MonitorScreen, pilot: Any) -> None:
    """Until the folder has been looked at once more."""
    screen._poll()
    while screen._looking:
        await settled(screen, pilot)
    await settled(screen, pilot)


def test_whatever_becomes_of_the_folder_it_is_shown_as_far_as_it_goes(run: Path) -> None:
    async def act(screen: MonitorScreen, pilot: Any) -> None:
        log = run / "events.jsonl"
        before = log.read_text()
        log.unlink()
        log.mkdir()  # a log that is there and cannot be read
        await looked_again(screen, pilot)
        assert f"{log}: not a regular file" in text(screen, "#run-head")
        assert "step 8/20" in text(screen, "#run-head"), "what was read is still there"
        log.rmdir()
        log.write_text("")
        await looked_again(screen, pilot)
        log.write_text(before.replace('"step": 8', '"step": 7').replace('"time": ', '"time": 1'))
        await looked_again(screen, pilot)
        assert "step 7/20" in text(screen, "#run-head"), "a log that was begun anew is read anew"
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert screen.query_one("#timeline").region.width <= 80
        shutil.rmtree(run)
        await looked_again(screen, pilot)
        assert f"{run} no longer exists" in text(screen, "#run-head")
        assert screen.is_running

    drive(RlctlApp(run=run), act)


def test_an_empty_folder_becomes_a_run(tmp_path: Path) -> None:
    async def act(screen: MonitorScreen, pilot: Any) -> None:
        assert "the run has recorded nothing yet" in text(screen, "#nothing")
        events = writer(tmp_path)
        events.emit("step", step=1, total_steps=2, metrics={"reward/mean": 1.0, "time/step": 1.0, "time/rollout": 1.0})
        await looked_again(screen, pilot)
        assert "step 1/2" in text(screen, "#run-head")
        assert "rollout\u00a0100%" in text(screen, "#timeline")

    drive(RlctlApp(run=tmp_path), act, (80, 24))


def test_of_a_long_run_the_end_is_shown_while_the_whole_is_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlctl.tui.screens.monitor.LONG", 100)
    monkeypatch.setattr("rlctl.monitor.watching.NEWEST", 600)
    shown: list[list[int]] = []
    take = MonitorScreen._news

    def watched(screen: MonitorScreen, message: MonitorScreen.News) -> None:
        take(screen, message)
        stage = screen.view.stage
        shown.append(list(stage.steps.steps) if stage is not None else [])

    monkeypatch.setattr(MonitorScreen, "_news", watched)
    monkeypatch.setitem(MonitorScreen._decorated_handlers, MonitorScreen.News, [(watched, {})])

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await looked_again(screen, pilot)
        assert shown[0][-1] == 8
        assert len(shown[0]) < 8
        assert shown[-1] == list(range(1, 9))

    drive(RlctlApp(run=run), act)


def test_one_step_and_a_value_that_never_changes_are_drawn_with_room_around_them(tmp_path: Path) -> None:
    events = writer(tmp_path)

    def step(number: int, value: float) -> None:
        events.emit("step", step=number, total_steps=9, metrics={"reward/mean": value, "time/step": 1.0})

    step(1, 0.5)

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await pilot.press("2")
        await settled(screen, pilot)
        await pilot.press("slash", *"reward", "enter")
        await settled(screen, pilot)
        plot = screen.query_one(MetricPlot)._plot
        assert plot is not None

        async def range_after(number: int, value: float) -> list[float]:
            step(number, value)
            await looked_again(screen, pilot)
            return [*plot.seen, plot._y_min, plot._y_max]

        assert "A" in shown(plot), "the point"
        assert [*plot.seen, plot._y_min, plot._y_max] == [0, 2, 0.25, 0.75]
        assert await range_after(2, 0.5) == [1, 2, 0.25, 0.75]
        assert await range_after(3, 0.7) == [1, 3, 0.5, 0.7]

    def shown(plot: Any) -> str:
        return "".join(cell for row in plot.query_one("#plot")._buffer for cell in row)

    drive(RlctlApp(run=tmp_path), act)


def test_metrics_are_marked_zoomed_read_at_a_cursor_and_laid_over_those_of_another_run(run: Path) -> None:
    other = run.parent / "other"
    shutil.copytree(run, other)
    writer(other).emit("step", step=9, total_steps=20, metrics={"reward/mean": 5.0})

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        await pilot.press("2")
        await settled(screen, pilot)
        await pilot.press("slash", *"reward|equal")
        await pilot.press("enter", "a")
        await settled(screen, pilot)
        plot = screen.query_one(MetricPlot)
        assert plot.metrics == ["group/equal_share", "reward/mean"]
        values = text(screen, "#plot-values")
        assert "A group/equal_share  0.75 at step 8" in values
        assert "B reward/mean  0.8 at step 8" in values
        await pilot.press("p", "left", "home")
        await settled(screen, pilot)
        assert "B reward/mean  0.1 at step 1" in text(screen, "#plot-values")
        assert plot._plot is not None
        await pilot.press("plus")
        await settled(screen, pilot)
        first, last = plot._plot.seen
        assert 1 < first < last < 8
        await pilot.press(*["shift+left"] * 9)
        await settled(screen, pilot)
        assert plot._plot.seen == pytest.approx((1, 1 + last - first)), "there are no steps before the first"
        await pilot.press("minus", "minus")
        await settled(screen, pilot)
        assert plot._plot.whole, "and no more than all"
        await pilot.press("plus", "r", "end")
        await settled(screen, pilot)
        assert plot._plot.seen == (1, 8)
        await pilot.press("p", "o")
        await settled(screen.app.screen, pilot)
        assert isinstance(screen.app.screen, PickRunsScreen)
        await pilot.press("enter")
        await settled(screen, pilot)
        assert [curve.run for curve in plot._curves] == ["demo", "other", "demo", "other"]
        assert "D reward/mean  other  0.8 at step 8" in text(screen, "#plot-values"), "at the cursor"
        await pilot.press("p", "r")
        await settled(screen, pilot)
        assert "D reward/mean  other  5 at step 9" in text(screen, "#plot-values"), "without one, the newest"

    drive(RlctlApp(run=run), act)


IMPORTS = """
import asyncio, sys, threading
from pathlib import Path
from rlctl.tui.app import RlctlApp
class Seen:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            print("app" if threading.current_thread() is threading.main_thread() else "reader")

assert "numpy" not in sys.modules
sys.meta_path.insert(0, Seen())

async def main():
    app = RlctlApp(run=Path(sys.argv[1]))
    async with app.run_test(size=(120, 40)) as pilot:
        while getattr(getattr(app.screen, "view", None), "stage", None) is None:
            await pilot.pause(0.02)

asyncio.run(main())
"""


def test_numpy_is_imported_by_the_thread_that_reads(run: Path) -> None:
    """By the app's own thread it takes as long as several frames, while the run loads."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, str(run)], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == ["reader"]
