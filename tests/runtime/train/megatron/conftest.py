"""Tiny models of every family, and four processes, that all tests of the Megatron engine share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PretrainedConfig, Qwen2Config, Qwen3Config, Qwen3MoeConfig

from tests.runtime.train.processes import Workers

SIZES: dict[str, Any] = {
    "vocab_size": 67,  # divides by no tensor size
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS: dict[str, Any] = {
    "moe_intermediate_size": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "mlp_only_layers": [1],
}
FAMILIES: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(**SIZES, tie_word_embeddings=False),
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=True),
    "qwen3_moe": Qwen3MoeConfig(**SIZES, **EXPERTS, head_dim=16, tie_word_embeddings=False),
}


HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those with four processes run in ``make soak``."""
    for item in items:
        if HERE in item.path.parents and "four" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.soak)


def some(cases: Iterable[str], *always: str) -> list[Any]:
    """The cases; those that are not named run under ``make soak`` only."""
    return [case if case in always else pytest.param(case, marks=pytest.mark.soak) for case in cases]


@pytest.fixture(scope="session")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of random models by family; no weight is as it was begun, norms and biases neither."""
    torch.set_num_threads(1)
    folders = {}
    for family, config in FAMILIES.items():
        generator = torch.Generator().manual_seed(3)
        torch.manual_seed(3)
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
        folders[family] = tmp_path_factory.mktemp(family)
        model.save_pretrained(folders[family], max_shard_size="40KB" if family == "qwen3_moe" else "5GB")
    return folders


@pytest.fixture(scope="session")
def four() -> Iterator[Workers]:
    """Four gloo processes in one group."""
    workers = Workers(4)
    yield workers
    workers.close()
