"""Megatron-core records and replays experts as FSDP2 does, however its workers share a model (``algorithm.router_replay``)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from rlctl.common.errors import PlanError
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.config.sections.train import Fsdp2, Megatron, Moe, Train
from tests.runtime.train import replay_jobs
from tests.runtime.train.jobs import make_samples, settings
from tests.runtime.train.megatron.conftest import EXPERTS, some
from tests.runtime.train.processes import Workers
from tests.runtime.train.replay_jobs import Replayed
from tests.runtime.train.test_replay import by_hand, close, far

MICRO = MicroBatchSize(unit="tokens", size=40)
AGAIN: dict[str, Any] = {"recompute_granularity": "full"}
LAYOUTS: dict[str, tuple[str, Megatron]] = {
    "one": ("one", Megatron()),
    "recomputed": ("one", Megatron(**AGAIN)),
    "experts recomputed": ("one", Megatron(moe=Moe(layer_recompute=True, grouped_gemm=True))),
    "replicas": ("two", Megatron()),
    "experts": ("two", Megatron(expert_parallel_size=2)),
    "tensor and experts": (
        "two",
        Megatron(tensor_parallel_size=2, expert_parallel_size=2, expert_tensor_parallel_size=1, **AGAIN),
    ),
    "pipeline": ("two", Megatron(pipeline_parallel_size=2)),
    "virtual pipeline": ("two", Megatron(pipeline_parallel_size=2, virtual_pipeline_parallel_size=2, **AGAIN)),
    "context": ("two", Megatron(context_parallel_size=2)),
    "tensor and pipeline": ("four", Megatron(tensor_parallel_size=2, pipeline_parallel_size=2, **AGAIN)),
    "tensor and context": ("four", Megatron(tensor_parallel_size=2, context_parallel_size=2)),
    "pipeline and replicas": ("four", Megatron(pipeline_parallel_size=2)),
}


def training(engine: Any) -> Train:
    """One step of it has the weights choose other experts."""
    return dataclasses.replace(settings(lr=0.05, epsilon=1e-3), engine=engine)


@pytest.fixture(scope="module")
def alone(one: Workers, families: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Replayed:
    """What FSDP2 with one worker has, which is tested against Transformers."""
    target = tmp_path_factory.mktemp("fsdp2")
    [found] = one.run(
        replay_jobs.record_and_replay, families["qwen3_moe"], training(Fsdp2()), make_samples(9), MICRO, target
    )
    return found


@pytest.mark.parametrize("layout", some(LAYOUTS, "recomputed", "tensor and experts", "virtual pipeline", "context"))
def test_experts_are_recorded_and_replayed_as_by_fsdp2(
    layout: str, families: dict[str, Path], alone: Replayed, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The same experts, log-probs and gradient; those of then once the weights have changed."""
    fixture, engine = LAYOUTS[layout]
    workers: Workers = request.getfixturevalue(fixture)
    job = families["qwen3_moe"], training(engine), make_samples(9), MICRO, tmp_path
    told: list[Replayed] = workers.run(replay_jobs.record_and_replay, *job)
    replicas = 1 + max(each.replica for each in told)
    for each in told:
        part = slice(each.replica, None, replicas)
        assert all((a == b).all() for a, b in zip(each.experts, alone.experts[part], strict=True))
        close(each.recorded, alone.recorded[part])
        close(each.replayed, each.recorded, rtol=0, atol=5e-6)
        assert each.metrics["grad_norm"] == pytest.approx(alone.metrics["grad_norm"], rel=1e-4)
        close(each.after, alone.after[part], atol=2e-3)
        assert far(each.after, each.own) > 0.1, "the changed weights choose other experts"


def test_log_probs_are_those_of_transformers_at_these_experts(one: Workers, families: dict[str, Path]) -> None:
    samples, generator = make_samples(5), torch.Generator().manual_seed(5)
    for sample in samples:
        order = torch.rand(len(sample), 3, EXPERTS["num_experts"], generator=generator).argsort(-1)
        sample.routed_experts = order[..., : EXPERTS["num_experts_per_tok"]].to(torch.uint8)
    with torch.no_grad():
        expected = by_hand(AutoModelForCausalLM.from_pretrained(families["qwen3_moe"]), samples)
    [found] = one.run(replay_jobs.given, families["qwen3_moe"], training(Megatron()), samples, MICRO)
    close(found, expected)


def test_a_model_without_experts_is_refused(one: Workers, families: dict[str, Path]) -> None:
    with pytest.raises(PlanError, match=r"the megatron engine supports it only for .* this is a llama model"):
        one.run(replay_jobs.given, families["llama"], training(Megatron()), make_samples(2), MICRO)
