"""Estimates for FSDP2 are within 10 % of what torch allocates in the same step."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlctl.config import Config, config_from
from rlctl.planning.memory import GIB, memory_of
from rlctl.planning.memory_terms import OWN
from rlctl.planning.models.lookup import known_configs
from tests.planning.memory.steps import peak_of_step

BOUND = 0.10
PLAIN: dict[str, Any] = {"memory": {"recompute_activations": False}}


def config_of(
    folder: Path,
    name: str,
    layers: int,
    *,
    devices: int = 8,
    tokens: int = 8192,
    train: dict[str, Any] | None = None,
    entropy: float = 0.01,
) -> Config:
    """GRPO of a known model with fewer layers; prompts of 512 and responses of 1536 tokens."""
    data = dict(known_configs()[name.lower()]) | {"num_hidden_layers": layers}
    (folder / "config.json").write_text(json.dumps(data))
    return config_from(
        {
            "model": {"path": str(folder)},
            "data": {"max_prompt_tokens": 512},
            "rollout": {"max_response_tokens": 1536},
            "batch": {"micro_batch": {"unit": "tokens", "size": tokens}},
            "placement": {
                "nodes": 1,
                "devices_per_node": devices,
                "device": "cpu",
            },  # whole logits, but if it says otherwise
            "train": train or {},
            "algorithm": {"kl_in_loss": {"coefficient": 0.01}, "entropy_coefficient": entropy},
        }
    )


FULL = replace(OWN, full_lengths=True)
"""The step is measured with sequences of full length."""
CASES: list[Any] = [
    ("Qwen/Qwen2.5-7B", 3, {}),
    ("Qwen/Qwen3-0.6B", 4, {"devices": 1, "tokens": 4096}),
    ("Qwen/Qwen3-0.6B", 4, {"devices": 1, "tokens": 4096, "entropy": 0.0}),
    ("Qwen/Qwen3-30B-A3B", 3, {}),
    ("Qwen/Qwen3-30B-A3B", 3, {"train": PLAIN}),
    ("meta-llama/Llama-3.2-3B", 4, {"devices": 2}),
    ("meta-llama/Llama-3.1-8B", 3, {"train": {"precision": {"compute": "float32"}, **PLAIN}, "tokens": 4096}),
    ("meta-llama/Llama-3.1-8B", 3, {"train": {"fused_kernels": {"enabled": True}}}),
    ("meta-llama/Llama-3.1-8B", 3, {"train": {"fused_kernels": {"enabled": True}}, "entropy": 0.0}),
    ("google/gemma-3-1b-it", 6, {"train": PLAIN, "tokens": 4096}),
]
LONGER: list[Any] = [
    ("Qwen/Qwen2.5-1.5B", 8, {"train": PLAIN, "tokens": 16384}),
    ("Qwen/Qwen3-8B", 8, {"tokens": 32768}),
    ("Qwen/Qwen3-8B", 4, {"train": PLAIN, "devices": 64, "tokens": 16384}),
    ("Qwen/Qwen3-30B-A3B", 4, {"tokens": 16384}),
    ("meta-llama/Llama-3.1-8B", 4, {"train": {"precision": {"parameters": "bfloat16"}}, "tokens": 16384}),
    ("meta-llama/Llama-3.1-8B", 8, {"train": {"engine": {"type": "fsdp2", "reshard_after_forward": False}}}),
    ("microsoft/phi-4", 4, {"train": PLAIN, "tokens": 16384}),
    ("THUDM/GLM-4-9B-0414", 4, {"tokens": 16384}),
]


@pytest.mark.parametrize(
    ("name", "layers", "options"), [*CASES, *(pytest.param(*each, marks=pytest.mark.soak) for each in LONGER)]
)
def test_the_peak_of_a_training_step_is_estimated_within_10_percent(
    name: str, layers: int, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path, name, layers, **options)
    measured = peak_of_step(config, monkeypatch)
    policy = memory_of(config, terms=FULL)[0]
    assert policy.role == "policy"
    error = policy.gib * GIB / measured - 1
    print(
        f"{name} {layers} {options}: {measured / GIB:.2f} GiB, {error:+.1%}",
        [(p.name, round(p.gib, 2)) for p in policy.parts],
    )
    assert abs(error) < BOUND


@pytest.mark.parametrize(
    ("name", "layers", "options"), [CASES[0], CASES[3], pytest.param(*LONGER[1], marks=pytest.mark.soak)]
)
def test_the_peak_of_a_log_prob_pass_is_estimated_within_10_percent(
    name: str, layers: int, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path, name, layers, **options)
    measured = peak_of_step(config, monkeypatch, trains=False)
    (reference,) = (each for each in memory_of(config, terms=FULL) if each.role == "reference")
    error = reference.gib * GIB / measured - 1
    print(
        f"{name} {layers} {options}: {measured / GIB:.2f} GiB, {error:+.1%}",
        [(p.name, round(p.gib, 2)) for p in reference.parts],
    )
    assert abs(error) < BOUND
