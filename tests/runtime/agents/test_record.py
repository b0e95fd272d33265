"""Model calls become rows by exact token prefix; every generated token is trained on once, an inserted one never."""

from __future__ import annotations

import json
import pickle
from itertools import permutations
from typing import Any

import pytest
import torch

from rlctl.config import config_from
from rlctl.runtime.agents.record import NothingKept, Recorder
from rlctl.runtime.buffers.record import group_of, plain_of
from rlctl.runtime.experience.samples import RolloutGroup, samples_of
from rlctl.runtime.experience.shaping import Shaping
from rlctl.runtime.serialization.sequences import ResponseGroups
from rlctl.runtime.specs.experience import shaping_spec
from rlctl.runtime.types import Prompt, Response, Sample, trajectories_of
from rlctl.runtime.workers.sharding import mini_batches_of

PROMPT = Prompt(index=3, source="s", token_ids=(1, 2), text="")


def said(*tokens: int, version: int = 0) -> Response:
    return Response(tokens, tuple(-float(token) for token in tokens), "stop", version)


def recorded(*calls: tuple[tuple[int, ...], Response]) -> Response:
    recorder = Recorder()
    for prompt, response in calls:
        recorder.add(prompt, response)
    return recorder.trajectory(text="t", finish_reason="stop")


def samples(*responses: Response) -> list[Sample]:
    group = RolloutGroup(PROMPT, list(responses), [0.0] * len(responses))
    return samples_of([group], train_on_cut_prompts=True)


APPENDING = (((1, 2), said(3, 4)), ((1, 2, 3, 4, 9), said(5)))
SUMMARISING = (((1, 2), said(3, 4, version=1)), ((1, 9), said(5, 6, version=2)), ((1, 9, 5, 6, 8), said(7, version=2)))


def test_an_agent_that_appends_has_one_row() -> None:
    response = recorded(*APPENDING)
    (sample,) = samples(response)
    assert sample.token_ids.tolist() == [1, 2, 3, 4, 9, 5]
    assert sample.mask.tolist() == [False, False, True, True, False, True]
    assert sample.columns["rollout_log_probs"].tolist() == [0, 0, -3, -4, 0, -5]
    assert tuple(response.token_ids) == (3, 4, 5)
    assert response.counts == {"turns": 2, "inserted_tokens": 1}


def test_a_discarded_call_is_not_trained_on() -> None:
    recorder, calls = Recorder(), (*APPENDING, ((1, 7), said(8)), ((1, 2, 3, 4, 9, 5, 6), said(7)))
    for prompt, response in calls:
        recorder.add(prompt, response)
    for place in (0, 2):  # the start of a row, and all of another
        recorder.discard(calls[place][1])
    response = recorder.trajectory(text="t", finish_reason="stop")
    (sample,) = samples(response)
    assert sample.token_ids.tolist() == [1, 2, 3, 4, 9, 5, 6, 7]
    assert sample.mask.tolist() == [False, False, False, False, False, True, False, True]
    assert sample.columns["rollout_log_probs"].tolist() == [0, 0, 0, 0, 0, -5, 0, -7]
    assert response.counts["discarded_calls"] == 2
    recorder.check_kept()
    for place in (1, 3):
        recorder.discard(calls[place][1])
    with pytest.raises(NothingKept, match="all its 4 calls"):
        recorder.check_kept()


def test_a_discarded_start_leaves_room_for_the_one_sequence() -> None:
    recorder, first = Recorder("trajectory"), said(3, 4)
    recorder.add((1, 2), first)
    recorder.discard(first)
    recorder.add((1, 2), said(5))
    recorder.check_kept()
    (sample,) = samples(recorder.trajectory(text="t", finish_reason="stop"))
    assert sample.token_ids.tolist() == [1, 2, 5]


def test_an_agent_that_rewrites_its_context_has_a_row_for_each() -> None:
    response = recorded(*SUMMARISING)
    first, second = samples(response)
    assert first.token_ids.tolist() == [1, 2, 3, 4]
    assert second.token_ids.tolist() == [1, 9, 5, 6, 8, 7]
    assert second.mask.tolist() == [False, False, True, True, False, True]
    assert (response.weight_version, response.oldest_version) == (2, 1)
    assert [turn.number for turn in response.turns] == [0, 1, 2]


