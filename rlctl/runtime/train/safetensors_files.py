"""The safetensors files of a model, of which each worker reads the rows and columns that it needs."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from safetensors import SafetensorError, safe_open
from transformers.utils import cached_file

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


class SafetensorsFiles:
    """Opens a file when something of it is read."""

    def __init__(self, path: str) -> None:
        """``path``: a folder, or a name on the hub.

        Raises:
            RunError: there are no such files, or they cannot be read.
        """
        self.path = path
        self._of = _places(path)
        self._opened = ExitStack()
        self._files: dict[str, Any] = {}

    @property
    def names(self) -> set[str]:
        return set(self._of)

    def tensor(self, name: str) -> Any:
        """What can be sliced to read some rows and columns of a tensor.

        Raises:
            RunError: its file cannot be read.
        """
        file = self._of[name]
        try:
            if file not in self._files:
                self._files[file] = self._opened.enter_context(safe_open(file, framework="pt"))
            return self._files[file].get_slice(name)
        except (OSError, SafetensorError) as error:
            raise RunError(
                said("the weights in {file} cannot be read: {error}", file=file, error=error),
                hint="set model.path to a complete model folder, or to a name on the Hugging Face Hub",
            ) from error

    def __enter__(self) -> SafetensorsFiles:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._files.clear()
        self._opened.close()


def _places(path: str) -> dict[str, str]:
    """The file of every tensor of a model in a folder or on the hub."""
    try:
        index = cached_file(path, INDEX, _raise_exceptions_for_missing_entries=False)
        if index is not None:
            shards = json.loads(Path(index).read_text())["weight_map"]
            files = {shard: str(cached_file(path, shard)) for shard in set(shards.values())}
            return {name: files[shard] for name, shard in shards.items()}
        single = cached_file(path, SINGLE, _raise_exceptions_for_missing_entries=False)
        if single is not None:
            with safe_open(single, framework="pt") as file:
                return dict.fromkeys(file.keys(), str(single))
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise RunError(
            said("the weights of {path} cannot be read: {error}", path=path, error=error),
            hint="set model.path to a complete model folder, or to a name on the Hugging Face Hub",
        ) from error
    raise RunError(
        said("{path} has neither {single} nor {index}", path=path, single=SINGLE, index=INDEX),
        hint="check model.path; save_pretrained of Transformers writes them from other formats",
    )
