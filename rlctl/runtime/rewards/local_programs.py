"""Code rewards without a service: the program in a response runs on this machine, in the sandbox, once for each of its tests."""

from __future__ import annotations

from dataclasses import dataclass

from rlctl.runtime.rewards.interface import Call, Loaded, Outcome
from rlctl.runtime.rewards.programs import START_SECONDS, Isolation, Limits, check, run_programs
from rlctl.runtime.rewards.sandbox_fusion import SHARED_CASES, TestsTogether, together_metric
from rlctl.runtime.rewards.trials import trials_of

ALL_SECONDS = 360.0
"""Longest time of all tests of a response, as in ROLL; those that are not reached count as not passed."""


@dataclass(frozen=True, slots=True)
class LocalPrograms:
    """Runs programs on this machine."""

    seconds: float
    """Of one program."""
    memory_limit_mib: int = 1024
    isolation: Isolation = "namespaces"
    method: str = "verl"
    partial_credit: bool = False
    """Score the share of the first tests instead of all or nothing."""
    tests_together: TestsTogether = "run"
    """What happens with tests that need the process of the program."""

    @property
    def call_seconds(self) -> float:
        """Longest time that one response takes."""
        return ALL_SECONDS + self.seconds + START_SECONDS

    def check(self) -> None:
        """Check what can be checked before the run.

        Raises:
            RunError: programs cannot be isolated here.
        """
        check(self.isolation)

    def load(self) -> Loaded:
        """Return what scores."""
        return Loaded(one=self._score)

    def _score(self, call: Call) -> Outcome:
        trials = trials_of(call, self.method)
        if trials is None:
            return Outcome(0.0, correct=False)
        trials = trials[:SHARED_CASES] if self.partial_credit else trials
        tests = [trial.program.split for trial in trials if trial.program.tests]
        together = together_metric(len(tests), [each.together for each in tests if each.together], self.tests_together)
        limits = Limits(self.seconds, ALL_SECONDS, self.memory_limit_mib)
        # If there is no share to report, the first program that fails to run decides.
        stop_at = () if self.partial_credit else ("raised", "killed", "late")
        ran = run_programs([trial.program for trial in trials], limits, self.isolation, stop_at=stop_at)
        passed = [trial.passes(each) for trial, each in zip(trials, ran, strict=False)]
        share = sum(passed) / len(trials)
        score = share if self.partial_credit else float(share == 1.0)
        return Outcome(score, share == 1.0, {"passed_share": share, **together})
