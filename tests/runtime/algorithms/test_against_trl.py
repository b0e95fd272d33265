"""Same tensors in, same numbers out as TRL's GRPO trainer: log-probs, entropy, loss, gradient and metrics.

TRL imports vLLM, which takes six seconds: only here, and in the process that starts vLLM's engine.
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from rlctl.config.sections.algorithm import (
    Algorithm,
    ImportanceSampling,
    KlInLoss,
    OtherLoss,
    PpoClip,
    RolloutCorrection,
)
from rlctl.runtime.algorithms.advantages import grpo
from rlctl.runtime.algorithms.aggregation import Totals, aggregate, token_weights
from rlctl.runtime.algorithms.entropy import log_probs_and_entropy
from rlctl.runtime.algorithms.kl import KL_ESTIMATORS
from rlctl.runtime.algorithms.policy_losses import POLICY_LOSSES
from rlctl.runtime.train.losses import PolicyLoss

pytestmark = pytest.mark.xdist_group("vllm")
WIDTH = 9
LENGTHS = torch.tensor([9, 4, 1, 6])
MASK = (torch.arange(WIDTH) < LENGTHS[:, None]).long()


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_and_entropy(temperature: float) -> None:
    from trl.trainer.utils import selective_log_softmax_and_entropy

    logits, targets = torch.randn(12, 40), torch.randint(0, 40, (12,))
    ours = log_probs_and_entropy(logits, targets, temperature=temperature)
    theirs = selective_log_softmax_and_entropy(logits[None], targets[None], temperature=temperature)
    for result, expected in zip(ours, theirs, strict=True):
        assert_close(result, expected[0])


def test_group_advantages() -> None:
    from trl.trainer.utils import nanstd

    rewards = torch.randn(6, 4)
    expected = (rewards - rewards.mean(1, keepdim=True)) / (nanstd(rewards, dim=1, keepdim=True) + 1e-4)
    groups = torch.arange(6).repeat_interleave(4)
    assert_close(grpo(rewards.flatten(), groups, epsilon=1e-4), expected.flatten())


def trl_loss(
    log_probs: Tensor, inputs: dict[str, Tensor], kind: Any = None, **settings: object
) -> tuple[Tensor, dict[str, list[float]]]:
    """Return the loss and metrics of TRL's own method, told one process, one accumulation step, and the log-probs."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    metrics: dict[str, dict[str, list[float]]] = {"train": defaultdict(list)}
    defaults = {
        "importance_sampling_level": "token",
        "epsilon_low": 0.2,
        "epsilon_high": 0.3,
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "use_vllm": False,
        "vllm_importance_sampling_correction": True,
        "aux_loss_enabled": False,
        "_entropy_bonus_enabled": False,
        "current_gradient_accumulation_steps": 1,
        "max_completion_length": WIDTH,
    }
    trainer = SimpleNamespace(
        **(defaults | settings),
        model=SimpleNamespace(training=True),
        args=SimpleNamespace(
            delta=None,
            use_bias_correction_kl=settings.get("use_bias_correction_kl", False),
            steps_per_generation=1,
            sapo_temperature_pos=1.0,
            sapo_temperature_neg=1.0625,  # exact in float32, which TRL takes it in
        ),
        accelerator=SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x),
        _metrics=metrics,
        _get_per_token_logps_and_entropies=lambda *_, **__: (log_probs, torch.zeros_like(log_probs), None),
    )
    return (kind or GRPOTrainer)._compute_loss(trainer, None, inputs), metrics["train"]


