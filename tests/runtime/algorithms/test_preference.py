"""Preference losses: worked by hand, equal to TRL's DPO trainer on the same log-probs, and the same in any order of pairs."""

from __future__ import annotations

import math
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from trl.trainer.dpo_trainer import DPOTrainer

from rlctl.runtime.algorithms.preference import dpo

LENGTHS = torch.tensor([3, 1, 2, 4])  # two pairs: chosen, rejected


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_by_hand() -> None:
    """Gains over the reference of 2 and -1 in the first pair, 0 and 1 in the second."""
    log_probs = torch.tensor([-1.0, -1.0, -1.0, -4.0, -1.0, -2.0, -1.0, -1.0, -1.0, -1.0], dtype=torch.float64)
    reference = torch.tensor([-1.5, -2.0, -1.5, -3.0, -1.5, -1.5, -1.25, -1.25, -1.25, -1.25], dtype=torch.float64)
    found = dpo(log_probs, reference, LENGTHS, beta=0.5)
    assert found.values.tolist() == pytest.approx([-math.log(sigmoid(0.5 * 3)), -math.log(sigmoid(0.5 * -1))])
    assert found.metrics["accuracy"].tolist() == [1, 0]
    assert found.metrics["margin"].tolist() == pytest.approx([1.5, -0.5])
    assert found.metrics["chosen_reward"].tolist() == pytest.approx([1.0, 0.0])
    assert found.metrics["rejected_reward"].tolist() == pytest.approx([-0.5, 0.5])
    smoothed = dpo(log_probs, reference, LENGTHS, beta=0.5, label_smoothing=0.2)
    wanted = [-0.8 * math.log(sigmoid(0.5 * x)) - 0.2 * math.log(sigmoid(-0.5 * x)) for x in (3, -1)]
    assert smoothed.values.tolist() == pytest.approx(wanted)
    squared = dpo(log_probs, reference, LENGTHS, beta=0.5, ipo=True)
    assert squared.values.tolist() == pytest.approx([(3 - 1) ** 2, (-1 - 1) ** 2])


def test_without_pairs_there_is_nothing() -> None:
    found = dpo(torch.zeros(0), torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    assert found.values.shape == (0,)


def padded(lengths: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs of policy and reference as TRL has them, and the mask: [4, T] each, the chosen before the rejected."""
    generator = torch.Generator().manual_seed(seed)
    width = int(lengths.max())
    mask = torch.arange(width) < lengths[:, None]
    drawn = -torch.rand(4, width, generator=generator, dtype=torch.float64) * 3
    reference = drawn + 0.5 * torch.randn(4, width, generator=generator, dtype=torch.float64)
    return (drawn * mask).requires_grad_(), reference * mask, mask.long()


def trl_loss(log_probs: Tensor, reference: Tensor, mask: Tensor, **settings: Any) -> tuple[Tensor, dict[str, Any]]:
    """Loss and metrics of TRL's own method, given the log-probs that its models would have computed."""

    def outputs(values: Tensor) -> Any:
        zeros = torch.zeros_like(values).detach()
        return lambda **_: SimpleNamespace(log_probs=values, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())

    metrics: dict[str, dict[str, list[float]]] = {"train": defaultdict(list)}
    model = torch.nn.Identity()
    model.is_gradient_checkpointing = False  # type: ignore[assignment]
    trainer = SimpleNamespace(
        model=model,
        ref_model=outputs(reference),
        accelerator=SimpleNamespace(device="cpu", gather=lambda x: x, gather_for_metrics=lambda x: x),
        args=SimpleNamespace(gradient_checkpointing=False, gradient_checkpointing_kwargs=None),
        aux_loss_enabled=False,
        ld_alpha=None,
        precompute_ref_logps=False,
        f_divergence_type="reverse_kl",
        loss_weights=[1.0],
        label_smoothing=0.0,
        use_weighting=False,
        _total_train_tokens=0,
        _tp_size=1,
        _metrics=metrics,
        **settings,
    )
    with_prompt = torch.cat((torch.zeros(4, 1, dtype=torch.int64), mask), 1)
    inputs = {
        "input_ids": torch.ones_like(with_prompt),
        "attention_mask": torch.ones_like(with_prompt),
        "completion_mask": with_prompt,
    }
    return DPOTrainer._compute_loss(trainer, outputs(log_probs), inputs, False), metrics["train"]


@pytest.mark.parametrize(
    ("loss_type", "lengths", "options"),
    [
        ("sigmoid", LENGTHS, {}),
        ("ipo", torch.ones(4, dtype=torch.int64), {"ipo": True}),  # TRL divides by lengths, the paper and ROLL do not
    ],
)
def test_it_is_trls_loss_with_its_gradient_and_metrics(
    loss_type: str, lengths: Tensor, options: dict[str, Any]
) -> None:
    log_probs, reference, mask = padded(lengths, seed=3)
    theirs, metrics = trl_loss(log_probs, reference, mask, beta=0.3, loss_types=[loss_type])
    [expected] = torch.autograd.grad(theirs, log_probs)

    order = [0, 2, 1, 3]  # TRL puts both chosen before both rejected
    counted = mask[order].bool()
    ours = dpo(log_probs[order][counted], reference[order][counted], lengths[order], beta=0.3, **options)
    [gradient] = torch.autograd.grad(ours.values.mean(), log_probs)
    assert_close(ours.values.mean(), theirs)
    assert_close(gradient, expected * mask)
    for name, theirs_name in (
        ("accuracy", "accuracies"),
        ("margin", "margins"),
        ("chosen_reward", "chosen"),
        ("rejected_reward", "rejected"),
    ):
        assert ours.metrics[name].mean().item() == pytest.approx(metrics[f"rewards/{theirs_name}"][0], abs=1e-6)
