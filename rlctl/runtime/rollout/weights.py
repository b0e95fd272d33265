"""New weights for a model that is in use: copied in place, one tensor at a time, every parameter exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from rlctl.errors import RunError, nearest


@torch.no_grad()
def copy_weights(model: torch.nn.Module, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Copy ``weights`` into ``model``; tensors are cast and moved to where the parameter is.

    Raises:
        RunError: as ``checked``.
    """
    targets = model.state_dict(keep_vars=True) | dict(model.named_parameters())
    for name, tensor in checked(model, weights):
        targets[name].copy_(tensor)


def checked(model: torch.nn.Module, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights as they come, each parameter of ``model`` once and under its first name; the model may be a meta one.

    Tied weights are one parameter under several names: one of the names is enough, further ones must agree with it.
    Persistent buffers may be among the weights, and need not be.

    Raises:
        RunError: a tensor that is missing, unknown, sent twice, of another shape, or unlike the one it is tied to.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    targets = dict(model.state_dict(keep_vars=True)) | parameters
    first: dict[int, str] = {}
    tied: set[int] = set()
    for name, parameter in parameters.items():
        if first.setdefault(id(parameter), name) != name:
            tied.add(id(parameter))
    loaded: dict[str, None] = {}
    sent: dict[int, tuple[str, torch.Tensor | None]] = {}
    for name, tensor in weights:
        target = _target(name, tensor, targets, loaded)
        loaded[name] = None
        if id(target) not in sent:
            sent[id(target)] = (name, tensor if id(target) in tied else None)
            yield first.get(id(target), name), tensor
            continue
        other, before = sent[id(target)]
        if before is not None and not torch.equal(before.to(target.dtype), tensor.to(target.dtype)):
            raise RunError(f"{name} differs from {other}, to which the model ties it; expected equal tensors")
    missing = [name for name, parameter in model.named_parameters() if id(parameter) not in sent]
    if missing:
        raise RunError(f"{len(missing)} of the model's parameters were not sent, the first is {missing[0]}")


def _target(name: str, tensor: torch.Tensor, targets: dict[str, torch.Tensor], loaded: dict[str, None]) -> torch.Tensor:
    if name not in targets:
        raise RunError(f"the model has no parameter {name}", hint=nearest(name, targets))
    if name in loaded:
        raise RunError(f"{name} was sent twice; expected each parameter once")
    if tensor.shape != targets[name].shape:
        raise RunError(f"{name} has shape {list(tensor.shape)}; the model's is {list(targets[name].shape)}")
    return targets[name]
