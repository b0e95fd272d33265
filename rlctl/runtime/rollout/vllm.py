"""vLLM as a rollout engine: its ``LLMEngine`` in this process, stepped by us.

Each response is a request of its own to vLLM, with a random stream made of the group's seed and its place in the group, the
same stream as in the built-in engine: what it draws does not depend on what else is in the batch, as far as vLLM computes the
same logits in any batch. In float32 it does but for
the last bits; in bfloat16 a rounding can turn a draw now and then. Responses to one prompt share its cached prefix.

With ``async_scheduling``, vLLM's default on a GPU, a step starts the next batch before it has the tokens of the last one. Before
weights change, the engine waits for the device; tokens that no step has returned are dropped with the cache, and sampled again
under the new weights.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.common.own_python import safe_children
from rlctl.runtime.rollout.by_response import CLOSED, ByResponse
from rlctl.runtime.rollout.interface import Finished
from rlctl.runtime.rollout.randomness import STREAM, stream_keys
from rlctl.runtime.rollout.weights import AdapterChecklist, Checklist, without_memory
from rlctl.runtime.serialization.tensors import NamedTensors
from rlctl.runtime.sync.bucket import parts
from rlctl.runtime.types import Request, Response, Sampling

PART_BYTES = 256 << 20
"""Of weights handed to vLLM's workers at once."""
QUEUES = "/dev/shm/psm_"
"""How Python names shared memory; vLLM makes some only where an engine has several processes."""


@dataclass(slots=True)
class _Row:
    """A response under way."""

    request: Request
    index: int
    """Its place in the group."""
    ticket: int | None
    """None for one of a ``generate`` call."""
    key: str
    """vLLM's own name of it."""
    first_version: int | None = None
    """The version that drew its first token, once weights have changed after that."""


