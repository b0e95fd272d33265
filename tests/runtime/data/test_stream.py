"""Same seed, same order, everywhere; and a stream restored in the middle of an epoch goes on exactly."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rlctl.common.errors import RunError
from rlctl.runtime.data.order import draw_sources, easy_to_hard, shuffle, split_exactly
from rlctl.runtime.data.stream import Ordering, Stream

LETTERS = ["a", "b", "c", "d", "e", "f", "g"]
RATES = (np.linspace([0, 0.5], [0.5, 1], 7), np.linspace([0, 0.5], [0.5, 1], 4))
"""How often a weak and a strong model pass each row of two sources."""


def stream(*sources: list[Any], per_step: int = 3, **ordering: Any) -> Stream[Any]:
    return Stream(sources or (LETTERS,), per_step=per_step, ordering=Ordering(**ordering))


def batches(source: Stream[Any], count: int) -> list[list[Any]]:
    return [source.next_batch() for _ in range(count)]


def test_sequential_drop_and_carry() -> None:
    assert batches(stream(order="sequential"), 3) == [["a", "b", "c"], ["d", "e", "f"], ["a", "b", "c"]]
    carried = batches(stream(order="sequential", last_batch="carry"), 3)
    assert carried == [["a", "b", "c"], ["d", "e", "f"], ["g", "a", "b"]]


def test_shuffle_draws_every_row_once_an_epoch_in_another_order_each() -> None:
    drawn = [x for batch in batches(stream(per_step=7), 3) for x in batch]
    epochs = [drawn[0:7], drawn[7:14], drawn[14:21]]
    assert [sorted(epoch) for epoch in epochs] == [LETTERS] * 3
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_the_order_is_pinned() -> None:
    """Computed once; another numpy, Python or process must give the same."""
    expected = np.argsort(np.random.PCG64(np.random.SeedSequence([42, 0, 3])).random_raw(8), kind="stable")
    assert shuffle(8, seed=42, epoch=3).tolist() == expected.tolist() == [5, 6, 2, 0, 7, 3, 1, 4]
    code = "from rlctl.runtime.data.order import shuffle; print(shuffle(8, seed=42, epoch=3).tolist())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(other.stdout) == expected.tolist()


def test_seeds_differ_and_shuffles_are_uniform() -> None:
    assert shuffle(50, seed=1, epoch=0).tolist() != shuffle(50, seed=2, epoch=0).tolist()
    first = Counter(int(shuffle(4, seed=0, epoch=epoch)[0]) for epoch in range(4000))
    assert all(abs(count - 1000) < 130 for count in first.values())


def test_random_draws_each_batch_from_all_rows() -> None:
    drawn = batches(stream(order="random", per_step=3), 300)
    assert all(len(set(batch)) == 3 for batch in drawn)
    assert any(len({*drawn[i], *drawn[i + 1]}) < 6 for i in range(0, 300, 2)), "an epoch holds none twice"
    counts = Counter(x for batch in drawn for x in batch)
    assert all(abs(counts[x] - 900 / 7) < 40 for x in LETTERS)


@pytest.mark.parametrize(
    "ordering",
    [
        {"order": "sequential"},
        {"order": "shuffle"},
        {"order": "shuffle", "last_batch": "carry"},
        {"order": "random"},
        {"mixing": "weighted", "weights": (3.0, 1.0)},
        {"mixing": "weighted_exact", "weights": (2.0, 1.0)},
        {"order": "random", "mixing": "weighted", "weights": (3.0, 1.0)},
        {"order": "difficulty", "features": RATES},
        {"order": "difficulty", "features": RATES, "mixing": "weighted", "weights": (3.0, 1.0)},
    ],
)
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_restored_streams_go_on_exactly(ordering: dict[str, Any], steps: int) -> None:
    def make() -> Stream[Any]:
        return stream(LETTERS, [1, 2, 3, 4], seed=7, **ordering)

    whole = make()
    for _ in range(steps):
        batch = whole.next_batch()
        whole.feedback({[*LETTERS, 1, 2, 3, 4].index(x): 0.5 for x in batch})
    state = json.loads(json.dumps(whole.state()))
    restored = make()
    restored.restore(state)
    assert batches(restored, 9) == batches(whole, 9)
    assert (restored.epoch, restored.state()) == (whole.epoch, whole.state())


def test_a_position_in_other_data_is_refused() -> None:
    state = stream(seed=1).state()
    with pytest.raises(RunError, match=r"seed: was 1, is 2"):
        stream(seed=2).restore(state)
    with pytest.raises(RunError, match=r"rows: was \[7\], is \[2\]"):
        stream(["x", "y"], per_step=2, seed=1).restore(state)


def test_take_goes_on_where_batches_stop() -> None:
    source = stream(order="sequential")
    assert source.take(2) + source.next_batch() == ["a", "b", "c", "d", "e"]


def test_epochs_are_counted() -> None:
    source = stream(order="sequential")
    seen = [(source.next_batch(), source.epoch)[1] for _ in range(5)]
    assert seen == [0, 0, 1, 1, 2] or seen == [0, 0, 0, 0, 1]
    assert source.rows == 7


def test_weighted_draws_by_weight_and_goes_round_each_source() -> None:
    source = stream(["a"] * 5, ["b"] * 50, per_step=8, mixing="weighted", weights=(3.0, 1.0))
    counts = Counter(x for batch in batches(source, 500) for x in batch)
    assert abs(counts["a"] / 4000 - 0.75) < 0.03
    covered = stream(LETTERS, [0], per_step=20, mixing="weighted", weights=(1.0, 1.0)).next_batch()
    letters = [x for x in covered if x != 0]
    assert len(set(letters[:7])) == len(letters[:7])


def test_a_weighted_draw_does_not_depend_on_the_batch_size() -> None:
    whole = draw_sources(12, [0.3, 0.7], seed=5, start=0)
    assert whole == draw_sources(5, [0.3, 0.7], seed=5, start=0) + draw_sources(7, [0.3, 0.7], seed=5, start=5)


def test_weighted_exact_splits_as_roll_does() -> None:
    """int(share * batch) each, the remainder to the last, worked by hand."""
    assert split_exactly(10, [0.25, 0.33, 0.42], "abc") == [2, 3, 5]
    assert split_exactly(10, [0.7, 0.3], "ab") == [7, 3]
    source = stream(["a"] * 4, ["b"] * 9, per_step=10, mixing="weighted_exact", weights=(7.0, 3.0))
    assert all(Counter(batch) == {"a": 7, "b": 3} for batch in batches(source, 4))
    weights: dict[str, Any] = {"weights": (90.0, 1.0, 9.0), "keys": ("a", "b", "c")}
    with pytest.raises(RunError, match=r"b gets 0\.01 of 10 prompts: none"):
        stream(LETTERS, LETTERS, LETTERS, per_step=10, mixing="weighted_exact", **weights)


def test_easy_to_hard() -> None:
    """The first column's highest first, ties by the second, then from the end of the file."""
    ranks = easy_to_hard([[2, 1, 2, 1], [0, 9, -1, 9]])
    assert ranks.tolist() == [0, 2, 3, 1]
    source = stream(["w", "x", "y", "z"], per_step=4, order="easy_to_hard", ranks=(ranks,))
    assert batches(source, 2) == [["w", "y", "z", "x"]] * 2
    with pytest.raises(RunError, match="contains values that are not numbers"):
        easy_to_hard([["easy", "hard"]])


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(RunError, match=r"has 7 prompts and a step needs 8"):
        stream(per_step=8)
    assert len(stream(per_step=8, last_batch="carry").next_batch()) == 8
    with pytest.raises(RunError, match="no training data"):
        stream([])


