"""New weights for a model that is in use: taken part by part, every parameter exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from rlctl.common.errors import RunError, nearest
from rlctl.common.messages.reasons import said


def without_memory(config: Any, *, trust_remote_code: bool) -> PreTrainedModel:
    """The model as Transformers makes it, on no device: names, shapes and ties of the weights that are sent."""
    with torch.device("meta"):
        made: PreTrainedModel = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    return made


class Checklist:
    """What has come of the weights of a model, which may be a meta one.

    Tied weights are one parameter under several names: one of the names is enough, further ones must agree with it.
    Persistent buffers may be among the weights, and need not be.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        parameters = dict(model.named_parameters(remove_duplicate=False))
        self._targets: dict[str, torch.Tensor] = dict(model.state_dict(keep_vars=True)) | parameters
        self._first: dict[int, str] = {}
        self._tied: set[int] = set()
        for name, parameter in parameters.items():
            if self._first.setdefault(id(parameter), name) != name:
                self._tied.add(id(parameter))
        self._loaded: dict[str, None] = {}
        self._sent: dict[int, tuple[str, torch.Tensor | None]] = {}

    def take(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        """The weights as they come, each parameter once and under its first name.

        Raises:
            RunError: a tensor that is unknown, sent twice, of another shape, or unlike the one it is tied to.
        """
        for name, tensor in weights:
            target = self._target(name, tensor)
            self._loaded[name] = None
            if id(target) not in self._sent:
                yield self._first.get(id(target), name), tensor
                self._sent[id(target)] = (name, self._kept(target, tensor))
                continue
            other, before = self._sent[id(target)]
            if tensor.is_meta:
                raise RunError(
                    said(
                        "{name} was sent after {other}, but the model shares one tensor between them; from GPU to "
                        "GPU only one of the two is sent",
                        name=name,
                        other=other,
                    )
                )
            if before is not None and not torch.equal(before.to(target.dtype), tensor.to(before.device, target.dtype)):
                raise RunError(
                    said(
                        "{name} differs from {other}, but the model shares one tensor between them; expected equal "
                        "tensors",
                        name=name,
                        other=other,
                    )
                )

    def _kept(self, target: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor | None:
        """What a tensor under another name of the same weights is compared with: the memory of a part is used again."""
        if id(target) not in self._tied:
            return None
        return tensor.clone() if target.is_meta else target

    def finish(self) -> None:
        """All has come.

        Raises:
            RunError: it has not.
        """
        missing = [
            name
            for name, target in self._targets.items()
            if id(target) in self._first and self._first[id(target)] == name and id(target) not in self._sent
        ]
        if missing:
            raise RunError(
                said(
                    "{count} of the model's parameters were not sent, the first is {missing}",
                    count=len(missing),
                    missing=missing[0],
                )
            )

    @torch.no_grad()
    def copy(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copy weights into the model as they come; they are cast and moved to where the parameter is."""
        for name, tensor in self.take(weights):
            self._targets[name].copy_(tensor)

    def _target(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        target = self._targets.get(name)
        if target is None:
            raise RunError(said("the model has no parameter {name}", name=name), hint=nearest(name, self._targets))
        if name in self._loaded:
            raise RunError(said("{name} was sent twice; expected each parameter once", name=name))
        if tensor.shape != target.shape:
            raise RunError(
                said(
                    "{name} has shape {shape}; the model's is {shape_shape}",
                    name=name,
                    shape=list(tensor.shape),
                    shape_shape=list(target.shape),
                )
            )
        return target


MATRICES = (".lora_A.weight", ".lora_B.weight")
"""How names of an adapter's A [rank, in] and B [out, rank] end in peft's files."""


class AdapterChecklist:
    """What has come of the adapters of a model, under the names of peft's files: of each layer A and B, once."""

    def __init__(self) -> None:
        self._ranks: dict[str, int] = {}

    def take(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors as they come.

        Raises:
            RunError: a tensor that is no adapter's, or sent twice.
        """
        for name, tensor in tensors:
            if not name.endswith(MATRICES):
                raise RunError(said("{name} is no adapter; expected only adapters", name=name))
            if name in self._ranks:
                raise RunError(said("{name} was sent twice; expected each parameter once", name=name))
            self._ranks[name] = tensor.shape[0 if name.endswith(MATRICES[0]) else 1]
            yield name, tensor

    def finish(self) -> None:
        """All has come.

        Raises:
            RunError: it has not.
        """
        down, up = MATRICES
        layers = {name.removesuffix(down).removesuffix(up) for name in self._ranks}
        for layer in sorted(layers):
            ranks = self._ranks.get(layer + down), self._ranks.get(layer + up)
            if ranks[0] != ranks[1]:
                raise RunError(
                    said(
                        "the adapter of {layer} has ranks {ranks} in A and B; expected equal ranks",
                        layer=layer,
                        ranks=ranks,
                    )
                )
        if not layers:
            raise RunError("no adapters were sent")


class TakesWeights:
    """The calls of a rollout engine by which new weights come: begin, part after part, commit; or all at once.

    From ``begin_weights`` to ``commit_weights`` an engine answers nothing, nor after a failure until a whole load succeeds.
    """

    def begin_weights(self, version: int) -> None:
        raise NotImplementedError

    def add_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        raise NotImplementedError

    def commit_weights(self) -> None:
        raise NotImplementedError

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], *, version: int) -> None:
        """Overwrite the weights in place.

        Raises:
            RunError: a tensor missing, unknown, sent twice or of another shape. The engine then answers nothing until a
                load succeeds, as it holds weights of two versions.
        """
        self.begin_weights(version)
        self.add_weights(weights)
        self.commit_weights()