class VllmEngine(ByResponse[_Row]):
    """A rollout engine (``interface.RolloutEngine``). Not safe for threads: one call at a time; one engine a process."""

    def __init__(
        self,
        arguments: Mapping[str, Any],
        *,
        environment: Mapping[str, str],
        sleep_level: int = 1,
        threads: int | None = None,
        weight_version: int = 0,
    ) -> None:
        """Start vLLM and load the model.

        Args:
            arguments: of ``vllm.EngineArgs`` (``vllm_arguments.engine_arguments``).
            environment: variables that vLLM reads (``vllm_arguments.engine_environment``).
            sleep_level: 1 keeps the weights in CPU memory while asleep, 2 drops them.
            threads: CPU threads of this whole process, None leaves them as they are.
            weight_version: the version that the weights in the folder count as.

        Raises:
            RunError: vLLM cannot run this model, or not with these arguments.
        """
        for name, value in environment.items():
            os.environ.setdefault(name, value)
        if threads is not None:
            torch.set_num_threads(threads)
        self._made_group = not torch.distributed.is_initialized()
        self._engine = _start(arguments)
        served = self._engine.vllm_config.model_config
        self._adapter = _adapter_of(self._engine)
        """What each request names; None if the engine gets whole weights."""
        self._shapes = without_memory(served.hf_config, trust_remote_code=served.trust_remote_code)
        self._sleeps, self._sleep_level = bool(arguments.get("enable_sleep_mode")), sleep_level
        self._asleep: set[str] = set()
        self._coming: tuple[int, Checklist | AdapterChecklist] | None = None
        """The version of the weights that are being loaded, and what has come of them."""
        self._opened = False
        """Whether vLLM's workers have begun to load."""
        self._answers: dict[str, Response] = {}
        self._finished: list[Finished] = []
        super().__init__(
            "vLLM",
            max_length=served.max_model_len,
            vocab_size=served.get_vocab_size(),
            tokenizes=not served.skip_tokenizer_init,
            weight_version=weight_version,
        )

    @property
    def asleep(self) -> bool:
        return bool(self._asleep)

    @property
    def vllm_config(self) -> Any:
        """What vLLM made of its arguments."""
        return self._engine.vllm_config

    def poll(self, seconds: float) -> list[Finished]:
        """Work on what was submitted for about ``seconds``, less where nothing is left of it; return what has finished.

        Raises:
            RunError: the weights compute no finite numbers, or the engine sleeps or is closed.
        """
        self._check_usable("poll()")
        deadline = time.monotonic() + seconds
        while self._rows and time.monotonic() < deadline:
            self._step()
        finished, self._finished = self._finished, []
        return finished

    def abort(self, tickets: Collection[int]) -> None:
        """Give up what is under way for these requests; tickets of which nothing is under way are passed over."""
        super().abort(tickets)
        self._finished = [each for each in self._finished if each.ticket not in tickets]

    def tokens_so_far(self, tickets: Collection[int]) -> dict[int, tuple[int, ...]]:
        """The tokens of responses under way (``interface.ShowsTokens``)."""
        states, wanted = self._engine.output_processor.request_states, set(tickets)
        running = [row for row in self._rows.values() if row.ticket in wanted and row.key in states]
        return {
            row.ticket: tuple(states[row.key].detokenizer.output_token_ids) for row in running if row.ticket is not None
        }

    def begin_weights(self, version: int) -> None:
        """Be ready for all weights of a version; see ``RolloutEngine``."""
        self._check_open()
        self._note_versions()
        self._wake("weights")
        self._end_weights()  # of a load that was broken off
        self._unusable = f"loading weight version {version} failed half-way; expected a complete load before generate()"
        self._coming = version, Checklist(self._shapes) if self._adapter is None else AdapterChecklist()

    def add_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Overwrite weights in place, part by part, under their Hugging Face names; cast to the engine's dtype.

        vLLM's own loader of the model shards and fuses them. An engine that takes adapters is given these, and nothing else.
        """
        assert self._coming is not None, "a load begins with begin_weights"
        kind = "weights" if self._adapter is None else "adapter"
        try:
            self._open(f"rlctl_begin_{kind}")
            for part in parts(self._coming[1].take(weights), PART_BYTES):
                self._engine.collective_rpc(f"rlctl_take_{kind}", args=(NamedTensors(part),))
        except BaseException:
            self._end_weights()
            raise

    def connect(self, meeting: Mapping[str, Any]) -> None:
        """Meet training in an NCCL group; ``meeting`` is in vLLM's words. Who was met before is left."""
        self._check_open()
        self._end_weights()
        self._engine.collective_rpc("shutdown_weight_transfer_engine")
        self._engine.collective_rpc("init_weight_transfer_engine", args=(dict(meeting),))

    def transfer_weights(self, message: Mapping[str, Any]) -> None:
        """Overwrite a part of the weights by vLLM's own weight transfer; ``message`` is in its words.

        Raises:
            RunError: as ``add_weights``; nothing was asked for then.
        """
        assert self._coming is not None, "a load begins with begin_weights"
        rows = zip(message["names"], message["dtype_names"], message["shapes"], strict=True)
        told = [(name, torch.empty(shape, dtype=getattr(torch, dtype), device="meta")) for name, dtype, shape in rows]
        try:
            for name, (first, _) in zip(message["names"], self._coming[1].take(told), strict=True):
                if name != first:
                    raise RunError(
                        said("{name} is tied to {first}; only {first} is sent from GPU to GPU", name=name, first=first)
                    )
            self._open("start_weight_update")
            self._engine.collective_rpc("update_weights", args=(dict(message),))
        except BaseException:
            self._end_weights()
            raise

    def commit_weights(self) -> None:
        """All have come: what is cached of the old weights is dropped."""
        assert self._coming is not None, "a load begins with begin_weights"
        version, checklist = self._coming
        self._end_weights()
        checklist.finish()
        if self._adapter is not None:
            self._replace_adapter()
        self._drop_cache()
        self._unusable = ""
        self.weight_version = version

    def _replace_adapter(self) -> None:
        try:
            self._engine.collective_rpc("rlctl_load_adapter")
        except (ValueError, RuntimeError) as error:
            raise RunError(
                said("vLLM cannot add the adapters to the model: {error}", error=error),
                hint="set model.lora.merge_for_rollout to true",
            ) from error

    def _open(self, call: str) -> None:
        if not self._opened:
            # A batch may be under way, and weights arrive on other streams.
            self._engine.collective_rpc("synchronize_device")
            self._engine.collective_rpc(call)
            self._opened = True

    def _end_weights(self) -> None:
        self._coming = None
        if self._opened:
            self._opened = False
            if self._adapter is None:
                self._engine.collective_rpc("rlctl_end_weights")

    def sleep(self) -> None:
        """Free the KV cache and the weights' place on the GPU, where vLLM was started so that it can; else nothing."""
        self._check_open()
        if not self._sleeps or self._asleep:
            return
        self._note_versions()
        self._drop_cache()
        self._engine.sleep(self._sleep_level, mode="keep")
        self._asleep = {"weights", "kv_cache"}
        if self._sleep_level == 2:
            self._unusable = "the weights were dropped by sleep of level 2; expected load_weights() before generate()"

    def wake(self) -> None:
        """Take the memory back, weights before KV cache; a no-op when awake."""
        self._check_open()
        self._wake("weights")
        self._wake("kv_cache")

    def close(self) -> None:
        """End the engine and its processes."""
        if self._unusable == CLOSED:
            return
        self._rows.clear()
        self._engine.engine_core.shutdown()
        if self._made_group:
            from vllm.distributed import destroy_distributed_environment, destroy_model_parallel

            destroy_model_parallel()
            destroy_distributed_environment()
        self._unusable = CLOSED

    def _add(self, request: Request, index: int, ticket: int | None) -> str:
        name = str(next(self._names))
        params = _params(request.sampling, int(stream_keys([request.seed], [index])))
        key = self._engine.add_request(
            name, {"prompt_token_ids": list(request.token_ids)}, params, lora_request=self._adapter
        )
        self._rows[name] = _Row(request, index, ticket, key)
        return name

    def _answer(self, name: str) -> Response:
        while name not in self._answers:
            self._step()
        return self._answers.pop(name)

    def _give_up(self, names: Iterable[str]) -> None:
        for name in (names := list(names)):
            self._answers.pop(name, None)
        running = [name for name in names if self._rows.pop(name, None) is not None]
        if running:
            self._engine.abort_request(running)

    def _step(self) -> None:
        """One iteration of vLLM: a token for every response that runs; those that finish leave."""
        for output in self._engine.step():
            row = self._rows.pop(output.request_id, None) if output.finished else None
            if row is None:
                continue
            response = self._response(row, output.outputs[0])
            self.tokens_computed.prompt += len(row.request.token_ids) - (output.num_cached_tokens or 0)
            self.tokens_computed.decoded += len(response.token_ids) - 1
            if row.ticket is None:
                self._answers[output.request_id] = response
            else:
                self._finished.append(Finished(row.ticket, row.index, response))

    def _response(self, row: _Row, completion: Any) -> Response:
        token_ids, log_probs = tuple(completion.token_ids), tuple(completion.logprobs.logprobs)
        if not all(map(math.isfinite, log_probs)):
            raise RunError(
                said(
                    "the model computed log-probs that are not finite at weight version {version}",
                    version=self.weight_version,
                ),
                hint="the weights have diverged: check the gradient norm and the learning rate of the last steps",
            )
        sampling, by_text = row.request.sampling, isinstance(completion.stop_reason, str)
        return Response(
            token_ids=token_ids,
            log_probs=log_probs,
            finish_reason="stop" if completion.finish_reason == "stop" else "length",
            weight_version=self.weight_version,
            first_version=None if row.first_version == self.weight_version else row.first_version,
            cut=completion.stop_reason if by_text and not sampling.include_stop else "",
        )

    def _note_versions(self) -> None:
        """Remember of responses under way which weights drew their first token: others may draw the next."""
        states = self._engine.output_processor.request_states
        for row in self._rows.values():
            if row.first_version is None and states[row.key].detokenizer.num_output_tokens():
                row.first_version = self.weight_version

    def _drop_cache(self) -> None:
        """Forget keys and values of the weights of before; responses under way have theirs computed anew."""
        self._engine.reset_prefix_cache(reset_running_requests=True)

    def _wake(self, what: str) -> None:
        if what in self._asleep:
            self._engine.wake_up([what])
            self._asleep.discard(what)


