"""Engines to which every response is a request of its own, as to those of vLLM and SGLang: what is under way, and for whom.

A subclass says how a response is asked for, waited for and given up; ``poll`` and the rest of ``RolloutEngine`` are its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from typing import Generic, Protocol, TypeVar

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.rollout.interface import TokensComputed, check_requests
from rlctl.runtime.rollout.weights import TakesWeights
from rlctl.runtime.types import Request, Response

CLOSED = "the engine is closed"


class Row(Protocol):
    """A response under way."""

    @property
    def ticket(self) -> int | None:
        """Of its request; None for one of a ``generate`` call."""


AnyRow = TypeVar("AnyRow", bound=Row)


class ByResponse(TakesWeights, Generic[AnyRow]):
    """Takes and gives up requests, response by response."""

    def __init__(self, server: str, *, max_length: int, vocab_size: int, tokenizes: bool, weight_version: int) -> None:
        """
        Args:
            server: what computes, as people call it.
            max_length: prompt and response tokens together, at most.
            vocab_size: token ids are below it.
            tokenizes: whether it has a tokenizer, which stop strings of a response need.
            weight_version: the version that the first weights count as.
        """
        self._server_name, self._tokenizes = server, tokenizes
        self._limits = {"max_length": max_length, "vocab_size": vocab_size}
        self._rows: dict[str, AnyRow] = {}
        """What is under way, by name."""
        self._names = count()
        self._unusable = ""
        """Why nothing is answered; empty where it is."""
        self.weight_version = weight_version
        self.tokens_computed = TokensComputed()

    @property
    def limits(self) -> tuple[int, int]:
        """Prompt and response tokens together, at most, and how many token ids there are."""
        return self._limits["max_length"], self._limits["vocab_size"]

    @property
    def asleep(self) -> bool:
        """Whether any of the device's memory is given away."""
        raise NotImplementedError

    def _add(self, request: Request, index: int, ticket: int | None) -> str:
        """Ask for the response at a place of a request's group; its name among ``_rows``."""
        raise NotImplementedError

    def _answer(self, name: str) -> Response:
        """Wait for a response, which leaves ``_rows``."""
        raise NotImplementedError

    def _give_up(self, names: Iterable[str]) -> None:
        """End responses that are under way, and forget those that are there; others are passed over."""
        raise NotImplementedError

    def generate(self, requests: Sequence[Request]) -> list[list[Response]]:
        """Answer each request with its ``n`` responses, in the order of the requests.

        Raises:
            RunError: a request that cannot be answered as it asks, an engine that sleeps, is closed or holds half-loaded
                weights, weights that compute no finite numbers, or a server that does not answer as it should.
        """
        self._check_usable("generate()")
        self._check(requests)
        names = [self._add_group(request, None) for request in requests]
        try:
            return [[self._answer(name) for name in group] for group in names]
        finally:
            self._give_up(name for group in names for name in group)

    def submit(self, requests: Mapping[int, Request]) -> None:
        """Take requests to work on, each under a ticket of its own; returns at once.

        Raises:
            RunError: a request that the engine cannot answer as it asks; none was taken.
        """
        self._check_open()
        self._check(list(requests.values()))
        for ticket, request in requests.items():
            self._add_group(request, ticket)

    def abort(self, tickets: Collection[int]) -> None:
        """Give up what is under way for these requests; tickets of which nothing is under way are passed over."""
        self._give_up([name for name, row in self._rows.items() if row.ticket is not None and row.ticket in tickets])

    def _add_group(self, request: Request, ticket: int | None) -> list[str]:
        return [self._add(request, request.first + place, ticket) for place in range(request.n)]

    def _check(self, requests: Sequence[Request]) -> None:
        check_requests(requests, **self._limits)
        for index, request in enumerate(requests):
            if request.inputs:
                raise RunError(
                    said(
                        "request {index} has images, but rlctl sends {server_name} only token ids",
                        index=index,
                        server_name=self._server_name,
                    )
                )
            if request.sampling.stop and not self._tokenizes:
                raise RunError(
                    "stop strings need a tokenizer",
                    hint="set model.tokenizer, or omit rollout.sampling.stop",
                )

    def _check_usable(self, call: str) -> None:
        if self._unusable:
            raise RunError(self._unusable)
        if self.asleep:
            raise RunError(said("the engine sleeps; expected wake() before {call}", call=call))

    def _check_open(self) -> None:
        if self._unusable == CLOSED:
            raise RunError(CLOSED)
