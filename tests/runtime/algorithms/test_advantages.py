"""Advantages are the numbers of their papers, whatever order the responses come in."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from rlctl.common.errors import ConfigError
from rlctl.runtime.algorithms.advantages import (
    ADVANTAGES,
    estimate,
    gae,
    grpo,
    measured_column,
    reinforce,
    rloo,
    token_rewards,
    whitened,
)
from rlctl.runtime.algorithms.distributions import STATISTICS

GROUPS = torch.tensor([7, 3, 7, 3, 9, 7])
REWARDS = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 8.0], dtype=torch.float64)
# group 7 holds 1, 3, 8: mean 4, deviations -3, -1, 4; group 3 holds 2, 4: mean 3, deviations -1, 1; group 9 holds 5


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_grpo_by_hand() -> None:
    std7 = math.sqrt((9 + 1 + 16) / 2)  # unbiased: over n - 1 = 2
    std3 = math.sqrt((1 + 1) / 1)
    expected = tensor(-3 / std7, -1 / std3, -1 / std7, 1 / std3, 5.0, 4 / std7)
    assert_close(grpo(REWARDS, GROUPS, epsilon=0.0), expected)


def test_grpo_adds_epsilon_to_the_std() -> None:
    # deviations -1, 1 with std sqrt(2); epsilon 0.5
    expected = tensor(-1 / (math.sqrt(2) + 0.5), 1 / (math.sqrt(2) + 0.5))
    assert_close(grpo(tensor(2, 4), torch.tensor([0, 0]), epsilon=0.5), expected)


def test_dr_grpo_by_hand() -> None:
    assert_close(grpo(REWARDS, GROUPS, normalize_by_std=False), tensor(-3, -1, -1, 1, 5, 4))


def test_rloo_by_hand() -> None:
    # each reward minus the mean of the others: 1 - (3+8)/2, 2 - 4, 3 - (1+8)/2, 4 - 2, alone: 5, 8 - (1+3)/2
    assert_close(rloo(REWARDS, GROUPS), tensor(-4.5, -2, -1.5, 2, 5, 6))


def test_equal_rewards_give_exactly_no_advantage() -> None:
    # the float32 mean of seven times 0.1 is not 0.1: the rounding over epsilon would be 1e-2
    assert grpo(torch.full((7,), 0.1), torch.zeros(7, dtype=torch.int64)).abs().max() < 1e-7


def test_reinforce_plus_plus_baseline_centers_by_group_and_whitens_over_tokens() -> None:
    # rewards 0, 2 of one group: -1, 1. Tokens -1, 1, 1, 1: mean 1/2, squares 9/4 + 3/4 = 3, over n - 1 = 3: variance 1
    result = estimate("reinforce_plus_plus_baseline", tensor(0, 2), torch.tensor([1, 3]), groups=torch.tensor([0, 0]))
    assert_close(result.tokens, tensor(-1.5, 0.5, 0.5, 0.5))
    assert result.returns is None


def test_reinforce_by_hand() -> None:
    # gamma 1/2, rewards 0, 0, 4: returns 1, 2, 4
    assert_close(reinforce(tensor(0, 0, 4), torch.tensor([3]), gamma=0.5), tensor(1, 2, 4))


def test_reinforce_plus_plus_is_reinforce_whitened() -> None:
    # returns 1, 2, 4 less their mean 7/3: -4/3, -1/3, 5/3; variance (16 + 1 + 25) / 9 / 2 = 7/3
    result = estimate("reinforce_plus_plus", tensor(4), torch.tensor([3]), gamma=0.5)
    assert_close(result.tokens, tensor(-4, -1, 5) / 3 / math.sqrt(7 / 3), rtol=1e-6, atol=0.0)


def test_gae_by_hand() -> None:
    # gamma 1/2, lambda 1/2; r = 0, 0, 1; V = 1, 2, 3
    # d = 0 + 1 - 1, 0 + 1.5 - 2, 1 + 0 - 3 = 0, -0.5, -2; A3 = -2; A2 = -0.5 - 2/4 = -1; A1 = 0 - 1/4
    result = gae(tensor(0, 0, 1), tensor(1, 2, 3), torch.tensor([3]), gamma=0.5, lambda_=0.5)
    assert_close(result, tensor(-0.25, -1, -2))


def gae_by_definition(rewards: Tensor, values: Tensor, gamma: float, lam: float) -> Tensor:
    """Return the double sum of Schulman et al., equation 16, for one sequence."""
    length = len(rewards)
    following = torch.cat((values[1:], torch.zeros(1, dtype=values.dtype)))
    deltas = rewards + gamma * following - values
    return torch.stack([sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, length)) for t in range(length)])  # type: ignore[misc]


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    lengths = torch.tensor(draw(st.lists(st.integers(0, 9), min_size=1, max_size=6)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    tokens = int(lengths.sum())
    rewards, values = torch.randn(2, tokens, dtype=torch.float64, generator=generator)
    return rewards, values, lengths


UNIT = st.floats(0.0, 1.0)


@given(batches(), UNIT, UNIT)
def test_gae_is_its_definition(batch: tuple[Tensor, Tensor, Tensor], gamma: float, lam: float) -> None:
    rewards, values, lengths = batch
    parts = zip(rewards.split(lengths.tolist()), values.split(lengths.tolist()), strict=True)
    expected = [gae_by_definition(r, v, gamma, lam) for r, v in parts if len(r)]
    result = gae(rewards, values, lengths, gamma=gamma, lambda_=lam)
    assert_close(result, torch.cat(expected) if expected else rewards, rtol=1e-12, atol=1e-12)


@given(batches())
def test_gae_undiscounted_is_returns_minus_values(batch: tuple[Tensor, Tensor, Tensor]) -> None:
    rewards, values, lengths = batch
    to_go = [part.flip(0).cumsum(0).flip(0) for part in rewards.split(lengths.tolist())]
    assert_close(
        gae(rewards, values, lengths, gamma=1.0, lambda_=1.0), torch.cat(to_go) - values, rtol=1e-12, atol=1e-12
    )


def test_the_critics_returns_are_taken_before_whitening() -> None:
    # one response of two tokens, reward 1, values 0.25, 0.5: advantages 0.75, 0.5; returns 1, 1
    # whitened: mean 0.625, deviations +-0.125, unbiased variance 0.03125: +-0.125 / sqrt(0.03125) = +-0.7071
    result = estimate("gae", tensor(1), torch.tensor([2]), values=tensor(0.25, 0.5))
    assert result.returns is not None
    assert_close(result.returns, tensor(1, 1))
    assert_close(result.tokens, tensor(1, -1) / math.sqrt(2), rtol=1e-6, atol=0.0)


def test_whitening_can_be_asked_for_and_declined() -> None:
    lengths = torch.tensor([1, 1, 1])
    assert_close(estimate("reinforce", tensor(1, 2, 3), lengths, whiten=True).tokens, tensor(-1, 0, 1))
    plain = estimate("gae", tensor(1, 2, 3), lengths, values=tensor(0, 0, 0), whiten=False)
    assert_close(plain.tokens, tensor(1, 2, 3))


def test_whitened_has_mean_zero_and_unbiased_variance_one() -> None:
    result = whitened(torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 5 + 3)
    assert_close(result.mean(), torch.tensor(0.0), atol=1e-6, rtol=0.0)
    assert_close(result.var(correction=1), torch.tensor(1.0))
    assert whitened(torch.tensor([4.0])).tolist() == [0.0]
    assert whitened(torch.empty(0)).numel() == 0


def test_rewards_come_at_the_last_token_less_every_tokens_penalty() -> None:
    result = token_rewards(tensor(1, 9, 2), tensor(0.5, 0.25, 0.125), torch.tensor([2, 0, 1]))
    assert_close(result, tensor(-0.5, 0.75, 1.875))


def test_penalties_count_before_group_statistics() -> None:
    # rewards 1, 1 less penalties 0.5 + 0.5 and 0: 0, 1; mean 0.5
    result = estimate(
        "grpo",
        tensor(1, 1),
        torch.tensor([2, 1]),
        groups=torch.tensor([4, 4]),
        token_penalties=tensor(0.5, 0.5, 0),
        normalize_by_std=False,
    )
    assert_close(result.tokens, tensor(-0.5, -0.5, 0.5))


def test_a_response_without_tokens_still_counts_in_its_group() -> None:
    # rewards 0, 4: mean 2; only the second has tokens
    result = estimate("grpo", tensor(0, 4), torch.tensor([0, 2]), groups=torch.tensor([1, 1]), normalize_by_std=False)
    assert_close(result.tokens, tensor(2, 2))


@given(st.permutations(range(12)), st.sampled_from(["grpo", "rloo", "opmd", "gpg", "asymre"]))
def test_order_does_not_matter(order: list[int], name: str) -> None:
    generator = torch.Generator().manual_seed(5)
    groups = torch.randint(0, 4, (12,), generator=generator)
    rewards = torch.randn(12, dtype=torch.float64, generator=generator)
    tensors: dict[str, Any] = {"rewards": rewards, "groups": groups}
    shuffled = {key: value[order] for key, value in tensors.items()}
    estimator = ADVANTAGES[name]
    assert_close(estimator(shuffled), estimator(tensors)[order], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["gpg", "grpo", "opmd", "rloo", "reinforce_plus_plus_baseline"])
def test_a_groups_advantages_sum_to_zero(name: str) -> None:
    advantages = ADVANTAGES[name]({"rewards": REWARDS, "groups": GROUPS})
    assert_close(advantages[GROUPS == 7].sum(), tensor(0)[0], atol=1e-12, rtol=0.0)


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_every_estimator_gives_each_token_a_finite_float32_advantage(name: str) -> None:
    lengths = torch.tensor([3, 0, 2, 1])
    result = estimate(
        name,
        torch.tensor([0.0, 1.0, 1.0, 0.5]),
        lengths,
        groups=torch.tensor([0, 0, 1, 1] if name == "grpo_passk" else [0, 0, 1, 2]),
        values=torch.linspace(0, 1, 6),
        baselines=torch.tensor([0.5, 0.5, 0.0, 1.0]),
        parts=torch.tensor([[0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.5]]),
        columns={
            **{name: -torch.linspace(0.1, 2, 6) for name in ("old_log_probs", "rollout_log_probs")},
            **{name: torch.linspace(0.1, 1, 6) for name in map(measured_column, STATISTICS)},
            "correction_weights": torch.ones(6),
            "passed": torch.ones(6, dtype=torch.bool),
        },
    )
    assert result.tokens.shape == (6,)
    assert result.tokens.dtype == torch.float32
    assert result.tokens.isfinite().all()


def test_what_is_missing_is_refused() -> None:
    with pytest.raises(ConfigError, match="gae needs token_rewards, values, lengths; got no values"):
        estimate("gae", tensor(1), torch.tensor([1]))
    with pytest.raises(ConfigError, match="unknown advantage estimator 'gea'"):
        estimate("gea", tensor(1), torch.tensor([1]))


def test_passk_gives_the_best_its_lead_over_the_second() -> None:
    groups = torch.tensor([7, 3, 7, 3, 7])
    rewards = tensor(1, 4, 8, 2, 3)
    # group 7: 8 leads 3 by 5, std of 1, 8, 3 with n - 1 is sqrt(13); group 3: 4 leads 2 by 2, std sqrt(2)
    expected = tensor(0, 2 / math.sqrt(2), 5 / math.sqrt(13), 0, 0)
    assert_close(ADVANTAGES["grpo_passk"]({"rewards": rewards, "groups": groups}, epsilon=0.0), expected)
    plain = ADVANTAGES["grpo_passk"]({"rewards": rewards, "groups": groups}, normalize_by_std=False)
    assert_close(plain, tensor(0, 2, 5, 0, 0))
    tie = ADVANTAGES["grpo_passk"]({"rewards": tensor(1, 1, 0), "groups": torch.zeros(3, dtype=torch.int64)})
    assert tie.tolist() == [0, 0, 0]


def test_passk_of_one_response_is_refused() -> None:
    with pytest.raises(ConfigError, match="two best responses"):
        ADVANTAGES["grpo_passk"]({"rewards": REWARDS, "groups": GROUPS})


def test_opo_by_hand() -> None:
    lengths = torch.tensor([1, 5, 2, 3, 4, 1])
    # group 7: (1*1 + 2*3 + 1*8) / 4 = 3.75; group 3: (5*2 + 3*4) / 8 = 2.75; alone: 0
    expected = tensor(-2.75, -0.75, -0.75, 1.25, 5, 4.25)
    assert_close(ADVANTAGES["opo"]({"rewards": REWARDS, "groups": GROUPS, "lengths": lengths}), expected)


def test_opmd_by_hand() -> None:
    assert_close(ADVANTAGES["opmd"]({"rewards": REWARDS, "groups": GROUPS}), tensor(-3, -1, -1, 1, 5, 4))
    soft7 = 2 * math.log((math.exp(0.5) + math.exp(1.5) + math.exp(4)) / 3)
    soft3 = 2 * math.log((math.exp(1) + math.exp(2)) / 2)
    expected = tensor(1 - soft7, 2 - soft3, 3 - soft7, 4 - soft3, 5, 8 - soft7)
    assert_close(ADVANTAGES["opmd"]({"rewards": REWARDS, "groups": GROUPS}, baseline="logavgexp", tau=2.0), expected)


def test_a_soft_baseline_does_not_overflow_and_nears_the_mean() -> None:
    tensors = {"rewards": tensor(1000, 0), "groups": torch.zeros(2, dtype=torch.int64)}
    hard = ADVANTAGES["opmd"](tensors, baseline="logavgexp", tau=1.0)
    assert_close(hard, tensor(math.log(2), -1000 + math.log(2)))
    assert_close(ADVANTAGES["opmd"](tensors, baseline="logavgexp", tau=1e9), tensor(500, -500), rtol=1e-3, atol=0)


def test_gpg_by_hand() -> None:
    # 4 responses, 2 of them with a reward: twice the deviation from the mean of 1/2
    result = ADVANTAGES["gpg"]({"rewards": tensor(1, 0, 1, 0), "groups": torch.tensor([0, 0, 1, 1])})
    assert_close(result, tensor(1, -1, 1, -1))
    nothing = ADVANTAGES["gpg"]({"rewards": tensor(0, 0), "groups": torch.tensor([0, 0])})
    assert nothing.tolist() == [0, 0]


def test_asymre_by_hand() -> None:
    # the mean of each group less 0.5; alone: the reward
    result = ADVANTAGES["asymre"]({"rewards": REWARDS, "groups": GROUPS}, baseline_shift=-0.5)
    assert_close(result, tensor(-2.5, -0.5, -0.5, 1.5, 5, 4.5))


def test_rec_by_hand() -> None:
    assert_close(ADVANTAGES["rec"]({"rewards": REWARDS, "groups": GROUPS}), tensor(-3, -1, -1, 1, 5, 4))
    std7 = math.sqrt((9 + 1 + 16) / 3)  # biased: over n
    expected = tensor(-3 / std7, -1, -1 / std7, 1, 5, 4 / std7)
    found = ADVANTAGES["rec"]({"rewards": REWARDS, "groups": GROUPS}, std_normalize=True, epsilon=0.0)
    assert_close(found, expected)
    with pytest.raises(ConfigError, match=r"args\.drop is balance"):
        ADVANTAGES["rec"]({"rewards": REWARDS, "groups": GROUPS}, drop="balance")


def test_remax_by_hand() -> None:
    # rewards 1 and 0 after 2 and 1 tokens, greedy 0.25 and 0.5, gamma 0.5
    result = estimate("remax", tensor(1, 0), torch.tensor([2, 1]), baselines=tensor(0.25, 0.5), gamma=0.5)
    assert_close(result.tokens, tensor(0.25, 0.75, -0.5))
    with pytest.raises(ConfigError, match="got no baselines"):
        estimate("remax", tensor(1), torch.tensor([1]))


def test_penalties_may_come_after_the_group() -> None:
    # advantages 1, -1 of rewards 1, -1; the first response then pays 0.5 + 0.25 from its first token on, 0.25 from its second
    result = estimate(
        "grpo",
        tensor(1, -1),
        torch.tensor([2, 1]),
        groups=torch.tensor([4, 4]),
        token_penalties=tensor(0.5, 0.25, 0),
        penalties_last=True,
        normalize_by_std=False,
    )
    assert_close(result.tokens, tensor(0.25, 0.75, -1))


def test_token_rewards_are_cut_and_whitened() -> None:
    # token rewards -0.5, 3 - 0.25 and -1: cut at 2 to -0.5, 2, -1; undiscounted returns 1.5, 2, -1
    common: dict[str, Any] = {"token_penalties": tensor(0.5, 0.25, 0)}
    cut = estimate("reinforce", tensor(3, -1), torch.tensor([2, 1]), token_clip=2.0, **common)
    assert_close(cut.tokens, tensor(1.5, 2, -1))
    # whitened: mean 1/6, unbiased variance 31/12; the returns are sums of whitened rewards
    white = [(x - 1 / 6) / math.sqrt(31 / 12) for x in (-0.5, 2, -1)]
    both = estimate("reinforce", tensor(3, -1), torch.tensor([2, 1]), token_clip=2.0, whiten_rewards=True, **common)
    assert_close(both.tokens, tensor(white[0] + white[1], white[1], white[2]), rtol=1e-6, atol=1e-6)


def test_statistics_may_leave_tokens_out() -> None:
    # of 1, 2, 9 the first two count: mean 1.5, unbiased variance 0.5
    result = estimate(
        "reinforce", tensor(1, 2, 9), torch.tensor([1, 1, 1]), whiten=True, trained=torch.tensor([1, 1, 0]) > 0
    )
    assert_close(result.tokens, tensor(-0.5, 0.5, 7.5) / math.sqrt(0.5), rtol=1e-6, atol=0)


def test_the_reward_alone_and_no_estimate_at_all() -> None:
    """Rewards 3 and -1 at the last tokens, each token's penalty taken off: 2.25 and -1 in all, or where they come."""
    lengths, penalties = torch.tensor([2, 1]), tensor(0.5, 0.25, 0)
    alone = estimate("reward", tensor(3, -1), lengths, token_penalties=penalties)
    assert_close(alone.tokens, tensor(2.25, 2.25, -1))
    own = estimate("none", tensor(3, -1), lengths, token_penalties=penalties)
    assert_close(own.tokens, tensor(-0.5, 2.75, -1))


