"""Tools of MCP servers: what a server offers, and one connection to it in each agent worker, which all trajectories share.

A server that a command starts ends with the worker, and with the connection; one that is lost is started again by the next call.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from rlctl.common import own_python, packages
from rlctl.common.errors import RunError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config.sections.agents import McpTool
from rlctl.sandbox import REAPER

LISTING_SECONDS = 60.0
"""Within which a server starts and lists its tools."""
CONNECTING_SECONDS = 30.0


_KNOWN: dict[str, Sequence[Any]] = {}
"""What servers offer, by their address or command: asked once in a process."""


class ToolError(Exception):
    """What a server answers if a tool fails."""


class McpServer:
    """One server. Its coroutines belong to the loop of the first call."""

    def __init__(self, config: McpTool, *, where: str) -> None:
        self._config, self._where = config, where
        self._client: Any = None
        self._ended: asyncio.Event | None = None
        self._holding: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()

    def _new_client(self) -> Any:
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client

        if self._config.url is not None:
            return Client(self._config.url)
        command, *words = own_python.bare(str(REAPER), "--", *self._config.command)
        parameters = StdioServerParameters(command=command, args=words, env=dict(self._config.env_vars))
        return Client(stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr))

    async def _hold(self, connected: asyncio.Future[Any], ended: asyncio.Event) -> None:
        """Keep a connection open: the task that opens it must be the one that closes it."""
        try:
            async with self._new_client() as client:
                connected.set_result(client)
                await ended.wait()
        except Exception as error:  # noqa: BLE001 - whoever waits for the connection gets it
            if not connected.done():
                connected.set_exception(error)
        finally:
            if self._ended is ended:
                self._client = None

    async def _connected(self) -> Any:
        async with self._connecting:
            if self._client is None:
                connected: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                self._ended = asyncio.Event()
                self._holding = asyncio.create_task(self._hold(connected, self._ended))
                try:
                    async with asyncio.timeout(CONNECTING_SECONDS):
                        self._client = await connected
                except BaseException:
                    self._holding.cancel()
                    raise
            return self._client

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool.

        Raises:
            ToolError: the tool failed.
            Exception: the server cannot be reached; the next call connects again.
        """
        from mcp import MCPError

        client = await self._connected()
        try:
            result = await client.call_tool(name, dict(arguments))
        except MCPError as error:
            if not await self._answers(client):
                await self._disconnect()
            raise ToolError(str(error)) from error
        except Exception:
            await self._disconnect()
            raise
        text = _text(result)
        if result.is_error:
            raise ToolError(text)
        return text

    async def _answers(self, client: Any) -> bool:
        try:
            async with asyncio.timeout(CONNECTING_SECONDS):
                await client.list_tools()
        except Exception:  # noqa: BLE001 - however it fails, it does not answer
            return False
        return True

    async def list_tools(self) -> list[Any]:
        """All tools of the server, as it describes them."""
        client, found, cursor = await self._connected(), [], None
        while True:
            page = await client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if not cursor:
                return found

    async def _disconnect(self) -> None:
        self._client = None
        if self._ended is not None:
            self._ended.set()

    async def close(self) -> None:
        """End the connection, and the server if a command started it."""
        holding = self._holding
        await self._disconnect()
        if holding is not None:
            with suppress(Exception, asyncio.CancelledError):
                async with asyncio.timeout(CONNECTING_SECONDS):
                    await holding


def _text(result: Any) -> str:
    """The text of an answer; other content is named by its type."""
    parts = [block.text if block.type == "text" else f"[{block.type}]" for block in result.content]
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts)


Call = Callable[..., Awaitable[str]]


def offered(config: McpTool, where: str) -> list[tuple[dict[str, Any], Call, McpServer]]:
    """The tools of a server: each with its schema, what calls it, and the server that they share.

    Raises:
        RunError: the server does not start or answer, or has no tool of a name in ``tools``.
        MissingDependency: the client of MCP is not installed.
    """
    if importlib.util.find_spec("mcp") is None:
        packages.require({"mcp": f"{where}: an MCP server"})
    if bool(config.command) == (config.url is not None):
        raise RunError(
            said(
                "{where} is an MCP server with {value}",
                where=where,
                value="both command and url" if config.command else "neither command nor url",
            ),
            hint="set command to start a server, or url to reach one that runs",
        )
    key = repr((config.command, config.url, sorted(config.env_vars.items())))
    if key not in _KNOWN:
        with ThreadPoolExecutor(1) as thread:  # this one may run an asyncio loop already
            _KNOWN[key] = thread.submit(asyncio.run, _listed(config, where)).result()
    schemas = {tool.name: _schema_of(tool) for tool in _KNOWN[key]}
    unknown = [name for name in config.tools if name not in schemas]
    if unknown:
        listed = ", ".join(schemas) or "none"
        raise RunError(
            said(
                "{where}: the MCP server has no tool {unknown!r}; it has {listed}",
                where=where,
                unknown=unknown[0],
                listed=listed,
            ),
            hint=nearest(unknown[0], schemas),
        )
    server = McpServer(config, where=where)
    return [(schemas[name], _caller(server, name), server) for name in config.tools or schemas]


def _caller(server: McpServer, name: str) -> Call:
    async def call(**arguments: Any) -> str:
        return await server.call(name, arguments)

    return call


async def _listed(config: McpTool, where: str) -> Sequence[Any]:
    server = McpServer(config, where=where)
    what = config.url or " ".join(config.command)
    try:
        async with asyncio.timeout(LISTING_SECONDS):
            return await server.list_tools()
    except TimeoutError as error:
        raise RunError(
            said(
                "{where}: the MCP server {what} has not listed its tools within {listing_seconds:g} s",
                where=where,
                what=what,
                listing_seconds=LISTING_SECONDS,
            ),
            hint="run it by hand to see whether it starts",
        ) from error
    except Exception as error:
        raise RunError(
            said(
                "{where}: the MCP server {what} does not list its tools: {error}",
                where=where,
                what=what,
                error=_reason(error),
            ),
            hint="run it by hand to see whether it starts; its standard error is in the log",
        ) from error
    finally:
        await server.close()


def _reason(error: BaseException) -> str:
    """What failed first, in groups of exceptions as well."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _schema_of(tool: Any) -> dict[str, Any]:
    parameters = {key: value for key, value in dict(tool.input_schema).items() if key != "$schema"}
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description or "", "parameters": parameters},
    }
