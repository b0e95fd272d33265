"""Divergences of whole distributions: by hand, by torch's own KL, and the same in value and gradient however chunked."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import kl_div
from torch.testing import assert_close

from rlctl.common.errors import ConfigError
from rlctl.runtime.algorithms.divergence import DIVERGENCES, divergence

P, Q = [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]


def logits(values: list[float]) -> Tensor:
    """Logits of a distribution, shifted: only differences count."""
    return torch.tensor([values], dtype=torch.float64).log() + 3


def kl(p: list[float], q: list[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def mixed(share: float, p: list[float], q: list[float]) -> list[float]:
    return [share * a + (1 - share) * b for a, b in zip(p, q, strict=True)]


BY_HAND = {
    "forward_kl": kl(P, Q),
    "reverse_kl": kl(Q, P),
    "skewed_forward_kl": kl(P, mixed(0.1, P, Q)),
    "skewed_reverse_kl": kl(Q, mixed(0.1, Q, P)),
    "js_divergence": (kl(P, mixed(0.5, P, Q)) + kl(Q, mixed(0.5, P, Q))) / 2,
    # in the order of the teacher: 0.2 and 0.3 are its tail, 0.6 at most; gaps 0.4 and 0.1 there, 0.3 in the head
    "adaptive_kl": 0.3 / 0.8 * kl(P, Q) + 0.5 / 0.8 * kl(Q, P),
}


@pytest.mark.parametrize("name", sorted(DIVERGENCES))
def test_by_hand(name: str) -> None:
    options = {"adaptive_kl_alpha": 0.6} if name == "adaptive_kl" else {}
    assert divergence(name, logits(Q), logits(P), **options).item() == pytest.approx(BY_HAND[name], rel=1e-6)
    assert divergence(name, logits(P), logits(P), **options).item() == pytest.approx(0, abs=1e-9)


def test_only_the_likeliest_tokens_of_the_teacher() -> None:
    """As distributions over these (ROLL), or with the probabilities that they have (verl), cut from below."""
    over_two = kl([0.5 / 0.8, 0.3 / 0.8], [0.5, 0.5])
    assert divergence("forward_kl", logits(Q), logits(P), top_k=2).item() == pytest.approx(over_two)
    as_they_are = 0.5 * math.log(0.5 / 0.2) + 0.3 * math.log(0.3 / 0.2)
    found = divergence("forward_kl", logits(Q), logits(P), top_k=2, renormalize=False)
    assert found.item() == pytest.approx(as_they_are)
    cut = divergence("forward_kl", logits(Q), logits(P), top_k=2, renormalize=False, least_log_prob=math.log(0.25))
    assert cut.item() == pytest.approx(0.5 * math.log(0.5 / 0.25) + 0.3 * math.log(0.3 / 0.25))


@pytest.mark.parametrize("name", sorted(DIVERGENCES))
@pytest.mark.parametrize("top_k", [None, 5])
def test_chunks_change_neither_value_nor_gradient(name: str, top_k: int | None) -> None:
    generator = torch.Generator().manual_seed(1)
    student = torch.randn(11, 17, generator=generator, dtype=torch.float64, requires_grad=True)
    teacher = torch.randn(11, 20, generator=generator, dtype=torch.float64)  # padded to a round number
    options = {"top_k": top_k, "temperature": 2.0, "teacher_temperature": 0.5}
    whole = divergence(name, student, teacher, **options)  # type: ignore[arg-type]
    parts = divergence(name, student, teacher, chunk=3, **options)  # type: ignore[arg-type]
    assert_close(parts, whole, rtol=0, atol=0)
    weights = torch.randn(11, generator=generator, dtype=torch.float64)
    expected, found = (torch.autograd.grad((weights * each).sum(), student)[0] for each in (whole, parts))
    assert_close(found, expected, rtol=0, atol=1e-15)
    assert (whole >= -1e-9).all()


def test_it_is_torchs_kl() -> None:
    student, teacher = torch.randn(6, 30, requires_grad=True), torch.randn(6, 30)
    expected = kl_div(student.log_softmax(-1), teacher.log_softmax(-1), reduction="none", log_target=True).sum(-1)
    found = divergence("forward_kl", student, teacher)
    assert_close(found, expected)
    for name in (found, expected):
        assert name.requires_grad
    ours, theirs = (torch.autograd.grad(each.sum(), student)[0] for each in (found, expected))
    assert_close(ours, theirs)


def test_tokens_that_cannot_be_drawn_count_nothing() -> None:
    cut = logits(P)
    cut[0, 2] = -math.inf
    for name in DIVERGENCES:
        assert divergence(name, cut, cut).isfinite().all()


def test_without_rows_there_is_nothing_and_what_does_not_fit_is_refused() -> None:
    assert divergence("forward_kl", torch.zeros(0, 3), torch.zeros(0, 3)).shape == (0,)
    with pytest.raises(ConfigError, match="unknown divergence 'kl'"):
        divergence("kl", logits(P), logits(P))
    with pytest.raises(ConfigError, match="has no argument skew_lambda"):
        divergence("forward_kl", logits(P), logits(P), skew_lambda=0.1)
    with pytest.raises(ConfigError, match="the teacher has 2 tokens and the student 3"):
        divergence("forward_kl", logits(P), logits([0.5, 0.5]))
