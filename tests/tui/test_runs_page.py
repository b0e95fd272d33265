"""The pages of runs: sorted, filtered, opened; two compared in what their configs mean and in their metrics."""

from __future__ import annotations

import json
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.coordinate import Coordinate
from textual.widgets import DataTable, Input, Static, TabbedContent

from rlctl.monitor.metrics import Series
from rlctl.monitor.watching import NEWEST, RunView
from rlctl.runs.record import began
from rlctl.tui.app import RlctlApp, desktop_notice
from rlctl.tui.language import shortened
from rlctl.tui.run_rows import COLUMNS, RunRows, matching
from rlctl.tui.screens.compare import CompareScreen, compare, told_apart
from rlctl.tui.screens.monitor import MonitorScreen
from rlctl.tui.screens.runs import RunsScreen, course
from rlctl.tui.widgets.footer import Footer
from rlctl.tui.widgets.metric_plot import MetricPlot
from rlctl.tui.widgets.run_texts import LONGEST_NAME
from tests.tui.conftest import agree, drive, settled, text_of

CONFIG = "rlctl: 1\nrun: {{name: {name}}}\nmodel: {{path: m}}\ndata: {{train: [{{path: t.parquet}}]}}\ntrain: {{optimizer: {{lr: {rate}}}}}\n"


def make(
    folder: Path, name: str, *, status: str, steps: int, reward: float, rate: str = "1.0e-6", started: float = 1e9
) -> Path:
    """A run folder with what the pages read."""
    run = folder / name
    run.mkdir(parents=True)
    record = {"name": name, "status": status, "pid": 0, "host": "there", "started": started, "ended": started + 60}
    (run / "run.json").write_text(json.dumps(record))
    (run / "config.yaml").write_text(CONFIG.format(name=name, rate=rate))
    events = [{"time": started, "kind": "stage_started", "stage": "main", "total_steps": 9, "step": 0}]
    events += [
        {"time": started + step, "kind": "step", "stage": "main", "step": step, "total_steps": 9,
         "metrics": {"reward/mean": reward * step, "policy/entropy": 1.0}}
        for step in range(1, steps + 1)
    ]  # fmt: skip
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # runs below it are listed too
    runs = tmp_path / "runs"
    make(runs, "first", status="finished", steps=9, reward=0.1, started=1e9)
    make(runs, "second", status="failed", steps=3, reward=0.5, rate="2.0e-6", started=2e9)
    make(runs, "third", status="stopped", steps=6, reward=0.0, started=1.5e9)
    return runs


def names(screen: RunsScreen) -> list[str]:
    return [row.info.name for row in screen._shown]


