"""Plug-ins of users: kept by their own framework, and never replaced by what another framework computes if nothing is set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rlctl.common.report import Bucket
from rlctl.translation.translate import translate

TRINITY: dict[str, Any] = {
    "project": "p",
    "name": "n",
    "algorithm": {"algorithm_type": "grpo", "repeat_times": 8},
    "model": {"model_path": "m", "max_prompt_tokens": 512, "max_response_tokens": 512},
    "cluster": {"node_num": 1, "gpu_per_node": 8},
    "buffer": {
        "batch_size": 16,
        "total_epochs": 1,
        "explorer_input": {
            "taskset": {"name": "a", "path": "d", "default_reward_fn_type": "my_reward"},
            "default_workflow_type": "my_workflow",
        },
    },
    "explorer": {"rollout_model": {"engine_num": 4}},
}
OWN = {
    "algorithm.advantage_fn": "my_advantage",
    "algorithm.policy_loss_fn": "my_loss",
    "algorithm.sample_strategy": "my_strategy",
}


def _file(folder: Path, values: dict[str, Any]) -> Path:
    (file := folder / "run.yaml").write_text(yaml.safe_dump(values))
    return file


def _trinity(folder: Path, **algorithm: Any) -> Path:
    return _file(folder, {**TRINITY, "algorithm": {**TRINITY["algorithm"], **algorithm}})


def _plugged(folder: Path) -> Path:
    return _trinity(folder, **{key.partition(".")[2]: name for key, name in OWN.items()})


def test_trinity_keeps_its_users_plug_ins(tmp_path: Path) -> None:
    made = translate(_plugged(tmp_path), "trinity", environment={})
    assert made.text is not None
    written = yaml.safe_load(made.text)
    assert {key: written["algorithm"][key.partition(".")[2]] for key in OWN} == OWN
    source = written["buffer"]["explorer_input"]
    assert source["default_workflow_type"] == "my_workflow"
    assert source.get("default_reward_fn_type", source["taskset"].get("default_reward_fn_type")) == "my_reward"


@pytest.mark.parametrize(
    ("group", "estimator", "target", "key"),
    [
        (8, "grpo", "verl", "algorithm.adv_estimator"),
        (1, "reinforce_plus_plus", "verl", "algorithm.adv_estimator"),
        (8, "grpo", "roll", "adv_estimator"),
        (1, "reinforce", "roll", "adv_estimator"),
    ],
)
def test_another_framework_gets_an_estimator_without_a_critic(
    tmp_path: Path, group: int, estimator: str, target: str, key: str
) -> None:
    file = _trinity(tmp_path, advantage_fn="my_advantage", policy_loss_fn="my_loss", repeat_times=group)
    made = translate(file, target, environment={})
    assert made.text is not None
    value = yaml.safe_load(made.text)
    for part in key.split("."):
        value = value[part]
    assert value == estimator
    entries = {entry.key: entry for entry in made.report.accounting}
    assert {entries[own].bucket for own in list(OWN)[:2]} == {Bucket.UNSUPPORTED}
    assert "my_advantage" in entries["algorithm.advantage_fn"].note


def test_an_estimator_of_a_verl_plug_in_becomes_no_critic_in_trinity(tmp_path: Path) -> None:
    values = {
        "algorithm": {"adv_estimator": "my_advantage"},
        "data": {"train_files": "a.parquet", "train_batch_size": 16},
        "actor_rollout_ref": {
            "model": {"path": "m"},
            "actor": {"ppo_mini_batch_size": 16, "policy_loss": {"loss_mode": "my_loss"}},
            "rollout": {"name": "vllm", "n": 4},
        },
    }
    file = _file(tmp_path, values)
    own = translate(file, "verl", environment={})
    assert own.text is not None
    kept = yaml.safe_load(own.text)
    assert kept["algorithm"]["adv_estimator"] == "my_advantage"
    assert kept["actor_rollout_ref"]["actor"]["policy_loss"]["loss_mode"] == "my_loss"
    made = translate(file, "trinity", environment={})
    assert made.text is not None
    assert yaml.safe_load(made.text)["algorithm"]["algorithm_type"] == "grpo"


@pytest.mark.parametrize("memory", [{}, {"gpu_memory_utilization": 0.9}, {"gpu_memory_utilization": 0.8}])
def test_the_memory_of_dedicated_engines_comes_back(tmp_path: Path, memory: dict[str, float]) -> None:
    file = _file(tmp_path, {**TRINITY, "explorer": {"rollout_model": {"engine_num": 4, **memory}}})
    there = translate(file, "verl", environment={})
    (between := tmp_path / "verl.yaml").write_text(there.text or "")
    back = translate(between, "trinity", environment={})
    assert back.text is not None
    engine = yaml.safe_load(back.text)["explorer"]["rollout_model"]
    assert engine.get("gpu_memory_utilization", 0.9) == memory.get("gpu_memory_utilization", 0.9)


def test_steps_of_trajectories_as_rows_are_told(tmp_path: Path) -> None:
    for kind, told in (("multi_step_grpo", True), ("grpo", False)):
        made = translate(_trinity(tmp_path, algorithm_type=kind), "roll", environment={})
        assert any(item.code == "rows-of-steps" for item in made.report.findings) is told


def test_two_splits_of_one_data_set_are_not_one_file_without_a_word(tmp_path: Path) -> None:
    source = {"path": "openai/gsm8k", "split": "train", "format": {"prompt_key": "q", "response_key": "a"}}
    inputs = {
        "taskset": source,
        "eval_tasksets": [{**source, "split": "test"}],
        "default_workflow_type": "math_workflow",
    }
    file = _file(tmp_path, {**TRINITY, "buffer": {**TRINITY["buffer"], "explorer_input": inputs}})
    made = translate(file, "roll", environment={})
    buckets = {entry.key: entry.bucket for entry in made.report.accounting}
    place = "buffer.explorer_input"
    assert buckets[f"{place}.taskset.split"] is buckets[f"{place}.eval_tasksets[0].split"] is Bucket.UNSUPPORTED
    [found] = [item for item in made.report.findings if item.code == "data-files"]
    assert "(train)" in found.message
    assert "(test)" in found.message
