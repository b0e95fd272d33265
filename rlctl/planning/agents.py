"""What a run with an agent can do: the combinations that the runtime does not support yet are refused here, before it starts."""

from __future__ import annotations

from rlctl.common.errors import PlanError
from rlctl.common.messages.reasons import said
from rlctl.common.report_lines import FRAMEWORKS
from rlctl.config import Config
from rlctl.config.sections.agents import EnvironmentAgent, OtherAgent, RunningAgent, ToolsAgent, TrajectoryAgent
from rlctl.config.sections.rollout import ExternalEngine
from rlctl.planning import arithmetic


def check_agents(config: Config) -> dict[str, TrajectoryAgent]:
    """The agents that make trajectories, by name; none if every response is one generation.

    Raises:
        PlanError: the config selects no such agent, or combines one with something that works on single generations only.
    """
    agents = arithmetic.agents_of(config)
    for agent in agents.values():
        _check_agent(config, agent)
    if not agents:
        _check_episodes(config)
    return agents


def _check_episodes(config: Config) -> None:
    for section in ("train", "eval"):
        for index, source in enumerate(getattr(config.data, section)):
            if source.format == "episodes":
                raise PlanError(
                    said(
                        "data.{section}[{index}].format is episodes, but no agent is selected that has an environment",
                        section=section,
                        index=index,
                    ),
                    hint="set rollout.default_agent to an agent of type environment",
                )


def _check_agent(config: Config, agent: TrajectoryAgent) -> None:
    used = config.rollout.default_agent == agent.name
    algorithm = config.algorithm
    named = "rollout.default_agent is {name!r}" if used else "an agent is {name!r}"
    where = said(named, name=agent.name)
    if algorithm.objective.choice != "rl":
        raise PlanError(
            said(
                "{where}, and algorithm.objective {objective} trains on single responses",
                where=where,
                objective=algorithm.objective.choice,
            ),
            hint="set algorithm.objective to rl, or rollout.default_agent to null",
        )
    _check_kind(config, agent)
    refused = {
        "algorithm.policy_filtration": algorithm.policy_filtration is not None,
        "algorithm.distillation": algorithm.distillation is not None,
        "run.skip.rollout": config.run.skip.rollout != "off",
        "rollout.sampling.stop": bool(config.rollout.sampling.stop),
        "rollout.engine": isinstance(config.rollout.engine, ExternalEngine),
    }
    for key, is_set in refused.items():
        if is_set:
            raise PlanError(
                said("{where}, but {key} is not supported with agents", where=where, key=key),
                hint=said("remove {key}, or set rollout.default_agent to null", key=key),
            )
    _check_sources(config, agent, where)


def _check_kind(config: Config, agent: TrajectoryAgent) -> None:
    if isinstance(agent, OtherAgent):
        raise PlanError(
            said(
                "the agent {name!r} uses {kind}, a class of {framework} that rlctl can convert but not run",
                name=agent.name,
                kind=agent.kind,
                framework=FRAMEWORKS.get(agent.framework, agent.framework),
            ),
            hint="rewrite it as an agent of type function or program; for an environment with reset and step, use type "
            "environment",
        )
    assert isinstance(agent, RunningAgent), f"an agent of type {agent.choice} is neither run nor kept"
    if agent.model not in arithmetic.AGENT_MODELS:
        raise PlanError(
            said(
                "the agent {name!r} generates with the model {model!r}; expected policy or random",
                name=agent.name,
                model=agent.model,
            ),
            hint="set its model to policy; the agent's code calls auxiliary models by name",
        )
    if isinstance(agent, EnvironmentAgent) and agent.history_turns is not None and agent.samples == "trajectory":
        raise PlanError(
            said(
                "the agent {name!r} has history_turns, so each turn is a separate training sequence, but its "
                "samples: trajectory needs one sequence",
                name=agent.name,
            ),
            hint="set samples of the agent to branch, or history_turns to null",
        )


def _check_sources(config: Config, agent: TrajectoryAgent, where: str) -> None:
    for section in ("train", "eval"):
        for index, source in enumerate(getattr(config.data, section)):
            key = f"data.{section}[{index}]"
            shown = source.image_key is not None and config.model.modality != "text"
            if shown and not isinstance(agent, ToolsAgent):
                raise PlanError(
                    said(
                        "{where}, but only agents of type tools read the images of {key}.image_key",
                        where=where,
                        key=key,
                    ),
                    hint="remove it, or use an agent of type tools",
                )
            if isinstance(agent, ToolsAgent) and source.prompt_type == "raw":
                raise PlanError(
                    said("{where}, but {key}.prompt_type raw leaves no place for its tools", where=where, key=key),
                    hint=said("set {key}.prompt_type to auto, so that the chat template shows them", key=key),
                )
