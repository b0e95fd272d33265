"""Tiny causal models, made on the spot: random weights, no tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PretrainedConfig, Qwen2Config, Qwen3Config

VOCAB = 64
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.5,
    "bos_token_id": None,
    "eos_token_id": None,
}
CONFIGS = {
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SIZES, head_dim=16),
    "llama": LlamaConfig(**SIZES, tie_word_embeddings=False),
}

MakeModel = Callable[..., Path]


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """Return a function that saves a random model of a kind (or a config) and returns its folder."""
    made: dict[tuple[str, int], Path] = {}

    def make(kind: str = "qwen2", *, seed: int = 0, config: PretrainedConfig | None = None) -> Path:
        if (kind, seed) not in made:
            torch.manual_seed(seed)
            model = AutoModelForCausalLM.from_config(config or CONFIGS[kind])
            folder = tmp_path_factory.mktemp(kind)
            model.save_pretrained(folder)
            made[kind, seed] = folder
        return made[kind, seed]

    return make
