"""The metrics of a step: their names, units and meaning, and those that follow from rewards and responses alone.

Names are ``group/metric``. ``METRICS`` lists them; ``<...>`` stands for a name of the config (a source, a reward, a phase).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

import numpy as np

from rlctl.runtime.reporting import at_k


@dataclass(frozen=True, slots=True)
class Metric:
    """What a metric is."""

    unit: str
    help: str


METRICS: dict[str, Metric] = {
    "agent/turns": Metric("", "Mean model calls of a trajectory."),
    "agent/inserted_tokens": Metric("tokens", "Mean tokens of a trajectory that its agent inserted after the prompt."),
    "agent/token_drift": Metric(
        "share", "Trajectories whose conversation the chat template would render as other tokens than were generated."
    ),
    "agent/failed_share": Metric("share", "Share of trajectories whose agent failed; agent/failed_<cause> by cause."),
    "agent/<count>": Metric("", "Mean of what the agent counts in a trajectory: calls, and failed ones by kind."),
    "reward/mean": Metric("", "Mean total reward of a response."),
    "reward/std": Metric("", "Standard deviation of the total reward over the step's responses."),
    "reward/min": Metric("", "Lowest total reward of the step."),
    "reward/max": Metric("", "Highest total reward of the step."),
    "reward/failed_share": Metric("share", "Share of responses whose reward failed and counts as 0."),
    "reward/<name>": Metric("", "Mean of one reward, unweighted, over the responses that it scores."),
    "reward/<name>/<number>": Metric("", "Mean of another number that the reward returns."),
    "reward/kl": Metric("nats", "KL to the reference in the reward: mean over responses of the means of their tokens."),
    "reward/kl_coefficient": Metric("", "Coefficient of the KL in the reward; changes if it is adaptive."),
    "advantage/mean": Metric("", "Mean advantage of a trained token."),
    "advantage/std": Metric("", "Standard deviation of the advantages of trained tokens."),
    "advantage/left_out_share": Metric(
        "share", "Share of tokens that the estimator excludes from training (clipb, clipv)."
    ),
    "filter/kept_groups_share": Metric(
        "share", "Share of generated groups that pass the filters. Surplus groups of a step don't count."
    ),
    "filter/rounds": Metric("", "Rounds of prompts generated to fill the step."),
    "operator/<name>/in": Metric("responses", "Responses that an experience operator received, by its place and type."),
    "operator/<name>/out": Metric("responses", "Responses that an experience operator passed on."),
    "operator/<name>/<number>": Metric("", "Mean of another number that an experience operator returns."),
    "filter/trained_share": Metric("share", "Share of the kept groups' responses that stay in the loss."),
    "correction/rejected_share": Metric("share", "Share of tokens that the rollout correction rejects."),
    "correction/weight_mean": Metric("", "Mean importance weight of a token."),
    "correction/weight_max": Metric("", "Largest importance weight."),
    "correction/cut_share": Metric("share", "Share of tokens whose ratio exceeds the weight limit."),
    "correction/effective_share": Metric("share", "Effective sample size of the weights over the number of tokens."),
    "response/length_mean": Metric("tokens", "Mean length of a response."),
    "response/length_p50": Metric("tokens", "Median length of a response."),
    "response/length_p90": Metric("tokens", "90th percentile of response length."),
    "response/length_p99": Metric("tokens", "99th percentile of response length."),
    "response/length_max": Metric("tokens", "Longest response."),
    "response/tokens": Metric("tokens", "Tokens of all generated responses."),
    "response/truncated_share": Metric("share", "Share of responses truncated at the limit."),
    "group/equal_share": Metric(
        "share", "Share of groups whose responses all have the same reward, so nothing is learned from them."
    ),
    "group/size_mean": Metric("responses", "Mean size of a group."),
    "staleness/mean": Metric(
        "steps",
        "Mean staleness: steps between the weights that generated a response and the weights trained on it.",
    ),
    "staleness/max": Metric("steps", "Highest staleness of a response."),
    "staleness/share/<versions>": Metric(
        "share",
        "Share of responses with this staleness: 0, 1, 2-3, 4-7, 8-15, 16 or more. Not logged if none is stale.",
    ),
    "policy/loss": Metric("", "Policy loss, including its KL and entropy terms."),
    "policy/policy_loss": Metric("", "The policy loss alone."),
    "policy/kl_loss": Metric("nats", "KL from the reference in the loss, before its coefficient."),
    "policy/clip_fraction": Metric("share", "Share of tokens whose ratio is clipped."),
    "policy/dual_clip_fraction": Metric("share", "Share of tokens that the dual clip limits."),
    "policy/ratio": Metric("", "Mean probability ratio to the policy at the start of the step."),
    "policy/approx_kl": Metric("nats", "KL from the policy at the start of the step (k1 estimator)."),
    "policy/mismatch_kl": Metric(
        "nats", "KL from the training engine's policy to the rollout engine's (k1 estimator)."
    ),
    "policy/mismatch_k3": Metric(
        "nats", "KL from the training engine's policy to the rollout engine's (k3 estimator)."
    ),
    "policy/mismatch_probability": Metric(
        "", "Mean difference of a sampled token's probability in the training and rollout engines."
    ),
    "policy/mismatch_chi2": Metric("", "Mean squared probability ratio of the training and rollout engines, minus 1."),
    "policy/rejected_share": Metric(
        "share", "Share of tokens that the rollout correction rejects, by current log-probs."
    ),
    "policy/entropy": Metric("nats", "Mean entropy of the next-token distribution."),
    "policy/skipped_updates": Metric("share", "Optimizer steps skipped because the gradient was not finite."),
    "policy/grad_norm": Metric("", "Norm of the policy's gradient before clipping."),
    "policy/lr": Metric("", "Mean learning rate over the step's optimizer steps."),
    "critic/loss": Metric("", "Critic loss."),
    "critic/value_loss": Metric("", "Critic loss before its coefficient."),
    "critic/value_mean": Metric("", "Mean value of a token."),
    "critic/return_mean": Metric("", "Mean return, the critic's target."),
    "critic/explained_variance": Metric(
        "share",
        "Share of the returns' variance that the values at the start of the step explain; below 0 is worse than a constant.",
    ),
    "critic/clip_fraction": Metric("share", "Share of tokens whose value moved beyond the clip and has no gradient."),
    "critic/grad_norm": Metric("", "Norm of the critic's gradient before clipping."),
    "critic/lr": Metric("", "Mean learning rate over the critic's optimizer steps."),
    "critic/skipped_updates": Metric(
        "share", "The critic's optimizer steps skipped because the gradient was not finite."
    ),
    "time/<phase>": Metric("seconds", "Wall time of a phase."),
    "time/step": Metric("seconds", "Wall time of the step, without the evaluation and checkpoint after it."),
    "time/idle": Metric("seconds", "Wall time of the step outside all phases."),
    "worker/<role>/busy_share": Metric("share", "Mean share of the step in which the role's workers were busy."),
    "memory/<role>/resident": Metric(
        "GiB", "Main memory of the worker that uses most, after a call (also for the controller)."
    ),
    "memory/<role>/gpu_allocated": Metric("GiB", "GPU memory in tensors of the worker that uses most, after a call."),
    "memory/<role>/gpu_reserved": Metric("GiB", "GPU memory reserved by the allocator of the worker that uses most."),
    "memory/<role>/gpu_peak": Metric("GiB", "Peak GPU memory allocated during a call, over all workers."),
    "throughput/tokens_per_second": Metric("tokens/s", "Trained tokens per second, over the whole step."),
    "throughput/tokens_per_second_per_device": Metric(
        "tokens/s", "Trained tokens per second and device of all roles, over the whole step."
    ),
    "throughput/trained_tokens_per_second": Metric(
        "tokens/s", "Tokens per second in the training phase, including prompts, each counted once."
    ),
    "throughput/drawn_tokens_per_second": Metric("tokens/s", "Response tokens per second in the rollout phase."),
    "throughput/mfu": Metric("share", "Model FLOPs utilization of the training devices in the training phase."),
    "throughput/step_mfu": Metric("share", "Model FLOPs utilization of the training devices over the whole step."),
    "throughput/responses_per_second": Metric("responses/s", "Responses per second, over the whole step."),
    "data/epoch": Metric("epochs", "Completed passes over the training data."),
    "evaluation/<source>/reward": Metric("", "Mean total reward of evaluation responses."),
    "evaluation/<source>/accuracy": Metric(
        "share", "Share of evaluation responses with the right answer, if a reward can tell which are right."
    ),
    "evaluation/<source>/best": Metric("share", "Share of evaluation prompts with at least one right answer."),
    "evaluation/<source>/length_mean": Metric("tokens", "Mean length of evaluation responses."),
    "evaluation/<source>/loss": Metric(
        "nats", "Mean negative log-likelihood of the tokens of evaluation answers that sft would train on."
    ),
    "evaluation/<source>/mean@<k>": Metric("", "Mean reward of the k responses to a prompt."),
    "evaluation/<source>/std@<k>": Metric("", "Standard deviation of the rewards of the k responses to a prompt."),
    "evaluation/<source>/best@<k>": Metric(
        "", "Expected highest reward of k responses sampled from a prompt's responses, with replacement."
    ),
    "evaluation/<source>/worst@<k>": Metric(
        "", "Expected lowest reward of k responses sampled from a prompt's responses, with replacement."
    ),
    "evaluation/<source>/maj@<k>": Metric(
        "",
        "Correctness of the majority answer of k responses sampled with replacement; its reward if no reward can tell.",
    ),
    "evaluation/<source>/pass@<k>": Metric(
        "share", "Unbiased estimate of the chance that at least one of k responses is right."
    ),
}

_OF_SEVERAL = re.compile(r"@\d+$")
_PATTERNS = [(re.compile(re.sub(r"<[a-z]+>", "[^/]+", name)), metric) for name, metric in METRICS.items()]


def describe(name: str) -> Metric | None:
    """Return what a metric is; None for a name that is not in the table. A source's own slashes belong to its name."""
    if name in METRICS:
        return METRICS[name]
    group, _, rest = name.partition("/")
    if group == "evaluation" and "/" in rest:
        return METRICS.get(f"evaluation/<source>/{_OF_SEVERAL.sub('@<k>', rest.rpartition('/')[2])}")
    return next((metric for pattern, metric in _PATTERNS if pattern.fullmatch(name)), None)


