"""Parameter counts from config.json are those of the models that Transformers builds from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlctl.model_shape import read_shape, shape_of

SMALL = {
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
CONFIGS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"attention_bias": True, "mlp_bias": True}),
    ("llama", {"tie_word_embeddings": True, "head_dim": 32, "num_key_value_heads": 4}),
    ("mistral", {"head_dim": 32}),
    ("qwen2", {}),
    ("qwen2", {"tie_word_embeddings": True}),
    ("qwen3", {"tie_word_embeddings": True}),
    ("qwen3", {"head_dim": 32, "attention_bias": True}),
    ("qwen3_moe", {"num_experts": 8, "moe_intermediate_size": 24, "num_experts_per_tok": 2}),
    (
        "qwen3_moe",
        {
            "num_experts": 8,
            "moe_intermediate_size": 24,
            "num_experts_per_tok": 2,
            "mlp_only_layers": [0],
            "decoder_sparse_step": 2,
        },
    ),
]


@pytest.mark.parametrize(("family", "changes"), CONFIGS)
def test_parameters_are_those_of_the_model_that_transformers_builds(
    family: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(family, **{**SMALL, **changes})
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    config.save_pretrained(tmp_path)
    shape = read_shape(str(tmp_path))
    assert shape is not None
    assert shape.parameters == model.num_parameters()
    assert shape.layer_parameters == max(
        sum(parameter.numel() for parameter in layer.parameters()) for layer in model.model.layers
    )


QWEN25_15B = {
    "model_type": "qwen2",
    "vocab_size": 151936,
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
QWEN3_30B_A3B = {
    "model_type": "qwen3_moe",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "tie_word_embeddings": False,
}


def test_published_sizes() -> None:
    small, large = shape_of(QWEN25_15B), shape_of(QWEN3_30B_A3B)
    assert small is not None
    assert large is not None
    assert round(small.parameters / 1e9, 2) == 1.54  # the model card: 1.54B
    assert round((small.parameters - small.embedding_parameters) / 1e9, 2) == 1.31  # 1.31B without embeddings
    assert round(large.parameters / 1e9, 1) == 30.5  # 30.5B in total
    # The card says 3.3B activated, with the embedding beside the head.
    assert large.active_parameters + large.vocabulary * large.hidden == pytest.approx(3.3e9, rel=0.02)
    assert small.cache_values_per_token() == 2 * 28 * 2 * 128


@pytest.mark.parametrize("content", ["", "[]", '{"model_type": "gpt2"}', '{"model_type": "llama"}'])
def test_what_is_not_understood_has_no_shape(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    assert read_shape(str(tmp_path)) is None


def test_a_hub_name_is_not_looked_up() -> None:
    assert read_shape("Qwen/Qwen2.5-1.5B") is None


def test_a_written_file_reads_as_the_data_it_holds(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN25_15B))
    assert read_shape(str(tmp_path)) == shape_of(QWEN25_15B)
