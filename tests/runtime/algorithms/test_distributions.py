"""Entropy, squared probabilities and the expected signal are those of a plain softmax, whole, in chunks, and in parts."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from rlctl.runtime.algorithms.distributions import (
    LOG_PROBS,
    STATISTICS,
    joined,
    moments,
    statistics_of_hidden,
    statistics_of_logits,
)

NAMES = (LOG_PROBS, *STATISTICS)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def plain(logits: Tensor, targets: Tensor, temperature: float = 1.0) -> Tensor:
    """Every formula written out, in the order of ``NAMES``."""
    p = (logits / temperature).softmax(-1)
    entropy = torch.special.entr(p).sum(-1)
    signal = p * (entropy[:, None] + p.log().nan_to_num(neginf=0.0))
    return torch.stack((p.gather(-1, targets[:, None])[:, 0].log(), entropy, (p * p).sum(-1), (p * signal).sum(-1)))


def test_by_hand() -> None:
    """Probabilities 1/2, 1/4, 1/4: H = 1.5 log 2, squares 3/8, and S is log 2 / 4 for the first, -log 2 / 8 for the others."""
    logits = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64).log()
    log2 = torch.tensor(2.0, dtype=torch.float64).log()
    expected = torch.stack((-2 * log2, 1.5 * log2, 0.375 + 0 * log2, log2 / 8 - log2 / 16))
    assert_close(statistics_of_logits(logits, torch.tensor([1]), NAMES)[:, 0], expected)


@pytest.mark.parametrize("chunk", [None, 1, 3])
@pytest.mark.parametrize("with_bias", [False, True])
def test_of_logits_and_of_hidden_states(with_bias: bool, chunk: int | None) -> None:
    hidden, head, bias = random(7, 4), 3 * random(11, 4, seed=1), random(11, seed=2) if with_bias else None
    targets = torch.arange(7)
    logits = torch.nn.functional.linear(hidden, head, bias)
    expected = plain(logits, targets, 0.7)
    assert_close(statistics_of_logits(logits, targets, NAMES, temperature=0.7, chunk=chunk), expected)
    found = statistics_of_hidden(hidden, head, bias, targets, NAMES[::-1], temperature=0.7, chunk=chunk)
    assert_close(found, expected.flip(0))


@given(st.lists(st.integers(1, 12), max_size=3), st.floats(0.1, 20))
def test_parts_of_a_vocabulary_say_the_same(cuts: list[int], scale: float) -> None:
    logits, targets = scale * random(5, 13), torch.zeros(5, dtype=torch.int64)
    parts = [part for part in logits.tensor_split(sorted(cuts), -1) if part.shape[-1]]
    lse = torch.stack([part.logsumexp(-1) for part in parts])
    sums = torch.stack([moments(part.log_softmax(-1)) for part in parts])
    told = joined(sums, lse - lse.logsumexp(0))
    assert_close(torch.stack([told[name] for name in STATISTICS]), plain(logits, targets)[1:], rtol=1e-9, atol=1e-12)


def test_a_token_that_cannot_be_drawn_counts_for_nothing() -> None:
    logits, targets = random(4, 6), torch.zeros(4, dtype=torch.int64)
    barred = torch.cat((logits, torch.full((4, 2), -torch.inf, dtype=torch.float64)), -1)
    assert_close(statistics_of_logits(barred, targets, NAMES), plain(logits, targets))


def test_narrow_logits_are_worked_on_in_float32() -> None:
    logits, targets = random(6, 50).bfloat16(), torch.arange(6)
    found = statistics_of_logits(logits, targets, NAMES)
    assert found.dtype == torch.float32
    assert_close(found.double(), plain(logits.double(), targets), rtol=1e-5, atol=1e-6)
    assert statistics_of_logits(logits[:0], targets[:0], NAMES).shape == (4, 0)
