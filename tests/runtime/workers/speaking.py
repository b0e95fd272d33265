"""A language model whose every token follows from the one before: what it says is known."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from tests.runtime.workers.test_reward_model import bytes_tokenizer

TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
"""What is said last decides what follows."""


def save_speaker(folder: Path, *answers: str) -> str:
    """A Qwen2 whose layers add nothing and whose head knows the next character: after the first of an answer comes its rest.

    Args:
        folder: gets the model.
        answers: of characters with one follower each; an answer begins after the character that a question ends with.
    """
    tokenizer = bytes_tokenizer(template=TEMPLATE)
    size = len(tokenizer)
    config = Qwen2Config(
        vocab_size=size,
        hidden_size=size,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=4,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        model.lm_head.weight.zero_()
        for answer in answers:
            ids = [*tokenizer(answer)["input_ids"], tokenizer.eos_token_id]
            for before, after in pairwise(ids):
                model.lm_head.weight[after, before] = 50.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
