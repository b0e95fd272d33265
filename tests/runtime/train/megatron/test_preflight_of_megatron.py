"""A run that Megatron-core cannot do is refused before a worker starts, with the key and what to do."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from transformers import Qwen2Config

from rlctl.common.errors import MissingDependency, PlanError, RlctlError
from rlctl.config import config_from
from rlctl.planning.megatron import options
from rlctl.runtime.train.preflight import check_training, left_off


@pytest.fixture
def model(tmp_path: Path) -> str:
    sizes = {"vocab_size": 66, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4}
    config = Qwen2Config(**sizes, num_attention_heads=4, num_key_value_heads=2)
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    return str(tmp_path)


def config_of(path: str, engine: dict[str, Any], **sections: Any) -> Any:
    model = {"path": path, **sections.pop("model", {})}
    placement = {"nodes": 1, "devices_per_node": 4, "device": "cpu"}
    train = {"engine": {"type": "megatron", **engine}, **sections.pop("train", {})}
    return config_from({"model": model, "placement": placement, "train": train, **sections})


@pytest.mark.parametrize(
    ("engine", "sections", "message"),
    [
        ({"pipeline_parallel_size": 2, "virtual_pipeline_parallel_size": 4}, {}, "4 layers are not divisible by pipeline 2 . virtual_pipeline 4 = 8"),
        ({"tensor_parallel_size": 4, "context_parallel_size": 4}, {}, "4 heads / tensor parallel size 4 = 1"),
        ({"transformer": {"moe_z_los_coeff": 1.0}}, {}, "has no moe_z_los_coeff"),
        ({}, {"model": {"attention": "sdpa"}}, "model.attention sdpa on the Megatron engine"),
        ({}, {"train": {"optimizer": {"type": "lion"}}}, "lion; the Megatron engine has"),
        ({}, {"reference": {"engine": {"type": "megatron", "virtual_pipeline_parallel_size": 2}},
              "algorithm": {"kl_in_loss": {"coefficient": 0.1}}}, "reference.engine.virtual_pipeline_parallel_size"),
        ({}, {"critic": {"engine": {"type": "megatron", "tensor_parallel_size": 4, "context_parallel_size": 2}},
              "algorithm": {"advantage": "gae"}}, "critic.engine.context_parallel_size"),
    ],
)  # fmt: skip
def test_a_run_that_megatron_cannot_do_is_refused(
    model: str, engine: dict[str, Any], sections: dict[str, Any], message: str
) -> None:
    config = config_of(model, engine, **copy.deepcopy(sections))
    with pytest.raises(PlanError, match=message) as refused:
        check_training(config, scheduler_steps=10)
    assert refused.value.hint


def test_a_run_that_it_can_do_is_not(model: str) -> None:
    check_training(config_of(model, {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}), scheduler_steps=10)


def test_without_megatron_core_what_to_install_is_said(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "installed", lambda: None)
    with pytest.raises(MissingDependency) as refused:
        check_training(config_of(model, {}), scheduler_steps=10)
    assert "[megatron]" in refused.value.hint
    config = config_from({"model": {"path": model}, "placement": {"device": "cpu"}})
    check_training(config, scheduler_steps=10)


def test_a_model_without_a_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(RlctlError, match=str(tmp_path)):
        check_training(config_of(str(tmp_path), {}), scheduler_steps=10)


def test_accelerations_that_are_left_off_are_told(model: str) -> None:
    config = config_of(model, {"transformer": {"apply_rope_fusion": True}})
    told = [] if options.left_off(config.train.engine) == [] else ["transformer_engine is not installed"]
    assert [each.partition("disabled: ")[2] for each in left_off(config)] == told
