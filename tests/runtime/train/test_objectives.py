"""Preference pairs, expert responses beside rollouts, and imitation: by hand, as TRL computes them, and however split."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from transformers import AutoModelForCausalLM
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from rlctl.common.errors import PlanError
from rlctl.config import config_from
from rlctl.config.sections.algorithm import Algorithm, DpoObjective, KlInLoss
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.runtime.algorithms.aggregation import Totals
from rlctl.runtime.specs.trained import loss_spec
from rlctl.runtime.train.interface import LossFunction
from rlctl.runtime.train.losses import SftLoss
from rlctl.runtime.train.objectives import DpoLoss, Mu
from rlctl.runtime.types import Sample
from rlctl.runtime.workers.trainer import make_loss
from tests.runtime.train import jobs
from tests.runtime.train.jobs import ALL_AT_ONCE, FLOAT64, make_samples, settings
from tests.runtime.train.processes import Workers

DPO = DpoLoss.of(
    Algorithm(kl_in_loss=KlInLoss(estimator="k2", coefficient=0.1), entropy_coefficient=0.01),
    DpoObjective(beta=0.3, label_smoothing=0.1),
    max_response_tokens=32,
)


def mix(number: int = 1, mini: int = 4, algorithm: dict[str, Any] | None = None, **objective: Any) -> LossFunction:
    config = {
        "algorithm": {"objective": {"type": "mix", "expert_share": 0.5, **objective}, **(algorithm or {})},
        "batch": {"mini_batch_responses": mini},
    }
    return make_loss(loss_spec(config_from(config)), number=number)


def pairs() -> list[Sample]:
    """Four pairs; every sequence has counted tokens."""
    return [sample for sample in make_samples(12) if sample.mask.any()][:8]


def with_experts() -> list[Sample]:
    """Nine samples, the last three experts'."""
    samples = make_samples(9)
    for index, sample in enumerate(samples):
        sample.expert = index >= 6
        sample.columns["expert"] = torch.full((len(sample),), float(sample.expert))
    return samples


def test_a_step_on_pairs_is_that_of_plain_pytorch_in_float64(one: Workers, models: dict[str, Path]) -> None:
    """Mean over pairs of the smoothed loss, + 0.1 * k2 - 0.01 * entropy as means over tokens."""
    samples = pairs()
    [(_, metrics)] = one.run(jobs.pair_updates, models["gpt2"], settings(FLOAT64), samples, DPO, ALL_AT_ONCE)
    model = AutoModelForCausalLM.from_pretrained(models["gpt2"], dtype=torch.float64, attn_implementation="eager")
    gains, further = [], torch.zeros((), dtype=torch.float64)
    for sample in samples:
        log_p = model(sample.token_ids[None]).logits[0, :-1].log_softmax(-1)
        drawn = log_p.gather(-1, sample.token_ids[1:, None]).squeeze(-1)
        mask = sample.mask[1:]
        x = drawn - sample.columns["reference_log_probs"][1:].double()
        gains.append((x * mask).sum())
        further = further + ((0.05 * x.square() + 0.01 * (log_p.exp() * log_p).sum(-1)) * mask).sum()
    leads = torch.stack([chosen - rejected for chosen, rejected in zip(gains[::2], gains[1::2], strict=True)])
    loss = (-0.9 * logsigmoid(0.3 * leads) - 0.1 * logsigmoid(-0.3 * leads)).mean()
    loss = loss + further / sum(int(sample.mask.sum()) for sample in samples)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
    assert metrics[0]["loss"] == pytest.approx(loss.item(), rel=1e-9)
    assert metrics[0]["grad_norm"] == pytest.approx(norm.item(), rel=1e-9)
    assert metrics[0]["accuracy"] == (leads > 0).double().mean().item()
    assert metrics[0]["margin"] == pytest.approx(0.3 * leads.mean().item())


@pytest.mark.parametrize("padded", [False, True])
def test_pairs_stay_together_however_they_are_split(
    one: Workers, two: Workers, models: dict[str, Path], padded: bool
) -> None:
    samples, train = pairs(), settings(FLOAT64, epsilon=1.0)
    attention = "eager" if padded else "auto"
    [(whole, metrics)] = one.run(jobs.pair_updates, models["gpt2"], train, samples, DPO, ALL_AT_ONCE, attention)
    for group, micro in (
        (one, MicroBatchSize(unit="responses", size=1)),
        (two, ALL_AT_ONCE),
        (two, MicroBatchSize(unit="tokens", size=40)),
    ):
        (parts, found), *_ = group.run(jobs.pair_updates, models["gpt2"], train, samples, DPO, micro, attention)
        assert found[0] == pytest.approx(metrics[0], rel=1e-10, abs=1e-10)
        for name, tensor in parts.items():
            torch.testing.assert_close(tensor, whole[name], rtol=0, atol=1e-11)


