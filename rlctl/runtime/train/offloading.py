"""What moves to CPU memory while a GPU is needed for something else.

Activations move between passes, weights and an optimizer's state between turns.

A GPU copies at the speed of its bus, and beside its kernels, only from and to pinned memory, and copies beside kernels only in
another stream. On a CPU the same code runs with memory that is not pinned and streams that do nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.tensor import DTensor, Shard

LEAST_BYTES = 2**20
"""Smaller tensors stay: moving them costs more than they take."""


@dataclass(weakref_slot=True, slots=True)
class _Waiting:
    """An activation in CPU memory."""

    place: Tensor
    device: torch.device
    before: weakref.ref[_Waiting] | None
    """The one that was moved before it, which the backward pass asks for next."""
    coming: Tensor | None = None
    """The tensor on its device, once its copy has begun."""


class OffloadedActivations(saved_tensors_hooks):
    """A context for a forward pass: what autograd keeps of it waits in CPU memory until the backward pass asks for it.

    With recomputed activations that is the input of each layer. Weights stay: they are kept by others anyway. Copies run in
    a stream of their own; the backward pass of a layer runs while the input of the layer before it is on its way back.
    """

    def __init__(self, *, least_bytes: int = LEAST_BYTES) -> None:
        super().__init__(self._pack, self._unpack)
        self._least_bytes = least_bytes
        self._side: Any = None
        """The stream of the copies."""
        self._last: weakref.ref[_Waiting] | None = None
        self.moved = 0
        """Tensors moved so far."""

    def _pack(self, tensor: Tensor) -> Tensor | _Waiting:
        small = tensor.numel() * tensor.element_size() < self._least_bytes
        if small or _is_weight(tensor) or not tensor.is_floating_point():
            return tensor
        self.moved += 1
        streams = torch.get_device_module(tensor.device)
        if self._side is None:
            self._side = streams.Stream()
        place = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")
        self._side.wait_stream(streams.current_stream())
        with streams.stream(self._side):
            place.copy_(tensor, non_blocking=True)
        _used_in(tensor, self._side)
        waiting = _Waiting(place, tensor.device, self._last)
        self._last = weakref.ref(waiting)
        return waiting

    def _unpack(self, packed: Tensor | _Waiting) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        now = torch.get_device_module(packed.device).current_stream()
        tensor = packed.coming if packed.coming is not None else self._fetched(packed)
        packed.coming = None
        now.wait_stream(self._side)
        _used_in(tensor, now)
        before = packed.before() if packed.before is not None else None
        if before is not None and before.coming is None:
            before.coming = self._fetched(before)
        return tensor

    def _fetched(self, waiting: _Waiting) -> Tensor:
        """The tensor on its device, as soon as the copies' stream is there."""
        with torch.get_device_module(waiting.device).stream(self._side):
            return waiting.place.to(waiting.device, non_blocking=True)


def _is_weight(tensor: Tensor) -> bool:
    source = tensor if tensor._base is None else tensor._base
    return isinstance(source, torch.nn.Parameter)


def _used_in(tensor: Tensor, stream: Any) -> None:
    """Keep a GPU's memory from being used again before a stream other than the one that it was taken in is done with it."""
    if tensor.device.type == "cuda":
        tensor.record_stream(stream)


