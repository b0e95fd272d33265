"""What the Megatron engine compiles on a GPU is one graph each, whatever the lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rlctl.config.sections.train import Train
from rlctl.runtime.train.compiling import compiles

pytest.importorskip("megatron.core", reason="megatron-core is not installed")


def test_each_is_one_graph_for_all_lengths() -> None:
    from rlctl.runtime.train.megatron import experts, model

    graphs: list[int] = []

    def counting(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    weight = torch.ones(8, dtype=torch.bfloat16)
    calls: list[tuple[Callable[..., Tensor], Callable[[int], tuple[Any, ...]]]] = [
        (model._normed, lambda tokens: (torch.randn(tokens, 1, 8, dtype=torch.bfloat16), weight, 1e-5)),
        (experts._gated, lambda tokens: (torch.randn(tokens, 8, dtype=torch.bfloat16), torch.rand(tokens))),
    ]
    torch._dynamo.reset()
    with torch.compiler.set_stance("default"):
        for function, arguments in calls:
            graphs.clear()
            compiled = torch.compile(function, dynamic=True, fullgraph=True, backend=counting)
            for tokens in (5, 7, 11):
                given = arguments(tokens)
                assert torch.equal(compiled(*given), function(*given))
            assert len(graphs) == 1


@pytest.mark.parametrize(
    ("device", "compile", "expected"), [("cuda", True, True), ("cuda", False, False), ("cpu", True, False)]
)
def test_it_is_compiled_on_a_gpu_with_a_compiler_only(
    monkeypatch: pytest.MonkeyPatch, device: str, compile: bool, expected: bool
) -> None:
    monkeypatch.setattr("rlctl.runtime.train.compiling.has_triton", lambda: True)
    assert compiles(Train(compile=compile), torch.device(device)) is expected
    monkeypatch.setattr("rlctl.runtime.train.compiling.has_triton", lambda: False)
    assert not compiles(Train(compile=compile), torch.device(device))
