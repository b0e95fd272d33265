"""Norms and MLPs with backward passes of ours are those of Transformers, up to rounding."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, MistralConfig, PreTrainedConfig, Qwen2Config, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm
from transformers.models.mistral.modeling_mistral import MistralMLP, MistralRMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2MLP, Qwen2RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP, Qwen3RMSNorm

from rlctl.runtime.models import cpu_layers

CPU = torch.device("cpu")
SIZES = {"hidden_size": 96, "intermediate_size": 160}
KINDS = {
    "llama": (LlamaConfig(**SIZES), LlamaRMSNorm, LlamaMLP),
    "mistral": (MistralConfig(**SIZES), MistralRMSNorm, MistralMLP),
    "qwen2": (Qwen2Config(**SIZES), Qwen2RMSNorm, Qwen2MLP),
    "qwen3": (Qwen3Config(**SIZES), Qwen3RMSNorm, Qwen3MLP),
}


def made(kind: str, part: str) -> torch.nn.Module:
    """A layer of Transformers with random weights."""
    config, norm, mlp = KINDS[kind]
    torch.manual_seed(0)
    layer: torch.nn.Module = norm(96, eps=1e-3) if part == "norm" else mlp(config)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return layer


def passes(layer: torch.nn.Module, inputs: Tensor, grad: Tensor) -> list[Tensor]:
    """The output, and the gradients of inputs and weights."""
    given = inputs.clone().requires_grad_()
    output = layer(given)
    return [output.detach(), *torch.autograd.grad(output, (given, *layer.parameters()), grad)]


@pytest.mark.parametrize("rows", [1, 700])
@pytest.mark.parametrize("part", ["norm", "mlp"])
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_are_those_of_transformers(kind: str, part: str, rows: int) -> None:
    layer, inputs, grad = made(kind, part), torch.randn(1, rows, 96), torch.randn(1, rows, 96)
    exact = passes(deepcopy(layer).double(), inputs.double(), grad.double())
    theirs = passes(layer, inputs, grad)
    cpu_layers.use(layer, CPU)
    assert "forward" in vars(layer)
    for mine, plain, wanted in zip(passes(layer, inputs, grad), theirs, exact, strict=True):
        size = wanted.abs().max()
        assert (mine - wanted).abs().max() <= 2e-6 * size
        assert (plain - wanted).abs().max() <= 2e-6 * size


def test_what_is_not_known_is_left_alone() -> None:
    config: PreTrainedConfig = Qwen2Config(**SIZES, hidden_act="gelu")
    other = torch.nn.Sequential(Qwen2MLP(config), torch.nn.RMSNorm(96))
    cpu_layers.use(other, CPU)
    assert not any("forward" in vars(module) for module in other.modules())


@pytest.mark.parametrize("change", ["float64", "frozen", "adapter"])
def test_a_layer_that_is_computed_otherwise_computes_itself(change: str) -> None:
    layer, inputs = made("qwen2", "mlp"), torch.randn(3, 96)
    if change == "float64":
        layer, inputs = layer.double(), inputs.double()
    if change == "frozen":
        layer.up_proj.requires_grad_(False)
    if change == "adapter":
        layer.gate_proj = torch.nn.Sequential(layer.gate_proj)
        layer.gate_proj.weight = layer.gate_proj[0].weight
    wanted = layer(inputs)
    cpu_layers.use(layer, CPU)
    found = layer(inputs)
    assert torch.equal(found, wanted)
    assert found.grad_fn is not None
    assert type(found.grad_fn).__name__ == type(wanted.grad_fn).__name__
