"""What a trajectory is worth by itself, and what training makes of one that a limit ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rlctl.config.sections.agents import RunningAgent
from rlctl.planning import arithmetic

Treatment = Literal["train", "mask", "zero_reward"]


def own_reward(agent: RunningAgent, turns: Sequence[float], said: float | None = None) -> float | None:
    """The reward of a trajectory by those of its turns, and what the agent itself says; None if ``rewards`` alone score it."""
    kind = arithmetic.credit_of(agent)
    if kind == "function":
        return said
    found = sum(turns) if kind == "sum" else (turns[-1] if turns else 0.0)
    return found + (said or 0.0)


def treatment_of(agent: RunningAgent, stop: str) -> Treatment:
    """What training makes of a trajectory that ended so."""
    if stop == "length":
        return agent.on_token_limit
    return agent.on_turn_limit if stop in ("turns", "time") else "train"
