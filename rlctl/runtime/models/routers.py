"""The routers of a Transformers model's experts: what they choose is recorded, or chosen for them (``algorithm.router_replay``).

A router computes what it always does. Only its one ``torch.topk`` is watched, or answered with the experts that are given and
the scores that it has for them now: their weights, and its gradient, are those of the model as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from rlctl.common.errors import PlanError, RunError
from rlctl.common.messages.reasons import said

FAMILIES = {
    "fsdp2": ("gpt_oss", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe"),
    "megatron": ("qwen3_moe",),
}
"""By engine: kinds of models (``model_type``) whose experts are recorded and replayed. Transformers' are those whose routers
choose by one ``torch.topk`` over the experts."""


class Routers:
    """Those of a model, in the order of its layers."""

    def __init__(self, model: PreTrainedModel) -> None:
        """
        Raises:
            PlanError: the model has no experts, or chooses them in a way that is not known here.
        """
        check_family(model.config.model_type, "fsdp2")
        kind = model._can_record_outputs["router_logits"].target_class
        self._modules = [module for module in model.modules() if isinstance(module, kind)]
        self._given: Tensor | None = None
        self._found: dict[int, Tensor] | None = None
        for place, module in enumerate(self._modules):
            module.forward = partial(self._forward, place, module.forward)

    def __len__(self) -> int:
        return len(self._modules)

    @contextmanager
    def recording(self) -> Iterator[dict[int, Tensor]]:
        """What each layer chooses in the forward pass inside, int64 [tokens, k], by its place."""
        self._found = {}
        try:
            yield self._found
        finally:
            self._found = None

    @contextmanager
    def replaying(self, experts: Tensor) -> Iterator[None]:
        """Every pass inside, forward or again for the backward pass, goes to these experts, int64 [tokens, layers, k]."""
        self._given = experts
        try:
            yield
        finally:
            self._given = None

    def _forward(self, place: int, own: Any, *args: Any, **options: Any) -> Any:
        if self._given is None and self._found is None:
            return own(*args, **options)
        choice = _Choice(None if self._given is None else self._given[:, place])
        with choice:
            output = own(*args, **options)
        if len(choice.found) != 1:
            raise RunError(said("a router chose {count} times in one pass; expected once", count=len(choice.found)))
        if self._found is not None:
            self._found[place] = choice.found[0]
        return output


def routed_layers(model: PreTrainedModel) -> list[int]:
    """The layers that have experts, by their numbers; the model may be on no device.

    Raises:
        PlanError: none has, or they choose in a way that is not known here.
    """
    check_family(model.config.model_type, "fsdp2")
    kind = model._can_record_outputs["router_logits"].target_class
    names = (name for name, module in model.named_modules() if isinstance(module, kind))
    return [int(name.partition("layers.")[2].partition(".")[0]) for name in names]


class _Choice(TorchFunctionMode):
    """Sees what ``torch.topk`` chooses, or has it choose ``given``."""

    def __init__(self, given: Tensor | None) -> None:
        super().__init__()
        self._given = given
        self.found: list[Tensor] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is not torch.topk:
            return func(*args, **(kwargs or {}))
        if self._given is None:
            scores, chosen = func(*args, **(kwargs or {}))
        else:
            chosen = self._given.to(args[0].device)
            scores = args[0].gather(-1, chosen)
        self.found.append(chosen)
        return scores, chosen


def check_family(model_type: str, engine: str) -> None:
    """Refuse a model whose experts an engine does not replay.

    Raises:
        PlanError: it is of another family.
    """
    if model_type not in FAMILIES[engine]:
        raise PlanError(
            said(
                "algorithm.router_replay is set, but the {engine} engine supports it only for {names} models; this "
                "is a {model_type} model",
                engine=engine,
                names=", ".join(FAMILIES[engine]),
                model_type=model_type,
            ),
            hint="set algorithm.router_replay to off",
        )
