"""The same tensors through verl's own functions and through ours: advantages, losses with gradients, corrections."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from rlctl.config.sections.train import ValueLoss
from rlctl.runtime.algorithms import correction
from rlctl.runtime.algorithms.advantages import estimate
from rlctl.runtime.algorithms.aggregation import Totals, aggregate, token_weights
from rlctl.runtime.algorithms.feedback import feedback_weights
from rlctl.runtime.algorithms.further_losses import FURTHER_LOSSES
from rlctl.runtime.algorithms.policy_losses import POLICY_LOSSES
from rlctl.runtime.algorithms.value_loss import explained_variance
from rlctl.runtime.train.losses import CriticLoss
from tests.upstream.frameworks import framework

pytestmark = pytest.mark.upstream

WIDTH = 7
LENGTHS = torch.tensor([7, 2, 5, 1, 6, 3, 4, 7])
GROUPS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
MASK = torch.arange(WIDTH) < LENGTHS[:, None]


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


ESTIMATORS = ["grpo", "grpo_passk", "rloo", "rloo_vectorized", "opo", "gpg", "remax"]
ESTIMATORS += ["reinforce_plus_plus", "reinforce_plus_plus_baseline"]


def verl(of: str, **ask: Any) -> Any:
    plain = {name: value.tolist() if isinstance(value, Tensor) else value for name, value in ask.items()}
    return framework("verl-0.9.1", "drive_verl_algorithms.py").ask(of=of, mask=MASK.double().tolist(), **plain)["value"]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_advantages(name: str) -> None:
    """Rewards at the last token, less a penalty at every one."""
    rewards, penalties, baselines = randn(8, seed=1), 0.1 * randn(8, WIDTH, seed=2) * MASK, randn(8, seed=3)
    at_tokens = -penalties
    at_tokens[torch.arange(8), LENGTHS - 1] += rewards
    gamma = 0.9 if name == "reinforce_plus_plus" else 1.0
    expected = verl("advantage", name=name, rewards=at_tokens, groups=GROUPS, baselines=baselines, gamma=gamma)
    found = estimate(
        name.removesuffix("_vectorized"),
        rewards,
        LENGTHS,
        groups=GROUPS,
        baselines=baselines,
        token_penalties=penalties[MASK],
        **({"gamma": gamma} if name == "reinforce_plus_plus" else {}),
    ).tokens
    assert_close(found, torch.tensor(expected, dtype=torch.float64)[MASK], rtol=1e-8, atol=1e-8)


GAPS = MASK & (torch.arange(WIDTH) != 2)
"""With a tool's output in the middle of responses."""


@pytest.mark.parametrize("mask", [MASK, GAPS], ids=["whole", "gaps"])
@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.9, 0.95)])
def test_gae(mask: Tensor, gamma: float, lam: float) -> None:
    """Rewards at the last counted token less a penalty at every one; what the critic says of other tokens is not read."""
    lengths = mask.sum(1)
    rewards, values, penalties = randn(8, seed=1), randn(8, WIDTH, seed=9), 0.1 * randn(8, WIDTH, seed=2) * mask
    last = torch.where(mask, torch.arange(WIDTH), -1).max(1).values
    at_tokens = -penalties
    at_tokens[torch.arange(8), last] += rewards
    ask = {"rewards": at_tokens.tolist(), "values": values.tolist(), "mask": mask.double().tolist()}
    advantages, returns, explained = framework("verl-0.9.1", "drive_verl_algorithms.py").ask(
        of="gae", gamma=gamma, **{"lambda": lam}, **ask
    )["value"]
    found = estimate(
        "gae", rewards, lengths, values=values[mask], token_penalties=penalties[mask], gamma=gamma, lambda_=lam
    )
    assert found.returns is not None
    assert_close(found.tokens, torch.tensor(advantages, dtype=torch.float64)[mask], rtol=1e-7, atol=1e-8)
    assert_close(found.returns, torch.tensor(returns, dtype=torch.float64)[mask], rtol=1e-9, atol=1e-9)
    assert explained_variance(values[mask], found.returns) == pytest.approx(explained, abs=1e-9)


@pytest.mark.parametrize("clip", [0.5, 0.1])
@pytest.mark.parametrize("mode", ["token_mean", "seq_mean_token_sum", "seq_mean_token_mean"])
def test_value_loss(mode: str, clip: float) -> None:
    old, returns = randn(8, WIDTH, seed=11), randn(8, WIDTH, seed=12)
    values = old + 0.5 * randn(8, WIDTH, seed=13)
    expected, gradient, clipped = verl(
        "value_loss", predicted=values, old_values=old, returns=returns, clip=clip, mode=mode.replace("_", "-")
    )
    values.requires_grad_()
    objective = CriticLoss.of(ValueLoss(clip=clip, aggregation=mode), max_response_tokens=WIDTH)  # type: ignore[arg-type]
    tensors = {"values": values[MASK], "old_values": old[MASK], "returns": returns[MASK], "lengths": LENGTHS}
    terms = objective(tensors, Totals.of(LENGTHS))
    assert terms.loss.item() == pytest.approx(expected, rel=1e-7)
    assert terms.metrics["clip_fraction"].item() == pytest.approx(clipped, rel=1e-6)
    assert_close(
        torch.autograd.grad(terms.loss, values)[0], torch.tensor(gradient, dtype=torch.float64), rtol=1e-7, atol=1e-9
    )


