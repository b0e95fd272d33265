"""Rewards that a process computes: a rule, or a function of the user's, that any process can load."""

from __future__ import annotations

import importlib.util
import inspect
from dataclasses import dataclass, field, replace
from typing import Any

from rlctl.common.errors import MissingDependency, RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.rewards.function import load_function
from rlctl.runtime.rewards.interface import Call, Loaded, Outcome
from rlctl.runtime.rewards.rules import RULES, auto_rule
from rlctl.runtime.rewards.signatures import bind


@dataclass(frozen=True, slots=True)
class RuleScorer:
    """A built-in rule with its scores."""

    rule: str
    args: dict[str, Any] = field(default_factory=dict)
    right: float = 1.0
    wrong: float = 0.0

    @property
    def needs_process(self) -> bool:
        """Whether it may take long or hang; auto may choose such a rule."""
        return self.rule == "auto" or RULES[self.rule].slow

    def check(self) -> None:
        """Check what can be checked before the run.

        Raises:
            RunError: the rule has no such argument, or lacks one.
            MissingDependency: the rule needs a package.
        """
        if self.rule == "auto":
            return
        _check_needs(self.rule)
        signature = inspect.signature(RULES[self.rule].function)
        try:
            signature.bind(None, **self.args)
        except TypeError as error:
            known = ", ".join(list(signature.parameters)[1:]) or "none"
            raise RunError(
                said("the rule {rule}: {error}; its arguments are: {known}", rule=self.rule, error=error, known=known),
                hint="set the args of the reward",
            ) from error

    def load(self) -> Loaded:
        """Return what scores."""
        return Loaded(one=self._auto if self.rule == "auto" else self._score)

    def _score(self, call: Call) -> Outcome:
        return self._scored(self.rule, call, self.right, self.wrong)

    def _auto(self, call: Call) -> Outcome:
        """verl's scale where the scores are the usual 1 and 0, else the scores as set."""
        auto = auto_rule(call.source)
        _check_needs(auto.rule)
        usual = (self.right, self.wrong) == (1.0, 0.0)
        right, wrong = (auto.right, auto.wrong) if usual else (self.right, self.wrong)
        return self._scored(auto.rule, call, right, wrong)

    def _scored(self, name: str, call: Call, right: float, wrong: float) -> Outcome:
        rule = RULES[name]
        outcome = _outcome(rule.function(call, **{**self.args, **call.args}), right, wrong)
        return outcome if rule.says is None else replace(outcome, vote=rule.says(call.response) or "")


def _check_needs(rule: str) -> None:
    needs = RULES[rule].needs
    if needs is not None and importlib.util.find_spec(needs[0]) is None:
        raise MissingDependency(
            said("the rule {rule} needs {needs}", rule=rule, needs=needs[1]),
            hint=said("pip install {needs}", needs=needs[1]),
        )


def _outcome(verdict: bool | float | Outcome, right: float, wrong: float) -> Outcome:
    if isinstance(verdict, Outcome):
        return verdict
    if isinstance(verdict, bool):
        return Outcome(right if verdict else wrong, verdict)
    return Outcome(float(verdict), correct=False)


@dataclass(frozen=True, slots=True)
class FunctionScorer:
    """A function of the user's."""

    path: str
    function: str
    args: dict[str, Any] = field(default_factory=dict)
    signature: str = "auto"
    timeout: float = 30.0
    """Seconds of one call of a coroutine function; other calls are timed by the pool."""

    def load(self) -> Loaded:
        """Return what scores.

        Raises:
            RunError: it cannot be loaded, or cannot be called in the form of its signature.
        """
        return bind(load_function(self.path, self.function), self.signature, self.args, self.path, self.timeout)
