"""The rollout worker: one engine, the weights it holds, and what it has computed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.config.sections.model import Model
from rlctl.config.sections.rollout import EngineMemory, Rollout
from rlctl.config.sections.rollout import ExternalEngine as External
from rlctl.planning import arithmetic, rollout_schedule
from rlctl.planning.plan import Device
from rlctl.runtime.data.tokenizer import load_tokenizer
from rlctl.runtime.models.config import changed_config, import_modules
from rlctl.runtime.processes.environment import ENGINE_GPUS
from rlctl.runtime.rollout.external import ExternalEngine
from rlctl.runtime.rollout.interface import Finished, RolloutEngine
from rlctl.runtime.rollout.sglang import SglangEngine, SglangServer
from rlctl.runtime.rollout.sglang_arguments import server_arguments
from rlctl.runtime.rollout.stepping import Stepper
from rlctl.runtime.rollout.texts import with_texts
from rlctl.runtime.rollout.transformers import TransformersEngine
from rlctl.runtime.rollout.vllm import VllmEngine
from rlctl.runtime.rollout.vllm_arguments import engine_arguments, engine_environment
from rlctl.runtime.serialization.sequences import ResponseGroups
from rlctl.runtime.sync.device import NcclRendezvous
from rlctl.runtime.sync.sender import Message
from rlctl.runtime.sync.transport import Transport
from rlctl.runtime.types import Request, Response

DEFAULT_CONCURRENT = 64
"""Responses asked of an outside endpoint at once where the config says nothing."""
DEFAULT_SECONDS = 900.0
"""Within which an outside endpoint answers where the config says nothing."""
DEFAULT_ROWS = 256
"""Responses decoded at once where the config says nothing."""


class RolloutWorker:
    """Hosts a rollout engine."""

    def __init__(self, config: Config, engine: str, model_path: str, device: Device) -> None:
        """Load the engine.

        Args:
            config: the stage's config.
            engine: the engine that the plan chose.
            model_path: folder or hub name of the first weights.
            device: where it runs.

        Raises:
            RunError: the engine cannot run here, or cannot load the model.
        """
        self._config = config
        self._engine = make_engine(config, engine, model_path, device)
        self._tokenizer: Any = None
        """Loaded when it is first needed."""
        self._coming: tuple[int, Transport] | None = None
        """The version of the weights that are being loaded, and where they come from."""
        self._met: NcclRendezvous | None = None
        self._sleeps = arithmetic.rollout_sleeps(config, device)
        self._stepper = Stepper(self._engine, wake=self._wake)
        self._session: int | None = None
        """Whose requests are under way."""

    def generate(self, requests: Sequence[Request]) -> Sequence[Sequence[Response]]:
        """Answer requests, in order; what was submitted waits."""
        with self._stepper.held():
            self._wake()
            answers = self._engine.generate(requests)
        texts = iter(self._with_texts([response for group in answers for response in group]))
        return ResponseGroups([next(texts) for _ in group] for group in answers)

    def submit(self, session: int, opens: bool, requests: Mapping[int, Request], aborted: Sequence[int]) -> bool:
        """Give up some requests and take others; the engine works on them until they are finished.

        Args:
            session: a number that names the caller.
            opens: whether the caller starts with this call; requests of an earlier session are given up.
            requests: by ticket.
            aborted: tickets.

        Returns:
            False if this worker replaced one that had the session's requests; it took none.
        """
        if opens:
            self._stepper.abort_all()
            self._session = session
        if session != self._session:
            return False
        self._stepper.submit(requests, aborted)
        return True

    def collect(self, session: int, seconds: float) -> list[Finished] | None:
        """Return finished responses as soon as there are any, and none after ``seconds``; None as for ``submit``'s False."""
        if session != self._session:
            return None
        found = self._stepper.collect(seconds)
        responses = self._with_texts([each.response for each in found])
        return [replace(each, response=response) for each, response in zip(found, responses, strict=True)]

    def busy_seconds(self) -> float:
        """How long submitted requests were worked on since the last call of this."""
        return self._stepper.busy_seconds()

    def _with_texts(self, responses: Sequence[Response]) -> Sequence[Response]:
        """Responses decoded where they are drawn, which is many places; an outside engine's are left to the controller."""
        if not responses or isinstance(self._config.rollout.engine, External):
            return responses
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self._config.model, trust_remote_code=self._config.data.trust_remote_code)
        return with_texts(responses, self._tokenizer)

    def meeting(self) -> NcclRendezvous | None:
        """Where this engine met training."""
        return self._met

    def meet(self, meeting: NcclRendezvous, place: int, processes: int) -> None:
        """Meet training, as the ``place``-th engine, each of which has so many processes."""
        assert isinstance(self._engine, VllmEngine), "NCCL is vLLM's"
        with self._stepper.held():
            self._engine.connect(meeting.of_engine(place, processes))
        self._met = meeting

    def _begin_weights(self, version: int, transport: Transport) -> None:
        self._stepper.rest("loading")
        with self._stepper.held():
            self._engine.begin_weights(version)
        self._coming = version, transport

    def load_bucket(self, version: int, message: Message, opens: Transport | None = None) -> None:
        """Overwrite the weights that a message tells of; one that took the place of another meanwhile gets them later.

        With the last bucket all have come: ``version`` is on every later response.

        Args:
            version: of all weights of the sync.
            message: of one bucket.
            opens: of the first bucket, this end of the transport over which all of them come.
        """
        if opens is not None:
            self._begin_weights(version, opens)
        if self._coming is not None and self._coming[0] == version:
            self._coming[1].deliver(message.content, self._engine)
            if message.last:
                self._engine.commit_weights()
                self._stepper.resume("loading")
                self._coming = None

    def sleep(self) -> None:
        """Stop working, and give the device's memory to training if both use one; the next call that generates ends it."""
        self._stepper.rest("asleep")
        if self._sleeps:
            with self._stepper.held():
                self._engine.sleep()

    def _wake(self) -> None:
        if self._sleeps:
            self._engine.wake()

    def close(self) -> None:
        """End the engine."""
        self._stepper.close()
        self._engine.close()


