"""Reads the files of torch.distributed.checkpoint without executing what they contain.

torch unpickles ``.metadata``, and every object that ``.metadata`` declares to be bytes, with pickle itself: whoever writes the
folder runs code in the process that loads it. Checksums don't help, because the same person rewrites them. Here an unpickler
makes only the classes of torch's own metadata, objects are read with ``weights_only``, and a file is read only in the folder.

All loading of such folders belongs here: nothing else in rlctl may call ``FileSystemReader`` or a default planner.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import ReadItem

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.pickles import load_objects, reason_of

METADATA = "torch.distributed.checkpoint.metadata"
PLANNER = "torch.distributed.checkpoint.planner"
"""Megatron-core keeps the plans of all workers in its ``.metadata``."""
_ADMITTED = frozenset(
    {
        *((METADATA, name) for name in ("Metadata", "MetadataIndex", "StorageMeta", "TensorProperties")),
        *((METADATA, f"{kind}StorageMetadata") for kind in ("Tensor", "Bytes", "Chunk")),
        (METADATA, "_MEM_FORMAT_ENCODING"),
        *(
            (PLANNER, name)
            for name in ("SavePlan", "WriteItem", "WriteItemType", "TensorWriteData", "BytesIOWriteData")
        ),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        ("torch.serialization", "_get_layout"),
        ("torch", "Size"),
        ("collections", "OrderedDict"),
        *((module, "PosixPath") for module in ("pathlib", "pathlib._local")),  # Python 3.13 names the second
        *(("torch", name) for name, value in vars(torch).items() if isinstance(value, torch.dtype)),
    }
)
"""Module and name of everything that ``.metadata`` is made of. None of them calls what it is given."""


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise UnpicklingError(f"its .metadata contains {module}.{name}, which would be executed on loading")
        return super().find_class(module, name)


class CheckpointReader(FileSystemReader):
    """Reads a folder of torch.distributed.checkpoint that anybody may have written."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return what ``.metadata`` says.

        Raises:
            UnpicklingError: it contains something other than metadata, or names a file outside of the folder.
            OSError: it cannot be read.
        """
        with Path(self._get_metadata_path(kwargs.get("rank"))).open("rb") as file:
            try:
                metadata = _checked(_MetadataUnpickler(file).load())
            except (MemoryError, OverflowError):
                raise UnpicklingError("its .metadata declares an object that does not fit into memory") from None
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


def _checked(metadata: Any) -> Metadata:
    if not isinstance(metadata, Metadata) or not isinstance(metadata.state_dict_metadata, dict):
        raise UnpicklingError("its .metadata contains no torch.distributed.checkpoint metadata")
    for name, kind in metadata.state_dict_metadata.items():
        if not isinstance(kind, (TensorStorageMetadata, BytesStorageMetadata)):
            raise UnpicklingError(f"its .metadata has a {type(kind).__name__} for {name}")
    for stored in (metadata.storage_data or {}).values():
        path = stored.relative_path
        if not isinstance(path, str) or Path(path).name != path:
            raise UnpicklingError(f"its .metadata names the file {path!r}, which is not in the folder")
    return metadata


class ObjectsWithoutCode:
    """What a load planner does with objects: reads them with ``weights_only``. Their names in the state are not nested."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Put an object in its place in the state.

        Raises:
            UnpicklingError: it is more than tensors, numbers and text in lists and mappings.
        """
        state: dict[str, Any] = self.original_state_dict  # type: ignore[attr-defined]
        state[read_item.dest_index.fqn] = load_objects(value)


class TensorPlanner(DefaultLoadPlanner):
    """A load planner for states of tensors only, as the FSDP2 engine saves."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Refuse an object.

        Raises:
            UnpicklingError: always.
        """
        raise UnpicklingError(
            f"{read_item.dest_index.fqn} is an object instead of a tensor, which would be executed on loading"
        )


def tensors_of(folder: Path) -> Mapping[str, TensorStorageMetadata]:
    """Return the tensors of a folder by name.

    Raises:
        UnpicklingError: there is something else in it.
        OSError: it cannot be read.
    """
    tensors: dict[str, TensorStorageMetadata] = {}
    for name, kind in CheckpointReader(folder).read_metadata().state_dict_metadata.items():
        if not isinstance(kind, TensorStorageMetadata):
            raise UnpicklingError(f"{name} is an object instead of a tensor, which would be executed on loading")
        tensors[name] = kind
    return tensors


UNREADABLE = (
    *(CheckpointException, OSError, EOFError, UnpicklingError),
    *(ValueError, KeyError, IndexError, TypeError, AttributeError, RuntimeError, AssertionError),
)
"""What reading a folder raises that is damaged, of another model, or made by somebody to do harm."""


def not_loaded(folder: Path, error: BaseException) -> RunError:
    """The error for a checkpoint that cannot be loaded.

    Args:
        folder: of the engine's files.
        error: one of ``UNREADABLE``.
    """
    if isinstance(error, CheckpointException) and error.failures:
        error = next(iter(error.failures.values()))[0]
    if isinstance(error, UnpicklingError):
        return RunError(
            said("the checkpoint {folder} was not loaded: {reason_of}", folder=folder, reason_of=reason_of(error)),
            hint="rlctl does not write such files: find out what changed this one, and use an earlier checkpoint",
        )
    return RunError(
        said("the checkpoint {folder} does not fit the model: {reason_of}", folder=folder, reason_of=reason_of(error)),
        hint="was model.path changed since it was saved?",
    )
