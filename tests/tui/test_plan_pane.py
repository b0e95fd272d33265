"""The picture of a plan: where a stage ends, and devices that need two lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.editing.planning import planned
from rlctl.editing.session import Session
from rlctl.tui.panes.plan import drawn


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
        ({"total_steps": 7}, "steps 7;"),
        ({"total_steps": 7, "total_epochs": 2}, "steps 7 at most, or 2 epochs of the data;"),
        ({"total_epochs": 2}, "steps 2 epochs of the data;"),
    ],
)
def test_where_a_stage_ends(session: Session, schedule: dict[str, int], said: str) -> None:
    session.set(("schedule",), schedule)
    assert said in drawn(planned(session), 80)
    session.assume({"dataset_rows": "8192"})
    assert "of the data" not in drawn(planned(session), 80)


def test_devices_that_need_two_lines_are_no_two_nodes(session: Session) -> None:
    wide, narrow = (drawn(planned(session), width).splitlines() for width in (80, 36))
    assert [line for line in wide if line.startswith("node ")] == ["node 0"]
    assert [line for line in narrow if line.startswith("node ")] == ["node 0, devices 0 to 3", "node 0, devices 4 to 7"]
