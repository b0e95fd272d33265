"""What every rollout engine does, and the checks of a request that are the same for all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.types import Request, Response, Sampling


@dataclass(slots=True)
class TokensComputed:
    """Positions that went through the model's forward since the engine started."""

    prompt: int = 0
    """Prompt tokens; a prompt counts once, however many responses it has."""
    decoded: int = 0
    """Response tokens fed back: T - 1 for a response of T tokens, as its last one is never read."""
    padding: int = 0
    """Positions that only fill a batch of prompts up to its longest."""

    @property
    def total(self) -> int:
        """Every position computed."""
        return self.prompt + self.decoded + self.padding


@dataclass(frozen=True, slots=True)
class Finished:
    """A response to a submitted request."""

    ticket: int
    """The request's, as it was submitted."""
    index: int
    """Place of the response in its group: ``request.first`` and above."""
    response: Response


class RolloutEngine(Protocol):
    """A model that answers prompts and takes new weights in place. A plain object: whatever hosts it is not its business.

    It answers in two ways: ``generate`` answers all requests before it returns; what is given to ``submit`` is worked on in
    ``poll``, response by response, and further requests may be submitted meanwhile. What is under way outlives all other
    calls but ``abort`` and ``close``: after new weights, and after ``sleep`` and ``wake``, responses go on from the tokens
    they have, with the weights of then (their keys and values computed anew); ``generate`` neither counts nor ends them.
    """

    weight_version: int
    """The version of the weights loaded last."""
    tokens_computed: TokensComputed
    """What was computed since the start."""

    @property
    def limits(self) -> tuple[int, int]:
        """Prompt and response tokens together, at most, and how many token ids there are."""
        ...

    def generate(self, requests: Sequence[Request]) -> list[list[Response]]:
        """Answer each request with its ``n`` responses, in the order of the requests.

        Raises:
            RunError: a request that the engine cannot answer as it asks; nothing was generated.
        """
        ...

    def submit(self, requests: Mapping[int, Request]) -> None:
        """Take requests to work on, each under a ticket of its own; returns at once.

        Raises:
            RunError: a request that the engine cannot answer as it asks; none was taken.
        """
        ...

    def poll(self, seconds: float) -> list[Finished]:
        """Work on what was submitted for about ``seconds``, less where nothing is left of it; return what has finished.

        Raises:
            RunError: the weights compute no finite numbers, or the engine sleeps or is closed.
        """
        ...

    def abort(self, tickets: Collection[int]) -> None:
        """Give up what is under way for these requests; tickets of which nothing is under way are passed over."""
        ...

    def begin_weights(self, version: int) -> None:
        """Be ready for all weights of a version. From here to ``commit_weights`` the engine answers nothing, nor after a
        failure in between, as it holds weights of two versions, until a whole load succeeds."""
        ...

    def add_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Overwrite a part of the weights in place, under their Hugging Face names.

        Raises:
            RunError: a tensor unknown, sent twice or of another shape.
        """
        ...

    def commit_weights(self) -> None:
        """All have come: answer with them.

        Raises:
            RunError: a tensor is missing.
        """
        ...

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], *, version: int) -> None:
        """The three in one, where all weights are at hand."""
        ...

    def sleep(self) -> None:
        """Give the device's memory to whoever shares it."""
        ...

    def wake(self) -> None:
        """Take the memory back; a no-op when awake."""
        ...

    def close(self) -> None:
        """End the engine; it answers nothing afterwards. A no-op when closed."""
        ...


@runtime_checkable
class ShowsTokens(Protocol):
    """An engine that shows responses while it generates them."""

    def tokens_so_far(self, tickets: Collection[int]) -> dict[int, tuple[int, ...]]:
        """The tokens of responses under way, by ticket, of requests for one response each."""
        ...


SMALLEST_TEMPERATURE = 1e-6
REPETITION_PENALTIES = (0.01, 100.0)
"""Beyond these, logits overflow, and the other requests of a batch fail with them."""


def check_requests(requests: Sequence[Request], *, max_length: int, vocab_size: int) -> None:
    """Refuse requests that no engine of this model can answer.

    Args:
        requests: what was asked.
        max_length: prompt and response tokens together, at most.
        vocab_size: token ids are below it.

    Raises:
        RunError: names the request by its place, what it asks, and what is possible.
    """
    for index, request in enumerate(requests):
        problem = _problem(request, max_length=max_length, vocab_size=vocab_size)
        if problem:
            raise RunError(said("request {index}: {problem}", index=index, problem=problem))


def _problem(request: Request, *, max_length: int, vocab_size: int) -> str:
    prompt, sampling = len(request.token_ids), request.sampling
    if not prompt:
        return "the prompt is empty; expected at least 1 token"
    if request.n < 1:
        return said("n is {n}; expected at least 1 response", n=request.n)
    if prompt + sampling.max_tokens > max_length:
        return said(
            "{prompt} prompt tokens + max_tokens {max_tokens} = {value}; the engine's max_length is {max_length}",
            prompt=prompt,
            max_tokens=sampling.max_tokens,
            value=prompt + sampling.max_tokens,
            max_length=max_length,
        )
    outside = [token for token in (*request.token_ids, *sampling.stop_token_ids) if not 0 <= token < vocab_size]
    if outside:
        return said(
            "token id {outside}; the model's vocabulary has ids 0 to {value}", outside=outside[0], value=vocab_size - 1
        )
    if sampling.min_tokens and not sampling.ignore_eos and len(set(sampling.stop_token_ids)) == vocab_size:
        return said(
            "min_tokens is {min_tokens} and every token of the vocabulary is a stop token, so none can be sampled",
            min_tokens=sampling.min_tokens,
        )
    return _sampling_problem(sampling)


def _sampling_problem(sampling: Sampling) -> str:
    if sampling.max_tokens < 1:
        return said("max_tokens is {max_tokens}; expected at least 1", max_tokens=sampling.max_tokens)
    if not 0 <= sampling.min_tokens <= sampling.max_tokens:
        return said(
            "min_tokens is {min_tokens}; expected 0 to max_tokens ({max_tokens})",
            min_tokens=sampling.min_tokens,
            max_tokens=sampling.max_tokens,
        )
    if sampling.temperature != 0 and not SMALLEST_TEMPERATURE <= sampling.temperature < float("inf"):
        return said(
            "temperature is {temperature}; expected 0 (greedy), or {least:g} or above",
            temperature=sampling.temperature,
            least=SMALLEST_TEMPERATURE,
        )
    if not 0 < sampling.top_p <= 1:
        return said("top_p is {top_p}; expected above 0 and at most 1", top_p=sampling.top_p)
    if sampling.top_k != -1 and sampling.top_k < 1:
        return said("top_k is {top_k}; expected -1 (off) or at least 1", top_k=sampling.top_k)
    if not 0 <= sampling.min_p <= 1:
        return said("min_p is {min_p}; expected 0 (off) to 1", min_p=sampling.min_p)
    if "" in sampling.stop:
        return "a stop string is empty; expected at least 1 character"
    least, most = REPETITION_PENALTIES
    if not least <= sampling.repetition_penalty <= most:
        return said(
            "repetition_penalty is {repetition_penalty}; expected {least:g} to {most:g} (1 is off)",
            repetition_penalty=sampling.repetition_penalty,
            least=least,
            most=most,
        )
    return ""
