"""Log-probs from chunks of logits cost what is read of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from rlctl.runtime.algorithms import entropy
from rlctl.runtime.train.head import Head


@pytest.mark.parametrize("reads", [False, True], ids=["log-probs", "entropy"])
def test_the_entropy_has_a_gradient_only_if_the_loss_reads_it(monkeypatch: pytest.MonkeyPatch, reads: bool) -> None:
    sizes = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_key_value_heads": 2,
    }
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen2", **sizes, num_attention_heads=2))
    worked_out: list[bool] = []
    slope = entropy._slope_rows

    def noted(*args: Tensor | None) -> Tensor:
        worked_out.append(args[5] is not None)
        return slope(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(entropy, "_slope", noted)
    places = torch.arange(6)
    for _ in range(2):  # that the model leaves its logits alone is found out by the first
        head = Head(model)
        found = head.log_probs({"input_ids": torch.arange(6)[None]}, places, places, temperature=1.0, with_entropy=True)
        assert found is not None
        assert head.chunks
        drawn, entropies = found
        (drawn.sum() + (entropies.sum() if reads else 0.0)).backward()
    assert worked_out == [reads] * 2
