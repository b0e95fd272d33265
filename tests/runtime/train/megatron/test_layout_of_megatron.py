"""The controller gives the same samples to the workers that Megatron-core itself puts into one replica."""

from __future__ import annotations

import pytest
from megatron.core.parallel_state import RankGenerator

from rlctl.common.errors import PlanError
from rlctl.config.sections.train import Fsdp2, Megatron
from rlctl.planning import arithmetic
from rlctl.runtime.train.megatron.layout import Layout


@pytest.mark.parametrize(
    ("tensor", "context", "pipeline", "workers"),
    [(1, 1, 1, 2), (2, 1, 1, 4), (1, 1, 2, 4), (2, 1, 2, 8), (2, 2, 2, 16), (1, 2, 3, 12), (4, 1, 2, 8)],
)
def test_replicas_are_those_of_megatron(tensor: int, context: int, pipeline: int, workers: int) -> None:
    engine = Megatron(tensor_parallel_size=tensor, context_parallel_size=context, pipeline_parallel_size=pipeline)
    replicas = workers // (tensor * context * pipeline)
    order = RankGenerator(tp=tensor, ep=1, dp=replicas, pp=pipeline, cp=context, order="tp-cp-ep-dp-pp")
    members = arithmetic.replica_members(engine, workers)
    assert sorted(map(sorted, members)) == sorted(map(sorted, order.get_ranks("tp-cp-pp")))
    assert [each[0] for each in members] == order.get_ranks("dp")[0]  # where the controller's answers come from


def test_workers_that_share_sequences_are_neighbours_under_fsdp2() -> None:
    assert arithmetic.replica_members(Fsdp2(ulysses_sequence_parallel_size=2), 4) == [[0, 1], [2, 3]]
    assert arithmetic.replica_members(Fsdp2(), 3) == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("engine", "workers", "message"),
    [
        (
            Megatron(tensor_parallel_size=2, pipeline_parallel_size=2),
            6,
            r"tensor 2 \* pipeline 2 \* context 1\), and there are 6",
        ),
        (
            Megatron(tensor_parallel_size=2, expert_parallel_size=2),
            2,
            r"expert 2 \* expert_tensor 2 \* pipeline 1\), and there are 2",
        ),
    ],
)
def test_sizes_that_do_not_divide_are_told_with_the_arithmetic(engine: Megatron, workers: int, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Layout.of(engine, workers)