def clipped(name: str, rewards: Tensor, signal: list[float], **options: float) -> tuple[list[float], list[bool]]:
    """Advantages and what is kept of five tokens of four responses, whose signal p (H + log p) is this.

    Log-probs are 0, so that the entropy is the signal; the expected signal is 0.
    """
    zero = torch.zeros(5, dtype=torch.float64)
    found = estimate(
        name,
        rewards,
        torch.tensor([2, 1, 1, 1]),
        groups=torch.tensor([0, 0, 1, 1]),
        columns={
            **dict.fromkeys(("old_log_probs", "rollout_log_probs", "old_expected_signal"), zero),
            "old_entropy": tensor(*signal),
        },
        **options,
    )
    assert found.kept is not None
    return found.tokens.tolist(), found.kept.tolist()


def test_clipb_leaves_out_bad_tokens_of_low_signal() -> None:
    """Signals of mean 0 and standard deviation 2 (over n): below -1 is low at a mu of 1/2, at -1 it is not."""
    rewards, signal = tensor(0, 1, 1, 0), [-2.0, -1.0, 4.0, -2.0, 1.0]
    deviation = math.sqrt((4 + 1 + 16 + 4 + 1) / 5)
    tokens, kept = clipped("clipb", rewards, signal, mu=1.5 / deviation)
    assert tokens == pytest.approx([-math.sqrt(0.5)] * 2 + [math.sqrt(0.5)] * 2 + [-math.sqrt(0.5)], rel=1e-5)
    assert kept == [False, True, True, True, True], "the fourth is of a good response"
    assert clipped("clipb", tensor(1, 1, 0, 0), signal, mu=0.1)[1] == [True] * 5, "no response is bad"
    assert clipped("clipb", rewards, [3.0] * 5, mu=0.0)[1] == [True] * 5, "the signal says nothing"


