"""Run folders that are damaged, hold texts that look like markup or commands of a terminal, or change under the one who looks."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import DataTable, Input, OptionList

from rlctl.cli import tui as command
from rlctl.common.errors import UsageError
from rlctl.editing.session import Session
from rlctl.monitor.samples import SampleIndex
from rlctl.monitor.watching import RunView
from rlctl.runs.record import began
from rlctl.runtime.reporting.sample_files import STEP, path_of
from rlctl.runtime.stopping import STOP_FILE
from rlctl.tui.app import RlctlApp
from rlctl.tui.screens.compare import CompareScreen
from rlctl.tui.screens.monitor import MonitorScreen
from rlctl.tui.screens.runs import RunsScreen
from rlctl.tui.widgets.metric_plot import MetricPlot
from rlctl.tui.widgets.run_texts import head_text
from tests.tui.conftest import agree, drive, settled, text, text_of, until, writer

FILE = "rlctl: 1\nrun: {name: demo}\nmodel: {path: m}\ndata: {train: [{path: t.parquet}]}\n"
ODD = "[/] [bold]x[/bold] [red [@click=app.quit()]q \\ \x1b[31m\x9b31m\x07 漢字😀"
PLAIN = "[/] [bold]x[/bold] [red [@click=app.quit()]q \\"


def begin(folder: Path, name: str, /, **told: Any) -> Path:
    """A run of this process."""
    run = folder / name
    run.mkdir(parents=True)
    record = {"name": name, "status": "running", "pid": os.getpid(), "host": socket.gethostname(), "started": time.time() - 9,
              "process_began": began(os.getpid()), **told}  # fmt: skip
    (run / "run.json").write_text(json.dumps(record))
    return run


def sample_lines(*groups: object) -> str:
    return "".join(
        json.dumps(line) + "\n" for line in ({"step": 1, "groups": [7, {"prompt_id": 1, "source": "x"}]}, *groups)
    )


def test_events_samples_and_processes_of_any_kind_are_shown_as_far_as_they_go(tmp_path: Path) -> None:
    run = begin(tmp_path, "demo")
    events = writer(run)
    events.emit("stage_started", total_steps="many", step=ODD)
    for step in (1, ODD, None, -4, 1 << 63, 2):
        events.emit(
            "step", step=step, total_steps=[9], metrics={"reward/mean": step, f"time/{ODD}": 1.0, "time/step": {}}
        )
    events.emit("phase", name=[ODD])
    events.emit("failure", message=ODD, actor=None, hint={})
    with (run / "events.jsonl").open("a") as log:
        log.write(
            '{"time": "noon", "kind": "advisory", "message": [1]}\n{"time": 1e300, "kind": "sync"}\n[]\n7\n{"kind"'
        )
    path = path_of(run, "grpo", STEP, 1)
    path.parent.mkdir(parents=True)
    group = {"prompt": ODD, "source": "x", "prompt_id": 1, "responses": [ODD, 3, None], "rewards": ["1", None, 0.5],
             "components": [{"math": ODD}, 4], "details": [{"length": "9", "spans": [1, "x"], "rollout_log_probs": [None, "x"],
             "finish": [], "advantage": {}, "error": 3}, None, {}]}  # fmt: skip
    path.write_text(sample_lines({"responses": 3}, [], group, {"prompt": None, "sequence": [ODD]}))
    (run / "processes").mkdir()
    good = {
        "node": "n",
        "pid": 1,
        "cpu": 1.0,
        "memory": 1,
        "children": 0,
        "gpus": [],
        "doing": ODD,
        "since": 0,
        "every": 5,
    }
    (run / "processes" / "a-0.json").write_text(json.dumps({**good, "name": "b"}))
    (run / "processes" / "b-0.json").write_text(json.dumps({**good, "cpu": "much"}))
    (run / "processes" / "c-0.json").write_text("[]")
    (run / "logs").mkdir()
    (run / "logs" / "a-0.log").write_text(f"{ODD}\n\x1b]0;title\x07after\t{'long ' * 5000}\n")

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        assert "step 2" in text(screen, "#run-head")
        assert PLAIN in text(screen, "#run-head")
        assert PLAIN in text(screen, "#timeline").replace("\u00a0", " ")
        for keys in (("2",), ("3", "down", "w", "f", "f", "o"), ("4",), ("5",), ("6",)):
            await pilot.press(*keys)
            await settled(screen, pilot)
            shown = text_of(screen.app)
            assert "\x1b" not in shown
            assert "\x9b" not in shown
        assert screen.query_one("#process-table", DataTable).row_count == 1
        assert screen.query_one("#sample-list", OptionList).option_count == 3
        (run / "run.json").write_text((run / "run.json").read_text().replace("running", "paused"))
        screen._poll()
        await settled(screen, pilot)
        assert "status is 'paused'" in text(screen, "#run-head")

    drive(RlctlApp(run=run), act)
    assert [response.text for response in SampleIndex(run).groups("grpo", 1)[0].responses] == [ODD, "3", "None"]


@pytest.mark.parametrize(
    "told", [{"status": "paused"}, {"started": 1e30}, {"started": None}, {"pid": "7"}, {"ended": []}, {"name": 3}]
)
def test_a_record_of_another_kind_is_a_damaged_one_and_hides_no_run(tmp_path: Path, told: dict[str, Any]) -> None:
    from rlctl import runs

    begin(tmp_path, "bad", **told)
    good = begin(tmp_path, "good")
    writer(good).emit("step", step="x", total_steps="y", time="z")
    found = {info.folder.name: (info.status, info.step, info.total_steps) for info in runs.list_runs(tmp_path)}
    assert found == {"bad": ("interrupted", 0, None), "good": ("running", 0, None)}


def test_a_folder_is_a_run_from_the_moment_it_begins_and_another_folder_is_told_to_be_none(tmp_path: Path) -> None:
    begins = tmp_path / "runs" / "begins"
    begins.mkdir(parents=True)
    with pytest.raises(UsageError, match=r"is a folder without run\.json"):
        command._run(str(begins), tmp_path)
    (begins / "lock").touch()
    assert command._run("begins", tmp_path / "runs") == begins
    assert command._run(str(tmp_path / "missing.yaml"), tmp_path) is None


def test_names_and_values_that_look_like_markup_are_shown_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("[", "[bold]x", "[red", "tail\\")
    for name in names:
        run = begin(tmp_path / "runs", name, started=2e9 + len(name), name=f"{name}[/]\x1b[2J")
        (run / "config.yaml").write_text(f"rlctl: 1\nmodel: {{path: {json.dumps(name + '/m')}}}\n")
        writer(run).emit("step", step=1, metrics={"reward/mean": 1.0, "[/x]": 2.0})
    (tmp_path / "[f].yaml").write_text("rlctl: 1\n")

    async def act(screen: Any, pilot: Any) -> None:
        assert all(name in text_of(screen.app) for name in (*names, "[f].yaml"))
        await pilot.press("a")
        await settled(pilot.app.screen, pilot)
        page = pilot.app.screen
        assert isinstance(page, RunsScreen)
        assert all(f"{name}[/]␛[2J" in text_of(page.app) for name in names)
        await pilot.press("space", "down", "c")
        await settled(pilot.app.screen, pilot)
        compared = pilot.app.screen
        assert isinstance(compared, CompareScreen)
        first, second = compared.first.name, compared.second.name
        table = compared.query_one(DataTable)
        assert [str(column.label) for column in table.columns.values()] == ["key", first, second]
        assert list(map(str, table.get_row_at(0))) == ["model.path", f"{first}/m", f"{second}/m"]
        await pilot.press("escape", "ctrl+p")
        await settled(pilot.app.screen, pilot)
        await pilot.press(*"run ")
        await settled(pilot.app.screen, pilot)
        await until(pilot, lambda: all(f"run {name}[/]␛[2J" in text_of(page.app) for name in names))

    drive(RlctlApp(runs_folder=tmp_path / "runs"), act)


def test_the_stages_of_a_run_may_look_like_markup(tmp_path: Path) -> None:
    run = begin(tmp_path / "runs", "r")
    for name in ("[red]x[/red", "[/y]"):
        writer(run).emit("stage_started", stage=name, total_steps=3)
        writer(run).emit("step", stage=name, step=1, metrics={"[/m]": 1.0})

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        for keys in (("2",), ("3",), ("e",), ("6",), ("1",)):
            await pilot.press(*keys)
            await settled(screen, pilot)
        await pilot.press("3")
        await settled(screen, pilot)
        assert "stage [/y]" in text(screen, "#sample-text")

    drive(RlctlApp(run=run), act)


def test_the_table_of_runs_stays_where_one_has_scrolled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the runs below the folder of the app are listed, too
    for number in range(60):
        begin(tmp_path, f"run-{number:02d}", started=1e9 - number, status="stopped")

    async def act(screen: Any, pilot: Any) -> None:
        await pilot.press("a")
        await settled(pilot.app.screen, pilot)
        page = pilot.app.screen
        table = page.query_one(DataTable)
        table.scroll_to(y=30, animate=False)
        await pilot.pause()
        writer(tmp_path / "run-40").emit("step", step=7, metrics={})
        page.action_refresh()
        await settled(page, pilot)
        assert table.scroll_y == 30
        assert "7" in (str(cell).strip() for cell in table.get_row_at(40))
        shutil.rmtree(tmp_path / "run-59")
        page.action_refresh()
        await settled(page, pilot)
        assert table.row_count == 59

    drive(RlctlApp(runs_folder=tmp_path), act, size=(80, 24))


def test_a_stop_that_was_asked_for_is_told_and_asked_once_more_ends_the_run_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, sent = begin(tmp_path, "demo"), []
    monkeypatch.setattr("rlctl.runs.inspection.os.kill", lambda pid, number: sent.append((pid, number)))

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        for _ in range(2):
            await pilot.press("S")
            await pilot.pause()
            await agree(pilot)
            screen._poll()
            await settled(screen, pilot)
        assert (run / STOP_FILE).exists()
        assert "stopping after this step" in text(screen, "#run-head")
        assert sent == [(os.getpid(), 2)]

    drive(RlctlApp(run=run), act)


def test_the_metrics_of_every_stage_can_be_picked(tmp_path: Path) -> None:
    run = begin(tmp_path, "demo")
    events = writer(run)
    events.emit("run_started", stages=["sft", "grpo"])
    view = RunView(run)
    for stage, metric in (("sft", "policy/loss"), ("grpo", "reward/mean")):
        events.enter_stage(stage)
        events.emit("stage_started", total_steps=4, step=0)
        events.emit("step", step=1, total_steps=4, metrics={metric: 1.0})
        assert f"stage {stage}   step 1/4" in head_text(
            view.read_whole(), None, 0.0
        )  # also while it is the only one yet

    async def act(screen: MonitorScreen, pilot: Any) -> None:
        found = []
        await pilot.press("2")
        for _ in range(3):
            await settled(screen, pilot)
            found.append([(curve.metric, curve.run) for curve in screen.query_one(MetricPlot)._curves])
            await pilot.press("s")
        first = [("reward/mean", "demo, stage grpo")]
        assert found[1:] == [[("policy/loss", "demo, stage sft")], first]

    drive(RlctlApp(run=run), act)


@pytest.mark.parametrize("value", ["x" * 5000, "~nosuchuser/m", "a\0b"], ids=["long", "nobody", "null"])
def test_a_name_that_no_file_can_have_ends_no_app(file: Path, value: str) -> None:
    async def act(screen: Any, pilot: Any) -> None:
        for key in (("model", "path"), ("run", "name"), ("data", "train", 0, "path")):
            screen.session.set(key, value)
        screen.renew()
        await screen.jump(("model", "path"))
        await settled(screen, pilot)
        assert "error" in str(screen.sub_title)
        await pilot.press("f9")
        await settled(screen.app.screen, pilot)
        assert "It cannot start yet" in text_of(screen.app)
        assert "data.train[0].path: data.train[0].path" not in text_of(screen.app)
        await pilot.press("escape", "f12")
        await settled(screen.app.screen, pilot)
        screen.app.screen.query_one("#name", Input).value = f"{value}/no.yaml"
        await pilot.press("enter")
        await settled(screen.app.screen, pilot)
        assert "not saved" in [told.title for told in screen.app._notifications]

    drive(RlctlApp(session=Session.open(file)), act)
