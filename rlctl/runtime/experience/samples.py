"""From prompts to training samples: what a step's responses become before the policy is trained on them.

prompts ──requests──▶ rollout ──▶ responses ──▶ rewards ──▶ samples ──shaping──▶ samples with advantages
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rlctl.common.errors import RunError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config import build_config
from rlctl.config.sections.data import EvaluationSource
from rlctl.config.sections.rollout import Rollout
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.seeds import derive_seed
from rlctl.runtime.serialization.sequences import array_of
from rlctl.runtime.types import Prompt, Request, Response, Sample, Sampling


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """A prompt with its group of responses and their rewards."""

    prompt: Prompt
    responses: Sequence[Response]
    rewards: Sequence[float]
    scores: Sequence[Score] = ()
    """What the rewards are made of, one a response; empty where nothing asks."""
    greedy: tuple[Response, Score] | None = None
    """The greedy response, where the estimator compares with it."""
    draw: int | None = None
    """The number of its prompt among all that the stage draws, the same when drawn again; None where groups come in order."""


def training_sampling(rollout: Rollout, stop_token_ids: tuple[int, ...]) -> Sampling:
    """How training responses are drawn."""
    sampling = rollout.sampling
    return Sampling(
        max_tokens=rollout.max_response_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k or -1,
        min_p=sampling.min_p,
        min_tokens=sampling.min_response_tokens,
        repetition_penalty=sampling.repetition_penalty,
        stop_token_ids=stop_token_ids,
        stop=sampling.stop,
        include_stop=sampling.include_stop,
        ignore_eos=sampling.ignore_eos,
    )


def evaluation_sampling(rollout: Rollout, source: EvaluationSource, stop_token_ids: tuple[int, ...]) -> Sampling:
    """How responses of a held-out source are drawn, ``source.sampling`` aside (see ``requests_for``)."""
    sampling, training = source.evaluation_sampling, rollout.sampling
    longest = sampling.max_response_tokens or rollout.max_response_tokens
    return Sampling(
        max_tokens=longest,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k or -1,
        min_tokens=min(training.min_response_tokens, longest),
        repetition_penalty=training.repetition_penalty,
        stop_token_ids=stop_token_ids,
        ignore_eos=training.ignore_eos,
    )


OWN_SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "repetition_penalty": "repetition_penalty",
    "min_response_tokens": "min_tokens",
    "max_response_tokens": "max_tokens",
    "ignore_eos": "ignore_eos",
}
"""What a source may set of its own sampling, by the names of ``rollout.sampling``, and how ``Sampling`` calls it."""


def own_sampling(sampling: Sampling, own: Mapping[str, Any]) -> Sampling:
    """Sampling with what a source sets of its own; null or -1 for ``top_k`` is off."""
    if not own:
        return sampling
    values: dict[str, Any] = {
        OWN_SAMPLING[name]: -1 if name == "top_k" and value is None else value for name, value in own.items()
    }
    return dataclasses.replace(sampling, **values)


def check_own_sampling(own: Mapping[str, Any], *, key: str) -> None:
    """Check that a source sets what it can, to numbers in range.

    Raises:
        RunError: it does not; ``key`` is where the settings stand (``data.train[0].sampling``).
    """
    for name in own:
        if name not in OWN_SAMPLING:
            raise RunError(
                said("{key} sets {name!r}; it can set {names}", key=key, name=name, names=", ".join(OWN_SAMPLING)),
                hint=nearest(name, OWN_SAMPLING),
            )
    settings = {name: None if (name, value) == ("top_k", -1) else value for name, value in own.items()}
    limit = {name: settings.pop(name) for name in ("max_response_tokens",) if name in settings}
    _, findings = build_config({"rollout": {"sampling": settings, **limit}})
    if findings:
        raise RunError(said("{key}: {message}", key=key, message=findings[0].message), hint=findings[0].hint)


def requests_for(
    prompts: Sequence[Prompt],
    sampling: Sampling,
    *,
    n: int,
    seed: int,
    purpose: str,
    first: int = 0,
    greedy: bool = False,
) -> list[Request]:
    """One request a prompt, with the sampling of its source.

    Args:
        prompts: what is asked.
        sampling: of the run; ``Prompt.extra["sampling"]`` goes over it.
        n: responses to each.
        seed: with purpose, place in the batch and row of the data set, it names the random stream.
        purpose: of the responses.
        first: place of the first prompt.
        greedy: take the likeliest tokens, whatever the sampling says.
    """

    def drawn(prompt: Prompt) -> Sampling:
        own = own_sampling(sampling, prompt.extra.get("sampling", {}))
        return dataclasses.replace(own, temperature=0.0) if greedy else own

    return [
        Request(
            prompt.token_ids,
            drawn(prompt),
            n,
            derive_seed(seed, purpose, place, prompt.index),
            inputs=prompt.inputs,
            row=prompt,
        )
        for place, prompt in enumerate(prompts, first)
    ]


def samples_of(answered: Sequence[RolloutGroup], *, train_on_cut_prompts: bool) -> Sequence[Sample]:
    """The training sequences of a step, trajectory after trajectory: the loss counts the generated tokens.

    A completion is one sequence, prompt and response. A trajectory of an agent is one for each of its rows. All are parts of
    one tensor.
    """
    ids, log_probs = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
    runs, counted, responds, lengths, inputs, owners = [], [], [], [], [], []
    experts: list[torch.Tensor | None] = []
    number = 0
    for item in answered:
        prompt, trained = item.prompt, train_on_cut_prompts or not item.prompt.extra.get("truncated")
        prompt_ids = array_of(prompt.token_ids, np.int64)
        for response in item.responses:
            log_probs.append(array_of(response.log_probs, np.float32))
            for row in _rows_of(prompt_ids, response):
                ids += row
                sizes = [len(run) for run in row]
                runs += sizes
                counted += [False, trained and response.treatment != "mask"] * (len(row) // 2)
                responds += [False, True] * (len(row) // 2)
                lengths.append(sum(sizes))
                inputs.append(prompt.inputs)
                owners.append(number if response.turns else None)
                experts.append(None if response.turns else response.routed_experts)
            number += 1
    drawn = np.zeros(sum(runs), np.float32)
    drawn[np.repeat(responds, runs).astype(bool)] = np.concatenate(log_probs)
    flat = (np.concatenate(ids), np.repeat(counted, runs).astype(bool), drawn)
    rows = zip(*(torch.from_numpy(each).split(lengths) for each in flat), inputs, owners, experts, strict=True)
    return [
        Sample(token_ids, mask, {"rollout_log_probs": own}, inputs=images, trajectory=owner, routed_experts=chosen)
        for token_ids, mask, own, images, owner, chosen in rows
    ]


def _rows_of(prompt_ids: np.ndarray, response: Response) -> list[list[np.ndarray]]:
    """The tokens of each row of a trajectory: inserted, generated, inserted, generated, ..."""
    generated = array_of(response.token_ids, np.int64)
    if not response.turns:
        return [[prompt_ids, generated]]
    rows: list[list[np.ndarray]] = []
    begin = 0
    for turn in response.turns:
        if turn.starts_row:
            rows.append([])
        rows[-1] += [np.asarray(turn.inserted, np.int64), generated[begin : begin + turn.tokens]]
        begin += turn.tokens
    return rows
