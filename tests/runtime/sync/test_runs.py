"""Weight sync in whole runs, with workers in processes of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.test_failures import worker
from tests.runtime.told import numbers_of

pytestmark = [pytest.mark.ray, pytest.mark.soak]


def test_no_number_depends_on_the_way_or_the_buckets(task: Any, run: Callable[..., Any], tmp_path: Path) -> None:
    """Two workers on either side; the model has more than a bucket."""
    found = []
    for name, sync in (
        ("whole", {"method": "auto"}),
        ("memory", {"method": "memory", "bucket_mib": 1}),
        ("folder", {"method": "checkpoint", "bucket_mib": 1}),
        ("told", {"method": "nccl", "bucket_mib": 1}),
    ):
        placement = {"devices_per_node": 2}
        config = task.config(tmp_path, run={"name": name}, weight_sync=sync, placement=placement)
        ran = run(config)
        assert ran.result.status == "finished", ran.result.cause
        assert not list(ran.result.folder.rglob("bucket-*")), "files are gone"
        found.append(numbers_of(ran.events))
    assert found[0] == found[1] == found[2] == found[3]
    (started,) = [event for event in ran.events if event["kind"] == "run_started"]
    assert any("host memory" in note for note in started["not_used"]), started


def test_a_sync_that_takes_too_long_is_told_with_what_did_not_come(
    task: Any, run: Callable[..., Any], tmp_path: Path
) -> None:
    def stop_the_engine(event: dict[str, Any]) -> None:
        if event["kind"] == "phase" and event["name"] == "sync":
            worker("rollout-0").suspend()

    settings = {"weight_sync": {"timeout": 2.0}, "rollout": {"timeouts": {"retries": 0}}}
    named = {"name": "late", "folder": str(tmp_path), "max_restarts": 0}
    ran = run(task.config(tmp_path, run=named, **settings), watch=stop_the_engine)
    assert ran.result.status == "failed"
    assert "of weight version 0 within 2 s (weight_sync.timeout)" in ran.result.cause
