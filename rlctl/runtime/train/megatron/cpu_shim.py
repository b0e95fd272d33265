"""Megatron-core on machines without a GPU: its calls that only CUDA has go to the CPU. Never active where there is a GPU.

Megatron-core computes nothing by itself that a CPU does not; it names the device of what it makes. Of each kind of call:

    torch.zeros(..., device="cuda"), tensor.cuda()    the CPU's
    torch.cuda.current_device()                       the CPU
    random states of the device                       the CPU's own generator
    streams, events, synchronize                      nothing: a CPU computes in the order of the program
    functions it compiles                             run as they are written
    tensor.type() == "torch.cuda.FloatTensor"         of a tensor on the CPU too
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils import _device

MAKERS = ("arange", "empty", "empty_like", "full", "ones", "ones_like", "tensor", "zeros", "zeros_like")
"""Functions of torch that are told a device."""

_installed = False


def install() -> None:
    """Send CUDA-only calls to the CPU from now on, in this process; calling it again changes nothing.

    Raises:
        RuntimeError: there is a GPU.
    """
    global _installed
    if torch.cuda.is_available():
        raise RuntimeError("there is a GPU, and Megatron-core needs no shim")
    if _installed:
        return
    _installed = True
    _device._device_constructors()  # what a "with torch.device" goes by: the functions as they were
    for name in MAKERS:
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    changes: list[tuple[Any, str, Any]] = [
        (torch.Tensor, "cuda", lambda tensor, *args, **options: tensor),
        (torch.Tensor, "type", _named_of_cuda(torch.Tensor.type)),
        (torch.nn.Module, "cuda", lambda module, *args: module),
        (torch.cuda, "current_device", lambda: torch.device("cpu")),
        (torch.cuda, "get_rng_state", lambda *device: torch.get_rng_state()),
        (torch.cuda, "set_rng_state", lambda state, *device: torch.set_rng_state(state)),
        (torch.cuda, "manual_seed", torch.manual_seed),
        (torch.cuda, "synchronize", lambda *device: None),
        (torch.cuda, "Stream", _Stream),
        (torch.cuda, "Event", _Stream),
        (torch.cuda, "current_stream", _Stream),
        (torch.cuda, "default_stream", _Stream),
        (torch.cuda, "stream", lambda stream: nullcontext()),
    ]
    for where, name, value in changes:
        setattr(where, name, value)
    torch.compiler.set_stance("force_eager")  # no C++ compiler is asked for
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer.moe import token_dispatcher

    token_dispatcher.maybe_move_tensor_to_cpu = _moved
    random._get_cuda_rng_state = lambda *args, **options: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *args, **options: torch.set_rng_state(state)


def _moved(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
    """Counts of tokens as Megatron-core hands them to collectives: it makes arrays only of what comes from a GPU."""
    return tensor.numpy() if as_numpy and isinstance(tensor, torch.Tensor) else tensor


class _Stream:
    """A stream, or an event on one."""

    def __init__(self, *args: Any, **options: Any) -> None: ...

    def wait_stream(self, stream: _Stream) -> None: ...

    def wait_event(self, event: _Stream) -> None: ...

    def record_event(self, event: _Stream | None = None) -> _Stream:
        return self

    def record(self, stream: _Stream | None = None) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stream)

    __hash__ = None  # type: ignore[assignment]


def _on_cpu(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def made(*args: Any, **options: Any) -> Any:
        device = options.get("device")
        if device is not None and torch.device(device).type == "cuda":
            options["device"] = "cpu"
        return make(*args, **options)

    return made


def _named_of_cuda(type_of: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(type_of)
    def named(tensor: torch.Tensor, *args: Any, **options: Any) -> Any:
        found = type_of(tensor, *args, **options)
        return found.replace("torch.", "torch.cuda.") if isinstance(found, str) else found

    return named
