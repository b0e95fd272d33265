"""What the tables of algorithms hold: functions that say by their own signature what they read and may be told."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from rlctl.common.errors import ConfigError, nearest
from rlctl.common.messages.reasons import said

T = TypeVar("T")


@dataclass(frozen=True)
class Algorithm:
    """One entry: positional parameters of ``function`` are the tensors it reads, keyword-only ones its options."""

    function: Callable[..., Any]

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Names of the tensors that it takes, in order."""
        parameters = inspect.signature(self.function).parameters.values()
        return tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)

    @cached_property
    def options(self) -> tuple[str, ...]:
        """Names of its options."""
        parameters = inspect.signature(self.function).parameters.values()
        return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)

    def __call__(self, tensors: Mapping[str, Any], **options: Any) -> Any:
        """Call the function with those of ``tensors`` that it reads; raise ConfigError where one is None or absent."""
        missing = [name for name in self.reads if tensors.get(name) is None]
        if missing:
            raise ConfigError(
                said(
                    "{function} needs {names}; got no {missing_names}",
                    function=self.function.__name__,
                    names=", ".join(self.reads),
                    missing_names=", ".join(missing),
                )
            )
        return self.function(*(tensors[name] for name in self.reads), **options)


def lookup(table: Mapping[str, T], name: str, what: str) -> T:
    """Return ``table[name]``, or raise ConfigError that says which names there are."""
    if name not in table:
        hint = nearest(name, table)
        raise ConfigError(
            said(
                "unknown {what} '{name}'; expected one of {names}", what=what, name=name, names=", ".join(sorted(table))
            ),
            hint=hint,
        )
    return table[name]