def reward_metrics(
    totals: Sequence[float], components: Sequence[Mapping[str, float]], errors: Sequence[str | None]
) -> dict[str, float]:
    """Metrics of a step's rewards.

    Args:
        totals: one a response, at least one.
        components: of each response; see ``rewards.routing.Score``.
        errors: of each response; both are empty of responses whose totals alone are known.
    """
    metrics = {
        "reward/mean": fmean(totals),
        "reward/std": pstdev(totals),
        "reward/min": min(totals),
        "reward/max": max(totals),
        "reward/failed_share": sum(error is not None for error in errors) / len(totals),
    }
    names = dict.fromkeys(name for component in components for name in component)
    own = {f"reward/{name}": fmean(c[name] for c in components if name in c) for name in names}
    return own | metrics


def response_metrics(lengths: Sequence[int], truncated: Sequence[bool]) -> dict[str, float]:
    """Metrics of a step's responses: lengths in tokens and whether each was cut; at least one.

    A percentile that falls between two lengths is in proportion between them.
    """
    p50, p90, p99 = np.percentile(lengths, (50, 90, 99))
    return {
        "response/length_mean": fmean(lengths),
        "response/length_p50": float(p50),
        "response/length_p90": float(p90),
        "response/length_p99": float(p99),
        "response/length_max": float(max(lengths)),
        "response/tokens": float(sum(lengths)),
        "response/truncated_share": sum(truncated) / len(truncated),
    }


