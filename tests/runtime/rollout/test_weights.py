"""Every parameter is named exactly once; anything else is refused with the tensor's name."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from transformers import AutoModelForCausalLM

from rlctl.common.errors import RunError
from rlctl.runtime.rollout.weights import Checklist

from .conftest import CONFIGS

Weights = list[tuple[str, torch.Tensor]]


def copy_weights(model: torch.nn.Module, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
    """All of them, and nothing else."""
    checklist = Checklist(model)
    checklist.copy(weights)
    checklist.finish()


def model(kind: str = "qwen2", *, seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(CONFIGS[kind])


def named(kind: str = "qwen2", *, seed: int = 1) -> Weights:
    return list(model(kind, seed=seed).named_parameters())


@pytest.mark.parametrize("kind", CONFIGS)
def test_weights_are_copied_into_the_same_tensors(kind: str) -> None:
    target = model(kind)
    places = [parameter.data_ptr() for parameter in target.parameters()]
    copy_weights(target, ((name, tensor) for name, tensor in reversed(named(kind))))
    assert [parameter.data_ptr() for parameter in target.parameters()] == places
    for (name, parameter), (_, sent) in zip(target.named_parameters(), named(kind), strict=True):
        assert torch.equal(parameter, sent), name


def test_weights_are_cast_to_the_models_type() -> None:
    target = model().to(torch.bfloat16)
    copy_weights(target, named())
    for (_, parameter), (_, sent) in zip(target.named_parameters(), named(), strict=True):
        assert torch.equal(parameter, sent.to(torch.bfloat16))


@pytest.mark.parametrize("first", [True, False])
def test_a_tied_head_may_be_sent_as_well(first: bool) -> None:
    target, weights = model(), named()
    head = ("lm_head.weight", dict(weights)["model.embed_tokens.weight"].clone())
    copy_weights(target, [head, *weights] if first else [*weights, head])
    assert torch.equal(target.lm_head.weight, head[1])


def test_a_tied_head_alone_stands_for_the_embedding() -> None:
    target = model()
    weights = [("lm_head.weight" if "embed" in name else name, tensor) for name, tensor in named()]
    copy_weights(target, weights)
    assert torch.equal(target.model.embed_tokens.weight, dict(weights)["lm_head.weight"])


def test_a_tied_head_that_differs_is_refused() -> None:
    head = ("lm_head.weight", torch.zeros(64, 32))
    with pytest.raises(RunError, match=r"lm_head\.weight differs from model\.embed_tokens\.weight"):
        copy_weights(model(), [*named(), head])


def test_an_untied_head_must_be_sent() -> None:
    weights = [(name, tensor) for name, tensor in named("llama") if name != "lm_head.weight"]
    with pytest.raises(RunError, match=r"1 of the model's parameters were not sent, the first is lm_head\.weight"):
        copy_weights(model("llama"), weights)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(RunError, match=r"no parameter model\.norms\.weight") as caught:
        copy_weights(model(), [("model.norms.weight", torch.zeros(32))])
    assert "model.norm.weight" in caught.value.hint


def test_a_repeated_name_is_refused() -> None:
    with pytest.raises(RunError, match=r"model\.norm\.weight was sent twice"):
        copy_weights(model(), [*named(), ("model.norm.weight", torch.zeros(32))])


def test_another_shape_is_refused() -> None:
    with pytest.raises(RunError, match=r"model\.norm\.weight has shape \[1\]; the model's is \[32\]"):
        copy_weights(model(), [("model.norm.weight", torch.zeros(1))])
