"""The records between the reward worker, its scorers and their processes: plain data, cheap to import and to pickle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Call:
    """One response to score."""

    source: str
    """Data source of the row."""
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
    prompt: str = ""
    """The prompt as the policy read it."""
    messages: Sequence[Mapping[str, Any]] = ()
    """The chat before the policy's template; empty where the row is raw text."""
    tag: str | None = None
    """The row's tag."""
    group: int = 0
    """Number of the prompt among those scored together: its responses have the same."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Further columns of the row, those that a reward of a dialect reads (``data/rowset.py``)."""
    conversation: Sequence[Mapping[str, Any]] = ()
    """What an agent added after the prompt: answers of the model, of tools and of the environment."""
    turn_rewards: Sequence[float] = ()
    """What the environment gave for each of the model's turns; empty without an agent."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """What the environment returned last."""
    stop: str = ""
    """Why an agent's trajectory ended; empty without an agent."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one reward says of one response."""

    score: float
    correct: bool | None = None
    """Whether the answer is right, where the reward can tell."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Further numbers for the metrics."""
    vote: str | None = None
    """What the response answers, where the reward tells: evaluation counts majorities of it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that gave no outcome: it costs this response its score."""

    message: str
    """What happened; of an exception, the last lines of its traceback."""
    unanswered: bool = False
    """The call was given up because another failed."""
    broken: bool = False
    """The reward itself is at fault, whatever the response: it ends the run."""
    late: bool = field(default=False, compare=False)
    """The call took longer than it may."""


Score = Callable[[Call], Outcome]
"""Scores one response; whatever it raises is a failure of this response."""
BatchScore = Callable[[Sequence[Call]], "Sequence[Outcome | Failure]"]
"""Scores responses together; whatever it raises is a failure of all of them."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A reward ready to score, in one of two ways."""

    one: Score | None = None
    together: BatchScore | None = None


class Scorer(Protocol):
    """A way to score that can be sent to a process and loaded there."""

    def load(self) -> Loaded:
        """Return what scores.

        Raises:
            RunError: it cannot be loaded.
        """
        ...


@dataclass(frozen=True, slots=True)
class Ready:
    """What a scoring process says once it has loaded its scorer."""

    together: bool = False
    """Whether it scores all calls of a message at once."""
    pid: int = 0
    """Its process."""
