"""What crosses to workers many at a time arrives as what was sent, in memory that may be written to."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
import torch

from rlctl.runtime.algorithms.aggregation import Totals
from rlctl.runtime.buffers.record import group_of, text_of
from rlctl.runtime.experience.samples import RolloutGroup
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.serialization.records import Records
from rlctl.runtime.serialization.sequences import ResponseGroups, SampleTuple, Values, shares_of
from rlctl.runtime.types import Numbers, Prompt, Response, Sample
from rlctl.runtime.workers.trainer import Part, shard_mini_batches

SINGLE, DOUBLE = (-0.5, -1.25), (-0.1, -1e-300)
"""Log-probs that float32 holds, and that it does not."""


def sent(value: Any, protocol: int = 5) -> Any:
    """As Ray hands it over: buffers beside the pickle, and read-only."""
    if protocol < 5:
        return pickle.loads(pickle.dumps(value, protocol))
    buffers: list[pickle.PickleBuffer] = []
    packed = pickle.dumps(value, protocol, buffer_callback=buffers.append)
    return pickle.loads(packed, buffers=[bytes(buffer.raw()) for buffer in buffers])


def sample(first: int, length: int) -> Sample:
    ids = torch.arange(first, first + length)
    return Sample(ids, ids > first, {"advantages": ids / 7, "old_log_probs": -ids.float()})


def equal(one: Sample, other: Sample) -> bool:
    same = torch.equal(one.token_ids, other.token_ids) and torch.equal(one.mask, other.mask)
    return same and all(torch.equal(one.columns[n], other.columns[n]) for n in {*one.columns, *other.columns})


@pytest.mark.parametrize("protocol", [4, 5])
@pytest.mark.parametrize("drawn", [SINGLE, DOUBLE])
def test_responses_arrive_as_they_were(protocol: int, drawn: tuple[float, ...]) -> None:
    groups = ResponseGroups(
        [
            [Response((7, 2), drawn, "stop", 3, first_version=2, cut="x", text="ab")],
            [],
            [Response((9,), (-2.0,), "length", 3)],
        ]
    )
    got = sent(groups, protocol)
    assert [list(group) for group in got] == [list(group) for group in groups]
    assert isinstance(got[0][0].token_ids, Numbers)
    assert list(map(len, sent(ResponseGroups([[], []]), protocol))) == [0, 0]


def test_numbers_read_as_a_tuple_does() -> None:
    (group,) = sent(ResponseGroups([[Response((5, 6, 7), (-1.0, -2.0, -3.0), "stop", 0)]]))
    ids = group[0].token_ids
    assert (len(ids), ids[0], ids[-2:], list(ids), 6 in ids) == (3, 5, (6, 7), [5, 6, 7], True)
    assert ids == (5, 6, 7)
    assert hash(ids) == hash((5, 6, 7))
    assert type(copy.deepcopy(ids)) is type(pickle.loads(pickle.dumps(ids))) is tuple


def test_a_group_that_has_crossed_is_written_down_in_numbers() -> None:
    (responses,) = sent(ResponseGroups([[Response((5, 6), DOUBLE, "stop", 0, text="a")]]))
    group = RolloutGroup(Prompt(0, "s", (1,), "t"), list(responses), [1.0], [Score(1.0)])
    assert group_of(json.loads(text_of(group))) == group


def test_shares_laid_end_to_end_hold_their_own_samples() -> None:
    samples = [sample(10 * index, 2 + index) for index in range(5)]
    split = [[3, 0], [], [4, 1, 2]]
    for part, share in zip(split, shares_of(samples, split), strict=True):
        got = sent(share)
        assert all(equal(one, samples[index]) for one, index in zip(got, part, strict=True))
        assert all(one.token_ids.dtype == torch.int64 for one in got)
        for each in got:
            each.columns["advantages"].fill_(0)
        assert not share or len(pickle.dumps(share, 5)) == len(pickle.dumps(SampleTuple(share), 5))


def test_columns_that_no_worker_reads_stay_here() -> None:
    samples = [sample(10 * index, 2 + index) for index in range(3)]
    first, second = map(sent, shares_of(samples, [[2], [0, 1]], with_columns=False))
    for one, other in zip([*second, *first], samples, strict=True):
        assert torch.equal(one.token_ids, other.token_ids)
        assert torch.equal(one.mask, other.mask)
        assert not one.columns
        assert other.columns


def test_samples_with_other_columns_are_shared_out_too() -> None:
    samples = [sample(0, 3), Sample(torch.arange(4), torch.arange(4) > 1)]
    first, second = map(sent, shares_of(samples, [[1], [0]]))
    assert equal(first[0], samples[1])
    assert equal(second[0], samples[0])


def test_a_sample_of_two_epochs_is_sent_once() -> None:
    samples = [sample(10 * index, 400) for index in range(3)]
    parts = [Part([2, 1], Totals(5, 2), [0, 1], 7), Part([1], Totals(4, 1), [0], 8)]
    (shares,) = shard_mini_batches(samples, [[part] for part in parts], 1)
    got = list(sent(shares))
    assert [(each.totals, list(each.places), each.number) for each in got] == [
        (Totals(5, 2), [0, 1], 7),
        (Totals(4, 1), [0], 8),
    ]
    assert equal(got[0].samples[0], samples[2])
    assert got[0].samples[1] is got[1].samples[0]
    assert equal(got[1].samples[0], samples[1])


def test_values_of_several_workers_are_one() -> None:
    parts = [Values.of([torch.arange(3.0), torch.zeros(0)]), Values.of([]), Values.of([torch.arange(2.0)])]
    found = list(Values.joined([sent(part) for part in parts]))
    assert [each.tolist() for each in found] == [[0, 1, 2], [], [0, 1]]


def test_records_arrive_as_they_were() -> None:
    scores = Records([Score(1.0, {"a": 1.0}, True), Score(0.5, error="why")])
    assert sent(scores) == scores
    assert sent(Records()) == ()
