"""A stage of PPO: its critic's warm-up, and going on exactly from a checkpoint, which holds the critic too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.config import Config, config_from
from tests.runtime.train.processes import Workers
from tests.runtime.workers import ppo_stage
from tests.runtime.workers.ppo_stage import steps

TRAIN: dict[str, Any] = {
    "precision": {"compute": "float32"},
    "memory": {"recompute_activations": False},
    "optimizer": {"lr": 1e-2},
    "lr_scheduler": {"type": "linear", "step_unit": "optimizer_step"},
}


def ppo(folder: Path, *, warmup: int = 1, session: int | None = None) -> Config:
    return config_from(
        {
            "run": {"folder": str(folder), "max_steps_this_session": session},
            "model": {"path": "unused"},
            "batch": {"prompts_per_step": 4, "responses_per_prompt": 2, "mini_batch_responses": 4},
            "schedule": {"total_steps": 4, "critic_warmup_steps": warmup},
            "algorithm": {
                "advantage": {"type": "gae", "lambda": 0.9},
                "policy_filtration": {"reweight": "max_random"},
            },
            "train": TRAIN,
            "critic": {**TRAIN, "ppo_epochs": 2, "shuffle": True},
            "checkpoint": {"export": "never"},
            "placement": {"device": "cpu", "devices_per_node": 1},
        }
    )


@pytest.fixture(scope="module")
def whole(one: Workers, model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """Four steps, the first of them of the critic alone; saved after the second and the fourth."""
    folder = tmp_path_factory.mktemp("whole")
    [events] = one.run(ppo_stage.run, ppo(folder), model, folder)
    return folder, events


def test_in_the_warm_up_the_policy_and_its_schedule_stay_as_they_are(whole: tuple[Path, list[dict[str, Any]]]) -> None:
    found = steps(whole[1])
    assert not any(name.startswith("policy/") for name in found[1])
    assert found[1]["critic/lr"] == pytest.approx(1e-2 * (8 + 7 + 6 + 5) / 4 / 8)
    # two optimizer steps of the policy in each later step: ticks 0 and 1, 2 and 3, 4 and 5, of 8
    assert [found[step]["policy/lr"] for step in (2, 3, 4)] == pytest.approx(
        [1e-2 * (8 - tick) / 8 for tick in (0.5, 2.5, 4.5)]
    )
    saved = json.loads((whole[0] / "checkpoints" / "step-000004" / "controller.json").read_text())
    assert saved["progress"]["weight_version"] == 3
    assert all(found[step]["critic/explained_variance"] <= 1 for step in found)


def test_it_goes_on_exactly(
    one: Workers, model: Path, tmp_path: Path, whole: tuple[Path, list[dict[str, Any]]]
) -> None:
    [first] = one.run(ppo_stage.run, ppo(tmp_path, session=2), model, tmp_path)
    [second] = one.run(ppo_stage.run, ppo(tmp_path), model, tmp_path)
    assert [event["step"] for event in second if event["kind"] == "resumed"] == [2]
    assert {**steps(first), **steps(second)} == steps(whole[1])


def test_a_checkpoint_without_a_critic_is_refused(
    one: Workers, model: Path, tmp_path: Path, whole: tuple[Path, list[dict[str, Any]]]
) -> None:
    shutil.copytree(whole[0] / "checkpoints", tmp_path / "checkpoints")
    newest = tmp_path / "checkpoints" / "step-000004"
    shutil.rmtree(newest / "critic")
    manifest = (newest / "manifest.json").read_text().splitlines()
    kept = [line for line in manifest if "critic/" not in line]
    (newest / "manifest.json").write_text("\n".join(kept).replace(",\n}", "\n}"))
    with pytest.raises(RunError, match="step-000004 has no critic, but gae needs one"):
        one.run(ppo_stage.run, ppo(tmp_path), model, tmp_path)