def tensors() -> dict[str, Tensor]:
    """A response rolled out, of two tokens with ratios 2 and 1, and an expert's of two; one more of an expert is empty."""
    log_probs = torch.tensor([-1.0, -2.0, -0.5, -1.5], requires_grad=True)
    rolled_out = torch.tensor([1.0, 1.0, 0.0, 0.0])
    old = (log_probs.detach() - torch.tensor([2.0, 1.0, 1.0, 1.0]).log()) * rolled_out
    return {
        "log_probs": log_probs,
        "old_log_probs": old,
        "rollout_log_probs": old,
        "reference_log_probs": log_probs.detach() - torch.tensor([1.0, 0.0, 2.0, 0.0]),
        "advantages": torch.tensor([1.0, -1.0, 0.0, 0.0]),
        "entropy": torch.tensor([0.4, 0.8, 5.0, 5.0], requires_grad=True),
        "expert": 1 - rolled_out,
        "lengths": torch.tensor([2, 2, 0]),
    }


MINI = {"batch": {"mini_batch_responses": 4}}
TOTALS = Totals(tokens=8, sequences=4, expert_tokens=4, expert_sequences=2)


def test_mix_by_hand() -> None:
    """The policy loss over 4 tokens rolled out, imitation over 4 of experts; entropy of what was rolled out, KL of both."""
    terms = mix(mu=0.25)(tensors(), TOTALS)
    policy, imitation = (-1.2 + 1.0) / 4, (0.5 + 1.5) / 4
    assert terms.loss.item() == pytest.approx(0.75 * policy + 0.25 * imitation)
    assert terms.metrics["policy_loss"].item() == pytest.approx(policy)
    assert terms.metrics["expert_loss"].item() == pytest.approx(imitation)
    assert terms.metrics["mu"].item() == pytest.approx(0.25 * 4 / 8)  # this micro-batch's part
    further = {"kl_in_loss": {"estimator": "k2", "coefficient": 0.1}, "entropy_coefficient": 0.5}
    regularized = mix(mu=0.25, algorithm=further)(tensors(), TOTALS)
    added = 0.1 * (0.5 + 2.0) / 8 - 0.5 * (0.4 + 0.8) / 4
    assert regularized.loss.item() == pytest.approx(terms.loss.item() + added)


@pytest.mark.parametrize("first", [True, False])
def test_a_corrected_kl_takes_the_policy_of_now_for_the_old_one_of_experts(first: bool) -> None:
    """Weights are 2, 1 of what was rolled out, 1 in a step's first update, and 1 of the experts; with their gradient."""
    given = tensors()
    kl = {"kl_in_loss": {"estimator": "k3_corrected", "coefficient": 1.0}}
    config = config_from({"algorithm": {"objective": {"type": "mix", "expert_share": 0.5}, **kl}, **MINI})
    loss = make_loss(loss_spec(config), old_is_current=first)
    plain = make_loss(
        loss_spec(config_from({"algorithm": {"objective": {"type": "mix", "expert_share": 0.5}}, **MINI}))
    )
    x = given["reference_log_probs"] - given["log_probs"]
    old = torch.where(given["expert"] > 0, given["log_probs"].detach(), given["old_log_probs"])
    weight = (given["log_probs"] - (given["log_probs"].detach() if first else old)).exp().clamp(max=2.0)
    by_hand = (weight * (x.exp() - x - 1)).sum() / TOTALS.tokens
    found = loss(given, TOTALS)
    assert found.metrics["kl_loss"].item() == pytest.approx(by_hand.item())
    if not first:
        difference = found.loss - plain(given, TOTALS).loss
        (gradient,) = torch.autograd.grad(difference, given["log_probs"])
        torch.testing.assert_close(gradient, *torch.autograd.grad(by_hand, given["log_probs"]))


def test_chord_weighs_expert_tokens_by_doubt_and_mu_by_time() -> None:
    args = {"mu_warmup_steps": 2, "mu_decay_steps": 4, "mu_peak": 0.5, "mu_valley": 0.1}
    terms = mix(number=4, args=args)(tensors(), TOTALS)
    p = [math.exp(-0.5), math.exp(-1.5)]
    doubt = (p[0] * (1 - p[0]) * 0.5 + p[1] * (1 - p[1]) * 1.5) / 4
    assert terms.metrics["expert_loss"].item() == pytest.approx(doubt)
    mu = 0.1 + 0.4 * 0.5 * (1 + math.cos(math.pi * 2 / 4))
    assert terms.loss.item() == pytest.approx((1 - mu) * -0.05 + mu * doubt)
    plain = mix(number=4, args={**args, "enable_phi_function": False})(tensors(), TOTALS)
    assert plain.metrics["expert_loss"].item() == pytest.approx(0.5)


