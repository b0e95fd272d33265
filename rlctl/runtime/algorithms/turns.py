"""Advantages by the turns of agents. A response without turns is one turn.

    turns         [B]  int64, turns of each response, S in all, in the order in which they were taken
    turn_rewards  [S]  what each turn gave; the last of a response also holds what its reward is above the sum of its turns
    turn_lengths  [S]  int64, counted tokens of each turn
    turn_places   [S]  int64, where the tokens of each turn are among those of all turns: rows need not follow the order of turns

Estimators give one number a turn, which ``on_tokens`` gives to the turn's tokens.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from rlctl.runtime.algorithms.packed import discounted_sum, last_tokens, sequence_sum, spread
from rlctl.runtime.algorithms.rewards import Scope, normalized


class TurnAdvantages(NamedTuple):
    """Advantages of tokens, and what the critic learns."""

    advantages: Tensor
    """[N]."""
    returns: Tensor | None = None
    """[N]."""


def single(lengths: Tensor, groups: Tensor | None) -> dict[str, Tensor]:
    """The turns of responses that have one each."""
    count = len(lengths)
    zeros = torch.zeros(count)
    return {
        "turns": torch.ones_like(lengths),
        "rows": torch.ones_like(lengths),
        "turn_rewards": zeros,
        "placed": zeros,
        "turn_lengths": lengths,
        "turn_places": torch.arange(count),
        "turn_states": torch.arange(count),
        "normal_groups": torch.zeros_like(lengths) if groups is None else groups,
    }


def on_tokens(values: Tensor, turn_lengths: Tensor, turn_places: Tensor) -> Tensor:
    """Give the tokens of each turn its value. [S] to [N]."""
    order = turn_places.argsort()
    return torch.repeat_interleave(values[order], turn_lengths[order])


def with_rest(turn_rewards: Tensor, rewards: Tensor, turns: Tensor) -> Tensor:
    """Add to the last turn of each response what its reward is above the sum of its turns' rewards. [S]."""
    some = turns > 0
    rest = (rewards - sequence_sum(turn_rewards, turns))[some]
    return turn_rewards.index_add(0, last_tokens(turns), rest.to(turn_rewards.dtype))


def with_ends(token_rewards: Tensor, turn_rewards: Tensor, turn_lengths: Tensor, turn_places: Tensor) -> Tensor:
    """Add each turn's reward to its last token. [N]."""
    order = turn_places.argsort()
    lengths, values = turn_lengths[order], turn_rewards[order]
    return token_rewards.index_add(0, last_tokens(lengths), values[lengths > 0].to(token_rewards.dtype))


def step_reinforce(
    turn_rewards: Tensor,
    turns: Tensor,
    normal_groups: Tensor,
    turn_lengths: Tensor,
    turn_places: Tensor,
    *,
    gamma: float = 0.95,
    mean: Scope | None = None,
    std: Scope | None = None,
) -> TurnAdvantages:
    """Return A_k = sum_j gamma^j r_{k+j} over turns, normalised over the turns of its group or of the batch. [N].

    Source: step_reinforce of ROLL's agentic/utils.py (compute_discounted_returns, compute_response_level_rewards), whose unit is
    the step.
    """
    returns = discounted_sum(turn_rewards, turns, gamma)
    if mean is not None or std is not None:
        returns = normalized(returns, spread(normal_groups, turns), mean=mean, std=std)
    return TurnAdvantages(on_tokens(returns, turn_lengths, turn_places))


def segment_reinforce(
    token_rewards: Tensor, turns: Tensor, turn_lengths: Tensor, turn_places: Tensor, *, gamma: float = 1.0
) -> TurnAdvantages:
    """Return A_k = (reward at the last token of turn k) + gamma A_{k+1}, for all tokens of the turn. [N].

    Source: compute_agentic_reinforce_return of ROLL's agentic/utils.py, whose segments are turns.
    """
    values = discounted_sum(_at_ends(token_rewards, turn_lengths, turn_places), turns, gamma)
    return TurnAdvantages(on_tokens(values, turn_lengths, turn_places))


def turn_gae(
    token_rewards: Tensor,
    values: Tensor,
    turns: Tensor,
    turn_lengths: Tensor,
    turn_places: Tensor,
    *,
    gamma: float = 1.0,
    lambda_: float = 1.0,
) -> TurnAdvantages:
    """Return GAE over turns: V of a turn is the critic's at its first token, its reward is that of all its tokens. [N].

    A_k = sum_j (gamma lambda)^j d_{k+j} with d_k = r_k + gamma V_{k+1} - V_k. The critic learns A_k + V_k at every token.

    Source: Schulman et al., arXiv:1506.02438, with a turn as the step.
    """
    order = turn_places.argsort()
    lengths = turn_lengths[order]
    starts = (lengths.cumsum(0) - lengths).clamp(max=max(len(values) - 1, 0))
    first = torch.where(lengths > 0, values[starts], 0.0) if len(values) else values.new_zeros(len(lengths))
    begin = torch.empty_like(first).index_copy(0, order, first)
    given = torch.empty_like(first).index_copy(0, order, sequence_sum(token_rewards, lengths))
    following = begin.roll(-1)
    following[last_tokens(turns)] = 0.0
    found = discounted_sum(given + gamma * following - begin, turns, gamma * lambda_)
    return TurnAdvantages(
        on_tokens(found, turn_lengths, turn_places), on_tokens(found + begin, turn_lengths, turn_places)
    )


