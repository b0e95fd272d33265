"""What stands in for GPUs where there are none: an NCCL group whose broadcasts are a list, memory handles that are the memory.

Everything else is real: vLLM's parsers of messages, its packing and unpacking, its worker and its loader of models.
"""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor


class Stream:
    """Everything has happened when it is asked for."""

    def wait_stream(self, other: Any) -> None: ...
    def synchronize(self) -> None: ...


class Wire:
    """Both ends of a group of two: rank 0 puts, the other takes."""

    def __init__(self) -> None:
        self.carried: deque[Tensor] = deque()
        self.met: list[dict[str, Any]] = []
        self.left: list[int] = []

    def end(self, rank: int) -> Any:
        def broadcast(tensor: Tensor, src: int, stream: Any = None) -> None:
            assert src == 0
            if rank == 0:
                self.carried.append(tensor.clone())
            else:
                tensor.copy_(self.carried.popleft())

        device = torch.device("cpu")
        return SimpleNamespace(
            broadcast=broadcast, disabled=False, device=device, destroy=lambda: self.left.append(rank)
        )


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """vLLM's and torch's GPU calls do nothing, and NCCL groups are ends of one wire."""
    import vllm.distributed.weight_transfer.nccl_common as common
    import vllm.distributed.weight_transfer.nccl_engine as nccl
    import vllm.distributed.weight_transfer.packed_tensor as packed

    made = Wire()

    def meet_as_worker(info: Any, parallel: Any) -> Any:
        made.met.append({"rank": info.rank_offset + parallel.rank, "world_size": info.world_size})
        return made.end(1)

    monkeypatch.setattr(common, "trainer_init", lambda info: made.met.append(dict(info, rank=0)) or made.end(0))
    monkeypatch.setattr(nccl, "worker_init_process_group", meet_as_worker)
    monkeypatch.setattr(packed, "_get_streams", lambda device, count: [Stream()] * count)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)
    for name, value in {
        "Stream": Stream,
        "current_stream": Stream,
        "stream": lambda stream: nullcontext(),
        "current_device": lambda: 0,
        "ipc_collect": lambda: None,
        "get_device_properties": lambda device: SimpleNamespace(uuid="GPU-1"),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return made


HANDLES: dict[int, Tensor] = {}


@pytest.fixture
def handles(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Handles on memory are its address, as torch's are in the seventh place and on."""
    import torch.multiprocessing.reductions as reductions

    from rlctl.runtime.sync import device

    def reduce(tensor: Tensor) -> tuple[Any, tuple[Any, ...]]:
        HANDLES[tensor.data_ptr()] = tensor
        return None, (*[None] * 6, 0, tensor.data_ptr())

    monkeypatch.setattr(device, "reduce_tensor", reduce)
    monkeypatch.setattr(reductions, "rebuild_cuda_tensor", lambda *arguments: HANDLES[arguments[7]])
    yield
    HANDLES.clear()