@pytest.mark.parametrize("mixing", ["concatenate", "weighted", "weighted_exact"])
def test_threads_make_ahead_what_is_drawn_next(mixing: Any) -> None:
    made: list[tuple[int, int, str]] = []

    class Watched(Sequence[str]):
        def __init__(self, source: int, rows: int) -> None:
            self.source, self.rows = source, rows

        def __len__(self) -> int:
            return self.rows

        def __getitem__(self, row: Any) -> Any:
            made.append((self.source, row, threading.current_thread().name))
            return f"{self.source}:{row}"

    def stream(ahead: int) -> Stream[str]:
        ordering = Ordering(seed=3, mixing=mixing, weights=(1.0, 2.0), last_batch="carry")
        return Stream([Watched(0, 5), Watched(1, 7)], per_step=4, ordering=ordering, ahead=ahead)

    plain, ahead = stream(0), stream(2)
    for count in (4, 4, 2, 4, 4, 4, 4):
        assert ahead.take(count) == plain.take(count)
        assert ahead.state() == plain.state()
    asked = sum(not name.startswith("data") for *_, name in made)
    assert asked <= 26 + 10, (
        "all of the plain stream, and of the other one the first batch and what another count left open"
    )
    again = stream(2)
    again.restore(plain.state())
    assert again.next_batch() == ahead.next_batch()
