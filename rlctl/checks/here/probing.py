"""Probes that run side by side, each with a time limit, and a question to a server over HTTP."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlsplit

from rlctl.checks.problem import Problem, problem
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.documents.paths import KeyPath

LIMIT = 8.0
"""Seconds that a probe gets; the probes of a check run side by side."""
PATIENCE = 4.0
"""Seconds that a server gets for an answer."""
MOST_READ = 4 << 20
"""Bytes of an answer that are read."""


@record
class Probe:
    """One question about this machine or a service."""

    subject: str
    """What is asked, as ``ray.example:6379``."""
    key: KeyPath
    """The key of the config that wants it."""
    ask: Callable[[], Iterable[Problem]]


def answered(probes: Iterable[Probe], limit: float = LIMIT) -> Iterator[Problem]:
    """What the probes find, in their order; one that does not end in ``limit`` seconds is left running and reported."""
    started = []
    for probe in probes:
        result: Future[list[Problem]] = Future()
        threading.Thread(target=_ask, args=(probe, result), daemon=True).start()
        started.append((probe, result))
    deadline = time.monotonic() + limit
    for probe, result in started:
        try:
            yield from result.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            yield problem("here-late", probe.key, subject=probe.subject, seconds=round(limit))


def _ask(probe: Probe, result: Future[list[Problem]]) -> None:
    try:
        result.set_result(list(probe.ask()))
    except OSError as error:  # a file system, a driver or a service that does not answer as it should
        result.set_result([problem("here-late_failed", probe.key, subject=probe.subject, reason=why(error))])
    except BaseException as error:  # noqa: BLE001 - a defect, which the check raises
        result.set_exception(error)


@record
class Answer:
    """What a server said, or why it said nothing."""

    status: int
    """The HTTP status; 0 without an answer."""
    body: bytes = b""
    reason: str = ""
    """Why there is no answer."""

    @property
    def refuses(self) -> bool:
        """Whether it wants other credentials."""
        return self.status in (401, 403)

    def data(self) -> Any:
        """Its JSON; None if it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, so that a key goes to no other host."""

    def redirect_request(self, *arguments: Any, **options: Any) -> None:
        return None


def asked(
    url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> Answer:
    """Ask a server once."""
    try:
        request = urllib.request.Request(url, data=body, headers={**(headers or {})}, method=method)
        with urllib.request.build_opener(_Stay).open(request, timeout=PATIENCE) as reply:
            return Answer(reply.status, reply.read(MOST_READ))
    except urllib.error.HTTPError as error:
        return Answer(error.code)
    except (OSError, ValueError, urllib.error.URLError) as error:
        cause = getattr(error, "reason", error)
        return Answer(0, reason=why(cause) if isinstance(cause, OSError) else said("the address cannot be read"))
    except http.client.HTTPException as error:
        return Answer(0, reason=said("what answers there is not an HTTP server ({error})", error=type(error).__name__))


def bearer(key: str | None) -> Mapping[str, str]:
    """The header that carries a key; none without one."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def why(error: BaseException) -> str:
    """The reason of a failure of the system, without the address that it was about."""
    if isinstance(error, TimeoutError):
        return said("it does not answer within {seconds} s", seconds=round(PATIENCE))
    if isinstance(error, socket.gaierror):
        return said("its name is not known here")
    if isinstance(error, ConnectionRefusedError):
        return said("nothing listens there")
    return getattr(error, "strerror", None) or type(error).__name__


def place_of(url: str) -> str:
    """The host and port of an address, without user, password, path and query."""
    parts = urlsplit(url if "://" in url else f"//{url}")
    try:
        port = parts.port
    except ValueError:
        port = None
    return f"{parts.hostname or '?'}:{port or {'https': 443, 'http': 80}.get(parts.scheme, 0)}"


def connects(place: str) -> str:
    """Why no connection to ``host:port`` can be made; empty if it can."""
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except (OSError, ValueError, OverflowError) as error:
        return why(error)
    return ""