def gigpo(
    rewards: Tensor,
    groups: Tensor,
    turn_rewards: Tensor,
    turns: Tensor,
    turn_states: Tensor,
    turn_lengths: Tensor,
    turn_places: Tensor,
    *,
    episode_weight: float = 1.0,
    step_weight: float = 1.0,
    gamma: float = 0.95,
    normalize_by_std: bool = True,
    epsilon: float = 1e-6,
    anchor_scope: Literal["group", "batch"] = "group",
) -> TurnAdvantages:
    """Return w_E (R - mean of its group) / std + w_S (R_k - mean over the turns from the same state) / std. [N].

    R_k is the discounted sum of rewards from turn k on. Turns from one state are those of all trajectories of the group; of one
    trajectory there may be several. A state that was met once, and a group of one, give 0. Stds are unbiased; without
    ``normalize_by_std`` they are 1.

    Args:
        rewards: [B].
        groups: int64 [B].
        turn_rewards: [S].
        turns: int64 [B].
        turn_states: int64 [S], equal for equal states.
        turn_lengths: int64 [S].
        turn_places: int64 [S].
        episode_weight: of the trajectory's part.
        step_weight: of the turns' part.
        gamma: discount over turns.
        normalize_by_std: divide by stds.
        epsilon: added to them.
        anchor_scope: ``batch`` compares equal states of all groups.

    Source: Feng et al., arXiv:2505.10978, equations 3 to 8.
    """
    episode = _relative(rewards, groups, normalize_by_std, epsilon)
    returns = discounted_sum(turn_rewards, turns, gamma)
    by_group = spread(groups, turns) if anchor_scope == "group" else torch.zeros_like(turn_states)
    _, anchors = torch.unique(torch.stack((by_group, turn_states)), dim=1, return_inverse=True)
    steps = _relative(returns, anchors, normalize_by_std, epsilon)
    found = episode_weight * spread(episode, turns) + step_weight * steps
    return TurnAdvantages(on_tokens(found, turn_lengths, turn_places))


def step_wise_grpo(
    rewards: Tensor,
    groups: Tensor,
    rows: Tensor,
    lengths: Tensor,
    *,
    divide_by_steps: bool = False,
    std_over: Literal["group", "batch", "none"] = "group",
    drop_below_std: float | None = None,
    epsilon: float = 1e-6,
) -> tuple[Tensor, Tensor]:
    """Return GRPO's advantage of each trajectory, for all its sequences, and which tokens are trained on. [B], bool [N].

    Args:
        rewards: [B].
        groups: int64 [B].
        rows: int64 [B], sequences of each trajectory.
        lengths: int64 [B].
        divide_by_steps: divide by ``rows``.
        std_over: what the unbiased std is of; ``none`` divides by none.
        drop_below_std: leave out groups whose std is not above this, and groups of one.
        epsilon: added to the std.

    A group of one has mean 0 and std 1. Source: step_wise_grpo_advantage of Trinity-RFT's multi_step_grpo_advantage.py.
    """
    _, inverse, counts = torch.unique(groups, return_inverse=True, return_counts=True)
    wide = rewards.double()
    mean, std = _statistics(wide, inverse, counts)
    several = counts[inverse] > 1
    own_std = torch.where(several, std[inverse], 1.0)
    divisor = own_std
    if std_over == "batch":
        divisor = (wide.std() if len(wide) > 1 else wide.new_ones(())).expand_as(wide)
    found = wide - torch.where(several, mean[inverse], 0.0)
    if std_over != "none":
        found = found / (divisor + epsilon)
    if divide_by_steps:
        found = found / rows.clamp(min=1)
    passes = torch.ones_like(several) if drop_below_std is None else several & (own_std > drop_below_std)
    return found.to(rewards.dtype), spread(passes, lengths)


def _at_ends(token_rewards: Tensor, turn_lengths: Tensor, turn_places: Tensor) -> Tensor:
    """The reward at the last token of each turn. [S]."""
    order = turn_places.argsort()
    lengths = turn_lengths[order]
    found = token_rewards.new_zeros(len(lengths))
    found[lengths > 0] = token_rewards[last_tokens(lengths)]
    return torch.empty_like(found).index_copy(0, order, found)


def _relative(values: Tensor, groups: Tensor, divides: bool, epsilon: float) -> Tensor:
    """(x - mean of its group) / (std of its group + epsilon); 0 in a group of one."""
    _, inverse, counts = torch.unique(groups, return_inverse=True, return_counts=True)
    wide = values.double()
    mean, std = _statistics(wide, inverse, counts)
    centered = wide - mean[inverse]
    return (centered / (std[inverse] + epsilon) if divides else centered).to(values.dtype)


def _statistics(wide: Tensor, inverse: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and unbiased std of each group; the std of one value is 0."""
    mean = wide.new_zeros(len(counts)).index_add(0, inverse, wide) / counts
    squares = wide.new_zeros(len(counts)).index_add(0, inverse, (wide - mean[inverse]).square())
    return mean, (squares / (counts - 1).clamp(min=1)).sqrt()