def agent_metrics(counts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means over the trajectories of agents of what these counted; nothing where there are none."""
    names = sorted({name for each in counts for name in each})
    return {f"agent/{name}": fmean(each.get(name, 0.0) for each in counts) for name in names}


def group_metrics(totals: Sequence[float], groups: Sequence[int]) -> dict[str, float]:
    """Metrics of a step's groups.

    Args:
        totals: reward of each response, at least one.
        groups: the group of each response.

    Returns:
        The share of equal groups is over groups of two or more, and 0 where there is none.
    """
    members: dict[int, list[float]] = {}
    for total, group in zip(totals, groups, strict=True):
        members.setdefault(group, []).append(total)
    several = [rewards for rewards in members.values() if len(rewards) > 1]
    equal = sum(math.isclose(min(rewards), max(rewards), abs_tol=1e-12) for rewards in several)
    return {
        "group/equal_share": equal / len(several) if several else 0.0,
        "group/size_mean": len(totals) / len(members),
    }


STALENESS_FROM = (0, 1, 2, 4, 8, 16)
"""Where the parts of the histogram of staleness begin."""


def staleness_metrics(versions: Sequence[int], now: int) -> dict[str, float]:
    """How old the weights are that drew the responses which are trained on; nothing where none was drawn.

    Args:
        versions: that drew each response.
        now: of the weights that are trained.
    """
    if not versions:
        return {}
    ages = [now - version for version in versions]
    metrics = {"staleness/mean": fmean(ages), "staleness/max": float(max(ages))}
    if not any(ages):
        return metrics
    for start, end in zip(STALENESS_FROM, (*STALENESS_FROM[1:], None), strict=True):
        share = sum(start <= age and (end is None or age < end) for age in ages) / len(ages)
        name = f"{start}+" if end is None else f"{start}" if end == start + 1 else f"{start}-{end - 1}"
        metrics[f"staleness/share/{name}"] = share
    return metrics


def evaluation_metrics(
    source: str,
    totals: Sequence[float],
    correct: Sequence[bool | None],
    lengths: Sequence[int],
    prompts: Sequence[int],
    votes: Sequence[str | None] = (),
) -> dict[str, float]:
    """Metrics of one held-out source.

    Args:
        source: its name.
        totals: reward of each response, at least one.
        correct: whether each is right; None where no reward can tell.
        lengths: of each, in tokens; empty where they are not known.
        prompts: the prompt that each answers.
        votes: what each answers; empty or None where no reward tells.
    """
    metrics = {"reward": fmean(totals)} | ({"length_mean": fmean(lengths)} if lengths else {})
    judged = [(prompt, right) for prompt, right in zip(prompts, correct, strict=True) if right is not None]
    if judged:
        solved = {prompt for prompt, right in judged if right}
        metrics["accuracy"] = sum(right for _, right in judged) / len(judged)
        metrics["best"] = len(solved) / len({prompt for prompt, _ in judged})
    groups: dict[int, list[int]] = {}
    for index, prompt in enumerate(prompts):
        groups.setdefault(prompt, []).append(index)
    found: dict[str, list[float]] = {}
    for indices in groups.values():
        chosen = [votes[index] for index in indices] if votes else [None]
        for name, value in _of_one_prompt([totals[i] for i in indices], [correct[i] for i in indices], chosen).items():
            found.setdefault(name, []).append(value)
    metrics |= {name: fmean(values) for name, values in found.items()}
    return {f"evaluation/{source}/{name}": value for name, value in metrics.items()}


def _of_one_prompt(
    totals: Sequence[float], correct: Sequence[bool | None], votes: Sequence[str | None]
) -> dict[str, float]:
    """What several responses to one prompt tell beyond their mean; nothing of a single one."""
    n = len(totals)
    if n < 2:
        return {}
    metrics = {f"mean@{n}": fmean(totals), f"std@{n}": pstdev(totals)}
    verdicts = [right for right in correct if right is not None]
    said = [vote for vote in votes if vote is not None]
    for k in at_k.counts(n):
        metrics[f"best@{k}"] = at_k.best(totals, k)
        metrics[f"worst@{k}"] = at_k.worst(totals, k)
        if len(said) == n:
            values = [float(right) for right in verdicts] if len(verdicts) == n else totals
            metrics[f"maj@{k}"] = at_k.majority(values, said, k)
        if len(verdicts) == n:
            metrics[f"pass@{k}"] = at_k.pass_at(n, sum(verdicts), k)
    return metrics
