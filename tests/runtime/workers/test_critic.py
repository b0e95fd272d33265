"""The critic worker goes by its own section of the config, and goes on exactly from what it saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader

from rlctl.common.errors import PlanError, RunError
from rlctl.config import Config, config_from
from rlctl.planning import arithmetic
from rlctl.runtime.specs.trained import check_critic
from rlctl.runtime.train.losses import totals_of
from rlctl.runtime.types import Sample
from rlctl.runtime.workers.critic import told_of_critic
from rlctl.runtime.workers.sharding import mini_batches, split_over_replicas
from rlctl.runtime.workers.trainer import Share
from tests.runtime.train.processes import Workers
from tests.runtime.workers import jobs

SECTION: dict[str, Any] = {
    "precision": {"compute": "float32"},
    "memory": {"recompute_activations": False},
    "optimizer": {"lr": 1e-2, "epsilon": 1e-2},
    "lr_scheduler": {"type": "linear", "step_unit": "optimizer_step"},
    "mini_batch_responses": 2,
    "ppo_epochs": 2,
    "micro_batch": {"unit": "tokens", "size": 40},
}


def make_config(**section: Any) -> Config:
    return config_from({"batch": {"mini_batch_responses": 8}, "critic": {**SECTION, **section}})


def make_samples(count: int) -> list[Sample]:
    generator = torch.Generator().manual_seed(3)
    samples = []
    for _ in range(count):
        length = int(torch.randint(6, 20, (), generator=generator))
        columns = {name: torch.randn(length, generator=generator) for name in ("old_values", "returns")}
        samples.append(Sample(torch.randint(0, 64, (length,), generator=generator), torch.arange(length) >= 3, columns))
    return samples


def shares_of(samples: list[Sample], config: Config) -> list[list[Share]]:
    """A step as the controller cuts it: by worker, then by optimizer step."""
    shares: list[list[Share]] = [[], []]
    for members in mini_batches(len(samples), arithmetic.critic_batch(config), seed=1, step=1):
        batch = [samples[index] for index in members]
        for rank, part in enumerate(split_over_replicas([len(each) for each in batch], 2, balance=True)):
            shares[rank].append(Share([batch[index] for index in part], totals_of(batch)))
    return shares


def test_a_step_goes_by_the_critics_own_section(two: Workers, model: Path) -> None:
    """4 samples in mini-batches of 2, twice, of 8 ticks in all; the policy's section says otherwise throughout."""
    config = make_config()
    [found, _] = two.run(jobs.critic, config, model, [shares_of(make_samples(4), config)], make_samples(4))
    [metrics] = found.metrics
    assert [each["lr"] for each in metrics] == pytest.approx([1e-2 * (8 - tick) / 8 for tick in range(4)])
    assert {"value_loss", "value_mean", "clip_fraction", "grad_norm"} <= set(metrics[0])


def test_it_learns_the_returns(two: Workers, model: Path) -> None:
    """After 8 steps the mean squared error of the values is less than half of what it was."""
    config = make_config(value_loss={"clip": None}, lr_scheduler={"type": "constant"}, optimizer={"lr": 1e-2})
    samples = make_samples(4)
    [found, _] = two.run(jobs.critic, config, model, [shares_of(samples, config)] * 8, samples)

    def error(values: Any) -> float:
        pairs = [((v - s.columns["returns"]) ** 2)[s.mask] for v, s in zip(values, samples, strict=True)]
        return float(torch.cat(pairs).mean())

    assert error(found.after) < error(found.before) / 2


def test_coefficient_and_clip_reach_the_loss(two: Workers, model: Path) -> None:
    samples = make_samples(4)

    def first(**value_loss: Any) -> dict[str, float]:
        config = make_config(value_loss=value_loss)
        metrics: dict[str, float] = two.run(jobs.critic, config, model, [shares_of(samples, config)], [])[0].metrics[0][
            0
        ]
        return metrics

    plain, weighed, unclipped = first(), first(coefficient=3.0), first(clip=None)
    assert weighed["loss"] == pytest.approx(3 * plain["loss"])
    assert weighed["value_loss"] == pytest.approx(plain["value_loss"])
    assert plain["clip_fraction"] > 0
    assert plain["value_loss"] > unclipped["value_loss"]


def test_adapters_of_a_critic_are_trained_and_kept_without_its_base(two: Workers, model: Path, tmp_path: Path) -> None:
    """The head, which the weights lack, has an adapter too; its base is drawn by the seed again."""
    config = make_config(model={"path": str(model), "lora": {"rank": 4, "alpha": 8}})
    samples = make_samples(4)
    steps = [shares_of(samples, config)] * 2
    whole, _ = two.run(jobs.critic, config, model, steps, samples, None, tmp_path / "critic", 1)
    rest, _ = two.run(jobs.critic, config, model, steps[1:], samples, tmp_path / "critic")
    assert whole.metrics[1:] == rest.metrics
    assert all(torch.equal(a, b) for a, b in zip(whole.after, rest.after, strict=True))
    assert not torch.equal(whole.before[0], whole.after[0])
    named = FileSystemReader(tmp_path / "critic").read_metadata().state_dict_metadata
    kept = {name.removeprefix("model/") for name in named if name.startswith("model/")}
    assert {"score.lora_A.default.weight", "score.lora_B.default.weight"} < kept
    assert all(".lora_" in name for name in kept)


def test_it_goes_on_exactly_from_what_it_saved(two: Workers, model: Path, tmp_path: Path) -> None:
    config = make_config(seed=5)
    samples = make_samples(4)
    steps = [shares_of(samples, config)] * 3
    whole = two.run(jobs.critic, config, model, steps, samples, None, tmp_path / "critic", 2)
    rest = two.run(jobs.critic, config, model, steps[2:], samples, tmp_path / "critic")
    for one, other in zip(whole, rest, strict=True):
        assert one.metrics[2:] == other.metrics
        assert all(torch.equal(a, b) for a, b in zip(one.after, other.after, strict=True))


def test_a_checkpoint_of_another_model_is_refused(two: Workers, model: Path, tmp_path: Path) -> None:
    config = make_config()
    steps = [shares_of(make_samples(2), config)]
    two.run(jobs.train_and_save_policy, config, model, tmp_path / "policy")
    with pytest.raises(RunError, match="does not fit the model"):
        two.run(jobs.critic, config, model, steps, [], tmp_path / "policy")


def test_a_critic_that_cannot_be_is_refused() -> None:
    with pytest.raises(PlanError, match="critic is null"):
        check_critic(config_from({"algorithm": {"advantage": "gae"}}))
    kept = config_from({"critic": {}, "checkpoint": {"keep_last": 2, "keep_last_critic": 3}})
    with pytest.raises(PlanError, match="keep_last_critic is 3"):
        check_critic(kept)
    check_critic(make_config())
    with (
        pytest.raises(PlanError, match=r"critic\.engine\.fsdp_size is 3 .* critic\.model\.freeze") as refused,
        told_of_critic(),
    ):
        raise PlanError("train.engine.fsdp_size is 3 and model.freeze", hint="set train.engine.fsdp_size to 1")
    assert refused.value.hint == "set critic.engine.fsdp_size to 1"
