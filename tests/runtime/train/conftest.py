"""Tiny models that all tests of a session share."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen2Config, Qwen3MoeConfig

SIZES = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CONFIGS = {
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "llama": LlamaConfig(**SIZES, tie_word_embeddings=False),
    "gpt2": GPT2Config(
        vocab_size=64, n_embd=64, n_layer=2, n_head=4, n_positions=128, bos_token_id=1, eos_token_id=2,
        initializer_range=0.2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    ),
    "qwen3_moe": Qwen3MoeConfig(
        **SIZES | {"num_hidden_layers": 3, "hidden_size": 32}, mlp_only_layers=[1], head_dim=16, moe_intermediate_size=16,
        num_experts=4, num_experts_per_tok=2, norm_topk_prob=True, tie_word_embeddings=False,
    ),
}  # fmt: skip


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of random models by kind."""
    torch.set_num_threads(1)
    folders = {}
    for kind, config in CONFIGS.items():
        torch.manual_seed(0)
        folders[kind] = tmp_path_factory.mktemp(kind)
        AutoModelForCausalLM.from_config(config).save_pretrained(folders[kind])
    return folders
