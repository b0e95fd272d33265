"""Key-value caches of the built-in engine: Transformers ``Cache`` layers that never grow by concatenation.

    PromptLayer  keeps what one forward over whole prompts computed
    RowLayer     rows of responses in one preallocated tensor; all rows write the same slot, the cursor, at each step

    slot     0   1   2   3   4   5   6   7
    row 0    p   p   p   r   r   .   .   .      start 0     p prompt, r response, . not yet written
    row 1    -   p   p   r   r   .   .   .      start 1     - masked, whatever it holds
    row 2    -   -   p   p   p   .   .   .      start 2     placed later: its prompt ends where the others have got to
                             low = 0, cursor = 5

Keys carry their rotary position already, so a slot says nothing about a token's position and rows may be shifted.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


@dataclass(slots=True)
class Window:
    """The part of the preallocated tensors in use, shared by all layers."""

    rows: int = 0
    """Rows in use, from 0."""
    low: int = 0
    """First slot that any row needs."""
    cursor: int = 0
    """Slot that the next token is written to."""


class PromptLayer(CacheLayerMixin):
    """Keys and values of whole prompts, [prompts, heads, tokens, dim], as the model computed them."""

    is_sliding = False

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Take the tensors themselves: a prompt is computed in one forward."""
        self.keys, self.values = key_states, value_states
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keep the tensors and attend to them."""
        self.lazy_initialization(key_states, value_states)
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return (length, offset) of the keys that a query sees."""
        return query_length, 0

    def get_seq_length(self) -> int:
        """Return 0: nothing lies before the prompt."""
        return 0

    def get_max_length(self) -> int:
        """Return -1: no limit of its own."""
        return -1


class RowLayer(CacheLayerMixin):
    """Keys and values of the rows being decoded, [rows, heads, slots, dim], written in place."""

    is_sliding = False

    def __init__(self, window: Window) -> None:
        super().__init__()
        self.window = window
        self.release()

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: ``allocate`` gives the layer its tensors."""

    def allocate(self, keys: torch.Tensor, values: torch.Tensor, *, rows: int, slots: int) -> None:
        """Make room for ``rows`` x ``slots`` tokens like those of ``keys`` and ``values``; what was held is lost."""
        # Zeros, not empty: a masked slot has weight 0, and 0 times a NaN that lay there would be NaN.
        self.keys = keys.new_zeros(rows, keys.shape[1], slots, keys.shape[3])
        self.values = values.new_zeros(rows, values.shape[1], slots, values.shape[3])
        self.is_initialized = True

    def release(self) -> None:
        """Give the memory back."""
        self.keys = self.values = torch.empty(0, 0, 0, 0)
        self.is_initialized = False

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write one token per row at the cursor, and return views of everything from ``low`` to it."""
        window = self.window
        rows, end = window.rows, window.cursor + 1
        keys, values = self.keys, self.values
        keys[:rows, :, window.cursor] = key_states[:, :, 0]
        values[:rows, :, window.cursor] = value_states[:, :, 0]
        return keys[:rows, :, window.low : end], values[:rows, :, window.low : end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return (length, offset) of the keys that a query sees."""
        return self.window.cursor + query_length - self.window.low, 0

    def get_seq_length(self) -> int:
        """Return the slots before the cursor."""
        return self.window.cursor - self.window.low

    def get_max_length(self) -> int:
        """Return the slots there are."""
        return self.keys.shape[2]


class RowCache(Cache):
    """The rows being decoded, over all layers of the model."""

    def __init__(self, layers: int) -> None:
        self.window = Window()
        self.rows_layers = [RowLayer(self.window) for _ in range(layers)]
        super().__init__(layers=list(self.rows_layers))

    @property
    def slots(self) -> int:
        """Slots of each row; 0 while nothing is allocated."""
        return self.rows_layers[0].get_max_length()

    def allocate(self, prompts: Cache, *, rows: int, slots: int) -> None:
        """Make room, if there is not enough, for rows like those of ``prompts``."""
        held = self.rows_layers[0].keys
        if held.shape[0] < rows or held.shape[2] < slots:
            for layer, prompt in zip(self.rows_layers, prompts.layers, strict=True):
                layer.allocate(prompt.keys, prompt.values, rows=rows, slots=slots)
        self.window.rows = self.window.low = self.window.cursor = 0

    def resize(self, *, rows: int, slots: int) -> None:
        """Give the rows in use more room: ``rows`` rows of ``slots`` slots."""
        for layer in self.rows_layers:
            keys, values = layer.keys, layer.values
            layer.allocate(keys, values, rows=rows, slots=slots)
            for held, new in ((keys, layer.keys), (values, layer.values)):
                new[: held.shape[0], :, : held.shape[2]] = held

    def release(self) -> None:
        """Give the memory back."""
        for layer in self.rows_layers:
            layer.release()

    def place(self, prompts: Cache, which: torch.Tensor) -> None:
        """Add a row for each index in ``which``, holding that prompt so that it ends at the cursor."""
        first, end = self.window.rows, self.window.cursor
        for layer, prompt in zip(self.rows_layers, prompts.layers, strict=True):
            begin = end - prompt.keys.shape[2]
            layer.keys[first : first + len(which), :, begin:end] = prompt.keys.index_select(0, which)
            layer.values[first : first + len(which), :, begin:end] = prompt.values.index_select(0, which)
        self.window.rows += len(which)

    def move(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy rows ``sources`` over rows ``targets``."""
        used = slice(self.window.low, self.window.cursor)
        for layer in self.rows_layers:
            for held in (layer.keys, layer.values):
                held[targets, :, used] = held[sources, :, used]

    def shift(self, slots: int) -> None:
        """Move every row ``slots`` down, up where that is below 0, and the cursor with them."""
        window = self.window
        before = slice(window.low, window.cursor)
        after = slice(window.low - slots, window.cursor - slots)
        for layer in self.rows_layers:
            for held in (layer.keys, layer.values):
                held[: window.rows, :, after] = held[: window.rows, :, before].clone()
        window.low -= slots
        window.cursor -= slots
