"""A stage evaluates and saves when its clock says so, and weights have the version that they are given out with."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from rlctl.config import config_from
from rlctl.runtime.stage_run import Clock, Progress, StageRun


def clock(*, every: int | None, last: bool) -> Clock:
    return Clock(
        5, evaluate_every=every, save_every=every, evaluate_at_start=True, evaluate_at_end=last, save_last=last
    )


@pytest.mark.parametrize(
    ("every", "last", "evaluations", "saves"),
    [
        (2, True, [2, 4, 5], [2, 4, 5]),
        (2, False, [2, 4], [2, 4]),
        (None, True, [], [5]),
        (None, False, [], []),
    ],
)
def test_when_a_stage_evaluates_and_saves(
    every: int | None, last: bool, evaluations: list[int], saves: list[int]
) -> None:
    """Without an interval nothing is evaluated at the end, and something may still be saved."""
    made = clock(every=every, last=last)
    steps = range(1, made.total_steps + 1)
    assert [step for step in steps if made.evaluation_due(step)] == evaluations
    assert [step for step in steps if made.save_due(step)] == saves


def test_weights_asked_for_while_the_policy_is_trained_are_the_new_ones_with_their_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An engine that is lost meanwhile is replaced by one with these."""
    half_way, asked = threading.Event(), threading.Event()

    class Policy:
        state = "old"

        def train(self, samples: Any, *, step: int, old_is_current: bool) -> dict[str, float]:
            self.state = "neither"
            half_way.set()
            assert not asked.wait(0.3), "weights are given out only when they are whole"
            self.state = "new"
            return {}

        def weights(self) -> str:
            return self.state

    found: list[tuple[str, int]] = []
    rollout = SimpleNamespace(load_weights=lambda weights, version, only: found.append((weights, version)))
    config = config_from({"schedule": {"total_steps": 1}})
    run = StageRun(
        config, SimpleNamespace(), clock(every=None, last=False), SimpleNamespace(), Policy(), rollout, *[None] * 5,  # type: ignore[arg-type]
        export_folder=None, meter=None, old_is_current=True,  # type: ignore[arg-type]
    )  # fmt: skip
    monkeypatch.setattr(StageRun, "phase", lambda run, name: nullcontext())

    def ask() -> None:
        half_way.wait()
        assert run.send_weights(0) == 1
        asked.set()

    asking = threading.Thread(target=ask)
    asking.start()
    run.train(1, [])
    asking.join(10)
    assert found == [("new", 1)]
    assert run.progress == Progress(weight_version=1)
