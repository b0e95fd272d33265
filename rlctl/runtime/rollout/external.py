"""An OpenAI-compatible endpoint as a rollout engine, for runs that only explore or evaluate: its weights are its own.

Prompts go out as token ids, to ``/completions``; responses come back as token ids with log-probs, as vLLM's server gives them
(``return_token_ids``). What OpenAI's protocol has no name for is asked for by vLLM's (``top_k``, ``min_p``, ...). The log-probs
are those that the endpoint reports: of vLLM's server at its defaults, before the temperature.

Requests are under way in a thread of their own, so that polling never waits for a response longer than it was asked to.
"""

from __future__ import annotations

import asyncio
import math
import queue
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import httpx

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.rewards.service import Service, ServiceAway, ServiceError
from rlctl.runtime.rollout.interface import Finished, TokensComputed, check_requests
from rlctl.runtime.rollout.randomness import stream_keys
from rlctl.runtime.rollout.weights import TakesWeights
from rlctl.runtime.types import Request, Response, Sampling

UNKNOWN = 1 << 31
"""Of the model's vocabulary and context, where nothing says how large they are: the endpoint refuses what does not fit."""


class ExternalEngine(TakesWeights):
    """A rollout engine (``interface.RolloutEngine``) whose weights cannot be changed."""

    weight_version = 0

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key: str = "",
        timeout: float = 900.0,
        patient: bool = False,
        retries: int = 2,
        max_concurrent: int = 64,
        max_length: int | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """
        Args:
            url: base address, ``.../v1``.
            model: the name that the endpoint serves it under.
            api_key: bearer token.
            timeout: seconds of one response, and for which an endpoint that answers nobody is asked again.
            patient: whether what was submitted may take longer: whoever submitted it gives it up (``abort``).
            retries: how often a response that failed is asked for again.
            max_concurrent: responses under way at once.
            max_length: prompt and response tokens together, at most.
            arguments: further fields of every request.
        """
        self._url, self._model, self._api_key = f"{url.rstrip('/')}/completions", model, api_key
        self._timeout, self._retries, self._max_concurrent = timeout, retries, max_concurrent
        self._submitted_seconds = None if patient else timeout
        self.limits = max_length or UNKNOWN, UNKNOWN
        self._max_length, self._arguments = max_length or UNKNOWN, dict(arguments or {})
        self._submitted: dict[Future[Response], tuple[int, int]] = {}
        """What is under way, with its ticket and its place in the group."""
        self._done: queue.SimpleQueue[Future[Response]] = queue.SimpleQueue()
        """What of it is there, has failed, or was given up."""
        self._client: httpx.AsyncClient | None = None
        self._gate = asyncio.Semaphore(max_concurrent)
        self._services: dict[float | None, Service] = {}
        """By the seconds that a response may take."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="external", daemon=True)
        self._thread.start()
        self.tokens_computed = TokensComputed()

    def generate(self, requests: Sequence[Request]) -> list[list[Response]]:
        """Answer each request with its ``n`` responses, in the order of the requests.

        Raises:
            RunError: a request that cannot be answered as it asks, or an endpoint that does not answer as it should.
        """
        self._check(requests)
        futures = [
            [self._begin(request, request.first + j, self._timeout) for j in range(request.n)] for request in requests
        ]
        try:
            return [[self._found(future) for future in group] for group in futures]
        finally:
            for future in (future for group in futures for future in group):
                future.cancel()

    def submit(self, requests: Mapping[int, Request]) -> None:
        """Take requests to work on, each under a ticket of its own; returns at once.

        Raises:
            RunError: a request that cannot be answered as it asks; none was taken.
        """
        self._check(list(requests.values()))
        for ticket, request in requests.items():
            for index in range(request.first, request.first + request.n):
                future = self._begin(request, index, self._submitted_seconds)
                self._submitted[future] = ticket, index
                future.add_done_callback(self._done.put)

    def poll(self, seconds: float) -> list[Finished]:
        """What has come of what was submitted, within about ``seconds``, less where nothing is left of it.

        Raises:
            RunError: the endpoint does not answer, or not with what it should.
        """
        deadline, found = time.monotonic() + seconds, []
        while self._submitted:
            try:
                future = self._done.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if future in self._submitted:
                ticket, index = self._submitted.pop(future)
                found.append(Finished(ticket, index, self._found(future)))
        return found

    def abort(self, tickets: Collection[int]) -> None:
        """Give up what was submitted for these requests."""
        for future in [future for future, (ticket, _) in self._submitted.items() if ticket in tickets]:
            del self._submitted[future]
            future.cancel()

    def begin_weights(self, version: int) -> None:
        """There is no way to send any.

        Raises:
            RunError: always.
        """
        raise RunError(
            said("{url} serves its own weights and cannot receive new ones", url=self._url),
            hint="set rollout.engine to vllm or transformers in a run that trains",
        )

    def sleep(self) -> None:
        """It has no memory of ours."""

    def wake(self) -> None:
        """It has no memory of ours."""

    def close(self) -> None:
        """Give up what was submitted, and end the thread."""
        if not self._thread.is_alive():
            return
        self.abort({ticket for ticket, _ in self._submitted.values()})
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._leave(), self._loop).result(timeout=5.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5.0)

    async def _leave(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    def _check(self, requests: Sequence[Request]) -> None:
        check_requests(requests, max_length=self._max_length, vocab_size=UNKNOWN)
        for index, request in enumerate(requests):
            if request.inputs:
                raise RunError(
                    said("request {index} has images, but an external endpoint receives only token ids", index=index)
                )

    def _begin(self, request: Request, index: int, seconds: float | None) -> Future[Response]:
        """Ask for the response at a place of a request's group, within so many seconds each time."""
        return asyncio.run_coroutine_threadsafe(self._one(request, index, seconds), self._loop)

    def _found(self, future: Future[Response]) -> Response:
        """Wait for a response."""
        try:
            return future.result()
        except ServiceError as error:
            raise RunError(
                str(error), hint="start the server of rollout.engine.base_url, or raise rollout.timeouts"
            ) from error

    async def _one(self, request: Request, index: int, seconds: float | None) -> Response:
        """One response, asked for again where that fails."""
        service = self._service(seconds)
        body = {"model": self._model, "prompt": list(request.token_ids), **_fields(request, index), **self._arguments}
        for left in range(self._retries, -1, -1):
            try:
                answer = await service.post(self._url, body)
                break
            except ServiceAway:
                raise
            except ServiceError:
                if not left:
                    raise
        response = _response(answer, request.sampling, self._url)
        self.tokens_computed.prompt += len(request.token_ids)
        self.tokens_computed.decoded += len(response.token_ids) - 1
        return response

    def _service(self, seconds: float | None) -> Service:
        """The way to the endpoint, with so many seconds for a response: one for all that are asked for, as it is away for all."""
        if self._client is None:
            limits = httpx.Limits(max_connections=self._max_concurrent, max_keepalive_connections=self._max_concurrent)
            self._client = httpx.AsyncClient(limits=limits, timeout=None)
        if seconds not in self._services:
            self._services[seconds] = Service(self._client, self._gate, seconds, self._timeout, self._api_key)
        return self._services[seconds]


