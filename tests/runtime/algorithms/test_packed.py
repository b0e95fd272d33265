"""The packed layout moves numbers between sequences and tokens without mixing sequences, empty ones included."""

from __future__ import annotations

import torch

from rlctl.runtime.algorithms.packed import discounted_sum, last_tokens, sequence_index, sequence_sum, spread

LENGTHS = torch.tensor([2, 0, 1])


def test_tokens_know_their_sequence() -> None:
    assert sequence_index(LENGTHS).tolist() == [0, 0, 2]
    assert last_tokens(LENGTHS).tolist() == [1, 2]


def test_sequence_values_spread_over_their_tokens() -> None:
    assert spread(torch.tensor([5.0, 6.0, 7.0]), LENGTHS).tolist() == [5.0, 5.0, 7.0]


def test_tokens_sum_up_within_their_sequence() -> None:
    assert sequence_sum(torch.tensor([1.0, 2.0, 4.0]), LENGTHS).tolist() == [3.0, 0.0, 4.0]


def test_discounted_sum_by_hand() -> None:
    # first sequence, from its end: 4; 2 + 4/2 = 4; 1 + 4/2 = 3. The second starts afresh: 8
    result = discounted_sum(torch.tensor([1.0, 2.0, 4.0, 8.0]), torch.tensor([3, 0, 1]), 0.5)
    assert result.tolist() == [3.0, 4.0, 4.0, 8.0]


def test_discount_zero_is_the_identity_and_nothing_stays_nothing() -> None:
    values = torch.randn(5)
    assert torch.equal(discounted_sum(values, torch.tensor([2, 3]), 0.0), values)
    assert discounted_sum(torch.empty(0), torch.tensor([0, 0]), 1.0).numel() == 0
    assert discounted_sum(torch.empty(0), torch.empty(0, dtype=torch.int64), 1.0).numel() == 0
