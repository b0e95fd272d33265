"""What a config turns on is computed: KL and a reference, several epochs of mini-batches, evaluation alone, rewards that teach."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlctl.config import config_from, to_plain

KL: dict[str, Any] = {
    "algorithm": {
        "objective": "rl",
        "kl_in_loss": {"estimator": "k3", "coefficient": 0.1},
        "kl_in_reward": {"estimator": "k1", "coefficient": 0.1},
    },
    "batch": {
        "prompts_per_step": 4,
        "responses_per_prompt": 4,
        "mini_batch_responses": 8,
        "ppo_epochs": 2,
        "micro_batch": {"unit": "tokens", "size": 64},
    },
    "schedule": {"total_steps": 2, "evaluate_at_start": False},
}


@pytest.fixture(scope="module")
def with_kl(task: Any, run_without_ray: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two steps of four optimizer steps, with a KL in the loss and one in the reward."""
    return run_without_ray(task.config(tmp_path_factory.mktemp("kl"), **KL))


def test_a_reference_is_asked_and_drifts_away(with_kl: Any) -> None:
    assert with_kl.result.status == "finished", with_kl.result.cause
    phases = [event["name"] for event in with_kl.kinds("phase") if event.get("step") == 0 and event["name"] != "sync"]
    assert phases == ["rollout", "reward", "old_log_probs", "reference", "advantages", "train"]
    first, second = (with_kl.numbers[("main step", step)] for step in (1, 2))
    assert first["policy/kl_loss"] > 0, "after the first of four optimizer steps the policy is not the reference either"
    assert second["policy/kl_loss"] > 0
    assert first["policy/ratio"] != 1, (
        "after the first of four optimizer steps the policy is not the one that responded"
    )


def test_a_weight_version_is_a_step(with_kl: Any) -> None:
    assert [event["version"] for event in with_kl.kinds("sync")] == [0, 1, 2]
    drawn_by = [event["samples"][0]["weight_version"] for event in with_kl.kinds("samples")]
    assert drawn_by == [0, 1]


@pytest.mark.ray
@pytest.mark.soak
def test_two_workers_of_every_role_compute_what_one_does(
    with_kl: Any, task: Any, run: Callable[..., Any], tmp_path: Path
) -> None:
    two = run(task.config(tmp_path, **KL, placement={"devices_per_node": 2, "device": "cpu"}))
    for step in (1, 2):
        one_worker, two_workers = with_kl.numbers[("main step", step)], two.numbers[("main step", step)]
        assert two_workers == pytest.approx(one_worker, rel=1e-3, abs=1e-6)


def test_a_run_that_only_evaluates_trains_nothing(
    task: Any, run_without_ray: Callable[..., Any], tmp_path: Path
) -> None:
    held_out = {"path": str(task.folder / "test.parquet")}
    sampled = {"temperature": 1.0, "max_response_tokens": 2}
    config = task.config(
        tmp_path,
        run={"name": "measure", "folder": str(tmp_path), "mode": "evaluate_only", "on_end": f"touch {tmp_path}/ended"},
        data={
            "eval": [
                {**held_out, "name": "greedy"},
                {**held_out, "name": "often", "responses_per_prompt": 4, "evaluation_sampling": sampled},
            ]
        },
    )
    done = run_without_ray(config)
    assert done.result.status == "finished", done.result.cause
    assert not done.kinds("step", "checkpoint", "sync")
    [evaluation] = done.kinds("evaluation")
    sources = {name.split("/")[1] for name in evaluation["metrics"]}
    assert sources == {"greedy", "often"}
    assert evaluation["metrics"]["evaluation/often/length_mean"] <= 2
    assert [path.name for path in (done.result.folder / "checkpoints" / "main").iterdir()] == ["finished.json"]
    roles = [
        role["role"]
        for stage in json.loads((done.result.folder / "plan.json").read_text())["stages"]
        for role in stage["roles"]
    ]
    assert roles == ["rollout", "reward"]
    assert (tmp_path / "ended").exists()


LUCK = """
import random
chance = random.Random(0)

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    right = solution_str[:1] == "1"
    lucky = chance.random() < 0.1
    shuffled = {shuffled} and extra_info["split"] == "train"
    return {{"score": float(lucky if shuffled else right), "acc": right}}
"""


def test_a_reward_that_tells_nothing_teaches_nothing(
    task: Any, run_without_ray: Callable[..., Any], tmp_path: Path
) -> None:
    """The same settings with the true reward do teach. Both start from the same weights."""
    shared = {
        "batch": {"prompts_per_step": 16, "responses_per_prompt": 8, "micro_batch": {"unit": "responses", "size": 128}},
        "schedule": {"total_steps": 24, "evaluate_every": 100},
        "checkpoint": {"every": None, "export": "never", "at_end": False},
    }
    stages = []
    for name in ("shuffled", "true"):
        reward = tmp_path / f"{name}.py"
        reward.write_text(LUCK.format(shuffled=name == "shuffled"))
        shutil.copytree(task.folder / "model", tmp_path / f"{name}-model")
        rewards = [{"type": "function", "path": str(reward), "workers": 1}]
        stages.append({"name": name, "rewards": rewards, "model": {"path": str(tmp_path / f"{name}-model")}})
    done = run_without_ray(config_from({**to_plain(task.config(tmp_path, **shared)), "stages": stages}))
    assert done.result.status == "finished", done.result.cause
    accuracy = {
        name: [
            done.result.stages[name]["evaluated"][when]["evaluation/addition/accuracy"] for when in ("first", "last")
        ]
        for name in ("shuffled", "true")
    }
    assert accuracy["shuffled"][0] == accuracy["true"][0] < 0.2
    assert accuracy["shuffled"][1] < 0.2
    assert accuracy["true"][1] > 0.8


def test_the_pieces_of_dapo_and_a_correction_run_together(
    task: Any, run_without_ray: Callable[..., Any], tmp_path: Path
) -> None:
    """Dynamic sampling, overlong filter and penalty, asymmetric clip, an adaptive KL, weights between the engines."""
    done = run_without_ray(
        task.config(
            tmp_path,
            algorithm={
                "objective": "rl",
                "advantage": {"type": "opmd", "baseline": "logavgexp", "clip": 2.0},
                "policy_loss": {"type": "ppo_clip", "clip_high": 0.28},
                "kl_in_reward": {"coefficient": 0.1, "adaptive": True, "target": 0.5, "horizon": 100},
                "filters": ["zero_variance_groups", "overlong"],
                "reward_shaping": {"overlong_penalty": {"buffer": 2}},
                "rollout_correction": {
                    "importance_sampling": {"level": "sequence"},
                    "rejection": ["seq_max_k2"],
                    "rejection_bounds": [5],
                },
                "loss_weights": {"length": True},
            },
            batch={"prompts_per_step": 2, "responses_per_prompt": 4, "mini_batch_responses": 4},
            schedule={"total_steps": 2, "evaluate_at_start": False},
        )
    )
    assert done.result.status == "finished", done.result.cause
    first, second = (done.numbers[("main step", step)] for step in (1, 2))
    assert first["reward/kl_coefficient"] == 0.1
    assert second["reward/kl_coefficient"] < 0.1, "the policy starts at the reference, so the coefficient falls"
    assert abs(first["policy/mismatch_kl"]) < 1e-3, "both engines compute in float32"
    assert first["correction/weight_mean"] == pytest.approx(1.0, abs=1e-2)
    assert first["correction/rejected_share"] == 0
    assert first["filter/rounds"] >= 1
    assert 0 < first["filter/trained_share"] <= 1
    assert first["policy/grad_norm"] > 0
