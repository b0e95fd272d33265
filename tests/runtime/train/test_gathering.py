"""Parameters spread over workers come together as they were, however they divide, and however many go in one message."""

from __future__ import annotations

import pytest
import torch

from tests.runtime.train import jobs
from tests.runtime.train.processes import Workers

TENSORS = {
    "odd": torch.randn(5, 3),
    "one row": torch.randn(1, 7),
    "bfloat16": torch.randn(6).bfloat16(),
    "whole": torch.randn(4),
    "even": torch.randn(4, 2, 3),
    "no rows": torch.zeros(0, 3),
    "last": torch.randn(3),
}
SPREAD = sorted(TENSORS.keys() - {"whole"})


@pytest.mark.parametrize("bucket_bytes", [1, 100, 1 << 20])
@pytest.mark.parametrize("world", ["one", "two"])
def test_tensors_come_together_in_order_on_the_first_worker(
    request: pytest.FixtureRequest, world: str, bucket_bytes: int
) -> None:
    workers: Workers = request.getfixturevalue(world)
    found, *others = workers.run(jobs.gather_whole, TENSORS, SPREAD, bucket_bytes)
    assert all(other == {} for other in others)
    assert list(found) == list(TENSORS)
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name], tensor), name


def test_tensors_come_together_on_all_workers(two: Workers) -> None:
    for found in two.run(jobs.gather_whole, TENSORS, SPREAD, 100, True):
        assert list(found) == list(TENSORS)
        assert all(torch.equal(found[name], tensor) for name, tensor in TENSORS.items())
