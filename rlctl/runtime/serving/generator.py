"""A rollout engine for an asyncio server: requests are awaited, and their texts can be heard while they are generated."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch

from rlctl.runtime.rollout.interface import Finished, RolloutEngine, ShowsTokens
from rlctl.runtime.rollout.stepping import Stepper
from rlctl.runtime.types import Request, Response

COLLECT_SECONDS = 0.05
"""How often the tokens of streamed answers are looked at."""
HeardTokens = Callable[[Sequence[int]], Awaitable[None]]


@dataclass(slots=True)
class _Waiting:
    answered: asyncio.Future[Response]
    tokens: asyncio.Queue[tuple[int, ...]] | None
    """The newest tokens so far, until they are heard; None if the request is not streamed."""


class Generator:
    """Generates with one engine, which is stepped in a thread. Its coroutines belong to the loop in which it was made."""

    def __init__(self, engine: RolloutEngine, *, wake: Callable[[], None] | None = None) -> None:
        """``wake`` is called before the engine is used; a no-op for an engine that is awake."""
        self._engine = engine
        self._stepper = Stepper(engine) if wake is None else Stepper(engine, wake=wake)
        self._loop = asyncio.get_running_loop()
        self._tickets = count(1)
        self._waiting: dict[int, _Waiting] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._collect, name="answers", daemon=True)
        self._thread.start()

    @property
    def weight_version(self) -> int:
        """Of the weights that generate."""
        return self._engine.weight_version

    async def generate(self, request: Request, heard: HeardTokens | None = None) -> Response:
        """Answer a request for one response; ``heard`` is called with its tokens so far, if the engine shows them."""
        shown = heard is not None and isinstance(self._engine, ShowsTokens)
        waiting = _Waiting(self._loop.create_future(), asyncio.Queue() if shown else None)
        ticket = next(self._tickets)
        self._waiting[ticket] = waiting
        self._stepper.submit({ticket: request})
        try:
            if waiting.tokens is None or heard is None:
                return await waiting.answered
            return await _listened(waiting.answered, waiting.tokens, heard)
        finally:
            if self._waiting.pop(ticket, None) is not None:
                self._stepper.submit({}, [ticket])

    def _collect(self) -> None:
        while not self._closed:
            try:
                finished = self._stepper.collect(COLLECT_SECONDS)
                streamed = {ticket for ticket, each in list(self._waiting.items()) if each.tokens is not None}
                if streamed and isinstance(self._engine, ShowsTokens):
                    with self._stepper.held():
                        shown = self._engine.tokens_so_far(streamed)
                    self._call(self._show, shown)
                if finished:
                    self._call(self._answer, finished)
            except Exception as error:  # noqa: BLE001 - whoever waits gets it
                self._call(self._fail, error)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    def _show(self, shown: dict[int, tuple[int, ...]]) -> None:
        for ticket, tokens in shown.items():
            waiting = self._waiting.get(ticket)
            if waiting is not None and waiting.tokens is not None:
                while not waiting.tokens.empty():  # a slow client gets more in one piece
                    waiting.tokens.get_nowait()
                waiting.tokens.put_nowait(tokens)

    def _answer(self, finished: Sequence[Finished]) -> None:
        for each in finished:
            waiting = self._waiting.pop(each.ticket, None)
            if waiting is not None and not waiting.answered.done():
                waiting.answered.set_result(each.response)

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, {}
        self._stepper.submit({}, list(waiting))  # else what broke the engine would stay in it
        for each in waiting.values():
            if not each.answered.done():
                each.answered.set_exception(error)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Put new weights into the engine; requests under way continue with them. Call it in a thread.

        Raises:
            RunError: they do not fit the model; the engine then answers nothing until a later load succeeds.
        """
        self._stepper.rest("loading")
        try:
            with self._stepper.held():
                self._engine.load_weights(weights, version=version)
        finally:
            self._stepper.resume("loading")

    def sleep(self) -> None:
        """Put the engine to sleep until the next request. Call it in a thread."""
        self._stepper.rest("asleep")
        with self._stepper.held():
            self._engine.sleep()

    def close(self) -> None:
        """End the engine."""
        self._closed = True
        self._thread.join()
        self._stepper.close()
        self._engine.close()


async def _listened(
    answered: asyncio.Future[Response], tokens: asyncio.Queue[tuple[int, ...]], heard: HeardTokens
) -> Response:
    while True:
        next_tokens = asyncio.ensure_future(tokens.get())
        try:
            both: set[asyncio.Future[Any]] = {answered, next_tokens}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if answered.done():
                return answered.result()
            await heard(next_tokens.result())
        finally:
            next_tokens.cancel()
