"""Importance weights and rejection between rollout and training engine, worked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from rlctl.common.errors import ConfigError
from rlctl.runtime.algorithms.correction import Rejection, keeps, mismatch, ratios, survives_veto, weights

LENGTHS = torch.tensor([3, 0, 2])
RATIOS = (2.0, 0.5, 4.0, 0.25, 1.0)
"""Training over rollout. First response: product 4, geometric mean 4^(1/3); last: 1/4 and 1/2."""


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


LOG_RATIO = tensor(*RATIOS).log()


def test_ratios_by_hand() -> None:
    assert_close(ratios(LOG_RATIO, LENGTHS, "token"), tensor(*RATIOS))
    assert_close(ratios(LOG_RATIO, LENGTHS, "sequence"), tensor(4, 4, 4, 0.25, 0.25))
    cube = 4 ** (1 / 3)
    assert_close(ratios(LOG_RATIO, LENGTHS, "geometric"), tensor(cube, cube, cube, 0.5, 0.5))
    segments = torch.tensor([2, 1, 1, 1])
    assert_close(ratios(LOG_RATIO, LENGTHS, "segment", segments), tensor(1, 1, 4, 0.25, 1))
    assert float(ratios(tensor(99), torch.tensor([1]), "token")) == pytest.approx(math.exp(20))


def test_weights_by_hand() -> None:
    assert_close(weights(LOG_RATIO, LENGTHS, "token", upper=3.0), tensor(2, 0.5, 3, 0.25, 1))
    # outside of 0.5 to 3 there is nothing
    assert_close(weights(LOG_RATIO, LENGTHS, "token", upper=3.0, lower=0.5), tensor(2, 0.5, 0, 0, 1))
    normal = weights(LOG_RATIO, LENGTHS, "token", upper=3.0, normalize=True)
    assert_close(normal, tensor(2, 0.5, 3, 0.25, 1) / (6.75 / 5))
    # responses weigh 3 and 0.25: the mean is over the two that have tokens
    by_response = weights(LOG_RATIO, LENGTHS, "sequence", upper=3.0, normalize=True)
    assert_close(by_response, tensor(3, 3, 3, 0.25, 0.25) / 1.625)


@pytest.mark.parametrize(
    ("rule", "bound", "kept"),
    [
        # k1 = log rollout - log training, that is the log of 0.5, 2, 0.25, 4, 1
        ("token_k1", (0.5, 2), (1, 1, 0, 0, 1)),
        ("token_k1", 2, (1, 1, 0, 0, 1)),
        ("token_k1", (0.25, 2.5), (1, 1, 1, 0, 1)),
        # log(2)^2 / 2 = 0.240, log(4)^2 / 2 = 0.961
        ("token_k2", 0.5, (1, 1, 0, 0, 1)),
        # r - 1 - log r: 0.307, 0.193, 1.614, 0.636, 0
        ("token_k3", 0.7, (1, 1, 0, 1, 1)),
        # sums of k1: log(1/4), log 4
        ("seq_sum_k1", (0.2, 3), (1, 1, 1, 0, 0)),
        # means: log(4^(-1/3) = 0.63), log 2
        ("seq_mean_k1", (0.5, 1.5), (1, 1, 1, 0, 0)),
        # sums of k2: 1.441, 0.961; of k3: 2.114, 0.636
        ("seq_sum_k2", 1, (0, 0, 0, 1, 1)),
        ("seq_mean_k3", 0.5, (0, 0, 0, 1, 1)),
        ("seq_max_k3", 1, (0, 0, 0, 1, 1)),
        ("seq_max_k2", 0.5, (0, 0, 0, 0, 0)),
    ],
)
def test_rules_by_hand(rule: str, bound: float | tuple[float, float], kept: tuple[int, ...]) -> None:
    [parsed] = Rejection.parse([rule], [bound])
    assert parsed.keeps(LOG_RATIO, LENGTHS).tolist() == [bool(each) for each in kept]


def test_all_rules_and_the_veto_have_to_pass() -> None:
    rules = Rejection.parse(["token_k1", "token_k3"], [(0.25, 2.5), 0.7])
    assert keeps(LOG_RATIO, LENGTHS, rules, None).tolist() == [True, True, False, False, True]
    assert survives_veto(LOG_RATIO, LENGTHS, 0.3).tolist() == [True, True, True, False, False]
    assert keeps(LOG_RATIO, LENGTHS, rules, 0.3).tolist() == [True, True, False, False, False]
    assert keeps(LOG_RATIO, LENGTHS, (), None).all()


def test_one_bound_may_serve_all_rules() -> None:
    first, second = Rejection.parse(["token_k2", "seq_max_k2"], [0.5])
    assert (first.high, second.high) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("rules", "bounds", "wrong"),
    [
        (["token_k1", "token_k2"], [], "2 rejection rules have 0 bounds"),
        (["token_k4"], [1], "unknown rejection rule 'token_k4'"),
        (["seq_max_k1"], [1], "unknown rejection rule 'seq_max_k1'"),
        (["token_k1"], [(2, 1)], "expected 0 < low <= high"),
        (["token_k1"], [0], "expected 0 < low <= high"),
        (["token_k3"], [(0.1, 1)], "an upper bound only"),
    ],
)
def test_rules_that_cannot_be_read_are_refused(
    rules: list[str], bounds: list[float | tuple[float, float]], wrong: str
) -> None:
    with pytest.raises(ConfigError, match=wrong):
        Rejection.parse(rules, bounds)


def test_the_mismatch_by_hand() -> None:
    training, rollout = tensor(0.5, 0.2).log(), tensor(0.25, 0.2).log()
    found = mismatch(training, rollout)
    assert_close(found["mismatch_kl"], tensor(-math.log(2), 0))
    assert_close(found["mismatch_k3"], tensor(1 - math.log(2), 0))
    assert_close(found["mismatch_probability"], tensor(0.25, 0))
    assert_close(found["mismatch_chi2"], tensor(3, 0))
