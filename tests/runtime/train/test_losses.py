"""The loss of a config is the sum of its terms, each with its own coefficient; worked by hand on three tokens."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from rlctl.common.errors import ConfigError, PlanError
from rlctl.config import config_from
from rlctl.config.sections.algorithm import (
    Aggregation,
    Algorithm,
    Cispo,
    Gspo,
    ImportanceSampling,
    KlInLoss,
    LossWeights,
    OtherLoss,
    PolicyGradient,
    PpoClip,
    RolloutCorrection,
    Topr,
)
from rlctl.planning.arithmetic import needs_reference
from rlctl.runtime.algorithms.aggregation import Totals
from rlctl.runtime.train.losses import PolicyLoss, SftLoss, add_trajectory_tokens, totals_of
from rlctl.runtime.types import Sample
from tests.runtime.train.jobs import make_samples

TOTALS = Totals(tokens=6, sequences=4)


def tensors() -> dict[str, Tensor]:
    """Two sequences, of two tokens and of one; ratios 2, 1 and 1/2."""
    log_probs = torch.tensor([-1.0, -2.0, -0.5], requires_grad=True)
    return {
        "log_probs": log_probs,
        "old_log_probs": log_probs.detach() - torch.tensor([2.0, 1.0, 0.5]).log(),
        "reference_log_probs": log_probs.detach() + torch.tensor([0.0, 1.0, -1.0]),
        "rollout_log_probs": log_probs.detach() - torch.tensor([2.0, 1.0, 0.5]).log(),
        "advantages": torch.tensor([1.0, -1.0, 2.0]),
        "entropy": torch.tensor([0.3, 0.6, 0.9], requires_grad=True),
        "lengths": torch.tensor([2, 1]),
    }


def loss_of(**algorithm: Any) -> PolicyLoss:
    return PolicyLoss.of(Algorithm(**algorithm), max_response_tokens=10)


@pytest.mark.parametrize(
    ("algorithm", "values"),
    [
        # max(-A r, -A clip(r)): -1.2 (clipped), 1, -2 * 0.5
        ({"policy_loss": PpoClip()}, [-1.2, 1.0, -1.0]),
        ({"policy_loss": PpoClip(clip_high=0.5)}, [-1.5, 1.0, -1.0]),
        # sequence ratios sqrt(2) and 1/2; -A s, clipped above at 1 + 4e-4
        ({"policy_loss": Gspo()}, [-1.0004, math.sqrt(2), -1.0]),
        # -clip(r, 0, 1.28) A log p
        ({"policy_loss": Cispo()}, [1.28, -2.0, 0.5]),
        ({"policy_loss": PolicyGradient()}, [1.0, -2.0, 1.0]),
        ({"policy_loss": PolicyGradient(importance_weight="truncated_ratio")}, [1.0, -2.0, 0.5]),
        # -w A log p with w 3 for good tokens, min(r, 1) for the bad one
        ({"policy_loss": Topr(positive_weight=3.0)}, [3.0, -2.0, 3.0]),
        ({"policy_loss": OtherLoss(kind="opmd", args={"tau": 3.0})}, [0.25, -0.5, 0.25]),
        # verl carries the arguments of its other losses along
        ({"policy_loss": OtherLoss(kind="kimi15", args={"tau": 0.0, "clip_cov_lb": 1.0})}, [1.0, -2.0, 1.0]),
    ],
)
def test_policy_losses_by_hand(algorithm: dict[str, Any], values: list[float]) -> None:
    terms = loss_of(**algorithm)(tensors(), TOTALS)
    assert terms.loss.item() == pytest.approx(sum(values) / 6, rel=1e-6)
    assert terms.metrics["policy_loss"].item() == pytest.approx(sum(values) / 6, rel=1e-6)


def test_kl_and_entropy_are_weighted_and_reported() -> None:
    loss = loss_of(kl_in_loss=KlInLoss(estimator="k2", coefficient=0.1), entropy_coefficient=0.5)
    terms = loss(tensors(), TOTALS)
    assert terms.metrics["kl_loss"].item() == pytest.approx((0 + 0.5 + 0.5) / 6)
    assert terms.metrics["entropy"].item() == pytest.approx(1.8 / 6)
    assert terms.loss.item() == pytest.approx((-1.2 + 0.1 * 1.0 - 0.5 * 1.8) / 6)
    assert terms.metrics["ratio"].item() == pytest.approx(3.5 / 6)
    assert terms.metrics["clip_fraction"].item() == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        (Aggregation(mode="token_sum"), -1.2),
        (Aggregation(mode="seq_mean_token_sum"), -1.2 / 4),
        (Aggregation(mode="seq_mean_token_mean"), (-0.2 / 2 - 1.0) / 4),
        (Aggregation(mode="seq_mean_token_sum_norm"), -1.2 / 4 / 10),
        (Aggregation(mode="seq_mean_token_sum_norm", scale_factor=5.0), -1.2 / 4 / 5),
        (Aggregation(mode="token_mean", per_micro_batch=True), -1.2 / 3 * 2 / 4),
        (Aggregation(mode="seq_mean_token_mean", per_micro_batch=True), (-0.2 / 2 - 1.0) / 4),
    ],
)
def test_aggregation_by_hand(aggregation: Aggregation, expected: float) -> None:
    assert loss_of(loss_aggregation=aggregation)(tensors(), TOTALS).loss.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        # Two trajectories: one of two rows with 2 + 1 tokens, and one of a row with 1 token. A token of row i weighs:
        ("token_mean", [1 / 4, 1 / 4, 1 / 4]),
        ("seq_mean_token_sum", [1 / 2, 1 / 2, 1 / 2]),
        ("seq_mean_token_mean", [1 / (2 * 3), 1 / (2 * 3), 1 / 2]),
        ("seq_mean_token_sum_norm", [1 / 20, 1 / 20, 1 / 20]),
    ],
)
def test_means_over_trajectories_count_each_once_however_many_rows_it_has(mode: Any, expected: list[float]) -> None:
    loss = loss_of(loss_aggregation=Aggregation(mode=mode, unit="trajectory"), policy_loss=PolicyGradient())
    counted = [torch.tensor([False, *[True] * length]) for length in (2, 1, 1)]
    samples = [
        Sample(torch.zeros(len(mask), dtype=torch.int64), mask, trajectory=owner)
        for mask, owner in zip(counted, (0, 0, 1), strict=True)
    ]
    add_trajectory_tokens(samples)
    log_probs = torch.zeros(4, requires_grad=True)
    given = {
        "log_probs": log_probs,
        "old_log_probs": torch.zeros(4),
        "rollout_log_probs": torch.zeros(4),
        "advantages": torch.ones(4),
        "entropy": torch.zeros(4),
        "lengths": torch.tensor([2, 1, 1]),
        "trajectory_tokens": torch.cat([each.columns["trajectory_tokens"][each.mask] for each in samples]),
    }
    assert set(loss.columns) <= {*given, "trajectory_tokens"}
    [gradient] = torch.autograd.grad(loss(given, totals_of(samples, by_trajectory=True)).loss, log_probs)
    first, second, third = expected
    assert (-gradient).tolist() == pytest.approx([first, first, second, third])


def test_means_over_trajectories_are_of_whole_mini_batches() -> None:
    with pytest.raises(PlanError, match="unit trajectory and per_micro_batch true"):
        loss_of(loss_aggregation=Aggregation(unit="trajectory", per_micro_batch=True))


def test_the_current_policy_may_stand_for_the_old_one() -> None:
    """Same value and gradient as old log-probs that were computed a moment before."""
    given = tensors()
    given["old_log_probs"] = given["log_probs"].detach()
    [expected] = torch.autograd.grad(loss_of()(given, TOTALS).loss, given["log_probs"])
    other = tensors()
    del other["old_log_probs"]
    loss = PolicyLoss.of(Algorithm(), max_response_tokens=10, old_is_current=True)
    assert loss.columns == ("advantages", "rollout_log_probs")
    [found] = torch.autograd.grad(loss(other, TOTALS).loss, other["log_probs"])
    assert torch.equal(found, expected)


def test_sft_is_the_mean_negative_log_likelihood() -> None:
    terms = SftLoss.of(Algorithm(), max_response_tokens=10)(tensors(), TOTALS)
    assert terms.loss.item() == pytest.approx(3.5 / 6)


@pytest.mark.parametrize(
    ("choice", "wrong"),
    [
        (OtherLoss(kind="clip_kl"), "type 'clip_kl'; expected one of clip_cov"),
        (OtherLoss(kind=""), "type ''; expected"),
        (OtherLoss(kind="opmd", args={"tua": 1}), "no argument tua"),
    ],
)
def test_losses_that_no_function_computes_are_refused(choice: OtherLoss, wrong: str) -> None:
    with pytest.raises(PlanError, match=wrong):
        loss_of(policy_loss=choice)


def test_a_geometric_mean_counts_once_a_response_whatever_the_aggregation() -> None:
    """Cut at log(1.2): the first response's mean log ratio is (log 1.2 + 0) / 2 with A = 0; the second's loss is -2 * 0.5."""
    loss = loss_of(policy_loss=OtherLoss(kind="geo_mean", args={"clip_low": 1.0}), entropy_coefficient=1.0)
    terms = loss(tensors(), TOTALS)
    assert terms.metrics["policy_loss"].item() == pytest.approx(-1.0 / 4)
    assert terms.loss.item() == pytest.approx(-1.0 / 4 - 1.8 / 6)  # entropy stays a mean over tokens


@pytest.mark.parametrize(
    ("args", "expected"),
    [({}, (1.0 - 2.0 + 1.0) / 6), ({"clip_mode": "gspo-one-side", "epsilon_high": 1.0}, ((1.0 - 2.0) / 2 + 1.0) / 4)],
)
def test_rec_is_a_mean_over_tokens_or_over_responses_whatever_the_aggregation(
    args: dict[str, Any], expected: float
) -> None:
    loss = loss_of(policy_loss=OtherLoss(kind="rec", args=args), loss_aggregation=Aggregation(mode="token_sum"))
    assert loss(tensors(), TOTALS).loss.item() == pytest.approx(expected, abs=1e-7)


def test_the_weight_of_rl_is_on_policy_loss_and_kl_not_on_entropy() -> None:
    terms = loss_of(
        kl_in_loss=KlInLoss(estimator="k2", coefficient=0.1),
        entropy_coefficient=0.5,
        loss_weights=LossWeights(rl=0.25),
    )(tensors(), TOTALS)
    assert terms.loss.item() == pytest.approx((0.25 * (-1.2 + 0.1 * 1.0) - 0.5 * 1.8) / 6)


def test_token_weights_are_on_the_policy_loss_only() -> None:
    given = tensors() | {"policy_weights": torch.tensor([0.5, 0.0, 2.0])}
    loss = loss_of(
        kl_in_loss=KlInLoss(estimator="k2", coefficient=0.1),
        rollout_correction=RolloutCorrection(importance_sampling=ImportanceSampling(level="token")),
    )
    assert "policy_weights" in loss.columns
    assert loss(given, TOTALS).loss.item() == pytest.approx((-0.6 - 2.0 + 0.1 * 1.0) / 6)


@pytest.mark.parametrize(
    ("correction", "values", "rejected"),
    [
        # new over rollout is 2, 1 and 1/2: the ratio of the clipped loss, which takes no weight
        (RolloutCorrection(importance_sampling=ImportanceSampling(level="token", threshold=1.5)), [-1.2, 1.0, -1.0], 0),
        # the first token's rollout / new is 1/2, below 0.6
        (RolloutCorrection(rejection=("token_k1",), rejection_bounds=((0.6, 4.0),)), [0.0, 1.0, -1.0], 1),
        (RolloutCorrection(veto_threshold=0.6), [-1.2, 1.0, 0.0], 1),
        # -w A log p with w = min(ratio, 1.5)
        (
            RolloutCorrection(
                importance_sampling=ImportanceSampling(level="token", threshold=1.5), use_policy_gradient=True
            ),
            [1.5, -2.0, 0.5],
            0,
        ),
        (RolloutCorrection(use_policy_gradient=True), [1.0, -2.0, 1.0], 0),
    ],
)
def test_with_rollout_log_probs_for_old_ones_the_loss_corrects_by_those_of_the_moment(
    correction: RolloutCorrection, values: list[float], rejected: int
) -> None:
    """Rejected tokens still count in the mean, as in verl: its totals are taken before."""
    terms = loss_of(old_log_probs="rollout", rollout_correction=correction)(tensors(), TOTALS)
    assert terms.loss.item() == pytest.approx(sum(values) / 6, rel=1e-6, abs=1e-7)
    assert terms.metrics.get("rejected_share", torch.tensor(0.0)).item() == pytest.approx(rejected / 6)


def test_weights_that_take_the_whole_step_are_refused_where_a_micro_batch_is_seen() -> None:
    for wanted in ({"level": "token", "normalize": True}, {"level": "segment"}):
        correction = RolloutCorrection(importance_sampling=ImportanceSampling(**wanted), use_policy_gradient=True)  # type: ignore[arg-type]
        with pytest.raises(PlanError, match="only one micro-batch"):
            loss_of(old_log_probs="rollout", rollout_correction=correction)


def test_weights_of_tokens_are_refused_for_a_loss_of_whole_responses() -> None:
    with pytest.raises(PlanError, match="takes no token-level weights"):
        loss_of(
            policy_loss=OtherLoss(kind="geo_mean"),
            rollout_correction=RolloutCorrection(importance_sampling=ImportanceSampling(level="token")),
        )


def test_the_mismatch_of_the_engines_is_always_reported() -> None:
    """Training over rollout is 1, 1, 1 for the policy that drew, and 2, 1, 1/2 for that of the moment."""
    for old, expected in (("recompute", 0.0), ("rollout", -(math.log(2) + math.log(0.5)) / 6)):
        metrics = loss_of(old_log_probs=old)(tensors(), TOTALS).metrics
        assert metrics["mismatch_kl"].item() == pytest.approx(expected, abs=1e-7)
        moved = 0.0 if old == "recompute" else (1 - math.log(2) + math.log(2) - 0.5) / 6
        assert metrics["mismatch_k3"].item() == pytest.approx(moved, abs=1e-7)


def test_a_kl_that_counts_nothing_asks_for_no_reference() -> None:
    """The plan makes no reference for a coefficient of 0, so the loss must not read its log-probs."""
    config = config_from({"algorithm": {"kl_in_loss": {"coefficient": 0.0}}})
    assert not needs_reference(config)
    assert "reference_log_probs" not in PolicyLoss.of(config.algorithm, max_response_tokens=8).columns


def test_the_full_kl_is_what_the_engine_compares() -> None:
    loss = loss_of(kl_in_loss=KlInLoss(estimator="full", coefficient=0.1))
    assert "reference_log_probs" not in loss.columns
    terms = loss(tensors() | {"whole_kl": torch.tensor([0.5, 1.0, 1.5])}, TOTALS)
    assert terms.metrics["kl_loss"].item() == pytest.approx(3.0 / 6)
    assert terms.loss.item() == pytest.approx((-1.2 + 0.1 * 3.0) / 6)


def test_a_kl_estimator_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="KL estimator"):
        loss_of(kl_in_loss=KlInLoss(estimator="k9"))  # type: ignore[arg-type]


def test_totals_count_sequences_without_tokens_too() -> None:
    samples = make_samples(4)
    assert totals_of(samples) == Totals(tokens=sum(int(each.mask.sum()) for each in samples), sequences=4)
    assert any(not each.mask.any() for each in samples)
