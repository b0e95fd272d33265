"""SGLang as a rollout engine: its HTTP server runs as a child, and everything goes over its own protocol.

    this worker ──POST /generate (token ids)──▶ python -m sglang.launch_server
                ◀── tokens, log-probs, weight version
    weights ──shared memory──▶ POST /begin_weight_update, /update_weights_from_tensor ..., /end_weight_update

A request is one response. Requests are under way in a thread of their own, so that polling never waits for the server. While
weights change, generation is paused and what is under way goes back to the queue (``retract``): it goes on from the tokens that
it has, its keys and values computed anew. Log-probs are SGLang's: under the sampling temperature, before top-k and top-p, and
after penalties (``sglang_arguments.check_sglang``).
"""

from __future__ import annotations

import asyncio
import base64
import io
import math
import os
import queue
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import httpx
import torch
import torch.multiprocessing
from transformers import AutoConfig

from rlctl.common import own_python
from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.models.routers import routed_layers
from rlctl.runtime.processes.process_group import end_group, status_of
from rlctl.runtime.rollout.by_response import CLOSED, ByResponse
from rlctl.runtime.rollout.interface import Finished
from rlctl.runtime.rollout.randomness import stream_keys
from rlctl.runtime.rollout.sglang_arguments import command_line
from rlctl.runtime.rollout.weights import Checklist, without_memory
from rlctl.runtime.train.replay import narrowed
from rlctl.runtime.types import Request, Response, Sampling

START_SECONDS = 1800.0
"""Within which the server has loaded the model and captured its graphs."""
WEIGHTS_SECONDS = 1800.0
BY_NAME = "file_system"
"""How torch shares memory with a process that is no child of this one."""
_WITH_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Becomes the program that its arguments name, which is killed when the worker ends, however it ends (PR_SET_PDEATHSIG). A
function between fork and exec would do without it, but may wait forever for a lock of one of the worker's threads."""


class SglangServer:
    """The server as a child process."""

    def __init__(
        self, arguments: Mapping[str, Any], *, program: Sequence[str] | None = None, gpus: str | None = None
    ) -> None:
        """Start it and wait until it is healthy.

        Args:
            arguments: of the server (``sglang_arguments.server_arguments``).
            program: what is started; None is SGLang's server of this Python.
            gpus: those that it sees, as CUDA_VISIBLE_DEVICES has them; None are those of this process.

        Raises:
            RunError: it ended, or was not healthy in time.
        """
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        line = [*(program or own_python.module("sglang.launch_server"))]
        line += command_line({**arguments, "host": "127.0.0.1", "port": port})
        with_parent = own_python.bare("-c", _WITH_PARENT)
        seen = None if gpus is None else {**os.environ, "CUDA_VISIBLE_DEVICES": gpus}
        self._process = subprocess.Popen(
            [*with_parent, *line], stdin=subprocess.DEVNULL, start_new_session=True, env=seen
        )
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            self.check()
            with suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/health", timeout=30.0).status_code == 200:
                    return
            time.sleep(0.2)
        raise RunError(
            said("SGLang's server was not healthy after {start_seconds:g} s", start_seconds=START_SECONDS),
            hint="read its output in the worker's log, under logs/ in the run folder",
        )

    def check(self) -> None:
        """Raise where the server has ended.

        Raises:
            RunError: it has.
        """
        status = status_of(self._process)
        if status is not None:
            raise RunError(
                said("SGLang's server ended with status {status}", status=status),
                hint="read its output in the rollout worker's log, under logs/ in the run folder",
            )

    def close(self) -> None:
        """End it and its processes."""
        end_group(self._process)


@dataclass(frozen=True, slots=True)
class _Row:
    """A response under way."""

    request: Request
    index: int
    """Its place in the group."""
    ticket: int | None
    """None for one of a ``generate`` call."""
    version: int
    """Of the weights when it was asked for."""
    future: Future[Any]


