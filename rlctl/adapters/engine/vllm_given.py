"""The arguments that a file gives to vLLM 0.32, and what tables of them are made of.

A framework hands arguments to vLLM as the file has them; nested ones are named with dots, as ``compilation_config.mode``. A row
asks only for what is written, and for defaults of vLLM that no framework changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlctl.adapters.engine.model_limits import shape_at
from rlctl.adapters.engine.requirements import Values
from rlctl.planning.models import ModelShape


class Given:
    """The arguments that a file gives to vLLM."""

    def __init__(self, values: Values, key: Callable[[str], str], model: str) -> None:
        self._values, self._key, self._model = values, key, model

    def __call__(self, name: str, default: Any = None) -> Any:
        """The value of an argument; ``default`` where the file has none."""
        value = self._values[self._key(name)]
        return default if value is None else value

    def size(self, name: str) -> int:
        """A parallel size, as ``tensor``; 1 where the file has none."""
        return int(self(f"{name}_parallel_size", 1))

    @property
    def shape(self) -> ModelShape | None:
        """The model; None if rlctl does not know it."""
        return shape_at(self._values, self._model)


Refused = Callable[[Given], object]
Pair = tuple[str, str, Refused, object]
"""An argument, the one that excludes its value, whether a file has both, and a value that is taken."""
Value = tuple[str, Refused, str, object]
"""An argument, whether its value is refused, what is expected, and a value that is taken."""

SPEC, PROFILE, COMPILE, EPLB = "speculative_config", "profiler_config", "compilation_config", "eplb_config"
PROTON = {"context": "shadow", "data": "tree"}
"""Defaults of the Proton profiler's options; the others are null or false."""


def drafter(g: Given) -> str:
    return str(g(f"{SPEC}.method", ""))


def proton(g: Given, name: str) -> object:
    return g(f"{PROFILE}.proton_{name}", PROTON.get(name))
