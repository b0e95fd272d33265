"""The picture of a plan: where a stage ends, and devices that need two lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from rlctl.common.errors import UsageError
from rlctl.editing.planning import machines_of, nodes, planned
from rlctl.editing.session import Session
from rlctl.planning.batch_table import Row
from rlctl.tui.app import RlctlApp
from rlctl.tui.panes.plan import drawn
from rlctl.tui.screens.editor import EditorScreen
from rlctl.tui.widgets import rack
from rlctl.tui.widgets.batch_flow import boxes, in_lines, unit_of
from tests.tui.conftest import drive, settled, text, text_of


@pytest.fixture
def session(tmp_path: Path) -> Session:
    path = tmp_path / "run.yaml"
    path.write_text(
        "rlctl: 1\nmodel: {path: m}\ndata: {train: [{path: t.parquet}]}\nrewards: [{type: rule}]\nschedule: {total_steps: 7}\n"
        "placement: {layout: colocated, nodes: 1, devices_per_node: 8}\n"
    )
    return Session.open(path)


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ({"total_steps": 7}, "7 steps · never evaluates"),
        ({"total_steps": 7, "total_epochs": 2}, "7 steps or 2 epochs of the data, whichever comes first ·"),
        ({"total_epochs": 1, "evaluate_every": 1}, "1 epoch of the data · evaluates every step"),
        ({"total_epochs": 2}, "2 epochs of the data ·"),
    ],
)
def test_where_a_stage_ends(session: Session, schedule: dict[str, int], said: str) -> None:
    session.set(("schedule",), schedule)
    assert said in str(drawn(planned(session), 80))
    session.assume({"dataset_rows": "8192"})
    assert "of the data" not in str(drawn(planned(session), 80))


@pytest.mark.parametrize(("width", "rows"), [(80, 1), (38, 2)])
def test_devices_that_need_two_rows_are_no_two_nodes(session: Session, width: int, rows: int) -> None:
    lines = str(drawn(planned(session), width)).splitlines()
    [start] = [place for place, line in enumerate(lines) if line.startswith("╭─ node 0 ")]
    end = next(place for place in range(start, len(lines)) if lines[place].startswith("╰"))
    named = [line.split()[1:-1] for line in lines[start + 1 : end] if line.split()[1].isdigit()]
    assert [name for row in named for name in row] == [str(number) for number in range(8)]
    assert len(named) == rows
    assert len({len(line) for line in lines[start : end + 1]}) == 1, "the frame closes"


def test_devices_are_as_full_as_their_largest_phase_and_over_full_ones_say_so(session: Session) -> None:
    """The needs of roles that take turns were added up, and no page said whether they fit."""
    session.set(("model", "path"), "Qwen/Qwen3-8B")
    found = planned(session, machines_of("H100", session.config))
    assert found.plan is not None
    [stage] = found.plan.stages
    assert stage.fit is not None
    assert len(stage.fit.phases) > 2
    [node] = nodes(found.plan, stage)
    assert node.devices[0].gib == max(phase.gib for phase in stage.fit.phases)
    assert node.devices[0].gib < sum(estimate.gib for estimate in stage.memory)
    shown = str(drawn(found, 80))
    assert "1 × 8 H100 of 80 GiB" in shown
    assert re.search(r"train +█+░* \d+ of 80 GiB", shown)
    assert "✓ fits: " in shown
    assert "✗" not in shown
    small = planned(session, machines_of("16GiB", session.config))
    assert small.plan is not None
    told = drawn(small, 80)
    assert "✗ does not fit: " in str(told)
    assert re.search(r"█✗ \d+ of 16 GiB", str(told))
    assert nodes(small.plan, small.plan.stages[0])[0].devices[0].is_over
    assert any("$error" in str(span.style) for span in told.spans)


def test_a_key_makes_the_changes_with_which_the_config_fits(session: Session) -> None:
    session.set(("model", "path"), "Qwen/Qwen3-8B")
    session.set(("rollout", "max_response_tokens"), 16384)

    async def act(screen: EditorScreen, pilot: Any) -> None:
        await pilot.press("3")
        await settled(screen, pilot)
        assert "as rlctl runs it" in text_of(screen.app)
        assert "does not fit" in text_of(screen.app)
        await pilot.press("f")
        await settled(screen, pilot)
        assert "✓ fits" in text_of(screen.app)
        await pilot.press("u")
        await settled(screen, pilot)
        assert "does not fit" in text_of(screen.app), "one undo takes back all of them"

    drive(RlctlApp(session=session, machines="24GiB"), act, (160, 60))


def test_without_machines_no_page_says_that_it_fits(session: Session) -> None:
    session.set(("model", "path"), "Qwen/Qwen3-8B")
    shown = str(drawn(planned(session), 80))
    assert "fits" not in shown
    assert "≥" in shown
    assert "GiB a device; the KV cache takes what is left" in shown


def test_the_time_of_a_step_is_shown_for_a_known_gpu(session: Session) -> None:
    session.set(("model", "path"), "Qwen/Qwen3-8B")
    assert "if every response" not in str(drawn(planned(session), 80))
    shown = str(drawn(planned(session, machines_of("1x8:H100", session.config)), 80))
    assert re.search(r"about .+ a step · training .+ · generation .+ · .+ if every response", shown)


@pytest.mark.parametrize(
    ("text", "nodes", "devices"), [("H100", 1, 8), ("80GiB", 1, 8), ("2x4:A100", 2, 4), ("cpu:2", 1, 2)]
)
def test_machines_by_a_name_are_as_many_as_the_config_says(
    session: Session, text: str, nodes: int, devices: int
) -> None:
    cluster = machines_of(text, session.config)
    assert cluster is not None
    assert (cluster.nodes, cluster.devices_per_node) == (nodes, devices)
    assert machines_of("", session.config) is None
    with pytest.raises(UsageError):
        machines_of("H1000", session.config)


@pytest.mark.parametrize(
    ("value", "unit", "told"),
    [
        (1, "mini-batches", "mini-batch"),
        (1, "passes", "pass"),
        (2, "passes", "passes"),
        (1, "responses on a replica", "response on a replica"),
    ],
)
def test_one_thing_is_no_several(value: int, unit: str, told: str) -> None:
    assert unit_of(Row("", value, unit)) == told


def test_a_batch_that_does_not_divide_is_marked_in_the_flow(session: Session) -> None:
    session.set(("batch",), {"prompts_per_step": 10, "responses_per_prompt": 3, "mini_batch_responses": 8})
    shown = str(drawn(planned(session), 100))
    assert "✗ 3.75" in shown
    session.set(("batch", "mini_batch_responses"), 10)
    assert "✗ 3" not in str(drawn(planned(session), 100))
    [(_, rows)] = planned(session).rows
    assert "10 prompts ─×3→ 30 responses ─÷10→ 3 mini-batches" in str(in_lines(boxes(rows), 200))
    assert all(len(line) <= 40 for line in str(in_lines(boxes(rows), 40)).splitlines())


def test_a_device_that_is_over_full_says_so() -> None:
    full, over = (rack.node("node 0", [rack.Tile("0", "P", gib)], 40, {}, 80.0) for gib in (40.0, 96.0))
    assert "✗" not in "".join(map(str, full))
    assert "✗" in "".join(map(str, over))
    assert "96G" in "".join(map(str, over))


def test_the_form_shows_the_batch_as_boxes_where_there_is_room_and_the_plan_comes_with_a_resize(
    session: Session,
) -> None:
    async def act(screen: EditorScreen, pilot: Any) -> None:
        await screen.jump(("batch", "prompts_per_step"))
        await settled(screen, pilot)
        assert "├────" in text(screen, "#flow"), "one box below another"
        screen.query_one("#form Input", Input).value = "100"
        await settled(screen, pilot)
        assert re.search(r"│ +100 prompts", text(screen, "#flow"))
        await pilot.resize_terminal(80, 24)
        await settled(screen, pilot)
        assert "100 prompts ─×" in text(screen, "#flow"), "lines where the fields need the room"
        lines = text(screen, "#flow").count("\n")
        await pilot.press("z")
        await settled(screen, pilot)
        screen.query_one("#form Input", Input).value = "101"
        await settled(screen, pilot)
        await pilot.press("z")
        await settled(screen, pilot)
        assert "101 prompts" in text(screen, "#flow")
        assert text(screen, "#flow").count("\n") == lines, "as wide as it is seen"
        await pilot.resize_terminal(200, 60)
        await settled(screen, pilot)
        assert not screen.query_one("#flow").display, "once is enough"
        assert "node 0" in text_of(screen.app)

    drive(RlctlApp(session=session), act, size=(120, 40))
