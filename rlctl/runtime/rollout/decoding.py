"""One call of the built-in engine: prompts are computed once, their rows decoded together, finished rows leave at once.

    requests ──longest first──▶ computed prompts ──free rows──▶ rows ──▶ step ──▶ finished rows leave, the last take their place
                                                    ▲                                  │
                                                    └────────── rows freed ────────────┘

Rows are always 0 to ``count - 1``, so a step computes no position that is not some response's next token.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.rollout.cache import RowCache
from rlctl.runtime.rollout.interface import TokensComputed
from rlctl.runtime.rollout.model import CausalModel
from rlctl.runtime.rollout.randomness import stream_keys, uniforms
from rlctl.runtime.rollout.sampling import SamplingTable, draw
from rlctl.runtime.rollout.stop_texts import Decode, StopTexts
from rlctl.runtime.train.replay import narrowed
from rlctl.runtime.types import Request, Response

_ADMIT_FRACTION = 8
"""New rows are placed when 1/8 of the batch is free: each placing costs a forward of its own."""
_NO_TOKEN = -1
_STATE = _ROW, _SAMPLING, _KEY, _DRAWN, _START, _AHEAD, _LAST = range(7)
"""Per row in use: its index in the call, its sampling in the table, its random stream, tokens drawn, first slot, how much
further on its rotary positions are than its places (after images), last token."""


@dataclass(slots=True)
class _Prompts:
    """Prompts computed together, and the rows that still want them."""

    cache: Cache
    logits: torch.Tensor
    length: int
    rows: torch.Tensor
    """int64: indices into the call's rows, not placed yet."""
    which: torch.Tensor
    """int64: the prompt of each of ``rows``."""
    starts: torch.Tensor
    """int64 [prompts]: empty positions on the left of each."""
    ahead: int
    """How much further on in rotary positions than in places its responses begin, of a prompt with images."""
    experts: torch.Tensor | None
    """Where their tokens went, if that is recorded."""


