"""Whatever crosses processes as a few large tensors arrives as what was sent: values, shapes, dtypes, order."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import Tensor

from rlctl.runtime.serialization.sequences import SampleTuple
from rlctl.runtime.serialization.tensors import NamedTensors, TensorTuple
from rlctl.runtime.types import Sample

TENSORS = [
    torch.arange(6.0).view(2, 3),
    torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    torch.tensor(7),
    torch.zeros(0, 4),
    torch.arange(6.0).view(2, 3).t(),
    torch.tensor([3.25], dtype=torch.bfloat16),
]


def same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)


def sample(length: int, **columns: float) -> Sample:
    values = {name: torch.full((length,), value) for name, value in columns.items()}
    return Sample(torch.arange(length), torch.arange(length) >= 1, values)


@pytest.mark.parametrize("count", [0, 1, len(TENSORS)])
def test_tensors_arrive_as_they_were(count: int) -> None:
    sent = TensorTuple(TENSORS[:count])
    got = pickle.loads(pickle.dumps(sent))
    assert isinstance(got, TensorTuple)
    assert len(got) == count
    assert all(same(one, other) for one, other in zip(got, sent, strict=True))


def test_weights_keep_their_names() -> None:
    sent = NamedTensors(zip("abcdef", TENSORS, strict=True))
    got = pickle.loads(pickle.dumps(sent))
    assert [name for name, _ in got] == list("abcdef")
    assert all(same(one, other) for (_, one), (_, other) in zip(got, sent, strict=True))


def test_parameters_arrive_without_gradient() -> None:
    (got,) = pickle.loads(pickle.dumps(TensorTuple([torch.nn.Parameter(torch.ones(2))])))
    assert not got.requires_grad


@pytest.mark.parametrize(
    "samples",
    [
        [],
        [sample(3, advantages=1.0)],
        [sample(3), sample(5, advantages=2.0), sample(1, advantages=3.0, old_log_probs=-1.0), sample(2)],
    ],
)
def test_samples_arrive_as_they_were(samples: list[Sample]) -> None:
    got = pickle.loads(pickle.dumps(SampleTuple(samples)))
    assert len(got) == len(samples)
    for one, other in zip(got, samples, strict=True):
        assert same(one.token_ids, other.token_ids)
        assert same(one.mask, other.mask)
        assert one.columns.keys() == other.columns.keys()
        assert all(same(one.columns[name], other.columns[name]) for name in one.columns)


def test_many_small_tensors_travel_in_little_more_than_their_numbers() -> None:
    samples = [sample(8, advantages=1.0) for _ in range(256)]
    numbers = 256 * 8 * (8 + 1 + 4)
    assert len(pickle.dumps(SampleTuple(samples))) < 1.5 * numbers < len(pickle.dumps(samples)) / 4


def test_images_of_a_group_travel_once_and_arrive_shared() -> None:
    images = {"pixel_values": torch.rand(64, 96), "image_grid_thw": torch.tensor([[1, 8, 8]])}
    other = {"pixel_values": torch.rand(16, 96), "image_grid_thw": torch.tensor([[1, 4, 4]])}
    samples = [sample(4), *(sample(4 + i) for i in range(3)), sample(2)]
    for each in samples[1:4]:
        each.inputs = images
    samples[4].inputs = other
    sent = pickle.dumps(SampleTuple(samples))
    got = pickle.loads(sent)
    assert not got[0].inputs
    assert got[1].inputs is got[2].inputs is got[3].inputs
    for one, expected in ((got[1].inputs, images), (got[4].inputs, other)):
        assert list(one) == list(expected)
        assert all(same(one[name], expected[name]) for name in expected)
    assert len(sent) < 1.3 * 4 * 80 * 96


def test_what_arrives_in_memory_that_is_shared_may_be_written_to() -> None:
    """Ray hands buffers over without a copy, and read-only."""
    buffers: list[pickle.PickleBuffer] = []
    packed = pickle.dumps(TensorTuple(TENSORS), protocol=5, buffer_callback=buffers.append)
    assert len(packed) < 1000, "the values are not in the pickle itself"
    shared = [bytes(buffer.raw()) for buffer in buffers]
    got = pickle.loads(packed, buffers=shared)
    assert all(same(one, other) for one, other in zip(got, TENSORS, strict=True))
    for tensor in got:
        tensor.fill_(9)
    again = pickle.loads(packed, buffers=shared)
    assert all(same(one, other) for one, other in zip(again, TENSORS, strict=True))
