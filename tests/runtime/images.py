"""Tiny models that read images, made on the spot with tokenizer and processor, and images for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForImageTextToText,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2VLConfig,
    Qwen3VLConfig,
)

SPECIAL = (
    "<pad>",
    "<end>",
    "<user>",
    "<assistant>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789 ?.<>_"
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<' + m['role'] + '>' }}{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for part in m['content'] %}{% if part['type'] == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{% if m['role'] == 'assistant' %}{{ '<end>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)
PATCH, MERGE = 4, 2
SIDE = PATCH * MERGE
"""Pixels that one image token stands for, in each direction."""


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character, and those of images."""
    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *CHARACTERS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=" "))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>")
    wrapped.add_special_tokens({"additional_special_tokens": list(SPECIAL[2:])})
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def config_of(kind: str, **text: Any) -> PreTrainedConfig:
    """A config of a few thousand parameters; ``text`` goes over that of the language model."""
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
    language = {
        "vocab_size": len(SPECIAL) + len(CHARACTERS),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.2,
        "bos_token_id": None,
        "eos_token_id": SPECIAL.index("<end>"),
        "pad_token_id": SPECIAL.index("<pad>"),
        "rope_parameters": rope,
        **text,
    }
    sight = {
        "depth": 2,
        "hidden_size": 64,
        "num_heads": 2,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": 2,
        "in_channels": 3,
        "initializer_range": 0.2,
    }
    ids = {
        "image_token_id": SPECIAL.index("<|image_pad|>"),
        "video_token_id": SPECIAL.index("<|video_pad|>"),
        "vision_start_token_id": SPECIAL.index("<|vision_start|>"),
        "vision_end_token_id": SPECIAL.index("<|vision_end|>"),
    }
    if kind == "qwen2_vl":
        vision = {**sight, "embed_dim": 64, "mlp_ratio": 2}
        return Qwen2VLConfig(text_config=language, vision_config=vision, **ids)
    if kind == "qwen2_5_vl":
        vision = {
            **sight,
            "out_hidden_size": 64,
            "intermediate_size": 128,
            "window_size": 16,
            "fullatt_block_indexes": [1],
        }
        return Qwen2_5_VLConfig(text_config=language, vision_config=vision, **ids)
    assert kind == "qwen3_vl", kind
    language |= {"head_dim": 16, "rope_parameters": {**rope, "mrope_interleaved": True}}
    deep = {
        "out_hidden_size": 64,
        "intermediate_size": 128,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0],
    }
    return Qwen3VLConfig(text_config=language, vision_config={**sight, **deep}, **ids)


KINDS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
PROCESSORS = {"qwen2_vl": "Qwen2VLProcessor", "qwen2_5_vl": "Qwen2_5_VLProcessor", "qwen3_vl": "Qwen3VLProcessor"}


def make_vision_model(folder: Path, kind: str, *, seed: int = 0, **text: Any) -> Path:
    """Save a random model with its tokenizer and the files of its processor, as the hub has them."""
    torch.manual_seed(seed)
    AutoModelForImageTextToText.from_config(config_of(kind, **text)).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    image = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": PROCESSORS[kind],
        "patch_size": PATCH,
        "merge_size": MERGE,
        "temporal_patch_size": 2,
        "size": {"shortest_edge": SIDE**2, "longest_edge": 16 * SIDE**2},
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(image))
    return folder


def picture(width: int, height: int, *, seed: int = 0) -> Image.Image:
    """An image of noise."""
    pixels = torch.randint(0, 256, (height, width, 3), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    return Image.fromarray(pixels.numpy())
