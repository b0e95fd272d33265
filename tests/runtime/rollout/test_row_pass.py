"""Rows are computed by layers of ours where these are known, and differ from Transformers' by rounding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, PreTrainedConfig, Qwen2Config

from rlctl.runtime.rollout.attention import GROUPED, register
from rlctl.runtime.rollout.row_pass import row_pass
from rlctl.runtime.rollout.transformers import TransformersEngine
from rlctl.runtime.types import Request, Sampling
from tests.runtime.rollout.conftest import SIZES, MakeModel

REQUESTS = [
    Request(tuple(range(3, 3 + length)), seed=length, n=3, sampling=Sampling(max_tokens=12)) for length in (2, 9, 5)
]
BOUND = 4e-5
"""Of the error of a log-prob; logits of these models are up to 10."""
WINDOW = {"sliding_window": 8, "use_sliding_window": True}


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_log_probs_differ_by_rounding(make_model: MakeModel, kind: str) -> None:
    folder = str(make_model(kind))
    own = TransformersEngine(folder, max_batch_rows=4)  # rows leave, and others take their place
    plain = TransformersEngine(folder, max_batch_rows=4, exact=True)
    wide = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    largest = {"own": 0.0, "plain": 0.0}
    for name, engine in (("own", own), ("plain", plain)):
        for request, group in zip(REQUESTS, engine.generate(REQUESTS), strict=True):
            for response in group:
                tokens = torch.tensor([*request.token_ids, *response.token_ids])
                with torch.no_grad():
                    exact = wide(tokens[None]).logits[0, :-1].log_softmax(-1).gather(1, tokens[1:, None])[:, 0]
                error = exact[-len(response.token_ids) :] - torch.tensor(response.log_probs, dtype=torch.float64)
                largest[name] = max(largest[name], float(error.abs().max()))
    assert 0 < largest["own"] < BOUND
    assert 0 < largest["plain"] < BOUND


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_new_weights_reach_the_joined_ones(make_model: MakeModel, kind: str) -> None:
    engine = TransformersEngine(str(make_model(kind)))
    new = TransformersEngine(str(make_model(kind, seed=1)))
    before = engine.generate(REQUESTS)
    engine.load_weights([(name, tensor.clone()) for name, tensor in new.model.named_parameters()], version=1)
    after = engine.generate(REQUESTS)
    assert after != before
    assert [[replace(r, weight_version=0) for r in group] for group in after] == new.generate(REQUESTS)


@pytest.mark.parametrize(
    ("config", "dtype", "known"),
    [
        (Qwen2Config(**SIZES), torch.float32, True),
        (LlamaConfig(**SIZES, attention_bias=True), torch.float32, True),
        (MistralConfig(**SIZES, sliding_window=None), torch.float32, True),
        (Qwen2Config(**SIZES), torch.bfloat16, False),
        (Qwen2Config(**SIZES, **WINDOW), torch.float32, False),
        (MistralConfig(**SIZES, sliding_window=8), torch.float32, False),
        (Qwen2Config(**SIZES, hidden_act="gelu"), torch.float32, False),
        (LlamaConfig(**SIZES, mlp_bias=True), torch.float32, False),
    ],
)
def test_other_models_are_left_to_transformers(config: PreTrainedConfig, dtype: torch.dtype, known: bool) -> None:
    register()
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=GROUPED)
    assert (row_pass(model) is not None) == known
