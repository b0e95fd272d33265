"""The worker of an auxiliary model: an engine behind the OpenAI API, in a thread of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from rlctl.runtime.serving.connections import bound
from rlctl.runtime.serving.generator import Generator
from rlctl.runtime.serving.http import ApiServer
from rlctl.runtime.serving.serve import Policy, Service
from rlctl.runtime.workers.rollout import make_engine

STARTING_SECONDS = 60.0
"""Within which the server listens, once the engine is there."""


class AuxiliaryWorker:
    """Serves one model."""

    def __init__(self, service: Service) -> None:
        """Load the engine and serve it.

        Raises:
            RunError: the engine cannot run here, or cannot load the model.
        """
        self._sleeps = service.engine.sleeps
        self._engine = make_engine(service.engine)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="auxiliary-model", daemon=True)
        self._thread.start()
        self._generator, self._server = self._run(self._started(service))

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(STARTING_SECONDS)

    async def _started(self, service: Service) -> tuple[Generator, ApiServer]:
        generator = Generator(self._engine, wake=self._engine.wake if self._sleeps else None)
        server = ApiServer(Policy(service, generator, self._engine.limits), by_path=False)
        await server.start(bound(service.host, service.port))
        return generator, server

    def port(self) -> int:
        """Where the model is served."""
        port: int = self._server.port
        return port

    def beat(self) -> None:
        """Be there."""

    def sleep(self) -> None:
        """Give the device's memory to training, until the next request."""
        if self._sleeps:
            self._generator.sleep()

    def close(self) -> None:
        """Stop serving, and end the engine."""
        self._run(self._server.close())
        self._generator.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
