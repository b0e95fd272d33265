"""Agents in the dialects' tables: which one a config trains with, and rules of one agent's keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from rlctl.adapters.engine.implied import ENVIRONMENTS, WORKFLOWS, row_of, told
from rlctl.adapters.engine.lacking import SHOWN
from rlctl.adapters.engine.rules import (
    NO_KEY,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    Out,
    Reading,
    Rule,
    Writing,
)
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.config import Config
from rlctl.config.sections.agents import (
    SINGLE_TURN,
    EnvironmentAgent,
    OtherAgent,
    OtherEnvironment,
    PythonEnvironment,
    ToolsAgent,
    TrajectoryAgent,
)
from rlctl.documents.paths import KeyPath

AGENTS = "rollout.agents"
WORLDS = "pkg://rlctl.runtime.agents.worlds"
"""The environments that rlctl has itself."""
GAMES = {"FrozenLake": "frozen_lake", "Sokoban": "sokoban"}
"""Their classes, and ROLL's names of the same games."""


def used_agents(config: Config, *, evaluation: bool = False) -> list[str]:
    """The names of the agents that sources use, each once; those that only rows name are not among them."""
    sources: Sequence[Any] = config.data.eval if evaluation else config.data.train
    default = config.rollout.default_agent
    names = [source.agent or default for source in sources] or [default]
    return [name for name in dict.fromkeys(names) if name is not None and name != SINGLE_TURN]


def trained_agents(config: Config) -> list[tuple[int, TrajectoryAgent]]:
    """The agents of training with their places; none where a response is one generation."""
    names = used_agents(config)
    return [(place, agent) for place, agent in enumerate(config.rollout.agents) if agent.name in names]


def game_of(agent: TrajectoryAgent) -> str:
    """The environment that an agent acts in, by ROLL's name where ROLL has it; empty if it acts in none."""
    if not isinstance(agent, EnvironmentAgent):
        return ""
    environment = agent.environment
    if isinstance(environment, OtherEnvironment):
        return environment.kind
    if isinstance(environment, PythonEnvironment):
        return GAMES.get(environment.name, environment.name) if environment.path == WORLDS else environment.name
    return str(getattr(environment, "id", ""))


def is_played(agent: TrajectoryAgent) -> bool:
    """Whether an agent acts in an environment: by its type, or in ROLL, where all agents do."""
    return isinstance(agent, EnvironmentAgent) or (isinstance(agent, OtherAgent) and agent.framework == "roll")


def plays(config: Config) -> list[TrajectoryAgent]:
    """The agents of training that act in environments."""
    return [agent for _, agent in trained_agents(config) if is_played(agent)]


def games(config: Config) -> list[str]:
    """The environments of training, each once."""
    return list(dict.fromkeys(_game(agent) for agent in plays(config)))


def _game(agent: TrajectoryAgent) -> str:
    """The environment of an agent that plays one; of ROLL's own classes too, which have its name as an argument."""
    if isinstance(agent, OtherAgent):
        return str(agent.args.get("env_type", agent.kind))
    return game_of(agent)


WHAT: Mapping[str, str] = {
    "tools": "calls tools",
    "environment": "acts in an environment",
    "program": "runs a program against the policy's endpoint",
    "function": "runs a Python coroutine",
}


ONE_ANSWER = (
    "{kind} of {framework} scores one answer: put its prompt into the data, and write its reward as a reward function"
)
"""What to do for a workflow without further turns."""


def lost_agent(view: Writing, place: int, reason: str, *, implies: bool = True) -> Iterator[Out]:
    """An agent that a dialect has nothing for: all of it is reported with one reason, and with what its name implies."""
    root, default = (*view.to(AGENTS), place), view.to("rollout.default_agent")
    agent = view.config.rollout.agents[place]
    used = (default,) if agent.name == view.config.rollout.default_agent else ()
    shown = _lacking(agent, reason)
    if implies:
        shown += told(ENVIRONMENTS, _game(agent)) if is_played(agent) else told(WORKFLOWS, getattr(agent, "kind", ""))
    yield Inexpressible(((*root, "type"), *leaves(view.get(AGENTS)[place], root), *used), shown)


def _lacking(agent: TrajectoryAgent, reason: str) -> str:
    """What an agent is, and why it is not written."""
    if not isinstance(agent, OtherAgent):
        return said("an agent that {what}: {reason}", what=WHAT[agent.choice], reason=reason)
    framework = SHOWN.get(agent.framework, agent.framework)
    row = row_of(WORKFLOWS, agent.kind) if agent.framework == "trinity" else None
    if row is not None and row.one_answer:
        return said(ONE_ANSWER, kind=agent.kind, framework=framework)
    return said("{kind} is a class of {framework}: {reason}", kind=agent.kind, framework=framework, reason=reason)


