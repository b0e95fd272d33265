"""Products by oneDNN are those of PyTorch, up to rounding; exact engines do not use them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from rlctl.config.sections.model import Lora
from rlctl.runtime.models import cpu_products
from tests.runtime.train import jobs
from tests.runtime.train.processes import Workers

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch has no oneDNN")
BOUND = 4 * torch.finfo(torch.float32).eps
"""Of an error, as a part of the sum of all |products|; sums of so many rounded terms keep to it on either path."""


@needs_onednn
@pytest.mark.parametrize("rows", [0, 1, 127, 128, 640, 1300])
@pytest.mark.parametrize("bias", [False, True])
def test_values_and_gradients_are_those_of_a_linear_layer(rows: int, bias: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(96, 160, bias=bias)
    inputs, grad = torch.randn(1, rows, 96).requires_grad_(), torch.randn(1, rows, 160)
    output = cpu_products.linear(inputs, layer.weight, layer.bias)
    output.backward(grad)
    x, w, g = (tensor.detach().double() for tensor in (inputs[0], layer.weight, grad[0]))
    b = layer.bias.detach().double() if bias else torch.zeros(160, dtype=torch.float64)
    wanted = [
        (output, F.linear(x, w, b), F.linear(x.abs(), w.abs(), b.abs())),
        (inputs.grad, g @ w, g.abs() @ w.abs()),
        (layer.weight.grad, g.T @ x, g.abs().T @ x.abs()),
    ]
    if bias:
        wanted.append((layer.bias.grad, g.sum(0), g.abs().sum(0)))
    for found, exact, size in wanted:
        assert found is not None
        assert bool(((found.detach().double() - exact).abs() <= BOUND * size.reshape(exact.shape)).all())


def test_other_types_are_left_to_pytorch() -> None:
    layer = torch.nn.Linear(8, 8, dtype=torch.float64)
    rows = torch.randn(4, 8, dtype=torch.float64)
    assert torch.equal(cpu_products.linear(rows, layer.weight, layer.bias), layer(rows))


@needs_onednn
@pytest.mark.parametrize("lora", [None, Lora(rank=4)])
def test_an_update_is_that_of_pytorchs_products(two: Workers, models: dict[str, Path], lora: Lora | None) -> None:
    samples = jobs.make_samples(9)
    mine, count = two.run(jobs.updates_by_onednn, models["qwen2"], samples, lora, False)[0]
    theirs, none = two.run(jobs.updates_by_onednn, models["qwen2"], samples, lora, True)[0]
    assert (count >= 2 * 7, none) == (True, 0)  # under run.deterministic PyTorch computes
    for name, weight in theirs.items():
        torch.testing.assert_close(mine[name], weight, rtol=1e-5, atol=2e-6, msg=name)
