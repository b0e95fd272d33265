"""A run moves between FSDP2 and Megatron through the Hugging Face export of a checkpoint, whatever workers saved it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from rlctl import runs
from rlctl.config import Config, stages_of
from rlctl.config.sections.output import Checkpoint
from rlctl.config.sections.train import Fsdp2, Megatron
from rlctl.runtime.checkpoints.checkpoint import Saved
from rlctl.runtime.checkpoints.export import export
from tests.runtime.conftest import Task
from tests.runtime.local import launch_here
from tests.runtime.told import Numbers, events_of, numbers_of
from tests.runtime.train.jobs import make_samples
from tests.runtime.train.megatron import checkpoint_jobs
from tests.runtime.train.megatron.checkpoint_jobs import BFLOAT16, FLOAT32, decaying
from tests.runtime.train.processes import Workers

UNEVEN = Megatron(pipeline_parallel_size=2, transformer={"num_layers_in_last_pipeline_stage": 1})


@pytest.mark.parametrize(
    ("family", "engine", "precision"),
    [
        ("qwen2", Megatron(tensor_parallel_size=2), BFLOAT16),
        pytest.param("llama", UNEVEN, FLOAT32, marks=pytest.mark.soak),
        pytest.param(
            "qwen3_moe", Megatron(expert_parallel_size=2, distributed_optimizer=False), BFLOAT16, marks=pytest.mark.soak
        ),
        pytest.param("qwen3", Fsdp2(fsdp_size=2), FLOAT32, marks=pytest.mark.soak),
    ],
    ids=["tensor", "stages of different sizes", "experts", "fsdp2"],
)
def test_one_process_exports_what_workers_of_any_layout_saved(
    family: str,
    engine: Any,
    precision: Any,
    task: Task,
    two: Workers,
    families: dict[str, Path],
    tmp_path: Path,
) -> None:
    """In full precision, of which a run that computes in bfloat16 uses the rounded numbers."""
    train = dataclasses.replace(decaying(Megatron(), precision), engine=engine)
    job = (families[family], train, make_samples(6), tmp_path / "policy", Checkpoint())
    saved, _ = two.run(checkpoint_jobs.train_and_save, *job)[0]
    config = task.config(tmp_path, objective="sft")
    model = dataclasses.replace(config.model, path=str(families[family]), tokenizer=str(task.folder / "model"))
    config = dataclasses.replace(config, train=train, model=model)
    export(stages_of(config)[0], Saved(tmp_path, 2, {}), tmp_path / "hf")
    exported = load_file(tmp_path / "hf" / "model.safetensors")
    assert set(exported) <= set(saved)
    assert {tensor.dtype for tensor in exported.values()} == {torch.float32}
    assert all(torch.equal(tensor.to(saved[name].dtype), saved[name]) for name, tensor in exported.items())
    wide = any(not torch.equal(tensor.bfloat16().float(), tensor) for tensor in exported.values())
    assert wide, "bits that bfloat16 does not have"


def told(config: Config) -> Numbers:
    return numbers_of(events_of(runs.folder_of(config)))


@pytest.mark.soak
@pytest.mark.parametrize(("first", "second"), [("fsdp2", "megatron"), ("megatron", "fsdp2")])
def test_a_run_moves_and_goes_on_as_it_would_have(first: str, second: str, task: Task, tmp_path: Path) -> None:
    """Two runs from one export, on both engines, begin with the accuracy that was left and have the same numbers."""

    def config(name: str, engine: str, model: Path) -> Config:
        return task.config(
            tmp_path / name,
            model={"path": str(model)},
            train={
                "engine": {"type": engine},
                "precision": {"compute": "float32"},
                "optimizer": {"lr": 1e-3, "epsilon": 1e-4},
                "memory": {"recompute_activations": False},
            },
            schedule={"total_steps": 2, "evaluate_every": 2},
        )

    before = config("before", first, task.folder / "model")
    assert launch_here(before).status == "finished"
    exported = runs.export(runs.inspect(runs.folder_of(before))).folder
    moved, stayed = config("moved", second, exported), config("stayed", first, exported)
    for each in (moved, stayed):
        result = launch_here(each)
        assert result.status == "finished", result.cause
    found, expected = told(moved), told(stayed)
    assert found["main evaluation", 0] == expected["main evaluation", 0]
    assert found["main evaluation", 0] == told(before)["main evaluation", 2]
    assert found.keys() == expected.keys()
    for step, metrics in expected.items():
        for name in metrics.keys() & found[step].keys():
            assert found[step][name] == pytest.approx(metrics[name], rel=1e-3, abs=1e-4), (step, name)
