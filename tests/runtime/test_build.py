"""When things happen and what is left out follows from config, plan and the length of the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import PlanError
from rlctl.config import Config, Stage, config_from
from rlctl.planning.plan import StagePlan, make_plan
from rlctl.runtime.checkpoints.checkpoint import place_of
from rlctl.runtime.specs.experience import old_is_current
from rlctl.runtime.stage_inputs import make_clock, scheduler_steps
from rlctl.runtime.stage_run import Clock


def config(**sections: Any) -> Config:
    base = {
        "batch": {"prompts_per_step": 4, "responses_per_prompt": 2},
        "placement": {"device": "cpu", "devices_per_node": 1},
        "schedule": {"total_steps": 6},
        "rewards": [{"type": "function", "path": "reward.py"}],
    }
    return config_from({**base, **sections})


def plan_of(chosen: Config) -> StagePlan:
    return make_plan(chosen).stages[0]


def test_the_clock_counts_steps_with_the_rows_that_were_found() -> None:
    """10 rows, 4 prompts a step: 2 whole steps an epoch, 6 in 3 epochs; every epoch is every 2 steps."""
    schedule = {"total_epochs": 3, "evaluate_every": {"epochs": 1}}
    clock = make_clock(config(schedule=schedule, checkpoint={"every": 4}), rows=10)
    assert clock == Clock(
        6, evaluate_every=2, save_every=4, evaluate_at_start=True, evaluate_at_end=True, save_last=True
    )


def test_a_run_without_an_end_is_refused() -> None:
    with pytest.raises(PlanError, match="has no end") as refused:
        make_clock(config(schedule={}), rows=10)
    assert "schedule.total_steps" in refused.value.hint


def test_evaluation_alone_takes_no_steps() -> None:
    chosen = config(run={"mode": "evaluate_only"}, schedule={"evaluate_every": 2})
    assert make_clock(chosen, rows=0) == Clock(
        0, None, None, evaluate_at_start=True, evaluate_at_end=False, save_last=False
    )


@pytest.mark.parametrize(
    ("schedule", "ticks"), [({"step_unit": "step"}, 6), ({"step_unit": "optimizer_step"}, 24), ({"total_steps": 9}, 9)]
)
def test_ticks_of_the_learning_rate_schedule(schedule: dict[str, Any], ticks: int) -> None:
    """6 steps of 2 mini-batches (8 responses, 4 a mini-batch) in 2 epochs are 24 optimizer steps."""
    batch = {"prompts_per_step": 4, "responses_per_prompt": 2, "mini_batch_responses": 4, "ppo_epochs": 2}
    chosen = config(batch=batch, train={"lr_scheduler": schedule})
    assert scheduler_steps(chosen, plan_of(chosen), make_clock(chosen, 100)) == ticks


def test_the_pass_for_old_log_probs_is_left_out_only_where_it_would_compute_the_same() -> None:
    single = config()
    assert old_is_current(single, plan_of(single))
    kl = {"objective": "rl", "kl_in_reward": {"estimator": "k1", "coefficient": 0.1}}
    more = [
        config(batch={"prompts_per_step": 4, "responses_per_prompt": 2, "ppo_epochs": 2}),
        config(batch={"prompts_per_step": 4, "responses_per_prompt": 2, "mini_batch_responses": 4}),
        config(algorithm=kl),
        config(algorithm={"old_log_probs": "rollout"}),
        config(algorithm={"advantage": {"type": "optimal_token_baseline"}}),
        config(algorithm={"advantage": {"type": "clipb"}}),
    ]
    assert not any(old_is_current(chosen, plan_of(chosen)) for chosen in more)


def test_checkpoints_are_in_the_run_folder_or_where_the_config_says(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "demo"
    inside = Stage("grpo", config(), continues=False)
    outside = Stage("grpo", config(checkpoint={"folder": str(tmp_path / "big")}), continues=False)
    assert place_of(inside, folder) == folder / "checkpoints" / "grpo"
    assert place_of(outside, folder) == tmp_path / "big" / "demo" / "grpo"
