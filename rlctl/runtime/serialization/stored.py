"""Responses whose tokens and texts stay in Ray's object store, next to the engines that made them, until something reads them.

A step on many GPUs makes hundreds of megabytes of token ids, log-probs and texts. The controller needs few of them: it compares
rewards and counts tokens. So the workers that relay calls leave these arrays where they are, and the controller holds places in
them:

    engines ──▶ relay ──▶ arrays ─────────────────────▶ relay ──▶ workers that train
                  └─────▶ places ──▶ controller ──▶ places ─┘

What is here reads as what it stands for: ``StoredNumbers`` as numbers, ``StoredText`` as a text once it is a ``str``. Code that
knows nothing of this module is right, and slower, because reading fetches the arrays. Samples: ``stored_samples``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any

import numpy as np

from rlctl.runtime.processes.stored import Arrays, StoredArrays
from rlctl.runtime.serialization.records import columns_of
from rlctl.runtime.types import LateText, Numbers, Response

TOKEN_IDS, LOG_PROBS, TEXTS = range(3)
"""The arrays of responses: int32 and float32 [tokens], and uint8 [bytes of UTF-8], response after response."""


class StoredNumbers(Numbers):
    """Token ids or log-probs of a response: neighbours in one array."""

    __slots__ = ("length", "start", "stored", "which")

    def __init__(self, stored: StoredArrays, which: int, start: int, length: int) -> None:
        self.stored, self.which, self.start, self.length = stored, which, start, length

    @property
    def array(self) -> np.ndarray:  # type: ignore[override]
        found: np.ndarray = self.stored.arrays[self.which][self.start : self.start + self.length]
        return found

    def __len__(self) -> int:
        return self.length


class StoredText(LateText):
    """The text of a response."""

    __slots__ = ("length", "start", "stored")

    def __init__(self, stored: StoredArrays, start: int, length: int) -> None:
        """``start`` and ``length`` are in bytes."""
        self.stored, self.start, self.length = stored, start, length

    def __str__(self) -> str:
        return texts_at([(0, self.start, self.length)], [self.stored.arrays])[0]


@dataclass(frozen=True, slots=True)
class StoredResponses:
    """Responses to requests without their tokens and texts."""

    counts: Sequence[int]
    """Responses to each request."""
    lengths: Sequence[int]
    """Tokens of each response."""
    sizes: Sequence[int | None]
    """Bytes of each text; None if there is none."""
    rest: Mapping[str, Sequence[Any]]
    """Fields of all responses."""

    @classmethod
    def of(cls, groups: Sequence[Sequence[Response]]) -> tuple[StoredResponses, Arrays] | None:
        """What is left of responses, and their arrays; None for those of agents and outside engines, and with experts."""
        flat = [response for group in groups for response in group]
        if not flat or any(each.turns or each.routed_experts is not None for each in flat):
            return None
        rest = dict(zip(_FIELDS, columns_of(Response, flat), strict=True))
        ids, drawn, texts = rest.pop("token_ids"), rest.pop("log_probs"), rest.pop("text")
        exact = np.concatenate([array_of(each, np.float64) for each in drawn])
        single = exact.astype(np.float32)
        if not np.array_equal(single, exact):
            return None
        encoded = [None if text is None else str(text).encode() for text in texts]
        arrays = (
            np.concatenate([array_of(each, np.int64) for each in ids]).astype(np.int32),
            single,
            np.frombuffer(b"".join(text for text in encoded if text is not None), np.uint8),
        )
        sizes = [None if text is None else len(text) for text in encoded]
        return cls([len(group) for group in groups], list(map(len, ids)), sizes, rest), arrays

    def attached(self, stored: StoredArrays) -> Iterator[list[Response]]:
        """The responses to each request, with places for what is stored."""
        starts = list(accumulate(self.lengths, initial=0))[:-1]
        begins = list(accumulate((size or 0 for size in self.sizes), initial=0))[:-1]
        at = list(zip(starts, self.lengths, strict=True))
        columns = {
            **self.rest,
            "token_ids": [StoredNumbers(stored, TOKEN_IDS, start, length) for start, length in at],
            "log_probs": [StoredNumbers(stored, LOG_PROBS, start, length) for start, length in at],
            "text": [
                None if size is None else StoredText(stored, begin, size)
                for begin, size in zip(begins, self.sizes, strict=True)
            ],
        }
        made = map(Response, *(columns[name] for name in _FIELDS))
        return ([next(made) for _ in range(count)] for count in self.counts)


_FIELDS = tuple(each.name for each in fields(Response))


def array_of(values: Any, dtype: Any) -> np.ndarray:
    return np.asarray(values.array if isinstance(values, Numbers) else values, dtype)


def places_of(texts: Sequence[StoredText]) -> tuple[list[tuple[int, int, int]], list[Any]]:
    """Where texts are, for a worker that is given Ray's handles too: number of the handle, first byte and bytes of each."""
    stored = {id(text.stored): text.stored for text in texts}
    numbers = {key: number for number, key in enumerate(stored)}
    places = [(numbers[id(text.stored)], text.start, text.length) for text in texts]
    return places, [each.handle for each in stored.values()]


def texts_at(places: Sequence[tuple[int, int, int]], given: Sequence[Arrays]) -> list[str]:
    """The texts at these places; ``given`` is what the handles stand for."""
    return [given[number][TEXTS][start : start + length].tobytes().decode() for number, start, length in places]
