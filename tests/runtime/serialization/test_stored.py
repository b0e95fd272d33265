"""Responses and samples that stay in Ray's object store read as those that come whole, and reach workers as the same numbers."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch

from rlctl.common.errors import RunError
from rlctl.config import config_from
from rlctl.runtime.experience.samples import RolloutGroup, samples_of
from rlctl.runtime.experience.shaping import Shaping
from rlctl.runtime.processes import calls
from rlctl.runtime.processes.group import RayGroup, RetryPolicy, spawn
from rlctl.runtime.processes.stored import StoredArrays
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.rollout.texts import decoded
from rlctl.runtime.serialization.sequences import (
    ResponseGroups,
    StoredShares,
    Values,
    joined_groups,
    joined_values,
    scattered,
    stored_of,
)
from rlctl.runtime.serialization.stored import StoredNumbers, places_of, texts_at
from rlctl.runtime.serialization.stored_samples import (
    StoredSample,
    StoredValues,
    copy_column,
    lengths_of,
    plain,
    stored_rows,
)
from rlctl.runtime.specs.experience import shaping_spec
from rlctl.runtime.train.losses import counted_tokens, totals_of
from rlctl.runtime.types import Prompt, Response, Sample, Turn
from rlctl.runtime.workers.trainer import Part, Shares, shard_mini_batches

pytestmark = pytest.mark.ray
PROMPTS = [
    Prompt(0, "s", (5, 6, 7), "five"),
    Prompt(1, "s", (8,), "eight", extra={"truncated": True}),
    Prompt(2, "s", (5, 6), "six"),
]
REWARDS = [[1.0, 0.0, 0.5], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


def response(tokens: Sequence[int], text: str | None, **further: Any) -> Response:
    drawn = tuple(float(np.float32(-0.1 * token)) for token in tokens)
    return Response(tuple(tokens), drawn, "length" if len(tokens) > 3 else "stop", 4, text=text, **further)


GROUPS = ResponseGroups(
    [
        [response((1, 2, 9), "一二"), response((), ""), response((3, 4, 5, 6), "ü", first_version=3)],
        [response((7,), "seven"), response((8, 8), "éé", treatment="mask"), response((2, 9), "two")],
        [response((70_000, 1), "x", cut="."), response((4,), "4"), response((6, 6, 6, 6, 6), "sixes")],
    ]
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


def left(value: Any) -> Any:
    """A value as the controller gets it from a relay that leaves its arrays."""
    found = stored_of(value)
    assert found is not None
    places, arrays = found
    return pickle.loads(pickle.dumps(places)).attached(StoredArrays(ray.put(arrays)))


def answered(groups: Sequence[Sequence[Response]]) -> list[RolloutGroup]:
    return [
        RolloutGroup(prompt, responses, rewards, [Score(reward, correct=reward > 0.5) for reward in rewards])
        for prompt, responses, rewards in zip(PROMPTS, groups, REWARDS, strict=True)
    ]


def both(**options: Any) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """The samples of responses that are here, and of the same that are stored in two parts."""
    parts = [*left(ResponseGroups(GROUPS[:2])), *left(ResponseGroups(GROUPS[2:]))]
    options = {"train_on_cut_prompts": False, **options}
    return samples_of(answered(GROUPS), **options), samples_of(answered(parts), **options)


def assert_equal(found: Sequence[Sample], expected: Sequence[Sample]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.token_ids.dtype == other.token_ids.dtype
        assert torch.equal(one.token_ids, other.token_ids)
        assert torch.equal(one.mask, other.mask)
        assert sorted(one.columns) == sorted(other.columns)
        assert all(torch.equal(one.columns[name], other.columns[name]) for name in one.columns)
        assert one.counted == other.counted


def test_responses_read_as_they_were(cluster: None) -> None:
    found = joined_groups([list(left(GROUPS))])
    flat, expected = [each for own in found for each in own], [each for own in GROUPS for each in own]
    assert [len(own) for own in found] == [3, 3, 3]
    assert all(isinstance(each.token_ids, StoredNumbers) for each in flat)
    for one, other in zip(flat, expected, strict=True):
        assert len(one.token_ids) == len(other.token_ids)
        assert (one.token_ids, one.log_probs, str(one.text)) == (other.token_ids, other.log_probs, other.text)
        assert (one.finish_reason, one.first_version, one.cut) == (other.finish_reason, other.first_version, other.cut)
    assert decoded(flat, None) == [each.text for each in expected]
    assert copy.deepcopy(flat) == expected
    assert pickle.loads(pickle.dumps(flat)) == expected


def test_texts_reach_a_reward_worker_by_their_places(cluster: None) -> None:
    parts = [*left(ResponseGroups(GROUPS[:1])), *left(ResponseGroups(GROUPS[1:]))]
    texts: list[Any] = [each.text for own in reversed(parts) for each in own]
    places, handles = places_of(texts)
    assert len(handles) == 2
    assert texts_at(places, ray.get(handles)) == [each.text for own in reversed(GROUPS) for each in own]


@pytest.mark.parametrize(
    "other",
    [
        response((1,), "a", turns=(Turn((5,), 1, starts_row=True),)),
        response((1,), "a", routed_experts=torch.zeros(1, 1, 1, dtype=torch.uint8)),
        Response((1,), (-0.1,), "stop", 0),
    ],
    ids=["an agent's", "with experts", "with digits that float32 has not"],
)
def test_responses_that_are_more_than_tokens_come_whole(other: Response) -> None:
    assert stored_of(ResponseGroups([[response((2,), "b"), other]])) is None
    assert stored_of(ResponseGroups([])) is None
    assert stored_of([1, 2]) is None


class Keeper:
    def put(self) -> list[Any]:
        return [small.remote()]


@ray.remote(num_cpus=0)
def small() -> Any:
    """So small that only its owner has it."""
    return (np.zeros(8, np.uint8),)


def test_what_is_lost_is_told_and_not_a_traceback(cluster: None) -> None:
    keeper = ray.remote(num_cpus=0)(Keeper).remote()
    (handle,) = ray.get(keeper.put.remote())
    ray.kill(keeper)
    with suppress(ray.exceptions.RayError):
        ray.get(keeper.put.remote())
    with pytest.raises(RunError, match="responses of this step are lost"):
        _ = StoredArrays(handle).arrays


def test_samples_read_as_those_of_responses_that_are_here(cluster: None) -> None:
    expected, found = both()
    assert stored_rows(found) is not None
    assert (lengths_of(found), counted_tokens(found)) == (lengths_of(expected), counted_tokens(expected))
    assert list(map(len, found)) == list(map(len, expected))
    assert totals_of(found) == totals_of(expected)
    assert_equal(plain(found), expected)
    assert all(type(sample) is StoredSample for sample in found), "a look at copies leaves them stored"
    assert_equal(pickle.loads(pickle.dumps(list(found))), expected)
    copy_column("rollout_log_probs", "old_log_probs", found)
    copy_column("rollout_log_probs", "old_log_probs", expected)
    assert_equal(plain(found), expected)
    found[2].mask = expected[2].mask  # as by code that knows nothing of stored samples
    assert type(found[2]) is Sample
    assert stored_rows(found) is None
    assert_equal(found, expected)


def filled(calls: Any, members: range) -> dict[int, Any]:
    """What workers get by way of a relay."""
    piece, handles = pickle.loads(pickle.dumps(calls.cut(members).on_the_way()[0])), calls.cut(members).on_the_way()[1]
    given = piece.filled(ray.get(handles))
    return {index: pickle.loads(pickle.dumps(given.of(index), protocol=5)) for index in given.indices}


def test_shares_reach_workers_by_relay_and_directly_as_whole_samples_do(cluster: None) -> None:
    expected, found = both()
    values = [torch.arange(len(sample)) / 7 for sample in expected]
    copy_column("rollout_log_probs", "old_log_probs", found)
    copy_column("rollout_log_probs", "old_log_probs", expected)
    for sample, own in zip(expected, values, strict=True):
        sample.columns["reference_log_probs"] = own
        sample.columns["advantages"] = torch.where(torch.arange(len(sample)) < len(sample) - 2, 0.0, 0.5)
    stored = stored_rows(found)
    assert stored is not None
    places = left(Values.of(values)).places(stored.table)
    stored.table.columns["reference_log_probs"] = places
    stored.table.columns["advantages"] = left(Values.of([sample.columns["advantages"] for sample in expected])).places(
        stored.table
    )
    split = [[4, 0], [], [8, 2, 1], [3]]
    calls, others = scattered(found, split, "a", 2), scattered(expected, split, "a", 2)
    assert isinstance(calls, StoredShares)
    by_relay = {**filled(calls, range(2)), **filled(calls, range(2, 4))}
    for index, (share, *further) in enumerate(others):
        for got in (by_relay[index], calls[index]):
            assert list(got[1:]) == further == ["a", 2]
            assert_equal(got[0], share)


def test_the_shares_of_training_are_those_of_whole_samples(cluster: None) -> None:
    expected, found = both()
    totals = totals_of(expected)
    parts = [
        [Part([1, 4], totals, [0, 1], 1), Part([], totals, [], 1)],
        [Part([4], totals, [0], 2), Part([0], totals, [1], 2)],
    ]
    others, calls = (shard_mini_batches(samples, parts, 2, True) for samples in (expected, found))
    by_relay = filled(calls, range(2))
    for index, (shares, current) in enumerate(others):
        got, flag = by_relay[index]
        assert (flag, current) == (True, True)
        assert isinstance(got, Shares)
        for one, other in zip(got, shares, strict=True):
            assert (one.totals, list(one.places), one.number) == (other.totals, list(other.places), other.number)
            assert_equal(one.samples, other.samples)


ALGORITHMS: list[dict[str, Any]] = [
    {"advantage": {"type": "grpo"}},
    {"advantage": {"type": "grpo", "normalize_by_std": False, "clip": 0.3}},
    {"advantage": {"type": "rloo"}, "filters": [{"type": "overlong"}]},
    {"advantage": {"type": "grpo"}, "reward_shaping": {"normalize": {"mean": "batch", "std": "batch"}, "clip": 0.5}},
    {"advantage": {"type": "reinforce"}},
    {"advantage": {"type": "grpo", "whiten": True}},
    {"advantage": {"type": "opo"}},
    {"advantage": {"type": "grpo"}, "loss_weights": {"length": True}},
]


@pytest.mark.parametrize(("algorithm", "stays"), zip(ALGORITHMS, [True] * 4 + [False] * 4, strict=True))
def test_advantages_are_those_of_whole_samples(cluster: None, algorithm: dict[str, Any], stays: bool) -> None:
    """Samples stay stored if all tokens of a response get one number that depends on no token."""
    config = config_from({"algorithm": algorithm, "rollout": {"max_response_tokens": 5}})
    expected, found = both()
    metrics = [Shaping.of(shaping_spec(config)).shape(each, answered(GROUPS)) for each in (expected, found)]
    assert (stored_rows(found) is not None) == stays
    assert_equal(plain(found), expected)
    assert metrics[1] == pytest.approx(metrics[0], rel=1e-6, abs=1e-7)
    assert totals_of(found) == totals_of(expected)


class Engine:
    """Workers that answer with one group each, say a number of each token, and tell what they were given."""

    def __init__(self, number: int) -> None:
        self._number = number

    def generate(self, requests: Sequence[int]) -> ResponseGroups:
        return ResponseGroups(GROUPS[request] for request in requests)

    def die_once(self, requests: Sequence[int], mark: str) -> ResponseGroups:
        import os

        if self._number == 1 and not Path(mark).exists():
            Path(mark).touch()
            os._exit(1)
        return self.generate(requests)

    def measure(self, samples: Sequence[Sample]) -> Values:
        return Values.of([sample.token_ids.float() / 3 + self._number for sample in samples])

    def given(self, samples: Sequence[Sample]) -> list[tuple[list[int], list[float]]]:
        return [(sample.token_ids.tolist(), sample.columns["measured"].tolist()) for sample in samples]


def joined_lists(parts: list[Any]) -> list[Any]:
    return [each for part in parts for each in part]


@pytest.fixture
def chain(cluster: None, tmp_path: Path) -> Iterator[Callable[[], RayGroup]]:
    """Three workers, of which the first relays the calls of the others."""
    groups: list[RayGroup] = []

    def make() -> RayGroup:
        names = [f"rollout-{number}" for number in range(3)]
        start = lambda index: spawn({}, str(tmp_path / f"{names[index]}.log"), num_cpus=0)  # noqa: E731
        groups.append(RayGroup(names, start, lambda: False, fan=1))
        groups[-1].build(Engine, [(0,), (1,), (2,)]).wait()
        return groups[-1]

    yield make
    for group in groups:
        group.close()


def test_a_step_goes_from_workers_to_workers_past_the_controller(
    chain: Callable[[], RayGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    group, copied = chain(), list[Any]()
    monkeypatch.setattr(calls, "copy_here", copied.append)
    found = group.joined(Engine.generate, {0: ([0],), 1: ([1, 2],)}, joined_groups, leave=stored_of)
    samples = samples_of(answered(found), train_on_cut_prompts=True)
    stored = stored_rows(samples)
    assert stored is not None
    assert copied == [each.handle for each in stored.table.stored], "they outlive the machine that made them"
    split = [[0, 5], [3], [8, 2]]
    values = group.joined(Engine.measure, scattered(samples, split), joined_values, leave=stored_of)
    assert isinstance(values, StoredValues)
    order = [index for share in split for index in share]
    owners = [number for number, share in enumerate(split) for _ in share]
    whole = samples_of(answered(GROUPS), train_on_cut_prompts=True)
    expected = [
        (whole[index].token_ids.float() / 3 + owner).tolist() for index, owner in zip(order, owners, strict=True)
    ]
    assert [each.tolist() for each in values] == expected
    chosen = stored.taken(order)
    stored.table.columns["measured"] = np.zeros((9, 3), np.int64)
    stored.table.columns["measured"][order] = values.places(stored.table)
    got = group.joined(Engine.given, scattered(chosen, [[4, 3], [], [0, 1, 2]]), joined_lists)
    again = [4, 3, 0, 1, 2]
    assert got == [(whole[order[place]].token_ids.tolist(), expected[place]) for place in again]


def test_responses_of_an_engine_that_is_replaced_are_joined_to_stored_ones(
    chain: Callable[[], RayGroup], tmp_path: Path
) -> None:
    group, told = chain(), list[Any]()
    again = RetryPolicy(1, told.append, lambda index: None)
    calls = {number: ([number], str(tmp_path / "mark")) for number in range(3)}
    found = group.joined(Engine.die_once, calls, joined_groups, again=again, leave=stored_of)
    assert [lost.actor for lost in told] == ["rollout-1"]
    assert pickle.loads(pickle.dumps(list(found))) == [list(own) for own in GROUPS]


OUTLIVES = """
import sys, time
import numpy as np, ray
from ray.cluster_utils import Cluster
from ray.experimental import get_object_locations
from rlctl.runtime.processes.stored import StoredArrays, copy_here

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
other = cluster.add_node(num_cpus=1, resources={"other": 1})
cluster.wait_for_nodes()
ray.init(address=cluster.address, log_to_driver=False, logging_level="error")

@ray.remote(num_cpus=0, resources={"other": 0.01})
class Relay:
    def left(self):
        return "places", (np.ones(5_000_000, np.uint8),)

relay = Relay.remote()
places, handle = relay.left.options(num_returns=2).remote()
ray.get(places)
copy_here(handle)
for _ in range(300):
    if len(get_object_locations([handle])[handle]["node_ids"]) == 2:
        break
    time.sleep(0.1)
cluster.remove_node(other, allow_graceful=False)
while sum(node["Alive"] for node in ray.nodes()) > 1:
    time.sleep(0.5)
print("kept", StoredArrays(handle).arrays[0].sum())
"""


@pytest.mark.soak
def test_a_step_outlives_the_machine_that_made_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OUTLIVES], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert "kept 5000000" in done.stdout, done.stderr
