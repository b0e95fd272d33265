"""Canonical keys of agents, turns and their credit that a dialect's table does not write."""

from __future__ import annotations

from rlctl.adapters.engine.rules import Dropped

CREDIT = (
    *(f"algorithm.advantage.{name}" for name in ("level", "divide_by_steps", "std_over", "drop_below_std")),
    *(f"algorithm.advantage.{name}" for name in ("episode_weight", "step_weight", "anchor_scope")),
    "algorithm.policy_loss.ratio",
    "algorithm.loss_aggregation.unit",
    "rollout.oversampling.additional_responses",
)
OF_SOURCES = tuple(f"data.{section}[].{name}" for section in ("train", "eval") for name in ("agent", "agent_key"))


def unwritten_turns(reason: str, *, sources: bool = True) -> list[Dropped]:
    """Rules that tell of each such key; ``sources`` is false if the table drops whole data sources itself."""
    return [Dropped(key, reason) for key in (*CREDIT, *(OF_SOURCES if sources else ()))]
