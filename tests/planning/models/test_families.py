"""Shapes from a local config.json: counts are those of the models that Transformers builds from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from rlctl.planning.models import read_shape, shape_of, why_unknown
from rlctl.planning.models.build import built_shape

SMALL = {
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
MOE = {"num_experts": 8, "moe_intermediate_size": 24, "num_experts_per_tok": 2}
LATENT = {
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "first_k_dense_replace": 1,
}
ROUTED = {"n_routed_experts": 8, "n_shared_experts": 1, "moe_intermediate_size": 24, "num_experts_per_tok": 2}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
CONFIGS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"attention_bias": True, "mlp_bias": True}),
    ("llama", {"tie_word_embeddings": True, "head_dim": 32, "num_key_value_heads": 4}),
    ("mistral", {"head_dim": 32}),
    ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    ("qwen2", {}),
    ("qwen2", {"tie_word_embeddings": True}),
    ("qwen2_moe", {**MOE, "shared_expert_intermediate_size": 48}),
    ("qwen2_moe", {**MOE, "shared_expert_intermediate_size": 48, "decoder_sparse_step": 2, "qkv_bias": False}),
    ("qwen3", {"tie_word_embeddings": True}),
    ("qwen3", {"head_dim": 32, "attention_bias": True}),
    ("qwen3_moe", MOE),
    ("qwen3_moe", {**MOE, "mlp_only_layers": [0], "decoder_sparse_step": 2}),
    ("qwen3_next", {**MOE, **LINEAR, "shared_expert_intermediate_size": 24, "mlp_only_layers": [0]}),
    ("qwen3_5_text", LINEAR),
    ("qwen3_5_moe_text", {**MOE, **LINEAR, "shared_expert_intermediate_size": 24}),
    ("gemma2", {"head_dim": 16}),
    ("gemma3_text", {"head_dim": 16}),
    ("phi3", {"pad_token_id": 0}),
    ("glm4", {"head_dim": 16, "pad_token_id": 0}),
    ("glm4_moe", {**ROUTED, "head_dim": 16, "first_k_dense_replace": 2, "use_qk_norm": True, "attention_bias": True}),
    ("glm4_moe_lite", {**ROUTED, **LATENT, "num_key_value_heads": 4, "q_lora_rank": 32}),
    ("deepseek_v3", {**ROUTED, **LATENT, "num_key_value_heads": 4, "q_lora_rank": 32, "attention_bias": True}),
    ("deepseek_v3", {**ROUTED, **LATENT, "num_key_value_heads": 4, "q_lora_rank": None}),
    ("hy_v3", {**MOE, "num_shared_experts": 1, "head_dim": 16}),
    ("minimax_m2", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16}),
    ("gpt_oss", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16}),
]


def made(family: str, changes: dict[str, Any], folder: Path) -> Any:
    """The model on the meta device, and its config in a folder."""
    config = transformers.AutoConfig.for_model(family, **{**SMALL, **changes})
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    config.save_pretrained(folder)
    return model


@pytest.mark.parametrize(("family", "changes"), CONFIGS)
def test_parameters_are_those_of_the_model_that_transformers_builds(
    family: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    model = made(family, changes, tmp_path)
    shape = read_shape(str(tmp_path))
    assert shape is not None
    assert shape.parameters == model.num_parameters()
    assert shape.layer_parameters == max(
        sum(parameter.numel() for parameter in layer.parameters()) for layer in model.model.layers
    )
    norms = [p.numel() for name, p in model.model.layers.named_parameters() if "norm" in name]
    routers = [
        p.numel() for name, p in model.model.layers.named_parameters() if ".mlp.gate." in name or "router" in name
    ]
    experts = [p.numel() for name, p in model.model.layers.named_parameters() if ".experts." in name]
    assert shape.norm_parameters == sum(norms)
    assert shape.router_parameters == sum(routers)
    assert shape.expert_parameters == sum(experts)


VISION = {
    "qwen2_5_vl": {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64},
    "qwen3_vl": {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "out_hidden_size": 64,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
    },
    "gemma3": {
        "model_type": "siglip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    },
}


@pytest.mark.parametrize("family", [*VISION, "qwen3_vl_moe"])
def test_a_vision_tower_that_is_loaded_is_counted(family: str, tmp_path: Path) -> None:
    vision = VISION[family.removesuffix("_moe")]
    text = {**SMALL, **(MOE if family == "qwen3_vl_moe" else {}), "head_dim": 16}
    config = transformers.AutoConfig.for_model(family, text_config=text, vision_config=vision)
    with torch.device("meta"):
        model = transformers.AutoModelForImageTextToText.from_config(config)
    config.save_pretrained(tmp_path)
    shape = read_shape(str(tmp_path))
    assert shape is not None
    assert shape.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert shape.vision_parameters > 0


@pytest.mark.parametrize(("family", "changes"), [("olmo2", {}), ("granite", {"tie_word_embeddings": True})])
def test_another_family_of_a_local_folder_is_counted_by_transformers(
    family: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    model = made(family, changes, tmp_path)
    shape = read_shape(str(tmp_path))
    assert shape is not None
    assert shape.parameters == model.num_parameters()
    assert shape.layers == 4
    assert shape.cache_values_per_token() == 2 * 4 * 2 * 16


def test_without_transformers_another_family_is_unknown_and_the_reason_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made("olmo2", {}, tmp_path)
    monkeypatch.setattr("rlctl.planning.models.build.find_spec", lambda name: None)
    built_shape.cache_clear()
    assert read_shape(str(tmp_path)) is None
    assert "'olmo2'" in why_unknown(str(tmp_path))
    assert "rlctl[runtime]" in why_unknown(str(tmp_path))
    built_shape.cache_clear()


def test_a_folder_that_brings_its_own_code_is_not_executed(tmp_path: Path) -> None:
    (tmp_path / "modeling.py").write_text("raise SystemExit('executed')")
    own = {"model_type": "own", "auto_map": {"AutoConfig": "modeling.C", "AutoModelForCausalLM": "modeling.M"}}
    (tmp_path / "config.json").write_text(json.dumps(own))
    assert read_shape(str(tmp_path)) is None


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


@pytest.mark.parametrize("content", ["", "[]", '{"model_type": "none"}', '{"model_type": "llama"}'])
def test_what_is_not_understood_has_no_shape(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    assert read_shape(str(tmp_path)) is None


def test_a_written_file_reads_as_the_data_it_holds(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN25_15B))
    assert read_shape(str(tmp_path)) == shape_of(QWEN25_15B)
