"""Advantages that read more than log-probs: the pass for the old ones tells it, for them alone, and a stage trains on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlctl.config import Config, config_from
from rlctl.runtime.types import Sample
from tests.runtime.train.processes import Workers
from tests.runtime.workers import ppo_stage
from tests.runtime.workers.ppo_stage import steps
from tests.runtime.workers.test_ppo_stage import TRAIN


def config(kind: str, folder: Path = Path("unused"), **args: Any) -> Config:
    advantage: Any = "grpo" if kind == "grpo" else {"type": kind, "args": args}
    return config_from(
        {
            "run": {"folder": str(folder)},
            "model": {"path": "unused"},
            "batch": {"prompts_per_step": 4, "responses_per_prompt": 2},
            "schedule": {"total_steps": 4},
            "algorithm": {"advantage": advantage},
            "train": TRAIN,
            "checkpoint": {"export": "never"},
            "placement": {"device": "cpu", "devices_per_node": 1},
        }
    )


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("grpo", set()),
        ("clipb", {"old_entropy"}),
        ("clipv", {"old_entropy", "old_expected_signal"}),
        ("optimal_token_baseline", {"old_squared_probabilities"}),
    ],
)
def test_the_pass_tells_what_the_estimator_reads_and_no_more(
    one: Workers, model: Path, kind: str, columns: set[str]
) -> None:
    samples = [Sample(torch.tensor([5, 6, 7, 8]), torch.tensor([False, True, True, True])) for _ in range(3)]
    [found] = one.run(ppo_stage.old_columns, config(kind), model, samples)
    for each in found:
        assert set(each) == {"old_log_probs", *columns}
        assert all(bool((values[1:] != 0).all()) and values[0] == 0 for values in each.values())
        assert all(torch.equal(values, found[0][name]) for name, values in each.items())


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        ("clipb", {"mu": 0.1}),
        ("clipv", {"mu": 0.1, "max_frac": 0.2}),
        ("optimal_token_baseline", {}),
        ("tir_optimal_token_baseline", {}),
    ],
)
def test_a_stage_trains_on_them(one: Workers, model: Path, tmp_path: Path, kind: str, args: dict[str, Any]) -> None:
    [events] = one.run(ppo_stage.run, config(kind, tmp_path, **args), model, tmp_path, False)
    found = steps(events)
    assert len(found) == 4
    assert any(metrics["policy/grad_norm"] > 0 for metrics in found.values()), "groups may be equal"
    for metrics in found.values():
        assert ("advantage/left_out_share" in metrics) == kind.startswith("clip")
    left_out = [metrics.get("advantage/left_out_share", 0.0) for metrics in found.values()]
    assert any(left_out) == kind.startswith("clip")
    assert all(share < 1 for share in left_out)
