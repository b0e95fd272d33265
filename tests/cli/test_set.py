"""``rlctl set`` changes what was asked for in a file of any dialect, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

VERL = """\
data: {train_files: train.parquet, val_files: test.parquet, train_batch_size: 64}
actor_rollout_ref:
  actor:
    ppo_mini_batch_size: 32  # a half
  rollout: {name: vllm, n: 8}
algorithm: {adv_estimator: gae}
critic:
  ppo_mini_batch_size: ${actor_rollout_ref.actor.ppo_mini_batch_size}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "verl.yaml"
    path.write_text(VERL)
    return path


def test_the_file_says_it_in_its_own_words(rlctl: Any, file: Path) -> None:
    done = rlctl("set", str(file), "batch.mini_batch_responses=128")
    assert done.code == 0
    assert "2 lines changed" in done.err
    assert file.read_text() == VERL.replace("32  # a half", "16  # a half").replace(
        "${actor_rollout_ref.actor.ppo_mini_batch_size}", "32"
    ), "the critic's is a key of its own, which nobody changed"
    assert "has these values already" in rlctl("set", str(file), "batch.mini_batch_responses=128").err


def test_what_follows_by_interpolation_follows(rlctl: Any, file: Path) -> None:
    done = rlctl("set", str(file), "batch.mini_batch_responses=128", "critic.mini_batch_responses=128")
    assert done.code == 0
    assert file.read_text() == VERL.replace("32  # a half", "16  # a half")


def test_what_would_change_is_shown(rlctl: Any, file: Path) -> None:
    shown = rlctl("set", str(file), "batch.mini_batch_responses=128", "--dry-run")
    assert "-    ppo_mini_batch_size: 32  # a half" in shown.out
    assert "+    ppo_mini_batch_size: 16  # a half" in shown.out
    assert file.read_text() == VERL


def test_what_the_dialect_cannot_say_is_told(rlctl: Any, file: Path) -> None:
    done = rlctl("set", str(file), "batch.mini_batch_responses=100")
    assert done.code == 3
    assert "cannot express batch.mini_batch_responses = 100; the file means 96" in done.err


def test_what_is_no_key_or_value_changes_nothing(rlctl: Any, file: Path) -> None:
    for change in ("batch.mini_batch_response=1", "batch.responses_per_prompt=many"):
        done = rlctl("set", str(file), change)
        assert done.code == 1
        assert "Traceback" not in done.err
    assert file.read_text() == VERL


def test_a_script_is_given_its_argument(rlctl: Any, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "set -u\npython3 -m verl.trainer.main_ppo \\\n    data.train_files=$DATA \\\n    trainer.nnodes=$1\n"
    )
    refused = rlctl("set", str(script), "batch.responses_per_prompt=4")
    assert "$DATA (line 3: set -u), $1 (line 4)" in " ".join(refused.err.split())
    done = rlctl("set", str(script), "batch.responses_per_prompt=4", "--env", "1=2", "--env", "DATA=x")
    assert done.code == 0, done.err
    assert "trainer.nnodes=$1 \\\n" in script.read_text()
    assert "actor_rollout_ref.rollout.n=4\n" in script.read_text()
    shown = rlctl("batch", str(script), "--env", "1=2", "--env", "DATA=x", "--json")
    assert shown.code == 0
    assert rlctl("diff", str(script), str(script), "--env", "1=2", "--env", "DATA=x").code == 0
    assert rlctl("diff", str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml"), "--env", "1=2").code == 2
