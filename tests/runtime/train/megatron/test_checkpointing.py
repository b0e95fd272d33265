"""A Megatron run that is stopped and resumed ends in the same bits; in another layout it goes on with the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlctl.common.errors import RunError
from rlctl.config.sections.output import Checkpoint
from rlctl.config.sections.train import Megatron
from rlctl.runtime.checkpoints.checksums import damage
from tests.runtime import hostile
from tests.runtime.train.jobs import make_samples
from tests.runtime.train.megatron import checkpoint_jobs
from tests.runtime.train.megatron.checkpoint_jobs import BFLOAT16, FLOAT32, decaying
from tests.runtime.train.megatron.conftest import some
from tests.runtime.train.processes import Workers

SAMPLES = make_samples(6)
ONE, TENSOR, PIPELINE, EXPERT = (
    Megatron(),
    Megatron(tensor_parallel_size=2),
    Megatron(pipeline_parallel_size=2),
    Megatron(expert_parallel_size=2),
)
REPLICAS = Megatron()
WHOLE_OPTIMIZERS = Megatron(distributed_optimizer=False)
VIRTUAL = Megatron(pipeline_parallel_size=2, virtual_pipeline_parallel_size=2)
TENSOR_AND_PIPELINE = Megatron(tensor_parallel_size=2, pipeline_parallel_size=2)
ASYNCHRONOUS = Checkpoint(asynchronous=True)

SAME: dict[str, tuple[str, str, Any, Any]] = {
    "one": ("one", "qwen2", ONE, FLOAT32),
    "tensor": ("two", "qwen2", TENSOR, FLOAT32),
    "pipeline, tied": ("two", "qwen2", PIPELINE, FLOAT32),
    "virtual pipeline": ("two", "llama", VIRTUAL, FLOAT32),
    "replicas": ("two", "qwen3", REPLICAS, FLOAT32),
    "replicas, many buckets": (
        "two",
        "qwen3",
        Megatron(overlap_gradient_reduce=True, ddp={"bucket_size": 5000}),
        FLOAT32,
    ),
    "replicas, whole optimizers": ("two", "qwen3", WHOLE_OPTIMIZERS, FLOAT32),
    "replicas, bfloat16": ("two", "qwen3", REPLICAS, BFLOAT16),
    "whole optimizers, bfloat16": ("one", "qwen3", WHOLE_OPTIMIZERS, BFLOAT16),
    "experts": ("two", "qwen3_moe", EXPERT, FLOAT32),
    "tensor and pipeline": ("four", "llama", TENSOR_AND_PIPELINE, FLOAT32),
}


@pytest.mark.parametrize("case", some(SAME, "pipeline, tied", "replicas, many buckets"))
def test_resuming_gives_the_same_bits(
    case: str, families: dict[str, Path], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    fixture, family, layout, precision = SAME[case]
    workers: Workers = request.getfixturevalue(fixture)
    folder, train = families[family], decaying(layout, precision)
    how = ASYNCHRONOUS if case == "tensor" else Checkpoint()
    saved, straight = workers.run(checkpoint_jobs.train_and_save, folder, train, SAMPLES, tmp_path / "c", how)[0]
    assert damage(tmp_path / "c") == ""
    loaded, resumed = workers.run(checkpoint_jobs.load_and_train, folder, train, SAMPLES, tmp_path / "c")[0]
    assert all(torch.equal(tensor, saved[name]) for name, tensor in loaded.items())
    assert resumed[1] == straight[1]
    assert all(torch.equal(tensor, straight[0][name]) for name, tensor in resumed[0].items())


@pytest.mark.parametrize(
    ("family", "ways"),
    [
        pytest.param(
            "qwen2",
            [("two", TENSOR), ("two", PIPELINE), ("one", ONE), ("four", TENSOR_AND_PIPELINE), ("two", REPLICAS)],
            marks=pytest.mark.soak,
        ),
        pytest.param("llama", [("two", VIRTUAL), ("two", WHOLE_OPTIMIZERS), ("two", TENSOR)], marks=pytest.mark.soak),
        ("qwen2", [("two", PIPELINE), ("two", TENSOR)]),
        pytest.param(
            "qwen3_moe", [("two", EXPERT), ("one", ONE), ("two", TENSOR), ("two", EXPERT)], marks=pytest.mark.soak
        ),
    ],
)
def test_other_layouts_go_on_with_the_same_numbers(
    family: str,
    ways: list[tuple[str, Megatron]],
    families: dict[str, Path],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    (fixture, first), *others = ways
    workers: Workers = request.getfixturevalue(fixture)
    arguments = decaying(first), SAMPLES, tmp_path / "c", Checkpoint()
    saved, (weights, metrics) = workers.run(checkpoint_jobs.train_and_save, families[family], *arguments)[0]
    for name, layout in others:
        workers = request.getfixturevalue(name)
        arguments = decaying(layout), SAMPLES, tmp_path / "c"
        loaded, resumed = workers.run(checkpoint_jobs.load_and_train, families[family], *arguments)[0]
        assert all(torch.equal(tensor, saved[key]) for key, tensor in loaded.items()), layout
        assert [each["loss"] for each in resumed[1]] == pytest.approx([each["loss"] for each in metrics], rel=1e-4)
        for key, tensor in resumed[0].items():
            torch.testing.assert_close(tensor, weights[key], rtol=1e-3, atol=2e-4)


def test_contents_are_chosen_in_writing_and_in_reading(two: Workers, families: dict[str, Path], tmp_path: Path) -> None:
    folder, train = families["qwen3"], decaying(PIPELINE)

    def saved(*contents: Any) -> None:
        how = Checkpoint(save_contents=contents)
        two.run(checkpoint_jobs.train_and_save, folder, train, SAMPLES, tmp_path / "-".join(contents), how)

    def taken(name: str, *contents: Any) -> dict[str, bool]:
        how = Checkpoint(load_contents=contents)
        found: dict[str, bool] = two.run(checkpoint_jobs.load_some, folder, train, tmp_path / name, how)[0]
        return found

    saved("model", "optimizer", "extra")
    saved("model")
    everything, nothing = (
        dict.fromkeys(("model", "optimizer", "extra"), True),
        dict.fromkeys(("optimizer", "extra"), False),
    )
    assert taken("model-optimizer-extra", "model", "optimizer", "extra") == everything
    assert taken("model-optimizer-extra", "model") == {**nothing, "model": True}
    assert taken("model-optimizer-extra", "optimizer", "extra") == {**everything, "model": False}
    assert taken("model", "model", "optimizer", "extra") == {**nothing, "model": True}


def test_random_states_come_back_in_the_same_layout_and_are_new_in_another(
    two: Workers, families: dict[str, Path], tmp_path: Path
) -> None:
    folder, to = families["qwen2"], tmp_path / "c"
    drawn = two.run(checkpoint_jobs.draws, folder, decaying(TENSOR), to, False)
    again = two.run(checkpoint_jobs.draws, folder, decaying(TENSOR), to, True)
    other = two.run(checkpoint_jobs.draws, folder, decaying(PIPELINE), to, True)
    assert [each.tolist() for each in again] == [each.tolist() for each in drawn]
    assert all(not torch.equal(new, each) for new in other for each in drawn)
    assert not torch.equal(*other)


def test_a_checkpoint_of_the_other_engine_or_another_model_or_none_is_refused(
    two: Workers, families: dict[str, Path], tmp_path: Path
) -> None:
    folder, train = families["qwen2"], decaying(TENSOR)
    two.run(checkpoint_jobs.draws, folder, train, tmp_path / "megatron", False)
    two.run(checkpoint_jobs.save_with_fsdp, folder, tmp_path / "fsdp")
    with pytest.raises(RunError, match=r"(?s)saved by the FSDP2 engine.*Hugging Face export"):
        two.run(checkpoint_jobs.draws, folder, train, tmp_path / "fsdp", True)
    with pytest.raises(RunError, match=r"(?s)saved by the Megatron engine.*Hugging Face export"):
        two.run(checkpoint_jobs.load_with_fsdp, folder, tmp_path / "megatron")
    with pytest.raises(RunError, match="does not fit the model"):
        two.run(checkpoint_jobs.draws, families["qwen3"], train, tmp_path / "megatron", True)
    with pytest.raises(RunError, match="checkpoint"):
        two.run(checkpoint_jobs.draws, folder, train, tmp_path / "nothing", True)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            hostile.in_metadata,
            r"was not loaded: its .metadata contains posix\.mkdir, which would be executed on loading",
        ),
        (hostile.in_common, r"was not loaded: it contains posix\.mkdir, which would be executed on loading"),
        (hostile.in_place_of("random/0/shard_0_1"), r"was not loaded: it contains posix\.mkdir"),
        (hostile.in_place_of("decoder.final_layernorm.weight"), r"was not loaded: it contains posix\.mkdir"),
        (hostile.as_object("decoder.final_layernorm.weight"), "does not fit the model"),
    ],
    ids=["metadata", "common", "object", "tensor", "tensor as an object"],
)
def test_a_checkpoint_executes_nothing(
    one: Workers, families: dict[str, Path], tmp_path: Path, change: hostile.Change, told: str
) -> None:
    folder, train, marker = families["qwen2"], decaying(Megatron()), tmp_path / "executed"
    hostile.works(marker)
    one.run(checkpoint_jobs.draws, folder, train, tmp_path / "c", False)
    change(tmp_path / "c", marker)
    with pytest.raises(RunError, match=told):
        one.run(checkpoint_jobs.draws, folder, train, tmp_path / "c", True)
    assert not marker.exists()
