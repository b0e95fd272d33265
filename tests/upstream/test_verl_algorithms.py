"""The same tensors through verl's own functions and through ours: advantages, losses with gradients, corrections."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from rlctl.config import config_from
from rlctl.config.sections.train import ValueLoss
from rlctl.documents import read_yaml
from rlctl.planning.support import refusals
from rlctl.runtime.algorithms import correction
from rlctl.runtime.algorithms.advantages import estimate
from rlctl.runtime.algorithms.aggregation import Totals, aggregate, token_weights
from rlctl.runtime.algorithms.distributions import statistics_of_logits
from rlctl.runtime.algorithms.feedback import feedback_weights
from rlctl.runtime.algorithms.further_losses import FURTHER_LOSSES, covers_for_clip, covers_for_kl
from rlctl.runtime.algorithms.policy_losses import POLICY_LOSSES
from rlctl.runtime.algorithms.value_loss import explained_variance
from rlctl.runtime.experience.selection import estimator_of
from rlctl.runtime.specs.trained import loss_spec, teaching_of
from rlctl.runtime.train.losses import CriticLoss
from rlctl.runtime.workers.trainer import make_loss
from rlctl.translation.translate import read_document
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


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rejects", [False, True])
@pytest.mark.parametrize("name", ["optimal_token_baseline", "tir_optimal_token_baseline"])
def test_token_baselines(name: str, rejects: bool, weighted: bool) -> None:
    """Of squared probabilities, which are compared too; with tokens rejected, a group of which one response is left, and
    importance weights."""
    logits, drawn = 2 * randn(8, WIDTH, 11, seed=15), torch.arange(8 * WIDTH).view(8, WIDTH) % 11
    old = logits.log_softmax(-1).gather(-1, drawn[..., None]).squeeze(-1)
    weights, passed = randn(8, WIDTH, seed=7).abs(), MASK.clone()
    if rejects:
        passed &= randn(8, WIDTH, seed=16) < 0.7
        passed[4] = False
    rewards, penalties = randn(8, seed=1), 0.1 * randn(8, WIDTH, seed=2) * MASK
    at_tokens = -penalties
    at_tokens[torch.arange(8), LENGTHS - 1] += rewards
    ask = {"mask": passed.double().tolist(), "rewards": at_tokens.tolist(), "old_log_probs": old.tolist()}
    expected, squared = framework("verl-0.9.1", "drive_verl_algorithms.py").ask(
        of="token_baseline", name=name, logits=logits.tolist(), groups=GROUPS.tolist(), **ask,
        weights=weights.tolist() if weighted else None,
    )["value"]  # fmt: skip
    [ours] = statistics_of_logits(logits[MASK], drawn[MASK], ("squared_probabilities",))
    assert_close(ours, torch.tensor(squared, dtype=torch.float64)[MASK], rtol=1e-6, atol=1e-7)
    found = estimate(
        name,
        rewards,
        LENGTHS,
        groups=GROUPS,
        token_penalties=penalties[MASK],
        columns={
            "old_log_probs": old[MASK],
            "old_squared_probabilities": ours,
            "correction_weights": weights[MASK] if weighted else torch.ones_like(ours),
            "passed": passed[MASK],
        },
    ).tokens
    assert_close(found, torch.tensor(expected, dtype=torch.float64)[MASK], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("weights", [None, [1.0, 0.25]])
def test_advantages_of_rewards_normalised_apart(weights: list[float] | None) -> None:
    parts = torch.stack([randn(8, seed=1), 10 * randn(8, seed=2)])
    expected = verl("gdpo", parts=parts, groups=GROUPS, weights=weights)
    found = estimate("gdpo", parts.sum(0), LENGTHS, groups=GROUPS, parts=parts, weights=weights).tokens
    assert_close(found, torch.tensor(expected, dtype=torch.float64)[MASK], rtol=1e-5, atol=1e-5)  # verl's are float32


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
        policy_loss={"dro_beta": options["dro_beta"]} if "dro_beta" in options else {},
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


@pytest.mark.parametrize("name", ["clip_cov", "kl_cov"])
def test_losses_that_choose_tokens_by_covariance(name: str) -> None:
    """Every candidate is chosen by ``clip_cov``, so that no chance is left; and the third of highest covariance by ``kl_cov``."""
    log_probs = -randn(8, WIDTH, seed=4).abs()
    old = log_probs + 0.4 * randn(8, WIDTH, seed=5)
    advantages = randn(8, 1, seed=6) * MASK
    settings = {"clip_cov_ratio": 1.0, "clip_cov_lb": 0.1, "clip_cov_ub": 0.9, "kl_cov_ratio": 0.3, "ppo_kl_coef": 0.7}
    expected, gradient = verl(
        "loss",
        name=name,
        mode="token-mean",
        log_probs=log_probs,
        old_log_probs=old,
        advantages=advantages,
        config={"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 3.0},
        policy_loss=settings,
    )
    counted = log_probs[MASK], old[MASK], advantages[MASK]
    if name == "clip_cov":
        options: dict[str, float] = dict(CLIP)
        chosen = covers_for_clip(*counted, torch.Generator(), **CLIP, ratio=1.0, low=0.1, high=0.9)
    else:
        options = {"ppo_kl_coef": 0.7}
        chosen = covers_for_kl(counted[0], counted[2], ratio=0.3)
    assert 0 < chosen.sum() < len(chosen)
    log_probs.requires_grad_()
    tensors = {
        "log_probs": log_probs[MASK],
        "old_log_probs": counted[1],
        "advantages": counted[2],
        "chosen": chosen.double(),
        "lengths": LENGTHS,
    }
    loss = FURTHER_LOSSES[name](tensors, **options).values.mean()
    assert loss.item() == pytest.approx(expected, rel=1e-9)
    assert_close(torch.autograd.grad(loss, log_probs)[0], torch.tensor(gradient, dtype=torch.float64))


@pytest.mark.parametrize("top_k", [3, 8])
def test_the_forward_kl_of_a_teachers_likeliest_tokens(top_k: int) -> None:
    """Of logits far enough apart that log-probs are raised to verl's least one, and that a divergence is negative."""
    teacher = randn(30, 20, seed=22)
    student = 6 * teacher + 4 * randn(30, 20, seed=21)
    best = teacher.log_softmax(-1).topk(top_k)
    expected, gradient = verl("distillation", logits=student, teacher=best.values, places=best.indices, top_k=top_k)
    section = {"teacher": "t", "loss": "forward_kl", "top_k": top_k, "args": {"with_rewards": False}}
    teaching = teaching_of(config_from({"algorithm": {"distillation": section}}))
    assert teaching is not None
    student.requires_grad_()
    found = teaching.of_logits(student, teacher)
    assert bool((found < 0).any()) == (top_k == 3)
    found = teaching.compared(found)
    assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-5, atol=1e-6)  # verl's sum is in float32
    gradients = torch.autograd.grad(found.sum(), student)[0]
    assert_close(gradients, torch.tensor(gradient, dtype=torch.float64), rtol=1e-5, atol=1e-6)


