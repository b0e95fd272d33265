"""Losses of one framework push each token as it does; worked by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from rlctl.common.errors import ConfigError
from rlctl.runtime.algorithms.further_losses import (
    FURTHER_LOSSES,
    clip_cov,
    covers_for_clip,
    covers_for_kl,
    dppo_kl,
    dppo_tv,
    dro,
    geo_mean,
    kimi15,
    kl_cov,
    opmd,
    rec,
    sft,
    sppo,
)


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def gradient(values: Tensor, log_probs: Tensor) -> Tensor:
    return torch.autograd.grad(values.sum(), log_probs)[0]


def probabilities(new: tuple[float, ...], old: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    return tensor(*new).log().requires_grad_(), tensor(*old).log()


def test_dppo_tv_by_hand() -> None:
    # moved by 0.1, 0.3, 0.3, -0.3 and 0.3: good tokens leave above 0.2, bad ones below -0.1
    new, old = probabilities((0.5, 0.6, 0.6, 0.2, 0.31), (0.4, 0.3, 0.3, 0.5, 0.01))
    loss = dppo_tv(new, old, tensor(2, 2, -2, -2, -2), clip_low=0.1, clip_high=0.2, clip_ratio_c=20.0)
    ratios = tensor(1.25, 2.0, 2.0, 0.4, 20.0)
    inside = tensor(1, 0, 1, 0, 1)
    assert_close(loss.values, -tensor(2, 2, -2, -2, -2) * ratios * new * inside)
    assert_close(gradient(loss.values, new), -tensor(2, 2, -2, -2, -2) * ratios * inside)
    assert loss.metrics["clip_fraction"].tolist() == [0, 1, 0, 1, 0]


def test_dppo_kl_by_hand() -> None:
    # KL of 0.5 to 0.6 and to 0.9: 0.0204 and 0.5108; towards the old policy there is no bound
    new, old = probabilities((0.6, 0.9, 0.9, 0.1), (0.5, 0.5, 0.5, 0.5))
    assert 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1) == pytest.approx(0.5108, abs=1e-4)
    loss = dppo_kl(new, old, tensor(1, 1, -1, -1), clip_low=0.1, clip_high=0.1)
    assert_close(gradient(loss.values, new), tensor(-1.2, 0, 1.8, 0))


def test_geo_mean_by_hand() -> None:
    new = tensor(-1, -1, -1).requires_grad_()
    old = new.detach() - tensor(0.2, 0.8, -0.6)
    loss = geo_mean(new, old, tensor(2, 2, -1), torch.tensor([2, 1]), clip_low=0.4, clip_high=0.5)
    # first response: log ratios 0.2 and 0.8 cut to 0.5, mean 0.35; second: -0.6 cut to -0.4
    first, second = -2 * math.exp(0.35), math.exp(-0.4)
    assert_close(loss.values, tensor(first, first, second))
    assert loss.metrics["clip_fraction"].tolist() == [0, 1, 1]
    # both tokens of the first carry its loss: d sum / d log new_1 = 2 * first / 2; what is cut has no gradient
    assert_close(gradient(loss.values, new), tensor(first, 0, 0))


def test_quadratic_losses_by_hand() -> None:
    new = tensor(-1, -2).requires_grad_()
    old = tensor(-1.5, -1)
    # log ratios 0.5, -1
    assert_close(dro(new, old, tensor(2, -1), dro_beta=0.4).values, tensor(2 + 0.05, -2 + 0.2))
    assert_close(gradient(kimi15(new, old, tensor(2, -1), tau=0.4).values, new), tensor(-2 + 0.2, 1 - 0.4))
    with pytest.raises(ConfigError, match=r"args\.dro_beta is None"):
        dro(new, old, tensor(2, -1), dro_beta=None)  # type: ignore[arg-type]


def test_opmd_and_sft_by_hand() -> None:
    new = tensor(-1, -2).requires_grad_()
    assert_close(opmd(new, tensor(-1, -2), tensor(2, -1), tau=3.0).values, tensor(0.5, -0.5))
    assert_close(sft(new).values, tensor(1, 2))


def test_sppo_by_hand() -> None:
    new, old = probabilities((0.5, 0.6, 0.3), (0.5, 0.4, 0.4))
    # ratios 1, 1.5 and 0.75: outside of 1/1.3 = 0.769 to 1.3 but for the first
    loss = sppo(new, old, tensor(2, 2, -1))
    assert_close(loss.values, tensor(0, 0, 0))
    assert_close(gradient(loss.values, new), tensor(-2, 0, 0))
    wide = sppo(new, old, tensor(2, 2, -1), epsilon=0.5)
    assert_close(wide.values, tensor(0, -2 * math.log(1.5), math.log(0.75)))


REC_NEW, REC_OLD = (0.5, 0.6, 0.1, 0.3), (0.5, 0.4, 0.4, 0.1)
"""Ratios 1, 1.5, 0.25 and 3; of the first response (two tokens) the geometric mean is sqrt(1.5), of the second sqrt(0.75)."""


@pytest.mark.parametrize(
    ("options", "pulls"),
    [
        ({}, (1, 1, -1, -1)),
        ({"clip_mode": "two-side"}, (1, 0, 0, 0)),
        # good tokens are bounded above, bad ones below
        ({"clip_mode": "one-side"}, (1, 0, 0, -1)),
        ({"clip_mode": "gspo-one-side", "epsilon_high": 0.3}, (1, 1, -1, -1)),
        ({"clip_mode": "gspo-one-side", "epsilon_low": 0.1}, (0, 0, 0, 0)),
        ({"clip_mode": "ring", "epsilon_low_prime": 0.5, "epsilon_high_prime": 1.5}, (1, 0, 0, -1)),
        ({"weight": "importance_sampling"}, (1, 1.5, -0.25, -3)),
        ({"weight": "gspo_importance_sampling"}, (1.5**0.5, 1.5**0.5, -(0.75**0.5), -(0.75**0.5))),
        ({"weight": "advantage", "temp": 2.0}, (math.exp(0.5), math.exp(0.5), -math.exp(-0.5), -math.exp(-0.5))),
        ({"regularizer": "forward-kl", "regularizer_coef": 0.5}, (1.5, 1.5, -0.5, -0.5)),
        (
            {"regularizer": "k2", "regularizer_coef": 0.5},
            (1, 1 - math.log(1.5), -1 - math.log(0.25), -1 - math.log(3)),
        ),
    ],
)
def test_rec_by_hand(options: dict[str, Any], pulls: tuple[float, ...]) -> None:
    """The pull on each log-prob, minus its gradient; advantages 1, 1, -1, -1."""
    new, old = probabilities(REC_NEW, REC_OLD)
    loss = rec(new, old, tensor(1, 1, -1, -1), torch.tensor([2, 2]), **options)
    assert_close(-gradient(loss.values, new), tensor(*pulls))


def test_rec_refuses_what_it_does_not_know() -> None:
    new, old = probabilities(REC_NEW, REC_OLD)
    with pytest.raises(ConfigError, match="epsilon_low_prime"):
        rec(new, old, tensor(1, 1, -1, -1), torch.tensor([2, 2]), clip_mode="ring")
    with pytest.raises(ConfigError, match="unknown clip_mode of rec 'both'"):
        rec(new, old, tensor(1, 1, -1, -1), torch.tensor([2, 2]), clip_mode="both")


@pytest.mark.parametrize("name", sorted(set(FURTHER_LOSSES) - {"sft", "sft_is", "sft_phi", "opmd"}))
def test_on_policy_they_have_the_policy_gradient(name: str) -> None:
    old = tensor(-0.3, -2.0, -1.0)
    new = old.clone().requires_grad_()
    tensors = {
        "log_probs": new,
        "old_log_probs": old,
        "advantages": tensor(1, -0.5, 0),
        "chosen": torch.zeros(3),
        "lengths": torch.ones(3, dtype=torch.int64),
    }
    loss = FURTHER_LOSSES[name](tensors, **({"dro_beta": 0.1} if name == "dro" else {}))
    assert_close(gradient(loss.values, new), -tensors["advantages"])
    assert all(not metric.requires_grad and metric.shape == (3,) for metric in loss.metrics.values())


def test_clip_cov_leaves_out_what_is_chosen_and_kl_cov_holds_it_back() -> None:
    """Ratios 2 (clipped at 1.2), 1/2 and 1; the second token is chosen."""
    old = tensor(-1.0, -1.0, -1.0)
    new = (old + tensor(2, 0.5, 1).log()).requires_grad_()
    advantages, chosen = tensor(1, 1, -1), tensor(0, 1, 0)
    assert_close(clip_cov(new, old, advantages, chosen).values, tensor(-1.2, 0, 1))
    assert_close(gradient(clip_cov(new, old, advantages, chosen).values, new), tensor(0, 0, 1))
    held = kl_cov(new, old, advantages, chosen, ppo_kl_coef=0.5).values
    assert_close(held, tensor(-2, -0.5 + 0.5 * math.log(2), 1))
    assert_close(gradient(held, new), tensor(-2, -0.5 - 0.5, 1))


def test_the_tokens_that_covariance_chooses() -> None:
    """Log-probs -1, -2, -3, -4 around -2.5, advantages 2, 1, -1, -2 around 0: covariances 3, 0.5, 0.5, 3."""
    log_probs, advantages = tensor(-1, -2, -3, -4), tensor(2, 1, -1, -2)
    assert covers_for_kl(log_probs, advantages, ratio=0.5).tolist() == [True, False, False, True]
    assert covers_for_kl(log_probs, advantages * tensor(1.1, 1, 1, 1), ratio=0.01).tolist() == [
        True,
        False,
        False,
        False,
    ]

    def drawn(old: Tensor, seed: int = 0, **options: float) -> list[bool]:
        generator = torch.Generator().manual_seed(seed)
        return covers_for_clip(log_probs, old, advantages, generator, **options).tolist()

    assert drawn(log_probs, ratio=1.0) == [True, False, False, True]
    assert drawn(log_probs, ratio=1.0, low=0.1, high=1.0) == [False, True, True, False]
    moved = log_probs - tensor(1, 0, 0, 0)  # the first token's ratio is e: clipped already
    assert drawn(moved, ratio=1.0) == [False, False, False, True]
    one = {tuple(drawn(log_probs, seed)) for seed in range(20)}
    assert one == {(True, False, False, False), (False, False, False, True)}
    assert drawn(log_probs, low=7.0) == [False] * 4


def test_imitation_weighted_by_probability_and_by_doubt() -> None:
    """p = 1/2 and 1/4; the weights are constants."""
    new = tensor(0.5, 0.25).log().requires_grad_()
    for name, weights in (("sft_is", (0.5, 0.25)), ("sft_phi", (0.25, 0.1875))):
        values = FURTHER_LOSSES[name]({"log_probs": new}).values
        assert_close(values, -tensor(*weights) * new.detach())
        assert_close(gradient(values, new), -tensor(*weights))
    cut = FURTHER_LOSSES["sft_phi"]({"log_probs": new}, cutoff_prob=0.4).values
    assert_close(gradient(cut, new), tensor(0, -0.1875))
    with pytest.raises(ConfigError, match="cutoff_prob is 0"):
        FURTHER_LOSSES["sft_phi"]({"log_probs": new}, cutoff_prob=0.0)
