"""What looks wrong in a run, in plain words, with what to try: one row a rule, over the last steps.

Thresholds are rules of thumb. Those of stalls, equal groups, truncation and MFU are the ones of Miles' dashboard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean

from rlctl.monitor.metrics import StepTable
from rlctl.monitor.phases import Current

RECENT = 10
"""Steps that a rule looks at."""
BEFORE = 50
"""Steps before them that it compares with."""
STALL_TIMES, STALL_SECONDS = 6.0, 1800.0


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to look at."""

    code: str
    message: str
    remedy: str
    """What to try."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A metric whose mean over the last steps says that something is wrong."""

    code: str
    metric: str
    wrong: Callable[[float], bool]
    message: str
    """With ``{value}`` for the mean."""
    remedy: str


RULES = (
    Rule(
        "equal-groups",
        "group/equal_share",
        lambda share: share >= 0.5,
        "{value:.0%} of the groups have one reward for all their responses: nothing is learned from them",
        "mix in prompts of another difficulty, raise rollout.sampling.temperature, or filter such groups (algorithm.filters)",
    ),
    Rule(
        "truncation",
        "response/truncated_share",
        lambda share: share >= 0.25,
        "{value:.0%} of the responses are cut off at the longest length",
        "raise rollout.max_response_tokens, or penalize length (algorithm.reward_shaping)",
    ),
    Rule(
        "reward-errors",
        "reward/failed_share",
        lambda share: share >= 0.01,
        "{value:.1%} of the rewards failed and count as 0",
        "look at the reward's log, and try it with `rlctl try`",
    ),
    Rule(
        "mismatch",
        "policy/mismatch_k3",
        lambda kl: kl >= 0.01,
        "rollout and training disagree on the log-probs of what was drawn: a KL of {value:.3g}",
        "compare rollout.precision with train.precision, or set algorithm.rollout_correction",
    ),
    Rule(
        "skipped-updates",
        "policy/skipped_updates",
        lambda count: count > 0,
        "optimizer steps are skipped, as their gradient is not finite ({value:.2g} a step)",
        "lower train.optimizer.learning_rate, or set train.precision.compute to float32 to see whether that is it",
    ),
    Rule(
        "low-mfu",
        "throughput/mfu",
        lambda share: share < 0.15,
        "training uses {value:.0%} of what the devices can compute",
        "raise batch.micro, or lower what is recomputed and offloaded (train.memory, train.engine)",
    ),
)


def advise(table: StepTable, current: Current | None = None, now: float = 0.0) -> list[Advice]:
    """What looks wrong in the last steps of a stage, and in the phase that is on at ``now`` (seconds since the epoch)."""
    return [*_stalled(current, now), *_by_rule(table), *_running_away(table), *_collapsed(table)]


def _stalled(current: Current | None, now: float) -> Iterator[Advice]:
    if current is None or current.usual is None:
        return
    elapsed = current.elapsed(now)
    if elapsed > max(STALL_TIMES * current.usual, STALL_SECONDS):
        yield Advice(
            "stalled",
            f"the phase {current.name} has taken {elapsed / 60:.0f} minutes; it usually takes {current.usual:.0f} seconds",
            "look at the logs of its processes; stop the run and resume it, which goes on from the last checkpoint",
        )


def _by_rule(table: StepTable) -> Iterator[Advice]:
    for rule in RULES:
        found = table.latest(rule.metric, RECENT)
        if found and rule.wrong(fmean(found)):
            yield Advice(rule.code, rule.message.format(value=fmean(found)), rule.remedy)


def _running_away(table: StepTable) -> Iterator[Advice]:
    """A KL that is several times of what it was, and not small."""
    for metric in ("reward/kl", "policy/kl_loss", "policy/approx_kl"):
        recent, before = _two_windows(table, metric)
        if recent is not None and before is not None and recent > 0.1 and recent > 5 * abs(before):
            yield Advice(
                "kl-runs-away",
                f"{metric} is {recent:.3g}, {recent / max(abs(before), 1e-9):.0f} times of what it was",
                "lower train.optimizer.learning_rate, or raise the coefficient of algorithm.kl_in_loss",
            )
            return


def _collapsed(table: StepTable) -> Iterator[Advice]:
    """An entropy that is a tenth of what it was, and small."""
    recent, before = _two_windows(table, "policy/entropy")
    if recent is not None and before is not None and recent < 0.05 and recent < 0.1 * before:
        yield Advice(
            "entropy-collapse",
            f"the entropy fell from {before:.3g} to {recent:.3g}: responses are nearly the same each time",
            "raise algorithm.entropy_coefficient or policy_loss.clip_high, or lower the learning rate",
        )


def _two_windows(table: StepTable, metric: str) -> tuple[float | None, float | None]:
    """The mean of the last steps, and of those before them; None where there are too few."""
    found = table.latest(metric, RECENT + BEFORE)
    if len(found) < 2 * RECENT:
        return None, None
    return fmean(found[-RECENT:]), fmean(found[:-RECENT])
