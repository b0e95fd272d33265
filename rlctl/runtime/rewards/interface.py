"""The records between the reward worker, its scorers and their processes: plain data, cheap to import and to pickle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Call:
    """One response to score."""

    source: str
    response: str
    answer: Any = None
    extra: Any = field(default_factory=dict)
    """The row's ``extra_info``, empty where it has none."""
    tokens: int = 0
    """Length of the response."""
    truncated: bool = False
    """Whether the response was cut at the limit."""
    args: dict[str, Any] = field(default_factory=dict)
    """Further arguments for this call, over the reward's own."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one reward says of one response."""

    score: float
    correct: bool | None = None
    """Whether the answer is right, where the reward can tell."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Further numbers for the metrics."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that gave no outcome."""

    message: str
    """What happened; of an exception, the last lines of its traceback."""
    unanswered: bool = False
    """The call was given up because another failed."""


Score = Callable[[Call], Outcome]


class Scorer(Protocol):
    """A way to score that can be sent to a process and loaded there."""

    def load(self) -> Score:
        """Return the function that scores.

        Raises:
            RunError: it cannot be loaded.
        """
        ...
