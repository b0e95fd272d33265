"""``rlctl tui --web``: the app in a browser, one process a page, by textual-serve.

Whoever opens the page edits and launches as the user who started it. So it is bound to this machine unless told otherwise, and
takes a connection from its own page only: any page that a browser shows could open one otherwise.
"""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rlctl import packages
from rlctl.errors import RlctlError
from rlctl.tui.language import say

LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")
PAGE = Path(__file__).with_name("page")
"""The page is rlctl's own: textual-serve's asks a third party for fonts, which it has itself."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    return host in LOCAL_NAMES


def serve(words: Sequence[str], host: str, port: int) -> None:
    """Serve ``rlctl WORDS`` until Ctrl-C.

    Raises:
        RlctlError: textual-serve is missing, or the port is taken.
    """
    try:
        from aiohttp import web
        from aiohttp_jinja2 import get_env
        from textual_serve.server import Server
    except ImportError as error:
        hint = packages.install("web")
        raise RlctlError("rlctl tui --web needs textual-serve, which is not installed", hint=hint) from error

    class OwnPages(Server):
        """Answers its own pages, under whatever name and port they were reached, as through an SSH tunnel."""

        def initialize_logging(self) -> None:
            logging.basicConfig(level=logging.WARNING)

        async def on_startup(self, app: web.Application) -> None:
            words = {"opening": say("opening ..."), "ended": say("The app has ended."), "again": say("Start again")}
            get_env(app).globals["words"] = words
            print(f"serving rlctl at {address(host, port)}; Ctrl-C ends it", file=sys.stderr, flush=True)

        async def handle_index(self, request: web.Request) -> Any:
            self._refuse_strangers(request)
            self.public_url = f"{request.scheme}://{request.host}"
            return await super().handle_index(request)

        async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
            self._refuse_strangers(request)
            return await super().handle_websocket(request)

        def _refuse_strangers(self, request: web.Request) -> None:
            why = stranger(request.host, request.headers.get("Origin"), host)
            if why:
                raise web.HTTPForbidden(text=why)

    try:
        command = shlex.join([sys.executable, "-m", "rlctl", *words])
        OwnPages(command, host=host, port=port, title="rlctl", templates_path=PAGE).serve()
    except OSError as error:
        hint = "choose another with --port"
        raise RlctlError(f"cannot serve at {host}:{port}: {error.strerror or error}", hint=hint) from error


def address(host: str, port: int) -> str:
    """Where a browser finds it."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def stranger(asked: str, origin: str | None, bound: str) -> str:
    """Why a request is not answered; empty where it is.

    Args:
        asked: the host that the browser believes to talk to. One that is not this machine's, on a server that is bound to this
            machine, is a name that somebody made point here.
        origin: the page that asks, where it is one.
        bound: the address that is served.
    """
    if is_loopback(bound) and urlsplit(f"//{asked}").hostname not in LOCAL_NAMES:
        return f"this server is {bound}, not {asked}"
    if origin is not None and urlsplit(origin).netloc != asked:
        return f"the page {origin} is not this server's"
    return ""
