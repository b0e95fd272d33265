"""The Megatron engine computes what the FSDP2 engine computes with one worker, however its workers share a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from rlctl.common.errors import PlanError
from rlctl.config.sections.algorithm import Algorithm, KlInLoss
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.config.sections.train import Fsdp2, Megatron, Moe, ValueLoss
from rlctl.runtime.train.interface import Role
from rlctl.runtime.train.losses import CriticLoss, PolicyLoss
from rlctl.runtime.types import Sample
from tests.runtime.train.jobs import make_samples
from tests.runtime.train.megatron import engine_jobs
from tests.runtime.train.megatron.conftest import some
from tests.runtime.train.megatron.engine_jobs import EngineResult
from tests.runtime.train.processes import Workers

MICRO = MicroBatchSize(unit="tokens", size=40)
POLICY_LOSS = PolicyLoss.of(
    Algorithm(kl_in_loss=KlInLoss(estimator="k3", coefficient=0.1), entropy_coefficient=0.01), max_response_tokens=32
)
CRITIC_LOSS = CriticLoss.of(ValueLoss(), max_response_tokens=32)

LAYOUTS: dict[str, tuple[str, str, Megatron]] = {
    "one": ("one", "llama", Megatron()),
    "selective recomputation": (
        "one",
        "qwen3",
        Megatron(recompute_granularity="selective", recompute_modules=("core_attn", "layernorm")),
    ),
    "tensor": ("two", "qwen2", Megatron(tensor_parallel_size=2, sequence_parallel=False)),
    "tensor and sequence": ("two", "qwen3", Megatron(tensor_parallel_size=2)),
    "full recomputation": ("two", "llama", Megatron(tensor_parallel_size=2, recompute_granularity="full")),
    "pipeline": ("two", "qwen2", Megatron(pipeline_parallel_size=2)),
    "virtual pipeline": ("two", "qwen2", Megatron(pipeline_parallel_size=2, virtual_pipeline_parallel_size=2)),
    "context": ("two", "llama", Megatron(context_parallel_size=2)),
    "replicas": ("two", "llama", Megatron()),
    "replicas that overlap": (
        "two",
        "llama",
        Megatron(overlap_gradient_reduce=True, overlap_parameter_gather=True),
    ),
    "replicas with whole optimizers": ("two", "llama", Megatron(distributed_optimizer=False)),
    "experts": ("two", "qwen3_moe", Megatron(expert_parallel_size=2)),
    "experts over tensor workers": (
        "two",
        "qwen3_moe",
        Megatron(tensor_parallel_size=2, expert_parallel_size=2, expert_tensor_parallel_size=1),
    ),
    "experts in one call": (
        "two",
        "qwen3_moe",
        Megatron(
            expert_parallel_size=2,
            moe=Moe(grouped_gemm=True),
            recompute_granularity="selective",
            recompute_modules=("moe_act",),
        ),
    ),
    "tensor and pipeline": ("four", "qwen3", Megatron(tensor_parallel_size=2, pipeline_parallel_size=2)),
    "tensor and context": ("four", "llama", Megatron(tensor_parallel_size=2, context_parallel_size=2)),
    "pipeline and replicas": ("four", "llama", Megatron(pipeline_parallel_size=2)),
    "more tensor workers than groups of heads": ("four", "qwen2", Megatron(tensor_parallel_size=4)),
}


def samples_of(role: Role) -> list[Sample]:
    samples, generator = make_samples(9), torch.Generator().manual_seed(4)
    for sample in samples if role == "critic" else ():
        sample.columns["old_values"] = 0.5 * torch.randn(len(sample), generator=generator)
        sample.columns["returns"] = torch.randn(len(sample), generator=generator)
    return samples


@pytest.fixture(scope="module")
def expected(one: Workers, families: dict[str, Path]) -> Callable[[str, Role], EngineResult]:
    """What the FSDP2 engine with one worker says of a family, once."""
    known: dict[tuple[str, Role], EngineResult] = {}

    def of(family: str, role: Role = "policy") -> EngineResult:
        if (family, role) not in known:
            loss = CRITIC_LOSS if role == "critic" else POLICY_LOSS
            job = (families[family], Fsdp2(), role, samples_of(role), loss, MICRO)
            [known[family, role]] = one.run(engine_jobs.train, *job)
        return known[family, role]

    return of


def check(told: list[EngineResult], expected: EngineResult) -> None:
    """Float32: log-probs within 2e-5, after the steps within 1e-4, metrics within 1e-4 of their size, weights within 1e-5."""
    replicas = 1 + max(each.replica for each in told)
    count = len(expected.after)
    for each in told:
        pairs = ((each.before, expected.before, 2e-5), (each.after, expected.after, 1e-4))
        for mine, whole, tolerance in pairs:
            # as many numbers a token as there are names, under each name those of the replica's samples
            theirs = [
                of
                for start in range(0, len(whole), count)
                for of in whole[start : start + count][each.replica :: replicas]
            ]
            assert len(mine) == len(theirs)
            for one, other in zip(mine, theirs, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-5, atol=tolerance)
        for mine, theirs in zip(each.metrics, expected.metrics, strict=True):
            assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-5)
        assert each.metrics == told[0].metrics
    assert told[0].weights.keys() == expected.weights.keys()
    for name, weight in expected.weights.items():
        torch.testing.assert_close(
            told[0].weights[name], weight, rtol=1e-5, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )
    assert not any(each.weights for each in told[1:])


ALWAYS = (
    "one",
    "tensor and sequence",
    "virtual pipeline",
    "context",
    "replicas that overlap",
    "experts",
)


@pytest.mark.parametrize("layout", some(LAYOUTS, *ALWAYS))
def test_steps_are_those_of_fsdp2(
    layout: str,
    families: dict[str, Path],
    expected: Callable[[str, Role], EngineResult],
    request: pytest.FixtureRequest,
) -> None:
    fixture, family, engine = LAYOUTS[layout]
    workers: Workers = request.getfixturevalue(fixture)
    told = workers.run(engine_jobs.train, families[family], engine, "policy", samples_of("policy"), POLICY_LOSS, MICRO)
    check(told, expected(family, "policy"))


@pytest.mark.parametrize("layout", some(LAYOUTS, "tensor and sequence", "experts in one call"))
def test_what_a_gpu_compiles_computes_the_same(
    layout: str,
    families: dict[str, Path],
    expected: Callable[[str, Role], EngineResult],
    request: pytest.FixtureRequest,
) -> None:
    """Rows of logits, norms, activations of experts, and Megatron-core's own activation of other layers."""
    fixture, family, engine = LAYOUTS[layout]
    job = (families[family], engine, "policy", samples_of("policy"), POLICY_LOSS, MICRO)
    check(request.getfixturevalue(fixture).run(engine_jobs.train_compiled, *job), expected(family, "policy"))


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(Megatron(tensor_parallel_size=2), marks=pytest.mark.soak, id="tensor"),
        pytest.param(Megatron(pipeline_parallel_size=2), id="pipeline"),
    ],
)
def test_a_critic_is_that_of_fsdp2(
    engine: Megatron, two: Workers, families: dict[str, Path], expected: Callable[[str, Role], EngineResult]
) -> None:
    samples = samples_of("critic")
    told = two.run(engine_jobs.train, families["llama"], engine, "critic", samples, CRITIC_LOSS, MICRO)
    check(told, expected("llama", "critic"))


