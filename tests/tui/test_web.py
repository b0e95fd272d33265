"""The app in a browser: a real server, its page, its connection, its first frame; and who is sent away."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rlctl.common.errors import RlctlError
from rlctl.tui import web
from rlctl.tui.web import stranger
from tests.waiting import has_ended, until

aiohttp = pytest.importorskip("aiohttp", reason="aiohttp, which textual-serve needs, is not installed")
pytest.importorskip("textual_serve", reason="textual-serve is not installed")


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@pytest.fixture
def server(served: tuple[str, int]) -> str:
    """The address of `rlctl tui --web` on a config."""
    return served[0]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """The address, and the number of the server's process."""
    (tmp_path / "mine.yaml").write_text("rlctl: 1\nrun: {name: served}\n")
    port = free_port()
    words = [
        sys.executable,
        "-m",
        "rlctl",
        "tui",
        "mine.yaml",
        "--readonly",
        "--language",
        "en",
        "--web",
        "--port",
        str(port),
    ]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        told = re.search(rf"http://127\.0\.0\.1:{port}/[\w-]{{43}}(?=/ )", process.stderr.readline())
        assert told is not None
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield told[0], process.pid
    finally:
        process.terminate()
        process.communicate(timeout=60)


async def opened(client: aiohttp.ClientSession, server: str, size: str) -> aiohttp.ClientWebSocketResponse:
    """A page that shows the app."""
    connection = await client.ws_connect(f"{server}/ws?{size}", headers={"Origin": server.rpartition("/")[0]})
    seen = b""
    async with asyncio.timeout(120):
        while b"mine.yaml" not in seen:
            message = await connection.receive()
            assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT), seen
            seen += message.data if isinstance(message.data, bytes) else b""
    return connection


def apps(pid: int) -> list[psutil.Process]:
    """The processes of a server's pages."""
    return psutil.Process(pid).children(recursive=True)


def test_a_page_of_any_size_is_painted_within_bounds(served: tuple[str, int]) -> None:
    server, pid = served

    async def go() -> None:
        async with aiohttp.ClientSession() as client:
            connection = await opened(client, server, "width=99999999&height=99999999")
            (app,) = apps(pid)
            await connection.send_json(["resize", {"width": 1e9, "height": -5}])
            await asyncio.sleep(3)
            assert app.memory_info().rss < 600 << 20
            await connection.send_json(["resize", {"width": "wide"}])
            async with asyncio.timeout(60):
                while (await connection.receive()).type != aiohttp.WSMsgType.CLOSE:
                    pass
            until(lambda: has_ended(app.pid), "a page that sends something else is closed")

    asyncio.run(go())


@pytest.mark.parametrize("how", ["closed", "stuck", "server killed", "server ended"])
def test_the_app_ends_with_its_page(served: tuple[str, int], how: str) -> None:
    server, pid = served

    async def go() -> None:
        async with aiohttp.ClientSession() as client:
            connection = await opened(client, server, "width=100&height=30")
            (app,) = apps(pid)
            if how == "stuck":
                app.send_signal(signal.SIGSTOP)
            if how.startswith("server"):
                psutil.Process(pid).send_signal(signal.SIGKILL if how == "server killed" else signal.SIGTERM)
            else:
                await connection.close()
            await asyncio.to_thread(until, lambda: has_ended(app.pid), "the app has ended", seconds=30)

    asyncio.run(go())


def test_a_browser_sees_the_app_and_a_foreign_page_does_not(server: str) -> None:
    base, _, _ = server.rpartition("/")
    port = base.rpartition(":")[2]

    async def go() -> None:
        async with aiohttp.ClientSession() as client:
            async with client.get(f"{server}/") as page:
                assert page.status == 200
                text = await page.text()
                assert f"{server}/ws".replace("http", "ws", 1) in text
                asked = re.findall(r"""(?:href|src)="([^"]+)"|url\("([^"]+)"\)""", text)
                for address in filter(None, {name for pair in asked for name in pair} - {"data:,"}):
                    assert address.startswith(f"{server}/static/"), "nothing is asked of a third party"
                    async with client.get(address) as part:
                        assert part.status == 200, address
                    async with client.get(address.replace(server, base)) as part:
                        assert part.status == 403, address
            async with client.get(f"{server}/static/../../server.py") as page:
                assert page.status in (403, 404)
            for known in (
                "",
                "/",
                "/ws",
                "/static/js/textual.js",
                "/wrong/",
                "/wrong/ws",
                f"{server[len(base) : -1]}/ws",
            ):
                async with client.get(f"{base}{known}") as page:
                    assert page.status == 403, known
                    assert server not in await page.text()
            for headers in ({}, {"Origin": base}):
                with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                    await client.ws_connect(f"{base}/ws", headers=headers)
            async with client.get(f"{server}/", headers={"Host": f"evil.example:{port}"}) as page:
                assert page.status == 403
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await client.ws_connect(f"{server}/ws", headers={"Origin": "http://evil.example"})
            await (await opened(client, server, "width=100&height=30")).close()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("asked", "origin", "bound", "answered"),
    [
        ("localhost:8000", None, "127.0.0.1", True),
        ("[::1]:8000", "http://[::1]:8000", "::1", True),
        ("localhost:9000", "http://localhost:9000", "127.0.0.1", True),  # through a tunnel
        ("localhost:8000", "http://localhost:3000", "127.0.0.1", False),
        ("localhost:8000", "null", "127.0.0.1", False),
        ("rebound.example:8000", "http://rebound.example:8000", "127.0.0.1", False),
        ("node1:8000", "http://node1:8000", "0.0.0.0", True),
        ("node1:8000", "https://evil.example", "0.0.0.0", False),
    ],
)
def test_only_its_own_pages_are_answered(asked: str, origin: str | None, bound: str, answered: bool) -> None:
    assert (stranger(asked, origin, bound) == "") is answered


def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        with pytest.raises(RlctlError, match="cannot serve at"):
            web.serve(["tui"], "127.0.0.1", int(held.getsockname()[1]))


def test_without_the_server_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)
    with pytest.raises(RlctlError) as refused:
        web.serve(["tui"], "127.0.0.1", 8000)
    assert "[web]" in refused.value.hint


def test_another_address_is_warned_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from rlctl.cli import tui

    served: list[tuple[list[str], str, int]] = []
    monkeypatch.setattr(web, "serve", lambda *given: served.append(given))
    tui.tui("mine.yaml", assignments=["run.seed=2"], folder=Path("runs"), web=True, host="0.0.0.0", port=8000)
    assert served == [(["tui", "--set=run.seed=2", "--folder=runs", "--", "mine.yaml"], "0.0.0.0", 8000)]
    assert "not encrypted" in capsys.readouterr().err
    tui.tui(None, folder=Path("runs"), web=True, host="127.0.0.1", port=8000)
    assert capsys.readouterr().err == ""
