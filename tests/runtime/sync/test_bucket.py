"""Weights packed into buckets come out as what went in, whatever they are, and buckets are as large as they may be."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rlctl.runtime.sync.bucket import ALIGNED, Bucket, Packer, parts

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.float64)
SHAPES = st.lists(st.integers(0, 5), max_size=3)
TENSORS = st.lists(st.tuples(st.sampled_from(DTYPES), SHAPES, st.booleans()), max_size=12)


def made(drawn: list[tuple[torch.dtype, list[int], bool]]) -> list[tuple[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    tensors = []
    for number, (dtype, shape, turned) in enumerate(drawn):
        tensor = torch.randint(0, 2, shape, generator=generator).to(dtype)
        tensors.append((f"layer.{number}", tensor.mT if turned and tensor.dim() > 1 else tensor))
    return tensors


def assert_same(found: list[tuple[str, Tensor]], expected: list[tuple[str, Tensor]]) -> None:
    assert [name for name, _ in found] == [name for name, _ in expected]
    for (name, one), (_, other) in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), name
        assert torch.equal(one, other), name


@given(TENSORS)
def test_a_bucket_holds_what_was_packed_here_and_in_another_process(
    drawn: list[tuple[torch.dtype, list[int], bool]],
) -> None:
    tensors, packer = made(drawn), Packer(torch.device("cpu"))
    packer.pack([("before", torch.full((50,), 7.0))])  # its memory is used again
    bucket = packer.pack(tensors)
    assert_same(bucket.tensors(), tensors)
    buffers: list[pickle.PickleBuffer] = []
    packed = pickle.dumps(bucket, protocol=5, buffer_callback=buffers.append)
    shared = [bytes(each.raw()) for each in buffers]  # as Ray hands it over: not to be written to
    assert_same(pickle.loads(packed, buffers=shared).tensors(), tensors)
    assert_same(pickle.loads(pickle.dumps(bucket)).tensors(), tensors)


@given(TENSORS, st.integers(1, 300))
def test_parts_are_whole_tensors_in_order_and_as_large_as_they_may_be(
    drawn: list[tuple[torch.dtype, list[int], bool]], most: int
) -> None:
    tensors = made(drawn)
    found = list(parts(iter(tensors), most))
    assert [item for part in found for item in part] == tensors
    sizes = [[tensor.nbytes for _, tensor in part] for part in found]
    assert all(len(part) == 1 or sum(part) <= most for part in sizes)
    assert all(sum(one) + other[0] > most for one, other in pairwise(sizes))


def test_many_small_tensors_are_one_message() -> None:
    tensors = [(f"model.layers.{number}.norm.weight", torch.ones(8)) for number in range(500)]
    bucket = Packer(torch.device("cpu")).pack(tensors)
    assert bucket.table.nbytes == 500 * 2 * ALIGNED
    assert len(pickle.dumps(bucket)) < bucket.table.nbytes + 500 * 70


def test_the_bytes_of_a_bucket_are_those_of_its_table() -> None:
    bucket = Packer(torch.device("cpu")).pack([("a", torch.ones(3, dtype=torch.bfloat16)), ("b", torch.ones(1))])
    assert len(bucket.data) == bucket.table.nbytes == 2 * ALIGNED
    with pytest.raises(RuntimeError):
        list(bucket.table.views(bucket.data[:4]))
    assert isinstance(bucket, Bucket)
