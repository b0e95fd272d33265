"""Model calls to a trajectory.

A call whose prompt starts with all tokens of a row continues that row; the rest of its prompt is what the agent inserted. Any
other call starts a row. So an agent that only appends to its context has one row, and one that rewrites it has several.

    call 1   prompt [a b]          generates [c d]     row 1   a b | c d
    call 2   prompt [a b c d e]    generates [f]       row 1   a b | c d | e | f      e is inserted
    call 3   prompt [a e]          generates [g]       row 2   a e | g

A call that the agent discards is not trained on: if another one continues it, its tokens are inserted ones, else it is left out.

Calls that are under way at the same time are ordered by what the model read, not by which answer came first: so a trajectory
that is made again is the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rlctl.common.messages.reasons import said
from rlctl.runtime.types import FinishReason, Response, Turn


@dataclass(frozen=True, slots=True)
class _Call:
    inserted: tuple[int, ...]
    number: int
    response: Response


@dataclass(slots=True)
class _Row:
    token_ids: tuple[int, ...]
    calls: list[_Call] = field(default_factory=list)


class NothingKept(Exception):
    """A trajectory without a call to train on."""

    def __init__(self, cause: str, text: str) -> None:
        """``cause``: ``no_call`` or ``discarded``."""
        super().__init__(text)
        self.cause = cause


class Rewritten(Exception):
    """An agent rewrote its context."""

    cause = "context_rewritten"


@dataclass(slots=True)
class Recorder:
    """Takes the calls of one trajectory."""

    merge: Literal["branch", "trajectory", "turn"] = "branch"
    """Whether calls continue rows; must, as there may be only one; or never do."""
    begun: int = 0
    """Calls that were begun."""
    _open: int = 0
    """Calls under way."""
    _returned: list[tuple[tuple[int, ...], Response]] = field(default_factory=list)
    """Calls that returned while others were under way."""
    _rows: list[_Row] = field(default_factory=list)
    _count: int = 0
    """Calls in rows."""
    _rewards: dict[int, float] = field(default_factory=dict)
    """Of calls, by number."""
    _states: dict[int, str] = field(default_factory=dict)
    _discarded: list[Response] = field(default_factory=list)

    @property
    def calls(self) -> int:
        """Calls that have returned."""
        return self._count + len(self._returned)

    @property
    def inserted(self) -> int:
        """Tokens that the agent inserted after the first prompt of each row."""
        return sum(len(call.inserted) for row in self._rows for call in row.calls[1:])

    def begin(self) -> int:
        """Note that a call is under way; returns its number."""
        self._open += 1
        self.begun += 1
        return self.begun - 1

    def give_up(self) -> None:
        """Note that a call ended without a response."""
        self._open -= 1
        self._settle()

    def add(self, prompt: Sequence[int], response: Response) -> None:
        """Record a call. The longest row that the prompt starts with is continued.

        Raises:
            Rewritten: the call starts a second row, and there may be only one.
        """
        self._returned.append((tuple(prompt), response))
        self._open -= 1
        self._settle()

    def discard(self, response: Response) -> None:
        """Do not train on a call."""
        self._discarded.append(response)

    def keeps(self, response: Response) -> bool:
        """Whether a call is trained on."""
        return not any(each is response for each in self._discarded)

    def check_kept(self) -> None:
        """Check that there is a call to train on.

        Raises:
            NothingKept: there was none, or all were discarded.
        """
        if not self.calls:
            text = said("the prompt leaves no room for a token (model.max_context_tokens, or the model's positions)")
            raise NothingKept("no_call", text)
        if len(self._discarded) >= self.calls:
            raise NothingKept("discarded", said("the agent discarded all its {calls} calls", calls=self.calls))

    def _settle(self) -> None:
        """Put calls into rows, unless one that may belong before them is under way. A call is longer than those it continues."""
        if self._open > 0:
            return
        self._open, returned = 0, self._returned
        self._returned = []
        for prompt, response in sorted(returned, key=lambda call: (len(call[0]), call[0], tuple(call[1].token_ids))):
            self._put(prompt, response)

    def _put(self, prompt: tuple[int, ...], response: Response) -> None:
        fitting = [row for row in self._rows if prompt[: len(row.token_ids)] == row.token_ids]
        if self.merge == "turn":
            fitting = []
        elif self.merge == "trajectory" and any(map(self._kept, self._rows)) and not fitting:
            raise Rewritten(
                said(
                    "call {number} does not continue the tokens of the calls before it, but samples: trajectory of the "
                    "agent needs one continuous sequence",
                    number=self._count + 1,
                )
            )
        if fitting:
            row = max(fitting, key=lambda each: len(each.token_ids))
            inserted = prompt[len(row.token_ids) :]
        else:
            row = _Row(())
            self._rows.append(row)
            inserted = prompt
        row.calls.append(_Call(inserted, self._count, response))
        row.token_ids = (*prompt, *response.token_ids)
        self._count += 1

    def _kept(self, row: _Row) -> list[_Call]:
        """The calls of a row that are trained on, with what was discarded before each as inserted tokens."""
        kept: list[_Call] = []
        before: tuple[int, ...] = ()
        for call in row.calls:
            if self.keeps(call.response):
                kept.append(_Call((*before, *call.inserted), call.number, call.response))
                before = ()
            else:
                before += (*call.inserted, *call.response.token_ids)
        return kept

    def reward(self, value: float, *, state: str = "") -> None:
        """Add to the reward of the last call; ``state`` is a mark of what it was an answer to."""
        last = self._count - 1
        self._rewards[last] = self._rewards.get(last, 0.0) + value
        self._states[last] = state

    @property
    def rewards(self) -> list[float]:
        """The reward of each call, in order."""
        return [self._rewards.get(number, 0.0) for number in range(self._count)]

    def trajectory(
        self,
        *,
        text: str,
        finish_reason: FinishReason,
        messages: Sequence[dict[str, Any]] = (),
        counts: Mapping[str, float] | None = None,
        **more: Any,
    ) -> Response:
        """The trajectory of all calls that are kept, of which there is at least one; ``more`` are further fields of it."""
        self._open = 0
        self._settle()
        rows = list(filter(None, map(self._kept, self._rows)))
        calls = [call for row in rows for call in row]
        discarded = {"discarded_calls": float(len(self._discarded))} if self._discarded else {}
        last = max(calls, key=lambda call: call.number).response
        oldest = min(call.response.oldest_version for call in calls)
        return Response(
            token_ids=tuple(token for call in calls for token in call.response.token_ids),
            log_probs=tuple(value for call in calls for value in call.response.log_probs),
            finish_reason=finish_reason,
            weight_version=last.weight_version,
            first_version=None if oldest == last.weight_version else oldest,
            text=text,
            turns=tuple(
                Turn(
                    call.inserted,
                    len(call.response.token_ids),
                    starts_row=place == 0,
                    number=call.number,
                    weight_version=call.response.weight_version,
                    reward=self._rewards.get(call.number, 0.0),
                    state=self._states.get(call.number, ""),
                )
                for row in rows
                for place, call in enumerate(row)
            ),
            messages=tuple(messages),
            counts={
                "turns": float(self._count),
                "inserted_tokens": float(self.inserted),
                **discarded,
                **(counts or {}),
            },
            **more,
        )
