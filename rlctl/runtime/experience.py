"""From prompts to training samples: what a step's responses become before the policy is trained on them.

prompts ──requests──▶ rollout ──▶ responses ──▶ rewards ──▶ samples ──add_advantages──▶ samples with advantages
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rlctl.config import Config
from rlctl.config.sections.data import EvaluationSource
from rlctl.runtime.algorithms.advantages import estimate
from rlctl.runtime.algorithms.kl import KL_ESTIMATORS
from rlctl.runtime.seeds import derive_seed
from rlctl.runtime.types import Prompt, Request, Response, Sample, Sampling

_NOT_OPTIONS = {"whiten", "kl_order"}
"""Settings of an advantage that its function does not read: ``estimate`` whitens, and refuses another order."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A prompt with its group of responses and their rewards."""

    prompt: Prompt
    responses: Sequence[Response]
    rewards: Sequence[float]


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


def requests_for(prompts: Sequence[Prompt], sampling: Sampling, *, n: int, seed: int, purpose: str) -> list[Request]:
    """One request a prompt; its random stream is named by seed, purpose, place in the batch and row of the data set."""
    return [
        Request(prompt.token_ids, sampling, n, derive_seed(seed, purpose, place, prompt.index))
        for place, prompt in enumerate(prompts)
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


def add_advantages(samples: Sequence[Sample], answered: Sequence[Answered], config: Config) -> None:
    """Write the column ``advantages`` of every sample, by the estimator and the KL in the reward that the config names."""
    lengths = torch.tensor([int(sample.mask.sum()) for sample in samples])
    groups = torch.tensor([group for group, item in enumerate(answered) for _ in item.responses])
    rewards = torch.tensor([reward for item in answered for reward in item.rewards], dtype=torch.float32)
    advantage = config.algorithm.advantage
    options = {key: value for key, value in dataclasses.asdict(advantage).items() if key not in _NOT_OPTIONS}
    result = estimate(
        advantage.choice,
        rewards,
        lengths,
        groups=groups,
        token_penalties=_reward_kl(samples, config),
        whiten=getattr(advantage, "whiten", None),
        **options,
    )
    for sample, tokens in zip(samples, result.tokens.split(lengths.tolist()), strict=True):
        sample.columns["advantages"] = torch.zeros(len(sample)).masked_scatter(sample.mask, tokens)


def _reward_kl(samples: Sequence[Sample], config: Config) -> torch.Tensor | None:
    """KL to the reference times its coefficient, [N] over the counted tokens; None where the reward has no KL."""
    kl = config.algorithm.kl_in_reward
    if kl is None or kl.coefficient == 0:
        return None
    old = torch.cat([sample.columns["old_log_probs"][sample.mask] for sample in samples])
    reference = torch.cat([sample.columns["reference_log_probs"][sample.mask] for sample in samples])
    return kl.coefficient * KL_ESTIMATORS[kl.estimator](old, reference)
