"""What is streamed is what one call would have given: whatever joins beside it, is given up, or changes under way."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from transformers import AutoModelForCausalLM

from rlctl.common.errors import RunError
from rlctl.runtime.rollout.interface import Finished
from rlctl.runtime.rollout.transformers import TransformersEngine
from rlctl.runtime.types import Request, Sampling

from .conftest import VOCAB, MakeModel
from .test_transformers import GREEDY, prompts, upstream_log_probs

STOPS = tuple(range(6))


def requests(number: int, *, longest: int = 24, **sampling: float) -> dict[int, Request]:
    """Prompts of 1 to 17 tokens, responses of up to ``longest``, which end by chance."""
    lengths = [1 + 5 * index % 17 for index in range(number)]
    kinds = [
        Sampling(longest, stop_token_ids=STOPS, **sampling),  # type: ignore[arg-type]
        Sampling(longest // 2, temperature=0.7, top_k=9, stop_token_ids=STOPS),
    ]
    return {10 * i: Request(p, kinds[i % 2], 1 + i % 3, seed=i) for i, p in enumerate(prompts(lengths, seed=number))}


def work(engine: TransformersEngine) -> list[Finished]:
    """One step of decoding."""
    return engine.poll(0.0)


def tokens(found: list[Finished]) -> dict[tuple[int, int], tuple[int, ...]]:
    return {(each.ticket, each.index): each.response.token_ids for each in found}


def at_once(engine: TransformersEngine, asked: dict[int, Request]) -> dict[tuple[int, int], tuple[int, ...]]:
    answers = engine.generate(list(asked.values()))
    return {
        (ticket, asked[ticket].first + j): response.token_ids
        for ticket, group in zip(asked, answers, strict=True)
        for j, response in enumerate(group)
    }


@pytest.mark.parametrize(("rows", "penalty"), [(64, 1.0), (4, 1.0), (8, 1.3)])
def test_requests_that_join_one_by_one_are_answered_as_in_one_call(
    make_model: MakeModel, rows: int, penalty: float
) -> None:
    engine = TransformersEngine(make_model("qwen2"), max_batch_rows=rows)
    asked = requests(12, repetition_penalty=penalty)
    found: list[Finished] = []
    for ticket, request in asked.items():
        engine.submit({ticket: request})
        for _ in range(3):
            found += work(engine)
    between = engine.generate([Request((5, 6), GREEDY, 1, seed=1)])
    found += engine.poll(60.0)
    assert tokens(found) == at_once(engine, asked)
    assert between == engine.generate([Request((5, 6), GREEDY, 1, seed=1)]), "a call in between disturbs nobody"
    assert engine.poll(1.0) == []


def test_a_short_response_waits_for_no_long_one(make_model: MakeModel) -> None:
    engine = TransformersEngine(make_model("qwen2"))
    engine.submit({0: Request((1, 2), Sampling(40), 1, seed=0), 1: Request((3,), Sampling(3), 1, seed=0)})
    found = work(engine) + work(engine) + work(engine)
    assert [(each.ticket, len(each.response.token_ids)) for each in found] == [(1, 3)]
    assert [len(each.response.token_ids) for each in engine.poll(60.0)] == [40]


def test_a_group_may_be_split_over_requests(make_model: MakeModel) -> None:
    engine = TransformersEngine(make_model("qwen2"))
    whole = Request((4, 5, 6), Sampling(9), 3, seed=7)
    engine.submit({j: dataclasses.replace(whole, n=1, first=j) for j in range(3)})
    found = {each.index: each.response for each in engine.poll(60.0)}
    (answers,) = engine.generate([whole])
    assert [found[j].token_ids for j in range(3)] == [each.token_ids for each in answers]
    ((third,),) = engine.generate([dataclasses.replace(whole, n=1, first=2)])
    assert third.token_ids == answers[2].token_ids


def test_what_is_given_up_ends_and_others_go_on(make_model: MakeModel) -> None:
    engine = TransformersEngine(make_model("llama"), max_batch_rows=8)
    asked = requests(9)
    engine.submit(asked)
    found = work(engine) + work(engine)
    engine.abort([0, 30, 80, 999])
    found += engine.poll(60.0)
    kept = {key: value for key, value in at_once(engine, asked).items() if key[0] not in (0, 30, 80)}
    assert {key: value for key, value in tokens(found).items() if key[0] not in (0, 30, 80)} == kept


def test_responses_go_on_under_new_weights_and_say_so(make_model: MakeModel) -> None:
    """The tokens before the change are the old weights', with their log-probs; those after it the new ones'."""
    folder = make_model("qwen2")
    engine = TransformersEngine(folder, weight_version=3)
    old = AutoModelForCausalLM.from_pretrained(folder)
    new = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        for parameter in new.parameters():
            parameter.mul_(1.3)
    asked = {0: Request((1, 2, 3), Sampling(12), 1, seed=5), 1: Request((9,) * 7, Sampling(2), 1, seed=6)}
    engine.submit(asked)
    found = {each.ticket: each.response for _ in range(4) for each in work(engine)}
    engine.load_weights(new.state_dict().items(), version=4)
    found |= {each.ticket: each.response for each in engine.poll(60.0)}
    assert (found[1].oldest_version, found[1].weight_version) == (3, 3)
    both = found[0]
    assert (both.oldest_version, both.weight_version, len(both.token_ids)) == (3, 4, 12)
    before, after = (upstream_log_probs(model, (1, 2, 3), both, 1.0) for model in (old, new))
    drawn = torch.tensor(both.log_probs)
    same = [torch.isclose(drawn, each, atol=1e-4) for each in (before, after)]
    changed = int(same[0].int().argmin())
    assert 1 <= changed <= 5
    assert bool(same[0][:changed].all())
    assert bool(same[1][changed:].all())


def test_sleep_keeps_what_is_under_way(make_model: MakeModel) -> None:
    engine = TransformersEngine(make_model("qwen2"))
    asked = requests(5)
    engine.submit(asked)
    found = work(engine) + work(engine)
    engine.sleep()
    with pytest.raises(RunError, match=r"sleeps; expected wake\(\) before poll"):
        engine.poll(1.0)
    engine.wake()
    assert tokens(found + engine.poll(60.0)) == at_once(engine, asked)


def test_a_request_that_cannot_be_answered_takes_none_with_it(make_model: MakeModel) -> None:
    engine = TransformersEngine(make_model("qwen2"))
    with pytest.raises(RunError, match="vocabulary"):
        engine.submit({0: Request((1,), GREEDY, 1, seed=0), 1: Request((VOCAB,), GREEDY, 1, seed=0)})
    assert engine.poll(1.0) == []
