"""A step's metrics are what a person would count by hand, and every name is in the table."""

from __future__ import annotations

import pytest

from rlctl.runtime.reporting.metrics import (
    METRICS,
    describe,
    evaluation_metrics,
    group_metrics,
    response_metrics,
    reward_metrics,
    staleness_metrics,
)


def test_rewards() -> None:
    found = reward_metrics(
        [0.0, 2.0, 1.0, 1.0], [{"a": 1.0}, {"a": 3.0, "a/n": 5.0}, {}, {}], [None, "broke", None, None]
    )
    assert found == {
        "reward/mean": 1.0,
        "reward/std": pytest.approx(0.5**0.5),
        "reward/min": 0.0,
        "reward/max": 2.0,
        "reward/failed_share": 0.25,
        "reward/a": 2.0,
        "reward/a/n": 5.0,
    }


def test_a_reward_called_mean_does_not_hide_the_total() -> None:
    assert reward_metrics([1.0], [{"mean": 9.0}], [None])["reward/mean"] == 1.0


def test_responses() -> None:
    assert response_metrics([2, 4, 6], [False, False, True]) == {
        "response/length_mean": 4.0,
        "response/length_p50": 4.0,
        "response/length_p90": pytest.approx(5.6),
        "response/length_p99": pytest.approx(5.96),
        "response/tokens": 12.0,
        "response/length_max": 6.0,
        "response/truncated_share": pytest.approx(1 / 3),
    }


def test_groups() -> None:
    """Groups 0 (equal), 1 (not), 2 (of one, which is not counted)."""
    found = group_metrics([1.0, 1.0, 0.0, 1.0, 5.0], [0, 0, 1, 1, 2])
    assert found == {"group/equal_share": 0.5, "group/size_mean": pytest.approx(5 / 3)}
    assert group_metrics([1.0, 2.0], [0, 1])["group/equal_share"] == 0.0


def test_evaluation() -> None:
    found = evaluation_metrics(
        "openai/gsm8k", [1.0, 0.0, 0.0, 0.0], [True, False, False, False], [1, 2, 3, 4], [0, 0, 1, 1]
    )
    assert {name: value for name, value in found.items() if "@" not in name} == {
        "evaluation/openai/gsm8k/reward": 0.25,
        "evaluation/openai/gsm8k/accuracy": 0.25,
        "evaluation/openai/gsm8k/best": 0.5,
        "evaluation/openai/gsm8k/length_mean": 2.5,
    }
    assert "evaluation/x/accuracy" not in evaluation_metrics("x", [1.0], [None], [1], [0])


def test_staleness() -> None:
    """At version 20: ages 0, 0, 2, 3 and 20."""
    assert staleness_metrics([20, 20, 18, 17, 0], 20) == {
        "staleness/mean": 5.0,
        "staleness/max": 20.0,
        "staleness/share/0": 0.4,
        "staleness/share/1": 0.0,
        "staleness/share/2-3": 0.4,
        "staleness/share/4-7": 0.0,
        "staleness/share/8-15": 0.0,
        "staleness/share/16+": 0.2,
    }
    assert staleness_metrics([7, 7], 7) == {"staleness/mean": 0.0, "staleness/max": 0.0}
    assert staleness_metrics([], 7) == {}


def test_every_name_is_in_the_table() -> None:
    names = {
        **reward_metrics([1.0], [{"a": 1.0, "a/n": 2.0}], [None]),
        **response_metrics([1], [False]),
        **group_metrics([1.0], [0]),
        **evaluation_metrics("openai/gsm8k", [1.0], [True], [1], [0]),
        **staleness_metrics([0], 1),
    }
    assert all(describe(name) is not None for name in [*names, *METRICS, "time/rollout"])
    assert describe("reward/mean") is METRICS["reward/mean"]
    assert describe("rewrad/mean") is None
