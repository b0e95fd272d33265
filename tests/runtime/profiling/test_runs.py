"""What a whole run tells of itself: every step's metrics, tables of responses for trackers, profiles of chosen steps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlctl.runtime.reporting.metrics import describe
from rlctl.runtime.tracking.interface import ShownResponse
from rlctl.runtime.tracking.safe import SafeTracker
from tests.runtime.local import run_here


class Kept:
    """A tracker that keeps what it gets."""

    def __init__(self) -> None:
        self.steps: dict[int, dict[str, float]] = {}
        self.tables: dict[tuple[str, int], list[ShownResponse]] = {}

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        self.steps.setdefault(step, {}).update(metrics)

    def log_responses(self, name: str, responses: Sequence[ShownResponse], *, step: int) -> None:
        self.tables[name, step] = list(responses)

    def log_config(self, config: Mapping[str, Any]) -> None:
        """The test knows it."""

    def close(self) -> None:
        """There is nothing to send."""


TOLD = """
time/idle time/step time/rollout time/reward time/advantages time/train time/sync
throughput/tokens_per_second throughput/tokens_per_second_per_device throughput/responses_per_second
throughput/trained_tokens_per_second throughput/drawn_tokens_per_second throughput/mfu throughput/step_mfu
worker/policy/busy_share worker/rollout/busy_share worker/reward/busy_share
memory/controller/resident memory/policy/resident memory/rollout/resident
response/length_p50 response/length_p90 response/length_p99 response/length_max response/truncated_share response/tokens
group/equal_share staleness/mean staleness/max
policy/mismatch_kl policy/mismatch_k3 policy/mismatch_probability policy/mismatch_chi2
"""


def test_a_run_tells_where_its_time_went_and_shows_its_responses(task: Any, tmp_path: Path) -> None:
    config = task.config(
        tmp_path,
        schedule={"total_steps": 2, "evaluate_every": 1, "evaluate_at_start": False},
        checkpoint={"every": None, "at_end": False, "export": "never"},
        rollout={"log_evaluation_responses": 3},
        profiling={"tool": "torch", "steps": [2], "roles": {"policy": {"enabled": True}}, "peak_tflops": 10},
    )
    kept = Kept()
    told: list[str] = []
    with SafeTracker("kept", lambda: kept, told.append) as tracker:
        run_here(config, tmp_path / "run", trackers=[tracker])
    assert told == []
    for step in (1, 2):
        metrics = kept.steps[step]
        assert set(TOLD.split()) <= metrics.keys()
        assert [name for name in metrics if describe(name) is None] == []
        phases = sum(seconds for name, seconds in metrics.items() if name.startswith("time/")) - metrics["time/step"]
        assert phases == pytest.approx(metrics["time/step"], rel=0.01)
        assert 0 < metrics["throughput/step_mfu"] < metrics["throughput/mfu"] < 1
        assert metrics["staleness/max"] == 0
        assert len(kept.tables["rollout/responses", step]) == 16
        shown = kept.tables["evaluation/responses", step]
        assert len(shown) == 3
        assert [each.prompt for each in shown] == [each.prompt for each in kept.tables["evaluation/responses", 1]]
    files = sorted(path.name for path in (tmp_path / "run" / "profile").iterdir())
    assert files == ["policy-step-2.json.gz", "timeline-step-2.json"]
    events = json.loads((tmp_path / "run" / "profile" / "timeline-step-2.json").read_text())["traceEvents"]
    names = {event["name"] for event in events if event["ph"] == "X"}
    assert {"step 2", "rollout", "evaluate", "train_step", "generate", "load_bucket", "score"} <= names


def test_responses_are_shown_where_that_is_asked_for(task: Any, tmp_path: Path) -> None:
    config = task.config(
        tmp_path,
        schedule={"total_steps": 1, "evaluate_every": 1, "evaluate_at_start": False},
        checkpoint={"every": None, "at_end": False, "export": "never"},
        rollout={"log_responses": False},
    )
    kept = Kept()
    with SafeTracker("kept", lambda: kept, print) as tracker:
        seen = run_here(config, tmp_path / "run", trackers=[tracker])
    assert kept.tables == {}
    assert [event for event in seen if event["kind"] == "samples"] == []
    assert not (tmp_path / "run" / "profile").exists()