def test_a_run_is_told_by_its_newest_reward_and_read_again_when_it_grows(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = RunRows(folder)
    assert {row.info.name: row.learned for row in rows.read()} == {
        "second": "1.5 reward",
        "third": "0 reward",
        "first": "0.9 reward",
    }
    assert [row.info.name for row in matching(rows.read(), "fail SEC")] == ["second"]
    reads: list[Path] = []
    outline = RunView.outline
    monkeypatch.setattr(RunView, "outline", lambda path: reads.append(path) or outline(path))
    with (folder / "third" / "events.jsonl").open("a") as file:
        file.write(
            json.dumps({"time": 3e9, "kind": "step", "stage": "main", "step": 7, "metrics": {"reward/mean": 0.7}})
            + "\n"
        )
    assert next(row.value for row in rows.read() if row.info.name == "third") == 0.7
    assert reads == [folder / "third"]


def test_the_course_of_a_run_is_its_whole_course_on_the_scale_of_rewards(folder: Path) -> None:
    """It was the last 16 steps at full height, in which a run from 0.51 to 0.86 was noise."""
    log = folder / "third" / "events.jsonl"
    steps = [
        {"time": 1.0, "kind": "step", "stage": "main", "step": step, "metrics": {"reward/mean": 0.51 + 0.0035 * step}}
        for step in range(1, 101)
    ]
    log.write_text("".join(json.dumps(step) + "\n" for step in steps))
    row = next(row for row in RunRows(folder).read() if row.info.name == "third")
    assert row.scale == (0.0, 1.0)
    assert course(row, 16) == "▅▅▅▅▅▅▆▆▆▆▆▆▆▇▇▇"
    noise = replace(row, series=Series(range(100), [0.5 + 0.02 * (step % 2) for step in range(100)]))
    assert len(set(course(noise, 16))) == 1, "what hardly moves is flat"
    assert replace(row, series=Series([1, 2], [-0.5, 0.5])).scale == (-1.0, 1.0)
    assert replace(row, series=Series([1, 2], [3.0, 8.0])).scale == (3.0, 8.0)


def test_the_course_of_a_run_with_a_long_log_is_sampled_from_all_of_it(folder: Path) -> None:
    log = folder / "third" / "events.jsonl"
    with log.open("w") as file:
        for step in range(1, 20_001):
            event = {
                "time": 1.0,
                "kind": "step",
                "stage": "main",
                "step": step,
                "metrics": {"reward/mean": step / 20_000},
            }
            file.write(json.dumps(event | {"more": "x" * 200}) + "\n")
    assert log.stat().st_size > 4 * NEWEST
    row = next(row for row in RunRows(folder).read() if row.info.name == "third")
    assert row.series.steps[0] == 1
    assert row.value == 1.0
    assert len(row.series) < 12_000, "not all of it was read"
    found = row.series.outlined(16)
    assert found == sorted(found)
    assert all(abs(value - (place + 0.5) / 16) < 0.05 for place, value in enumerate(found))


def test_runs_that_cannot_be_read_are_listed_with_the_others(folder: Path) -> None:
    (folder / "second" / "run.json").write_text('{"name": "sec')
    (folder / "third" / "events.jsonl").write_text("")
    shutil.rmtree(folder / "first")
    found = {row.info.name: (row.info.status, row.value) for row in RunRows(folder).read()}
    assert found == {"second": ("interrupted", 1.5), "third": ("stopped", None)}


def test_the_table_is_sorted_filtered_and_opens_a_run(folder: Path) -> None:
    async def act(screen: Any, pilot: Any) -> None:
        await pilot.press("a")
        await settled(pilot.app.screen, pilot)
        page = pilot.app.screen
        assert isinstance(page, RunsScreen)
        assert names(page) == ["second", "third", "first"]  # newest first
        page._sort([column.title for column in COLUMNS].index("newest"))
        assert names(page) == ["second", "first", "third"]
        await pilot.press("o")
        await pilot.pause()
        assert names(page) == ["third", "first", "second"]
        await pilot.press("slash", *"fir")
        await pilot.press("enter")
        await settled(page, pilot)
        assert names(page) == ["first"]
        await pilot.press("enter")
        await settled(page, pilot)
        await settled(pilot.app.screen, pilot)
        assert isinstance(pilot.app.screen, MonitorScreen)
        assert pilot.app.screen.folder == folder / "first"
        await pilot.press("escape")
        await pilot.pause()
        await pilot.press("escape")
        await pilot.pause()
        assert pilot.app.screen is page
        assert len(names(page)) == 3

    drive(RlctlApp(runs_folder=folder), act)


def test_the_run_under_the_cursor_is_shown_and_removed(folder: Path) -> None:
    async def act(screen: Any, pilot: Any) -> None:
        await pilot.press("a")
        await settled(pilot.app.screen, pilot)
        page = pilot.app.screen
        assert isinstance(page, RunsScreen)
        facts = str(page.query_one("#run-facts", Static).render())
        assert "✗ failed" in facts
        assert "3/9" in facts
        assert "1.5 reward" in facts
        await pilot.press("down")
        await settled(page, pilot)
        assert "■ stopped" in str(page.query_one("#run-facts", Static).render())
        await pilot.press("X")
        await settled(pilot.app.screen, pilot)
        assert (folder / "third").is_dir(), "a person is asked first"
        await agree(pilot)
        await settled(page, pilot)
        await settled(page, pilot)
        assert not (folder / "third").exists()
        assert names(page) == ["second", "first"]
        await pilot.press("S")
        await settled(page, pilot)
        assert "the run is not running" in [one.message for one in pilot.app._notifications]

    drive(RlctlApp(runs_folder=folder), act)


def test_two_runs_are_compared(folder: Path) -> None:
    async def act(screen: Any, pilot: Any) -> None:
        await pilot.press("a")
        await settled(pilot.app.screen, pilot)
        await pilot.press("c")
        assert isinstance(pilot.app.screen, RunsScreen)  # one is not two
        await pilot.press("space", "down", "down", "c")
        await settled(pilot.app.screen, pilot)
        page = pilot.app.screen
        assert isinstance(page, CompareScreen)
        assert (page.first.name, page.second.name) == ("second", "first")
        table = page.query_one(DataTable)
        rows = [list(map(str, table.get_row_at(place))) for place in range(table.row_count)]
        assert rows == [["run.name", "second", "first"], ["train.optimizer.lr", "2e-06", "1e-06"]]
        await pilot.press("down")
        await pilot.pause()
        assert "earning rate" in str(page.query_one("#key-told", Static).render())
        await pilot.press("2")
        await settled(page, pilot)
        await pilot.press("enter")
        await settled(page, pilot)
        assert page.query_one("#compare-tabs", TabbedContent).active == "metrics"
        curves = page.query_one("MetricBrowser MetricPlot", MetricPlot)._curves
        assert [(curve.letter, curve.metric, curve.run) for curve in curves] == [
            ("A", "reward/mean", "second"),
            ("B", "reward/mean", "first"),
        ]
        assert [list(curve.series.steps)[-1] for curve in curves] == [3, 9]

    drive(RlctlApp(runs_folder=folder), act)


def test_a_config_that_cannot_be_read_does_not_hide_the_metrics(folder: Path) -> None:
    (folder / "third" / "config.yaml").unlink()

    async def act(screen: Any, pilot: Any) -> None:
        page = CompareScreen(folder / "first", folder / "third")
        await pilot.app.push_screen(page)
        await settled(page, pilot)
        assert "config.yaml" in str(page.query_one("#differences-told", Static).render())
        assert page.compared is not None
        assert [source.name for source in page.compared.sources] == ["first", "third"]

    drive(RlctlApp(runs_folder=folder), act, (80, 24))


def test_runs_of_one_name_are_listed_by_their_folders(folder: Path) -> None:
    record = folder / "second" / "run.json"
    record.write_text(record.read_text().replace('"second"', '"first"'))

    async def act(screen: Any, pilot: Any) -> None:
        found = [shortened(str(folder / name), LONGEST_NAME) for name in ("first", "second")]
        shown = text_of(screen.app)
        assert all(name in shown for name in found)
        await pilot.press("a")
        page = screen.app.screen
        await settled(page, pilot)
        table = page.query_one(DataTable)
        names = {str(table.get_cell_at(Coordinate(number, 1))) for number in range(table.row_count)}
        assert names == {*found, "third"}

    drive(RlctlApp(runs_folder=folder), act)


def test_two_runs_of_one_name_are_told_apart() -> None:
    assert told_apart(Path("runs/a"), Path("runs/b")) == ("a", "b")
    assert told_apart(Path("runs/a"), Path("old/runs/a")) == ("runs/a", "old/runs/a")
    assert told_apart(Path("/x/one/a"), Path("/x/two/a")) == ("one/a", "two/a")
    assert told_apart(Path("runs/a"), Path("runs/a")) == ("runs/a", "runs/a")


def test_the_start_page_filters_what_it_lists(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("rlctl: 1\n")

    async def act(screen: Any, pilot: Any) -> None:
        listed = screen.query_one("#choices")
        await pilot.press("slash", *"mine")
        await pilot.pause()
        assert [option.id for option in listed.options if option.id] == ["file:mine.yaml"]
        await pilot.press("escape")
        await pilot.pause()
        assert screen.query_one("#start-filter", Input).value == ""
        assert {"run", "file", "preset"} == {option.id.partition(":")[0] for option in listed.options if option.id}

    drive(RlctlApp(runs_folder=folder), act, (80, 24))


def test_a_row_says_how_a_run_is_and_where_it_goes(folder: Path) -> None:
    async def act(screen: Any, pilot: Any) -> None:
        await pilot.press("a")
        await settled(pilot.app.screen, pilot)
        table = pilot.app.screen.query_one(DataTable)
        cells = {
            str(row[1]): [str(cell).strip() for cell in row] for row in map(table.get_row_at, range(table.row_count))
        }
        assert cells["first"][2:6] == ["✓ finished", "9/9 ━━━━━━", "0.9 reward", "▂▂▃▄▅▅▆▇▇"]
        assert cells["second"][2] == "✗ failed"
        assert cells["third"][5] == "▁▁▁▁▁▁"

    drive(RlctlApp(runs_folder=folder), act, (160, 40))


@pytest.mark.parametrize(("width", "shown"), [(80, ["course", "age ▼"]), (120, ["course", "age ▼", "took"])])
def test_the_table_of_runs_fits_its_screen(folder: Path, width: int, shown: list[str]) -> None:
    """No run goes on, so none has time left."""

    async def act(screen: Any, pilot: Any) -> None:
        await pilot.press("a")
        await settled(pilot.app.screen, pilot)
        table = pilot.app.screen.query_one(DataTable)
        heads = [str(column.label) for column in table.ordered_columns]
        assert heads[1:] == ["name", "status", "step", "newest", *shown]
        assert table.max_scroll_x == 0
        await pilot.press("s")
        await pilot.pause()
        heads = [str(column.label) for column in table.ordered_columns]
        assert heads[-1] == "took ▼" if width == 120 else heads[1].startswith("name ")

    drive(RlctlApp(runs_folder=folder), act, (width, 30))


def test_the_bell_rings_when_a_run_ends(folder: Path) -> None:
    record = folder / "first" / "run.json"
    ended = json.loads(record.read_text())
    host = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "status": "running",
        "ended": None,
        "process_began": began(os.getpid()),
    }
    record.write_text(json.dumps(ended | host))

    async def act(screen: Any, pilot: Any) -> None:
        await pilot.press("a")
        await settled(pilot.app.screen, pilot)
        page = pilot.app.screen
        rung: list[tuple[str, str]] = []
        pilot.app.tell_ended = lambda name, status: rung.append((name, status))
        assert next(row.info.status for row in page._shown if row.info.name == "first") == "running"
        record.write_text(json.dumps(ended))
        page.action_refresh()
        await settled(page, pilot)
        assert rung == [("first", "finished")]

    drive(RlctlApp(runs_folder=folder), act)


def test_a_notice_is_one_line_of_one_sequence() -> None:
    assert desktop_notice("a; b", "xterm-256color") == "\x1b]9;a, b\x07"
    assert desktop_notice("a", "foot") == "\x1b]777;notify;rlctl;a\x07"


def test_runs_below_the_folder_are_listed_as_on_the_start_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "runs", "here", status="finished", steps=9, reward=0.1, started=1e9)
    make(tmp_path / "quickstart" / "runs", "there", status="finished", steps=9, reward=0.1, started=2e9)

    async def act(screen: Any, pilot: Any) -> None:
        await pilot.press("a")
        await settled(pilot.app.screen, pilot)
        page = pilot.app.screen
        assert isinstance(page, RunsScreen)
        assert names(page) == ["there", "here"]
        make(tmp_path / "quickstart" / "runs", "newer", status="finished", steps=9, reward=0.1, started=3e9)
        page.action_refresh()
        await settled(page, pilot)
        assert names(page) == ["newer", "there", "here"]

    drive(RlctlApp(runs_folder=Path("runs")), act)


