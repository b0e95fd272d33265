"""The worker of an auxiliary model: an engine behind the OpenAI API, in a thread of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.config.sections.rollout import AuxiliaryModel, RolloutParallel, TransformersEngine, VllmEngine
from rlctl.planning import arithmetic
from rlctl.planning.plan import Device
from rlctl.runtime.rollout.vllm_arguments import check_vllm
from rlctl.runtime.serving.generator import Generator
from rlctl.runtime.serving.http import ApiServer
from rlctl.runtime.serving.serve import Policy, Service
from rlctl.runtime.workers.rollout import as_rollout, make_engine

STARTING_SECONDS = 60.0
"""Within which the server listens, once the engine is there."""


def auxiliary_config(config: Config, model: AuxiliaryModel, engine: str) -> Config:
    """A config in which the model is what rolls out, as engines are made from configs; it samples as the policy does."""
    rollout = replace(
        config.rollout,
        engine=VllmEngine(args=model.settings) if engine == "vllm" else TransformersEngine(),
        parallel=RolloutParallel(tensor_parallel_size=model.tensor_parallel_size, replicas=model.replicas),
        auxiliary_models=(),
    )
    shared = bool(arithmetic.auxiliaries_share(config))
    return as_rollout(config, rollout, path=model.path, max_context_tokens=model.max_context_tokens, shared=shared)


def check_auxiliary_engines(config: Config, engine: str) -> None:
    """Refuse models that the engine cannot serve, before a worker is started.

    Raises:
        RunError: vLLM does not take what it is handed, or the engine has no such setting.
        MissingDependency: there is no vLLM.
    """
    for name, model in arithmetic.served_auxiliaries(config).items():
        if engine == "vllm":
            check_vllm(auxiliary_config(config, model, engine))
        elif model.settings or model.tensor_parallel_size > 1:
            what = "takes no settings" if model.settings else "has one device"
            raise RunError(
                said(
                    "the auxiliary model {name!r} is served by the transformers engine, which {what}",
                    name=name,
                    what=what,
                ),
                hint="set its engine to vllm, or remove them",
            )


class AuxiliaryWorker:
    """Serves one model."""

    def __init__(
        self, config: Config, name: str, engine: str, device: Device, host: str, port: int, token: str
    ) -> None:
        """Load the engine and serve it.

        Args:
            config: the stage's config.
            name: of the model.
            engine: the engine that the plan chose.
            device: where it runs.
            host: the address to listen on.
            port: 0 takes a free one.
            token: that requests must have.

        Raises:
            RunError: the engine cannot run here, or cannot load the model.
        """
        model = arithmetic.auxiliary_models(config)[name]
        own = auxiliary_config(config, model, engine)
        self._sleeps = arithmetic.rollout_sleeps(own, device)
        self._engine = make_engine(own, engine, model.path, device)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="auxiliary-model", daemon=True)
        self._thread.start()
        service = Service(own, engine, device, model.path, name, token, host, port)
        self._generator, self._server = self._run(self._started(service))

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(STARTING_SECONDS)

    async def _started(self, service: Service) -> tuple[Generator, ApiServer]:
        generator = Generator(self._engine, wake=self._engine.wake if self._sleeps else None)
        server = ApiServer(Policy(service, generator, self._engine.limits), by_path=False)
        await server.start(service.host, service.port)
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