def test_a_branch_repeats_the_tokens_before_it_without_training_on_them_again() -> None:
    response = recorded(((1, 2), said(3)), ((1, 2, 3, 9), said(4)), ((1, 2, 3, 8), said(5)))
    first, second = samples(response)
    assert first.token_ids[first.mask].tolist() == [3, 4]
    assert second.token_ids.tolist() == [1, 2, 3, 8, 5]
    assert second.token_ids[second.mask].tolist() == [5]


@pytest.mark.parametrize("returned", permutations(range(3)))
def test_calls_at_the_same_time_make_the_same_rows_whatever_answer_comes_first(returned: tuple[int, ...]) -> None:
    calls = (((1, 2, 3, 4, 7), said(5)), ((1, 2, 3, 4, 8), said(6)), ((9,), said(7)))
    recorder = Recorder()
    assert recorder.begin() == 0
    recorder.add((1, 2), said(3, 4))
    assert [recorder.begin() for _ in (*calls, "given up")] == [1, 2, 3, 4]
    for place in returned:
        recorder.add(*calls[place])
    assert recorder.calls == 4
    recorder.give_up()
    response = recorder.trajectory(text="t", finish_reason="stop")
    assert tuple(response.token_ids) == (3, 4, 5, 7, 6)
    assert [(turn.number, turn.starts_row) for turn in response.turns] == [(0, True), (2, False), (1, True), (3, True)]


def test_a_single_call_is_the_sample_of_a_plain_response() -> None:
    plain, one = said(3, 4), recorded(((1, 2), said(3, 4)))
    (expected,), (found,) = samples(plain), samples(one)
    assert torch.equal(expected.token_ids, found.token_ids)
    assert torch.equal(expected.mask, found.mask)
    assert torch.equal(expected.columns["rollout_log_probs"], found.columns["rollout_log_probs"])


def test_buffers_and_processes_keep_a_trajectory() -> None:
    response = recorded(*SUMMARISING)
    group = RolloutGroup(PROMPT, [response, said(3)], [1.0, 0.0], [])
    assert group_of(json.loads(json.dumps(plain_of(group)))) == group

    ((again, _),) = pickle.loads(pickle.dumps(ResponseGroups([[response, said(3)]]), protocol=5))
    assert again == response


def test_rows_of_a_trajectory_are_numbered_together() -> None:
    made = samples(recorded(*SUMMARISING), recorded(*APPENDING), said(3))
    assert trajectories_of(made) == [0, 0, 1, 2]


def test_all_rows_of_a_trajectory_are_in_one_mini_batch() -> None:
    made = samples(recorded(*SUMMARISING), recorded(*APPENDING), recorded(*SUMMARISING))
    batch = config_from({"model": {"path": "m"}, "batch": {"mini_batch_responses": 2, "shuffle": True}}).batch
    parts = mini_batches_of(made, batch, seed=1, step=1)
    owners = trajectories_of(made)
    assert sorted(len({owners[index] for index in part}) for part in parts) == [1, 2]
    assert sorted(index for part in parts for index in part) == list(range(len(made)))


def shaped(advantage: dict[str, Any], responses: list[Response], rewards: list[float]) -> list[Sample]:
    config = config_from(
        {
            "model": {"path": "m"},
            "algorithm": {"advantage": advantage},
            "batch": {"responses_per_prompt": len(responses)},
        }
    )
    group = RolloutGroup(PROMPT, responses, rewards)
    made = samples_of([group], train_on_cut_prompts=True)
    Shaping.of(shaping_spec(config)).shape(made, [group])
    return made


def test_group_statistics_count_trajectories() -> None:
    """One of a row and one of ten: the mean is half the sum."""
    many = recorded(*(((1, 10 + place), said(3)) for place in range(10)))
    made = shaped({"type": "grpo", "normalize_by_std": False}, [said(3), many], [1.0, 0.0])
    assert len(made) == 11
    found = [sample.columns["advantages"][sample.mask].tolist() for sample in made]
    assert found == [[0.5]] + [[-0.5]] * 10


def test_discounting_skips_inserted_tokens() -> None:
    """A long observation changes no advantage."""
    long = recorded(((1, 2), said(3, 4)), ((1, 2, 3, 4, *range(20, 60)), said(5)))
    advantage = {"type": "reinforce", "gamma": 0.5}
    plain, observed = shaped(advantage, [said(3, 4, 5)], [1.0]), shaped(advantage, [long], [1.0])
    expected = plain[0].columns["advantages"][plain[0].mask]
    assert torch.equal(expected, observed[0].columns["advantages"][observed[0].mask])
    assert expected.tolist() == [0.25, 0.5, 1.0]
