"""The built-in engine answers prompts with images: token for token what Transformers generates, with the log-probs of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText

from rlctl.common.errors import RunError
from rlctl.runtime.rollout.transformers import TransformersEngine
from rlctl.runtime.types import Request, Response, Sampling
from tests.runtime.images import KINDS, make_vision_model
from tests.runtime.rollout.conftest import MakeModel
from tests.runtime.train.test_images import IMAGE, expected_log_probs, make_samples, sample_like

TOKENS = 12
RESERVED = [6, 7]
"""The tokens of images and videos."""


def one_fast(fast: str) -> list[Any]:
    """All kinds of models; those but one take long together."""
    return [kind if kind == fast else pytest.param(kind, marks=pytest.mark.soak) for kind in KINDS]


def asked(sampling: Sampling, n: int = 1) -> list[Request]:
    """The prompts of the training tests: none, one or two images."""
    requests = []
    for seed, sample in enumerate(make_samples()):
        length = 2 + int(sample.token_ids[2:].eq(IMAGE).nonzero()[-1]) + 3 if sample.inputs else 4
        requests.append(Request(tuple(sample.token_ids[:length].tolist()), sampling, n, seed, inputs=sample.inputs))
    return requests


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    torch.set_num_threads(1)
    return {kind: make_vision_model(tmp_path_factory.mktemp(kind), kind, seed=4) for kind in KINDS}


def generated(folder: Path, requests: list[Request]) -> list[list[int]]:
    model = AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="eager")
    found = []
    for request in requests:
        ids = torch.tensor([request.token_ids])
        types = {"mm_token_type_ids": (ids == IMAGE).int()} if request.inputs else {}
        whole = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            **request.inputs,
            **types,
            max_new_tokens=TOKENS,
            min_new_tokens=TOKENS,
            do_sample=False,
            suppress_tokens=RESERVED,
            pad_token_id=0,
        )
        found.append(whole[0, ids.shape[1] :].tolist())
    return found


@pytest.mark.parametrize("kind", one_fast("qwen2_vl"))
def test_greedy_responses_are_those_of_transformers(folders: dict[str, Path], kind: str) -> None:
    requests = asked(Sampling(max_tokens=TOKENS, min_tokens=TOKENS, temperature=0, stop_token_ids=(1,)))
    answers = TransformersEngine(str(folders[kind]), max_batch_rows=3).generate(requests)
    expected = generated(folders[kind], requests)
    assert [list(group[0].token_ids) for group in answers] == expected


def check_log_probs(folder: Path, requests: list[Request], answers: list[list[Response]]) -> None:
    samples = [
        sample_like(r.token_ids, each.token_ids, r.inputs)
        for r, group in zip(requests, answers, strict=True)
        for each in group
    ]
    reported = [torch.tensor(each.log_probs) for group in answers for each in group]
    for mine, theirs in zip(reported, expected_log_probs(folder, samples), strict=True):
        torch.testing.assert_close(mine, theirs[-len(mine) :], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", one_fast("qwen3_vl"))
def test_log_probs_are_those_of_one_forward_pass(folders: dict[str, Path], kind: str) -> None:
    engine = TransformersEngine(str(folders[kind]), max_batch_rows=5)
    requests = asked(Sampling(max_tokens=TOKENS, stop_token_ids=(1, 20)), n=3)
    answers = engine.generate(requests)
    check_log_probs(folders[kind], requests, answers)
    assert not set(RESERVED) & {token for group in answers for each in group for token in each.token_ids}
    assert engine.tokens_computed.prompt == sum(len(request.token_ids) for request in requests)


def test_responses_to_streamed_requests_are_the_same(folders: dict[str, Path]) -> None:
    requests = asked(Sampling(max_tokens=TOKENS, stop_token_ids=(1, 20)), n=2)
    twins = [
        requests[0],
        Request(
            requests[0].token_ids,
            requests[0].sampling,
            2,
            0,
            inputs={**requests[0].inputs, "pixel_values": 1 + requests[0].inputs["pixel_values"]},
        ),
    ]
    requests += twins
    engine = TransformersEngine(str(folders["qwen2_vl"]), max_batch_rows=4)
    expected = engine.generate(requests)
    engine.submit(dict(enumerate(requests)))
    found = {}
    while len(found) < 2 * len(requests):
        found |= {(each.ticket, each.index): each.response for each in engine.poll(1)}
    for ticket, group in enumerate(expected):
        for index, response in enumerate(group):
            assert found[ticket, index].token_ids == response.token_ids
    assert expected[-1] != expected[-2], "another image, and the same response"


def test_what_cannot_be_read_is_refused(folders: dict[str, Path], make_model: MakeModel) -> None:
    request = asked(Sampling(max_tokens=4))[0]
    engine = TransformersEngine(str(folders["qwen2_vl"]))
    with pytest.raises(RunError, match="request 0: 4 image tokens, but its images need 6"):
        engine.generate([Request(request.token_ids[:7], request.sampling, 1, 0, inputs=request.inputs)])
    with pytest.raises(RunError, match=r"request 0: the prompt has images, but .* reads only text"):
        TransformersEngine(str(make_model("qwen2"))).generate([request])
