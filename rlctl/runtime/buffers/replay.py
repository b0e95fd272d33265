"""Replay: which groups are drawn first where they are drawn by priority, and when one may be drawn again.

The rules are Trinity-RFT's (``trinity/buffer/storage/queue.py``): a pure function of the group's weight version, of how often
it was taken, and of a standard normal number for rules that draw lots.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlctl.common.errors import PlanError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config.sections.execution import Replay

PriorityRule = Callable[..., tuple[float, bool]]
"""Gives the priority (the highest is drawn first), and whether the group is kept at all."""


def linear_decay(version: int, uses: int, noise: float, *, decay: float = 2.0) -> tuple[float, bool]:
    """New weights first; each use counts as ``decay`` versions of age."""
    return version - decay * uses, True


def decay_limit_randomization(
    version: int, uses: int, noise: float, *, decay: float = 2.0, use_count_limit: int = 3, sigma: float = 0.0
) -> tuple[float, bool]:
    """The same, perturbed by ``sigma`` times a normal number; kept until it was used ``use_count_limit`` times (0: always)."""
    return version - decay * uses + sigma * noise, use_count_limit <= 0 or uses < use_count_limit


RULES: Mapping[str, PriorityRule] = {
    "linear_decay": linear_decay,
    "decay_limit_randomization": decay_limit_randomization,
}


@dataclass(frozen=True)
class Reuse:
    """How groups are ordered and drawn again."""

    rule: PriorityRule
    args: Mapping[str, Any] = field(default_factory=dict)
    cooldown: float | None = None
    """Seconds before a group is drawn again; None never draws it again."""

    @staticmethod
    def of(replay: Replay) -> Reuse | None:
        """What a config says; None where groups are taken once, in order.

        Raises:
            PlanError: there is no such rule, or it has no such argument.
        """
        if not replay.enabled:
            return None
        if replay.priority not in RULES:
            raise PlanError(
                said(
                    "buffer.replay.priority is {priority!r}; expected one of {names}",
                    priority=replay.priority,
                    names=", ".join(RULES),
                ),
                hint=nearest(replay.priority, RULES),
            )
        rule = RULES[replay.priority]
        known = [each.name for each in inspect.signature(rule).parameters.values() if each.kind is each.KEYWORD_ONLY]
        for name, value in replay.priority_args.items():
            if name not in known or not isinstance(value, int | float):
                raise PlanError(
                    said(
                        "buffer.replay.priority_args sets {name} to {value!r}; {priority} takes numbers for {names}",
                        name=name,
                        value=value,
                        priority=replay.priority,
                        names=", ".join(known),
                    ),
                    hint=nearest(name, known),
                )
        return Reuse(rule, replay.priority_args, replay.cooldown)

    def priority(self, version: int, uses: int, noise: float) -> tuple[float, bool]:
        """Priority of a group, and whether it is kept."""
        return self.rule(version, uses, noise, **self.args)
