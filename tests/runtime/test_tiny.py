"""Small random models: of the family that a config.json or a name says, as Transformers makes and loads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from rlctl.common.errors import RunError
from rlctl.config import Loaded, config_from
from rlctl.runs.tiny import make_models, tiny
from rlctl.runtime.models import tiny as maker

MOST_PARAMETERS = 3_000_000


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2"),
        ("Qwen/QwQ-32B", "qwen2"),
        ("Qwen/Qwen3-8B", "qwen3"),
        ("~/models/Qwen3-30B-A3B-Base/", "qwen3_moe"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3_next"),
        ("Qwen/Qwen3.5-4B", "qwen3_5_text"),
        ("Qwen/Qwen3.5-35B-A3B", "qwen3_5_moe_text"),
        ("meta-llama/Llama-3.1-8B", "llama"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "qwen2"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "llama"),
        ("deepseek-ai/deepseek-llm-7b-chat", "llama"),
        ("deepseek-ai/DeepSeek-V3", "deepseek_v3"),
        ("mistralai/Mistral-7B-v0.3", "mistral"),
        ("google/gemma-3-1b-it", "gemma3_text"),
        ("/path/to/model", None),
    ],
)
def test_a_name_says_its_family_and_a_small_one_of_it_is_made_and_answers(
    name: str, family: str | None, tmp_path: Path, tokenizer: Any
) -> None:
    assert maker.family_of(name) == family
    architecture, source = maker.architecture_of(name, trust_remote_code=False)
    assert (family or "qwen2") in source
    count = maker.write_tiny(tmp_path, architecture, tokenizer, seed=1)
    assert count < MOST_PARAMETERS
    config = AutoConfig.from_pretrained(tmp_path)
    assert config.model_type == (family or "qwen2")
    model, own = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    ids = own.apply_chat_template(
        [{"role": "user", "content": "1 + 1?"}], add_generation_prompt=True, return_tensors="pt"
    )
    ids = ids if isinstance(ids, torch.Tensor) else ids["input_ids"]
    assert own.decode(ids[0]) == "<|im_start|>user\n1 + 1?<|im_end|>\n<|im_start|>assistant\n"
    assert torch.isfinite(model(input_ids=ids).logits).all()


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return maker.made_tokenizer(iter(["How many apples are 1 and 2?"] * 8))


LARGE = {
    "qwen2": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}},
    "qwen3_moe": {"hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "quantization_config": {"quant_method": "fp8"}},
    "deepseek_v3": {"hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "q_lora_rank": 1536, "kv_lora_rank": 512},
    "gemma3_text": {"hidden_size": 1152, "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 4 + ["sliding_attention"] * 2},
}  # fmt: skip
"""Parts of the config.json of large models."""


@pytest.mark.parametrize("family", LARGE)
def test_the_shape_comes_from_a_config_json_on_disk(family: str, tmp_path: Path, tokenizer: Any) -> None:
    large, small = tmp_path / "large", tmp_path / "small"
    AutoConfig.for_model(family, **LARGE[family]).save_pretrained(large)
    architecture, source = maker.architecture_of(str(large), trust_remote_code=False)
    assert source == "its config.json"
    assert maker.write_tiny(small, architecture, tokenizer, seed=1) < MOST_PARAMETERS
    made, was = AutoConfig.from_pretrained(small), AutoConfig.from_pretrained(large)
    assert made.model_type == family
    assert made.tie_word_embeddings == was.tie_word_embeddings
    assert (made.num_key_value_heads == made.num_attention_heads) == (
        was.num_key_value_heads == was.num_attention_heads
    )
    assert set(getattr(made, "layer_types", None) or []) == set(getattr(was, "layer_types", None) or [])
    AutoModelForCausalLM.from_pretrained(small)


def test_a_reward_model_scores_with_one_number(tmp_path: Path, tokenizer: Any) -> None:
    architecture, _ = maker.architecture_of("Qwen/Qwen2.5-7B", trust_remote_code=False)
    maker.write_tiny(tmp_path, architecture, tokenizer, seed=1, scores=True)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert model(input_ids=torch.tensor([[5, 6, 7]])).logits.shape == (1, 1)


def test_a_model_of_images_needs_its_files_and_an_unknown_family_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="image processor") as refused:
        maker.architecture_of("Qwen/Qwen2.5-VL-7B-Instruct", trust_remote_code=False)
    assert "model.path" in refused.value.hint
    (tmp_path / "config.json").write_text('{"model_type": "of_our_own"}')
    with pytest.raises(RunError, match="no such family"):
        maker.architecture_of(str(tmp_path), trust_remote_code=False)


def test_the_tokenizer_of_the_model_is_used_if_it_is_on_disk(tmp_path: Path, tokenizer: Any) -> None:
    """The whole: models of every role, in the folder, with one vocabulary."""
    tokenizer.save_pretrained(tmp_path / "mine")
    AutoConfig.for_model("qwen3", hidden_size=1024).save_pretrained(tmp_path / "mine")
    (tmp_path / "train.jsonl").write_text('{"prompt": "1 + 1?", "answer": "2"}\n' * 8)
    config = config_from(
        {
            "rlctl": 1,
            "model": {"path": str(tmp_path / "mine")},
            "data": {"train": [{"path": str(tmp_path / "train.jsonl")}]},
            "critic": {"model": {"path": "Qwen/Qwen2.5-7B"}},
            "reference": {"model": {"path": "Qwen/Qwen2.5-7B"}},
            "rewards": [
                {"type": "model", "path": "owner/reward"},
                {"type": "judge", "model": "owner/Llama-3-judge", "name": "j"},
            ],
        }
    )
    folder = tmp_path / "made"
    folder.mkdir()
    small, changes, wanted = tiny(Loaded(config), folder, prompts=4, steps=2)
    told = make_models(config, wanted)
    assert told[0].endswith("mine's own")
    kinds = {each.path: AutoConfig.from_pretrained(each.folder) for each in wanted}
    assert {path.rsplit("/", 1)[-1]: kind.model_type for path, kind in kinds.items()} == {
        "mine": "qwen3", "Qwen2.5-7B": "qwen2", "reward": "qwen2", "Llama-3-judge": "llama",
    }  # fmt: skip
    assert {kind.vocab_size for kind in kinds.values()} == {len(tokenizer)}
    assert small.config.critic.model.path == small.config.reference.model.path != small.config.model.path
    assert {"model.path", "critic.model.path", "rewards[0].path", "rewards[1].model"} <= {
        change.key for change in changes
    }
