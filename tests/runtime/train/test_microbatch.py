"""Micro-batches hold every sample once, within their budget, and point at the tokens that are counted."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlctl.config.sections.batch import MicroBatchSize
from rlctl.runtime.train.microbatch import collate, fed_tokens, prompts_of, split
from rlctl.runtime.types import Sample

CPU = torch.device("cpu")


def sample(tokens: list[int], mask: list[int], **columns: list[float]) -> Sample:
    return Sample(
        torch.tensor(tokens),
        torch.tensor(mask, dtype=torch.bool),
        {name: torch.tensor(column) for name, column in columns.items()},
    )


A = sample([5, 6, 7, 8, 9], [0, 0, 1, 0, 1], weight=[0.0, 0.1, 0.2, 0.3, 0.4])
B = sample([3, 4, 2, 1], [0, 1, 1, 0], weight=[1.0, 1.1, 1.2, 1.3])
NONE = sample([3, 4, 2], [0, 0, 0], weight=[2.0, 2.1, 2.2])


@pytest.mark.parametrize(("of", "tokens"), [(A, 4), (B, 2), (NONE, 1), (sample([7], [0]), 0)])
def test_a_sample_is_fed_up_to_its_last_counted_token(of: Sample, tokens: int) -> None:
    assert fed_tokens([of]) == [tokens]


def test_samples_together_are_fed_as_each_alone() -> None:
    several = [NONE, A, sample([7], [0]), B, NONE]
    assert fed_tokens(several) == [width for each in several for width in fed_tokens([each])]
    assert prompts_of(several) == [prompt for each in several for prompt in prompts_of([each])]
    assert [len(prompt) // 8 for prompt in prompts_of(several)] == [0, 2, 0, 1, 0]


def test_end_to_end_has_no_padding() -> None:
    batch = collate([A, NONE, B], ["weight"], padded=False, device=CPU)
    assert batch.inputs["input_ids"].tolist() == [[5, 6, 7, 8, 3, 3, 4]]
    assert batch.inputs["position_ids"].tolist() == [[0, 1, 2, 3, 0, 0, 1]]
    assert batch.select.tolist() == [1, 3, 5, 6]
    assert batch.targets.tolist() == [7, 9, 4, 2]
    assert batch.lengths.tolist() == [2, 0, 2]
    assert batch.columns["weight"].tolist() == pytest.approx([0.2, 0.4, 1.1, 1.2])


def test_padded_rows_point_at_the_same_tokens() -> None:
    batch = collate([A, NONE, B], ["weight"], padded=True, device=CPU)
    assert batch.inputs["input_ids"].tolist() == [[5, 6, 7, 8], [3, 0, 0, 0], [3, 4, 0, 0]]
    assert batch.select.tolist() == [1, 3, 8, 9]
    assert batch.targets.tolist() == [7, 9, 4, 2]


@pytest.mark.parametrize("padded", [False, True])
def test_nothing_becomes_one_token_that_is_not_counted(padded: bool) -> None:
    batch = collate([], ["weight"], padded=padded, device=CPU)
    assert batch.inputs["input_ids"].shape == (1, 1)
    assert (len(batch.select), len(batch.targets), len(batch.lengths), len(batch.columns["weight"])) == (0, 0, 0, 0)


@given(
    st.lists(st.integers(1, 50), max_size=40),
    st.integers(1, 120),
    st.booleans(),
    st.sampled_from(["tokens", "responses"]),
)
def test_micro_batches_hold_every_sample_once_within_the_budget(
    lengths: list[int], size: int, padded: bool, by: str
) -> None:
    parts = split(lengths, MicroBatchSize(unit=by, size=size), padded=padded)  # type: ignore[arg-type]
    assert sorted(index for part in parts for index in part) == list(range(len(lengths)))
    for part in parts:
        widths = [lengths[index] for index in part]
        cost = len(part) if by == "responses" else len(part) * max(widths) if padded else sum(widths)
        assert cost <= size or len(part) == 1


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=20),
    st.integers(1, 200),
    st.booleans(),
    st.sampled_from(["tokens", "responses"]),
)
def test_neighbours_stay_together_within_the_budget(
    pairs: list[tuple[int, int]], size: int, padded: bool, by: Literal["tokens", "responses"]
) -> None:
    """A pair counts as one response; one that is larger than the budget is alone."""
    lengths = [tokens for pair in pairs for tokens in pair]
    parts = split(lengths, MicroBatchSize(unit=by, size=size), padded=padded, together=2)
    assert sorted(index for part in parts for index in part) == list(range(len(lengths)))
    for part in parts:
        assert all(part[place] % 2 == 0 and part[place + 1] == part[place] + 1 for place in range(0, len(part), 2))
        tokens = [lengths[index] for index in part]
        used = len(part) // 2 if by == "responses" else max(tokens) * len(part) if padded else sum(tokens)
        assert used <= size or len(part) == 2


def test_a_prompt_that_several_samples_begin_with_lies_there_once() -> None:
    again = sample([5, 6, 1, 2], [0, 0, 1, 1], weight=[0.0, 0.1, 0.5, 0.6])
    batch = collate([A, NONE, B, again], ["weight"], padded=False, device=CPU, share_prompts=True)
    assert batch.inputs["input_ids"].tolist() == [[5, 6, 7, 8, 3, 3, 4, 1]]
    assert batch.inputs["position_ids"].tolist() == [[0, 1, 2, 3, 0, 0, 1, 2]]
    assert batch.select.tolist() == [1, 3, 5, 6, 1, 7]
    assert batch.targets.tolist() == [7, 9, 4, 2, 1, 2]
    rows = batch.inputs["rows"]
    laid = batch.inputs["input_ids"][0][rows.to_rows].view(rows.count, rows.width)
    assert [row[:n].tolist() for row, n in zip(laid, [4, 1, 2, 3], strict=True)] == [
        [5, 6, 7, 8],
        [3],
        [3, 4],
        [5, 6, 1],
    ]


def test_samples_of_one_prompt_follow_each_other() -> None:
    lengths, like = [3, 9, 5, 8, 9, 2], [0, 1, 0, 1, 4, 0]
    assert split(lengths, MicroBatchSize(unit="responses", size=2), padded=False, like=like) == [[1, 3], [4, 2], [0, 5]]
