"""Every sample is trained on once an epoch, in equal shares, in an order that only the seed decides."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rlctl.config.sections.batch import Batch
from rlctl.runtime.workers.sharding import (
    FEW_TOKENS,
    cost,
    linear_tokens,
    mini_batches,
    mixed_mini_batches,
    split_over_replicas,
    split_pairs,
)


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


def test_attention_makes_a_long_sequence_cost_more_than_short_ones_of_as_many_tokens(tmp_path: Path) -> None:
    assert linear_tokens("a/name/on/the/hub") == FEW_TOKENS
    shape = {"vocab_size": 50, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **shape, **heads}))
    # a layer: 192 of attention, 384 of the MLP, 16 of norms; the head 400; a norm 8; over 2 layers of width 8
    linear = linear_tokens(str(tmp_path))
    assert linear == (2 * (192 + 384 + 16) + 400 + 8) / 16
    costs = [cost(tokens, linear) for tokens in (400, 100, 100, 100, 100, 100)]
    assert split_over_replicas(costs, 2, balance=True) == [[0, 4, 5], [1, 2, 3]]
    assert cost(400, linear) > 4 * cost(100, linear)


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


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99)), max_size=20), st.integers(1, 5), st.booleans())
def test_pairs_are_in_one_share_in_their_order(pairs: list[tuple[int, int]], replicas: int, balance: bool) -> None:
    shares = split_pairs([cost for pair in pairs for cost in pair], replicas, balance=balance)
    assert sorted(index for share in shares for index in share) == list(range(2 * len(pairs)))
    for share in shares:
        assert all(share[place] % 2 == 0 and share[place + 1] == share[place] + 1 for place in range(0, len(share), 2))


def test_every_mini_batch_of_a_mix_has_its_experts() -> None:
    """Six rolled out in mini-batches of 3 + 1, two of experts after them; every epoch the same."""
    batch = Batch(mini_batch_responses=4, ppo_epochs=2)
    parts = mixed_mini_batches(6, 2, 1, batch, seed=1, step=1)
    assert parts == [[0, 1, 2, 6], [3, 4, 5, 7]] * 2
    assert mixed_mini_batches(3, 2, 2, Batch(), seed=1, step=1) == [[0, 1, 2, 3, 4]]
    assert mixed_mini_batches(2, 2, 1, batch, seed=1, step=1) == [[0, 1, 2], [0, 1, 3]]  # a filter left out four
