"""vLLM on a GPU: memory that goes while it sleeps, and the same log-probs as Transformers. Skipped where there is none."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from rlctl.common.errors import RunError
from rlctl.config import config_from
from rlctl.runtime.rollout.vllm import VllmEngine
from rlctl.runtime.specs.served import rollout_spec
from rlctl.runtime.types import Request, Sampling
from rlctl.runtime.workers.rollout import make_engine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.soak,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
ASKED = [Request((1, 2, 3 + i), Sampling(max_tokens=16, temperature=0.8), 4, seed=i) for i in range(4)]
SHAPE = Qwen3Config(
    vocab_size=4096, hidden_size=1024, intermediate_size=4096, num_hidden_layers=8, num_attention_heads=8,
    num_key_value_heads=4, head_dim=128, max_position_embeddings=512, bos_token_id=None, eos_token_id=None,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(SHAPE).save_pretrained(made)
    return made


@pytest.mark.parametrize("level", [1, 2])
def test_sleep_gives_the_memory_to_training_and_new_weights_bring_it_back(folder: Path, level: int) -> None:
    # vLLM's allocator for sleep serves one engine a process.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        process.submit(sleep_and_come_back, folder, level).result()


def sleep_and_come_back(folder: Path, level: int) -> None:
    """Generate, sleep, take new weights, generate again."""
    memory = {"gpu_memory_utilization": 0.3, "sleep_level": level, "enforce_eager": True}
    rollout = {"engine": "vllm", "precision": "bfloat16", "memory": memory}
    placement = {"device": "cuda", "devices_per_node": 1}
    config = config_from({"model": {"path": str(folder)}, "rollout": rollout, "placement": placement})
    engine = make_engine(rollout_spec(config, "vllm", str(folder), "cuda"))
    assert isinstance(engine, VllmEngine)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    before = engine.generate(ASKED)
    awake = torch.cuda.mem_get_info()[0]
    engine.sleep()
    asleep = torch.cuda.mem_get_info()[0]
    assert asleep - awake > 2 << 30
    with pytest.raises(RunError):
        engine.generate(ASKED)
    engine.load_weights(model.named_parameters(), version=1)
    assert torch.cuda.mem_get_info()[0] - awake > 1 << 30, "the KV cache comes back with the first prompt only"
    engine.wake()
    after = engine.generate(ASKED)
    apart = [
        abs(a - b)
        for one, other in zip(before, after, strict=True)
        for first, second in zip(one, other, strict=True)
        for a, b in zip(first.log_probs[:1], second.log_probs[:1], strict=True)
    ]
    assert max(apart) < 0.05
    engine.close()
