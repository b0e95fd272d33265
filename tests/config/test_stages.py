"""Stages change some keys of their base, key by key, and go on from each other's weights."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.common.errors import ConfigError
from rlctl.config import combine, config_from, resolve_stages, stages_of
from rlctl.config.sections.algorithm import Grpo, Rloo

BASE: dict[str, Any] = {
    "run": {"name": "base", "seed": 7},
    "model": {"path": "org/model"},
    "train": {
        "optimizer": {"type": "adamw", "lr": 1e-5},
        "lr_scheduler": {"type": "cosine", "num_cycles": 1.0},
    },
    "algorithm": {"advantage": {"type": "grpo", "epsilon": 1e-4}},
    "runtime": {"env_vars": {"A": "1"}},
    "data": {"train": [{"path": "a.parquet"}]},
}


def stage(change: dict[str, Any]) -> Any:
    (only,) = stages_of(config_from({**BASE, "stages": [{"name": "one", **change}]}))
    return only.config


def test_a_config_without_stages_is_one_stage() -> None:
    config = config_from(BASE)
    (only,) = stages_of(config)
    assert (only.name, only.config, only.continues) == ("main", config, False)


def test_a_stage_changes_only_its_keys() -> None:
    config = stage({"run": {"seed": 8}, "train": {"optimizer": {"weight_decay": 0.1}}})
    assert (config.run.name, config.run.seed) == ("base", 8)
    assert (config.train.optimizer.lr, config.train.optimizer.weight_decay) == (1e-5, 0.1)


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"run": {"name": "other"}}, lambda config: config.run.seed == 7),
        ({"train": {"optimizer": {"type": "sgd"}}}, lambda config: config.train.optimizer.lr == 1e-5),
        (
            {"train": {"lr_scheduler": {"type": "linear"}}},
            lambda config: config.train.lr_scheduler.num_cycles == 1.0,
        ),
    ],
)
def test_a_name_that_is_no_choice_leaves_the_rest_of_its_section(change: dict[str, Any], kept: Any) -> None:
    assert kept(stage(change))


def test_a_choice_keeps_its_options_under_the_same_name_and_loses_them_under_another() -> None:
    assert stage({"algorithm": {"advantage": {"normalize_by_std": False}}}).algorithm.advantage == Grpo(
        epsilon=1e-4, normalize_by_std=False
    )
    assert stage({"algorithm": {"advantage": "grpo"}}).algorithm.advantage == Grpo(epsilon=1e-4)
    assert stage({"algorithm": {"advantage": {"type": "rloo"}}}).algorithm.advantage == Rloo()
    assert stage({"algorithm": {"advantage": "rloo"}}).algorithm.advantage == Rloo()


def test_lists_and_free_mappings_are_replaced() -> None:
    assert stage({"runtime": {"env_vars": {"B": "2"}}}).runtime.env_vars == {"B": "2"}
    assert [source.path for source in stage({"data": {"train": [{"path": "b.parquet"}]}}).data.train] == ["b.parquet"]


def test_a_stage_continues_unless_it_names_a_model() -> None:
    stages = [{"name": "a"}, {"name": "b"}, {"name": "c", "model": {"path": "org/other"}}]
    assert [one.continues for one in stages_of(config_from({**BASE, "stages": stages}))] == [False, True, False]


def test_a_stage_without_a_name_is_numbered() -> None:
    assert [one.name for one in stages_of(config_from({**BASE, "stages": [{}, {}]}))] == ["stage1", "stage2"]


def test_a_wrong_key_is_named_with_its_stage() -> None:
    config = config_from({**BASE, "stages": [{"name": "a"}, {"name": "b", "batch": {"ppo_epoch": 2}}]})
    stages, findings = resolve_stages(config)
    assert [one.name for one in stages] == ["a"]
    (finding,) = findings
    assert finding.key == "stages[1].batch.ppo_epoch"
    assert finding.hint == "did you mean 'ppo_epochs'?"
    with pytest.raises(ConfigError, match=r"stages\[1\]"):
        stages_of(config)


def test_one_part_needs_no_stages() -> None:
    config = config_from(BASE)
    assert combine([("a", config)]) == config


@pytest.mark.parametrize("name", ["../../elsewhere", "", "-rf", "/tmp/x", "a\nb"])
def test_a_stage_is_not_named_so_that_its_checkpoints_are_elsewhere(name: str) -> None:
    config = config_from({**BASE, "stages": [{"name": name}]})
    (finding,) = resolve_stages(config)[1]
    assert (finding.code, finding.key) == ("stage", "stages[0].name")
    with pytest.raises(ConfigError, match="stages"):
        stages_of(config)
