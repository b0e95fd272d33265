"""Responses that were dumped are replayed to the same prompts with the same seeds, and to no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import PlanError, RunError
from rlctl.runtime.experience.recorded import Dumped, Replayed
from rlctl.runtime.specs.experience import check_skips
from rlctl.runtime.types import Request, Response, Sampling
from tests.runtime.local import run_here
from tests.runtime.told import numbers_of


class Engines:
    """Answers each request with its seed."""

    def generate(self, requests: Sequence[Request]) -> list[list[Response]]:
        return [[Response((r.seed, index), (-0.5, -0.25), "stop", 3) for index in range(r.n)] for r in requests]

    def sleep(self) -> None:
        """There is nothing to make room for."""


def requests(seed: int) -> list[Request]:
    return [Request((1, 2, prompt), Sampling(max_tokens=4), n=2, seed=seed + prompt) for prompt in (5, 6)]


def test_what_was_dumped_is_replayed_and_nothing_else(tmp_path: Path) -> None:
    drawn = Dumped(Engines(), tmp_path).generate(requests(10))
    assert Replayed(tmp_path).generate(requests(10)) == drawn
    with pytest.raises(RunError, match="no responses to these 2 prompts with these seeds"):
        Replayed(tmp_path).generate(requests(11))
    [path] = tmp_path.glob("*.pt")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(RunError, match="cannot be read"):
        Replayed(tmp_path).generate(requests(10))


def skipping(config: Any, mode: str, folder: Path) -> Any:
    return replace(config, run=replace(config.run, skip=replace(config.run.skip, rollout=mode, folder=str(folder))))


def test_a_replayed_run_is_the_one_that_dumped(task: Any, tmp_path: Path) -> None:
    config = task.config(tmp_path, schedule={"total_steps": 2, "evaluate_at_start": False})
    dumped = run_here(skipping(config, "dump", tmp_path / "kept"), tmp_path / "one")
    replayed = run_here(skipping(config, "replay", tmp_path / "kept"), tmp_path / "two")
    dumped, replayed = ([{**event, "stage": "main"} for event in seen] for seen in (dumped, replayed))
    assert numbers_of(replayed) == numbers_of(dumped) != {}
    assert len(list((tmp_path / "kept" / "main").iterdir())) == 2
    told = [event["message"] for event in replayed if event["kind"] == "advisory"]
    assert "responses are replayed from disk, not generated (run.skip.rollout)" in told


def test_a_schedule_that_streams_is_refused(task: Any, tmp_path: Path) -> None:
    config = skipping(task.config(tmp_path), "dump", tmp_path)
    check_skips(config)
    with pytest.raises(PlanError, match="generates responses one by one"):
        check_skips(replace(config, weight_sync=replace(config.weight_sync, max_steps_ahead=1.0)))
