"""What is allocated while torch runs: the bytes of live storages, of fake tensors and of real ones."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveStorages(TorchDispatchMode):
    """Counts each storage once, from the operation that makes it until it is freed or resized."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self.peak = 0
        self._sizes: weakref.WeakKeyDictionary[torch.UntypedStorage, list[int]] = weakref.WeakKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for each in tree_leaves(made):
            if isinstance(each, torch.Tensor):
                self.count(each)
        return made

    def count(self, tensor: torch.Tensor) -> None:
        """Count the storage of a tensor, once."""
        storage = getattr(tensor, "_local_tensor", tensor).untyped_storage()
        if storage in self._sizes:
            return
        size = self._sizes[storage] = [0]
        weakref.finalize(storage, self._change, size, 0)
        self._change(size, storage.nbytes())

    def _change(self, size: list[int], now: int) -> None:
        self.bytes += now - size[0]
        size[0] = now
        self.peak = max(self.peak, self.bytes)

    @contextmanager
    def resizes(self) -> Iterator[None]:
        """Follow ``resize_`` too, by which FSDP2 frees gathered parameters: it is no operation that dispatches."""
        resize = torch.UntypedStorage.resize_

        def followed(storage: torch.UntypedStorage, size: int) -> Any:
            made = resize(storage, size)
            if storage in self._sizes:
                self._change(self._sizes[storage], storage.nbytes())
            return made

        torch.UntypedStorage.resize_ = followed  # type: ignore[method-assign]
        try:
            yield
        finally:
            torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign]
