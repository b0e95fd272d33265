"""A training step is its optimizer steps in order, each on its whole mini-batch, with the schedule ticking as configured."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from rlctl.common.errors import PlanError
from rlctl.config import Config
from rlctl.config.sections.algorithm import Algorithm, DpoObjective, OtherLoss, SftObjective
from rlctl.config.sections.batch import Batch, MicroBatchSize
from rlctl.config.sections.rollout import Rollout, SamplingSettings
from rlctl.config.sections.train import (
    LrScheduler,
    MemorySettings,
    Optimizer,
    OtherTrainEngine,
    PrecisionSettings,
    Train,
)
from rlctl.runtime.specs.trained import loss_spec, trainer_spec, training_temperature
from rlctl.runtime.train.losses import PolicyLoss, SftLoss, totals_of
from rlctl.runtime.train.objectives import DpoLoss
from rlctl.runtime.types import Sample
from rlctl.runtime.workers.sharding import mini_batches, split_over_replicas
from rlctl.runtime.workers.trainer import Share, make_engine, make_loss
from tests.runtime.train.processes import Workers
from tests.runtime.workers import jobs


def make_config(tick: str = "step", **batch: Any) -> Config:
    precision = PrecisionSettings(parameters="float32", compute="float32", reduce="float32")
    return Config(
        batch=Batch(mini_batch_responses=4, micro_batch=MicroBatchSize(size=64), **batch),
        train=Train(
            precision=precision,
            optimizer=Optimizer(lr=1e-2, epsilon=1e-2),
            lr_scheduler=LrScheduler(type="linear", step_unit=tick),  # type: ignore[arg-type]
            memory=MemorySettings(recompute_activations=False),
        ),
    )


def make_samples(count: int) -> list[Sample]:
    generator = torch.Generator().manual_seed(3)
    samples = []
    for _ in range(count):
        length = int(torch.randint(6, 20, (), generator=generator))
        columns = {name: torch.randn(length, generator=generator) for name in ("advantages",)}
        columns["old_log_probs"] = torch.full((length,), -4.0)
        columns["rollout_log_probs"] = torch.full((length,), -4.0)
        samples.append(Sample(torch.randint(0, 64, (length,), generator=generator), torch.arange(length) >= 3, columns))
    return samples


def shares_of(samples: Sequence[Sample], config: Config, workers: int, *, balance: bool = True) -> list[list[Share]]:
    """A step as the controller cuts it: by worker, then by optimizer step."""
    shares: list[list[Share]] = [[] for _ in range(workers)]
    for members in mini_batches(len(samples), config.batch, seed=1, step=1):
        batch = [samples[index] for index in members]
        for rank, part in enumerate(split_over_replicas([len(each) for each in batch], workers, balance=balance)):
            shares[rank].append(Share([batch[index] for index in part], totals_of(batch), part))
    return shares


@pytest.mark.parametrize(
    ("tick", "rates"),
    [
        ("step", [[1, 1, 1, 1], [7 / 8] * 4]),
        ("optimizer_step", [[1, 7 / 8, 6 / 8, 5 / 8], [4 / 8, 3 / 8, 2 / 8, 1 / 8]]),
    ],
)
def test_the_schedule_ticks_as_configured(two: Workers, model: Path, tick: str, rates: list[list[float]]) -> None:
    config = make_config(tick, ppo_epochs=2)
    step = shares_of(make_samples(8), config, 2)
    (_, metrics), other = two.run(jobs.train, config, model, [step, step], False)
    found = [[each["lr"] / 1e-2 for each in step] for step in metrics]
    assert found == [pytest.approx(row) for row in rates]
    assert other == ({}, metrics)


def test_how_samples_are_shared_does_not_change_a_step(two: Workers, model: Path) -> None:
    config, samples = make_config(), make_samples(10)
    (plain, first), _ = two.run(jobs.train, config, model, [shares_of(samples, config, 2, balance=False)], False)
    (balanced, second), _ = two.run(jobs.train, config, model, [shares_of(samples, config, 2)], False)
    assert len(first[0]) == 3  # mini-batches of 4, 4 and 2
    assert first[0][2] == pytest.approx(second[0][2], rel=1e-4)
    for name, tensor in plain.items():
        torch.testing.assert_close(tensor, balanced[name], rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("kind", ["clip_cov", "kl_cov"])
def test_tokens_chosen_by_covariance_are_the_same_however_a_step_is_split(two: Workers, model: Path, kind: str) -> None:
    """One in four tokens, over mini-batches of four, which workers and micro-batches share in two ways."""
    args = {"clip_cov_ratio": 0.25, "clip_cov_lb": 0.05, "kl_cov_ratio": 0.25, "clip_low": 9.0, "clip_high": 9.0}
    chosen = Algorithm(policy_loss=OtherLoss(kind=kind, args=args))
    config, samples = dataclasses.replace(make_config(), algorithm=chosen), make_samples(8)
    found = []
    for balance, size in ((True, 64), (False, 16)):
        batch = dataclasses.replace(config.batch, micro_batch=MicroBatchSize(size=size))
        cut = dataclasses.replace(config, batch=batch)
        (weights, metrics), _ = two.run(jobs.train, cut, model, [shares_of(samples, cut, 2, balance=balance)], False)
        found.append((weights, metrics[0]))
    (one, first), (other, second) = found
    assert 0.1 < first[0]["clip_fraction"] < 0.3
    for mine, theirs in zip(first, second, strict=True):
        assert mine["clip_fraction"] == pytest.approx(theirs["clip_fraction"])
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name], rtol=1e-4, atol=1e-5)


def test_the_first_mini_batch_may_take_the_current_policy_for_the_old_one(two: Workers, model: Path) -> None:
    """As if the log-probs had been computed before the step; the second mini-batch needs them, and says so."""
    config, samples = make_config(), make_samples(4)
    before = two.run(jobs.policy_and_reference, config, model, [], samples)[0][1]
    given = copy.deepcopy(samples)
    for sample, log_probs in zip(given, before, strict=True):
        sample.columns["old_log_probs"] = log_probs
    for sample in samples:
        del sample.columns["old_log_probs"]
    (computed, _), _ = two.run(jobs.train, config, model, [shares_of(given, config, 2)], False)
    (current, _), _ = two.run(jobs.train, config, model, [shares_of(samples, config, 2)], True)
    for name, tensor in computed.items():
        torch.testing.assert_close(tensor, current[name], rtol=1e-5, atol=5e-6)


def test_the_reference_stays_where_the_policy_began(two: Workers, model: Path) -> None:
    config, samples = make_config(), make_samples(8)
    reference, before, after = two.run(
        jobs.policy_and_reference, config, model, [shares_of(samples, config, 2)], samples
    )[1]
    assert all(torch.equal(*pair) for pair in zip(reference, before, strict=True))
    assert not any(torch.equal(*pair) for pair in zip(reference, after, strict=True))


def test_the_loss_is_that_of_the_objective() -> None:
    assert isinstance(make_loss(loss_spec(Config())), PolicyLoss)
    assert isinstance(make_loss(loss_spec(Config(algorithm=Algorithm(objective=SftObjective())))), SftLoss)
    assert isinstance(make_loss(loss_spec(Config(algorithm=Algorithm(objective=DpoObjective())))), DpoLoss)


def test_an_engine_that_is_not_here_is_refused() -> None:
    with pytest.raises(PlanError, match="torchtitan is not a training engine; expected one of fsdp2, megatron"):
        make_engine(trainer_spec(Config(train=Train(engine=OtherTrainEngine(kind="torchtitan"))), "", None), "cpu")


@pytest.mark.parametrize(
    ("algorithm", "temperature", "expected"),
    [
        (Algorithm(), 0.7, 0.7),
        (Algorithm(), 0.0, 1.0),
        (Algorithm(train_temperature="one"), 0.7, 1.0),
        (Algorithm(objective=SftObjective()), 0.7, 1.0),
    ],
)
def test_training_logits_are_divided_by_the_sampling_temperature(
    algorithm: Algorithm, temperature: float, expected: float
) -> None:
    config = Config(algorithm=algorithm, rollout=Rollout(sampling=SamplingSettings(temperature=temperature)))
    assert training_temperature(config) == expected


@pytest.mark.parametrize("world", ["one", "two"])
def test_weights_are_given_out_in_buckets_by_the_first_worker(
    request: pytest.FixtureRequest, model: Path, world: str
) -> None:
    """Also after a sync that was broken off: the other worker is not left waiting."""
    workers: Workers = request.getfixturevalue(world)
    (sent, expected), *others = workers.run(jobs.give_out, make_config(), model, 4096)
    assert all(other == ({}, {}) for other in others)
    assert list(sent) == list(expected)
    assert all(torch.equal(sent[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("senders", [(0, 1), (1,)])
def test_every_worker_that_sends_has_all_weights(model: Path, two: Workers, senders: tuple[int, ...]) -> None:
    """As engines on the GPUs of several train workers are given theirs by each."""
    found = two.run(jobs.give_out_by, make_config(), model, senders)
    alone = found[0][0]
    assert alone
    for rank, (_, sent) in enumerate(found):
        assert sent.keys() == (alone.keys() if rank in senders else set())
        assert all(torch.equal(tensor, alone[name]) for name, tensor in sent.items())
