"""The estimate of memory is what the worker that holds most really holds, for each layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlctl.config import config_from
from rlctl.config.sections.train import Megatron
from rlctl.planning.memory import GIB, memory_of
from tests.runtime.train.megatron import memory_jobs
from tests.runtime.train.processes import Workers

STATES = ("parameters", "gradients", "optimizer")


def estimated(folder: Path, engine: dict[str, Any], compute: str, critic: bool) -> dict[str, float]:
    section = {"engine": {"name": "megatron", **engine}, "precision": {"compute": compute}}
    config = config_from(
        {
            "model": {"path": str(folder)},
            "train": section,
            "critic": section if critic else None,
            "algorithm": {"advantage": "gae" if critic else "grpo"},
            "placement": {"nodes": 1, "devices_per_node": 4},
        }
    )
    role = "critic" if critic else "policy"
    (found,) = (estimate for estimate in memory_of(config) if estimate.role == role)
    return {name: found.part(name) * GIB for name in STATES}


@pytest.mark.parametrize(
    ("family", "engine", "compute", "critic"),
    [
        pytest.param("llama", {"tensor": 2}, "float32", False, marks=pytest.mark.soak),
        ("llama", {"pipeline": 2, "virtual_pipeline": 2}, "bfloat16", False),
        pytest.param("qwen2", {"tensor": 2, "pipeline": 2}, "float32", False, marks=pytest.mark.soak),
        ("qwen2", {"context": 2, "distributed_optimizer": False}, "bfloat16", False),
        ("qwen3", {"tensor": 2, "pipeline": 2}, "float32", True),
        ("qwen3_moe", {"tensor": 2, "expert": 2, "expert_tensor": 1}, "bfloat16", False),
        pytest.param("qwen3_moe", {"expert": 4}, "float32", False, marks=pytest.mark.soak),
    ],
)
def test_parameters_gradients_and_optimizer_are_what_workers_hold(
    families: dict[str, Path], four: Workers, family: str, engine: dict[str, Any], compute: str, critic: bool
) -> None:
    folder = families[family]
    role = "critic" if critic else "policy"
    found = four.run(memory_jobs.held, folder, Megatron(**engine), role, compute)
    most = max(found, key=lambda each: each["parameters"])
    guess = estimated(folder, engine, compute, critic)
    assert guess["parameters"] == pytest.approx(most["parameters"], rel=0.01)
    assert guess["gradients"] == pytest.approx(most["gradients"], rel=0.01)
    # Shares of the optimizer end where buffers do, not where weights do: alike over the workers of a stage, not on each.
    workers = [each for each in found if each["parameters"] == most["parameters"]]
    mean = sum(each["optimizer"] for each in workers) / len(workers)
    assert guess["optimizer"] == pytest.approx(mean, rel=0.01)
