"""Files whose loading would execute something: a pickle that makes a folder, put where rlctl reads files of others."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, MetadataIndex

from rlctl.runtime.checkpoints.checkpoint import MANIFEST, _sizes, _write_json
from rlctl.runtime.checkpoints.checksums import write_checksums


class Payload:
    """Unpickled without care, it makes a folder."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


def works(marker: Path) -> None:
    """Check that the payload does what tests look for, and take it back."""
    pickle.loads(pickle.dumps(Payload(marker)))
    marker.rmdir()


Change = Callable[[Path, Path], None]
"""Changes an engine's files, given their folder and the marker of the payload."""


def _rewrite(folder: Path, change: Callable[[Metadata], None]) -> None:
    path = folder / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    change(metadata)
    path.write_bytes(pickle.dumps(metadata))


def in_metadata(folder: Path, marker: Path) -> None:
    """What torch unpickles first."""

    def change(metadata: Metadata) -> None:
        metadata.planner_data = Payload(marker)

    _rewrite(folder, change)


def _stored(folder: Path, name: str, **entry: Any) -> None:
    """Have ``name`` read from a file of its own, that is there."""

    def change(metadata: Metadata) -> None:
        metadata.state_dict_metadata |= entry
        for index in [index for index in metadata.storage_data if index.fqn == name]:
            place = MetadataIndex(name) if entry else index
            del metadata.storage_data[index]
            metadata.storage_data[place] = _StorageInfo("other.distcp", 0, (folder / "other.distcp").stat().st_size)

    _rewrite(folder, change)


def as_object(name: str) -> Change:
    """A tensor that the metadata declares to be an object, which torch unpickles."""

    def put(folder: Path, marker: Path) -> None:
        torch.save(Payload(marker), folder / "other.distcp")
        _stored(folder, name, **{name: BytesStorageMetadata()})

    return put


def in_place_of(name: str) -> Change:
    """A tensor or an object whose file holds something else."""

    def put(folder: Path, marker: Path) -> None:
        torch.save([Payload(marker)], folder / "other.distcp")
        _stored(folder, name)

    return put


def in_common(folder: Path, marker: Path) -> None:
    """What all workers of a Megatron engine read."""
    common = torch.load(folder / "common.pt")
    torch.save({**common, "content_metadata": Payload(marker)}, folder / "common.pt")


def sign(checkpoint: Path) -> None:
    """Rewrite checksums and manifest of a checkpoint, as whoever changes it can."""
    (checkpoint / MANIFEST).unlink()
    for folder in (checkpoint, *(path for path in checkpoint.iterdir() if path.is_dir())):
        write_checksums(folder)
    _write_json(checkpoint / MANIFEST, _sizes(checkpoint))