def _start(arguments: Mapping[str, Any]) -> Any:
    from vllm import EngineArgs, LLMEngine
    from vllm.usage.usage_lib import UsageContext

    try:
        # Without a context an engine would run 128 requests at a time on any GPU, in batches of 2,048 tokens.
        configuration = EngineArgs(**arguments).create_engine_config(UsageContext.LLM_CLASS)
        _check_kernels(configuration.model_config)
        with safe_children():
            engine = LLMEngine.from_vllm_config(
                configuration, disable_log_stats=bool(arguments.get("disable_log_stats"))
            )
    except (ValueError, TypeError, OSError, ImportError) as error:
        reason = str(error).strip()
        raise RunError(
            said(
                "vLLM cannot run {arguments} with these settings: {reason}", arguments=arguments["model"], reason=reason
            )
        ) from error
    engine.collective_rpc("rlctl_start")
    if arguments.get("weight_transfer_config", {}).get("backend") == "ipc":
        engine.collective_rpc("init_weight_transfer_engine", args=({"packed": True},))
    _unlink_queues()
    return engine


def _adapter_of(engine: Any) -> Any:
    if engine.vllm_config.lora_config is None:
        return None
    from rlctl.runtime.rollout.vllm_worker import ADAPTER

    return ADAPTER


def _unlink_queues() -> None:
    """Take the names of vLLM's message queues in shared memory away, now that all its processes have opened them.

    The memory then ends with these processes, however they end: a killed worker leaves none behind.
    """
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.Error):
            for mapped in process.memory_maps():
                if mapped.path.startswith(QUEUES):
                    Path(mapped.path).unlink(missing_ok=True)


def _check_kernels(model: Any) -> None:
    """Refuse on a CPU what vLLM would fail at with the first prompt."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu() or model.use_mla:
        return
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    known, size = CPUAttentionBackend.get_supported_head_sizes(), model.get_head_size()
    if size not in known:
        raise RunError(
            said(
                "the attention heads of {model} have size {size}; vLLM's CPU kernels support {names}",
                model=model.model,
                size=size,
                names=", ".join(map(str, known)),
            ),
            hint="set rollout.engine=transformers",
        )


def _params(sampling: Sampling, key: int) -> Any:
    """A sampling as vLLM's, for one response that draws from the stream ``key``."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        extra_args={STREAM: key},
        stop=list(sampling.stop),
        stop_token_ids=[] if sampling.ignore_eos else list(sampling.stop_token_ids),
        ignore_eos=True,  # the ending tokens are those of the request, whatever vLLM knows of the model
        logprobs=0,
        flat_logprobs=True,
        detokenize=bool(sampling.stop),
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
