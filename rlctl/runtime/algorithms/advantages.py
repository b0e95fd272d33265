"""Advantages: how much better a response, or a token of it, was than expected.

Two grains. An estimator that reads ``rewards`` [B] gives one advantage a response; one that reads ``token_rewards`` [N]
gives one a token. ``estimate`` calls either by name and returns tokens. Statistics (a group's mean, whitening) are over
the batch handed in, so hand in the whole step, never a micro-batch. Small sums are taken in float64: a group of equal
rewards has advantages of 0, not the rounding noise of its mean over the epsilon. A group of one has a baseline of 0, as
in verl and Trinity.

To add one: see ``rlctl.runtime.algorithms``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from rlctl.common.errors import ConfigError
from rlctl.common.messages.reasons import said
from rlctl.runtime.algorithms import turns as by_turn
from rlctl.runtime.algorithms.distributions import STATISTICS
from rlctl.runtime.algorithms.packed import discounted_sum, last_tokens, sequence_sum, spread
from rlctl.runtime.algorithms.table import Algorithm, lookup
from rlctl.runtime.algorithms.token_baseline import optimal_token_baseline, tir_optimal_token_baseline


def grpo(rewards: Tensor, groups: Tensor, *, normalize_by_std: bool = True, epsilon: float = 1e-6) -> Tensor:
    """Return A = (r - mean of its group) / (std of its group + epsilon). [B].

    The std is the unbiased one (over n - 1). A group of one has mean 0 and std 1: its reward stays what it is, up to
    epsilon. Without ``normalize_by_std`` this is Dr. GRPO (arXiv:2503.20783).

    Source: DeepSeekMath, arXiv:2402.03300; the unbiased std and the group of one are as in verl's core_algos.py.
    """
    centered, counts, inverse = _centered(rewards, groups)
    if normalize_by_std:
        variance = _group_sum(centered**2, inverse, counts) / (counts - 1).clamp(min=1)
        std = torch.where(counts > 1, variance.sqrt(), 1.0)
        centered = centered / (std[inverse] + epsilon)
    return centered.to(rewards.dtype)


def grpo_passk(rewards: Tensor, groups: Tensor, *, normalize_by_std: bool = True, epsilon: float = 1e-6) -> Tensor:
    """Return for the best response of a group its lead over the second best, over the group's std + epsilon; else 0. [B].

    Of equal best responses the first counts, with a lead of 0. The std is the unbiased one.

    Raises:
        ConfigError: a group has one response only.

    Source: Pass@k policy optimisation, arXiv:2503.19595; std and epsilon as in verl's core_algos.py.
    """
    centered, counts, inverse = _centered(rewards, groups)
    if bool((counts < 2).any()):
        raise ConfigError("grpo_passk compares a group's two best responses", hint="set batch.responses_per_prompt")
    wide = rewards.double()
    order = torch.argsort(wide, descending=True, stable=True)
    by_group = order[torch.argsort(inverse[order], stable=True)]  # group after group, the best of each first
    starts = counts.cumsum(0) - counts
    best, second = by_group[starts], by_group[starts + 1]
    lead = wide[best] - wide[second]
    if normalize_by_std:
        lead = lead / ((_group_sum(centered**2, inverse, counts) / (counts - 1)).sqrt() + epsilon)
    return torch.zeros_like(wide).index_copy(0, best, lead).to(rewards.dtype)


def rloo(rewards: Tensor, groups: Tensor) -> Tensor:
    """Return A = r - mean of the *other* rewards of its group, which is n / (n - 1) * (r - mean of the group). [B].

    A group of one has no others: its reward stays what it is.

    Source: Ahmadian et al., Back to Basics, arXiv:2402.14740.
    """
    centered, counts, inverse = _centered(rewards, groups)
    scale = counts / (counts - 1).clamp(min=1)
    return (centered * scale[inverse]).to(rewards.dtype)


def reinforce_plus_plus_baseline(rewards: Tensor, groups: Tensor) -> Tensor:
    """Return A = r - mean of its group, before whitening over the batch (the table says so). [B].

    Source: REINFORCE++, arXiv:2501.03262, the variant with a group baseline.
    """
    return grpo(rewards, groups, normalize_by_std=False)


def gdpo(parts: Tensor, groups: Tensor, *, weights: Sequence[float] | None = None, epsilon: float = 1e-6) -> Tensor:
    """Return the sum over rewards of weight * (r - mean of its group) / (std of its group + epsilon), before whitening. [B].

    Each reward is normalised on its own, so that one of large numbers does not drown the others.

    Args:
        parts: [K, B], each reward of each response.
        groups: int64 [B].
        weights: [K]; None is 1 each.
        epsilon: added to standard deviations.

    Raises:
        ConfigError: there are not as many weights as rewards.

    Source: GDPO, arXiv:2601.05242; as in verl's core_algos.py.
    """
    shares = [1.0] * len(parts) if weights is None else list(weights)
    if len(shares) != len(parts):
        raise ConfigError(
            said(
                "gdpo has {count} rewards and {shares_count} weights; expected one each",
                count=len(parts),
                shares_count=len(shares),
            )
        )
    normal = torch.stack([grpo(part.double(), groups, epsilon=epsilon) for part in parts])
    return (normal * normal.new_tensor(shares)[:, None]).sum(0).to(parts.dtype)


def gpg(rewards: Tensor, groups: Tensor) -> Tensor:
    """Return A = (B / responses with a reward other than 0) * (r - mean of its group). [B].

    The factor stands in for the responses that teach nothing; B is the batch handed in.

    Source: Group Policy Gradient, arXiv:2504.02546; the factor as in verl's core_algos.py.
    """
    telling = int(torch.count_nonzero(rewards))
    return grpo(rewards, groups, normalize_by_std=False) * (len(rewards) / max(telling, 1))


def opo(rewards: Tensor, groups: Tensor, lengths: Tensor) -> Tensor:
    """Return A = r - (sum of length * r) / (sum of lengths) over its group: the long responses set the baseline. [B].

    Source: On-Policy RL with Optimal Reward Baseline, arXiv:2505.23585; lengths are counted tokens, as in verl.
    """
    wide, weights = rewards.double(), lengths.double()
    _, counts, inverse = _centered(rewards, groups)
    baselines = _group_sum(wide * weights, inverse, counts) / _group_sum(weights, inverse, counts).clamp(min=1)
    return (wide - torch.where(counts > 1, baselines, 0.0)[inverse]).to(rewards.dtype)


def opmd(
    rewards: Tensor, groups: Tensor, *, baseline: Literal["mean", "logavgexp"] = "mean", tau: float = 1.0
) -> Tensor:
    """Return A = r - mean of its group, or for logavgexp r - tau * log(mean of exp(r / tau)). [B].

    Source: online policy mirror descent, Trinity-RFT's opmd_advantage.py; Kimi k1.5, arXiv:2501.12599, section 2.3.

    Raises:
        ConfigError: tau is not above 0.
    """
    if tau <= 0:
        raise ConfigError(said("algorithm.advantage.tau is {tau}; expected above 0", tau=tau))
    if baseline == "mean":
        return grpo(rewards, groups, normalize_by_std=False)
    _, counts, inverse = _centered(rewards, groups)
    scaled = rewards.double() / tau
    highest = scaled.new_full((len(counts),), -torch.inf).scatter_reduce(0, inverse, scaled, "amax")
    soft = highest + (_group_sum((scaled - highest[inverse]).exp(), inverse, counts) / counts).log()
    return (rewards.double() - torch.where(counts > 1, tau * soft, 0.0)[inverse]).to(rewards.dtype)


def asymre(rewards: Tensor, groups: Tensor, *, baseline_shift: float = -0.1) -> Tensor:
    """Return A = r - (mean of its group + ``baseline_shift``): below 0, good responses weigh more than bad ones. [B].

    Source: Asymmetric REINFORCE, arXiv:2506.20520; a group of one keeps its reward, as in Trinity-RFT.
    """
    _, counts, inverse = _centered(rewards, groups)
    shift = torch.where(counts > 1, baseline_shift, 0.0)[inverse]
    return (grpo(rewards.double(), groups, normalize_by_std=False) - shift).to(rewards.dtype)


def rec(
    rewards: Tensor, groups: Tensor, *, epsilon: float = 1e-6, std_normalize: bool = False, drop: str | None = None
) -> Tensor:
    """Return A = r - mean of its group, with ``std_normalize`` over the group's biased std (over n) + epsilon. [B].

    Raises:
        ConfigError: ``drop``, which leaves out bad responses at random.

    Source: Trinity-RFT's rec_advantage.py.
    """
    if drop is not None:
        raise ConfigError(
            said("algorithm.advantage.args.drop is {drop}; rlctl does not drop responses at random", drop=drop),
            hint="set it to null",
        )
    centered, counts, inverse = _centered(rewards, groups)
    if std_normalize:
        std = (_group_sum(centered**2, inverse, counts) / counts).sqrt()
        centered = centered / (torch.where(counts > 1, std, 1.0)[inverse] + epsilon)
    return centered.to(rewards.dtype)


def reward_alone(rewards: Tensor) -> Tensor:
    """Return A = r: no baseline, no discount, no statistics. [B].

    Source: ``reward`` of verl's guide to its config; its code has no estimator of the name.
    """
    return rewards


def no_estimate(token_rewards: Tensor) -> Tensor:
    """Return A_t = r_t: a token's own reward, of which nothing goes back to the tokens before it. [N].

    Source: ``none`` of verl's guide to its config; its code has no estimator of the name.
    """
    return token_rewards


def reinforce(token_rewards: Tensor, lengths: Tensor, *, gamma: float = 1.0) -> Tensor:
    """Return the discounted return A_t = sum_k gamma^k r_{t+k}, no baseline. [N].

    Source: Williams, Simple statistical gradient-following algorithms, 1992. Whitened over the batch (the table says
    so) it is REINFORCE++, arXiv:2501.03262.
    """
    return discounted_sum(token_rewards, lengths, gamma)


def remax(token_rewards: Tensor, baselines: Tensor, lengths: Tensor, *, gamma: float = 1.0) -> Tensor:
    """Return A_t = sum_k gamma^k r_{t+k} - b with b the reward of the prompt's greedy response, ``baselines`` [B]. [N].

    Source: ReMax, arXiv:2310.10505.
    """
    return discounted_sum(token_rewards, lengths, gamma) - spread(baselines, lengths)


def gae(token_rewards: Tensor, values: Tensor, lengths: Tensor, *, gamma: float = 1.0, lambda_: float = 1.0) -> Tensor:
    """Return A_t = sum_k (gamma lambda)^k d_{t+k} with d_t = r_t + gamma V_{t+1} - V_t, before whitening. [N].

    V is 0 past a sequence's end. Tokens that are not counted are skipped, as if the response went on without them.

    Source: Schulman et al., arXiv:1506.02438.
    """
    next_values = values.roll(-1)
    next_values[last_tokens(lengths)] = 0.0
    return discounted_sum(token_rewards + gamma * next_values - values, lengths, gamma * lambda_)


class MaskedAdvantages(NamedTuple):
    """What an estimator gives that leaves tokens out of training."""

    advantages: Tensor
    """[B] or [N], as of the others."""
    kept: Tensor
    """bool [N]."""


def clipb(
    rewards: Tensor,
    groups: Tensor,
    lengths: Tensor,
    rollout_log_probs: Tensor,
    old_entropy: Tensor,
    *,
    epsilon: float = 1e-6,
    mu: float = 2.5,
) -> MaskedAdvantages:
    """Return GRPO's advantages, and leave out tokens of bad responses with S < mean of S - mu * std of S.

    S = p (H + log p), the entropy signal of a token, with p as the rollout engine drew it and H the entropy under the trainer's
    weights; mean and std (over n) are of all tokens.

    Source: Clip-B, arXiv:2602.03392; Trinity-RFT's clipb_advantage.py, with the entropies that examples/entropy there puts into
    the batch.
    """
    advantages = grpo(rewards, groups, epsilon=epsilon)
    signal = _signal(rollout_log_probs, old_entropy)
    deviation = _deviation(signal)
    low = signal - signal.mean() < -mu * deviation
    left_out = low & (spread(advantages, lengths) < 0) & (deviation >= LEAST_DEVIATION)
    return MaskedAdvantages(advantages, ~left_out)


def clipv(
    rewards: Tensor,
    groups: Tensor,
    lengths: Tensor,
    old_log_probs: Tensor,
    old_entropy: Tensor,
    old_expected_signal: Tensor,
    *,
    epsilon: float = 1e-6,
    mu: float = 8.5,
    max_frac: float = 1e-4,
) -> MaskedAdvantages:
    """Return GRPO's advantages, and leave out tokens with E[S] - S > mu * its std, of at most ``max_frac`` of all tokens.

    S as for ``clipb``, under the trainer's weights, and E[S] over all tokens that might have been drawn. Tokens of good responses
    stay. Where there are too many, of bad responses those with the most are left out, one at least; such tokens of responses with
    an advantage of 0 are left out in any case.

    Source: Clip-V, arXiv:2602.03392; Trinity-RFT's clipv_advantage.py, with the numbers of examples/entropy/clipv_dp_actor.py.
    """
    advantages = grpo(rewards, groups, epsilon=epsilon)
    excess = (old_expected_signal - _signal(old_log_probs, old_entropy)).float()
    deviation, sign = _deviation(excess), spread(advantages, lengths).sign()
    left_out = (excess > mu * deviation) & (sign <= 0) & (deviation >= LEAST_DEVIATION)
    bad = left_out & (sign < 0)
    most = max(int(max_frac * len(excess)), 1)
    if int(left_out.sum()) > max_frac * len(excess) and int(bad.sum()) > most:
        worst = excess.masked_fill(~bad, -torch.inf).topk(most).indices
        left_out = (left_out & ~bad).index_fill(0, worst, True)
    return MaskedAdvantages(advantages, ~left_out)


LEAST_DEVIATION = 1e-12
"""Of a signal whose deviation is below this no token is left out."""


def _signal(log_probs: Tensor, entropy: Tensor) -> Tensor:
    return log_probs.exp() * (entropy + log_probs)


def _deviation(values: Tensor) -> Tensor:
    """The standard deviation over n; 0 of no value."""
    return values.std(correction=0) if len(values) else values.new_zeros(())


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
) -> MaskedAdvantages:
    """As ``turns.step_wise_grpo``."""
    found, kept = by_turn.step_wise_grpo(
        rewards,
        groups,
        rows,
        lengths,
        divide_by_steps=divide_by_steps,
        std_over=std_over,
        drop_below_std=drop_below_std,
        epsilon=epsilon,
    )
    return MaskedAdvantages(found, kept)


@dataclass(frozen=True)
class Estimator(Algorithm):
    """An advantage estimator of the table."""

    whiten: bool = False
    """Whether its source whitens the result over the batch's tokens; the caller may say otherwise."""

    @property
    def per_token(self) -> bool:
        """Whether its result is [N] rather than [B]."""
        return "token_rewards" in self.reads

    @property
    def reads_tokens(self) -> bool:
        """Whether it reads anything of tokens, or how many a response has."""
        of_responses = {"rewards", "groups", "baselines", "parts"}
        return not of_responses.issuperset(self.reads)

    @property
    def needs_values(self) -> bool:
        """Whether there must be a critic."""
        return "values" in self.reads

    @property
    def needs_turns(self) -> bool:
        """Whether it reads the turns of agents."""
        return "turns" in self.reads or "rows" in self.reads

    @property
    def needs_greedy(self) -> bool:
        """Whether each prompt is to be answered greedily too."""
        return "baselines" in self.reads

    @property
    def measures(self) -> tuple[str, ...]:
        """What of ``distributions`` it reads."""
        return tuple(name for name in STATISTICS if measured_column(name) in self.reads)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of samples that it reads."""
        known = ("old_log_probs", "rollout_log_probs", *map(measured_column, STATISTICS))
        return tuple(name for name in known if name in self.reads)


def measured_column(statistic: str) -> str:
    """The column that holds a statistic of the old policy."""
    return f"old_{statistic}"


ADVANTAGES: dict[str, Estimator] = {
    "asymre": Estimator(asymre),
    "clipb": Estimator(clipb),
    "clipv": Estimator(clipv),
    "gae": Estimator(gae, whiten=True),
    "gdpo": Estimator(gdpo, whiten=True),
    "gigpo": Estimator(by_turn.gigpo),
    "gpg": Estimator(gpg),
    "grpo": Estimator(grpo),
    "grpo_passk": Estimator(grpo_passk),
    "none": Estimator(no_estimate),
    "opmd": Estimator(opmd),
    "opo": Estimator(opo),
    "optimal_token_baseline": Estimator(optimal_token_baseline),
    "rec": Estimator(rec),
    "reinforce": Estimator(reinforce),
    "reinforce_plus_plus": Estimator(reinforce, whiten=True),
    "reinforce_plus_plus_baseline": Estimator(reinforce_plus_plus_baseline, whiten=True),
    "remax": Estimator(remax),
    "reward": Estimator(reward_alone),
    "rloo": Estimator(rloo),
    "segment_reinforce": Estimator(by_turn.segment_reinforce),
    "step_reinforce": Estimator(by_turn.step_reinforce),
    "step_wise_grpo": Estimator(step_wise_grpo),
    "turn_gae": Estimator(by_turn.turn_gae, whiten=True),
    "tir_optimal_token_baseline": Estimator(tir_optimal_token_baseline),
}


@dataclass(frozen=True, slots=True)
class Advantages:
    """What ``estimate`` returns."""

    tokens: Tensor
    """[N], as the policy loss takes them."""
    returns: Tensor | None
    """[N], what the critic learns: advantages before whitening, plus values. None where there is no critic."""
    kept: Tensor | None = None
    """bool [N], the tokens that the estimator leaves in; None is all."""


@torch.no_grad()
def estimate(
    name: str,
    rewards: Tensor,
    lengths: Tensor,
    *,
    groups: Tensor | None = None,
    values: Tensor | None = None,
    baselines: Tensor | None = None,
    parts: Tensor | None = None,
    columns: Mapping[str, Tensor] | None = None,
    token_penalties: Tensor | None = None,
    penalties_last: bool = False,
    token_clip: float | None = None,
    whiten_rewards: bool = False,
    whiten: bool | None = None,
    trained: Tensor | None = None,
    by_turns: Mapping[str, Tensor] | None = None,
    **options: Any,
) -> Advantages:
    """Return the advantages of every token of a step, by the estimator called ``name``.

    Args:
        name: of ``ADVANTAGES``.
        rewards: [B], of the responses; each counts at its response's last token.
        lengths: [B], counted tokens.
        groups: int64 [B], equal for responses to one prompt.
        values: [N], the critic's.
        baselines: [B], the reward of the greedy response to the same prompt.
        parts: [K, B], the rewards that a response's reward is made of.
        columns: [N] each, what else it reads of tokens, by name: columns of samples, ``correction_weights``, and ``passed``
            (bool), the tokens that the correction does not reject.
        token_penalties: [N], what each token costs (the KL in the reward): subtracted before any statistic.
        penalties_last: the estimator looks at ``rewards`` alone and its result [B] is the reward that penalties are taken
            off, that is cut, whitened, and summed from each token to the end (ROLL's grpo).
        token_clip: cut each token's reward, penalties taken off, to plus and minus this.
        whiten_rewards: whiten token rewards.
        whiten: the advantages; None as the estimator's source does.
        by_turns: what ``turns`` describes, by name (None: each response is one turn), and ``placed`` [S], the part of each turn's
            reward that counts at its end.
        trained: bool [N], the tokens that statistics over tokens (whitening) are taken from; None is all.
        options: of the estimator.

    Raises:
        ConfigError: no such estimator, or a tensor that it reads is missing.
    """
    estimator = lookup(ADVANTAGES, name, "advantage estimator")
    penalties = rewards.new_zeros(int(lengths.sum())) if token_penalties is None else token_penalties

    def per_token(responses: Tensor) -> Tensor:
        """Token rewards of responses with these rewards, penalties taken off, cut and whitened. [N]."""
        result = _placed(responses, penalties, lengths, by_turns)
        result = result if token_clip is None else result.clamp(-token_clip, token_clip)
        return whitened(result, trained) if whiten_rewards else result

    tensors = {"rewards": rewards, "lengths": lengths, "groups": groups, "values": values, "baselines": baselines}
    tensors |= {"parts": parts, **(columns or {})}
    if not penalties_last:
        tokens, responses = per_token(rewards), rewards - sequence_sum(penalties, lengths)
        if token_clip is not None or whiten_rewards:
            responses = torch.where(lengths > 0, sequence_sum(tokens, lengths), responses)
        tensors |= {"token_rewards": tokens, "rewards": responses}
    if by_turns is None and estimator.needs_turns:
        by_turns = by_turn.single(lengths, groups)
    if by_turns is not None:
        whole = tensors["rewards"]
        assert whole is not None, "it was set above"
        given = by_turn.with_rest(by_turns["turn_rewards"], whole, by_turns["turns"])
        tensors |= {**by_turns, "turn_rewards": given}
    found = estimator(tensors, **options)
    returns, is_by_turn = None, isinstance(found, by_turn.TurnAdvantages)
    if is_by_turn:
        found, returns = found
    result, kept = found if isinstance(found, MaskedAdvantages) else (found, None)
    if penalties_last:
        clipped = result if token_clip is None else result.clamp(-token_clip, token_clip)
        advantages = discounted_sum(per_token(clipped), lengths, 1.0)
    else:
        advantages = result if estimator.per_token or is_by_turn else spread(result, lengths)
    if returns is None and estimator.needs_values and values is not None:
        returns = advantages + values
    if estimator.whiten if whiten is None else whiten:
        advantages = whitened(advantages, trained)
    return Advantages(advantages, returns, kept)


def _placed(rewards: Tensor, penalties: Tensor, lengths: Tensor, by_turns: Mapping[str, Tensor] | None) -> Tensor:
    """Token rewards, with the rewards of turns at their ends and the rest at the response's last token. [N]."""
    if by_turns is None:
        return token_rewards(rewards, penalties, lengths)
    placed, turns = by_turns["placed"], by_turns["turns"]
    whole = lengths > 0
    rest = rewards - torch.where(whole, sequence_sum(placed, turns), 0.0)
    result = token_rewards(rest, penalties, lengths)
    return by_turn.with_ends(result, placed, by_turns["turn_lengths"], by_turns["turn_places"])


def token_rewards(rewards: Tensor, token_penalties: Tensor, lengths: Tensor) -> Tensor:
    """Return -penalty at every token, plus the response's reward at its last one. [B], [N] to [N]."""
    result = -token_penalties
    result[last_tokens(lengths)] += rewards[lengths > 0]
    return result


def whitened(values: Tensor, counted: Tensor | None = None) -> Tensor:
    """Return (x - mean) / sqrt(unbiased variance + 1e-8). [N]; a single number gives 0.

    The statistics are over the values that ``counted`` (bool [N]) marks, or all.

    Source: masked_whiten in verl's torch_functional.py, where a single number is an error.
    """
    wide = values.double()
    sample = wide if counted is None else wide[counted]
    mean = sample.sum() / max(sample.numel(), 1)
    variance = (sample - mean).square().sum() / max(sample.numel() - 1, 1)
    return ((wide - mean) * torch.rsqrt(variance + 1e-8)).to(values.dtype)


def _centered(rewards: Tensor, groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return rewards minus their group's mean (0 for a group of one), groups' sizes, each response's group; float64."""
    _, inverse, counts = torch.unique(groups, return_inverse=True, return_counts=True)
    wide = rewards.double()
    means = torch.where(counts > 1, _group_sum(wide, inverse, counts) / counts, 0.0)
    return wide - means[inverse], counts, inverse


def _group_sum(values: Tensor, inverse: Tensor, counts: Tensor) -> Tensor:
    return values.new_zeros(len(counts)).index_add(0, inverse, values)
