"""Rewards that ask a service over HTTP: many requests under way at once, each with a time limit, tried again where that helps.

A scorer turns responses into requests (``Service.post``) and answers into outcomes. Whatever goes wrong for a response is a
failure of that response. A request is tried again, with growing pauses, where the service cannot be reached, says that it is
busy (429, 5xx), or answers with what is no JSON, as proxies do meanwhile: until it has answered nobody for as long as one answer
may take. A request that is over its own time limit is not tried again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

import httpx

from rlctl.common.errors import RlctlError
from rlctl.common.messages.reasons import said
from rlctl.runtime.rewards.interface import Call, Failure, Outcome
from rlctl.runtime.rewards.outcome import failure_of

FIRST_PAUSE_SECONDS = 0.5
"""Before the second attempt; doubled before each further one."""
LONGEST_PAUSE_SECONDS = 8.0
"""Where the service asks for no longer one (``Retry-After``)."""
BUSY = (408, 425, 429, 500, 502, 503, 504, 529)
SHOWN_CHARACTERS = 300
"""Of an answer, in an error."""


class ServiceError(RlctlError):
    """A service did not answer, or not with what it should."""


class ServiceAway(ServiceError):
    """A service has answered nobody for as long as it is waited for."""


@dataclass(frozen=True, slots=True)
class _Busy:
    """No answer, and perhaps one later."""

    problem: str
    pause: float = 0.0
    """Seconds for which the service asks to be left alone."""


class ServiceScorer(Protocol):
    """A reward that a service computes."""

    def groups(self, calls: Sequence[Call]) -> list[list[int]]:
        """Which calls are scored by one ``score``; one each, where nothing is compared."""
        ...

    async def score(self, calls: Sequence[Call], service: Service) -> list[Outcome]:
        """The outcomes of one group; whatever it raises is a failure of the whole group."""
        ...


@dataclass
class Service:
    """The way to a service."""

    client: httpx.AsyncClient
    gate: asyncio.Semaphore
    timeout: float | None
    """Seconds of one request, its answer included; None is as long as it takes."""
    patience: float
    """Seconds for which it is asked again while it answers nobody."""
    secret: str = ""
    """Sent as a bearer token, and taken out of every message."""
    _away_since: float | None = field(default=None, init=False)
    """When it first failed to answer since it last did; None where it answers."""

    async def post(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send JSON, and return the JSON object that comes back.

        Raises:
            ServiceAway: it is away or busy for too long.
            ServiceError: it does not answer this request, or not with what it should.
        """
        tried = 0
        while isinstance(found := await self._ask(url, body), _Busy):
            tried, now = tried + 1, time.monotonic()
            self._away_since = now if self._away_since is None else self._away_since
            left = self._away_since + self.patience - now
            if left <= 0:
                raise ServiceAway(
                    said(
                        "{problem} (tried {tried} times; unresponsive for {seconds:g} s, the time limit)",
                        problem=found.problem,
                        tried=tried,
                        seconds=self.patience,
                    )
                )
            pause = min(FIRST_PAUSE_SECONDS * 2.0 ** min(tried - 1, 20), LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(min(max(pause, found.pause), left))
        self._away_since = None
        return found

    async def _ask(self, url: str, body: dict[str, Any]) -> dict[str, Any] | _Busy:
        """Ask once."""
        try:
            async with self.gate:
                answer = await asyncio.wait_for(self._send(url, body), self.timeout)
        except TimeoutError:
            raise ServiceError(
                said("{url} took longer than {timeout:g} s to answer", url=url, timeout=self.timeout)
            ) from None
        except httpx.HTTPError as error:
            return _Busy(said("{url} cannot be reached: {error}", url=url, error=str(error) or type(error).__name__))
        except httpx.InvalidURL as error:
            raise ServiceError(said("{url} is not a valid URL: {error}", url=url, error=error)) from None
        if answer.status_code in BUSY:
            return _Busy(
                said(
                    "{url} answered {status_code}: {text}",
                    url=url,
                    status_code=answer.status_code,
                    text=self._shown(answer.text),
                ),
                _asked_pause(answer),
            )
        if answer.status_code >= 400:
            raise ServiceError(
                said(
                    "{url} answered {status_code}: {text}",
                    url=url,
                    status_code=answer.status_code,
                    text=self._shown(answer.text),
                )
            )
        return self._json(url, answer)

    async def _send(self, url: str, body: dict[str, Any]) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.secret}"} if self.secret else {}
        return await self.client.post(url, json=body, headers=headers)

    def _json(self, url: str, answer: httpx.Response) -> dict[str, Any] | _Busy:
        problem = said("{url} answered with {text!r}; expected a JSON object", url=url, text=self._shown(answer.text))
        try:
            found = answer.json()
        except ValueError:
            return _Busy(problem)
        if not isinstance(found, dict):
            raise ServiceError(problem)
        return found

    def _shown(self, text: str) -> str:
        text = text.replace(self.secret, "***") if self.secret else text
        return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def _asked_pause(answer: httpx.Response) -> float:
    """Seconds, or until when, the service asks to be left alone; 0 where it does not say."""
    asked = answer.headers.get("retry-after", "")
    if asked.isdecimal():
        return float(asked)
    try:
        return (parsedate_to_datetime(asked) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return 0.0


def score_by_service(
    scorer: ServiceScorer, calls: Sequence[Call], *, max_concurrent: int, timeout: float, secret: str = ""
) -> list[Outcome | Failure]:
    """Score calls, in their order.

    Args:
        scorer: what asks.
        calls: what to score.
        max_concurrent: requests under way at once.
        timeout: seconds of one request, and for which a service that answers nobody is asked again.
        secret: bearer token of the service.
    """

    async def score() -> list[Outcome | Failure]:
        limits = httpx.Limits(max_connections=max_concurrent, max_keepalive_connections=max_concurrent)
        async with httpx.AsyncClient(limits=limits, timeout=None) as client:
            service = Service(client, asyncio.Semaphore(max_concurrent), timeout, timeout, secret)
            groups = scorer.groups(calls)
            found = await asyncio.gather(*(_attempt(scorer, [calls[i] for i in group], service) for group in groups))
        results: dict[int, Outcome | Failure] = {}
        for group, outcomes in zip(groups, found, strict=True):
            results |= zip(group, outcomes, strict=True)
        return [results[i] for i in range(len(calls))]

    return asyncio.run(score())


async def _attempt(scorer: ServiceScorer, calls: list[Call], service: Service) -> Sequence[Outcome | Failure]:
    try:
        return await scorer.score(calls, service)
    except Exception as error:  # noqa: BLE001 - whatever a service answers costs its own responses
        return [failure_of(error)] * len(calls)


def one_by_one(calls: Sequence[Call]) -> list[list[int]]:
    """Every call a group of its own."""
    return [[i] for i in range(len(calls))]
