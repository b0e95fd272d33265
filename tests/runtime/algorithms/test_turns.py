"""Advantages by turn against hand-worked numbers of the papers' equations, and what they do to tokens."""

from __future__ import annotations

from math import sqrt
from typing import Any

import pytest
import torch
from torch import Tensor

from rlctl.runtime.algorithms import turns
from rlctl.runtime.algorithms.advantages import estimate
from rlctl.runtime.algorithms.policy_losses import ppo_clip, ppo_clip_segments


def numbers(*values: float) -> Tensor:
    return torch.tensor(values)


def whole(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


TWO: dict[str, Tensor] = {
    "turns": whole(2, 3),
    "rows": whole(1, 3),
    "turn_rewards": numbers(0, 1, 0, 0.5, 0),
    "placed": torch.zeros(5),
    "turn_lengths": whole(2, 1, 1, 2, 1),
    "turn_places": torch.arange(5),
    "turn_states": whole(0, 1, 0, 1, 1),
    "normal_groups": whole(0, 0),
}
"""Two trajectories of one group: turns of 2 and 1 tokens, and of 1, 2 and 1."""
LENGTHS, GROUPS = whole(3, 4), whole(0, 0)


def found(name: str, rewards: Tensor, given: dict[str, Tensor] | None = None, **options: Any) -> list[float]:
    return estimate(name, rewards, LENGTHS, groups=GROUPS, by_turns=given or TWO, **options).tokens.tolist()


def test_gigpo_is_the_papers_equations() -> None:
    # R of turns with gamma 0.5: first 0 + 0.5 = 0.5 and 1; second 0.25, 0.5, 0
    # episode: 1 and 0.5, mean 0.75, unbiased std sqrt(0.125)
    first = 0.25 / sqrt(0.125)
    # state 0: 0.5 and 0.25, mean 0.375, std sqrt(0.03125); state 1: 1, 0.5, 0, mean 0.5, std 0.5
    near = 0.125 / sqrt(0.03125)
    expected = [first + near] * 2 + [first + 1] + [-first - near] + [-first] * 2 + [-first - 1]
    assert found("gigpo", numbers(1, 0.5), gamma=0.5) == pytest.approx(expected, abs=1e-4)
    plain = found("gigpo", numbers(1, 0.5), gamma=0.5, normalize_by_std=False, step_weight=2.0)
    assert plain == pytest.approx([0.25 + 0.25] * 2 + [1.25] + [-0.5] + [-0.25] * 2 + [-1.25])


def test_gigpo_compares_states_of_one_task_only_unless_it_is_told_otherwise() -> None:
    apart = {"groups": whole(0, 1)}
    alone = estimate("gigpo", numbers(1, 0.5), LENGTHS, by_turns=TWO, gamma=1.0, normalize_by_std=False, **apart)
    assert alone.tokens.tolist() == pytest.approx([0, 0, 0, 0, 0.25, 0.25, -0.25]), "state 1 is twice in the second"
    batch = estimate(
        "gigpo",
        numbers(1, 0.5),
        LENGTHS,
        by_turns=TWO,
        gamma=1.0,
        normalize_by_std=False,
        anchor_scope="batch",
        **apart,
    )
    assert batch.tokens.tolist()[0] == pytest.approx(1 - 0.75)


def test_step_reinforce_is_rolls_discounted_return_of_steps() -> None:
    assert found("step_reinforce", numbers(1, 0.5), gamma=0.5) == pytest.approx([0.5, 0.5, 1, 0.25, 0.5, 0.5, 0])
    # ROLL's mean_std over the five steps of the group: mean 0.45, unbiased std
    std = torch.tensor([0.5, 1, 0.25, 0.5, 0]).std().item()
    expected = [(value - 0.45) / (std + 1e-6) for value in (0.5, 0.5, 1, 0.25, 0.5, 0.5, 0)]
    assert found("step_reinforce", numbers(1, 0.5), gamma=0.5, mean="group", std="group") == pytest.approx(expected)


def test_a_reward_beyond_those_of_the_turns_counts_at_the_last_turn() -> None:
    assert found("step_reinforce", numbers(3, 0.5), gamma=0.5) == pytest.approx([1.5, 1.5, 3, 0.25, 0.5, 0.5, 0])


def test_segment_reinforce_reads_the_reward_at_the_end_of_each_turn() -> None:
    assert found("segment_reinforce", numbers(1, 0.5), gamma=0.5) == pytest.approx(
        [0.5, 0.5, 1, 0.125, 0.25, 0.25, 0.5]
    )
    own = {**TWO, "placed": TWO["turn_rewards"]}
    assert found("segment_reinforce", numbers(1, 0.5), own, gamma=0.5) == pytest.approx(
        [0.5, 0.5, 1, 0.25, 0.5, 0.5, 0]
    )


def test_rewards_of_turns_at_their_ends_are_discounted_over_generated_tokens() -> None:
    own = {**TWO, "placed": TWO["turn_rewards"]}
    reinforced = found("reinforce", numbers(1, 0.5), own, gamma=0.5, whiten=False)
    assert reinforced == pytest.approx([0.25, 0.5, 1, 0.5**3, 0.25, 0.5, 0])
    assert found("reinforce", numbers(1, 0.5), gamma=0.5, whiten=False)[3:] == pytest.approx([0.0625, 0.125, 0.25, 0.5])


def test_gae_over_turns_is_gae_with_a_turn_as_the_step() -> None:
    values = numbers(0.5, 9, 0.25, 0.1, 0.2, 9, 0.3)
    result = estimate(
        "turn_gae",
        numbers(1, 0.5),
        LENGTHS,
        groups=GROUPS,
        by_turns=TWO,
        values=values,
        gamma=0.5,
        lambda_=0.5,
        whiten=False,
    )
    last = 1 - 0.25
    first = (0.5 * 0.25 - 0.5) + 0.25 * last
    third = 0.5 - 0.3
    second = (0.5 * 0.3 - 0.2) + 0.25 * third
    begin = (0.5 * 0.2 - 0.1) + 0.25 * second
    assert result.tokens.tolist() == pytest.approx([first, first, last, begin, second, second, third])
    assert result.returns is not None
    assert result.returns.tolist() == pytest.approx([first + 0.5] * 2 + [1, begin + 0.1] + [second + 0.2] * 2 + [0.5])


def test_step_wise_grpo_is_trinitys() -> None:
    std = sqrt(0.125)
    high, low = 0.25 / (std + 1e-6), -0.25 / (std + 1e-6)
    assert found("step_wise_grpo", numbers(1, 0.5)) == pytest.approx([high] * 3 + [low] * 4)
    assert found("step_wise_grpo", numbers(1, 0.5), divide_by_steps=True) == pytest.approx([high] * 3 + [low / 3] * 4)
    assert found("step_wise_grpo", numbers(1, 0.5), std_over="none") == pytest.approx([0.25] * 3 + [-0.25] * 4)
    result = estimate("step_wise_grpo", numbers(1, 0.5), LENGTHS, groups=GROUPS, by_turns=TWO, drop_below_std=0.4)
    assert result.kept is not None
    assert not result.kept.any(), "the group's std, 0.35, is not above 0.4"
    alone = estimate("step_wise_grpo", numbers(1, 0.5), LENGTHS, groups=whole(0, 1), by_turns=TWO, drop_below_std=0.0)
    assert alone.kept is not None
    assert not alone.kept.any(), "a group of one is left out too"


def test_tokens_follow_rows_where_those_do_not_follow_turns() -> None:
    values, lengths = numbers(1, 2, 3), whole(1, 2, 1)
    assert turns.on_tokens(values, lengths, whole(0, 2, 1)).tolist() == [1, 3, 2, 2], (
        "the third turn's row comes second"
    )
    ends = turns.with_ends(torch.zeros(4), values, lengths, whole(0, 2, 1))
    assert ends.tolist() == [1, 3, 0, 2]


def test_a_segments_ratio_is_the_geometric_mean_of_its_tokens() -> None:
    new = numbers(0.3, 0.1, -0.4, 0.2).requires_grad_()
    old, advantages = torch.zeros(4), torch.ones(4)
    result = ppo_clip_segments(new, old, advantages, whole(3, 1), numbers(0, 0, 1, 1), dual_clip=None)
    ratio = [0.2, 0.2, -0.4, 0.2]  # the last token is of another sequence
    assert result.metrics["ratio"].tolist() == pytest.approx(torch.tensor(ratio).exp().tolist())
    whole_token = ppo_clip_segments(new, old, advantages, whole(3, 1), numbers(0, 1, 2, 3), dual_clip=None)
    assert whole_token.values.tolist() == ppo_clip(new, old, advantages, dual_clip=None).values.tolist()
    (gradient,) = torch.autograd.grad(result.values[0], new)
    assert gradient.tolist() == pytest.approx([0, 0, 0, 0]), "1.22 is clipped"
    low = ppo_clip_segments(new - 0.2, old, advantages, whole(3, 1), numbers(0, 0, 1, 1), dual_clip=None)
    (gradient,) = torch.autograd.grad(low.values[0], new)
    assert gradient.tolist() == pytest.approx([-0.5, -0.5, 0, 0]), "the ratio of 1 is that of both tokens"
