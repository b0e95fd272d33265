"""Weights from GPU to GPU, as vLLM's weight transfer takes them: what training does at its end.

    Nccl   first train worker ──NCCL broadcast──▶ every process of every engine; the message says what is broadcast
    Ipc    each train worker on an engine's GPU ──handle of its memory──▶ the engine's process there; the message is all handles

A bucket is one chunk of vLLM's packed layout: bytes end to end, in the order of the names. vLLM's own worker receives it and
loads it into the model (``update_weights``); what its messages hold is vLLM's (``vllm.distributed.weight_transfer``).
"""

from __future__ import annotations

import secrets
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import reduce_tensor

from rlctl.common.errors import RunError
from rlctl.runtime.rollout.interface import RolloutEngine
from rlctl.runtime.rollout.vllm import VllmEngine
from rlctl.runtime.sync.bucket import Named
from rlctl.runtime.sync.transport import FromFirst, WeightSender


@dataclass(frozen=True)
class NcclRendezvous:
    """Where training and the engines become one NCCL group; all that were there hold the same."""

    address: str
    port: int
    world_size: int
    """The first train worker, which is rank 0, and all processes of all engines."""
    bucket_bytes: int
    key: str
    """Tells it from other meetings."""

    @classmethod
    def at(cls, address: str, *, processes: int, bucket_bytes: int) -> NcclRendezvous:
        """One with so many processes of engines, at a free port of this machine."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            port: int = probe.getsockname()[1]
        return cls(address, port, processes + 1, bucket_bytes, secrets.token_hex(8))

    def of_engine(self, place: int, processes: int) -> dict[str, Any]:
        """vLLM's words for it, to the ``place``-th engine, each of which has so many processes."""
        return {
            "master_address": self.address,
            "master_port": self.port,
            "rank_offset": 1 + place * processes,
            "world_size": self.world_size,
            "packed": True,
            "packed_buffer_size_bytes": self.bucket_bytes,
        }


def _packed(part: list[Named], device: torch.device) -> tuple[dict[str, Any], list[int], Tensor]:
    """What vLLM is told of a bucket, the bytes of each tensor, and all bytes end to end: uint8 [their sum].

    The widest come first, so that each begins at a multiple of its own size, without which it could not be looked at.
    """
    ordered = sorted(part, key=lambda item: -item[1].element_size())
    told = {
        "names": [name for name, _ in ordered],
        "dtype_names": [str(tensor.dtype).removeprefix("torch.") for _, tensor in ordered],
        "shapes": [list(tensor.shape) for _, tensor in ordered],
    }
    flat = [tensor.detach().to(device).contiguous().view(-1).view(torch.uint8) for _, tensor in ordered]
    return told, [len(each) for each in flat], torch.cat(flat)


class Broadcast:
    """Training's end of an NCCL group with the engines."""

    def __init__(self, meeting: NcclRendezvous) -> None:
        """Meet the engines; returns when all are there.

        Raises:
            RunError: there is no NCCL here.
        """
        from vllm.distributed.weight_transfer.nccl_common import trainer_init

        self.meeting = meeting
        self._group = trainer_init(
            {"master_address": meeting.address, "master_port": meeting.port, "world_size": meeting.world_size}
        )
        if self._group.disabled:
            raise RunError(
                "vLLM finds no NCCL library on the first training worker", hint="set weight_sync.method=memory"
            )
        self._stream = torch.cuda.Stream()
        self._under_way: Tensor | None = None

    def send(self, part: list[Named]) -> dict[str, Any]:
        """Begin to broadcast; it goes on beside what training computes, until all engines have it."""
        self._wait()
        told, _, data = _packed(part, self._group.device)
        self._stream.wait_stream(torch.cuda.current_stream())
        self._group.broadcast(data, src=0, stream=self._stream)
        self._under_way = data
        return told

    def _wait(self) -> None:
        """Until all have the bucket before: memory holds one at a time."""
        if self._under_way is not None:
            self._stream.synchronize()
            self._under_way = None

    def clear(self) -> None:
        self._wait()

    def leave(self) -> None:
        """End the group."""
        self._under_way = None
        self._group.destroy()


@dataclass(frozen=True)
class Nccl(FromFirst):
    """The message says what is being broadcast."""

    processes: int
    """Of each engine."""
    meets = True
    keeps = True

    def outlet(self, before: WeightSender | None) -> WeightSender:
        assert isinstance(before, Broadcast), "a sync over NCCL starts with a rendezvous"
        return before

    def deliver(self, message: Mapping[str, Any], engine: RolloutEngine) -> None:
        _to_vllm(message, engine)


class Handles:
    """Training's end of a way over its own memory, which the engine reads."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._uuid = str(torch.cuda.get_device_properties(device).uuid)
        self._kept: deque[Tensor] = deque(maxlen=2)
        """The bucket that an engine may be reading, and the next."""

    def send(self, part: list[Named]) -> dict[str, Any]:
        """Give out a handle on a copy."""
        told, sizes, data = _packed(part, self._device)
        torch.cuda.current_stream().synchronize()
        self._kept.append(data)
        return {**told, "ipc_handles": {self._uuid: reduce_tensor(data)[1]}, "tensor_sizes": sizes}

    def clear(self) -> None:
        self._kept.clear()
        torch.cuda.ipc_collect()


@dataclass(frozen=True)
class Ipc:
    """The message is a handle for each GPU, on memory there of the train worker that shares it with an engine's process.

    A handle that no process opens would keep its memory, so only workers that share a GPU with an engine that loads make one.
    """

    workers: tuple[tuple[int, ...], ...] = ((0,),)
    """By engine, the train workers on the GPUs of its processes."""
    meets = False
    keeps = True

    def senders(self, engines: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted({worker for engine in engines for worker in self.workers[engine]}))

    def joined(self, messages: Sequence[Any]) -> Any:
        handles = {uuid: handle for message in messages for uuid, handle in message["ipc_handles"].items()}
        return {**messages[0], "ipc_handles": handles}

    def outlet(self, before: WeightSender | None) -> WeightSender:
        return before if isinstance(before, Handles) else Handles(torch.device("cuda", torch.cuda.current_device()))

    def deliver(self, message: Mapping[str, Any], engine: RolloutEngine) -> None:
        _to_vllm(message, engine)


def _to_vllm(message: Mapping[str, Any], engine: RolloutEngine) -> None:
    assert isinstance(engine, VllmEngine), "ways.way_of sends weights from GPU to GPU to vLLM only"
    engine.transfer_weights(message)
