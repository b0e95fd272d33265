"""What a run with an agent can do: the combinations that the runtime does not support yet are refused here, before it starts."""

from __future__ import annotations

from rlctl.common.errors import PlanError
from rlctl.config import Config
from rlctl.config.sections.agents import EnvironmentAgent, RunningAgent, ToolsAgent, TrajectoryAgent
from rlctl.config.sections.rollout import ExternalEngine
from rlctl.planning import arithmetic

MODELS = ("policy", "random")
"""What an agent can call."""


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
                    f"data.{section}[{index}].format is episodes, and no agent is selected that has an environment",
                    hint="set rollout.default_agent to an agent of type environment",
                )


def _check_agent(config: Config, agent: TrajectoryAgent) -> None:
    used = config.rollout.default_agent == agent.name
    algorithm, where = config.algorithm, f"{'rollout.default_agent' if used else 'an agent'} is {agent.name!r}"
    if algorithm.objective.choice != "rl":
        raise PlanError(
            f"{where}, and algorithm.objective {algorithm.objective.choice} trains on single responses",
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
                f"{where}, and {key} is not supported with agents",
                hint=f"remove {key}, or set rollout.default_agent to null",
            )
    _check_sources(config, agent, where)


def _check_kind(config: Config, agent: TrajectoryAgent) -> None:
    if not isinstance(agent, RunningAgent):
        raise PlanError(
            f"the agent {agent.name!r} is of type {agent.choice}, which rlctl does not run",
            hint="use an agent of type tools, environment, program or function",
        )
    if agent.model not in MODELS:
        raise PlanError(
            f"the agent {agent.name!r} calls the model {agent.model!r}; expected policy or random",
            hint="set its model to policy; auxiliary models are not supported yet",
        )
    if isinstance(agent, EnvironmentAgent) and agent.history_turns is not None and agent.samples == "trajectory":
        raise PlanError(
            f"the agent {agent.name!r} has history_turns, so each turn is a training sequence, and its samples is trajectory",
            hint="set samples of the agent to branch, or history_turns to null",
        )


def _check_sources(config: Config, agent: TrajectoryAgent, where: str) -> None:
    for section in ("train", "eval"):
        for index, source in enumerate(getattr(config.data, section)):
            key = f"data.{section}[{index}]"
            if source.image_key is not None and config.model.modality != "text":
                raise PlanError(f"{where}, and {key}.image_key is not supported with agents", hint="remove it")
            if isinstance(agent, ToolsAgent) and source.prompt_type == "raw":
                raise PlanError(
                    f"{where}, and {key}.prompt_type raw leaves no place for its tools",
                    hint=f"set {key}.prompt_type to auto, so that the chat template shows them",
                )