def leaves(value: Any, place: KeyPath) -> Iterator[KeyPath]:
    """Every place in a value, those of mappings and lists too."""
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, item in inner:
        yield (*place, name)
        yield from leaves(item, (*place, name))


@record
class OfAgent(Rule):
    """Rules of one agent's keys, whose canonical keys are counted from the agent; the first agent is the one read."""

    rules: tuple[Rule, ...]
    reads: Callable[[Reading], bool]
    """Whether there is an agent that has these keys."""
    writes: Callable[[Config], int | None]
    """The place of the agent whose keys are written; None if there is none."""
    reason: str
    """Why the keys have no effect without such an agent; empty leaves them to other rules."""

    @cached_property
    def keys(self) -> tuple[DialectKey, ...]:
        return tuple(key for rule in self.rules for key in rule.keys)

    @property
    def canonical(self) -> tuple[str, ...]:
        return tuple(f"{AGENTS}[].{name}" for rule in self.rules for name in rule.canonical)

    @property
    def pairs(self) -> Iterable[tuple[DialectKey, str]]:
        return ((key, f"{AGENTS}[].{name}") for rule in self.rules for key, name in rule.pairs)

    def read(self, view: Reading) -> Iterator[Flow]:
        if self.reads(view):
            inside = view.inside((), (*view.to(AGENTS), 0))
            for rule in self.rules:
                yield from rule.read(inside)
            return
        for key in self.keys if self.reason else ():
            if "*" not in key.name and view.written(key.name):
                yield Flow((), None, (view.path(key.name),), "dead", self.reason)

    def write(self, view: Writing) -> Iterator[Out]:
        place = self.writes(view.config)
        if place is not None:
            inside = view.inside((), (*view.to(AGENTS), place))
            for rule in self.rules:
                yield from rule.write(inside)


OF_STEPS = tuple(f"algorithm.advantage.{name}" for name in ("divide_by_steps", "std_over", "drop_below_std"))
OF_STATES = tuple(f"algorithm.advantage.{name}" for name in ("episode_weight", "step_weight", "anchor_scope"))
TURNS = (
    "algorithm.advantage.level",
    *OF_STEPS,
    *OF_STATES,
    "algorithm.policy_loss.ratio",
    "algorithm.loss_aggregation.unit",
)


def of_other_agents(*but: str) -> list[Rule]:
    """Why each further key of agents and their credit is not written; ``but`` are those that the dialect has."""
    keys = [key for key in (*TURNS, "rollout.oversampling.additional_responses") if key not in but]
    return [*(Dropped(key, NO_KEY) for key in keys), Dropped(f"{AGENTS}.**", NO_KEY)]


def sources_of_rows(kind: str, column: str, framework: str) -> CustomRule:
    """The agent of each source of a dialect whose rows alone name another one, by a fixed column."""

    def read(view: Reading) -> Iterator[Flow]:
        return iter(())

    def write(view: Writing) -> Iterator[Out]:
        default = view.config.rollout.default_agent
        for index, source in enumerate(view.get(f"data.{kind}")):
            place = ("data", kind, index)
            if source["agent"] not in (None, default):
                agent = next((one for one in view.config.rollout.agents if one.name == source["agent"]), None)
                reason = said(
                    "{framework} uses one agent for all files; the rows choose another agent", framework=framework
                )
                if agent is not None and is_played(agent):
                    reason = _lacking(agent, said("{framework} has no environments", framework=framework))
                yield Inexpressible(((*place, "agent"),), reason)
            else:
                yield Flow((), None, ((*place, "agent"),), "mapped", "the default agent")
            if source["agent_key"] not in (None, column):
                reason = said("{framework} reads it from the column {column}", framework=framework, column=column)
                yield Inexpressible(((*place, "agent_key"),), reason)
            else:
                note = said(
                    "{framework} reads the column {column} if the data has one", framework=framework, column=column
                )
                yield Flow((), None, ((*place, "agent_key"),), "mapped", note)

    fills = tuple(f"data.{kind}[].{name}" for name in ("agent", "agent_key"))
    return CustomRule(
        f"agent of {kind} rows",
        (),
        fills,
        read,
        write,
        "the column of the row",
        why="It compares two keys of each source with those of the whole config.",
    )


def tools_agent(config: Config) -> int | None:
    """The place of the agent that calls tools: the default one, or the first that rows may name."""
    places = [place for place, agent in enumerate(config.rollout.agents) if isinstance(agent, ToolsAgent)]
    chosen = [place for place in places if config.rollout.agents[place].name == config.rollout.default_agent]
    return next(iter([*chosen, *(places if config.rollout.default_agent in (None, SINGLE_TURN) else ())]), None)