def as_rollout(
    config: Config,
    rollout: Rollout,
    *,
    path: str,
    max_context_tokens: int | None,
    shared: bool,
    max_num_seqs: int | None = None,
) -> Config:
    """A config in which another model is what rolls out, as engines are made from configs.

    Args:
        config: of the stage.
        rollout: how the model is served, but for its memory.
        path: of the model.
        max_context_tokens: of a prompt with its answer.
        shared: whether it shares devices with the policy or its rollout.
        max_num_seqs: answers that an engine generates at the same time.
    """
    memory = EngineMemory(
        sleep=config.rollout.memory.sleep,
        sleep_level=1,  # no sync ever brings its weights back
        log_statistics=config.rollout.memory.log_statistics,
    )
    return replace(
        config,
        model=Model(path=path, max_context_tokens=max_context_tokens, trust_remote_code=config.model.trust_remote_code),
        placement=replace(config.placement, layout="colocated" if shared else "split"),
        weight_sync=replace(config.weight_sync, method="memory"),
        rollout=replace(rollout, memory=memory if max_num_seqs is None else replace(memory, max_num_seqs=max_num_seqs)),
    )


def make_engine(config: Config, engine: str, model_path: str, device: Device) -> RolloutEngine:
    """The engine called ``engine``.

    Raises:
        RunError: there is no such engine here.
    """
    import_modules(config.model)
    threads = config.placement.cpus_per_worker if device == "cpu" else None
    if engine == "vllm":
        return VllmEngine(
            engine_arguments(config, model_path, device),
            environment=engine_environment(config, device),
            sleep_level=rollout_schedule.sleep_level(config),
            threads=threads,
        )
    if engine == "sglang":
        return _sglang(config, model_path, device)
    if isinstance(config.rollout.engine, External):
        return _external(config, config.rollout.engine)
    if engine != "transformers":
        raise RunError(
            said("rlctl has no rollout engine {engine}", engine=engine), hint="set rollout.engine=transformers"
        )
    precision = config.rollout.precision
    if precision == "auto":
        precision = config.train.precision.compute
    return TransformersEngine(
        model_path,
        dtype=getattr(torch, precision),
        device=device,
        max_batch_rows=config.rollout.memory.max_num_seqs or DEFAULT_ROWS,
        max_length=config.model.max_context_tokens,
        attention=config.model.attention,
        trust_remote_code=config.model.trust_remote_code,
        threads=threads,
        config=changed_config(config.model, model_path),
        tokenizer=config.model.tokenizer or config.model.path,
        records_experts=arithmetic.rollout_routes(config),
    )


def _sglang(config: Config, model_path: str, device: Device) -> SglangEngine:
    parallel = config.rollout.parallel
    server = SglangServer(server_arguments(config, model_path, device), gpus=os.environ.get(ENGINE_GPUS))
    return SglangEngine(
        server.url,
        model_path,
        server=server,
        timeout=config.rollout.timeouts.response,
        max_length=config.model.max_context_tokens,
        trust_remote_code=config.model.trust_remote_code,
        sleeps=arithmetic.rollout_sleeps(config, device),
        sleep_level=rollout_schedule.sleep_level(config),
        tokenizes=bool(config.rollout.sampling.stop),
        tensor_parallel=parallel.tensor_parallel_size,
        pipeline_parallel=parallel.pipeline_parallel_size,
        records_experts=arithmetic.rollout_routes(config),
    )


def _external(config: Config, engine: External) -> ExternalEngine:
    if engine.base_url is None:
        raise RunError("the external engine has no address", hint="set rollout.engine.base_url")
    return ExternalEngine(
        engine.base_url,
        engine.model or config.model.path,
        api_key=engine.api_key or "",
        timeout=config.rollout.timeouts.response or DEFAULT_SECONDS,
        patient=config.rollout.timeouts.response is not None,
        retries=config.rollout.timeouts.retries,
        max_concurrent=config.rollout.memory.max_num_seqs or DEFAULT_CONCURRENT,
        max_length=config.model.max_context_tokens,
        arguments=engine.args,
    )
