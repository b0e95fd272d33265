"""An OpenAI-compatible endpoint as a rollout engine, for runs that only explore or evaluate: its weights are its own.

Prompts go out as token ids, to ``/completions``; responses come back as token ids with log-probs, as vLLM's server gives them
(``return_token_ids``). What OpenAI's protocol has no name for is asked for by vLLM's (``top_k``, ``min_p``, ...). The log-probs
are those that the endpoint reports: of vLLM's server at its defaults, before the temperature.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import httpx

from rlctl.errors import RunError
from rlctl.runtime.rewards.service import Service, ServiceError
from rlctl.runtime.rollout.interface import Finished, TokensComputed, check_requests
from rlctl.runtime.rollout.randomness import stream_keys
from rlctl.runtime.rollout.weights import TakesWeights
from rlctl.runtime.types import Request, Response, Sampling

UNKNOWN = 1 << 31
"""Of the model's vocabulary and context, where nothing says how large they are: the endpoint refuses what does not fit."""
_Ask = tuple[Request, int]
"""A request, and the place of a response in its group."""


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
            timeout: seconds of one response.
            retries: how often a response that failed is asked for again.
            max_concurrent: responses under way at once.
            max_length: prompt and response tokens together, at most.
            arguments: further fields of every request.
        """
        self._url, self._model, self._api_key = f"{url.rstrip('/')}/completions", model, api_key
        self._timeout, self._retries, self._max_concurrent = timeout, retries, max_concurrent
        self._max_length, self._arguments = max_length or UNKNOWN, dict(arguments or {})
        self._submitted: dict[tuple[int, int], Request] = {}
        self.tokens_computed = TokensComputed()

    def generate(self, requests: Sequence[Request]) -> list[list[Response]]:
        """Answer each request with its ``n`` responses, in the order of the requests.

        Raises:
            RunError: a request that cannot be answered as it asks, or an endpoint that does not answer as it should.
        """
        self._check(requests)
        found = iter(self._ask([(request, request.first + j) for request in requests for j in range(request.n)]))
        return [[next(found) for _ in range(request.n)] for request in requests]

    def submit(self, requests: Mapping[int, Request]) -> None:
        """Take requests to work on, each under a ticket of its own; returns at once.

        Raises:
            RunError: a request that cannot be answered as it asks; none was taken.
        """
        self._check(list(requests.values()))
        self._submitted |= {
            (ticket, request.first + j): request for ticket, request in requests.items() for j in range(request.n)
        }

    def poll(self, seconds: float) -> list[Finished]:
        """Answers to as much of what was submitted as may be under way at once; waits for all of them, whatever ``seconds`` says.

        Raises:
            RunError: the endpoint does not answer, or not with what it should.
        """
        keys = list(self._submitted)[: self._max_concurrent]
        found = self._ask([(self._submitted[key], key[1]) for key in keys])
        for key in keys:
            del self._submitted[key]
        return [Finished(ticket, index, response) for (ticket, index), response in zip(keys, found, strict=True)]

    def abort(self, tickets: Collection[int]) -> None:
        """Give up what was submitted for these requests."""
        self._submitted = {key: request for key, request in self._submitted.items() if key[0] not in tickets}

    def begin_weights(self, version: int) -> None:
        """There is no way to send any.

        Raises:
            RunError: always.
        """
        raise RunError(
            f"{self._url} keeps its own weights: none can be sent to it",
            hint="set rollout.engine to vllm or transformers in a run that trains",
        )

    def sleep(self) -> None:
        """It has no memory of ours."""

    def wake(self) -> None:
        """It has no memory of ours."""

    def close(self) -> None:
        """Forget what was submitted."""
        self._submitted.clear()

    def _check(self, requests: Sequence[Request]) -> None:
        check_requests(requests, max_length=self._max_length, vocab_size=UNKNOWN)
        for index, request in enumerate(requests):
            if request.inputs:
                raise RunError(f"request {index} has images; an outside endpoint is given token ids only")

    def _ask(self, asks: Sequence[_Ask]) -> list[Response]:
        async def ask() -> list[Response]:
            limits = httpx.Limits(max_connections=self._max_concurrent, max_keepalive_connections=self._max_concurrent)
            async with httpx.AsyncClient(limits=limits, timeout=None) as client:
                service = Service(client, asyncio.Semaphore(self._max_concurrent), self._timeout, self._api_key)
                return await asyncio.gather(*(self._one(service, request, index) for request, index in asks))

        try:
            return asyncio.run(ask())
        except ServiceError as error:
            raise RunError(str(error), hint="see rollout.engine.base_url and rollout.timeouts") from error

    async def _one(self, service: Service, request: Request, index: int) -> Response:
        """One response, asked for again where that fails."""
        body = {"model": self._model, "prompt": list(request.token_ids), **_fields(request, index), **self._arguments}
        for left in range(self._retries, -1, -1):
            try:
                answer = await service.post(self._url, body)
                break
            except ServiceError:
                if not left:
                    raise
        response = _response(answer, request.sampling, self._url)
        self.tokens_computed.prompt += len(request.token_ids)
        self.tokens_computed.decoded += len(response.token_ids) - 1
        return response


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
            f"{url} answered without {error}; expected one choice with token_ids, logprobs.token_logprobs and finish_reason, "
            "as vLLM's server gives them"
        ) from error
    if not token_ids or len(token_ids) != len(log_probs):
        raise ServiceError(f"{url} answered with {len(token_ids or ())} tokens and {len(log_probs)} log-probs")
    return Response(
        token_ids=tuple(map(int, token_ids)),
        log_probs=tuple(map(float, log_probs)),
        finish_reason="stop" if reason == "stop" else "length",
        weight_version=0,
        cut=text if isinstance(text, str) and not sampling.include_stop else "",
    )
