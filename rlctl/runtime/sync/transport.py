"""How a bucket gets from the first train worker to the rollout engines: a class for each way, with both of its ends.

HostMemory   the bucket itself is the message, and Ray hands it over in shared memory
Folder       a file in a folder that all machines see; the message says which
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rlctl.config import Config
from rlctl.errors import RunError
from rlctl.runtime.sync.bucket import Bucket, Named


class Transport(Protocol):
    """One end of the way. A bucket may be used up when ``send`` returns: the next is packed in its place."""

    def send(self, bucket: Bucket) -> Any:
        """Begin to give a bucket out; what it returns is handed to ``receive`` of every engine."""
        ...

    def receive(self, message: Any) -> list[Named]:
        """The tensors of a bucket, to be read only, until the next bucket is received."""
        ...

    def clear(self) -> None:
        """All engines have all buckets, or will not get them: nothing is kept for them any more."""
        ...


class HostMemory:
    """The message is the bucket."""

    def send(self, bucket: Bucket) -> Bucket:
        return bucket

    def receive(self, message: Bucket) -> list[Named]:
        return message.tensors()

    def clear(self) -> None:
        """Ray frees what nobody has a handle on."""


@dataclass
class Folder:
    """The message is a file's path."""

    folder: Path
    """Is made and removed; all machines of the run see it."""
    _sent: int = 0

    def send(self, bucket: Bucket) -> Path:
        """Write a file.

        Raises:
            RunError: it cannot be written.
        """
        path = self.folder / f"bucket-{self._sent:06d}.safetensors"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            save_file(dict(bucket.tensors()), path)
        except (OSError, SafetensorError) as error:
            raise RunError(f"weights cannot be written to {path}: {error}", hint="see sync.method") from error
        self._sent += 1
        return path

    def receive(self, message: Path) -> list[Named]:
        """Read a file.

        Raises:
            RunError: it cannot be read.
        """
        try:
            return list(load_file(message).items())
        except (OSError, SafetensorError) as error:
            raise RunError(
                f"the weights that training has written to {message} cannot be read: {error}",
                hint="sync.method checkpoint needs run.folder on storage that all machines see; memory needs none",
            ) from error

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self._sent = 0


def transport_of(config: Config, place: Path) -> Transport:
    """The way that ``sync.method`` names; ``place`` is the stage's folder. Those that it does not take are told in the plan."""
    return Folder(place / "sync") if config.sync.method == "checkpoint" else HostMemory()
