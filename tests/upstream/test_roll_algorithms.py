"""The same tensors through ROLL's own functions and through ours: divergences from a teacher, KL estimates, aggregation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from rlctl.runtime.algorithms.aggregation import Totals, aggregate, token_weights
from rlctl.runtime.algorithms.divergence import DIVERGENCES, divergence
from rlctl.runtime.algorithms.kl import estimate

from .frameworks import CHECKOUT, of_roll

pytestmark = [
    pytest.mark.upstream,
    pytest.mark.skipif(not CHECKOUT, reason="no checkout of ROLL: make test-upstream ROLL=/path/to/checkout"),
]
OPTIONS: dict[str, dict[str, float]] = {
    "adaptive_kl": {"adaptive_kl_alpha": 0.4},
    "skewed_forward_kl": {"skew_lambda": 0.2},
    "skewed_reverse_kl": {"skew_lambda": 0.2},
}
LENGTHS = torch.tensor([7, 2, 5, 1])
MASK = torch.arange(7) < LENGTHS[:, None]


def roll(of: str, **ask: Any) -> Any:
    plain = {name: value.tolist() if isinstance(value, Tensor) else value for name, value in ask.items()}
    return of_roll("drive_roll_algorithms.py").ask(of=of, **plain)["value"]


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", sorted(DIVERGENCES))
def test_divergences(name: str) -> None:
    """Student and teacher at temperatures of their own. ROLL computes in float32."""
    student, teacher = 2 * randn(20, 30, seed=1), 2 * randn(20, 30, seed=2)
    expected, gradient = roll(
        "divergence", name=name, logits=student, teacher=teacher, temperature=2.0, teacher_temperature=1.5
    )
    student.requires_grad_()
    options = OPTIONS.get(name, {})
    found = divergence(name, student, teacher, temperature=2.0, teacher_temperature=1.5, **options)
    assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-5, atol=1e-6)
    gradients = torch.autograd.grad(found.sum(), student)[0]
    assert_close(gradients, torch.tensor(gradient, dtype=torch.float64), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("theirs", "ours"), [("kl", "k1"), ("abs", "abs"), ("mse", "k2"), ("k3", "k3")])
def test_kl(theirs: str, ours: str) -> None:
    """Of log-probs far enough apart that k3 is cut."""
    log_probs, reference = -3 * randn(40, seed=3).abs(), -3 * randn(40, seed=4).abs()
    expected = roll("kl", name=theirs, log_probs=log_probs, reference=reference)
    assert_close(estimate(ours, log_probs, reference), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("mode", ["token_mean", "seq_mean_token_sum", "seq_mean_token_mean"])
def test_aggregation(mode: str, weighted: bool) -> None:
    """Weights are of responses. ROLL's token mean adds up what is under no mask too, where its workers leave zeros.

    ``seq_mean_token_sum_norm`` is not here: ROLL does not divide by the number of responses there.
    """
    values, weights = randn(4, 7, seed=5) * MASK, randn(4, seed=6).abs()
    expected = roll(
        "aggregate",
        values=values,
        mask=MASK.double(),
        mode=mode.replace("_", "-"),
        weights=weights if weighted else None,
    )
    by_token = token_weights(mode, LENGTHS, Totals.of(LENGTHS), dtype=torch.float64)
    each = values * weights[:, None] if weighted else values
    assert aggregate(each[MASK], by_token, LENGTHS).item() == pytest.approx(expected, rel=1e-6)
