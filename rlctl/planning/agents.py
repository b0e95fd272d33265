"""What a run with an agent can do: the combinations that the runtime does not support yet are refused here, before it starts."""

from __future__ import annotations

from rlctl.common.errors import PlanError
from rlctl.config import Config
from rlctl.config.sections.agents import ToolsAgent, TrajectoryAgent
from rlctl.config.sections.rollout import ExternalEngine
from rlctl.planning import arithmetic


def check_agent(config: Config) -> TrajectoryAgent | None:
    """The agent that makes trajectories; None if a response is one generation.

    Raises:
        PlanError: the config selects no such agent, or combines it with something that works on single generations only.
    """
    agent = arithmetic.agent_of(config)
    if agent is None:
        return None
    algorithm, where = config.algorithm, f"rollout.default_agent is {agent.name!r}"
    if algorithm.objective.choice != "rl":
        raise PlanError(
            f"{where}, and algorithm.objective {algorithm.objective.choice} trains on single responses",
            hint="set algorithm.objective to rl, or rollout.default_agent to null",
        )
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
    return agent


def _check_sources(config: Config, agent: TrajectoryAgent, where: str) -> None:
    for section in ("train", "eval"):
        for index, source in enumerate(getattr(config.data, section)):
            key = f"data.{section}[{index}]"
            if source.image_key is not None:
                raise PlanError(f"{where}, and {key}.image_key is not supported with agents", hint="remove it")
            if isinstance(agent, ToolsAgent) and source.prompt_type == "raw":
                raise PlanError(
                    f"{where}, and {key}.prompt_type raw leaves no place for its tools",
                    hint=f"set {key}.prompt_type to auto, so that the chat template shows them",
                )