NOT_COMPUTED = {
    "estimators": set(),
    "losses": set(),
    "distillation": set(),
}
"""Registered names that a run refuses."""
SET_BY = {
    "estimators": "algorithm.adv_estimator={name}",
    "losses": "actor_rollout_ref.actor.policy_loss.loss_mode={name}",
    "distillation": "distillation.distillation_loss.loss_mode={name}",
}


@pytest.mark.parametrize("kind", SET_BY)
def test_every_name_that_verl_registers_is_computed_or_refused(kind: str) -> None:
    names = verl("registered")[kind]
    found = {name: problem_with(kind, name) for name in names if name != "bypass_mode"}
    print(f"{kind}: {', '.join(f'{name} ({told})' if told else name for name, told in found.items())}")
    assert {name for name, told in found.items() if told} == NOT_COMPUTED[kind]
    assert len(found) > 5


def problem_with(kind: str, name: str) -> str:
    """Why a run of verl's config with this name is refused; empty where it is computed."""
    teacher = ["distillation.enabled=true", "distillation.teacher_models.teacher_model.model_path=/m"]
    overrides = [SET_BY[kind].format(name=name), *(teacher if kind == "distillation" else [])]
    if name in ("k1", "kl") and kind == "distillation":
        overrides.append("distillation.distillation_loss.use_policy_gradient=true")
    if name == "gdpo":
        overrides.append("+algorithm.gdpo_reward_keys=[form,right]")
    overrides += ["actor_rollout_ref.actor.policy_loss.dro_beta=0.1", "actor_rollout_ref.rollout.n=4"]
    loaded, report = read_document(
        read_yaml("", "overrides", allow_empty=True), dialect="verl@0.9", overrides=overrides, environment={}
    )
    assert loaded is not None, [finding.message for finding in report.errors]
    algorithm = loaded.config.algorithm
    told = [refusal.reason for refusal in refusals(loaded.config) if refusal.key[0] == "algorithm"]
    if told:
        return told[0]
    estimator_of(algorithm)
    make_loss(loss_spec(loaded.config))
    return ""


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
    numbers = [tuple(float(end) for end in bound.split("_")) for bound in bounds.split(",")]
    parsed = correction.Rejection.parse(rules.split(","), [ends if len(ends) == 2 else ends[0] for ends in numbers])
    found = correction.keeps(LOG_RATIO[MASK], LENGTHS, parsed, None)
    assert found.tolist() == expected[MASK].tolist()
    assert 0 < found.sum() < len(found)