def case() -> tuple[Tensor, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(11)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    log_probs = -randn(4, WIDTH).exp()
    inputs = {
        "prompt_ids": torch.ones(4, 2, dtype=torch.int64),
        "prompt_mask": torch.ones(4, 2, dtype=torch.int64),
        "completion_ids": torch.ones(4, WIDTH, dtype=torch.int64),
        "completion_mask": MASK,
        "advantages": randn(4),
        "old_per_token_logps": log_probs + 0.4 * randn(4, WIDTH),
        "ref_per_token_logps": log_probs + 0.4 * randn(4, WIDTH),
        "num_items_in_batch": MASK.sum().double(),
    }
    return log_probs.requires_grad_(), inputs


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize(
    ("loss_type", "level", "policy_loss", "mode", "scale"),
    [
        ("dapo", "token", "ppo_clip", "token_mean", None),
        ("grpo", "token", "ppo_clip", "seq_mean_token_mean", None),
        ("luspo", "token", "ppo_clip", "seq_mean_token_sum", None),
        ("dr_grpo", "token", "ppo_clip", "seq_mean_token_sum_norm", float(WIDTH)),
        ("grpo", "sequence", "gspo", "seq_mean_token_mean", None),
        ("cispo", "token", "cispo", "token_mean", None),
        ("sapo", "token", "sapo", "seq_mean_token_mean", None),
    ],
)
def test_loss_gradient_and_clip_fraction(
    loss_type: str, level: str, policy_loss: str, mode: str, scale: float | None, beta: float
) -> None:
    log_probs, inputs = case()
    counted = MASK.bool()
    tensors = {
        "log_probs": log_probs[counted],
        "old_log_probs": inputs["old_per_token_logps"][counted],
        "advantages": inputs["advantages"].repeat_interleave(LENGTHS),
        "lengths": LENGTHS,
    }
    # TRL's cispo has only an upper bound, which is the ratio itself
    trl_high = 1.3 if loss_type == "cispo" else 0.3
    options = {"clip_low": 1.0 if loss_type == "cispo" else 0.2, "clip_high": 0.3}
    if policy_loss == "ppo_clip":
        options["dual_clip"] = None  # type: ignore[assignment]
    if policy_loss == "sapo":
        options = {"tau_negative": 1.0625}
    ours = POLICY_LOSSES[policy_loss](tensors, **options)
    kl = KL_ESTIMATORS["k3"](log_probs[counted], inputs["ref_per_token_logps"][counted])
    totals = Totals.of(LENGTHS)
    weights = token_weights(mode, LENGTHS, totals, scale_factor=scale, dtype=torch.float64)
    loss = aggregate(ours.values + beta * kl, weights, LENGTHS)

    theirs, metrics = trl_loss(
        log_probs, inputs, loss_type=loss_type, importance_sampling_level=level, beta=beta, epsilon_high=trl_high
    )
    assert_close(loss, theirs, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(x, log_probs)[0] for x in (loss, theirs)]
    assert gradients[0].abs().sum() > 0
    assert_close(*gradients, rtol=1e-12, atol=1e-12)
    if policy_loss == "ppo_clip":
        by_token = token_weights("token_mean", LENGTHS, totals, dtype=torch.float64)
        fraction = float(aggregate(ours.metrics["clip_fraction"], by_token, LENGTHS))
        assert fraction > 0
        assert fraction == pytest.approx(metrics["clip_ratio/region_mean"][0])


def packed_case(log_probs: Tensor, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """What our losses read, of the same tokens."""
    counted = MASK.bool()
    return {
        "log_probs": log_probs[counted],
        "old_log_probs": inputs["old_per_token_logps"][counted],
        "reference_log_probs": inputs["ref_per_token_logps"][counted],
        "rollout_log_probs": inputs["old_per_token_logps"][counted],
        "advantages": inputs["advantages"].repeat_interleave(LENGTHS),
        "entropy": torch.zeros(int(LENGTHS.sum()), dtype=torch.float64),
        "lengths": LENGTHS,
    }


def assert_same(log_probs: Tensor, ours: Tensor, theirs: Tensor) -> None:
    """Value and gradient."""
    assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(x, log_probs)[0] for x in (ours, theirs)]
    assert gradients[0].abs().sum() > 0
    assert_close(*gradients, rtol=1e-12, atol=1e-12)


def test_geometric_mean_loss() -> None:
    from trl.experimental.gmpo.gmpo_trainer import GMPOTrainer

    log_probs, inputs = case()
    other = OtherLoss(kind="geo_mean", args={"clip_low": 0.1, "clip_high": 0.2})
    loss = PolicyLoss.of(Algorithm(policy_loss=other), max_response_tokens=WIDTH)
    theirs, _ = trl_loss(log_probs, inputs, GMPOTrainer, loss_type="grpo", beta=0.0, epsilon_low=0.1, epsilon_high=0.2)
    assert_same(log_probs, loss(packed_case(log_probs, inputs), Totals.of(LENGTHS)).loss, theirs)


def test_importance_weights_of_the_rollout_engine_multiply_the_policy_loss_and_not_the_kl() -> None:
    log_probs, inputs = case()
    inputs["importance_sampling_ratio"] = torch.rand(4, WIDTH, dtype=torch.float64) + 0.5
    algorithm = Algorithm(
        policy_loss=PpoClip(dual_clip=None, clip_high=0.3),
        kl_in_loss=KlInLoss(estimator="k3_unclamped", coefficient=0.1),
        rollout_correction=RolloutCorrection(importance_sampling=ImportanceSampling(level="token")),
    )
    tensors = packed_case(log_probs, inputs)
    tensors["policy_weights"] = inputs["importance_sampling_ratio"][MASK.bool()]
    loss = PolicyLoss.of(algorithm, max_response_tokens=WIDTH)(tensors, Totals.of(LENGTHS)).loss
    theirs, _ = trl_loss(log_probs, inputs, loss_type="dapo", beta=0.1, use_vllm=True)
    assert_same(log_probs, loss, theirs)


def test_a_kl_corrected_by_the_ratio() -> None:
    log_probs, inputs = case()
    inputs["old_per_token_logps"] = log_probs.detach() + 0.1 * torch.randn(4, WIDTH, dtype=torch.float64)
    algorithm = Algorithm(
        policy_loss=PpoClip(dual_clip=None, clip_high=0.3),
        kl_in_loss=KlInLoss(estimator="k3_corrected", coefficient=0.1),
    )
    loss = PolicyLoss.of(algorithm, max_response_tokens=WIDTH)(packed_case(log_probs, inputs), Totals.of(LENGTHS)).loss
    theirs, _ = trl_loss(log_probs, inputs, loss_type="dapo", beta=0.1, use_bias_correction_kl=True)
    assert_same(log_probs, loss, theirs)
