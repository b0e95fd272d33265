"""Auxiliary models as the parts of a run see them: endpoints that judges, agents and programs call by name.

    judge, agent, program ──HTTP──▶ AuxiliaryWorker (workers/auxiliary.py) on an engine of the run, or an endpoint elsewhere

Where a request goes is decided by its sender, by a text: equal texts go to the same engine, also after a resume.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from rlctl.common.errors import RunError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config.sections.rollout import AuxiliaryModel
from rlctl.runtime.rewards.service import Service
from rlctl.runtime.seeds import derive_seed

PATIENCE_SECONDS = 120.0
"""For which a call of an agent waits for a model that is unreachable or busy."""
CONCURRENT = 256
"""Calls of agents under way in one process."""


@dataclass(frozen=True, slots=True)
class Auxiliary:
    """Where a model is called."""

    name: str
    model: str
    """What requests call it."""
    urls: tuple[str, ...]
    """One for each engine, ``.../v1``."""
    api_key: str = field(default="", repr=False)
    served: bool = False
    """Whether engines of the run serve it, so that a seed decides what they answer."""

    def url(self, text: str) -> str:
        """The engine for a request."""
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
        return self.urls[number % len(self.urls)]


Auxiliaries = Mapping[str, Auxiliary]
NO_AUXILIARIES: Auxiliaries = {}


def outside(models: Mapping[str, AuxiliaryModel]) -> dict[str, Auxiliary]:
    """Those of the models, by name, that endpoints elsewhere serve."""
    return {
        name: Auxiliary(name, model.path, (model.base_url.rstrip("/"),), model.api_key or "")
        for name, model in models.items()
        if model.base_url is not None
    }


def chosen(models: Auxiliaries, name: str) -> Auxiliary:
    """The model of a name.

    Raises:
        RunError: there is none.
    """
    if name not in models:
        listed = ", ".join(models) or "none"
        raise RunError(
            said(
                "there is no auxiliary model {name!r}; rollout.auxiliary_models has {listed}", name=name, listed=listed
            ),
            hint=nearest(name, models) or "add it to rollout.auxiliary_models",
        )
    return models[name]


class Clients:
    """Connections of one process to auxiliary models; used in the loop in which the first call is made."""

    def __init__(self, models: Auxiliaries) -> None:
        self.models = models
        self._client: httpx.AsyncClient | None = None
        self._services: dict[str, Service] = {}

    @property
    def client(self) -> httpx.AsyncClient:
        """What sends requests."""
        if self._client is None:
            limits = httpx.Limits(max_connections=CONCURRENT, max_keepalive_connections=64)
            self._client = httpx.AsyncClient(timeout=None, limits=limits)
        return self._client

    def service(self, name: str) -> Service:
        """What sends requests to a model and tries again while it is unreachable or busy."""
        if name not in self._services:
            gate = asyncio.Semaphore(CONCURRENT)
            self._services[name] = Service(self.client, gate, None, PATIENCE_SECONDS, chosen(self.models, name).api_key)
        return self._services[name]

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()


@dataclass
class Called:
    """An auxiliary model as one trajectory calls it."""

    target: Auxiliary
    clients: Clients
    seed: int
    """Of the trajectory."""
    calls: int = 0

    @property
    def base_url(self) -> str:
        """For a client of the OpenAI API."""
        return self.target.url(str(self.seed))

    @property
    def api_key(self) -> str:
        """For a client of the OpenAI API."""
        return self.target.api_key

    @property
    def model(self) -> str:
        """What requests call it."""
        return self.target.model

    def seeded(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A request to this model, with a seed if engines of the run serve it and it has none."""
        self.calls += 1
        own = {"seed": derive_seed(self.seed, "auxiliary", self.target.name, self.calls)} if self.target.served else {}
        return {**own, **body, "model": self.model}

    async def chat(self, messages: Sequence[Mapping[str, Any]], **settings: Any) -> dict[str, Any]:
        """The model's answer to a conversation, as a message; ``settings`` are further fields of the request.

        Raises:
            ServiceError: it does not answer.
        """
        body = self.seeded({"messages": [dict(message) for message in messages], **settings})
        answer = await self.clients.service(self.target.name).post(f"{self.base_url}/chat/completions", body)
        message: dict[str, Any] = answer["choices"][0]["message"]
        return message