def test_the_weight_of_experts_rises_in_a_line_and_falls_in_half_a_cosine() -> None:
    mu = Mu(peak=0.5, valley=0.1, warmup=2, decay=4)
    assert [mu.at(number) for number in (1, 2, 4, 6, 7)] == pytest.approx([0.25, 0.5, 0.3, 0.1, 0.1])
    assert Mu(peak=0.3, valley=0.1).at(1) == 0.1


def test_arguments_of_mix_choose_bounds_and_aggregation() -> None:
    bounded = mix(mu=0.0, args={"clip_range": 0.5})(tensors(), TOTALS)
    assert bounded.loss.item() == pytest.approx((-1.5 + 1.0) / 4)
    by_response = mix(mu=1.0, args={"sft_loss_agg_mode": "seq-mean-token-sum"})(tensors(), TOTALS)
    assert by_response.loss.item() == pytest.approx((0.5 + 1.5) / 2)


@pytest.mark.parametrize(
    ("objective", "algorithm", "wrong"),
    [
        ({"args": {"mu_peek": 1}}, {}, "no argument mu_peek"),
        ({"args": {"train_batch_size_expert": 3}}, {}, "is 3, but a mini-batch has 2 such responses"),
        ({"args": {"clip_range": 0.2}}, {"policy_loss": "gspo"}, "sets clip_range"),
        ({"args": {"sft_loss_agg_mode": "mean"}}, {}, "names the unknown aggregation mean"),
    ],
)
def test_what_mix_cannot_do_is_refused(objective: dict[str, Any], algorithm: dict[str, Any], wrong: str) -> None:
    with pytest.raises(PlanError, match=wrong):
        mix(algorithm=algorithm, **objective)


def test_splits_do_not_change_a_step_of_mix_in_float64(one: Workers, two: Workers, models: dict[str, Path]) -> None:
    samples, train = with_experts(), settings(FLOAT64, epsilon=1.0)
    further = {"kl_in_loss": {"estimator": "k3_corrected", "coefficient": 0.1}, "entropy_coefficient": 0.01}
    loss = mix(
        mini=9, args={"mu_peak": 0.4, "mu_valley": 0.4, "sft_loss_agg_mode": "seq-mean-token-mean"}, algorithm=further
    )
    [(whole, metrics)] = one.run(jobs.updates, models["gpt2"], train, samples, loss, ALL_AT_ONCE)
    assert metrics[0]["grad_norm"] > 1e-3
    for group, micro in (
        (one, MicroBatchSize(unit="responses", size=2)),
        (two, MicroBatchSize(unit="tokens", size=30)),
    ):
        (parts, found), *_ = group.run(jobs.updates, models["gpt2"], train, samples, loss, micro)
        assert found[0] == pytest.approx(metrics[0], rel=1e-12, abs=1e-12)
        for name, tensor in parts.items():
            torch.testing.assert_close(tensor, whole[name], rtol=0, atol=1e-12)


def test_imitation_is_the_loss_of_trl_on_the_same_batch(one: Workers, models: dict[str, Path]) -> None:
    """Labels from TRL's collator, the loss from the model itself, as SFTTrainer takes it: cross-entropy over what is counted."""
    samples = make_samples(9)
    batch = DataCollatorForLanguageModeling(pad_token_id=0)(
        [
            {"input_ids": each.token_ids.tolist(), "labels": torch.where(each.mask, each.token_ids, -100).tolist()}
            for each in samples
        ]
    )
    model = AutoModelForCausalLM.from_pretrained(models["qwen2"], dtype=torch.float64, attn_implementation="eager")
    loss = model(**batch).loss
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
    micro = MicroBatchSize(unit="tokens", size=40)
    [(_, [metrics])] = one.run(jobs.updates, models["qwen2"], settings(FLOAT64), samples, SftLoss(), micro)
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-6)  # Transformers takes the loss in float32
    assert metrics["grad_norm"] == pytest.approx(norm.item(), rel=1e-6)


def test_a_loss_is_chosen_by_the_objective() -> None:
    kinds = {
        name: type(make_loss(loss_spec(config_from({"algorithm": {"objective": name}})))).__name__
        for name in ("rl", "sft", "dpo", "mix")
    }
    assert kinds == {"rl": "PolicyLoss", "sft": "SftLoss", "dpo": "DpoLoss", "mix": "MixLoss"}
