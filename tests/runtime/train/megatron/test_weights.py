"""Weights that go into a Megatron model come out of it in the same bits, however workers share it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForTokenClassification

from rlctl.common.errors import RunError
from rlctl.config.sections.train import Megatron
from rlctl.runtime.train.megatron.names import FAMILIES, Names
from tests.runtime.train.megatron import weight_jobs
from tests.runtime.train.megatron.conftest import some
from tests.runtime.train.processes import Workers

LAYOUTS: dict[str, tuple[str, dict[str, int]]] = {
    "one": ("one", {}),
    "tensor": ("two", {"tensor_parallel_size": 2}),
    "pipeline": ("two", {"pipeline_parallel_size": 2}),
    "virtual pipeline": ("two", {"pipeline_parallel_size": 2, "virtual_pipeline_parallel_size": 2}),
    "replicas": ("two", {}),
    "tensor and pipeline": ("four", {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}),
    "more tensor workers than groups of heads": ("four", {"tensor_parallel_size": 4}),
    "experts": ("two", {"expert_parallel_size": 2}),
    "experts, tensor and pipeline": (
        "four",
        {
            "tensor_parallel_size": 2,
            "expert_tensor_parallel_size": 1,
            "expert_parallel_size": 2,
            "pipeline_parallel_size": 2,
        },
    ),
    "experts, each shared by two": (
        "four",
        {"tensor_parallel_size": 4, "expert_tensor_parallel_size": 2, "expert_parallel_size": 2},
    ),
}
ONE = Megatron()


@pytest.mark.parametrize("layout", some(LAYOUTS, "one", "tensor", "virtual pipeline", "experts"))
def test_there_and_back(layout: str, families: dict[str, Path], request: pytest.FixtureRequest) -> None:
    fixture, sizes = LAYOUTS[layout]
    workers: Workers = request.getfixturevalue(fixture)
    folders = {
        name: folder for name, folder in families.items() if "moe" in name or "expert_parallel_size" not in sizes
    }
    each = workers.run(weight_jobs.there_and_back, Megatron(**sizes), folders)
    for family, folder in folders.items():
        expected = dict(AutoModelForCausalLM.from_pretrained(folder).named_parameters())
        for found in each:
            assert found[family].keys() == expected.keys(), family
            assert all(torch.equal(found[family][name], tensor) for name, tensor in expected.items()), family


@pytest.mark.parametrize("layout", ["one", "tensor"])
def test_logits_are_those_of_transformers(
    layout: str, families: dict[str, Path], request: pytest.FixtureRequest
) -> None:
    assert families.keys() == FAMILIES.keys()
    fixture, sizes = LAYOUTS[layout]
    workers: Workers = request.getfixturevalue(fixture)
    tokens = torch.randint(0, 67, (24,), generator=torch.Generator().manual_seed(5))
    found = workers.run(weight_jobs.logits, Megatron(**sizes), families, tokens)
    for family, folder in families.items():
        with torch.no_grad():
            expected = AutoModelForCausalLM.from_pretrained(folder)(tokens[None]).logits[0]
        together = torch.cat([each[family] for each in found], -1)
        torch.testing.assert_close(together[:, :67], expected, rtol=1e-4, atol=1e-4 * expected.std())
        assert together[:, 67:].eq(0).all(), "what fills the vocabulary up is zero"


def test_a_new_value_head_is_the_one_that_fsdp_draws(
    one: Workers, two: Workers, families: dict[str, Path], tmp_path: Path
) -> None:
    [expected] = one.run(weight_jobs.critic_of_fsdp, families["qwen2"])
    for workers, engine in (
        (one, ONE),
        (two, Megatron(tensor_parallel_size=2)),
        (two, Megatron(pipeline_parallel_size=2)),
    ):
        found = workers.run(weight_jobs.critic, engine, families["qwen2"])[0]
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    model = AutoModelForTokenClassification.from_pretrained(families["qwen2"], num_labels=1)
    torch.nn.init.constant_(model.score.bias, 0.5)
    model.save_pretrained(tmp_path)
    [found] = one.run(weight_jobs.critic, ONE, tmp_path)
    assert torch.equal(found["score.weight"], model.score.weight)
    assert torch.equal(found["score.bias"], model.score.bias)


def test_what_is_not_used_is_told(one: Workers, families: dict[str, Path]) -> None:
    [told] = one.run(weight_jobs.told_of_critic, families["llama"])
    assert [line for line in told if line.startswith("lm_head.weight")], told


def _changed(folder: Path, to: Path, **tensors: torch.Tensor | None) -> Path:
    """The model with some tensors put in, or taken out."""
    AutoConfig.from_pretrained(folder).save_pretrained(to)
    found = {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}
    changed = {name: tensor for name, tensor in {**found, **tensors}.items() if tensor is not None}
    save_file(changed, to / "model.safetensors")
    return to


def test_a_tensor_without_a_place_a_missing_one_and_another_shape_are_refused(
    two: Workers, families: dict[str, Path], tmp_path: Path
) -> None:
    norm = "model.layers.3.input_layernorm.weight"
    cases = {
        "which the Megatron model does not have": {"model.layers.1.mlp.extra.weight": torch.zeros(2)},
        f"lacks 1 of the model's tensors, the first is {norm}, for decoder.layers.3.input_layernorm.weight": {
            norm: None
        },
        r"model.norm.weight in .* has the shape \[33\]; expected \[32\]": {"model.norm.weight": torch.zeros(33)},
    }
    for number, (message, change) in enumerate(cases.items()):
        folder = _changed(families["qwen3"], tmp_path / str(number), **change)
        with pytest.raises(RunError, match=message):
            two.run(weight_jobs.there_and_back, Megatron(tensor_parallel_size=2), {"qwen3": folder})
    with pytest.raises(RunError, match="neither"):
        two.run(
            weight_jobs.critic, Megatron(tensor_parallel_size=2), _without_weights(families["qwen3"], tmp_path / "none")
        )


def _without_weights(folder: Path, to: Path) -> Path:
    AutoConfig.from_pretrained(folder).save_pretrained(to)
    return to


def test_a_weight_or_a_family_that_the_tables_lack_is_refused(families: dict[str, Path]) -> None:
    config = AutoConfig.from_pretrained(families["qwen2"])
    with pytest.raises(RunError, match=r"qwen2 models have no entry for decoder\.layers\.0\.mlp\.linear_fc1\.bias"):
        Names(config).rule("decoder.layers.0.mlp.linear_fc1.bias")
    config.model_type = "gemma3"
    with pytest.raises(RunError, match="no weight tables for gemma3 models"):
        Names(config)
