"""What looks wrong in a run, in plain words, with what to try: one row a rule, over the last steps.

Thresholds are rules of thumb. Those of stalls, equal groups, truncation and MFU are the ones of Miles' dashboard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rlctl.common.language import later
from rlctl.common.messages.reasons import said
from rlctl.monitor.metrics import StepTable
from rlctl.monitor.phases import Current

RECENT = 10
"""Steps that a rule looks at."""
BEFORE = 50
"""Steps before them that it compares with."""
STALLS = ((6.0, 1800.0), (30.0, 120.0))
"""Times of what is usual, and seconds: a phase that takes longer than both of a pair is stalled."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A warning about a run: something to look at."""

    code: str
    text: str
    """What is wrong, with the names of ``values`` in braces."""
    remedy: str
    """What to try."""
    values: Mapping[str, Any]

    @property
    def message(self) -> str:
        """The message in English; ``translated`` gives it in the reader's language."""
        return said(self.text, **self.values)


@dataclass(frozen=True, slots=True)
class AdviceRule:
    """A metric that says over the last steps that something is wrong."""

    code: str
    metric: str
    wrong: Callable[[float], bool]
    message: str
    """With ``{value}`` for what the steps come to."""
    remedy: str
    over: Callable[[Sequence[float]], float] = fmean
    """What the last steps come to."""


def _farthest(values: Sequence[float]) -> float:
    """The value farthest from 0: it is 0 only where all are."""
    return max(values, key=abs)


RULES = (
    AdviceRule(
        "equal-groups",
        "group/equal_share",
        lambda share: share >= 0.5,
        later("{value:.0%} of the groups have equal rewards for all responses, so nothing is learned from them"),
        later(
            "add prompts of other difficulty, raise rollout.sampling.temperature, or filter these groups (algorithm.filters)"
        ),
    ),
    AdviceRule(
        "truncation",
        "response/truncated_share",
        lambda share: share >= 0.25,
        later("{value:.0%} of the responses are truncated at the length limit"),
        later("raise rollout.max_response_tokens, or penalize length (algorithm.reward_shaping)"),
    ),
    AdviceRule(
        "reward-errors",
        "reward/failed_share",
        lambda share: share >= 0.01,
        later("{value:.1%} of the rewards failed and count as 0"),
        later("look at the reward's log, and try it with `rlctl try`"),
    ),
    AdviceRule(
        "no-rewards",
        "reward/max",
        lambda reward: reward == 0,
        later("no response of the last steps has a reward above 0"),
        later("read the responses on the samples page: does the prompt ask for the format that the reward expects?"),
        _farthest,
    ),
    AdviceRule(
        "mismatch",
        "policy/mismatch_k3",
        lambda kl: kl >= 0.01,
        later("rollout and training disagree on the log-probs of sampled tokens: a KL of {value:.3g}"),
        later("compare rollout.precision with train.precision, or set algorithm.rollout_correction"),
    ),
    AdviceRule(
        "skipped-updates",
        "policy/skipped_updates",
        lambda share: share > 0,
        later("{value:.1%} of the optimizer steps are skipped because their gradient is not finite"),
        later(
            "lower train.optimizer.lr, or set train.precision.compute to float32 to see whether precision is the cause"
        ),
    ),
    AdviceRule(
        "skipped-critic-updates",
        "critic/skipped_updates",
        lambda share: share > 0,
        later("{value:.1%} of the critic's optimizer steps are skipped because their gradient is not finite"),
        later(
            "lower critic.optimizer.lr, or set critic.precision.compute to float32 to see whether precision is the cause"
        ),
    ),
    AdviceRule(
        "low-mfu",
        "throughput/mfu",
        lambda share: share < 0.15,
        later("training uses {value:.0%} of the devices' peak compute"),
        later("raise batch.micro_batch, or reduce recomputation and offloading (train.memory, train.engine)"),
    ),
)


def advise(table: StepTable, current: Current | None = None, now: float = 0.0) -> list[Advice]:
    """Warnings about the last steps of a stage and about its phase at ``now`` (seconds since the epoch)."""
    return [*_stalled(current, now), *_by_rule(table), *_running_away(table), *_collapsed(table)]


def _stalled(current: Current | None, now: float) -> Iterator[Advice]:
    if current is None:
        return
    elapsed, usual = current.elapsed(now), current.usual
    told: dict[str, Any] = {"phase": current.name, "minutes": elapsed / 60}
    remedy = later("look at the logs of its processes, or stop the run and resume it from the last checkpoint")
    if usual is None and elapsed > STALLS[0][1]:
        message = later(
            "the phase {phase} has taken {minutes:.0f} minutes; rlctl does not know yet how long it usually takes"
        )
        yield Advice("stalled", message, remedy, told)
    elif usual is not None and any(elapsed > max(times * usual, seconds) for times, seconds in STALLS):
        message = later("the phase {phase} has taken {minutes:.0f} minutes; it usually takes {usual:.0f} seconds")
        yield Advice("stalled", message, remedy, told | {"usual": usual})


def _by_rule(table: StepTable) -> Iterator[Advice]:
    for rule in RULES:
        found = table.latest(rule.metric, RECENT)
        if found and rule.wrong(value := rule.over(found)):
            yield Advice(rule.code, rule.message, rule.remedy, {"value": value})


def _running_away(table: StepTable) -> Iterator[Advice]:
    """A KL that is several times its earlier value, and not small."""
    for metric in ("reward/kl", "policy/kl_loss", "policy/approx_kl"):
        recent, before = _two_windows(table, metric)
        if recent is not None and before is not None and recent > 0.1 and recent > 5 * abs(before):
            yield Advice(
                "kl-runs-away",
                later("{metric} is {recent:.3g}, {times:.0f} times its earlier value"),
                later("lower train.optimizer.lr, or raise the coefficient of algorithm.kl_in_loss"),
                {"metric": metric, "recent": recent, "times": recent / max(abs(before), 1e-9)},
            )
            return


def _collapsed(table: StepTable) -> Iterator[Advice]:
    """An entropy that is a tenth of what it was, and small."""
    recent, before = _two_windows(table, "policy/entropy")
    if recent is not None and before is not None and recent < 0.05 and recent < 0.1 * before:
        yield Advice(
            "entropy-collapse",
            later("the entropy fell from {before:.3g} to {recent:.3g}: responses are nearly deterministic"),
            later("raise algorithm.entropy_coefficient or policy_loss.clip_high, or lower the learning rate"),
            {"before": before, "recent": recent},
        )


def _two_windows(table: StepTable, metric: str) -> tuple[float | None, float | None]:
    """The mean of the last steps, and of those before them; None where there are too few."""
    found = table.latest(metric, RECENT + BEFORE)
    if len(found) < 2 * RECENT:
        return None, None
    return fmean(found[-RECENT:]), fmean(found[:-RECENT])
