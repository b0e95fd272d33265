"""A run whose workers relay calls, so that a step's tokens stay with them, is the run whose controller has all of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from rlctl.runtime.processes import placement
from rlctl.runtime.processes.group import RayGroup
from rlctl.runtime.serialization import stored_samples

pytestmark = [pytest.mark.ray, pytest.mark.soak]  # serialization/test_stored.py tests the parts
MEASURED = ("time/", "worker/", "memory/", "throughput/")


def told(ran: Any) -> list[dict[str, float]]:
    """The metrics of all steps, without what was measured of machines."""
    assert ran.result.status == "finished", ran.result.cause
    return [
        {name: value for name, value in event["metrics"].items() if not name.startswith(MEASURED)}
        for event in ran.kinds("step", "evaluation")
    ]


def test_a_run_is_the_same_if_tokens_stay_with_the_workers(
    task: Any, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two mini-batches a step, a reference, old log-probs of the trainer and responses that are shown."""
    changes: dict[str, Any] = {
        "placement": {"devices_per_node": 2, "device": "cpu"},
        "batch": {"prompts_per_step": 4, "responses_per_prompt": 4, "mini_batch_responses": 8},
        "algorithm": {"kl_in_loss": {"coefficient": 0.01}},
        "schedule": {"total_steps": 2, "evaluate_every": 2},
    }
    direct = run(task.config(tmp_path / "direct", **changes))
    stored: list[bool] = []
    made = stored_samples.Table.rows

    def watched(table: Any, chosen: Any) -> Any:
        stored.append(not table.left)
        return made(table, chosen)

    monkeypatch.setattr(stored_samples.Table, "rows", watched)
    monkeypatch.setattr(placement, "RayGroup", partial(RayGroup, fan=1))
    relayed = run(task.config(tmp_path / "relayed", **changes))
    assert stored
    assert all(stored), "no sample came to the controller"
    for one, other in zip(told(relayed), told(direct), strict=True):
        assert one == pytest.approx(other, rel=1e-6, abs=1e-7)
    shown = [[event["samples"] for event in ran.kinds("samples")] for ran in (relayed, direct)]
    assert shown[0] == shown[1]
    weights = [next(ran.result.folder.rglob("*.safetensors")) for ran in (relayed, direct)]
    first, second = map(load_file, weights)
    assert first.keys() == second.keys()
    assert all(first[name].equal(second[name]) for name in first)
