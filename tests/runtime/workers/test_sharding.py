"""Every sample is trained on once an epoch, in equal shares, in an order that only the seed decides."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rlctl.config.sections.batch import Batch
from rlctl.runtime.workers.sharding import mini_batches, split_over_replicas


@given(st.lists(st.integers(1, 1000), max_size=60), st.integers(1, 9), st.booleans())
def test_shares_hold_every_sample_once_and_differ_by_one_at_most(
    lengths: list[int], replicas: int, balance: bool
) -> None:
    shares = split_over_replicas(lengths, replicas, balance=balance)
    assert sorted(index for share in shares for index in share) == list(range(len(lengths)))
    sizes = [len(share) for share in shares]
    assert len(shares) == replicas
    assert max(sizes) - min(sizes) <= 1
    assert all(share == sorted(share) for share in shares)


def test_balance_evens_out_tokens() -> None:
    lengths = [100, 90, 80, 10, 20, 30]
    tokens = [sum(lengths[index] for index in share) for share in split_over_replicas(lengths, 2, balance=True)]
    assert tokens == [150, 180]  # 100 + 30 + 20, and 90 + 80 + 10; in order it would be 270 and 60
    assert split_over_replicas(lengths, 2, balance=False) == [[0, 1, 2], [3, 4, 5]]


def test_mini_batches_keep_the_order_and_repeat_it_every_epoch() -> None:
    batch = Batch(mini_batch_responses=4, ppo_epochs=2)
    assert mini_batches(10, batch, seed=1, step=1) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] * 2


def test_without_a_size_the_step_is_one_mini_batch() -> None:
    assert mini_batches(3, Batch(), seed=1, step=1) == [[0, 1, 2]]


def test_shuffles_depend_on_seed_step_and_epoch_only() -> None:
    batch = Batch(mini_batch_responses=8, ppo_epochs=2, shuffle=True)
    first, second = mini_batches(8, batch, seed=1, step=1)
    assert sorted(first) == sorted(second) == list(range(8))
    assert first != second
    assert mini_batches(8, batch, seed=1, step=1) == [first, second]
    assert mini_batches(8, batch, seed=2, step=1) != [first, second]
    assert mini_batches(8, batch, seed=1, step=2) != [first, second]
    own = Batch(mini_batch_responses=8, ppo_epochs=2, shuffle=True, shuffle_seed=1)
    assert mini_batches(8, own, seed=2, step=1) == [first, second]