@pytest.mark.parametrize(("reweight", "power"), [("pow", 2.0), ("pow", 0.5), ("max_min", 2.0), ("max_random", 2.0)])
def test_preference_feedback(reweight: Any, power: float) -> None:
    scores = randn(8, WIDTH, seed=14) * MASK
    expected = verl("feedback", scores=scores, reweight=reweight, power=power)
    found = feedback_weights(scores.sum(1), reweight=reweight, power=power)
    assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-12)


CLIP = {"clip_low": 0.2, "clip_high": 0.28}
LOSSES: list[tuple[str, str, dict[str, Any], str]] = [
    ("vanilla", "ppo_clip", {**CLIP, "dual_clip": 1.5}, "token_mean"),
    ("vanilla", "ppo_clip", {**CLIP, "dual_clip": 1.5}, "seq_mean_token_sum"),
    ("vanilla", "ppo_clip", {**CLIP, "dual_clip": 1.5}, "seq_mean_token_mean"),
    ("vanilla", "ppo_clip", {**CLIP, "dual_clip": 1.5}, "seq_mean_token_sum_norm"),
    ("gspo", "gspo", CLIP, "seq_mean_token_mean"),
    ("cispo", "cispo", CLIP, "token_mean"),
    ("sapo", "sapo", {}, "seq_mean_token_mean"),
    ("gpg", "policy_gradient", {}, "token_mean"),
    ("dppo_tv", "dppo_tv", {**CLIP, "clip_ratio_c": 1.5}, "token_mean"),
    ("dppo_kl", "dppo_kl", {**CLIP, "clip_ratio_c": 1.5}, "token_mean"),
    ("geo_mean", "geo_mean", CLIP, "seq_mean_token_mean"),
    ("dro", "dro", {"dro_beta": 0.3}, "token_mean"),
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("theirs", "ours", "options", "mode"), LOSSES, ids=[f"{row[0]}-{row[3]}" for row in LOSSES])
def test_policy_losses(theirs: str, ours: str, options: dict[str, Any], mode: str, weighted: bool) -> None:
    if weighted and theirs == "geo_mean":
        pytest.skip("verl takes the geometric mean of the weights over a response there")
    log_probs = -randn(8, WIDTH, seed=4).abs()
    old = log_probs + 0.4 * randn(8, WIDTH, seed=5)
    advantages = randn(8, 1, seed=6) * MASK
    weights = randn(8, WIDTH, seed=7).abs()
    expected, gradient = verl(
        "loss",
        name=theirs,
        mode=mode.replace("_", "-"),
        log_probs=log_probs,
        old_log_probs=old,
        advantages=advantages,
        weights=weights if weighted else None,
        config={"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 1.5},
        dro_beta=options.get("dro_beta"),
    )
    log_probs.requires_grad_()
    tensors = {
        "log_probs": log_probs[MASK],
        "old_log_probs": old[MASK],
        "advantages": advantages[MASK],
        "lengths": LENGTHS,
    }
    values = {**POLICY_LOSSES, **FURTHER_LOSSES}[ours](tensors, **options).values
    factor = float(WIDTH) if mode.endswith("norm") else None
    by_token = token_weights(mode, LENGTHS, Totals.of(LENGTHS), scale_factor=factor, dtype=torch.float64)
    loss = aggregate(values * weights[MASK] if weighted else values, by_token, LENGTHS)
    assert loss.item() == pytest.approx(expected, rel=1e-7, abs=1e-8)
    assert_close(
        torch.autograd.grad(loss, log_probs)[0], torch.tensor(gradient, dtype=torch.float64), rtol=1e-7, atol=1e-8
    )


LOG_RATIO = 0.8 * randn(8, WIDTH, seed=8)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("threshold", "lower"), [("1.5", None), ("0.5_1.5", 0.5)])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_importance_weights(level: Any, threshold: str, lower: float | None, normalize: bool) -> None:
    expected = verl("weights", log_ratio=LOG_RATIO, level=level, threshold=threshold, normalize=normalize)
    found = correction.weights(LOG_RATIO[MASK], LENGTHS, level, upper=1.5, lower=lower, normalize=normalize)
    assert_close(found, torch.tensor(expected, dtype=torch.float64)[MASK], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("rules", "bounds"),
    [
        ("token_k1", "0.5_1.6"),
        ("token_k1", "1.5"),
        ("token_k2", "0.3"),
        ("token_k3", "0.3"),
        ("seq_sum_k1", "0.4_3"),
        ("seq_sum_k2", "1"),
        ("seq_sum_k3", "1"),
        ("seq_mean_k1", "0.8_1.3"),
        ("seq_mean_k2", "0.3"),
        ("seq_mean_k3", "0.3"),
        ("seq_max_k2", "0.8"),
        ("seq_max_k3", "0.8"),
        ("token_k1,seq_max_k3", "0.5_2,0.9"),
    ],
)
def test_rejection(rules: str, bounds: str) -> None:
    expected = torch.tensor(verl("rejection", log_ratio=LOG_RATIO, rules=rules, bounds=bounds)) > 0
    parsed = correction.Rejection.parse(rules.split(","), bounds.split(","))
    found = correction.keeps(LOG_RATIO[MASK], LENGTHS, parsed, None)
    assert found.tolist() == expected[MASK].tolist()
    assert 0 < found.sum() < len(found)
