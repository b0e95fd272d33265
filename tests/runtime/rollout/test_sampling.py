"""Tokens are drawn from the set, and with the scores, that Transformers' own processors leave."""

from __future__ import annotations

import pytest
import torch
from transformers import MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, TopKLogitsWarper, TopPLogitsWarper

from rlctl.runtime.rollout.sampling import SamplingTable, draw, keep_min_p, keep_top_k, keep_top_p, penalise
from rlctl.runtime.types import Sampling

ROWS, VOCAB = 12, 50


def logits() -> torch.Tensor:
    scores = torch.randn(ROWS, VOCAB, generator=torch.Generator().manual_seed(0)) * 2
    scores[:, 7] = scores[:, 8]
    return scores


def column(values: list[float], dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)[:, None]


@pytest.mark.parametrize("top_k", [1, 2, 10, VOCAB])
def test_top_k_keeps_what_transformers_keeps(top_k: int) -> None:
    expected = TopKLogitsWarper(top_k)(None, logits())
    assert torch.equal(keep_top_k(logits(), torch.tensor([[top_k]]), largest=top_k), expected)


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999])
def test_top_p_keeps_what_transformers_keeps(top_p: float) -> None:
    expected = TopPLogitsWarper(top_p)(None, logits())
    assert torch.equal(keep_top_p(logits(), torch.tensor([[top_p]])), expected)


@pytest.mark.parametrize("min_p", [0.01, 0.1, 0.5, 1.0])
def test_min_p_keeps_what_transformers_keeps(min_p: float) -> None:
    expected = MinPLogitsWarper(min_p)(None, logits())
    assert torch.equal(keep_min_p(logits(), torch.tensor([[min_p]])), expected)
    assert expected.isinf().any()


def test_rows_of_one_batch_keep_different_sets() -> None:
    ks, ps, ms = [1, 5, -1] * 4, [0.3, 1.0, 0.8, 1.0] * 3, [0.2, 0.0, 0.05, 0.5] * 3
    by_m = keep_min_p(logits(), column(ms, torch.float32))
    by_k = keep_top_k(logits(), column(ks, torch.int64), largest=5)
    by_p = keep_top_p(logits(), column(ps, torch.float32))
    for row in range(ROWS):
        one = logits()[row : row + 1]
        assert torch.equal(by_k[row : row + 1], one if ks[row] < 0 else TopKLogitsWarper(ks[row])(None, one))
        assert torch.equal(by_p[row : row + 1], one if ps[row] == 1 else TopPLogitsWarper(ps[row])(None, one))
        assert torch.equal(by_m[row : row + 1], MinPLogitsWarper(ms[row])(None, one))


def test_the_repetition_penalty_is_that_of_transformers() -> None:
    tokens = torch.randint(0, VOCAB, (ROWS, 9), generator=torch.Generator().manual_seed(1))
    seen = torch.zeros(ROWS, VOCAB, dtype=torch.bool).scatter(1, tokens, True)
    expected = RepetitionPenaltyLogitsProcessor(1.7)(tokens, logits())
    torch.testing.assert_close(penalise(logits(), seen, torch.tensor([[1.7]])), expected)


def test_draws_come_from_the_warped_distribution_and_log_probs_from_the_whole_one() -> None:
    """The order is vLLM's: penalty, temperature, min-p, top-k, top-p; it is Transformers' but for min-p."""
    sampling = Sampling(max_tokens=1, temperature=0.6, min_p=0.02, top_k=8, top_p=0.8, repetition_penalty=1.4)
    seen = logits() > 1.5
    table = SamplingTable([sampling], vocab_size=VOCAB, device=torch.device("cpu"))
    rules = table.rules(torch.zeros(ROWS, dtype=torch.int64))
    scores = torch.where(seen & (logits() > 0), logits() / 1.4, torch.where(seen, logits() * 1.4, logits())) / 0.6
    scores = TopPLogitsWarper(0.8)(None, TopKLogitsWarper(8)(None, MinPLogitsWarper(0.02)(None, scores)))
    cumulated = scores.double().softmax(-1).cumsum(-1)
    for uniform in torch.linspace(0, 0.999, 41, dtype=torch.float64):
        numbers = uniform.expand(ROWS)
        tokens, log_probs = draw(logits(), numbers, rules, generated=torch.zeros(ROWS, dtype=torch.int64), seen=seen)
        assert torch.equal(tokens, (cumulated <= uniform).sum(-1))
        expected = torch.log_softmax(logits() / 0.6, -1).gather(1, tokens[:, None])[:, 0]
        torch.testing.assert_close(log_probs, expected)


def test_the_largest_uniform_never_draws_an_excluded_token() -> None:
    table = SamplingTable([Sampling(max_tokens=1, top_k=3)], vocab_size=VOCAB, device=torch.device("cpu"))
    rules = table.rules(torch.zeros(ROWS, dtype=torch.int64))
    largest = torch.full((ROWS,), 1 - 2.0**-52, dtype=torch.float64)
    tokens, _ = draw(logits(), largest, rules, generated=torch.zeros(ROWS, dtype=torch.int64), seen=None)
    kept = TopKLogitsWarper(3)(None, logits()).isfinite()
    assert kept.gather(1, tokens[:, None]).all()
