"""The loss and its gradient do not depend on how a mini-batch is split into micro-batches and over replicas."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from rlctl.common.errors import ConfigError
from rlctl.runtime.algorithms.aggregation import AGGREGATIONS, Totals, aggregate, token_weights
from rlctl.runtime.algorithms.policy_losses import ppo_clip

SCALES = {name: 8.0 if "scale_factor" in rule.options else None for name, rule in AGGREGATIONS.items()}
MODES = sorted(SCALES)

LENGTHS = torch.tensor([3, 0, 1])
VALUES = torch.tensor([1.0, 2.0, 6.0, 10.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token_mean", (1 + 2 + 6 + 10) / 4),
        ("token_sum", 1 + 2 + 6 + 10),
        ("seq_mean_token_sum", (9 + 0 + 10) / 3),
        ("seq_mean_token_mean", (9 / 3 + 0 + 10 / 1) / 3),
        ("seq_mean_token_sum_norm", (9 + 0 + 10) / 3 / 8),
    ],
)
def test_modes_by_hand_with_an_empty_sequence(mode: str, expected: float) -> None:
    weights = token_weights(mode, LENGTHS, Totals.of(LENGTHS), scale_factor=SCALES[mode], dtype=torch.float64)
    assert weights.isfinite().all()
    assert float(aggregate(VALUES, weights, LENGTHS)) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_at_all_weighs_nothing(mode: str) -> None:
    for lengths in (torch.tensor([0, 0]), torch.empty(0, dtype=torch.int64)):
        weights = token_weights(mode, lengths, Totals.of(lengths), scale_factor=SCALES[mode])
        assert weights.isfinite().all()
        assert float(aggregate(torch.empty(0), weights, lengths)) == 0.0


@st.composite
def splits(draw: st.DrawFn) -> tuple[list[int], list[list[list[int]]], int]:
    """Draw sequence lengths, a split of the sequences' positions into replicas of micro-batches, and a seed."""
    lengths = draw(st.lists(st.integers(0, 7), min_size=1, max_size=10))
    order = draw(st.permutations(range(len(lengths))))
    replicas: list[list[list[int]]] = [[[] for _ in range(3)] for _ in range(draw(st.integers(1, 4)))]
    for position in order:
        replica = draw(st.sampled_from(replicas))
        draw(st.sampled_from(replica)).append(position)
    return lengths, replicas, draw(st.integers(0, 2**31))


def step_loss(
    mode: str, data: list[tuple[Tensor, ...]], parameter: Tensor, micro_batch: list[int], totals: Totals
) -> Tensor:
    """Return one micro-batch's part of a PPO loss whose log-probs are features @ parameter."""
    lengths = torch.tensor([len(data[i][1]) for i in micro_batch], dtype=torch.int64)
    features, old, advantages = (
        torch.cat([data[i][column] for i in micro_batch]) if micro_batch else data[0][column][:0] for column in range(3)
    )
    losses = ppo_clip(features @ parameter, old, advantages).values
    weights = token_weights(mode, lengths, totals, scale_factor=SCALES[mode], dtype=parameter.dtype)
    return aggregate(losses, weights, lengths)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 5e-5)])
@settings(derandomize=True)  # in float32, a ratio that rounds to either side of the clip has another gradient
@given(case=splits())
def test_loss_and_gradient_do_not_depend_on_the_split(
    mode: str, dtype: torch.dtype, tolerance: float, case: tuple[list[int], list[list[list[int]]], int]
) -> None:
    lengths, replicas, seed = case
    generator = torch.Generator().manual_seed(seed)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=dtype, generator=generator)

    data = [(0.3 * randn(n, 4), 0.3 * randn(n), randn(n)) for n in lengths]
    parameter = randn(4).requires_grad_()
    everything = torch.tensor(lengths)
    whole = step_loss(mode, data, parameter, list(range(len(lengths))), Totals.of(everything))
    (whole_gradient,) = torch.autograd.grad(whole, parameter)

    parts = [everything[micro_batch] for replica in replicas for micro_batch in replica]
    totals = sum((Totals.of(part) for part in parts), start=Totals(0, 0))
    loss, gradient = torch.zeros((), dtype=dtype), torch.zeros(4, dtype=dtype)
    for replica in replicas:
        on_replica = torch.zeros(4, dtype=dtype)
        for micro_batch in replica:
            part = step_loss(mode, data, parameter, micro_batch, totals)
            on_replica += torch.autograd.grad(part, parameter)[0]
            loss += part.detach()
        gradient += on_replica

    assert_close(loss, whole.detach(), rtol=tolerance, atol=tolerance)
    assert_close(gradient, whole_gradient, rtol=tolerance, atol=tolerance)


def test_token_mean_turns_an_indicator_into_a_fraction_whatever_the_split() -> None:
    clipped = [torch.tensor([1.0, 0.0, 1.0]), torch.tensor([1.0])]
    totals = Totals(tokens=4, sequences=2)
    parts = [aggregate(c, token_weights("token_mean", n, totals), n) for c in clipped for n in [torch.tensor([len(c)])]]
    assert sum(map(float, parts)) == 0.75


def test_what_cannot_be_computed_is_refused() -> None:
    totals = Totals.of(LENGTHS)
    with pytest.raises(ConfigError, match="seq_mean_token_sum_norm takes a scale factor, got none"):
        token_weights("seq_mean_token_sum_norm", LENGTHS, totals)
    with pytest.raises(ConfigError, match=r"token_mean takes no scale factor, got 8.0"):
        token_weights("token_mean", LENGTHS, totals, scale_factor=8.0)
    with pytest.raises(ConfigError, match=r"is 0.0; seq_mean_token_sum_norm expects a number above 0"):
        token_weights("seq_mean_token_sum_norm", LENGTHS, totals, scale_factor=0.0)
    with pytest.raises(ConfigError, match="unknown aggregation 'token-mean'"):
        token_weights("token-mean", LENGTHS, totals)
