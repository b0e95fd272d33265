"""Trinity: agents. A workflow that is not one question and one answer is an agent, named by its class.

Arguments belong to task sets in Trinity and to agents in rlctl: a workflow with two sets of arguments is two agents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.agents import AGENTS, game_of, leaves, lost_agent
from rlctl.adapters.engine.implied import WORKFLOWS
from rlctl.adapters.engine.rules import Flow, Inexpressible, Out, Reading, Writing
from rlctl.adapters.trinity.workflows import E, Task, eval_tasksets, one_turn, task, tasksets
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.config import Config
from rlctl.config.sections.agents import SINGLE_TURN, EnvironmentAgent, OtherAgent, TrajectoryAgent
from rlctl.documents.paths import KeyPath

TYPE, EVALUATION_TYPE = f"{E}.default_workflow_type", f"{E}.default_eval_workflow_type"
PLAYED: dict[str, str] = {}
"""Trinity's workflows that play an environment, by the environment's type: the first of each."""
for _name, _row in WORKFLOWS.items():
    if _row.plays:
        PLAYED.setdefault(_row.plays, _name)
PLAYED_ARGS: Mapping[str, Mapping[str, str]] = {
    "frozen_lake_workflow": {
        "env_max_steps": "max_turns",
        "agent_max_steps": "max_turns",
        "is_slippery": "is_slippery",
    },
    "alfworld_workflow": {"max_env_steps": "max_turns"},
}
"""Arguments of these workflows that an agent says: its own key, or an argument of its environment."""


@record
class Workflow:
    """A workflow with its arguments, and the task sets that use it."""

    name: str
    kind: str
    args: Mapping[str, Any]
    kinds: tuple[KeyPath, ...]
    """The keys that name it."""
    argued: tuple[KeyPath, ...]
    """The places of its arguments."""


def _args(view: Reading, place: KeyPath) -> Mapping[str, Any]:
    found = view.inside(place, ()).get("workflow_args", None)
    return found if isinstance(found, Mapping) else {}


def _tasks(view: Reading) -> list[tuple[KeyPath, Task]]:
    both = [(place, False) for place in tasksets(view)] + [(place, True) for place in eval_tasksets(view)]
    return [(place, task(view, place, evaluation=evaluation)) for place, evaluation in both]


def workflows(view: Reading) -> list[Workflow]:
    """The workflows of a file that are no single turn, in the order of its task sets, the default one first."""
    default = view.get(TYPE)
    found: list[tuple[str, Mapping[str, Any], list[KeyPath], list[KeyPath]]] = []
    tasks = _tasks(view)
    tasks.sort(key=lambda item: item[1].workflow != default)
    for place, this in tasks:
        if this.workflow is None or (one_turn(this.workflow) is not None and not this.workflow_keys):
            continue
        args, at = _args(view, place), view.inside(place, ()).path("workflow_args")
        same = next((item for item in found if item[0] == this.workflow and item[1] == args), None)
        if same is None:
            found.append((this.workflow, args, [*this.workflow_keys], [at]))
        else:
            same[2].extend(this.workflow_keys)
            same[3].append(at)
    if isinstance(default, str) and one_turn(default) is None and default not in [item[0] for item in found]:
        found.insert(0, (default, {}, [view.path(TYPE)], []))
    names: list[str] = []
    for kind, *_ in found:
        base = kind.rpartition(".")[2]
        names.append(base if base not in names else f"{base}_{sum(name.startswith(base) for name in names) + 1}")
    return [
        Workflow(name, kind, args, tuple(dict.fromkeys(kinds)), tuple(argued))
        for name, (kind, args, kinds, argued) in zip(names, found, strict=True)
    ]


def _default(view: Reading, found: list[Workflow]) -> Workflow | None:
    """The agent of task sets that name none: of the first such set, if the default workflow is no single turn."""
    named = view.get(TYPE)
    return next((item for item in found if item.kind == named), None)


def read_agents(view: Reading) -> Iterator[Flow]:
    found = workflows(view)
    for index, item in enumerate(found):
        to = (*view.to(AGENTS), index)
        yield Flow((*to, "type"), "other", item.kinds)
        yield Flow((*to, "framework"), "trinity", item.kinds)
        yield Flow((*to, "name"), item.name, item.kinds)
        yield Flow((*to, "kind"), item.kind, item.kinds, same=len(item.kinds) == 1)
        if item.args:
            yield Flow((*to, "args"), dict(item.args), item.argued, same=len(item.argued) == 1)
    default = _default(view, found)
    used = tuple(view.path(key) for key in (TYPE, EVALUATION_TYPE) if view.written(key))
    yield Flow(view.to("rollout.default_agent"), default.name if default else None, used[:1])
    for key in (TYPE, EVALUATION_TYPE):
        if view.written(key):
            yield Flow((), None, (view.path(key),), "mapped", "the agent or the rewards of task sets")


def read_agent_of(view: Reading, to: tuple[Any, ...], this: Task, place: KeyPath) -> Iterator[Flow]:
    """The agent of a task set, where it is not the default one."""
    found = workflows(view)
    default, args = _default(view, found), _args(view, place)
    inside = view.inside(place, ())
    own = bool(inside.get("default_workflow_type", None))
    mine = next((item for item in found if item.kind == this.workflow and item.args == args), None)
    named = mine.name if mine else SINGLE_TURN if default is not None else None
    same = mine is not None and default is not None and mine.name == default.name
    yield Flow((*to, "agent"), None if same and not own else named, (inside.path("default_workflow_type"),))
    by_row = inside.get("format.workflow_key", None)
    yield Flow((*to, "agent_key"), by_row or None, (inside.path("format.workflow_key"),), same=bool(by_row))


# Writing


def is_own(agent: TrajectoryAgent | None) -> bool:
    """Whether an agent is a workflow of Trinity's, or a class that follows its form."""
    return isinstance(agent, OtherAgent) and agent.framework == "trinity"


