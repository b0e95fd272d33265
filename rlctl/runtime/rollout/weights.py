"""New weights for a model that is in use: copied in place, one tensor at a time, every parameter exactly once."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from rlctl.errors import RunError, nearest


@torch.no_grad()
def copy_weights(model: torch.nn.Module, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Copy ``weights`` into ``model``; tensors are cast and moved to where the parameter is.

    Tied weights are one parameter under several names: one of the names is enough, further ones must agree with it.
    Persistent buffers may be among the weights, and need not be.

    Raises:
        RunError: a tensor that is missing, unknown, sent twice, of another shape, or unlike the one it is tied to.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    targets = dict(model.state_dict(keep_vars=True)) | parameters
    loaded: dict[str, None] = {}
    written: dict[int, str] = {}
    for name, tensor in weights:
        target = _target(name, tensor, targets, loaded)
        loaded[name] = None
        if id(target) not in written:
            target.copy_(tensor)
            written[id(target)] = name
        elif not torch.equal(target, tensor.to(target)):
            raise RunError(
                f"{name} differs from {written[id(target)]}, to which the model ties it; expected equal tensors"
            )
    missing = [name for name, parameter in model.named_parameters() if id(parameter) not in written]
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
