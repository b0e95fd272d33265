"""Policy losses push each token as their paper says, and stop where it says."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from rlctl.common.errors import ConfigError
from rlctl.runtime.algorithms.packed import PerTokenLoss
from rlctl.runtime.algorithms.policy_losses import (
    POLICY_LOSSES,
    ImportanceWeight,
    cispo,
    gspo,
    policy_gradient,
    ppo_clip,
    sapo,
    topr,
)


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def with_ratios(*ratios: float) -> tuple[Tensor, Tensor]:
    """Return new log-probs, which want a gradient, and old ones that are the ratios' logs below them."""
    new = tensor(*[-1.0] * len(ratios))
    return new.clone().requires_grad_(), new - tensor(*ratios).log()


def gradient(loss: PerTokenLoss, log_probs: Tensor) -> Tensor:
    return torch.autograd.grad(loss.values.sum(), log_probs)[0]


RATIOS = (1.0, 1.1, 1.5, 0.5, 1.5, 0.5, 4.0)
SIGNED = tensor(2, 2, 2, 2, -2, -2, -2)


def test_ppo_clip_by_hand() -> None:
    new, old = with_ratios(*RATIOS)
    loss = ppo_clip(new, old, SIGNED, clip_low=0.2, clip_high=0.3, dual_clip=3.0)
    # A = 2: -2, -2.2, clipped at 1.3: -2.6, 0.5 unclipped: -1; A = -2: 1.5: 3, clipped at 0.8: 1.6, 4 bounded at 3: 6
    assert_close(loss.values, tensor(-2, -2.2, -2.6, -1, 3, 1.6, 6))
    assert loss.metrics["clip_fraction"].tolist() == [0, 0, 1, 0, 0, 1, 0]
    assert loss.metrics["dual_clip_fraction"].tolist() == [0, 0, 0, 0, 0, 0, 1]
    assert_close(loss.metrics["ratio"], tensor(*RATIOS))
    assert_close(loss.metrics["approx_kl"], -tensor(*RATIOS).log())


def test_ppo_clip_has_no_gradient_where_clipped() -> None:
    new, old = with_ratios(*RATIOS)
    result = gradient(ppo_clip(new, old, SIGNED, clip_low=0.2, clip_high=0.3, dual_clip=3.0), new)
    # where it is not clipped: d(-A r) / d log new = -A r
    assert_close(result, tensor(-2, -2.2, 0, -1, 3, 0, 0))


def test_without_dual_clip_a_bad_token_has_no_bound() -> None:
    new, old = with_ratios(4.0)
    loss = ppo_clip(new, old, tensor(-2), dual_clip=None)
    assert_close(loss.values, tensor(8))
    assert "dual_clip_fraction" not in loss.metrics


def test_dual_clip_at_or_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"algorithm.policy_loss.dual_clip is 1.0; expected above 1"):
        ppo_clip(tensor(0), tensor(0), tensor(0), dual_clip=1.0)


def test_a_log_ratio_beyond_twenty_counts_as_twenty() -> None:
    new = tensor(0).requires_grad_()
    loss = ppo_clip(new, tensor(-1000), tensor(-1), dual_clip=None)
    assert_close(loss.values, tensor(math.exp(20)))
    assert gradient(loss, new).tolist() == [0.0]


def test_gspo_by_hand() -> None:
    # first response: log ratios 0.2, 0.4, mean 0.3; the second is empty; third: -0.5
    old = tensor(-1, -1, -1)
    new = (old + tensor(0.2, 0.4, -0.5)).requires_grad_()
    lengths = torch.tensor([2, 0, 1])
    loss = gspo(new, old, tensor(1, 1, 1), lengths, clip_low=0.6, clip_high=0.2)
    first, third = math.exp(0.3), math.exp(-0.5)  # 1.35, beyond 1.2; 0.61, within 0.4
    assert_close(loss.values, tensor(-1.2, -1.2, -third))
    assert loss.metrics["clip_fraction"].tolist() == [1, 1, 0]
    assert_close(loss.metrics["ratio"], tensor(first, first, third))
    assert_close(gradient(loss, new), tensor(0, 0, -third))


def test_the_dual_clip_of_gspo_bounds_a_response() -> None:
    # log ratios 0.5, 1.5, mean 1: ratio e = 2.7, bounded at 2 where the advantage is negative
    old = tensor(-2, -2)
    new = (old + tensor(0.5, 1.5)).requires_grad_()
    bad = gspo(new, old, tensor(-1, -1), torch.tensor([2]), dual_clip=2.0)
    assert_close(bad.values, tensor(2, 2))
    assert bad.metrics["dual_clip_fraction"].tolist() == [1, 1]
    good = gspo(new, old, tensor(1, 1), torch.tensor([2]), clip_high=2.0, dual_clip=2.0)
    assert_close(good.values, tensor(-math.e, -math.e))


