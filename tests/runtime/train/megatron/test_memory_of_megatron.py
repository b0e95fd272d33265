"""The estimate of memory is what the worker that holds most really holds, for each layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rlctl.config import config_from
from rlctl.config.sections.train import Megatron
from rlctl.planning.memory import GIB, memory_of
from tests.runtime.train.megatron import memory_jobs, peak_jobs
from tests.runtime.train.processes import Workers

STATES = ("parameters", "gradients", "optimizer")


def estimated(folder: Path, engine: dict[str, Any], compute: str, critic: bool) -> dict[str, float]:
    section = {"engine": {"type": "megatron", **engine}, "precision": {"compute": compute}}
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
        pytest.param("llama", {"tensor_parallel_size": 2}, "float32", False, marks=pytest.mark.soak),
        ("llama", {"pipeline_parallel_size": 2, "virtual_pipeline_parallel_size": 2}, "bfloat16", False),
        pytest.param(
            "qwen2", {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}, "float32", False, marks=pytest.mark.soak
        ),
        ("qwen2", {"context_parallel_size": 2, "distributed_optimizer": False}, "bfloat16", False),
        ("qwen3", {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}, "float32", True),
        (
            "qwen3_moe",
            {"tensor_parallel_size": 2, "expert_parallel_size": 2, "expert_tensor_parallel_size": 1},
            "bfloat16",
            False,
        ),
        pytest.param("qwen3_moe", {"expert_parallel_size": 4}, "float32", False, marks=pytest.mark.soak),
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


PROMPT, RESPONSE, SEQUENCES = 128, 384, 4
SIZES = {"vocab_size": 4096, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4, "head_dim": 32}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 384, "norm_topk_prob": True}


RECOMPUTED: tuple[dict[str, Any], ...] = (
    {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_layers": 2},
    {"recompute_granularity": "full", "recompute_method": "block", "recompute_layers": 2},
    {"recompute_granularity": "selective", "recompute_modules": ("mlp",)},
    {"recompute_granularity": "selective", "recompute_modules": ("layernorm",)},
)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models wide enough that their tensors, and not Python's small ones, make their memory."""
    folders = {}
    for family, more in (("qwen3", {}), ("qwen3_moe", EXPERTS)):
        folders[family] = tmp_path_factory.mktemp(family)
        torch.manual_seed(0)
        config = AutoConfig.for_model(family, **SIZES, num_attention_heads=8, num_key_value_heads=2, **more)
        AutoModelForCausalLM.from_config(config).save_pretrained(folders[family])
    return folders


@pytest.mark.parametrize(
    ("family", "engine", "compute"),
    [
        ("qwen3", {"tensor_parallel_size": 2}, "float32"),
        ("qwen3", {"tensor_parallel_size": 2, "recompute_granularity": "full"}, "float32"),
        # bfloat16 takes minutes on a processor that has no instructions for it.
        pytest.param(
            "qwen3",
            {"tensor_parallel_size": 2, "recompute_granularity": "full"},
            "bfloat16",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            "qwen3", {"tensor_parallel_size": 2, "sequence_parallel": False}, "bfloat16", marks=pytest.mark.soak
        ),
        pytest.param("qwen3", {"pipeline_parallel_size": 2}, "bfloat16", marks=pytest.mark.soak),
        pytest.param(
            "qwen3",
            {"pipeline_parallel_size": 2, "virtual_pipeline_parallel_size": 2},
            "bfloat16",
            marks=pytest.mark.soak,
        ),
        pytest.param("qwen3", {"context_parallel_size": 2}, "bfloat16", marks=pytest.mark.soak),
        *(
            pytest.param("qwen3", {"tensor_parallel_size": 2, **recompute}, "bfloat16", marks=pytest.mark.soak)
            for recompute in RECOMPUTED
        ),
        pytest.param(
            "qwen3_moe",
            {"tensor_parallel_size": 2, "expert_parallel_size": 2, "expert_tensor_parallel_size": 1},
            "bfloat16",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_step_on_cpu_allocates_what_is_estimated(
    wide: dict[str, Path], two: Workers, family: str, engine: dict[str, Any], compute: str
) -> None:
    config = config_from(
        {
            "model": {"path": str(wide[family])},
            "data": {"max_prompt_tokens": PROMPT},
            "rollout": {"max_response_tokens": RESPONSE},
            "batch": {"micro_batch": {"unit": "tokens", "size": SEQUENCES * (PROMPT + RESPONSE)}},
            "placement": {"nodes": 1, "devices_per_node": 2},
            "train": {"engine": {"type": "megatron", **engine}, "precision": {"compute": compute, "reduce": "float32"}},
        }
    )
    policy = memory_of(config)[0]
    found = two.run(peak_jobs.peak, wide[family], Megatron(**engine), compute, PROMPT, RESPONSE, SEQUENCES)
    measured = max(worker["peak"] for worker in found)
    print(f"{policy.gib * GIB / measured - 1:+.1%}", [(part.name, part.gib * 1024) for part in policy.parts], found)
    assert policy.gib * GIB == pytest.approx(measured, rel=0.10)