class Decoding:
    """The state of one ``generate`` call."""

    def __init__(
        self,
        model: CausalModel,
        requests: Sequence[Request],
        cache: RowCache,
        *,
        max_rows: int,
        max_prompt_positions: int,
        computed: TokensComputed,
        decode: Decode | None = None,
    ) -> None:
        self._model, self._cache, self._computed = model, cache, computed
        self._requests = requests
        self._max_prompt_positions = max_prompt_positions
        device = model.device
        owners = [(index, j) for index, request in enumerate(requests) for j in range(request.n)]
        self._first_row = [0]
        for request in requests:
            self._first_row.append(self._first_row[-1] + request.n)
        self._table = SamplingTable([r.sampling for r in requests], vocab_size=model.vocab_size, device=device)
        responses = [requests[i].first + j for i, j in owners]
        self._keys = stream_keys([requests[i].seed for i, _ in owners], responses).to(device)
        self._samplings = torch.tensor([self._table.row_of[requests[i].sampling] for i, _ in owners], device=device)
        longest = max(s.max_tokens for s in self._table.distinct)
        self._tokens = torch.full((len(owners), longest), _NO_TOKEN, dtype=torch.int64, device=device)
        self._log_probs = torch.zeros(len(owners), longest, device=device)
        self._experts: dict[int, list[torch.Tensor]] = {}
        """Where the tokens of each row went, if that is recorded."""
        self._seen = self._prompt_tokens(owners) if self._table.any_penalty else None
        self._texts = None if decode is None else StopTexts([requests[i].sampling for i, _ in owners], decode)
        self._waiting = deque(sorted(range(len(requests)), key=lambda i: -len(requests[i].token_ids)))
        self._ready: _Prompts | None = None
        self._never = torch.tensor(model.never_drawn, device=device) if model.never_drawn else None
        self._capacity = min(max_rows, len(owners))
        needed = max(len(r.token_ids) + r.sampling.max_tokens for r in requests)
        # Rows placed later end where the others have got to: half as much again, so that they are seldom shifted down.
        self._slots = needed if len(owners) <= max_rows else needed + needed // 2
        self._count = 0
        self._state = torch.zeros(len(_STATE), self._capacity, dtype=torch.int64, device=device)

    def run(self) -> None:
        """Decode until every response is finished."""
        while self._waiting or self._ready or self._count:
            if (self._waiting or self._ready) and self._enough_room():
                self._admit()
            if self._count:
                self._step()

    def responses(self, *, weight_version: int) -> list[list[Response]]:
        """Return the finished responses, one list per request.

        Raises:
            RunError: a log-prob is not a finite number.
        """
        if not bool(self._log_probs.isfinite().all()):
            raise RunError(
                said(
                    "the model computed log-probs that are not finite at weight version {weight_version}",
                    weight_version=weight_version,
                ),
                hint="the weights have diverged: check the gradient norm and the learning rate of the last steps",
            )
        lengths = (self._tokens != _NO_TOKEN).sum(1).tolist()
        tokens, log_probs = self._tokens.tolist(), self._log_probs.tolist()
        ended = {} if self._texts is None else self._texts.ended
        answers = []
        for request, first in zip(self._requests, self._first_row, strict=False):
            sampling = request.sampling
            stops = () if sampling.ignore_eos else sampling.stop_token_ids
            answers.append(
                [
                    Response(
                        token_ids=tuple(tokens[row][: lengths[row]]),
                        log_probs=tuple(log_probs[row][: lengths[row]]),
                        finish_reason="stop" if tokens[row][lengths[row] - 1] in stops or row in ended else "length",
                        weight_version=weight_version,
                        cut="" if self._texts is None else self._texts.cut(row),
                        routed_experts=narrowed(torch.stack(self._experts[row])) if row in self._experts else None,
                    )
                    for row in range(first, first + request.n)
                ]
            )
        return answers

    def _prompt_tokens(self, owners: list[tuple[int, int]]) -> torch.Tensor:
        seen = torch.zeros(len(owners), self._model.vocab_size, dtype=torch.bool)
        for row, (index, _) in enumerate(owners):
            seen[row, list(self._requests[index].token_ids)] = True
        return seen.to(self._model.device)

    def _enough_room(self) -> bool:
        return (self._capacity - self._count) * _ADMIT_FRACTION >= self._capacity

    def _admit(self) -> None:
        """Fill the free rows, computing as many prompts as they need."""
        while self._count < self._capacity and (self._ready or self._waiting):
            if self._ready is None:
                self._ready = self._compute_prompts(self._capacity - self._count)
            self._place(self._ready, self._capacity - self._count)
            if not len(self._ready.rows):
                self._ready = None

    def _compute_prompts(self, free: int) -> _Prompts:
        """Compute the next prompts, enough for ``free`` rows unless that is too much for one forward."""
        taken: list[int] = []
        longest, ahead = len(self._requests[self._waiting[0]].token_ids), 0
        alone = bool(self._requests[self._waiting[0]].inputs)  # a prompt with images
        while self._waiting and free > 0 and (not taken or (len(taken) + 1) * longest <= self._max_prompt_positions):
            if taken and (alone or self._requests[self._waiting[0]].inputs):
                break
            taken.append(self._waiting.popleft())
            free -= self._requests[taken[-1]].n
        prompts = [self._requests[i].token_ids for i in taken]
        if alone:
            cache, logits, ahead = self._model.image_prompt(self._requests[taken[0]])
        else:
            cache, logits = self._model.prompts(prompts)
        tokens = sum(map(len, prompts))
        self._computed.prompt += tokens
        self._computed.padding += longest * len(prompts) - tokens
        device = self._model.device
        rows = [row for i in taken for row in range(self._first_row[i], self._first_row[i + 1])]
        which = [prompt for prompt, i in enumerate(taken) for _ in range(self._requests[i].n)]
        starts = [longest - len(p) for p in prompts]
        placed, whose, begins = (torch.tensor(values, device=device) for values in (rows, which, starts))
        return _Prompts(cache, logits, longest, placed, whose, begins, ahead, self._model.experts)

    def _place(self, prompts: _Prompts, free: int) -> None:
        """Draw the first token of up to ``free`` rows of ``prompts``, and add those that go on to the batch."""
        rows, which = prompts.rows[:free], prompts.which[:free]
        prompts.rows, prompts.which = prompts.rows[free:], prompts.which[free:]
        start = prompts.starts.index_select(0, which) - prompts.length
        zeros, ahead = torch.zeros_like(rows), torch.full_like(rows, prompts.ahead)
        if prompts.experts is not None:
            for row, prompt, begin in zip(rows.tolist(), which.tolist(), prompts.starts[which].tolist(), strict=True):
                self._experts[row] = list(prompts.experts[prompt, begin:])
        state = torch.stack([rows, self._samplings[rows], self._keys[rows], zeros, start, ahead, zeros])
        finished = self._draw(prompts.logits.index_select(0, which), state)
        go_on = (~finished).nonzero()[:, 0]
        if not len(go_on):
            return
        window = self._cache.window
        if not self._count:
            self._cache.allocate(prompts.cache, rows=self._capacity, slots=self._slots)
            window.cursor = prompts.length
        self._cache.place(prompts.cache, which.index_select(0, go_on))
        state[_START] += window.cursor
        self._state[:, self._count : self._count + len(go_on)] = state.index_select(1, go_on)
        self._count += len(go_on)
        self._rows_changed()

    def _step(self) -> None:
        """Compute the next token of every row, then let the finished rows go."""
        window = self._cache.window
        if window.cursor == self._cache.slots:
            self._make_room()
        state = self._state[:, : self._count]
        logits = self._model.rows(state[_LAST], state[_START], state[_AHEAD], self._cache)
        self._computed.decoded += self._count
        if self._model.experts is not None:
            for row, experts in zip(state[_ROW].tolist(), self._model.experts, strict=True):
                self._experts[row].append(experts[0])
        window.cursor += 1
        finished = self._draw(logits, state)
        leaving = int(finished.sum())
        if leaving:
            self._leave(finished, leaving)

    def _draw(self, logits: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Draw and record the next token of each row of ``state``; return whether the row is finished."""
        row, sampling, key, drawn, _, _, last = state
        rules = self._table.rules(sampling)
        seen = None if self._seen is None else self._seen.index_select(0, row)
        tokens, log_probs = draw(logits, uniforms(key, drawn), rules, generated=drawn, seen=seen, never=self._never)
        self._tokens[row, drawn] = tokens
        self._log_probs[row, drawn] = log_probs
        if self._seen is not None:
            self._seen[row, tokens] = True
        drawn += 1
        last.copy_(tokens)
        finished = rules.finished(tokens, drawn)
        return finished if self._texts is None else finished | self._by_text(self._texts, row, drawn)

    def _by_text(self, texts: StopTexts, rows: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return whether a text has ended each row."""
        drawn = zip(rows.tolist(), self._tokens[rows].tolist(), lengths.tolist(), strict=True)
        return torch.tensor([texts.check(row, ids[:length]) for row, ids, length in drawn], device=rows.device)

    def _leave(self, finished: torch.Tensor, leaving: int) -> None:
        """Drop finished rows: the last rows move into their places, so at most one row is copied for each that leaves."""
        kept = self._count - leaving
        holes = finished[:kept].nonzero()[:, 0]
        if len(holes):
            sources = (~finished[kept:]).nonzero()[:, 0] + kept
            self._state[:, holes] = self._state[:, sources]
            self._cache.move(sources, holes)
        self._count = self._cache.window.rows = kept
        if kept:
            self._rows_changed()

    def _rows_changed(self) -> None:
        self._cache.window.low = int(self._state[_START, : self._count].min())

    def _make_room(self) -> None:
        """Shift the rows down, as far as the prompts still to be placed allow: they end at the cursor too."""
        window = self._cache.window
        coming = self._ready.length if self._ready else 0
        if self._waiting:
            coming = max(coming, len(self._requests[self._waiting[0]].token_ids))
        slots = window.cursor - max(window.cursor - window.low, coming)
        self._cache.shift(slots)
        self._state[_START, : self._count] -= slots