def test_a_run_of_several_stages_is_compared_by_its_last_one(folder: Path) -> None:
    stages = "stages:\n- {name: sft, train: {optimizer: {lr: 5.0e-6}}}\n- {name: rl, batch: {prompts_per_step: 8}}\n"
    with (folder / "third" / "config.yaml").open("a") as file:
        file.write(stages)
    found = compare(folder / "first", folder / "third")
    assert found.problem == ""
    assert [item.key for item in found.differences] == ["stages", "run.name", "batch.prompts_per_step"]


def test_a_terminal_of_80_columns_shows_what_was_learned_whole(folder: Path) -> None:
    make(folder, "longest", status="finished", steps=9, reward=0.1)

    async def act(screen: RunsScreen, pilot: Any) -> None:
        await pilot.press("a")
        await settled(screen, pilot)
        lines = text_of(screen.app).splitlines()
        [line] = [line for line in lines if "longest" in line]
        assert "▂▂▃▄▅▅▆▇▇  " in line
        await pilot.resize_terminal(160, 24)
        pilot.app.screen.action_refresh()
        await settled(pilot.app.screen, pilot)
        [line] = [line for line in text_of(pilot.app).splitlines() if "longest" in line]
        assert "━━━━━━" in line

    drive(RlctlApp(runs_folder=folder), act, size=(80, 24))


