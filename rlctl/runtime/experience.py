"""From prompts to training samples: what a step's responses become before the policy is trained on them.

prompts ──requests──▶ rollout ──▶ responses ──▶ rewards ──▶ samples ──shaping──▶ samples with advantages
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rlctl.config import Config
from rlctl.config.sections.data import EvaluationSource
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.seeds import derive_seed
from rlctl.runtime.types import Prompt, Request, Response, Sample, Sampling


@dataclass(frozen=True, slots=True)
class Answered:
    """A prompt with its group of responses and their rewards."""

    prompt: Prompt
    responses: Sequence[Response]
    rewards: Sequence[float]
    scores: Sequence[Score] = ()
    """What the rewards are made of, one a response; empty where nothing asks."""
    greedy: tuple[Response, Score] | None = None
    """The greedy response, where the estimator compares with it."""


def training_sampling(config: Config, stop_token_ids: tuple[int, ...]) -> Sampling:
    """How training responses are drawn."""
    sampling = config.rollout.sampling
    return Sampling(
        max_tokens=config.rollout.max_response_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k or -1,
        min_tokens=sampling.min_response_tokens,
        repetition_penalty=sampling.repetition_penalty,
        stop_token_ids=stop_token_ids,
        ignore_eos=sampling.ignore_eos,
    )


def evaluation_sampling(config: Config, source: EvaluationSource, stop_token_ids: tuple[int, ...]) -> Sampling:
    """How responses of a held-out source are drawn."""
    sampling = source.evaluation_sampling
    return Sampling(
        max_tokens=sampling.max_response_tokens or config.rollout.max_response_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k or -1,
        stop_token_ids=stop_token_ids,
    )


def requests_for(
    prompts: Sequence[Prompt], sampling: Sampling, *, n: int, seed: int, purpose: str, first: int = 0
) -> list[Request]:
    """One request a prompt; its random stream is named by seed, purpose, place in the batch and row of the data set.

    ``first`` is the place of the first prompt.
    """
    return [
        Request(prompt.token_ids, sampling, n, derive_seed(seed, purpose, place, prompt.index))
        for place, prompt in enumerate(prompts, first)
    ]


def sample_of(prompt: Prompt, response: Response, *, trained: bool = True) -> Sample:
    """The training sequence of a response: prompt and response tokens, the response's counted by the loss if ``trained``."""
    prompt_length, length = len(prompt.token_ids), len(prompt.token_ids) + len(response.token_ids)
    log_probs = torch.zeros(length)
    log_probs[prompt_length:] = torch.tensor(response.log_probs)
    return Sample(
        token_ids=torch.tensor((*prompt.token_ids, *response.token_ids), dtype=torch.int64),
        mask=(torch.arange(length) >= prompt_length) & trained,
        columns={"rollout_log_probs": log_probs},
    )


def samples_of(answered: Sequence[Answered], *, train_on_cut_prompts: bool) -> list[Sample]:
    """The training sequences of a step, group after group."""
    return [
        sample_of(item.prompt, response, trained=train_on_cut_prompts or not item.prompt.extra.get("truncated"))
        for item in answered
        for response in item.responses
    ]
