"""Training starts from what Megatron-core itself writes, in whatever layout and spelling."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from rlctl.common.errors import RunError
from rlctl.config import config_from
from rlctl.config.sections.train import Megatron
from rlctl.planning.megatron.starting import from_weights, without_checkpoint
from tests.runtime.train.megatron import starting_jobs
from tests.runtime.train.processes import Workers

TENSOR, PIPELINE = Megatron(tensor_parallel_size=2, sequence_parallel=False), Megatron(pipeline_parallel_size=2)


@pytest.fixture
def copied(tmp_path: Path) -> Any:
    """A model's folder with its config only."""

    def copy(folder: Path) -> Path:
        shutil.copytree(folder, tmp_path / "config", ignore=shutil.ignore_patterns("*.safetensors*"))
        return tmp_path / "config"

    return copy


@pytest.mark.parametrize(
    ("family", "metadata", "padded", "engine"),
    [
        ("llama", {}, 128, PIPELINE),
        pytest.param("qwen2", {}, 68, TENSOR, marks=pytest.mark.soak),
        pytest.param("qwen2", {"non_homogeneous_layers": True}, 256, PIPELINE, marks=pytest.mark.soak),
        ("qwen3", {"singleton_local_shards": True}, 68, PIPELINE),
    ],
)
def test_weights_are_those_of_megatron_core(
    family: str,
    metadata: dict[str, Any],
    padded: int,
    engine: Megatron,
    two: Workers,
    families: dict[str, Path],
    copied: Any,
    tmp_path: Path,
) -> None:
    """Written by two tensor workers, with layers in one tensor or one by one; read in another layout, without other weights."""
    two.run(starting_jobs.write, TENSOR, families[family], tmp_path / "c", metadata, padded, False)
    found = two.run(starting_jobs.started, engine, copied(families[family]), tmp_path / "c", "policy")[0]
    expected = AutoModelForCausalLM.from_pretrained(families[family]).state_dict()
    assert found
    assert [name for name, tensor in found.items() if not torch.equal(tensor, expected[name])] == []


def test_experts_are_read_too_from_a_folder_of_megatron_lm(
    one: Workers, two: Workers, families: dict[str, Path], copied: Any, tmp_path: Path
) -> None:
    """Of all layers, as Megatron-core's own layer has them; the newest of a folder is the one that its file names."""
    config = copied(families["qwen3_moe"])
    sparse = tmp_path / "sparse"
    model = AutoModelForCausalLM.from_config(
        AutoModelForCausalLM.from_pretrained(families["qwen3_moe"]).config.__class__.from_pretrained(
            config, mlp_only_layers=[]
        )
    )
    model.save_pretrained(sparse)
    one.run(starting_jobs.write, Megatron(), sparse, tmp_path / "runs" / "iter_0000020", {}, 67, False)
    (tmp_path / "runs" / "latest_checkpointed_iteration.txt").write_text("20")
    found = two.run(starting_jobs.started, Megatron(expert_parallel_size=2), sparse, tmp_path / "runs", "reference")[0]
    expected = model.state_dict()
    assert found
    assert [name for name, tensor in found.items() if not torch.equal(tensor, expected[name])] == []


@pytest.mark.parametrize("head", [False, True])
def test_a_critic_starts_from_a_policy_or_a_critic(
    head: bool, one: Workers, families: dict[str, Path], copied: Any, tmp_path: Path
) -> None:
    """From a policy with the head that it has from Hugging Face weights, where there is none either."""
    one.run(starting_jobs.write, Megatron(), families["llama"], tmp_path / "c", {}, 67, head)
    [found] = one.run(starting_jobs.started, Megatron(), copied(families["llama"]), tmp_path / "c", "critic")
    [without] = one.run(starting_jobs.started_from_weights, families["llama"], "critic")
    assert found.keys() == without.keys()
    for name, tensor in found.items():
        expected = torch.full_like(tensor, 0.5) if head and name == "score.weight" else without[name]
        if not (head and name == "score.bias"):
            assert torch.equal(tensor, expected), name


def test_only_the_models_that_it_is_of_start_from_it() -> None:
    """A stage that goes on from another one starts from what that left; a teacher, or a reference of its own, from its files."""
    engine = {"type": "megatron", "checkpoint_path": "/c"}
    config = config_from({"train": {"engine": engine}, "critic": {"engine": engine}, "reference": {"engine": engine}})
    later = from_weights(config)
    assert getattr(later.train.engine, "checkpoint_path", "") is None
    assert getattr(later.reference.engine, "checkpoint_path", "") is None
    assert later.critic == config.critic
    assert getattr(without_checkpoint(config.train).engine, "checkpoint_path", "") is None
    assert from_weights(config_from({})) == config_from({})


def test_what_is_no_such_checkpoint_is_named(
    one: Workers, families: dict[str, Path], copied: Any, tmp_path: Path
) -> None:
    one.run(starting_jobs.write, Megatron(), families["llama"], tmp_path / "c", {}, 67, False)
    (tmp_path / "empty").mkdir()
    narrow = tmp_path / "narrow"
    shutil.copytree(copied(families["llama"]), narrow)
    (narrow / "config.json").write_text(
        (narrow / "config.json").read_text().replace('"hidden_size": 32', '"hidden_size": 48')
    )
    deep = tmp_path / "deep"
    shutil.copytree(families["llama"], deep)
    (deep / "config.json").write_text(
        (deep / "config.json").read_text().replace('"num_hidden_layers": 4', '"num_hidden_layers": 6')
    )
    for folder, checkpoint, message in (
        (families["llama"], tmp_path / "empty", "cannot be read"),
        (narrow, tmp_path / "c", "an embedding of 67 x 32; the model's config.json says 67 x 48"),
        (families["qwen3"], tmp_path / "c", "lacks .* of the model's weights"),
        (deep, tmp_path / "c", "cannot be read"),
    ):
        with pytest.raises(RunError, match=message):
            one.run(starting_jobs.started, Megatron(), folder, checkpoint, "policy")
