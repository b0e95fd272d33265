"""The routes of the OpenAI API, on aiohttp: chat completions, completions and models, whole or streamed.

Who calls, and what generates, is a ``Caller``'s business; a server finds it by the token and the path of a request.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Protocol

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web

from rlctl.common.messages.reasons import said, spoken
from rlctl.runtime.serving.protocol import (
    ApiError,
    Asked,
    Chunks,
    Generated,
    chat_answer,
    completion_answer,
    model_card,
    model_list,
    read_chat,
    read_completion,
)

MAX_BODY_BYTES = 64 << 20
CLOSING_SECONDS = 1.0
"""How long requests under way may take when a server is closed."""
_LOG = logging.getLogger(__name__)
Heard = Callable[[int, str], Awaitable[None]]
"""Called with the place of a generation and its text so far while it is generated."""


@dataclass(frozen=True, slots=True)
class Forward:
    """A request that another endpoint answers."""

    base_url: str
    api_key: str
    body: Mapping[str, Any]


class Caller(Protocol):
    """Whoever sent a request, with what answers it."""

    @property
    def models(self) -> Sequence[str]:
        """Names of models; the first answers requests."""
        ...

    def elsewhere(self, body: Mapping[str, Any]) -> Forward | None:
        """Where a request goes that this server does not answer itself; None if it does."""
        ...

    async def chat(self, asked: Asked, heard: Heard | None) -> list[Generated]:
        """Answer a chat; ``heard`` may be called on the way."""
        ...

    async def complete(self, asked: Asked, heard: Heard | None) -> list[Generated]:
        """Answer a completion."""
        ...

    async def reward(self, body: Any) -> None:
        """Take a reward."""
        ...

    async def feedback(self, body: Any) -> dict[str, Any]:
        """Take feedback on answers."""
        ...

    async def commit(self) -> dict[str, Any]:
        """Hand over what has feedback."""
        ...

    async def metrics(self) -> dict[str, float]:
        """What was collected."""
        ...


class Callers(Protocol):
    """Finds callers."""

    def find(self, path_id: str, token: str) -> Caller:
        """The caller of a request.

        Raises:
            ApiError: the token is not one of this server.
        """
        ...


class ApiServer:
    """Serves the API for the callers that it finds. Starts and ends in an asyncio loop."""

    def __init__(self, callers: Callers, *, by_path: bool, collects: bool = False) -> None:
        """
        Args:
            callers: who may send requests.
            by_path: every caller has a path of its own, ``/t/ID/v1``; otherwise all use ``/v1``.
            collects: take feedback on answers.
        """
        self._callers = callers
        self._numbers, self._started = count(1), secrets.token_hex(4)
        self._created = int(time.time())
        app = web.Application(middlewares=[_errors], client_max_size=MAX_BODY_BYTES)
        base = "/t/{id}/v1" if by_path else "/v1"
        app.router.add_post(f"{base}/chat/completions", self._chat)
        app.router.add_post(f"{base}/completions", self._complete)
        app.router.add_get(f"{base}/models", self._models)
        app.router.add_get(f"{base}/models/{{model:.+}}", self._model)
        if by_path:
            app.router.add_post(f"{base}/reward", self._reward)
        for root in ("", "/v1") if collects else ():
            app.router.add_post(f"{root}/feedback", self._feedback)
            app.router.add_post(f"{root}/commit", self._commit)
            app.router.add_get(f"{root}/metrics", self._metrics)
        if collects:
            app.router.add_get("/health", self._health)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=CLOSING_SECONDS, handle_signals=False
        )
        self.port = 0
        self._client: ClientSession | None = None
        """Of requests that are passed on."""

    async def start(self, host: str, port: int = 0) -> None:
        """Listen; port 0 takes a free one.

        Raises:
            OSError: the address cannot be used.
        """
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()
        if self._client is not None:
            await self._client.close()

    async def _forwarded(self, request: web.Request, forward: Forward, path: str) -> web.StreamResponse:
        """Pass a request on, and its answer back as it comes."""
        if self._client is None:
            self._client = ClientSession(timeout=ClientTimeout(total=None), connector=TCPConnector(limit=0))
        headers = {"Authorization": f"Bearer {forward.api_key}"} if forward.api_key else {}
        try:
            async with self._client.post(
                f"{forward.base_url.rstrip('/')}/{path}", json=forward.body, headers=headers
            ) as answer:
                response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
                await response.prepare(request)
                async for part in answer.content.iter_any():
                    await response.write(part)
                return response
        except ClientError as error:
            raise ApiError(502, said("{url} cannot be reached: {error}", url=forward.base_url, error=error)) from error

    def _caller(self, request: web.Request) -> Caller:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        return self._callers.find(request.match_info.get("id", ""), token.strip() if scheme.lower() == "bearer" else "")

    async def _models(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(model_list(self._caller(request).models, self._created))

    async def _model(self, request: web.Request) -> web.StreamResponse:
        caller, name = self._caller(request), request.match_info["model"]
        if name not in caller.models:
            raise _no_model(name, caller)
        return web.json_response(model_card(name, self._created))

    async def _reward(self, request: web.Request) -> web.StreamResponse:
        await self._caller(request).reward(await _body(request))
        return web.json_response({"ok": True})

    def _number(self, kind: str) -> str:
        """Of an answer; no other server gives the same."""
        return f"{kind}-{self._started}-{next(self._numbers)}"

    async def _feedback(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(await self._caller(request).feedback(await _body(request)))

    async def _commit(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(await self._caller(request).commit())

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(await self._caller(request).metrics())

    async def _health(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"status": "ok"})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        caller, body = self._caller(request), await _body(request)
        if (forward := _elsewhere(caller, body)) is not None:
            return await self._forwarded(request, forward, "chat/completions")
        asked = read_chat(body)
        number = self._number("chatcmpl")
        asked = replace(asked, number=number)
        chunks = Chunks(number, int(time.time()), _model_of(asked, caller), asked, chat=True)
        if asked.stream:
            return await _streamed(request, chunks, lambda heard: caller.chat(asked, heard))
        generated = await caller.chat(asked, None)
        return web.json_response(chat_answer(number, int(time.time()), _model_of(asked, caller), generated, asked))

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        caller, body = self._caller(request), await _body(request)
        if (forward := _elsewhere(caller, body)) is not None:
            return await self._forwarded(request, forward, "completions")
        asked = read_completion(body)
        number, model = self._number("cmpl"), _model_of(asked, caller)
        asked = replace(asked, number=number)
        if asked.stream:
            chunks = Chunks(number, int(time.time()), model, asked, chat=False)
            return await _streamed(request, chunks, lambda heard: caller.complete(asked, heard))
        generated = await caller.complete(asked, None)
        echoed = asked.prompt if asked.echo and isinstance(asked.prompt, str) else ""
        return web.json_response(completion_answer(number, int(time.time()), model, generated, asked, echoed))


def _elsewhere(caller: Caller, body: Any) -> Forward | None:
    return caller.elsewhere(body) if isinstance(body, dict) else None


def _model_of(asked: Asked, caller: Caller) -> str:
    return asked.model or caller.models[0]


def _no_model(name: str, caller: Caller) -> ApiError:
    listed = ", ".join(caller.models)
    return ApiError(
        404,
        said("there is no model {name!r}; there is {listed}", name=name, listed=listed),
        code="model_not_found",
        param="model",
    )


async def _body(request: web.Request) -> Any:
    try:
        return await request.json(loads=json.loads)
    except ValueError as error:
        raise ApiError(400, said("the request is not JSON: {error}", error=error)) from error


async def _streamed(
    request: web.Request, chunks: Chunks, generate: Callable[[Heard], Awaitable[list[Generated]]]
) -> web.StreamResponse:
    """Server-sent events. An error before the first chunk is answered as one without streaming is."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})

    async def send(several: Iterator[dict[str, Any]]) -> None:
        for chunk in several:
            if not response.prepared:
                await response.prepare(request)
            await response.write(b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n")

    async def heard(place: int, text: str) -> None:
        await send(chunks.text(place, text))

    try:
        generated = await generate(heard)
    except ApiError as error:
        if not response.prepared:
            raise
        await response.write(b"data: " + json.dumps(error.body()).encode() + b"\n\n")
        return response
    for place, each in enumerate(generated):
        await send(chunks.finished(place, each))
    await send(chunks.usage(generated))
    await response.write(b"data: [DONE]\n\n")
    return response


@web.middleware
async def _errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except ApiError as error:
        return web.json_response(error.body(), status=error.status)
    except web.HTTPException as error:
        shown = ApiError(
            error.status,
            said("{method} {path}: {reason}", method=request.method, path=request.path, reason=error.reason),
        )
        return web.json_response(shown.body(), status=error.status)
    except (asyncio.CancelledError, ConnectionError):
        raise
    except Exception as error:  # noqa: BLE001 - the client gets what happened, and the log has the traceback
        _LOG.exception(spoken("a request failed: {method} {path}", method=request.method, path=request.path))
        return web.json_response(
            ApiError(500, said("{kind}: {error}", kind=type(error).__name__, error=error)).body(), status=500
        )