def _fields(request: Request, index: int) -> dict[str, Any]:
    sampling = request.sampling
    return {
        "n": 1,
        "max_tokens": sampling.max_tokens,
        "min_tokens": sampling.min_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "seed": int(stream_keys([request.seed], [index])) & ((1 << 63) - 1),
        "stop": list(sampling.stop),
        "stop_token_ids": [] if sampling.ignore_eos else list(sampling.stop_token_ids),
        "ignore_eos": sampling.ignore_eos,
        "logprobs": 0,
        "return_token_ids": True,
    }


def _response(answer: Mapping[str, Any], sampling: Sampling, url: str) -> Response:
    try:
        (choice,) = answer["choices"]
        token_ids, log_probs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        reason, text = choice["finish_reason"], choice.get("stop_reason")
    except (KeyError, TypeError, ValueError) as error:
        raise ServiceError(
            said(
                "{url} answered without {error}; expected one choice with token_ids, logprobs.token_logprobs and "
                "finish_reason, as vLLM's server gives them",
                url=url,
                error=error,
            )
        ) from error
    if not token_ids or len(token_ids) != len(log_probs):
        raise ServiceError(
            said(
                "{url} answered with {count} tokens and {log_probs_count} log-probs",
                url=url,
                count=len(token_ids or ()),
                log_probs_count=len(log_probs),
            )
        )
    if any(value is None or not math.isfinite(value) for value in log_probs):
        raise ServiceError(
            said(
                "{url} answered with log-probs that are not finite: {log_probs}",
                url=url,
                log_probs=str(log_probs)[:100],
            )
        )
    return Response(
        token_ids=tuple(map(int, token_ids)),
        log_probs=tuple(map(float, log_probs)),
        finish_reason="stop" if reason == "stop" else "length",
        weight_version=0,
        cut=text if isinstance(text, str) and not sampling.include_stop else "",
    )
