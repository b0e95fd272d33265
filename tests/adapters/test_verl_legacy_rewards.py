"""The reward blocks at the top of a verl config: who reads them, in which release, and that no reward is lost or made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlctl.common.ranks import Rank
from rlctl.common.report import Bucket, Level, Report
from rlctl.config import Loaded, to_plain
from rlctl.documents import read_yaml
from rlctl.translation.translate import read, read_document, translate_loaded

HEAD = """\
data: {train_files: /d/train.parquet, val_files: /d/test.parquet, train_batch_size: 8}
actor_rollout_ref: {model: {path: org/m}, actor: {ppo_mini_batch_size: 8}, rollout: {n: 4}}
algorithm: {adv_estimator: grpo}
trainer: {total_training_steps: 2, n_gpus_per_node: 4}
"""
FUNCTION = "custom_reward_function: {path: r.py, name: score, reward_kwargs: {scale: 2}}\n"
MODEL = "reward_model: {enable: true, model: {path: org/rm}, num_workers: 3, reward_manager: dapo}\n"
KWARGS = "reward_model: {reward_manager: dapo, reward_kwargs: {max_resp_len: 64, overlong_buffer_cfg: {enable: true, len: 8}}}\n"
SANDBOX = "sandbox_fusion: {url: 'http://h/run'}\n"
ASYNC = "async_training: {staleness_threshold: 0.5}\nrollout: {nnodes: 1, n_gpus_per_node: 4}\n"


def _read(text: str, dialect: str = "verl") -> tuple[Loaded, Report]:
    loaded, report = read_document(read_yaml(HEAD + text, "run.yaml"), dialect=dialect, environment={})
    assert loaded is not None, report.errors
    return loaded, report


def _rewards(text: str, dialect: str) -> list[dict[str, Any]]:
    found = to_plain(_read(text, dialect)[0].config)["rewards"]
    assert isinstance(found, list)
    return found


def _unread(report: Report) -> dict[str, str]:
    return {item.key: str(item.params["instead"]) for item in report.findings if item.code == "key-unread"}


@pytest.mark.parametrize("release", ["0.3", "0.4", "0.5", "0.6", "0.7", "0.8"])
def test_a_function_scores_in_each_release_whose_trainer_reads_it(release: str) -> None:
    (reward,) = _rewards(FUNCTION, f"verl@{release}")
    assert (reward["type"], reward["path"], reward["function"]) == ("function", "r.py", "score")
    assert reward["args"] == {"scale": 2}
    assert _unread(_read(FUNCTION, f"verl@{release}")[1]) == {}


def test_0_8_copies_the_model_the_manager_the_penalty_and_the_sandbox() -> None:
    (model,) = _rewards(MODEL, "verl@0.8")
    assert (model["type"], model["path"], model["workers"]) == ("model", "org/rm", 3)
    loaded, _ = _read(KWARGS, "verl@0.8")
    assert loaded.config.reward_loop.manager == "dapo"
    penalty = loaded.config.algorithm.reward_shaping.overlong_penalty
    assert penalty is not None
    assert (penalty.buffer, penalty.limit) == (8, 64)
    assert [one["type"] for one in _rewards(SANDBOX, "verl@0.8")] == ["sandbox", "rule"]


def test_a_null_copies_nothing_and_a_block_replaces_that_of_the_tree() -> None:
    tree = "reward: {custom_reward_function: {path: new.py, name: f, reward_kwargs: {a: 1}}, num_workers: 5}\n"
    nulls = "custom_reward_function: {path: null, name: null}\nreward_model: {num_workers: null, enable: null}\n"
    (kept,) = _rewards(tree + nulls, "verl@0.8")
    assert (kept["path"], kept["args"], kept["workers"]) == ("new.py", {"a": 1}, 5)
    loaded, report = _read(tree + FUNCTION, "verl@0.8")
    (reward,) = to_plain(loaded.config)["rewards"]
    assert (reward["path"], reward["args"]) == ("r.py", {"scale": 2})
    dead = {entry.key for entry in report.accounting if entry.bucket is Bucket.DEAD}
    assert {"reward.custom_reward_function.path", "reward.custom_reward_function.reward_kwargs.a"} <= dead


def test_the_ledger_and_the_places_are_those_of_the_file() -> None:
    loaded, report = _read(FUNCTION, "verl@0.8")
    entries = {entry.key: entry for entry in report.accounting}
    assert not any(key.startswith("reward.") for key in entries)
    entry = entries["custom_reward_function.path"]
    assert entry.bucket is Bucket.MAPPED
    assert entry.at is not None
    assert entry.at.line == 5
    assert loaded.sources[("rewards", 0, "path")].key == "custom_reward_function.path"
    (target,) = [e for e in translate_loaded(loaded, report, "verl@0.9").report.accounting if e.key == entry.key]
    assert target.targets == (("reward.custom_reward_function.path", "r.py"),)


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        (FUNCTION, {"custom_reward_function": "reward.custom_reward_function"}),
        (SANDBOX, {"sandbox_fusion": "reward.sandbox_fusion"}),
        (
            MODEL,
            {
                "reward_model.enable": "reward.reward_model.enable",
                "reward_model.model.path": "reward.reward_model.model_path",
                "reward_model.num_workers": "reward.num_workers",
                "reward_model.reward_manager": "reward.reward_manager.name",
            },
        ),
    ],
)
def test_0_9_reads_none_of_them_and_says_so_first(text: str, instead: dict[str, str]) -> None:
    loaded, report = _read(text, "verl@0.9")
    (reward,) = to_plain(loaded.config)["rewards"]
    assert (reward["type"], loaded.config.reward_loop.manager) == ("rule", "naive")
    assert _unread(report) == instead
    told = [item for item in report.findings if item.code == "key-unread"]
    assert {(item.level, item.rank) for item in told} == {(Level.WARNING, Rank.OBJECTIVE)}


def test_the_fully_asynchronous_trainer_still_copies_in_0_9() -> None:
    text = HEAD.replace("train_batch_size: 8", "train_batch_size: 0") + ASYNC + FUNCTION
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="verl@0.9", environment={})
    assert loaded is not None
    assert _unread(report) == {}
    assert to_plain(loaded.config)["rewards"][0]["path"] == "r.py"


@pytest.mark.parametrize(
    ("program", "reads"),
    [
        ("verl.trainer.main_ppo", True),
        ("verl.trainer.main_ppo_sync", False),
        ("verl.experimental.one_step_off_policy.main_ppo", False),
    ],
)
def test_which_program_of_0_8_a_script_starts_decides(program: str, reads: bool, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        f"python3 -m {program} data.train_files=/d/a.parquet data.train_batch_size=8 actor_rollout_ref.model.path=org/m "
        "custom_reward_function.path=r.py custom_reward_function.name=score trainer.total_training_steps=2\n"
    )
    loaded, report = read(script, dialect="verl@0.8", environment={})
    assert loaded is not None
    assert (to_plain(loaded.config)["rewards"][0]["type"] == "function") is reads
    assert bool(_unread(report)) is not reads


def test_the_last_0_7_reads_the_tree_too() -> None:
    (reward,) = _rewards("reward: {custom_reward_function: {path: new.py, name: f}}\n", "verl@0.7")
    assert (reward["type"], reward["path"]) == ("function", "new.py")
    (older,) = _rewards("reward: {custom_reward_function: {path: new.py}}\n" + FUNCTION, "verl@0.7")
    assert older["path"] == "r.py"


@pytest.mark.parametrize("target", ["verl@0.9", "verl@0.8", "verl@0.7", "trinity", "roll"])
def test_no_conversion_of_0_8_loses_the_function(target: str) -> None:
    loaded, report = _read(FUNCTION, "verl@0.8")
    made = translate_loaded(loaded, report, target)
    if target == "roll":
        lost = [entry.key for entry in made.report.accounting if entry.loses]
        assert "custom_reward_function.path" in lost
    else:
        assert made.text is not None
        assert "r.py" in made.text
