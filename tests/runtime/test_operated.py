"""Runs with operators on data and on experiences: what they keep is trained on, counted and, after a resume, the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

OWN = """
def keep_some(responses):
    for response in responses:
        response["info"]["bonus"] = float(response["index"] % 3)
    return [response for response in responses if response["id"] % 4], {"seen": len(responses)}

def as_they_are(rows):
    return rows
"""


@pytest.fixture
def operated(task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Configs of three steps: half of the rows, three of four responses, and rewards with a bonus by row."""
    monkeypatch.setenv("RLCTL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "own.py").write_text(OWN)
    own = {"type": "function", "path": str(tmp_path / "own.py")}
    operators = [
        {**own, "function": "keep_some"},
        {"type": "reward_shaping_mapper", "reward_shaping_configs": [{"stats_key": "bonus", "weight": 0.5}]},
        {"type": "pass_rate_calculator"},
    ]

    def config(name: str, **run: Any) -> Any:
        return task.config(
            tmp_path / name,
            run=run,
            data={
                "operators": [{"type": "length", "min": 1}, {**own, "function": "as_they_are"}],
                "priority": {"keep": 32},
            },
            algorithm={"experience_operators": operators},
        )

    return config


def test_a_run_counts_what_operators_keep_and_resumes_exactly(
    operated: Callable[..., Any], run_without_ray: Callable[..., Any]
) -> None:
    whole = run_without_ray(operated("whole"))
    [told] = whole.kinds("data_operators")
    counts = [(one["name"], one["before"], one["after"]) for one in told["counts"]]
    assert counts == [("length", 64, 64), ("function", 64, 64), ("priority", 64, 32)]
    steps = [event["metrics"] for event in whole.kinds("step")]
    assert [(each["operator/1_function/in"], each["operator/1_function/out"]) for each in steps] == [(16, 12)] * 3
    assert all(each["operator/1_function/seen"] == 16 for each in steps)
    assert any(each["operator/2_reward_shaping_mapper/change_max"] > 0 for each in steps)
    first = run_without_ray(operated("parts", max_steps_this_session=2))
    second = run_without_ray(operated("parts"))
    assert [event["step"] for event in (*first.kinds("step"), *second.kinds("step"))] == [1, 2, 3]
    assert {**first.numbers, **second.numbers} == whole.numbers


def test_a_resumed_run_whose_data_operator_was_changed_is_refused(
    operated: Callable[..., Any], run_without_ray: Callable[..., Any], tmp_path: Path
) -> None:
    run_without_ray(operated("run", max_steps_this_session=1))
    (tmp_path / "own.py").write_text(OWN.replace("return rows", "return rows[::-1]"))
    again = run_without_ray(operated("run"))
    assert again.result.status == "failed"
    assert "data.operators of data.train[0]" in again.failure["message"]
