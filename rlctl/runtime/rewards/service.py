"""Rewards that ask a service over HTTP: many requests under way at once, each with a time limit, tried again where that helps.

A scorer turns responses into requests (``Service.post``) and answers into outcomes. Whatever goes wrong for a response is a
failure of that response. A request is tried again, with growing pauses, where the service cannot be reached or says that it
is busy (429, 5xx); a request that is over its time limit is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from rlctl.errors import RlctlError
from rlctl.runtime.rewards.interface import Call, Failure, Outcome
from rlctl.runtime.rewards.outcome import failure_of

ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 0.5
"""Before the second attempt; doubled before each further one."""
LONGEST_PAUSE_SECONDS = 30.0
"""However long a service asks to be left alone (``Retry-After``)."""
BUSY = (408, 425, 429, 500, 502, 503, 504, 529)
SHOWN_CHARACTERS = 300
"""Of an answer, in an error."""


class ServiceError(RlctlError):
    """A service did not answer, or not with what it should."""


class ServiceScorer(Protocol):
    """A reward that a service computes."""

    def groups(self, calls: Sequence[Call]) -> list[list[int]]:
        """Which calls are scored by one ``score``; one each, where nothing is compared."""
        ...

    async def score(self, calls: Sequence[Call], service: Service) -> list[Outcome]:
        """The outcomes of one group; whatever it raises is a failure of the whole group."""
        ...


@dataclass(frozen=True)
class Service:
    """The way to a service."""

    client: httpx.AsyncClient
    gate: asyncio.Semaphore
    timeout: float | None
    """Seconds of one request, its answer included; None is as long as it takes."""
    secret: str = ""
    """Sent as a bearer token, and taken out of every message."""

    async def post(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send JSON, and return the JSON object that comes back.

        Raises:
            ServiceError: none comes.
        """
        for attempt in range(1, ATTEMPTS + 1):
            pause = FIRST_PAUSE_SECONDS * 2 ** (attempt - 1)
            try:
                async with self.gate:
                    answer = await asyncio.wait_for(self._send(url, body), self.timeout)
            except TimeoutError:
                raise ServiceError(f"{url} took longer than {self.timeout:g} s to answer") from None
            except httpx.HTTPError as error:
                problem = f"{url} cannot be reached: {str(error) or type(error).__name__}"
            except httpx.InvalidURL as error:
                raise ServiceError(f"{url} is no address: {error}") from None
            else:
                if answer.status_code < 400:
                    return self._json(url, answer)
                problem = f"{url} answered {answer.status_code}: {self._shown(answer.text)}"
                if answer.status_code not in BUSY:
                    raise ServiceError(problem)
                pause = max(pause, _asked_pause(answer))
            if attempt < ATTEMPTS:
                await asyncio.sleep(min(pause, LONGEST_PAUSE_SECONDS))
        raise ServiceError(f"{problem} (tried {ATTEMPTS} times)")

    async def _send(self, url: str, body: dict[str, Any]) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.secret}"} if self.secret else {}
        return await self.client.post(url, json=body, headers=headers)

    def _json(self, url: str, answer: httpx.Response) -> dict[str, Any]:
        try:
            found = answer.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ServiceError(f"{url} answered with {self._shown(answer.text)!r}; expected a JSON object")
        return found

    def _shown(self, text: str) -> str:
        text = text.replace(self.secret, "***") if self.secret else text
        return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def _asked_pause(answer: httpx.Response) -> float:
    """Seconds that the service asks to wait; 0 where it does not say."""
    try:
        return float(answer.headers.get("retry-after", 0))
    except ValueError:
        return 0.0


def score_by_service(
    scorer: ServiceScorer, calls: Sequence[Call], *, max_concurrent: int, timeout: float, secret: str = ""
) -> list[Outcome | Failure]:
    """Score calls, in their order.

    Args:
        scorer: what asks.
        calls: what to score.
        max_concurrent: requests under way at once.
        timeout: seconds of one request.
        secret: bearer token of the service.
    """

    async def score() -> list[Outcome | Failure]:
        limits = httpx.Limits(max_connections=max_concurrent, max_keepalive_connections=max_concurrent)
        async with httpx.AsyncClient(limits=limits, timeout=None) as client:
            service = Service(client, asyncio.Semaphore(max_concurrent), timeout, secret)
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