def test_gspo_gradient_is_that_of_the_sequence_objective() -> None:
    # GSPO's own: sum over responses of -A s with s = exp(mean of log ratios); the token form averages over tokens
    old = tensor(-1.0, -2.0, -0.5)
    new = (old + tensor(0.1, -0.3, 0.2)).requires_grad_()
    advantage = 1.7
    objective = -advantage * ((new - old).mean()).exp()
    expected = torch.autograd.grad(objective, new)[0]
    loss = gspo(new, old, tensor(*[advantage] * 3), torch.tensor([3]), clip_low=1.0, clip_high=1.0)
    assert_close(gradient(loss, new) / 3, expected)


def test_cispo_by_hand() -> None:
    new, old = with_ratios(1.1, 1.5, 0.5)
    loss = cispo(new, old, tensor(2, 2, -2), clip_low=0.2, clip_high=0.3)
    # weights 1.1, 1.3, 0.8 are constants: the gradient of -w A log new is -w A, clipped or not
    assert_close(loss.values, tensor(2.2, 2.6, -1.6))
    assert_close(gradient(loss, new), tensor(-2.2, -2.6, 1.6))
    assert loss.metrics["clip_fraction"].tolist() == [0, 1, 1]


@pytest.mark.parametrize(("weight", "expected"), [("none", (2, 2)), ("ratio", (8, 1)), ("truncated_ratio", (3, 1))])
def test_policy_gradient_by_hand(weight: ImportanceWeight, expected: tuple[float, float]) -> None:
    new, old = with_ratios(4.0, 0.5)
    loss = policy_gradient(new, old, tensor(2, 2), importance_weight=weight, weight_bound=1.5)
    # log new is -1, A is 2: the loss is 2 w, its gradient -2 w
    assert_close(loss.values, tensor(*expected))
    assert_close(gradient(loss, new), -tensor(*expected))
    cut = loss.metrics.get("clip_fraction")
    assert (cut.tolist() if cut is not None else None) == ([1, 0] if weight == "truncated_ratio" else None)


def test_topr_by_hand() -> None:
    new, old = with_ratios(4.0, 4.0, 0.5, 4.0)
    loss = topr(new, old, tensor(2, -2, -2, 0), positive_weight=3.0, negative_weight=0.5)
    # log new is -1: w A with w = 3 for the good token, 0.5 * min(r, 1) for the others; the gradient is -w A
    assert_close(loss.values, tensor(6, -1, -0.5, 0))
    assert_close(gradient(loss, new), tensor(-6, 1, 0.5, 0))
    assert loss.metrics["clip_fraction"].tolist() == [0, 1, 0, 1]


def test_sapo_by_hand() -> None:
    new, old = with_ratios(1.5, 1.5, 0.5)
    loss = sapo(new, old, tensor(2, -2, 2), tau_positive=2.0, tau_negative=4.0)
    # -A 4 / tau sigmoid(tau (r - 1)): gates 2 sigmoid(1), sigmoid(2), 2 sigmoid(-1)
    s1, s2 = 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(-2))
    assert_close(loss.values, tensor(-4 * s1, 2 * s2, -4 * (1 - s1)))
    # d / d log new = -A * 4 sigmoid' r
    expected = tensor(-12 * s1 * (1 - s1), 12 * s2 * (1 - s2), -4 * s1 * (1 - s1))
    assert_close(gradient(loss, new), expected)
    with pytest.raises(ConfigError, match="tau_positive and tau_negative"):
        sapo(new, old, tensor(1, 1, 1), tau_negative=0.0)


@pytest.mark.parametrize("name", sorted(POLICY_LOSSES))
def test_on_policy_every_loss_has_the_policy_gradient(name: str) -> None:
    old = tensor(-0.3, -2.0, -1.0)
    new = old.clone().requires_grad_()
    advantages = tensor(1.5, -0.5, 0)
    tensors = {"log_probs": new, "old_log_probs": old, "advantages": advantages, "lengths": torch.tensor([2, 1])}
    tensors["segments"] = torch.tensor([0, 1, 0])  # tokens of one segment would share the gradient of their mean
    loss = POLICY_LOSSES[name](tensors)
    assert_close(gradient(loss, new), -advantages)
    assert all(not metric.requires_grad and metric.shape == (3,) for metric in loss.metrics.values())
