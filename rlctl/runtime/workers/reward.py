"""The reward worker: scores responses with all the config's rewards. Knows nothing of Ray."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from rlctl.config.sections.rewards import FunctionReward, Reward, RuleReward
from rlctl.errors import RunError
from rlctl.runtime.rewards.interface import Call, Failure, Outcome
from rlctl.runtime.rewards.outcome import attempt
from rlctl.runtime.rewards.pool import CallPool
from rlctl.runtime.rewards.routing import Score, combine, rewards_for
from rlctl.runtime.rewards.scorers import FunctionScorer, RuleScorer
from rlctl.runtime.types import Prompt

SHOWN_CHARACTERS = 400
"""Of a prompt or response, in an error."""


@dataclass(frozen=True, slots=True)
class RewardItem:
    """One response to score."""

    prompt: Prompt
    response_text: str
    response_tokens: int
    truncated: bool = False
    """Whether the response was cut at the limit."""


class RewardWorker:
    """Scores responses. Rules that cannot hang run here, everything else in child processes.

    Args:
        rewards: of the config.
        log_folder: gets ``reward-<name>.log`` with what user code prints; None sends it to stderr.

    Raises:
        RunError: a reward is of a kind that the runtime does not run, or cannot be loaded.
        MissingDependency: a rule needs a package that is not there.
    """

    def __init__(self, rewards: Sequence[Reward], log_folder: Path | None = None) -> None:
        self._rewards = tuple(rewards)
        _check_names(self._rewards)
        self._scorers = [_scorer(reward) for reward in self._rewards]
        self._pools: dict[int, CallPool] = {}
        try:
            for i, (reward, scorer) in enumerate(zip(self._rewards, self._scorers, strict=True)):
                if isinstance(scorer, FunctionScorer) or scorer.needs_process:
                    log = log_folder / f"reward-{_file_name(reward.name)}.log" if log_folder else None
                    self._pools[i] = CallPool(scorer, processes=reward.workers, timeout=reward.timeout, log=log)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def score(self, items: Sequence[RewardItem]) -> list[Score]:
        """Score responses, in their order.

        Raises:
            RunError: a reward fails whose ``on_error`` is stop, or no reward applies to a prompt.
        """
        applying = [rewards_for(item.prompt, self._rewards) for item in items]
        outcomes: list[dict[int, Outcome | Failure]] = [{} for _ in items]
        for i, reward in enumerate(self._rewards):
            chosen = [k for k, applies in enumerate(applying) if i in applies]
            found = self._call(i, [_call(items[k]) for k in chosen], stop=reward.on_error == "stop")
            for k, outcome in zip(chosen, found, strict=True):
                outcomes[k][i] = outcome
            if reward.on_error == "stop":
                _stop_at_failure(reward, [items[k] for k in chosen], found)
        return [combine(outcome, self._rewards) for outcome in outcomes]

    def close(self) -> None:
        """End the child processes."""
        for pool in self._pools.values():
            pool.close()

    def _call(self, i: int, calls: list[Call], *, stop: bool) -> list[Outcome | Failure]:
        if i in self._pools:
            return self._pools[i].map(calls, stop_on_failure=stop)
        score = self._scorers[i].load().one
        assert score is not None
        return [attempt(score, call) for call in calls]


def _check_names(rewards: Sequence[Reward]) -> None:
    names = [reward.name for reward in rewards]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RunError(
            f"{names.count(twice)} rewards are called {twice!r}, so their metrics cannot be told apart",
            hint="give each of the rewards a name of its own (rewards[].name)",
        )


def _scorer(reward: Reward) -> RuleScorer | FunctionScorer:
    if isinstance(reward, RuleReward):
        rule = RuleScorer(reward.rule, dict(reward.args), reward.score_right, reward.score_wrong)
        rule.check()
        return rule
    if not isinstance(reward, FunctionReward):
        raise RunError(
            f"the reward {reward.name!r} is of type {reward.choice}, which the runtime does not run",
            hint="use a reward of type rule or function",
        )
    if reward.signature not in ("auto", "verl"):
        raise RunError(
            f"the reward {reward.name!r} has the signature {reward.signature}; the runtime calls functions as verl does",
            hint="wrap it in a function (data_source, solution_str, ground_truth, extra_info) and set signature to verl",
        )
    return FunctionScorer(reward.path, reward.function, dict(reward.args))


def _call(item: RewardItem) -> Call:
    extra = item.prompt.extra
    return Call(
        source=item.prompt.source,
        response=item.response_text,
        answer=item.prompt.answer,
        extra=extra.get("extra_info", {}),
        tokens=item.response_tokens,
        truncated=item.truncated,
        args=extra.get("reward_args", {}),
    )


def _stop_at_failure(reward: Reward, items: Sequence[RewardItem], outcomes: Sequence[Outcome | Failure]) -> None:
    failures = [(item, out) for item, out in zip(items, outcomes, strict=True) if isinstance(out, Failure)]
    if not failures:
        return
    item, failure = next((f for f in failures if not f[1].unanswered), failures[0])
    raise RunError(
        f"the reward {reward.name!r} failed on a response to prompt {item.prompt.index} of {item.prompt.source}: "
        f"{failure.message}\n  prompt: {_shown(item.prompt.text)}\n  response: {_shown(item.response_text)}"
        f"\n  answer: {_shown(str(item.prompt.answer))}",
        hint=f"mend the reward, or set the on_error of {reward.name!r} to zero to score 0 and go on",
    )


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"... {text[-SHOWN_CHARACTERS:]}"


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
