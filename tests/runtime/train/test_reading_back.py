"""Work on a micro-batch reads nothing back from its GPU, which would have to be waited for while it has nothing to do.

The meta device stands for a GPU: what asks for a value of a tensor there, or for a size that depends on one, raises.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from rlctl.config import config_from
from rlctl.runtime.algorithms.aggregation import AGGREGATIONS, Totals
from rlctl.runtime.algorithms.further_losses import FURTHER_LOSSES
from rlctl.runtime.algorithms.policy_losses import POLICY_LOSSES
from rlctl.runtime.train import attention
from rlctl.runtime.train.head import Head
from rlctl.runtime.train.losses import PolicyLoss, SftLoss
from rlctl.runtime.train.microbatch import collate
from rlctl.runtime.types import Sample

META = torch.device("meta")
COLUMNS = ("advantages", "rollout_log_probs", "old_log_probs")
SIZES = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
TOTALS = Totals(30, 3)


def make_samples() -> list[Sample]:
    return [
        Sample(torch.arange(length), torch.arange(length) > 3, {name: torch.randn(length) for name in COLUMNS})
        for length in (10, 17, 9)
    ]


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama"])
def test_passes_of_a_micro_batch(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Of the model with flash attention, its head and the loss, and their gradients."""
    attention.register()
    monkeypatch.setattr(attention, "runs_flash", lambda query: True)
    with META:
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SIZES, **HEADS), dtype=torch.bfloat16)
    model.set_attn_implementation(attention.PACKED)
    batch = collate(make_samples(), COLUMNS, padded=False, device=META)
    log_probs, entropy = _drawn(Head(model), batch)
    tensors = {**batch.columns, "lengths": batch.lengths, "log_probs": log_probs, "entropy": entropy}
    loss = PolicyLoss.of(config_from({"model": {"path": "m"}}).algorithm, max_response_tokens=100)
    loss(tensors, TOTALS).loss.backward()
    assert all(weight.grad is not None for weight in model.parameters())


def _drawn(head: Head, batch: Any) -> tuple[Tensor, Tensor]:
    found = head.log_probs(batch.inputs, batch.select, batch.targets, temperature=1.0, with_entropy=True)
    assert found is not None
    return found


def token_values(**further: Tensor) -> dict[str, Tensor]:
    names = ("log_probs", "entropy", "chosen", "reference_log_probs", *COLUMNS)
    tensors = {name: torch.empty(7, device=META, requires_grad=name == "log_probs") for name in names}
    return tensors | {"lengths": torch.empty(3, dtype=torch.int64, device=META)} | further


OPTIONS: dict[str, dict[str, float]] = {"dro": {"dro_beta": 0.1}}


@pytest.mark.parametrize("name", sorted(POLICY_LOSSES | FURTHER_LOSSES))
def test_policy_losses(name: str) -> None:
    segments = torch.empty(7, dtype=torch.int64, device=META)
    found = (POLICY_LOSSES | FURTHER_LOSSES)[name](token_values(segments=segments), **OPTIONS.get(name, {}))
    assert found.values.shape == (7,)


@pytest.mark.parametrize("mode", sorted(AGGREGATIONS))
@pytest.mark.parametrize("rules", [["token_k1"], ["seq_max_k3", "seq_mean_k1"]], ids=["tokens", "responses"])
def test_a_loss_with_correction_and_kl(mode: str, rules: list[str]) -> None:
    correction = {
        "rejection": rules,
        "rejection_bounds": [2.0],
        "veto_threshold": 1e-4,
        "use_policy_gradient": True,
        "importance_sampling": {"level": "sequence"},
    }
    config = config_from(
        {
            "model": {"path": "m"},
            "algorithm": {
                "old_log_probs": "rollout",
                "loss_aggregation": {"mode": mode},
                "kl_in_loss": {"coefficient": 0.1},
                "entropy_coefficient": 0.1,
                "rollout_correction": correction,
            },
        }
    )
    terms = PolicyLoss.of(config.algorithm, max_response_tokens=100)(token_values(), TOTALS)
    assert terms.metrics.keys() >= {"policy_loss", "kl_loss", "rejected_share"}
    assert SftLoss()(token_values(), TOTALS).loss.shape == ()


def test_a_micro_batch_goes_to_a_gpu_without_waiting_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """From pinned memory; PyTorch waits for all earlier work before a copy from other memory."""
    pinned: list[int] = []
    sent: list[tuple[bool, bool]] = []
    to = Tensor.to

    def pin(tensor: Tensor) -> Tensor:
        pinned.append(id(tensor))
        return tensor

    def send(tensor: Tensor, *args: Any, **options: Any) -> Tensor:
        if args and isinstance(args[0], torch.device) and args[0].type == "cuda":
            sent.append((id(tensor) in pinned, options.get("non_blocking", False)))
            return tensor
        return to(tensor, *args, **options)

    monkeypatch.setattr(Tensor, "pin_memory", pin)
    monkeypatch.setattr(Tensor, "to", send)
    collate(make_samples(), COLUMNS, padded=False, device=torch.device("cuda"))
    assert len(sent) == 2 + 3 + 3 + len(COLUMNS)  # inputs, rows, what is counted, columns
    assert set(sent) == {(True, True)}
