"""ROLL: numbers as the canonical config has them; what is no number is left to the schema, which says where it stands."""

from __future__ import annotations

from typing import Any

from rlctl.adapters.engine.one_sided_rows import FollowsFrom
from rlctl.adapters.engine.rules import Reading, Same
from rlctl.common.messages.reasons import said


def number(value: Any) -> Any:
    """A whole number as a float, which the schema wants; anything else as it is."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Number(Same):
    """A number whose canonical key holds a float."""

    def read(self, value: Any, view: Reading) -> Any:
        return number(value)


NUMBER = Number()


def shuffled_by_seed(to: str) -> FollowsFrom:
    """A seed of its own that a config has for an order, which ROLL makes by the seed of the run."""
    return FollowsFrom(
        to,
        writes=lambda view: view.get("run.seed"),
        reason=lambda view: said("ROLL shuffles with its `seed`, which is {run}", run=view.get("run.seed")),
        note="the run's seed, with which ROLL shuffles",
        open=(None,),
    )
