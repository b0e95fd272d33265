"""The rollout worker: one engine, the weights it holds, and what it has computed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.model import Model
from rlctl.config.sections.rollout import ExternalEngine as External
from rlctl.config.sections.rollout import Rollout
from rlctl.planning.plan import Device
from rlctl.runtime.data.tokenizer import load_tokenizer
from rlctl.runtime.models.config import changed_config, import_modules
from rlctl.runtime.processes.environment import ENGINE_GPUS
from rlctl.runtime.rollout.external import ExternalEngine
from rlctl.runtime.rollout.interface import Finished, RolloutEngine
from rlctl.runtime.rollout.sglang import SglangEngine, SglangServer
from rlctl.runtime.rollout.stepping import Stepper
from rlctl.runtime.rollout.texts import with_texts
from rlctl.runtime.rollout.transformers import TransformersEngine
from rlctl.runtime.rollout.vllm import VllmEngine
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


@dataclass(frozen=True, slots=True)
class RolloutSpec:
    """What a rollout engine is made from."""

    engine: str
    """The one that the plan chose."""
    model: Model
    model_path: str
    """Folder or hub name of the first weights."""
    rollout: Rollout
    device: Device
    precision: str
    """The type of the weights."""
    threads: int | None
    """Of an engine on a CPU."""
    sleeps: bool
    """Whether it gives memory to training."""
    sleep_level: int
    records_experts: bool
    """Whether responses come with the experts that their tokens went to."""
    trust_tokenizer_code: bool
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Of vLLM's engine, or of SGLang's server."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that vLLM reads."""


class RolloutWorker:
    """Hosts a rollout engine."""

    def __init__(self, spec: RolloutSpec) -> None:
        """Load the engine.

        Raises:
            RunError: the engine cannot run here, or cannot load the model.
        """
        self._spec = spec
        self._engine = make_engine(spec)
        self._tokenizer: Any = None
        """Loaded when it is first needed."""
        self._coming: tuple[int, Transport] | None = None
        """The version of the weights that are being loaded, and where they come from."""
        self._met: NcclRendezvous | None = None
        self._sleeps = spec.sleeps
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
        if not responses or isinstance(self._spec.rollout.engine, External):
            return responses
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self._spec.model, trust_remote_code=self._spec.trust_tokenizer_code)
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


def make_engine(spec: RolloutSpec) -> RolloutEngine:
    """The engine of a worker.

    Raises:
        RunError: there is no such engine here.
    """
    import_modules(spec.model)
    if spec.engine == "vllm":
        return VllmEngine(
            spec.arguments, environment=spec.environment, sleep_level=spec.sleep_level, threads=spec.threads
        )
    if spec.engine == "sglang":
        return _sglang(spec)
    if isinstance(spec.rollout.engine, External):
        return _external(spec, spec.rollout.engine)
    if spec.engine != "transformers":
        raise RunError(
            said("rlctl has no rollout engine {engine}", engine=spec.engine), hint="set rollout.engine=transformers"
        )
    model = spec.model
    return TransformersEngine(
        spec.model_path,
        dtype=getattr(torch, spec.precision),
        device=spec.device,
        max_batch_rows=spec.rollout.memory.max_num_seqs or DEFAULT_ROWS,
        max_length=model.max_context_tokens,
        attention=model.attention,
        trust_remote_code=model.trust_remote_code,
        threads=spec.threads,
        config=changed_config(model, spec.model_path),
        tokenizer=model.tokenizer or model.path,
        records_experts=spec.records_experts,
    )


def _sglang(spec: RolloutSpec) -> SglangEngine:
    rollout = spec.rollout
    server = SglangServer(spec.arguments, gpus=os.environ.get(ENGINE_GPUS))
    return SglangEngine(
        server.url,
        spec.model_path,
        server=server,
        timeout=rollout.timeouts.response,
        max_length=spec.model.max_context_tokens,
        trust_remote_code=spec.model.trust_remote_code,
        sleeps=spec.sleeps,
        sleep_level=spec.sleep_level,
        tokenizes=bool(rollout.sampling.stop),
        tensor_parallel=rollout.parallel.tensor_parallel_size,
        pipeline_parallel=rollout.parallel.pipeline_parallel_size,
        records_experts=spec.records_experts,
    )


def _external(spec: RolloutSpec, engine: External) -> ExternalEngine:
    if engine.base_url is None:
        raise RunError("the external engine has no address", hint="set rollout.engine.base_url")
    timeouts = spec.rollout.timeouts
    return ExternalEngine(
        engine.base_url,
        engine.model or spec.model.path,
        api_key=engine.api_key or "",
        timeout=timeouts.response or DEFAULT_SECONDS,
        patient=timeouts.response is not None,
        retries=timeouts.retries,
        max_concurrent=spec.rollout.memory.max_num_seqs or DEFAULT_CONCURRENT,
        max_length=spec.model.max_context_tokens,
        arguments=engine.args,
    )
