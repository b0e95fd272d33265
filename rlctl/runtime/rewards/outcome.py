"""What a reward function returned, or raised, as an ``Outcome`` or a ``Failure``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from rlctl.common.errors import MissingDependency, RlctlError, RunError
from rlctl.common.messages.reasons import Said, reason_of, said
from rlctl.runtime.rewards.interface import BatchScore, Call, Failure, Outcome, Score
from rlctl.runtime.user_code import last_lines


def as_outcome(result: Any) -> Outcome:
    """Read a result: a number, or a mapping with ``score`` whose other numbers are metrics.

    ``acc`` says if the response is right, ``pred`` what it answers.

    Raises:
        TypeError: it is neither.
        ValueError: the score is not finite.
    """
    if isinstance(result, Mapping):
        if not is_number(result.get("score")):
            raise TypeError(said("the reward is a mapping without a numeric 'score': {found}", found=_short(result)))
        metrics = {str(k): float(v) for k, v in result.items() if k != "score" and is_number(v)}
        correct = bool(result["acc"]) if is_number(result.get("acc")) else None
        vote = None if result.get("pred") is None else str(result["pred"])
        return Outcome(_finite(result["score"]), correct, metrics, vote)
    if not is_number(result):
        raise TypeError(
            said("the reward is {found}; expected a number, or a mapping with 'score'", found=_short(result))
        )
    return Outcome(_finite(result))


def _finite(value: Any) -> float:
    if not math.isfinite(value):
        raise ValueError(said("the reward is {reward}; expected a finite number", reward=float(value)))
    return float(value)


def is_number(value: Any) -> bool:
    """Whether a value is a number, numpy's and torch's among them."""
    return isinstance(value, Real) or (hasattr(value, "item") and getattr(value, "ndim", None) == 0)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def attempt(score: Score, call: Call) -> Outcome | Failure:
    """Score one call; whatever the user's code raises becomes a failure of this call."""
    try:
        return score(call)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's code may raise anything
        return failure_of(error)


def attempt_all(score: BatchScore, calls: Sequence[Call]) -> list[Outcome | Failure]:
    """Score calls together; whatever the user's code raises becomes a failure of each."""
    try:
        return list(score(calls))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's code may raise anything
        return [failure_of(error)] * len(calls)


def failure_of(error: BaseException) -> Failure:
    """An exception as a failure, told by its reason, or, of code that is not rlctl's, by the last lines of its traceback."""
    if isinstance(error, RlctlError):
        message = said("{message} ({hint})", message=error.message, hint=error.hint) if error.hint else error.message
        return Failure(message, broken=isinstance(error, RunError | MissingDependency))
    reason = reason_of(error)
    return Failure(reason if isinstance(reason, Said) else last_lines(error))
