"""Workers that share a sequence compute what one computes alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from rlctl.common.errors import PlanError
from rlctl.config.sections.train import Fsdp2
from tests.runtime.train import jobs
from tests.runtime.train.jobs import ALL_AT_ONCE, FLOAT64, make_samples, settings
from tests.runtime.train.processes import Workers
from tests.runtime.train.test_fsdp import AGGREGATED, POLICY_LOSS

SHARED = Fsdp2(ulysses_sequence_parallel_size=2)


@pytest.mark.parametrize("kind", ["qwen2", "gpt2"])
def test_two_workers_on_one_sequence_take_the_step_of_one_in_float64(
    one: Workers, two: Workers, models: dict[str, Path], kind: str
) -> None:
    """To 1e-12, with several micro-batches, of which the last slice is filled up where tokens do not divide."""
    samples, train = make_samples(7), settings(FLOAT64, epsilon=1.0)
    [(whole, metrics)] = one.run(jobs.updates, models[kind], train, samples, POLICY_LOSS, ALL_AT_ONCE, 2)
    shared = dataclasses.replace(train, engine=SHARED)
    for micro in (ALL_AT_ONCE, dataclasses.replace(ALL_AT_ONCE, size=33)):
        (parts, found), other = two.run(jobs.shared_updates, models[kind], shared, samples, POLICY_LOSS, micro, 2)
        assert other[1] == found
        for mine, alone in zip(found, metrics, strict=True):
            assert mine == pytest.approx(alone, rel=1e-11, abs=1e-11)
        for name, tensor in parts.items():
            torch.testing.assert_close(tensor, whole[name], rtol=0, atol=1e-12)


def test_log_probs_statistics_and_values_are_those_of_one_worker(
    one: Workers, two: Workers, models: dict[str, Path]
) -> None:
    samples = make_samples(5)
    shared = dataclasses.replace(settings(), engine=SHARED)
    for role in ("policy", "critic"):
        [alone] = one.run(jobs.all_tokens, models["qwen2"], settings(), samples, role)
        for found in two.run(jobs.all_tokens, models["qwen2"], shared, samples, role):
            for mine, theirs in zip(found, alone, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.soak  # four processes import torch: 48 s
def test_four_workers_on_two_sequences_share_the_two_heads_with_keys(one: Workers, models: dict[str, Path]) -> None:
    """Sequences over pairs of workers, samples over the pairs, weights over all; then four workers on one sequence, which
    two heads with keys are repeated for. To 1e-5 in float32."""
    samples, train = make_samples(6), settings(epsilon=1.0)
    loss = AGGREGATED["seq_mean_token_mean"]
    [(whole, metrics)] = one.run(jobs.updates, models["qwen2"], train, samples, loss, ALL_AT_ONCE)
    four = Workers(4)
    try:
        for size, shard in ((2, "all"), (2, 1), (4, "all")):
            engine = Fsdp2(ulysses_sequence_parallel_size=size, fsdp_size=shard)  # type: ignore[arg-type]
            shared = dataclasses.replace(train, engine=engine)
            (parts, found), *_ = four.run(jobs.shared_updates, models["qwen2"], shared, samples, loss, ALL_AT_ONCE)
            assert found[0] == pytest.approx(metrics[0], rel=1e-5, abs=1e-6)
            for name, tensor in parts.items():
                torch.testing.assert_close(tensor, whole[name], rtol=1e-5, atol=1e-6)
    finally:
        four.close()


def test_recomputed_activations_and_fused_log_probs_go_with_it(
    one: Workers, two: Workers, models: dict[str, Path]
) -> None:
    samples, train = make_samples(5), settings(FLOAT64, epsilon=1.0)
    [(whole, _)] = one.run(jobs.updates, models["llama"], train, samples, POLICY_LOSS, ALL_AT_ONCE)
    shared = dataclasses.replace(
        jobs.with_memory(train, recompute_activations=True),
        engine=SHARED,
        fused_kernels=dataclasses.replace(train.fused_kernels, enabled=True),
    )
    (parts, _), _ = two.run(jobs.shared_updates, models["llama"], shared, samples, POLICY_LOSS, ALL_AT_ONCE)
    for name, tensor in parts.items():
        torch.testing.assert_close(tensor, whole[name], rtol=0, atol=1e-12)


def test_a_model_that_pads_is_refused(two: Workers, models: dict[str, Path]) -> None:
    shared = dataclasses.replace(settings(), engine=SHARED)
    with pytest.raises(PlanError, match="needs packed sequences"):
        two.run(jobs.updates, models["qwen2"], shared, make_samples(3), POLICY_LOSS, ALL_AT_ONCE, 1, "sdpa")
