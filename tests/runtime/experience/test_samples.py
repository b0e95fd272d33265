"""Responses become samples whose columns are aligned with their tokens."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.config import config_from
from rlctl.runtime.experience.samples import (
    RolloutGroup,
    check_own_sampling,
    evaluation_sampling,
    requests_for,
    samples_of,
    training_sampling,
)
from rlctl.runtime.types import Prompt, Response, Sampling

PROMPT = Prompt(index=3, source="sums", token_ids=(1, 40, 41), text="12+34=", answer="46")
OTHER = Prompt(index=8, source="sums", token_ids=(1,), text="", answer="")


def response(*tokens: int, log_probs: tuple[float, ...] | None = None) -> Response:
    return Response(tokens, log_probs or (-0.5,) * len(tokens), "stop", 0)


def test_a_sample_is_prompt_and_response_with_the_response_counted() -> None:
    answered = RolloutGroup(PROMPT, [response(7, 2, log_probs=(-0.25, -1.5))], [1.0])
    (sample,) = samples_of([answered], train_on_cut_prompts=True)
    assert sample.token_ids.tolist() == [1, 40, 41, 7, 2]
    assert sample.mask.tolist() == [False, False, False, True, True]
    assert sample.columns["rollout_log_probs"].tolist() == [0.0, 0.0, 0.0, -0.25, -1.5]


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
                    {"path": "b", "evaluation_sampling": {"max_response_tokens": 1}},
                ]
            },
        }
    )
    assert training_sampling(chosen.rollout, (2,)) == Sampling(
        9, 0.7, 0.9, 5, min_tokens=2, repetition_penalty=1.1, stop_token_ids=(2,)
    )
    first, second = (evaluation_sampling(chosen.rollout, source, (2,)) for source in chosen.data.eval)
    assert first == Sampling(9, 0.3, 0.8, 4, min_tokens=2, repetition_penalty=1.1, stop_token_ids=(2,))
    assert (second.max_tokens, second.min_tokens, second.top_k) == (1, 1, -1)


def test_a_source_has_sampling_of_its_own() -> None:
    base = Sampling(max_tokens=8, top_k=5, stop_token_ids=(2,))
    own = {"temperature": 0.5, "top_k": None, "max_response_tokens": 4}
    prompts = [Prompt(0, "s", (1,), ""), Prompt(1, "s", (1,), "", extra={"sampling": own})]
    plain, changed = requests_for(prompts, base, n=2, seed=1, purpose="p")
    assert plain.sampling == base
    assert changed.sampling == Sampling(max_tokens=4, temperature=0.5, top_k=-1, stop_token_ids=(2,))
    greedy = requests_for(prompts, base, n=1, seed=1, purpose="p", greedy=True)
    assert [request.sampling.temperature for request in greedy] == [0.0, 0.0]
    later = requests_for(prompts[1:], base, n=2, seed=1, purpose="p", first=1)
    assert later == [changed]


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"temprature": 1.0}, r"data\.eval\[0\]\.sampling sets 'temprature'.*max_response_tokens"),
        ({"top_p": 3.0}, r"data\.eval\[0\]\.sampling: .*top_p.*3"),
        ({"max_response_tokens": "many"}, r"data\.eval\[0\]\.sampling: .*max_response_tokens"),
    ],
)
def test_sampling_of_a_source_is_checked_before_the_run(own: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        check_own_sampling(own, key="data.eval[0].sampling")
    check_own_sampling({"temperature": 0.5, "top_k": -1, "ignore_eos": True}, key="k")