def played_by(agent: TrajectoryAgent | None) -> str:
    """Trinity's workflow that plays the environment of an agent; empty if there is none."""
    return PLAYED.get(game_of(agent), "") if isinstance(agent, EnvironmentAgent) else ""


def workflow_of(agent: TrajectoryAgent | None) -> str:
    """The workflow that is written for an agent; empty if Trinity has none."""
    if isinstance(agent, OtherAgent) and is_own(agent):
        return agent.kind
    return played_by(agent)


def named_agent(config: Config, name: str | None) -> TrajectoryAgent | None:
    return next((agent for agent in config.rollout.agents if agent.name == name), None)


def agent_of(config: Config, source: Mapping[str, Any]) -> TrajectoryAgent | None:
    """The agent of a source; None if a response is one generation."""
    return named_agent(config, source["agent"] or config.rollout.default_agent)


def has_agent(config: Config, source: Mapping[str, Any]) -> bool:
    """Whether a workflow is written for a source's agent, so that its own form of one answer is not needed."""
    return bool(workflow_of(agent_of(config, source)))


def shared_agent(config: Config) -> TrajectoryAgent | None:
    """The agent of the default workflow: the default one, or the one whose environment all sources of training play."""
    default = named_agent(config, config.rollout.default_agent)
    names = {source.agent for source in config.data.train}
    alone = named_agent(config, names.pop()) if len(names) == 1 else None
    return alone if default is None and played_by(alone) else default


NOT_TRINITYS = "Trinity needs a workflow class for it; the written run generates one answer per row and scores it"


def write_agents(view: Writing) -> Iterator[Out]:
    """The default workflow, and what is lost of agents that are no workflows of Trinity's."""
    config, used = view.config, (view.to("rollout.default_agent"),)
    for place, agent in enumerate(config.rollout.agents):
        root = (*view.to(AGENTS), place)
        if is_own(agent):
            fields = tuple((*root, name) for name in ("type", "framework", "name", "kind", "args"))
            yield Flow((), None, fields, "mapped", "a workflow of Trinity's")
        elif played_by(agent):
            yield from _write_played(view, place, played_by(agent))
        else:
            yield from lost_agent(view, place, NOT_TRINITYS)
    default = named_agent(config, config.rollout.default_agent)
    if default is None or workflow_of(default):
        yield Flow((), None, used, "mapped", "the default workflow")


def _write_played(view: Writing, place: int, workflow: str) -> Iterator[Out]:
    """An environment that one of Trinity's workflows plays in its own way, which a warning of the file tells."""
    root, plain = (*view.to(AGENTS), place), view.get(AGENTS)[place]
    reason = said("Trinity's {workflow} has its own prompts, steps and rewards", workflow=workflow)
    yield Inexpressible(tuple(leaves(plain, root)), reason, idle=True)


def played_args(agent: TrajectoryAgent | None) -> dict[str, Any]:
    """The arguments of the workflow that plays an agent's environment."""
    if not isinstance(agent, EnvironmentAgent):
        return {}
    args = getattr(agent.environment, "args", {})
    names = PLAYED_ARGS.get(played_by(agent), {})
    values = {key: getattr(agent, name, None) or args.get(name) for key, name in names.items()}
    return {key: value for key, value in values.items() if value is not None}


def write_agent_of(view: Writing, root: Any, place: tuple[Any, ...], source: Mapping[str, Any]) -> Iterator[Out]:
    """The workflow of a task set where it is not that of all, with its arguments."""
    config, used = view.config, ((*place, "agent"),)
    agent = agent_of(config, source)
    default = shared_agent(config)
    if source["agent_key"]:
        yield Flow(
            (*root, "format", "workflow_key"), source["agent_key"], ((*place, "agent_key"),), same=True, always=True
        )
    else:
        yield Flow((), None, ((*place, "agent_key"),), "mapped", "no row names a workflow")
    workflow = workflow_of(agent)
    if not workflow:
        yield Flow((), None, used, "derived", "one question, one answer")
        return
    if agent is not default or (source["agent"] and is_own(agent)):
        yield Flow((*root, "default_workflow_type"), workflow, used, always=True)
    else:
        yield Flow((), None, used, "mapped", "the default workflow")
    index = next(index for index, item in enumerate(config.rollout.agents) if item is agent)
    args = view.get(AGENTS)[index]["args"] if is_own(agent) else played_args(agent)
    taken = ((*view.to(AGENTS), index, "args"),) if is_own(agent) else ()
    for key, value in args.items():
        yield Flow((*root, "workflow_args", key), value, taken, "mapped" if is_own(agent) else "derived", always=True)
