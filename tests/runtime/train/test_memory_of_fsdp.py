"""The estimate of memory is what two workers really allocate in a step on CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rlctl.config import config_from
from rlctl.planning.memory import GIB, memory_of
from tests.runtime.train import memory_jobs
from tests.runtime.train.processes import Workers

PROMPT, RESPONSE, SEQUENCES = 128, 384, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model wide enough that its tensors, and not Python's small ones, make its memory."""
    path = tmp_path_factory.mktemp("wide")
    sizes = {"vocab_size": 4096, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 3}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32}
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3", **sizes, **heads)).save_pretrained(path)
    return path


BFLOAT16 = pytest.param("bfloat16", False, marks=pytest.mark.soak)
"""Minutes on a processor that has no instructions for it."""


@pytest.mark.parametrize(("compute", "recompute"), [("float32", True), ("float32", False), BFLOAT16])
def test_a_step_on_cpu_allocates_what_is_estimated(folder: Path, two: Workers, compute: str, recompute: bool) -> None:
    config = config_from(
        {
            "model": {"path": str(folder)},
            "data": {"max_prompt_tokens": PROMPT},
            "rollout": {"max_response_tokens": RESPONSE},
            "batch": {"micro_batch": {"unit": "tokens", "size": SEQUENCES * (PROMPT + RESPONSE)}},
            "placement": {"nodes": 1, "devices_per_node": 2, "device": "cpu"},
            "train": {"precision": {"compute": compute}, "memory": {"recompute_activations": recompute}},
        }
    )
    policy = memory_of(config)[0]
    found = two.run(memory_jobs.allocated, folder, compute, recompute, PROMPT, RESPONSE, SEQUENCES)
    for worker in found:
        assert policy.part("parameters") * GIB == pytest.approx(worker["parameters"], rel=0.01)
        assert policy.part("optimizer") * GIB == pytest.approx(worker["optimizer"], rel=0.01)
    measured = max(worker["peak"] for worker in found)
    assert policy.gib * GIB == pytest.approx(measured, rel=0.10)
