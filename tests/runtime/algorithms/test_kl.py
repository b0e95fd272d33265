"""KL estimators have the value and the gradient that theory says; controllers move the coefficient as published."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from rlctl.common.errors import ConfigError
from rlctl.runtime.algorithms.kl import KL_ESTIMATORS, AdaptiveKL, FixedKL, KLController, estimate, mean_over_responses

LOG_PROBS = st.lists(st.tuples(st.floats(-60, 0), st.floats(-60, 0)), min_size=1, max_size=20)


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_values_by_hand() -> None:
    # x = log policy - log reference = ln 2 and -ln 2: exp(-x) + x - 1 = 0.5 + ln 2 - 1 and 2 - ln 2 - 1
    ln2 = math.log(2)
    new, reference = tensor(-1, -1 - ln2), tensor(-1 - ln2, -1)
    expected = {
        "k1": tensor(ln2, -ln2),
        "abs": tensor(ln2, ln2),
        "k2": tensor(ln2**2 / 2, ln2**2 / 2),
        "k3": tensor(ln2 - 0.5, 1 - ln2),
        "k3_unclamped": tensor(ln2 - 0.5, 1 - ln2),
    }
    for name, value in expected.items():
        assert_close(KL_ESTIMATORS[name](new, reference), value)
        if f"{name}+" in KL_ESTIMATORS:
            assert_close(KL_ESTIMATORS[f"{name}+"](new, reference), value)


def test_k3_is_clamped_and_k3_unclamped_is_not() -> None:
    new, reference = tensor(-30, -200, 0).requires_grad_(), tensor(0, 0, -50)
    assert_close(KL_ESTIMATORS["k3"](new, reference), tensor(10, 10, 10))
    # exp(30) - 30 - 1; exp(200) - 200 - 1; exp(-50) + 50 - 1
    assert_close(
        KL_ESTIMATORS["k3_unclamped"](new, reference),
        tensor(math.exp(30) - 31, math.exp(200), 49),
        rtol=1e-12,
        atol=0.0,
    )


def test_the_gradient_of_k3_stays_finite_where_exp_overflows() -> None:
    new = torch.tensor([-200.0], requires_grad=True)
    KL_ESTIMATORS["k3"](new, torch.tensor([0.0])).sum().backward()
    assert new.grad is not None
    assert new.grad.tolist() == [0.0]


@given(LOG_PROBS)
@pytest.mark.parametrize("name", ["abs", "k2", "k3", "k3_unclamped"])
def test_never_negative(name: str, pairs: list[tuple[float, float]]) -> None:
    new, reference = torch.tensor(pairs, dtype=torch.float64).unbind(1)
    # exp(d) - d - 1 loses what 1 hides: about 1e-16 for small d
    assert (KL_ESTIMATORS[name](new, reference) >= -1e-15).all()


def expectation(name: str, logits: Tensor, reference_logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the estimator's exact mean over tokens drawn from the policy, and the mean of its gradient."""
    log_probs, reference = logits.log_softmax(-1), reference_logits.log_softmax(-1)
    mean = (log_probs.exp().detach() * KL_ESTIMATORS[name](log_probs, reference)).sum()
    return mean.detach(), torch.autograd.grad(mean, logits)[0]


LOGITS, REFERENCE_LOGITS = tensor(0.3, -1.2, 0.8, 0.1), tensor(-0.5, 0.4, 0.2, 0.0)


def true_kl(*, forward: bool) -> tuple[Tensor, Tensor]:
    logits = LOGITS.clone().requires_grad_()
    p, q = logits.log_softmax(-1), REFERENCE_LOGITS.log_softmax(-1)
    kl = (q.exp() * (q - p)).sum() if forward else (p.exp() * (p - q)).sum()
    return kl.detach(), torch.autograd.grad(kl, logits)[0]


@pytest.mark.parametrize("name", ["k1", "k3", "k3_unclamped", "k1+", "k3+"])
def test_unbiased_in_value(name: str) -> None:
    mean, _ = expectation(name, LOGITS.clone().requires_grad_(), REFERENCE_LOGITS)
    assert_close(mean, true_kl(forward=False)[0])


@pytest.mark.parametrize("name", ["k2", "k1+", "abs+", "k2+", "k3+"])
def test_k2_and_straight_through_have_the_gradient_of_the_kl(name: str) -> None:
    _, gradient = expectation(name, LOGITS.clone().requires_grad_(), REFERENCE_LOGITS)
    assert_close(gradient, true_kl(forward=False)[1])


def test_k1_has_no_gradient_on_average() -> None:
    _, gradient = expectation("k1", LOGITS.clone().requires_grad_(), REFERENCE_LOGITS)
    assert_close(gradient, torch.zeros(4, dtype=torch.float64), atol=1e-15, rtol=0.0)


def test_k3_has_the_gradient_of_the_kl_in_the_other_direction() -> None:
    _, gradient = expectation("k3", LOGITS.clone().requires_grad_(), REFERENCE_LOGITS)
    assert_close(gradient, true_kl(forward=True)[1])


def test_adaptive_controller_by_hand() -> None:
    controller = AdaptiveKL(coefficient=0.2, target=6.0, horizon=10_000)
    controller.update(6.6, 500)  # error 0.1: 0.2 * (1 + 0.1 * 500 / 10000) = 0.2 * 1.005
    assert controller.coefficient == pytest.approx(0.201, rel=1e-12)
    controller.update(60.0, 500)  # error clipped at 0.2: 0.201 * 1.01
    assert controller.coefficient == pytest.approx(0.20301, rel=1e-12)
    controller.update(0.0, 500)  # error clipped at -0.2: 0.20301 * 0.99
    assert controller.coefficient == pytest.approx(0.2009799, rel=1e-12)


def test_fixed_controller_stays() -> None:
    controller: KLController = FixedKL(0.2)
    controller.update(100.0, 500)
    assert controller.coefficient == 0.2


@pytest.mark.parametrize(("target", "horizon", "wrong"), [(0.0, 10, "target is 0.0"), (1.0, 0, "horizon is 0")])
def test_a_controller_that_would_divide_by_zero_is_refused(target: float, horizon: int, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        AdaptiveKL(coefficient=0.1, target=target, horizon=horizon)


def test_a_corrected_k3_is_weighted_by_the_ratio_to_the_old_policy() -> None:
    """x = 0, so k3 = 0 for the first token; for the others e - 2, times 1.5 and min(4, 2)."""
    new = tensor(-1.0, -2.0, -2.0).requires_grad_()
    reference, old = tensor(-1.0, -1.0, -1.0), tensor(-3.0, -2.0 - math.log(1.5), -2.0 - math.log(4))
    result = estimate("k3_corrected", new, reference, old)
    each = math.e - 2
    assert_close(result, tensor(0, 1.5 * each, 2 * each))
    # d k3 / d log new = 1 - e^-x = 1 - e; the weight 1.5 moves too, the one cut at 2 does not
    [gradient] = torch.autograd.grad(result.sum(), new)
    assert_close(gradient, tensor(0, 1.5 * (1 - math.e) + 1.5 * each, 2 * (1 - math.e)))
    assert_close(estimate("k3_corrected", new, reference), estimate("k3_unclamped", new, reference))


def test_the_steered_kl_is_a_mean_over_responses() -> None:
    # means 2 and 4, and 0 for the response without a token
    assert mean_over_responses(tensor(1, 3, 4), torch.tensor([2, 1, 0])) == pytest.approx(2)
    assert mean_over_responses(torch.zeros(0), torch.zeros(0, dtype=torch.int64)) == 0
