"""ROLL: numbers as the canonical config has them; what is no number is left to the schema, which says where it stands."""

from __future__ import annotations

from typing import Any

from rlctl.adapters.engine.rules import Reading, Same


def number(value: Any) -> Any:
    """A whole number as a float, which the schema wants; anything else as it is."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Number(Same):
    """A number whose canonical key holds a float."""

    def read(self, value: Any, view: Reading) -> Any:
        return number(value)


NUMBER = Number()