def test_clipv_leaves_out_the_worst_of_bad_tokens() -> None:
    """The signal is below what is expected by 8, 2, 5, -1 and 4: above mu deviations of it, from 0, is 3 here."""
    rewards, signal = tensor(0, 1, 1, 0), [-8.0, -2.0, -5.0, 1.0, -4.0]
    mean = (8 + 2 + 5 - 1 + 4) / 5
    deviation = math.sqrt(sum((value - mean) ** 2 for value in (8, 2, 5, -1, 4)) / 5)
    assert clipped("clipv", rewards, signal, mu=3 / deviation, max_frac=1.0)[1] == [False, True, True, True, False]
    one = [False, True, True, True, True]
    assert clipped("clipv", rewards, signal, mu=3 / deviation, max_frac=0.2)[1] == one
    assert clipped("clipv", rewards, signal, mu=3 / deviation)[1] == one, "one at least"
    assert clipped("clipv", tensor(0, 1, 1, 1), signal, mu=3 / deviation)[1] == [False, True, True, True, False]
    assert clipped("clipv", tensor(1, 0, 1, 0), signal, mu=3 / deviation, max_frac=1.0)[1] == [
        True,
        True,
        False,
        True,
        False,
    ]
    assert clipped("clipv", rewards, [3.0] * 5, mu=-1.0)[1] == [True] * 5, "the signal says nothing"
