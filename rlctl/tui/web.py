"""``rlctl tui --web``: the app in a browser, one process a page, by textual-serve.

A browser that opens the page edits and launches as the user who started it. So the server is bound to this machine by default;
its address holds a token, because every user of the machine can connect; and it takes connections from its own page only, because
any page that the browser shows could open one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rlctl.common import own_python, packages
from rlctl.common.errors import RlctlError
from rlctl.common.messages.reasons import said
from rlctl.tui.language import say

LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")
PAGE = Path(__file__).with_name("page")
"""The page is rlctl's own: textual-serve's asks a third party for fonts, which it has itself."""

PRIVATE = {"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
"""Headers that keep the address, and its token, with the browser."""


WIDEST, TALLEST = 640, 240
"""Cells of a page: a screen of 3,840 pixels in a small font. The app paints each cell."""
QUIT_SECONDS = 7.0
"""Within which an app whose page is closed ends; then it is killed."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    return host in LOCAL_NAMES


def serve(words: Sequence[str], host: str, port: int) -> None:
    """Serve ``rlctl WORDS`` until Ctrl-C.

    Raises:
        RlctlError: textual-serve is missing, or the port is taken.
    """
    try:
        import aiohttp_jinja2
        import jinja2
        from aiohttp import web
        from textual_serve.app_service import AppService
        from textual_serve.server import Server, to_int
    except ImportError as error:
        hint = packages.install("web")
        raise RlctlError("rlctl tui --web needs textual-serve, which is not installed", hint=hint) from error

    class Page(AppService):
        """The process of one page: of a size that can be painted, and gone with its page."""

        async def _open_app_process(self, width: int = 80, height: int = 24) -> asyncio.subprocess.Process:
            environment = self._build_environment(*_clamped(width, height))
            environment["TEXTUAL_DRIVER"] = "rlctl.tui.web_driver:PageDriver"
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
            )
            self._process, self._stdin = process, process.stdin
            return process

        async def set_terminal_size(self, width: Any, height: Any) -> None:
            await super().set_terminal_size(*_clamped(width, height))

        async def stop(self) -> None:
            if self._task is None or self._process is None:
                return
            try:
                async with asyncio.timeout(QUIT_SECONDS):
                    await super().stop()
            finally:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                self._task = None

    class OwnPages(Server):
        """Serves its pages under a token, to its own pages only, under whatever name and port they were reached."""

        def initialize_logging(self) -> None:
            logging.basicConfig(level=logging.WARNING)

        async def _make_app(self) -> web.Application:
            app = web.Application(middlewares=[guard])
            environment = aiohttp_jinja2.setup(app, loader=jinja2.FileSystemLoader(self.templates_path))
            environment.globals["words"] = {
                "opening": say("opening ..."),
                "ended": say("The app has ended."),
                "again": say("Start again"),
            }
            app.add_routes(
                [
                    web.get("/{token}", self.handle_index),
                    web.get("/{token}/", self.handle_index),
                    web.get("/{token}/ws", self.handle_websocket),
                    web.get("/{token}/download/{key}", self.handle_download),
                    web.get("/{token}/static/{name:.+}", self.handle_static),
                ]
            )
            app.on_startup.append(self.on_startup)
            app.on_shutdown.append(self.on_shutdown)
            return app

        async def on_startup(self, app: web.Application) -> None:
            told = f"serving rlctl at {address(host, port)}/{token}/ (Ctrl-C ends it)"  # after "/;" the link would be wrong
            print(told, file=sys.stderr, flush=True)

        async def on_shutdown(self, app: web.Application) -> None:
            await asyncio.gather(*(page.stop() for page in pages), return_exceptions=True)

        async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
            websocket = web.WebSocketResponse(heartbeat=15)
            await websocket.prepare(request)

            async def close() -> None:
                await websocket.close()

            page = Page(
                self.command,
                write_bytes=websocket.send_bytes,
                write_str=websocket.send_str,
                close=close,
                download_manager=self.download_manager,
            )
            query = request.query
            await page.start(to_int(query.get("width", "80"), 80), to_int(query.get("height", "24"), 24))
            pages.add(page)
            try:
                await self._process_messages(websocket, page)
            except (ValueError, TypeError, LookupError, AttributeError, AssertionError):
                await websocket.close(code=1003, message=b"not a message of the page")
            finally:
                pages.discard(page)
                await page.stop()
            return websocket

        async def handle_index(self, request: web.Request) -> web.Response:
            secure = "s" if request.scheme == "https" else ""
            context = {
                "font_size": to_int(request.query.get("fontsize", "16"), 16),
                "app_websocket_url": f"ws{secure}://{request.host}/{token}/ws",
                "config": {"static": {"url": f"{request.scheme}://{request.host}/{token}/static/"}},
                "application": {"name": self.title},
            }
            page = aiohttp_jinja2.render_template("app_index.html", request, context)
            page.headers.update(PRIVATE)
            return page

        async def handle_static(self, request: web.Request) -> web.FileResponse:
            path = (self.statics_path / request.match_info["name"]).resolve()
            if not path.is_relative_to(self.statics_path.resolve()) or not path.is_file():
                raise web.HTTPNotFound
            return web.FileResponse(path)

    @web.middleware
    async def guard(request: web.Request, handler: Any) -> web.StreamResponse:
        if not hmac.compare_digest(request.match_info.get("token", "").encode(), token.encode()):
            raise web.HTTPForbidden(text="open the address that rlctl printed: it holds a token")
        if why := stranger(request.host, request.headers.get("Origin"), host):
            raise web.HTTPForbidden(text=why)
        answer: web.StreamResponse = await handler(request)
        return answer

    token, pages = secrets.token_urlsafe(32), set[Page]()
    command = own_python.module("rlctl", *words)
    try:
        OwnPages("rlctl", host=host, port=port, title="rlctl", templates_path=PAGE).serve()
    except OSError as error:
        hint = "choose another with --port"
        raise RlctlError(
            said("cannot serve at {host}:{port}: {reason}", host=host, port=port, reason=error.strerror or error),
            hint=hint,
        ) from error


def _clamped(width: Any, height: Any) -> tuple[int, int]:
    """The size of a page that asks for any."""
    return max(1, min(int(width), WIDEST)), max(1, min(int(height), TALLEST))


def address(host: str, port: int) -> str:
    """Where a browser finds it."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def stranger(asked: str, origin: str | None, bound: str) -> str:
    """Why a request is not answered; empty where it is.

    Args:
        asked: the host that the browser believes to talk to. One that is not this machine's, on a server that is bound to this
            machine, is a name that somebody made point here.
        origin: the page that asks; None if a program asks that is no browser. Browsers send it with every WebSocket and let no
            page change it, so it stops foreign pages. A program can send any, so requiring it would stop none: the token decides.
        bound: the address that is served.
    """
    if is_loopback(bound) and urlsplit(f"//{asked}").hostname not in LOCAL_NAMES:
        return f"this server is {bound}, not {asked}"
    if origin is not None and urlsplit(origin).netloc != asked:
        return f"the page {origin} is not this server's"
    return ""
