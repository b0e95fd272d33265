"""Continuous batching of the built-in engine: rows join and leave between two steps, and nothing waits for the slowest.

    submit ──▶ waiting ──▶ prompts computed ──▶ rows ──▶ step, step, ... ──▶ finished
                  ▲                              │
                  └───────── set aside ──────────┘   new weights, sleep: what was drawn stays, its keys are computed anew

Rows of the cache are always 0 to ``count - 1``, all writing the same slot, so a step computes no position that is not some
response's next token. ``generate`` is a batch of which nothing is submitted later.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from transformers.cache_utils import Cache

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.rollout.cache import RowCache
from rlctl.runtime.rollout.interface import Finished, TokensComputed
from rlctl.runtime.rollout.model import CausalModel
from rlctl.runtime.rollout.randomness import stream_keys, uniforms
from rlctl.runtime.rollout.sampling import SamplingTable, draw
from rlctl.runtime.rollout.stop_texts import Decode, StopTexts
from rlctl.runtime.train.replay import narrowed
from rlctl.runtime.types import Request, Response, Sampling

_ADMIT_FRACTION = 8
"""Waiting rows join when 1/8 of the batch is free: each joining costs a forward of its own."""
_STATE = _SAMPLING, _KEY, _DRAWN, _START, _AHEAD, _LAST = range(6)
"""Per row in use: its sampling in the table, its random stream, tokens drawn, first slot, how much further on its rotary
positions are than its places (after images), last token."""


@dataclass(slots=True)
class _Row:
    """A response under way."""

    ticket: int
    index: int
    request: Request
    key: int
    """Its random stream."""
    texts: StopTexts | None
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    first_version: int = 0
    experts: list[torch.Tensor] = field(default_factory=list)
    """Where tokens went, of as many as were fed so far, if that is recorded."""

    @property
    def context(self) -> tuple[int, ...]:
        """Everything before its next token."""
        return (*self.request.token_ids, *self.tokens)

    @property
    def shared(self) -> tuple[int | None, tuple[int, ...]]:
        """Rows of which this is the same are computed once; what images a prompt has is known by its request."""
        return (self.ticket if self.request.inputs else None, self.context)

    def add(self, token: int, log_prob: float, version: int) -> bool:
        """Take its next token; whether a text has ended it."""
        if not self.tokens:
            self.first_version = version
        self.tokens.append(token)
        self.log_probs.append(log_prob)
        return self.texts is not None and self.texts.check(0, self.tokens)

    def route(self, experts: torch.Tensor) -> None:
        """Keep where the tokens of its context went, of those that are not known yet."""
        self.experts += list(experts[len(self.experts) :])

    def finished(self, version: int) -> Finished:
        """The response, whose last token these weights drew.

        Raises:
            RunError: a log-prob is not a finite number.
        """
        if not all(map(math.isfinite, self.log_probs)):
            raise RunError(
                said("the model computed log-probs that are not finite at weight version {version}", version=version),
                hint="the weights have diverged: check the gradient norm and the learning rate of the last steps",
            )
        sampling = self.request.sampling
        stopped = not sampling.ignore_eos and self.tokens[-1] in sampling.stop_token_ids
        by_text = self.texts is not None and 0 in self.texts.ended
        response = Response(
            token_ids=tuple(self.tokens),
            log_probs=tuple(self.log_probs),
            finish_reason="stop" if stopped or by_text else "length",
            weight_version=version,
            first_version=None if self.first_version == version else self.first_version,
            cut="" if self.texts is None else self.texts.cut(0),
            routed_experts=narrowed(torch.stack(self.experts)) if self.experts else None,
        )
        return Finished(self.ticket, self.index, response)


@dataclass(frozen=True, slots=True)
class _Contexts:
    """What one forward computed for rows that join."""

    place: Mapping[tuple[int | None, tuple[int, ...]], int]
    """Of each context, by ``_Row.shared``."""
    cache: Any
    logits: torch.Tensor
    length: int
    """Of the longest; shorter ones have empty positions on the left."""
    ahead: int
    """How much further on rotary positions are than places, of a prompt with images."""
    experts: torch.Tensor | None
    """Where the tokens went, if that is recorded."""


_NOTHING = _Contexts({}, None, torch.empty(0), 0, 0, None)


class Streaming:
    """All that is under way in one engine."""

    def __init__(
        self,
        model: CausalModel,
        cache: RowCache,
        *,
        max_rows: int,
        max_prompt_positions: int,
        computed: TokensComputed,
    ) -> None:
        self._model, self._cache, self._computed = model, cache, computed
        self._max_rows, self._max_prompt_positions = max_rows, max_prompt_positions
        self._waiting: deque[_Row] = deque()
        self._rows: list[_Row] = []
        self._ready = _NOTHING
        """The contexts of the rows that join next, if they were computed for rows before them."""
        self._done: list[Finished] = []
        self._state = torch.zeros(len(_STATE), 0, dtype=torch.int64, device=model.device)
        self._samplings: list[Sampling] = []
        self._table = SamplingTable([], vocab_size=model.vocab_size, device=model.device)
        self._seen: torch.Tensor | None = None
        self._never = torch.tensor(model.never_drawn, device=model.device) if model.never_drawn else None
        self._version = 0

    @property
    def busy(self) -> bool:
        """Whether anything is under way."""
        return bool(self._waiting or self._rows)

    def add(self, requests: Mapping[int, Request], decode: Decode | None = None) -> None:
        """Take checked requests, by their tickets; ``decode`` is for those that a text may end."""
        known = len(self._samplings)
        self._samplings = list(dict.fromkeys([*self._samplings, *(each.sampling for each in requests.values())]))
        if len(self._samplings) > known:
            self._table = SamplingTable(self._samplings, vocab_size=self._model.vocab_size, device=self._model.device)
            if self._table.any_penalty and self._seen is None:
                self.set_aside()
        for ticket, request in requests.items():
            places = range(request.first, request.first + request.n)
            keys = stream_keys([request.seed] * request.n, list(places)).tolist()
            for index, key in zip(places, keys, strict=True):
                texts = StopTexts([request.sampling], decode) if decode and request.sampling.stop else None
                self._waiting.append(_Row(ticket, index, request, key, texts))

    def work(self, seconds: float, *, version: int) -> list[Finished]:
        """Go on for about ``seconds``, one step at least, or until nothing is left; what has finished since the last call.

        Args:
            version: of the weights.
        """
        self._version = version
        until = time.monotonic() + seconds
        while self.busy:
            if self._waiting and (self._max_rows - len(self._rows)) * _ADMIT_FRACTION >= self._max_rows:
                self._admit()
            if self._rows:
                self._step()
            if time.monotonic() >= until:
                break
        done, self._done = self._done, []
        return done

    def drop(self, tickets: Collection[int]) -> None:
        """Give up the rows of these requests."""
        gone = set(tickets)
        self._waiting = deque(row for row in self._waiting if row.ticket not in gone)
        leaving = [row.ticket in gone for row in self._rows]
        if any(leaving):
            self._leave(torch.tensor(leaving, device=self._model.device))
        self._done = [each for each in self._done if each.ticket not in gone]

    def tokens_so_far(self, tickets: Collection[int]) -> dict[int, tuple[int, ...]]:
        """The tokens of rows under way."""
        wanted = set(tickets)
        return {row.ticket: tuple(row.tokens) for row in (*self._waiting, *self._rows) if row.ticket in wanted}

    def set_aside(self) -> None:
        """Give the cache back: rows wait, with what was drawn of them, until they are computed anew."""
        self._waiting.extendleft(reversed(self._rows))
        self._rows = []
        self._ready = _NOTHING
        self._cache.release()
        self._cache.window.rows = 0
        self._seen = None

    def _admit(self) -> None:
        """Fill the free rows; those of one context, the responses to a prompt, share its computation."""
        while self._waiting and len(self._rows) < self._max_rows:
            free = self._max_rows - len(self._rows)
            rows = self._of_ready(free)
            if not rows:
                rows = self._next(free)
                self._ready = self._compute(rows)
            self._place(rows, self._ready)
        if not self._waiting or self._waiting[0].shared not in self._ready.place:
            self._ready = _NOTHING

    def _of_ready(self, free: int) -> list[_Row]:
        """The next rows whose contexts are computed already, as of a group for which the batch had no room."""
        rows: list[_Row] = []
        while self._waiting and len(rows) < free and self._waiting[0].shared in self._ready.place:
            rows.append(self._waiting.popleft())
        return rows

    def _compute(self, rows: Sequence[_Row]) -> _Contexts:
        place = {shared: index for index, shared in enumerate(dict.fromkeys(row.shared for row in rows))}
        contexts, ahead = [context for _, context in place], 0
        request = rows[0].request
        if request.inputs:
            cache, logits, ahead = self._model.image_prompt(replace(request, token_ids=contexts[0]))
        else:
            cache, logits = self._model.prompts(contexts)
        tokens, length = sum(map(len, contexts)), max(map(len, contexts))
        self._computed.prompt += tokens
        self._computed.padding += length * len(contexts) - tokens
        return _Contexts(place, cache, logits, length, ahead, self._model.experts)

    def _next(self, free: int) -> list[_Row]:
        """The next rows to join, as many as one forward takes; a prompt with images is computed alone."""
        rows: list[_Row] = []
        different: dict[tuple[int | None, tuple[int, ...]], None] = {}
        longest = 0
        while self._waiting and len(rows) < free:
            row = self._waiting[0]
            longest = max(longest, len(row.context))
            if row.shared not in different:
                alone = bool(row.request.inputs or (rows and rows[0].request.inputs))
                if different and (alone or (len(different) + 1) * longest > self._max_prompt_positions):
                    break
                different[row.shared] = None
            rows.append(self._waiting.popleft())
        return rows

    def _place(self, rows: list[_Row], contexts: _Contexts) -> None:
        """Draw the next token of rows whose contexts were computed, and add those that go on to the batch."""
        device = self._model.device
        samplings = [self._table.row_of[row.request.sampling] for row in rows]
        drawn = [len(row.tokens) for row in rows]
        which = torch.tensor([contexts.place[row.shared] for row in rows], device=device)
        if contexts.experts is not None:
            for row, place in zip(rows, which.tolist(), strict=True):
                row.route(contexts.experts[place, contexts.length - len(row.context) :])
        state = torch.zeros(len(_STATE), len(rows), dtype=torch.int64, device=device)
        state[_SAMPLING], state[_DRAWN] = torch.tensor(samplings), torch.tensor(drawn)
        state[_KEY], state[_AHEAD] = torch.tensor([row.key for row in rows]), contexts.ahead
        seen = None
        if self._table.any_penalty:
            seen = torch.zeros(len(rows), self._model.vocab_size, dtype=torch.bool, device=device)
            for place, row in enumerate(rows):
                seen[place, list(row.context)] = True
        lengths = torch.tensor([len(row.context) for row in rows], device=device)
        finished = self._draw(contexts.logits.index_select(0, which), rows, state, seen)
        go_on = (~finished).nonzero()[:, 0]
        if not len(go_on):
            return
        joining = [rows[index] for index in go_on.tolist()]
        self._make_room(contexts.cache, len(joining), contexts.length, joining)
        state[_START] = self._cache.window.cursor - lengths
        self._cache.place(contexts.cache, which.index_select(0, go_on))
        count = len(self._rows)
        self._state[:, count : count + len(joining)] = state.index_select(1, go_on)
        if seen is not None and self._seen is not None:
            self._seen[count : count + len(joining)] = seen.index_select(0, go_on)
        self._rows += joining
        self._rows_changed()

    def _make_room(self, prompts: Cache, joining: int, length: int, rows: Sequence[_Row]) -> None:
        """Make the cache large enough for rows that join, and let the others end where the longest of them does."""
        cache, window, count = self._cache, self._cache.window, len(self._rows)
        left = max(row.request.sampling.max_tokens - len(row.tokens) for row in rows)
        held = cache.rows_layers[0].keys.shape[0]
        wanted = held if count + joining <= held else min(self._max_rows, max(2 * held, count + joining))
        if not count:
            cache.allocate(prompts, rows=max(wanted, held), slots=max(cache.slots, length + left))
            window.cursor = window.low = length
        else:
            slots = max(cache.slots, max(window.cursor, length) + 1)
            if wanted > held or slots > cache.slots:
                cache.resize(rows=wanted, slots=slots)
            if length > window.cursor:
                self._shift(window.cursor - length)
        self._grow(cache.rows_layers[0].keys.shape[0])

    def _grow(self, rows: int) -> None:
        """Let what is known of each row be as many as the cache has room for."""
        old = self._state
        if old.shape[1] < rows:
            self._state = torch.zeros(len(_STATE), rows, dtype=torch.int64, device=old.device)
            self._state[:, : old.shape[1]] = old
        if self._table.any_penalty and (self._seen is None or len(self._seen) < rows):
            before = self._seen
            self._seen = torch.zeros(rows, self._model.vocab_size, dtype=torch.bool, device=old.device)
            if before is not None:
                self._seen[: len(before)] = before

    def _step(self) -> None:
        """Compute the next token of every row, then let the finished rows go."""
        window, count = self._cache.window, len(self._rows)
        if window.cursor == self._cache.slots:
            if window.low:
                self._shift(window.low)
            else:
                self._cache.resize(
                    rows=len(self._cache.rows_layers[0].keys), slots=window.cursor + window.cursor // 2 + 1
                )
        state = self._state[:, :count]
        logits = self._model.rows(state[_LAST], state[_START], state[_AHEAD], self._cache)
        self._computed.decoded += count
        window.cursor += 1
        for row, experts in (
            zip(self._rows, self._model.experts, strict=True) if self._model.experts is not None else ()
        ):
            row.experts.append(experts[0])
        finished = self._draw(logits, self._rows, state, None if self._seen is None else self._seen[:count])
        if bool(finished.any()):
            self._leave(finished)

    def _draw(
        self, logits: torch.Tensor, rows: Sequence[_Row], state: torch.Tensor, seen: torch.Tensor | None
    ) -> torch.Tensor:
        """Draw and record the next token of each row; return whether it is finished, having told of those that are."""
        sampling, key, drawn, _, _, last = state
        rules = self._table.rules(sampling)
        tokens, log_probs = draw(logits, uniforms(key, drawn), rules, generated=drawn, seen=seen, never=self._never)
        if seen is not None:
            seen[torch.arange(len(rows), device=seen.device), tokens] = True
        drawn += 1
        last.copy_(tokens)
        finished = rules.finished(tokens, drawn).tolist()
        found = zip(rows, tokens.tolist(), log_probs.tolist(), strict=True)
        for place, (row, token, log_prob) in enumerate(found):
            finished[place] |= row.add(token, log_prob, self._version)
            if finished[place]:
                self._done.append(row.finished(self._version))
        return torch.tensor(finished, device=logits.device)

    def _leave(self, finished: torch.Tensor) -> None:
        """Drop rows: the last rows move into their places."""
        leaving, count = int(finished.sum()), len(self._rows)
        kept = count - leaving
        holes = finished[:kept].nonzero()[:, 0]
        if len(holes):
            sources = (~finished[kept:]).nonzero()[:, 0] + kept
            self._state[:, holes] = self._state[:, sources]
            if self._seen is not None:
                self._seen[holes] = self._seen[sources]
            self._cache.move(sources, holes)
            for hole, source in zip(holes.tolist(), sources.tolist(), strict=True):
                self._rows[hole] = self._rows[source]
        del self._rows[kept:]
        self._cache.window.rows = kept
        if kept:
            self._rows_changed()

    def _rows_changed(self) -> None:
        self._cache.window.low = int(self._state[_START, : len(self._rows)].min())

    def _shift(self, slots: int) -> None:
        self._cache.shift(slots)
        self._state[_START, : len(self._rows)] -= slots
