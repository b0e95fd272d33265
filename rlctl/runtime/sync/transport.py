"""How a bucket gets from the train workers to the rollout engines: a class for each way, which says what both ends do.

HostMemory   the bucket itself is the message, and Ray hands it over in shared memory
Folder       a file in a folder that all machines see; the message says which
``device``   has the ways from GPU to GPU
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.rollout.interface import RolloutEngine
from rlctl.runtime.sync.bucket import Bucket, Named, Packer


class WeightSender(Protocol):
    """The end that sends."""

    def send(self, part: list[Named]) -> Any:
        """Begin to give tensors out, as one bucket; what it returns is handed to ``deliver`` for every engine.

        When the next bucket is sent, all engines have the one before the last.
        """
        ...

    def clear(self) -> None:
        """All engines have all buckets, or will not get them: nothing is kept for them any more."""
        ...


class Transport(Protocol):
    """One way; crosses to both ends."""

    @property
    def meets(self) -> bool:
        """Whether both ends are to be connected first (``Trainer.meet``). One that is lost is then lost to all."""
        ...

    @property
    def keeps(self) -> bool:
        """Whether the end that sends keeps something until all engines have all buckets."""
        ...

    def senders(self, engines: Sequence[int]) -> tuple[int, ...]:
        """The train workers that give weights out for some engines."""
        ...

    def joined(self, messages: Sequence[Any]) -> Any:
        """The message of a bucket, for all engines, from those of all senders."""
        ...

    def outlet(self, before: WeightSender | None) -> WeightSender:
        """The end that sends, for a whole sync; ``before`` is that of the last sync, whose memory it may go on with."""
        ...

    def deliver(self, message: Any, engine: RolloutEngine) -> None:
        """Give an engine the weights of a bucket."""
        ...


class FromFirst:
    """The first train worker gives weights out, for all engines."""

    def senders(self, engines: Sequence[int]) -> tuple[int, ...]:
        return (0,)

    def joined(self, messages: Sequence[Any]) -> Any:
        (message,) = messages
        return message


class Packed:
    """Packs buckets in the host's memory, each in the place of the one before."""

    def __init__(self) -> None:
        self._packer = Packer(torch.device("cpu"))

    def send(self, part: list[Named]) -> Bucket:
        return self._packer.pack(part)

    def clear(self) -> None:
        """Ray frees what nobody has a handle on."""


class HostMemory(FromFirst):
    """The message is the bucket."""

    meets = False
    keeps = False

    def outlet(self, before: WeightSender | None) -> WeightSender:
        return before if isinstance(before, Packed) else Packed()

    def deliver(self, message: Bucket, engine: RolloutEngine) -> None:
        engine.add_weights(message.tensors())


class Written:
    """Writes buckets into a folder, which it makes and removes."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._sent = folder, 0

    def send(self, part: list[Named]) -> Path:
        """Write a file.

        Raises:
            RunError: it cannot be written.
        """
        path = self._folder / f"bucket-{self._sent:06d}.safetensors"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            save_file({name: tensor.contiguous() for name, tensor in part}, path)
        except (OSError, SafetensorError) as error:
            raise RunError(
                said("weights cannot be written to {path}: {error}", path=path, error=error),
                hint="free disk space, or set weight_sync.method to memory",
            ) from error
        self._sent += 1
        return path

    def clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


@dataclass(frozen=True)
class Folder(FromFirst):
    """The message is a file's path."""

    folder: Path
    """All machines of the run see it."""
    meets = False
    keeps = True

    def outlet(self, before: WeightSender | None) -> WeightSender:
        return Written(self.folder)

    def deliver(self, message: Path, engine: RolloutEngine) -> None:
        """Read a file.

        Raises:
            RunError: it cannot be read.
        """
        try:
            tensors = load_file(message)
        except (OSError, SafetensorError) as error:
            raise RunError(
                said(
                    "the weights that training has written to {message} cannot be read: {error}",
                    message=message,
                    error=error,
                ),
                hint="weight_sync.method checkpoint needs run.folder on shared storage; memory does not",
            ) from error
        engine.add_weights(tensors.items())
