"""Connections of clients: where a server takes them, how many, and how long one may keep a place without asking anything.

aiohttp waits for as long as a client likes until the head of a request is complete, and each connection is an open file of the
process. So a head has a time limit, and if there are as many connections as there may be, the one that has been without a request
for longest makes room.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Sequence

from aiohttp import web

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said

HEAD_SECONDS = 15.0
"""For the head of a request, from its first byte, or from the connection's start."""
REST_SECONDS = 75.0
"""Between two requests; clients and proxies give up a connection that rests before that."""
LINGERING_SECONDS = 2.0
"""In which the rest of a request is read that is answered already, so that its client sees the answer."""
_FILES = 4096
"""Files of a process that has no limit."""
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def bound(host: str, port: int) -> list[socket.socket]:
    """Sockets that hold an address; a client is refused until a server listens on them.

    Args:
        host: a name or address; a name may mean several.
        port: 0 takes a free one.

    Raises:
        RunError: the address cannot be used.
    """
    sockets: list[socket.socket] = []
    try:
        known = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(known):
            taken = sockets[0].getsockname()[1] if sockets else port
            sockets.append(_held(family, (address[0], taken, *address[2:])))
    except OSError as error:
        for each in sockets:
            each.close()
        raise RunError(
            said("cannot listen on {host}:{port}: {error}", host=host, port=port, error=error.strerror or error),
            hint="choose another --host or --port",
        ) from error
    return sockets


def _held(family: int, address: tuple[object, ...]) -> socket.socket:
    """A socket at an address. It may reuse one that only a closed connection holds, but lets no other server bind it."""
    for reuse in (False, True):
        held = socket.socket(family, socket.SOCK_STREAM)
        try:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
            if family == socket.AF_INET6:
                held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            held.bind(address)
            return held
        except OSError:
            held.close()
            if reuse:
                raise
    raise AssertionError("the last bind returns or raises")


class Connections:
    """Makes the connections of a server."""

    def __init__(self, server: web.Server, most: int | None = None) -> None:
        """``most`` is how many there may be; by default half of the process's files."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.server = server
        self.most = most or (_FILES if files == resource.RLIM_INFINITY else files) // 2
        self.open: set[Connection] = set()
        self.waiting: dict[Connection, None] = {}
        """Those without a request under way, in the order in which they were last of use."""

    def __call__(self) -> Connection:
        return Connection(self)

    async def listen(self, sockets: Sequence[socket.socket]) -> list[asyncio.Server]:
        """Take connections."""
        loop = asyncio.get_running_loop()
        return [await loop.create_server(self, sock=each) for each in sockets]

    def take(self, connection: Connection) -> bool:
        """Whether there is a place for a connection, which then has it."""
        if len(self.open) >= self.most:
            oldest = next(iter(self.waiting), None)
            if oldest is None:
                return False
            self.leave(oldest)
            oldest.force_close()
        self.open.add(connection)
        return True

    def leave(self, connection: Connection) -> None:
        """A connection has no place any more."""
        self.open.discard(connection)
        self.waiting.pop(connection, None)


class Connection(web.RequestHandler):
    """One connection, closed if its client takes too long to ask something."""

    def __init__(self, connections: Connections) -> None:
        super().__init__(
            connections.server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]
            keepalive_timeout=REST_SECONDS,
            lingering_time=LINGERING_SECONDS,
        )
        self._connections_of = connections
        self._limit: asyncio.TimerHandle | None = None
        self._rests = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not self._connections_of.take(self):
            assert isinstance(transport, asyncio.Transport)
            transport.write(_FULL)
            transport.close()
            self.close()
            return
        super().connection_made(transport)
        self._wait(HEAD_SECONDS)

    def data_received(self, data: bytes) -> None:
        if self._rests:
            self._rests = False
            self._wait(HEAD_SECONDS)
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_waiting()
        self._connections_of.leave(self)
        super().connection_lost(exc)

    def begin(self) -> None:
        """The head of a request is there."""
        self._stop_waiting()

    def end(self) -> None:
        """The request is answered."""
        self._rests = True
        self._wait(REST_SECONDS)

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        if self in self._connections_of.open:
            self._connections_of.waiting[self] = None
            self._limit = asyncio.get_running_loop().call_later(seconds, self.force_close)

    def _stop_waiting(self) -> None:
        self._connections_of.waiting.pop(self, None)
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
