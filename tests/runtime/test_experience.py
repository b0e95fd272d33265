"""Responses become samples whose columns are aligned with their tokens, and advantages as the estimator's paper has them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlctl.config import Config, config_from
from rlctl.runtime.experience import (
    Answered,
    add_advantages,
    evaluation_sampling,
    requests_for,
    sample_of,
    samples_of,
    training_sampling,
)
from rlctl.runtime.types import Prompt, Response, Sampling

PROMPT = Prompt(index=3, source="sums", token_ids=(1, 40, 41), text="12+34=", answer="46")
OTHER = Prompt(index=8, source="sums", token_ids=(1,), text="", answer="")


def response(*tokens: int, log_probs: tuple[float, ...] | None = None) -> Response:
    return Response(tokens, log_probs or (-0.5,) * len(tokens), "stop", 0)


def config(**algorithm: Any) -> Config:
    return config_from({"algorithm": algorithm})


def test_a_sample_is_prompt_and_response_with_the_response_counted() -> None:
    sample = sample_of(PROMPT, response(7, 2, log_probs=(-0.25, -1.5)))
    assert sample.token_ids.tolist() == [1, 40, 41, 7, 2]
    assert sample.mask.tolist() == [False, False, False, True, True]
    assert sample.columns["rollout_log_probs"].tolist() == [0.0, 0.0, 0.0, -0.25, -1.5]


def test_advantages_of_grpo_worked_by_hand() -> None:
    """Rewards 1, 0, 0, 1 of a group: mean 1/2, and standard deviation sqrt(1/3) with n - 1 (torch.std, as verl and TRL)."""
    first = Answered(PROMPT, [response(7, 2), response(8), response(9), response(2)], [1.0, 0.0, 0.0, 1.0])
    equal = Answered(OTHER, [response(7), response(8)], [1.0, 1.0])
    samples = samples_of([first, equal], train_on_cut_prompts=True)
    add_advantages(samples, [first, equal], config(advantage={"name": "grpo", "epsilon": 1e-9}))
    each = 0.5 / (1 / 3) ** 0.5
    expected = [[0, 0, 0, each, each], [0, 0, 0, -each], [0, 0, 0, -each], [0, 0, 0, each]]
    for sample, values in zip(samples[:4], expected, strict=True):
        assert sample.columns["advantages"].tolist() == pytest.approx(values)
    assert not torch.cat([sample.columns["advantages"].nan_to_num() for sample in samples[4:]]).any()


def test_a_kl_in_the_reward_of_reinforce_is_taken_from_every_token_after_it() -> None:
    """With k1 and no discount, a token's return is the reward minus the coefficient times the log ratios from it on."""
    answered = [Answered(OTHER, [response(5, 6)], [1.0])]
    samples = samples_of(answered, train_on_cut_prompts=True)
    samples[0].columns["old_log_probs"] = torch.tensor([0.0, -0.5, -1.0])
    samples[0].columns["reference_log_probs"] = torch.tensor([0.0, -0.7, -0.6])
    kl = {"estimator": "k1", "coefficient": 0.1}
    chosen = {"name": "reinforce", "gamma": 1.0, "whiten": False}
    add_advantages(samples, answered, config(advantage=chosen, kl_in_reward=kl))
    ratios = [-0.5 + 0.7, -1.0 + 0.6]
    expected = [0.0, 1.0 - 0.1 * sum(ratios), 1.0 - 0.1 * ratios[1]]
    assert samples[0].columns["advantages"].tolist() == pytest.approx(expected)


def test_every_request_has_a_stream_of_its_own() -> None:
    sampling = Sampling(max_tokens=4)
    twice = [PROMPT, OTHER, PROMPT]
    seeds = {r.seed for step in (1, 2) for r in requests_for(twice, sampling, n=2, seed=42, purpose=f"grpo:{step}")}
    assert len(seeds) == 6
    again = requests_for(twice, sampling, n=2, seed=42, purpose="grpo:1")
    assert {request.seed for request in again} < seeds
    assert [(request.token_ids, request.n) for request in again] == [((1, 40, 41), 2), ((1,), 2), ((1, 40, 41), 2)]


def test_sampling_comes_from_the_config() -> None:
    chosen = config_from(
        {
            "rollout": {
                "max_response_tokens": 9,
                "sampling": {
                    "temperature": 0.7,
                    "top_p": 0.9,
                    "top_k": 5,
                    "min_response_tokens": 2,
                    "repetition_penalty": 1.1,
                },
            },
            "data": {
                "eval": [
                    {"path": "a", "evaluation_sampling": {"temperature": 0.3, "top_p": 0.8, "top_k": 4}},
                    {"path": "b", "evaluation_sampling": {"max_response_tokens": 3}},
                ]
            },
        }
    )
    assert training_sampling(chosen, (2,)) == Sampling(9, 0.7, 0.9, 5, 2, 1.1, (2,))
    first, second = (evaluation_sampling(chosen, source, (2,)) for source in chosen.data.eval)
    assert first == Sampling(9, 0.3, 0.8, 4, stop_token_ids=(2,))
    assert (second.max_tokens, second.top_k) == (3, -1)
