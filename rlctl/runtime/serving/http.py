"""The routes of the OpenAI API, on aiohttp: chat completions, completions and models, whole or streamed.

Who calls, and what generates, is a ``Caller``'s business; a server finds it by the token and the path of a request.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web

from rlctl.common.messages.reasons import said, spoken
from rlctl.runtime.serving.connections import Connection, Connections
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

MAX_BODY_BYTES = 16 << 20
BODY_SECONDS = 60.0
"""Within which the body of a request has to be there."""
IGNORED = "X-Rlctl-Ignored"
"""The header of an answer with the fields of its request that had no effect."""
_NAMED = 20
"""Fields that one header names."""
_REMEMBERED = 200
"""Fields of which the log knows that they are ignored."""
CLOSING_SECONDS = 1.0
"""How long requests under way may take when a server is closed."""
_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
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

    def knows(self, model: str) -> bool:
        """Whether requests may call the model so."""
        ...

    def overrides(self, asked: Asked) -> Sequence[str]:
        """The fields of a request that are read, and have no effect."""
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

    async def discard(self, body: Any) -> None:
        """Do not train on an answer."""
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
        self._ignored: set[str] = set()
        """Fields that the log has named."""
        self._connections: Connections | None = None
        self._listening: list[asyncio.Server] = []
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
            app.router.add_post(f"{base}/discard", self._discard)
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

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Listen on sockets (``connections.bound``)."""
        await self._runner.setup()
        server = self._runner.server
        assert server is not None, "it is made by the setup"
        self._connections = Connections(server)
        self._listening = await self._connections.listen(sockets)
        self.port = sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening."""
        for each in self._listening:
            each.close()
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
        if not is_text(token):
            raise ApiError(400, "the Authorization header is not UTF-8")
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

    async def _discard(self, request: web.Request) -> web.StreamResponse:
        await self._caller(request).discard(await _body(request))
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
        number = self._number("chatcmpl")
        asked = replace(read_chat(body), number=number)
        model, headers = _model_of(asked, caller), self._headers(asked, caller)
        if asked.stream:
            chunks = Chunks(number, int(time.time()), model, asked, chat=True)
            return await _streamed(request, chunks, headers, lambda heard: caller.chat(asked, heard))
        generated = await caller.chat(asked, None)
        answer = chat_answer(number, int(time.time()), model, generated, asked)
        return web.json_response(answer, headers=headers)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        caller, body = self._caller(request), await _body(request)
        if (forward := _elsewhere(caller, body)) is not None:
            return await self._forwarded(request, forward, "completions")
        number = self._number("cmpl")
        asked = replace(read_completion(body), number=number)
        model, headers = _model_of(asked, caller), self._headers(asked, caller)
        if asked.stream:
            chunks = Chunks(number, int(time.time()), model, asked, chat=False)
            return await _streamed(request, chunks, headers, lambda heard: caller.complete(asked, heard))
        generated = await caller.complete(asked, None)
        echoed = asked.prompt if asked.echo and isinstance(asked.prompt, str) else ""
        answer = completion_answer(number, int(time.time()), model, generated, asked, echoed)
        return web.json_response(answer, headers=headers)

    def _headers(self, asked: Asked, caller: Caller) -> dict[str, str]:
        """Headers that name what of a request has no effect; the log names each field once."""
        names = [quote(name[:60], safe="[]. ") for name in (*asked.ignored, *caller.overrides(asked))][:_NAMED]
        new = [name for name in names if name not in self._ignored]
        if new and len(self._ignored) < _REMEMBERED:
            self._ignored.update(new)
            _LOG.warning(spoken("requests set {names}, which have no effect here", names=", ".join(new)))
        return {IGNORED: ", ".join(names)} if names else {}


def _elsewhere(caller: Caller, body: Any) -> Forward | None:
    return caller.elsewhere(body) if isinstance(body, dict) else None


def _model_of(asked: Asked, caller: Caller) -> str:
    if asked.model and not caller.knows(asked.model):
        raise _no_model(asked.model, caller)
    return asked.model or caller.models[0]


def _no_model(name: str, caller: Caller) -> ApiError:
    listed = ", ".join(caller.models)
    return ApiError(
        404,
        said("there is no model {name!r}; there is {listed}", name=name[:200], listed=listed),
        code="model_not_found",
        param="model",
    )


async def _body(request: web.Request) -> Any:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            content = await request.read()
    except TimeoutError:
        raise ApiError(
            408, said("the body of the request took longer than {seconds:g} s", seconds=BODY_SECONDS)
        ) from None
    try:
        text = content.decode()
        body = json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise ApiError(400, said("the request is not JSON: {error}", error=error)) from error
    if "\\u" in text and not is_text(json.dumps(body, ensure_ascii=False)):
        raise ApiError(400, "the request has half of a surrogate pair, which is no character")
    return body


def _refuse_constant(name: str) -> None:
    raise ValueError(said("{name} is not a number", name=name))


def is_text(text: str) -> bool:
    """Whether a text can be encoded: it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


async def together(several: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """The results of coroutines that run at the same time; if one fails, or this is cancelled, none goes on."""
    tasks = [asyncio.ensure_future(each) for each in several]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


async def _streamed(
    request: web.Request,
    chunks: Chunks,
    headers: Mapping[str, str],
    generate: Callable[[Heard], Awaitable[list[Generated]]],
) -> web.StreamResponse:
    """Server-sent events. An error before the first chunk is answered as one without streaming is."""
    kind = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
    response = web.StreamResponse(headers={**kind, **headers})

    async def send(several: Iterator[dict[str, Any]]) -> None:
        for chunk in several:
            if not response.prepared:
                await response.prepare(request)
            await response.write(b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n")

    async def heard(place: int, text: str) -> None:
        await send(chunks.text(place, text))

    try:
        generated = await generate(heard)
    except (asyncio.CancelledError, ConnectionError):
        raise
    except Exception as error:
        if not response.prepared:
            raise
        await response.write(b"data: " + json.dumps(_as_api_error(error, request).body()).encode() + b"\n\n")
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
    connection = request.protocol
    assert isinstance(connection, Connection), "servers listen by Connections"
    connection.begin()
    try:
        return await handler(request)
    except (asyncio.CancelledError, ConnectionError):
        raise
    except Exception as error:  # noqa: BLE001 - the client gets what happened
        answered = _as_api_error(error, request)
        return web.json_response(answered.body(), status=answered.status)
    finally:
        connection.end()


def _as_api_error(error: Exception, request: web.Request) -> ApiError:
    """Message for the client; the log has the traceback of what is not the client's fault."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, web.HTTPException):
        reason = said("{method} {path}: {reason}", method=request.method, path=request.path, reason=error.reason)
        return ApiError(error.status, reason)
    if isinstance(error, RecursionError):
        return ApiError(400, "the request is nested too deeply")
    _LOG.error(spoken("a request failed: {method} {path}", method=request.method, path=request.path), exc_info=error)
    return ApiError(500, said("{kind}: {error}", kind=type(error).__name__, error=error))
