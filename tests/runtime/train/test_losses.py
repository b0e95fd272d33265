"""The loss of a config is the sum of its terms, each with its own coefficient; worked by hand on three tokens."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from rlctl.arithmetic import needs_reference
from rlctl.config import config_from
from rlctl.config.sections.algorithm import (
    Aggregation,
    Algorithm,
    Cispo,
    Gspo,
    KlInLoss,
    PolicyGradient,
    PpoClip,
    Sapo,
    Topr,
)
from rlctl.errors import ConfigError, PlanError
from rlctl.runtime.algorithms.aggregation import Totals
from rlctl.runtime.train.losses import PolicyLoss, SftLoss, totals_of
from tests.runtime.train.jobs import make_samples

TOTALS = Totals(tokens=6, sequences=4)


def tensors() -> dict[str, Tensor]:
    """Two sequences, of two tokens and of one; ratios 2, 1 and 1/2."""
    log_probs = torch.tensor([-1.0, -2.0, -0.5], requires_grad=True)
    return {
        "log_probs": log_probs,
        "old_log_probs": log_probs.detach() - torch.tensor([2.0, 1.0, 0.5]).log(),
        "reference_log_probs": log_probs.detach() + torch.tensor([0.0, 1.0, -1.0]),
        "advantages": torch.tensor([1.0, -1.0, 2.0]),
        "entropy": torch.tensor([0.3, 0.6, 0.9], requires_grad=True),
        "lengths": torch.tensor([2, 1]),
    }


def loss_of(**algorithm: Any) -> PolicyLoss:
    return PolicyLoss.of(Algorithm(**algorithm), max_response_tokens=10)


@pytest.mark.parametrize(
    ("algorithm", "values"),
    [
        # max(-A r, -A clip(r)): -1.2 (clipped), 1, -2 * 0.5
        ({"policy_loss": PpoClip()}, [-1.2, 1.0, -1.0]),
        ({"policy_loss": PpoClip(clip_high=0.5)}, [-1.5, 1.0, -1.0]),
        # sequence ratios sqrt(2) and 1/2; -A s, clipped above at 1 + 4e-4
        ({"policy_loss": Gspo()}, [-1.0004, math.sqrt(2), -1.0]),
        # -clip(r, 0, 1.28) A log p
        ({"policy_loss": Cispo()}, [1.28, -2.0, 0.5]),
        ({"policy_loss": PolicyGradient()}, [1.0, -2.0, 1.0]),
        ({"policy_loss": PolicyGradient(importance_weight="truncated_ratio")}, [1.0, -2.0, 0.5]),
    ],
)
def test_policy_losses_by_hand(algorithm: dict[str, Any], values: list[float]) -> None:
    terms = loss_of(**algorithm)(tensors(), TOTALS)
    assert terms.loss.item() == pytest.approx(sum(values) / 6, rel=1e-6)
    assert terms.metrics["policy_loss"].item() == pytest.approx(sum(values) / 6, rel=1e-6)


def test_kl_and_entropy_are_weighted_and_reported() -> None:
    loss = loss_of(kl_in_loss=KlInLoss(estimator="k2", coefficient=0.1), entropy_coefficient=0.5)
    terms = loss(tensors(), TOTALS)
    assert terms.metrics["kl_loss"].item() == pytest.approx((0 + 0.5 + 0.5) / 6)
    assert terms.metrics["entropy"].item() == pytest.approx(1.8 / 6)
    assert terms.loss.item() == pytest.approx((-1.2 + 0.1 * 1.0 - 0.5 * 1.8) / 6)
    assert terms.metrics["ratio"].item() == pytest.approx(3.5 / 6)
    assert terms.metrics["clip_fraction"].item() == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        (Aggregation(mode="token_sum"), -1.2),
        (Aggregation(mode="seq_mean_token_sum"), -1.2 / 4),
        (Aggregation(mode="seq_mean_token_mean"), (-0.2 / 2 - 1.0) / 4),
        (Aggregation(mode="seq_mean_token_sum_norm"), -1.2 / 4 / 10),
        (Aggregation(mode="seq_mean_token_sum_norm", scale_factor=5.0), -1.2 / 4 / 5),
    ],
)
def test_aggregation_by_hand(aggregation: Aggregation, expected: float) -> None:
    assert loss_of(aggregation=aggregation)(tensors(), TOTALS).loss.item() == pytest.approx(expected, rel=1e-6)


def test_the_current_policy_may_stand_for_the_old_one() -> None:
    """Same value and gradient as old log-probs that were computed a moment before."""
    given = tensors()
    given["old_log_probs"] = given["log_probs"].detach()
    [expected] = torch.autograd.grad(loss_of()(given, TOTALS).loss, given["log_probs"])
    other = tensors()
    del other["old_log_probs"]
    loss = PolicyLoss.of(Algorithm(), max_response_tokens=10, old_is_current=True)
    assert loss.columns == ("advantages",)
    [found] = torch.autograd.grad(loss(other, TOTALS).loss, other["log_probs"])
    assert torch.equal(found, expected)


def test_sft_is_the_mean_negative_log_likelihood() -> None:
    terms = SftLoss.of(Algorithm(), max_response_tokens=10)(tensors(), TOTALS)
    assert terms.loss.item() == pytest.approx(3.5 / 6)


@pytest.mark.parametrize("choice", [Topr(), Sapo()])
def test_losses_that_no_function_computes_are_refused(choice: Any) -> None:
    with pytest.raises(PlanError, match=f"policy_loss {choice.choice}"):
        loss_of(policy_loss=choice)


def test_a_kl_that_counts_nothing_asks_for_no_reference() -> None:
    """The plan makes no reference for a coefficient of 0, so the loss must not read its log-probs."""
    config = config_from({"algorithm": {"kl_in_loss": {"coefficient": 0.0}}})
    assert not needs_reference(config)
    assert "reference_log_probs" not in PolicyLoss.of(config.algorithm, max_response_tokens=8).columns


def test_a_kl_estimator_that_is_not_computed_is_refused() -> None:
    with pytest.raises(ConfigError, match="KL estimator"):
        loss_of(kl_in_loss=KlInLoss(estimator="full"))


def test_totals_count_sequences_without_tokens_too() -> None:
    samples = make_samples(4)
    assert totals_of(samples) == Totals(tokens=sum(int(each.mask.sum()) for each in samples), sequences=4)
    assert any(not each.mask.any() for each in samples)
