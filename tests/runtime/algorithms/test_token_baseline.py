"""The baseline of a place is the mean of returns by weights, over the responses that get there; worked by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.testing import assert_close

from rlctl.runtime.algorithms.token_baseline import optimal_token_baseline, tir_optimal_token_baseline

GROUPS = torch.tensor([4, 2, 4])
LENGTHS = torch.tensor([3, 2, 2])
# energies of tokens, 1 - 2 p + squares: [0.5, 0.25, 1], [0.5, 0.5], [0.25, 0.75]
P = torch.tensor([0.5, 0.5, 0.25, 0.5, 0.5, 0.5, 0.25], dtype=torch.float64)
ENERGY = torch.tensor([0.5, 0.25, 1.0, 0.5, 0.5, 0.25, 0.75], dtype=torch.float64)
REWARDS = torch.tensor([0.0, 1.0, 2.0, 0.0, 5.0, 0.0, 6.0], dtype=torch.float64)
# returns [3, 3, 2], [5, 5], [6, 6]; sums of energies [0.5, 0.75, 1.75], [0.5, 1], [0.25, 1]


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def found(function: Any = optimal_token_baseline, **changed: Any) -> Tensor:
    known: dict[str, Any] = {
        "token_rewards": REWARDS,
        "groups": GROUPS,
        "lengths": LENGTHS,
        "old_log_probs": P.log(),
        "old_squared_probabilities": ENERGY - 1 + 2 * P,
        "correction_weights": torch.ones(7, dtype=torch.float64),
        "passed": torch.ones(7, dtype=torch.bool),
        "epsilon": 0.0,
    }
    advantages: Tensor = function(**{**known, **changed})
    return advantages


def test_by_hand() -> None:
    """Places 0 and 1 have baselines of both responses; beyond the second-longest there is none, nor in a group of one."""
    first, second = (0.5 * 3 + 0.25 * 6) / 0.75, (0.75 * 3 + 1 * 6) / 1.75
    expected = tensor(3 - first, 3 - second, 2, 5, 5, 6 - first, 6 - second)
    assert_close(found(), expected)
    assert_close(found(tir_optimal_token_baseline), expected)
    assert_close(found(handle_zero_tail=False), torch.cat((expected[:2], tensor(0), expected[3:])))


def test_the_weights_of_the_correction_are_squared() -> None:
    weights = tensor(2, 1, 1, 1, 1, 1, 1)
    first, second = (2.0 * 3 + 0.25 * 6) / 2.25, (2.25 * 3 + 1 * 6) / 3.25
    expected = tensor(3 - first, 3 - second, 2, 5, 5, 6 - first, 6 - second)
    assert_close(found(correction_weights=weights), expected)


def test_epsilon_is_added_to_the_sum_of_weights() -> None:
    first, second = (0.5 * 3 + 0.25 * 6) / 1, (0.75 * 3 + 1 * 6) / 2
    assert_close(found(epsilon=0.25), tensor(3 - first, 3 - second, 2, 5, 5, 6 - first, 6 - second))


def test_rejected_tokens_keep_their_place_or_give_it_up() -> None:
    """Without the first token of the third response, its second is at place 1, or at place 0; one token of it counts.

    Beyond one token the first response has no baseline.
    """
    passed = torch.tensor([True, True, True, True, True, False, True])
    second = (0.75 * 3 + 0.75 * 6) / 1.5
    assert_close(found(passed=passed), tensor(3 - 3, 3, 2, 5, 5, 0, 6 - second))
    first = (0.5 * 3 + 0.75 * 6) / 1.25
    assert_close(found(tir_optimal_token_baseline, passed=passed), tensor(3 - first, 3, 2, 5, 5, 0, 6 - first))


def test_a_response_without_a_token_is_none_of_the_multi_turn_groups() -> None:
    passed = torch.tensor([True] * 5 + [False] * 2)
    for function in (optimal_token_baseline, tir_optimal_token_baseline):
        assert_close(found(function, passed=passed), tensor(3, 3, 2, 5, 5, 0, 0))
    assert_close(found(passed=passed, handle_zero_tail=False), tensor(0, 0, 0, 5, 5, 0, 0))
    assert_close(found(tir_optimal_token_baseline, passed=passed, handle_zero_tail=False), tensor(3, 3, 2, 5, 5, 0, 0))


def test_equal_responses_have_no_advantage_and_no_response_is_no_error() -> None:
    for function in (optimal_token_baseline, tir_optimal_token_baseline):
        zero = torch.zeros(0, dtype=torch.float64)
        nothing = {"token_rewards": zero, "groups": GROUPS[:0], "lengths": LENGTHS[:0], "old_log_probs": zero}
        nothing |= {"old_squared_probabilities": zero, "correction_weights": zero, "passed": zero.bool()}
        assert found(function, **nothing).shape == (0,)
        same = found(function, groups=torch.tensor([0, 1, 1]), token_rewards=tensor(0, 0, 1, 0, 1, 0, 1))
        assert_close(same, tensor(1, 1, 1, 0, 0, 0, 0))