class HostCopies:
    """CPU memory in which weights and an optimizer's state wait between turns.

    It is taken once and kept, because pinning memory costs more than a copy. What was copied is there after ``wait``.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._places: dict[Hashable, Tensor] = {}
        self._side: Any = None
        """The stream in which an optimizer's state comes back."""

    def take_model(self, model: torch.nn.Module) -> None:
        """Move a model's weights and buffers to CPU memory."""
        moved = set[int]()

        def take(tensor: Tensor) -> Tensor:
            if not isinstance(tensor, torch.nn.Parameter):
                return tensor.cpu()
            if id(tensor) in moved:
                return tensor  # two modules share it
            moved.add(id(tensor))
            return self._taken(tensor, id(tensor))

        model._apply(take)

    def bring_model(self, model: torch.nn.Module) -> None:
        """Move them back to the device."""
        model.to(self._device, non_blocking=True)

    def take_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Move an optimizer's state to CPU memory."""
        self.arrived()
        for parameter, name, value in _states(optimizer):
            if name != "step":
                optimizer.state[parameter][name] = self._taken(value, (id(parameter), name))

    def bring_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Begin to move it back to the device, beside the work that is given to it from now on; ``arrived`` before it is used.

        Its memory is taken in the stream of that work, whose free memory another stream could not have. Fused kernels count
        steps on the device, others on the CPU. A checkpoint that is loaded at rest may leave the count of a fused one with the
        weights, in CPU memory.
        """
        fused = {
            id(parameter) for group in optimizer.param_groups if group.get("fused") for parameter in group["params"]
        }
        copies: list[tuple[Tensor, Tensor]] = []
        for parameter, name, value in _states(optimizer):
            waiting = self._places.get((id(parameter), name))
            local = value.to_local() if isinstance(value, DTensor) else value
            if name == "step":
                if id(parameter) in fused:
                    optimizer.state[parameter][name] = value.to(self._device, non_blocking=True)
            elif waiting is not None and waiting.data_ptr() == local.data_ptr():
                place = torch.empty_like(local, device=self._device)
                copies.append((place, local))
                optimizer.state[parameter][name] = _in_its_form(place, value)
            else:
                optimizer.state[parameter][name] = value.to(self._device)
        if copies:
            self._bring_beside(copies)

    def _bring_beside(self, copies: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Fill the first of each two from the second, once the work so far is done, in whose memory the first may be."""
        streams = torch.get_device_module(self._device)
        if self._side is None:
            self._side = streams.Stream()
        self._side.wait_stream(streams.current_stream())
        with streams.stream(self._side):
            for place, local in copies:
                place.copy_(local, non_blocking=True)

    def arrived(self) -> None:
        """Have the work that is given to the device from now on wait until the optimizer's state is back."""
        if self._side is not None:
            torch.get_device_module(self._device).current_stream().wait_stream(self._side)

    def wait(self) -> None:
        """Wait for the copies, before anything reads them or the device's memory goes to another process."""
        torch.get_device_module(self._device).synchronize()

    def _taken(self, tensor: Tensor, key: Hashable) -> Tensor:
        """A copy in CPU memory."""
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        if type(local) not in (Tensor, torch.nn.Parameter) or not _is_even(tensor):
            return tensor.to("cpu")
        place = self._places.get(key)
        if place is None:
            pinned = self._device.type == "cuda"
            place = self._places[key] = torch.empty_like(local, device="cpu", pin_memory=pinned, requires_grad=False)
        place.copy_(local, non_blocking=True)
        return _in_its_form(place, tensor)


def _states(optimizer: torch.optim.Optimizer) -> list[tuple[Tensor, str, Tensor]]:
    """The tensors of an optimizer's state, by weight and name."""
    return [
        (parameter, name, value)
        for parameter, state in optimizer.state.items()
        for name, value in state.items()
        if isinstance(value, Tensor)
    ]


def _is_even(tensor: Tensor) -> bool:
    """Whether every worker's part has the same size; FSDP pads others in memory of its own."""
    if not isinstance(tensor, DTensor):
        return True
    mesh = tensor.device_mesh
    return all(
        tensor.size(placement.dim) % mesh.size(number) == 0
        for number, placement in enumerate(tensor.placements)
        if isinstance(placement, Shard)
    )


def _in_its_form(local: Tensor, tensor: Tensor) -> Tensor:
    """A worker's part as a part of the same whole as a tensor; ``DTensor.from_local`` would move it back to the device."""
    if not isinstance(tensor, DTensor):
        return local
    whole: Any = tensor.detach()
    names, context = whole.__tensor_flatten__()
    parts = {name: getattr(whole, name) for name in names} | {"_local_tensor": local}
    rebuilt: Tensor = DTensor.__tensor_unflatten__(parts, context, whole.size(), whole.stride())
    return rebuilt