class SglangEngine(ByResponse[_Row]):
    """A rollout engine (``interface.RolloutEngine``) in front of SGLang's server. Not safe for threads: one call at a time."""

    def __init__(
        self,
        url: str,
        model_path: str,
        *,
        server: SglangServer | None = None,
        timeout: float | None = None,
        max_length: int | None = None,
        trust_remote_code: bool = False,
        sleeps: bool = False,
        sleep_level: int = 1,
        tokenizes: bool = True,
        weight_version: int = 0,
        tensor_parallel: int = 1,
        pipeline_parallel: int = 1,
        records_experts: bool = False,
    ) -> None:
        """
        Args:
            url: of the server.
            model_path: folder or hub name of the model that it serves.
            server: the child that serves, ended with the engine.
            timeout: seconds of one call, a response of ``generate`` among them; None is as long as it takes. What was submitted
                is given up by whoever submitted it (``abort``).
            max_length: prompt and response tokens together, at most; None is what the model has positions for.
            trust_remote_code: whether code in the model's folder may run.
            sleeps: whether the server was started so that it can give its memory back.
            sleep_level: 1 keeps the weights in CPU memory while asleep, 2 drops them.
            tokenizes: whether the server has a tokenizer, which stop strings of a response need.
            weight_version: the version that the weights in the folder count as.
            tensor_parallel: processes of the server that share each layer.
            pipeline_parallel: its stages.
            records_experts: whether responses say which experts their tokens went to.
        """
        self._shared_by = tensor_parallel, pipeline_parallel
        self._url, self._server, self._timeout = url.rstrip("/"), server, timeout
        config = AutoConfig.from_pretrained(model_path, trust_remote_code=trust_remote_code)
        self._shapes = without_memory(config, trust_remote_code=trust_remote_code)
        self._routed_layers = routed_layers(self._shapes) if records_experts else None
        self._sleeps, self._sleep_level = sleeps, sleep_level
        self._asleep = self._paused = False
        self._coming: tuple[int, Checklist] | None = None
        """The version of the weights that are being loaded, and what has come of them."""
        self._session = False
        """Whether the server waits for weights."""
        self._prefix = uuid.uuid4().hex
        self._done: queue.SimpleQueue[str] = queue.SimpleQueue()
        """Names of what was submitted and is there."""
        self._loop = asyncio.new_event_loop()
        self._client = httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None))
        self._thread = threading.Thread(target=self._loop.run_forever, name="sglang", daemon=True)
        self._thread.start()
        super().__init__(
            "SGLang",
            max_length=max_length or getattr(config, "max_position_embeddings", None) or 1 << 31,
            vocab_size=self._shapes.get_input_embeddings().weight.shape[0],
            tokenizes=tokenizes,
            weight_version=weight_version,
        )

    @property
    def asleep(self) -> bool:
        return self._asleep

    def poll(self, seconds: float) -> list[Finished]:
        """What has finished of what was submitted, within about ``seconds``, less where nothing is left of it.

        Raises:
            RunError: a server that does not answer as it should, or the engine sleeps or is closed.
        """
        self._check_usable("poll()")
        deadline, found = time.monotonic() + seconds, []
        while any(row.ticket is not None for row in self._rows.values()):
            left = deadline - time.monotonic()
            try:
                name = self._done.get(timeout=max(0.0, left)) if left > 0 else self._done.get_nowait()
            except queue.Empty:
                break
            row = self._rows.get(name)
            if row is not None and row.ticket is not None:
                found.append(Finished(row.ticket, row.index, self._answer(name)))
        return found

    def begin_weights(self, version: int) -> None:
        """Be ready for all weights of a version; see ``RolloutEngine``."""
        self._check_open()
        self._unusable = f"loading weight version {version} failed half-way; expected a complete load before generate()"
        self._wake(("weights",))
        self._pause()
        self._end_session()  # of a load that was broken off
        self._told("/begin_weight_update", {})
        self._session = True
        self._coming = version, Checklist(self._shapes)

    def add_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Have the server take a part of the weights, under their Hugging Face names, out of memory that it shares.

        What is cached of the old ones is dropped.
        """
        assert self._coming is not None, "a load begins with begin_weights"
        version, checklist = self._coming
        taken = list(checklist.take(weights))
        if not taken:
            return
        # The server holds what it reads until it has answered; the next part has memory of its own.
        with _shared_by_name():
            part = [(name, tensor.detach().to("cpu", copy=True).contiguous().share_memory_()) for name, tensor in taken]
            named = [_serialized(part, self._shared_by[1]) for _ in range(self._shared_by[0])]
        body = {"serialized_named_tensors": named, "flush_cache": True, "weight_version": str(version)}
        self._told("/update_weights_from_tensor", body)

    def commit_weights(self) -> None:
        """All have come: the server goes on with them."""
        assert self._coming is not None, "a load begins with begin_weights"
        version, checklist = self._coming
        checklist.finish()
        self._end_session()
        if not self._asleep:
            self._go_on()
        self._coming, self._unusable, self.weight_version = None, "", version

    def _told(self, path: str, body: Mapping[str, Any]) -> None:
        """Post what concerns weights."""
        answer = self._post(path, body, WEIGHTS_SECONDS)
        if not answer.get("success"):
            raise RunError(said("SGLang rejected the weights at {path}: {get}", path=path, get=answer.get("message")))

    def _end_session(self) -> None:
        if self._session:
            self._session = False
            self._told("/end_weight_update", {})

    def sleep(self) -> None:
        """Free the KV cache and the weights' place on the GPU, where the server was started so that it can; else nothing."""
        self._check_open()
        if not self._sleeps or self._asleep:
            return
        self._pause()
        self._post("/flush_cache", None, self._timeout)
        self._post("/release_memory_occupation", {}, self._timeout)
        self._asleep = True
        self._lacking = ["weights", "kv_cache"]
        if self._sleep_level == 2:
            self._unusable = "the weights were dropped by sleep of level 2; expected load_weights() before generate()"

    def wake(self) -> None:
        """Take the memory back, weights before KV cache; a no-op when awake."""
        self._check_open()
        self._wake(("weights", "kv_cache"))
        self._go_on()

    def close(self) -> None:
        """End the engine and its server."""
        if self._unusable == CLOSED:
            return
        self._unusable = CLOSED
        self._rows.clear()
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._client.aclose(), self._loop).result(timeout=5.0)
        if self._server is not None:
            self._server.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5.0)

    def _add(self, request: Request, index: int, ticket: int | None) -> str:
        name = f"{self._prefix}-{next(self._names)}"
        body = {
            "rid": name,
            "input_ids": list(request.token_ids),
            "sampling_params": _params(request.sampling, int(stream_keys([request.seed], [index]))),
            "return_logprob": True,
            "stream": False,
            **({} if self._routed_layers is None else {"return_routed_experts": True}),
        }
        limit = self._timeout if ticket is None else None
        future = asyncio.run_coroutine_threadsafe(self._ask("/generate", body, limit), self._loop)
        self._rows[name] = _Row(request, index, ticket, self.weight_version, future)
        if ticket is not None:
            future.add_done_callback(lambda _: self._done.put(name))
        return name

    def _answer(self, name: str) -> Response:
        """The response of a row, once it is there; the row leaves."""
        row = self._rows[name]
        try:
            answer = row.future.result()
        finally:
            del self._rows[name]
        response = self._response(row, answer)
        self.tokens_computed.prompt += len(row.request.token_ids) - int(answer["meta_info"].get("cached_tokens") or 0)
        self.tokens_computed.decoded += len(response.token_ids) - 1
        return response

    def _response(self, row: _Row, answer: Mapping[str, Any]) -> Response:
        """An answer of ``/generate``: ``output_token_logprobs`` has (log-prob, token id, text) for each token."""
        try:
            told = answer["meta_info"]
            drawn, reason = told["output_token_logprobs"], told["finish_reason"]
            ids, log_probs = tuple(int(each[1]) for each in drawn), tuple(float(each[0]) for each in drawn)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise RunError(
                said("SGLang answered {answer}; expected output_token_logprobs", answer=str(answer)[:300])
            ) from error
        if not ids or not all(map(math.isfinite, log_probs)):
            what = "no tokens" if not ids else "log-probs that are not finite"
            raise RunError(
                said(
                    "SGLang answered with {what}, with weight version {weight_version}",
                    what=what,
                    weight_version=self.weight_version,
                ),
                hint="the weights may have diverged: check the gradient norm and the learning rate of the last steps",
            )
        if reason["type"] not in ("stop", "length"):
            raise RunError(said("SGLang aborted a response: {value}", value=reason.get("message") or reason["type"]))
        matched, served = reason.get("matched"), str(told.get("weight_version"))
        version = int(served) if served.isdigit() else self.weight_version
        sampling = row.request.sampling
        return Response(
            token_ids=ids,
            log_probs=log_probs,
            finish_reason=reason["type"],
            weight_version=version,
            first_version=None if row.version == version else row.version,
            cut=matched if isinstance(matched, str) and not sampling.include_stop else "",
            routed_experts=self._experts(told, len(row.request.token_ids) + len(ids) - 1),
        )

    def _experts(self, told: Mapping[str, Any], fed: int) -> torch.Tensor | None:
        """The experts of the tokens that were fed: int32 of every layer, of which those without experts say nothing."""
        if self._routed_layers is None:
            return None
        layers, chosen = self._shapes.config.num_hidden_layers, self._shapes.config.num_experts_per_tok
        found = torch.frombuffer(bytearray(base64.b64decode(told.get("routed_experts") or b"")), dtype=torch.int32)
        if found.numel() != fed * layers * chosen:
            raise RunError(
                said(
                    "SGLang returned {numel} experts for {fed} tokens; expected {chosen} in each of {layers} layers",
                    numel=found.numel(),
                    fed=fed,
                    chosen=chosen,
                    layers=layers,
                ),
                hint="set algorithm.router_replay to recompute, or use sglang 0.5.23",
            )
        return narrowed(found.view(fed, layers, chosen)[:, self._routed_layers])

    def _give_up(self, names: Iterable[str]) -> None:
        for name in names:
            row = self._rows.pop(name, None)
            if row is None:
                continue
            row.future.cancel()
            with suppress(RunError):
                self._post("/abort_request", {"rid": name}, self._timeout)

    def _pause(self) -> None:
        if not self._paused:
            self._post("/pause_generation", {"mode": "retract"}, self._timeout)
            self._paused = True

    def _go_on(self) -> None:
        if self._paused:
            self._post("/continue_generation", {}, self._timeout)
            self._paused = False

    def _wake(self, parts: Sequence[str]) -> None:
        back = [part for part in parts if self._asleep and part in self._lacking]
        if back:
            self._post("/resume_memory_occupation", {"tags": back}, self._timeout)
            self._lacking = [part for part in self._lacking if part not in back]
            self._asleep = bool(self._lacking)

    def _post(self, path: str, body: Mapping[str, Any] | None, seconds: float | None) -> dict[str, Any]:
        found: dict[str, Any] = asyncio.run_coroutine_threadsafe(self._ask(path, body, seconds), self._loop).result()
        return found

    async def _ask(self, path: str, body: Mapping[str, Any] | None, seconds: float | None) -> dict[str, Any]:
        """Post, and return the JSON object that comes back; empty for an answer that is none.

        Raises:
            RunError: the server cannot be reached, is too slow, or says no.
        """
        try:
            answer = await asyncio.wait_for(self._client.post(f"{self._url}{path}", json=body), seconds)
        except TimeoutError:
            raise RunError(
                said("SGLang took longer than {seconds:g} s for {path}", seconds=seconds, path=path),
                hint="raise rollout.timeouts.response",
            ) from None
        except httpx.HTTPError as error:
            if self._server is not None:
                self._server.check()
            raise RunError(
                said("SGLang's server cannot be reached: {value}", value=str(error) or type(error).__name__)
            ) from None
        if answer.status_code >= 400:
            raise RunError(
                said(
                    "SGLang answered {path} with {status_code}: {text}",
                    path=path,
                    status_code=answer.status_code,
                    text=answer.text[:300],
                )
            )
        try:
            found = answer.json()
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


@contextmanager
def _shared_by_name() -> Iterator[None]:
    """Share memory under names, which a process that was started by a command can open."""
    usual = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy(BY_NAME)
    try:
        yield
    finally:
        torch.multiprocessing.set_sharing_strategy(usual)


def _serialized(part: Sequence[tuple[str, torch.Tensor]], readers: int) -> str:
    """Where tensors are, as SGLang reads it: pickled as for another process, in base64.

    Each pickling counts one reader, which gives the memory back when it has read.
    """
    for _ in range(readers):
        found = io.BytesIO()
        ForkingPickler(found).dump(list(part))
    return base64.b64encode(found.getvalue()).decode()


def _params(sampling: Sampling, key: int) -> dict[str, Any]:
    """A sampling as SGLang's, for one response that draws from the stream ``key``."""
    return {
        "max_new_tokens": sampling.max_tokens,
        "min_new_tokens": sampling.min_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "stop": list(sampling.stop) or None,
        "stop_token_ids": list(sampling.stop_token_ids) or None,
        "ignore_eos": sampling.ignore_eos,
        "no_stop_trim": True,
        "skip_special_tokens": False,
        "sampling_seed": key & ((1 << 63) - 1),
    }


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
