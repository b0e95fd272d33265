"""ROLL's step-wise manager: a step has more samples than trajectories, and its model sees other turns than rlctl's."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.common.ranks import Rank
from rlctl.common.report import Finding, Level
from rlctl.documents import read_yaml
from rlctl.translation.translate import Translation, convert

RUN = """\
pretrain: org/m
max_steps: 2
rollout_batch_size: 16
sequence_length: 2048
adv_estimator: gigpo
custom_envs:
  Sokoban:
    env_type: sokoban
    env_manager_cls: roll.pipeline.agentic.env_manager.MANAGER
    max_steps: 10
    max_tokens_per_step: 64
    history_length: TURNS
    agent_template: "TEMPLATE"
    env_config: {env_instruction: play, max_steps: 10}
train_env_manager: {max_env_num_per_worker: 16, num_env_groups: 2, group_size: 8, tags: [Sokoban], num_groups_partition: [2]}
val_env_manager: {max_env_num_per_worker: 16, num_env_groups: 2, group_size: 1, tags: [Sokoban], num_groups_partition: [2]}
actor_train:
  training_args: {per_device_train_batch_size: 2, gradient_accumulation_steps: 16}
  device_mapping: list(range(0,1))
actor_infer: {device_mapping: "list(range(0,1))", strategy_args: {strategy_name: vllm}}
"""
STEPWISE = RUN.replace("MANAGER", "step_env_manager.StepEnvManager").replace(
    "TEMPLATE", "{history} {current_observation}"
)
WHOLE = RUN.replace("MANAGER", "traj_env_manager.TrajEnvManager").replace("TEMPLATE", "{observation}")


def _convert(text: str, target: str, turns: int = 5) -> Translation:
    made = convert(text.replace("TURNS", str(turns)), target, dialect="roll")
    assert made.text is not None, made.report.errors
    return made


def _accumulated(made: Translation) -> Any:
    return read_yaml(made.text or "", "out").values["actor_train"]["training_args"]["gradient_accumulation_steps"]


def _told(made: Translation) -> list[Finding]:
    return [item for item in made.report.findings if item.code == "other-observations"]


def test_a_mini_batch_of_turns_may_be_larger_than_the_trajectories_of_a_step() -> None:
    made = _convert(STEPWISE, "roll")
    assert _accumulated(made) == 16
    assert not [item for item in made.report.findings if "too few" in item.message]


def test_of_whole_trajectories_it_is_cut_to_those_of_the_step() -> None:
    assert _accumulated(_convert(WHOLE, "roll")) == 8


@pytest.mark.parametrize(("turns", "told"), [(5, True), (1, False)])
def test_other_observations_are_a_change_if_the_run_moves(turns: int, told: bool) -> None:
    made = _convert(STEPWISE, "rlctl", turns)
    assert bool(_told(made)) is told
    assert all((item.level, item.rank) == (Level.WARNING, Rank.OBJECTIVE) for item in _told(made))
    assert all(item.level is Level.NOTE for item in _told(_convert(STEPWISE, "roll", turns)))