def test_a_tall_terminal_shows_what_both_runs_learned_below_their_settings(folder: Path) -> None:
    async def act(screen: RunsScreen, pilot: Any) -> None:
        page = CompareScreen(folder / "first", folder / "second")
        screen.app.push_screen(page)
        await settled(page, pilot)
        plot = page.query_one("#both", MetricPlot)
        assert plot.display
        assert plot.metrics == ["reward/mean"]
        assert plot.region.bottom >= page.query_one(Footer).region.y - 1, "nothing is empty below it"
        await pilot.resize_terminal(80, 24)
        await settled(page, pilot)
        assert not plot.display

    drive(RlctlApp(runs_folder=folder), act, size=(120, 40))


def test_a_setting_of_a_stage_is_explained_as_that_of_a_run(folder: Path) -> None:
    for name, rate in (("first", "5.0e-6"), ("third", "6.0e-6")):
        with (folder / name / "config.yaml").open("a") as file:
            file.write(f"stages:\n- {{name: sft, train: {{optimizer: {{lr: {rate}}}}}}}\n- {{name: rl}}\n")

    async def act(screen: RunsScreen, pilot: Any) -> None:
        page = CompareScreen(folder / "first", folder / "third")
        screen.app.push_screen(page)
        await settled(page, pilot)
        assert page.compared is not None
        place = [item.key for item in page.compared.differences].index("stages[0].train.optimizer.lr")
        page.query_one(DataTable).move_cursor(row=place)
        await pilot.pause()
        assert "earning rate" in str(page.query_one("#key-told", Static).render())

    drive(RlctlApp(runs_folder=folder), act)
