"""Trajectories that failed: which groups are trained on all the same, and when there are too many for the run to continue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.agents import RunningAgent, TrajectoryAgent
from rlctl.runtime.types import Prompt, Response

SHOWN_CAUSES = 3


@dataclass
class Failures:
    """Failures of one stage, by agent."""

    agents: Mapping[str, TrajectoryAgent]
    """By name."""
    default_agent: str | None
    look_after: int
    """Trajectories of an agent after which its failures are looked at: those of a step."""
    tell: Callable[[str], None] = lambda message: None
    """Gets what went wrong, for people."""
    failed: Counter[str] = field(default_factory=Counter)
    """Trajectories since the last look, by agent."""
    made: Counter[str] = field(default_factory=Counter)
    _step: Counter[str] = field(default_factory=Counter)
    """Trajectories since ``metrics``, and those of them that failed, by cause."""
    _causes: dict[str, Counter[str]] = field(default_factory=dict)
    _examples: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._agents = {name: agent for name, agent in self.agents.items() if isinstance(agent, RunningAgent)}

    def kept(self, prompt: Prompt, responses: Sequence[Response]) -> list[Response] | None:
        """The responses to a prompt that are trained on; None if the group is dropped.

        Raises:
            RunError: a larger share of an agent's trajectories failed than it allows.
        """
        name = str(prompt.extra.get("agent", self.default_agent))
        agent = self._agents.get(name)
        if agent is None:
            return list(responses)
        failed = [response for response in responses if response.failure]
        self._count(name, failed, len(responses))
        if not failed:
            return list(responses)
        if agent.on_failure in ("retry", "drop_group"):
            return None
        return [each for each in responses if not each.failure or each.treatment == "zero_reward"] or None

    def _count(self, name: str, failed: Sequence[Response], made: int) -> None:
        self.made[name] += made
        self.failed[name] += len(failed)
        self._step["made"] += made
        for each in failed:
            cause = each.failure.partition(":")[0]
            self._causes.setdefault(name, Counter())[cause] += 1
            self._step[f"failed_{cause}"] += 1
            self._examples.setdefault(f"{name} {cause}", each.failure)
        if self.made[name] >= self.look_after:
            self._look(name)

    def metrics(self) -> dict[str, float]:
        """The shares of trajectories that failed since the last call, by cause; nothing without agents."""
        counted, self._step = self._step, Counter()
        made = counted.pop("made", 0)
        if not made:
            return {}
        shares = {f"agent/{name}": count / made for name, count in counted.items()}
        return {"agent/failed_share": sum(counted.values()) / made, **shares}

    def _look(self, name: str) -> None:
        """Report what failed among as many trajectories as a step has, and end the run if that is too much."""
        failed, made = self.failed.pop(name, 0), self.made.pop(name)
        causes = self._causes.pop(name, Counter())
        if not failed:
            return
        listed = ", ".join(f"{cause} {count}" for cause, count in causes.most_common(SHOWN_CAUSES))
        example = self._examples.get(f"{name} {causes.most_common(1)[0][0]}", "")
        limit = self._agents[name].stop_run_above_failures
        what = said(
            "{failed} of {made} trajectories of the agent {name!r} failed ({listed})",
            failed=failed,
            made=made,
            name=name,
            listed=listed,
        )
        if failed / made > limit:
            raise RunError(
                said(
                    "{what}, and stop_run_above_failures is {limit:g}; one of them: {example}",
                    what=what,
                    limit=limit,
                    example=example,
                ),
                hint="fix the cause, or raise stop_run_above_failures of the agent",
            )
        self.tell(said("{what}; one of them: {example}", what=what, example=example))