@pytest.mark.parametrize("distributed", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_bfloat16_is_near_that_of_fsdp2(distributed: bool, two: Workers, families: dict[str, Path]) -> None:
    engine = Megatron(tensor_parallel_size=2, distributed_optimizer=distributed)
    samples = samples_of("policy")
    told = two.run(engine_jobs.train_narrow, families["llama"], engine, samples, POLICY_LOSS, MICRO)
    expected = two.run(engine_jobs.train_narrow, families["llama"], Fsdp2(), samples, POLICY_LOSS, MICRO)
    for mine, theirs in zip(told[0], expected[0], strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=0.1, abs=0.05)
        assert mine["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=0.2)


def test_a_gradient_that_is_not_finite_moves_nothing(two: Workers, families: dict[str, Path]) -> None:
    samples = make_samples(4)
    samples[0].columns["advantages"][:] = float("nan")
    for told in two.run(
        engine_jobs.refused, families["llama"], Megatron(tensor_parallel_size=2), samples, POLICY_LOSS, MICRO
    ):
        assert told.metrics[0]["skipped_updates"] == 1
        assert told.metrics[1]["same"] == 1


def test_a_router_that_is_frozen_stays(one: Workers, families: dict[str, Path]) -> None:
    engine = Megatron(moe=Moe(freeze_router=True))
    job = (families["qwen3_moe"], engine, "policy", samples_of("policy"), POLICY_LOSS, MICRO)
    [told] = one.run(engine_jobs.train, *job)
    before = AutoModelForCausalLM.from_pretrained(families["qwen3_moe"]).state_dict()
    routers = [name for name in told.weights if name.endswith("mlp.gate.weight")]
    assert routers
    assert all((told.weights[name] == before[name]).all() for name in routers)
    assert not (told.weights["lm_head.weight"] == before["lm_head.weight"]).all()


def test_what_is_exported_is_loaded_by_transformers(two: Workers, families: dict[str, Path], tmp_path: Path) -> None:
    two.run(engine_jobs.exported, families["qwen2"], Megatron(pipeline_parallel_size=2), tmp_path / "hf")
    theirs = AutoModelForCausalLM.from_pretrained(families["qwen2"]).state_dict()
    for name, tensor in AutoModelForCausalLM.from_pretrained(tmp_path / "hf").state_dict().items():
        assert torch.equal(tensor, theirs[name]), name


def test_a_layout_that_does_not_divide_is_refused(two: Workers, families: dict[str, Path]) -> None:
    job: tuple[Any, ...] = (families["llama"], Megatron(tensor_parallel_size=3), make_samples(1), MICRO)
    with pytest.raises(PlanError, match="do not divide into replicas"):
        two.run(engine_jobs.log_probs, *job)


def test_whole_distributions_are_refused(one: Workers, families: dict[str, Path]) -> None:
    with pytest.raises(PlanError, match="part of the vocabulary"):
        one.run(engine_jobs.compared, families["llama"], Megatron(), make_samples(1), POLICY_LOSS, MICRO)
