"""The built-in engine: any causal model that Transformers loads, decoded in this process, on CPU or one GPU."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

import torch
from transformers import PreTrainedConfig

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.rollout.cache import RowCache
from rlctl.runtime.rollout.interface import Finished, TokensComputed, check_requests
from rlctl.runtime.rollout.model import CausalModel, load_model
from rlctl.runtime.rollout.stop_texts import Decode, decoder
from rlctl.runtime.rollout.streaming import Streaming
from rlctl.runtime.rollout.weights import Checklist, TakesWeights
from rlctl.runtime.types import Request, Response


class TransformersEngine(TakesWeights):
    """A rollout engine (``interface.RolloutEngine``) around a Transformers model.

    Not safe for threads: one call at a time.
    """

    def __init__(
        self,
        model_path: str,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        max_batch_rows: int = 256,
        max_length: int | None = None,
        max_prompt_positions: int = 16384,
        attention: str = "auto",
        trust_remote_code: bool = False,
        threads: int | None = None,
        weight_version: int = 0,
        config: PreTrainedConfig | None = None,
        tokenizer: str | None = None,
        records_experts: bool = False,
    ) -> None:
        """Load the model.

        Args:
            model_path: a folder, or a name on the Hugging Face hub.
            dtype: of weights and computation; float32 or bfloat16.
            device: where the model is.
            max_batch_rows: responses decoded at a time; the key-value cache has room for as many.
            max_length: prompt and response tokens together, at most; None is what the model has positions for.
            max_prompt_positions: prompt tokens, padding included, in one forward; bounds its activations.
            attention: ``auto``, ``sdpa`` or ``eager``.
            trust_remote_code: whether code in the model's folder may run.
            threads: CPU threads of this whole process, None leaves them as they are.
            weight_version: the version that the weights in the folder count as.
            config: of the model, where it is not the one in the folder.
            tokenizer: folder or hub name of the tokenizer; needed where texts end responses.
            records_experts: whether responses say which experts their tokens went to.

        Raises:
            RunError: no such model or device, or a model or a setting that this engine cannot run.
            MissingDependency: the model's code wants a package that is not there.
        """
        for name, value in (("max_batch_rows", max_batch_rows), ("max_prompt_positions", max_prompt_positions)):
            if value < 1:
                raise RunError(said("{name} is {value}; expected at least 1", name=name, value=value))
        if threads is not None:
            torch.set_num_threads(threads)
        self._device = _usable(device)
        loaded = load_model(
            model_path,
            dtype=dtype,
            device=self._device,
            implementation=attention,
            trust_remote_code=trust_remote_code,
            config=config,
        )
        self._model = CausalModel(model_path, loaded)
        if records_experts:
            self._model.record_experts()
        self._cache = self._model.new_cache()
        self._max_batch_rows = max_batch_rows
        self._max_prompt_positions = max_prompt_positions
        self._max_length = _max_length(max_length, self._model.max_positions, model_path)
        self._tokenizer, self._trust_remote_code = tokenizer, trust_remote_code
        self._unusable = ""
        self._coming: tuple[int, Checklist]
        """The version of the weights that are being loaded, and what has come of them."""
        self._asleep = False
        self.weight_version = weight_version
        self.tokens_computed = TokensComputed()
        self._streaming = self._decoding(self._model.new_cache())

    def _decoding(self, cache: RowCache) -> Streaming:
        return Streaming(
            self._model,
            cache,
            max_rows=self._max_batch_rows,
            max_prompt_positions=self._max_prompt_positions,
            computed=self.tokens_computed,
        )

    @property
    def model(self) -> torch.nn.Module:
        """The model itself, for whoever reads its parameters or hooks its forward."""
        return self._model.module

    def generate(self, requests: Sequence[Request]) -> list[list[Response]]:
        """Answer each request with its ``n`` responses, in the order of the requests.

        Raises:
            RunError: a request that cannot be answered as it asks, an engine that sleeps, is closed or holds half-loaded
                weights, or weights that compute no finite numbers.
        """
        self._check_usable("generate()")
        self._check_requests(requests)
        if not requests:
            return []
        longest_first = sorted(range(len(requests)), key=lambda place: -len(requests[place].token_ids))
        decoding = self._decoding(self._cache)
        decoding.add({place: requests[place] for place in longest_first}, self._decode(requests))
        with torch.inference_mode():
            finished = decoding.work(math.inf, version=self.weight_version)
        finished.sort(key=lambda each: (each.ticket, each.index))
        responses = iter([each.response for each in finished])
        return [list(islice(responses, request.n)) for request in requests]

    def submit(self, requests: Mapping[int, Request]) -> None:
        """Take requests to work on, each under a ticket of its own.

        Raises:
            RunError: a request that cannot be answered as it asks; none was taken.
        """
        self._check_open()
        self._check_requests(list(requests.values()))
        self._streaming.add(requests, self._decode(list(requests.values())))

    def poll(self, seconds: float) -> list[Finished]:
        """Work on what was submitted for about ``seconds``, less where nothing is left of it; return what has finished.

        Raises:
            RunError: an engine that sleeps, is closed or holds half-loaded weights, or weights that compute no finite numbers.
        """
        self._check_usable("poll()")
        with torch.inference_mode():
            return self._streaming.work(seconds, version=self.weight_version)

    def abort(self, tickets: Collection[int]) -> None:
        """Give up what is under way for these requests."""
        with torch.inference_mode():
            self._streaming.drop(tickets)

    def tokens_so_far(self, tickets: Collection[int]) -> dict[int, tuple[int, ...]]:
        """The tokens of responses under way (``interface.ShowsTokens``)."""
        return self._streaming.tokens_so_far(tickets)

    @property
    def limits(self) -> tuple[int, int]:
        """Prompt and response tokens together, at most, and how many token ids there are."""
        return self._max_length, self._model.vocab_size

    def _decode(self, requests: Sequence[Request]) -> Decode | None:
        if not any(request.sampling.stop for request in requests):
            return None
        return decoder(self._tokenizer, trust_remote_code=self._trust_remote_code)

    def begin_weights(self, version: int) -> None:
        """Forget what was computed with the old weights, and be ready for all of the new."""
        self._check_open()
        self._unusable = f"loading weight version {version} failed half-way; expected a complete load before generate()"
        # What is cached was computed with the old weights, and may hold a NaN that a mask would not hide.
        self._cache.release()
        self._streaming.set_aside()
        self._coming = version, Checklist(self._model.module)

    def add_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copy a part of them in place, under their Hugging Face names; cast to the engine's dtype."""
        _, checklist = self._coming
        checklist.copy(weights)

    def commit_weights(self) -> None:
        """All have come: answer with them."""
        version, checklist = self._coming
        checklist.finish()
        self._unusable = ""
        self.weight_version = version

    def sleep(self) -> None:
        """Free the key-value cache, and on a GPU move the weights to the host; ``load_weights`` still works."""
        self._check_open()
        self._cache.release()
        self._streaming.set_aside()
        if self._device.type != "cpu" and not self._asleep:
            self._model.module.to("cpu")
            torch.cuda.empty_cache()
        self._asleep = True

    def wake(self) -> None:
        """Bring the weights back; the cache returns with the next ``generate``."""
        self._check_open()
        if self._asleep:
            self._model.module.to(self._device)
        self._asleep = False

    def close(self) -> None:
        """Free the cache and the weights."""
        self._cache.release()
        self._streaming.set_aside()
        self._model.module.to("meta")
        self._unusable = _CLOSED

    def _check_usable(self, call: str) -> None:
        if self._unusable:
            raise RunError(self._unusable)
        if self._asleep:
            raise RunError(said("the engine sleeps; expected wake() before {call}", call=call))

    def _check_requests(self, requests: Sequence[Request]) -> None:
        check_requests(requests, max_length=self._max_length, vocab_size=self._model.vocab_size)
        for index, request in enumerate(requests):
            if problem := self._model.problem(request):
                raise RunError(said("request {index}: {problem}", index=index, problem=problem))

    def _check_open(self) -> None:
        if self._unusable == _CLOSED:
            raise RunError(_CLOSED)


_CLOSED = "the engine is closed"


def _usable(device: torch.device | str) -> torch.device:
    chosen = torch.device(device)
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise RunError(
            said(
                "device {device}; this machine has no GPU that torch {version} can use",
                device=device,
                version=torch.__version__,
            )
        )
    return chosen


def _max_length(wanted: int | None, positions: int | None, model_path: str) -> int:
    if wanted is None:
        if positions is None:
            raise RunError(
                said("{model_path} does not state its context length", model_path=model_path),
                hint="set model.max_context_tokens to a number of tokens",
            )
        return positions
    if positions is not None and wanted > positions:
        raise RunError(
            said(
                "model.max_context_tokens is {wanted}, but {model_path} has {positions} positions",
                wanted=wanted,
                model_path=model_path,
                positions=positions,
            ),
            hint=said(
                "set it to at most {positions}, or extend the positions with model.rope.scaling", positions=positions
            ),
        )
    if wanted < 2:
        raise RunError(
            said(
                "model.max_context_tokens is {wanted}; expected at least 2, a prompt token and a response token",
                wanted=wanted,
            )
        )
    return wanted
