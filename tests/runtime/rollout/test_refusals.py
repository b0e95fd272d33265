"""What the engine cannot do is refused before anything is computed, with what was asked and what is possible."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, MambaConfig, PretrainedConfig, Qwen3NextConfig, T5Config

from rlctl.common.errors import RlctlError, RunError
from rlctl.config.sections.model import Model
from rlctl.config.sections.train import MemorySettings
from rlctl.runtime.rollout.transformers import TransformersEngine
from rlctl.runtime.train.model import load
from rlctl.runtime.types import Request, Sampling

from .conftest import MakeModel

FINE = Sampling(max_tokens=4)
REFUSED_REQUESTS = {
    "the prompt is empty": Request((), FINE, 1, seed=0),
    "n is 0": Request((1,), FINE, 0, seed=0),
    r"100 prompt tokens \+ max_tokens 29 = 129; the engine's max_length is 128": Request(
        (1,) * 100, Sampling(max_tokens=29), 1, seed=0
    ),
    "token id 64; the model's vocabulary has ids 0 to 63": Request((1, 64), FINE, 1, seed=0),
    "token id -1; ": Request((1,), Sampling(max_tokens=4, stop_token_ids=(-1,)), 1, seed=0),
    "max_tokens is 0": Request((1,), Sampling(max_tokens=0), 1, seed=0),
    "min_tokens is 5; expected 0 to max_tokens": Request((1,), Sampling(max_tokens=4, min_tokens=5), 1, seed=0),
    "min_tokens is 1 and every token": Request(
        (1,), Sampling(max_tokens=4, min_tokens=1, stop_token_ids=tuple(range(64))), 1, seed=0
    ),
    "temperature is -1": Request((1,), Sampling(max_tokens=4, temperature=-1.0), 1, seed=0),
    "top_p is 0": Request((1,), Sampling(max_tokens=4, top_p=0.0), 1, seed=0),
    "top_k is 0": Request((1,), Sampling(max_tokens=4, top_k=0), 1, seed=0),
    "repetition_penalty is 0": Request((1,), Sampling(max_tokens=4, repetition_penalty=0.0), 1, seed=0),
}


@pytest.mark.parametrize("message", REFUSED_REQUESTS)
def test_a_request_that_cannot_be_answered_is_named(make_model: MakeModel, message: str) -> None:
    engine = TransformersEngine(str(make_model()))
    with pytest.raises(RunError, match=f"request 1: {message}"):
        engine.generate([Request((1, 2), FINE, 2, seed=0), REFUSED_REQUESTS[message]])
    assert engine.tokens_computed.total == 0


def test_a_request_that_just_fits_is_answered(make_model: MakeModel) -> None:
    request = Request((1,) * 100, Sampling(max_tokens=28), 1, seed=0)
    assert len(TransformersEngine(str(make_model())).generate([request])[0][0].token_ids) == 28


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_batch_rows": 0}, "max_batch_rows is 0"),
        ({"max_prompt_positions": 0}, "max_prompt_positions is 0"),
        ({"max_length": 129}, "max_context_tokens is 129, but .* has 128 positions"),
        ({"max_length": 1}, "max_context_tokens is 1;"),
        ({"attention": "flash_attention_3"}, "no attention .flash_attention_3.; expected one of auto, sdpa, eager"),
    ],
)
def test_settings_that_cannot_work_are_refused(make_model: MakeModel, settings: dict[str, int], message: str) -> None:
    with pytest.raises(RunError, match=message):
        TransformersEngine(str(make_model()), **settings)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(make_model: MakeModel) -> None:
    with pytest.raises(RunError, match="device cuda; this machine has no GPU"):
        TransformersEngine(str(make_model()), device="cuda")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(RunError, match=f"cannot load a causal language model from {path}"):
            TransformersEngine(str(path))


def test_weights_that_are_cut_off_are_told_as_such(make_model: MakeModel, tmp_path: Path) -> None:
    """As a download that was broken off leaves them."""
    folder = shutil.copytree(make_model(), tmp_path / "model")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(RunError, match=f"cannot load a causal language model from {folder}: .*(file|header|buffer)"):
        TransformersEngine(str(folder))
    with pytest.raises(RunError, match=f"the model {folder} could not be loaded"):
        load(Model(path=str(folder)), MemorySettings(), dtype=torch.float32, train=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_attention_heads": 0}, "modulo by zero"),
        ({"num_hidden_layers": 7}, "num_hidden_layers"),
        ({"vocab_size": 63}, "the shapes of its weights differ from its config.json"),
    ],
)
def test_a_model_whose_config_does_not_fit_its_weights(
    make_model: MakeModel, tmp_path: Path, changes: dict[str, int], message: str
) -> None:
    folder = shutil.copytree(make_model(), tmp_path / "model")
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    with pytest.raises(RunError, match=rf"(?s)cannot load a causal language model from {folder}: .*{message}"):
        TransformersEngine(str(folder))
    with pytest.raises(RunError, match=rf"(?s)the model {folder} could not be loaded: .*{message}"):
        load(Model(path=str(folder)), MemorySettings(), dtype=torch.float32, train=True)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (MambaConfig(hidden_size=8, num_hidden_layers=1, vocab_size=64), "no key-value cache|without a plain"),
        (T5Config(d_model=8, num_layers=1, vocab_size=64), "encoder-decoder"),
        (Qwen3NextConfig(), r"without a plain key-value cache \(linear_attention\)"),
    ],
    ids=["mamba", "t5", "qwen3-next"],
)
def test_models_without_a_plain_cache_are_refused(tmp_path: Path, config: PretrainedConfig, message: str) -> None:
    config.save_pretrained(tmp_path)
    with pytest.raises(RlctlError, match=message):
        TransformersEngine(str(tmp_path))


def test_a_model_of_another_family_runs(make_model: MakeModel) -> None:
    """Learned positions, no rotary embedding, no key-value groups: nothing in the engine is Qwen's."""
    folder = make_model("gpt2", config=GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64, n_positions=64))
    requests = [Request((1, 2, 3), FINE, 2, seed=0), Request((5,), FINE, 2, seed=0)]
    engine = TransformersEngine(str(folder))
    together, alone = engine.generate(requests), [engine.generate([r])[0] for r in requests]
    assert [[a.token_ids for a in g] for g in together] == [[a.token_ids for a in g] for g in alone]
