"""What crosses to many workers and back, a few buffers a call: training samples, their values, responses.

Pickling an object costs as much as copying a hundred kilobytes, and a step makes thousands of calls. These are plain tuples to
whoever reads them, and only pickle differently: numbers end to end as bytes, everything else field by field. What is unpickled
are views of the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pickle import PickleBuffer
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlctl.runtime.serialization.records import columns_of
from rlctl.runtime.serialization.tensors import TensorTuple
from rlctl.runtime.types import Numbers, Response, Sample


@dataclass(frozen=True, slots=True)
class _Laid:
    """Samples end to end."""

    lengths: list[int]
    names: Sequence[str]
    """Of their columns."""
    has: Sequence[Sequence[bool]] | None
    """Which samples have each column; None where all have all."""
    arrays: Sequence[np.ndarray]
    """Token ids in 32 bits, columns, mask: those with the widest numbers first, so that each begins where its numbers may."""

    @classmethod
    def of(cls, samples: Sequence[Sample], *, with_columns: bool = True) -> _Laid:
        names = sorted({name for sample in samples for name in sample.columns}) if with_columns else []
        has = [[name in sample.columns for sample in samples] for name in names]
        columns = [[sample.columns[name] for sample in samples if name in sample.columns] for name in names]
        token_ids = torch.cat([_NO_IDS, *(sample.token_ids for sample in samples)]).to(torch.int32)
        mask = torch.cat([_NO_MASK, *(sample.mask for sample in samples)])
        arrays = [each.numpy() for each in (token_ids, *map(torch.cat, columns), mask)]
        lengths = [sample.token_ids.numel() for sample in samples]
        return cls(lengths, names, None if all(map(all, has)) else has, arrays)

    def cut(self, counts: Sequence[int]) -> list[_Laid]:
        """So many samples each, in order; all have all columns."""
        ends = list(accumulate(counts))
        tokens = [0, *accumulate(self.lengths)]
        return [
            _Laid(
                self.lengths[end - count : end],
                self.names,
                None,
                [array[tokens[end - count] : tokens[end]] for array in self.arrays],
            )
            for end, count in zip(ends, counts, strict=True)
        ]


_NO_IDS, _NO_MASK = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.bool)


class SampleTuple(tuple[Sample, ...]):
    """Training sequences; their columns are float32."""

    laid: _Laid | None = None
    """Where they were laid end to end with those of others."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        laid = self.laid or _Laid.of(self)
        images = _inputs_of(self) if any(sample.inputs for sample in self) else None
        routed = [(place, sample.routed_experts) for place, sample in enumerate(self)]
        experts = {place: own for place, own in routed if own is not None}
        further = images, (tuple(experts), TensorTuple(experts.values())) if experts else None
        return _samples, (_bytes(protocol, *laid.arrays), laid.lengths, laid.names, laid.has, *further)


def shares_of(
    samples: Sequence[Sample], split: Sequence[Sequence[int]], *, with_columns: bool = True
) -> list[SampleTuple]:
    """The share of each worker, laid end to end with those of others.

    Args:
        samples: of all workers.
        split: the indices of each worker's samples.
        with_columns: whether their columns cross with the samples.
    """
    shares = [SampleTuple(samples[index] for index in part) for part in split]
    laid = _Laid.of([sample for share in shares for sample in share], with_columns=with_columns)
    if laid.has is None:
        for share, piece in zip(shares, laid.cut(list(map(len, shares))), strict=True):
            share.laid = piece
    return shares


def _samples(
    data: Any,
    lengths: list[int],
    names: Sequence[str],
    has: Sequence[Sequence[bool]] | None,
    images: tuple[Sequence[tuple[str, ...]], TensorTuple, Sequence[int]] | None,
    experts: tuple[Sequence[int], TensorTuple] | None,
) -> SampleTuple:
    reader = _Reader(data)
    total = sum(lengths)
    token_ids = reader.take(total, np.int32).long().split(lengths)
    columns: dict[str, Iterator[Tensor]] = {}
    for place, name in enumerate(names):
        own = lengths if has is None else [n for n, there in zip(lengths, has[place], strict=True) if there]
        columns[name] = iter(reader.take(sum(own), np.float32).split(own))
    masks = reader.take(total, np.bool_).split(lengths)
    if has is None:
        rows = zip(*columns.values(), strict=True) if names else iter([()] * len(lengths))
        samples = [
            Sample(ids, mask, dict(zip(names, row, strict=True)))
            for ids, mask, row in zip(token_ids, masks, rows, strict=True)
        ]
    else:
        present = list(zip(names, has, strict=True))
        samples = [
            Sample(ids, mask, {name: next(columns[name]) for name, there in present if there[index]})
            for index, (ids, mask) in enumerate(zip(token_ids, masks, strict=True))
        ]
    if images is not None:
        _give_inputs(samples, *images)
    for index, chosen in zip(*experts, strict=True) if experts is not None else ():
        samples[index].routed_experts = chosen
    return SampleTuple(samples)


def _inputs_of(samples: Sequence[Sample]) -> tuple[list[tuple[str, ...]], TensorTuple, list[int]]:
    """The inputs of all samples, those of a group once: names of each, all tensors, and the place of each sample's."""
    distinct = {id(sample.inputs): sample.inputs for sample in samples if sample.inputs}
    place = {key: index for index, key in enumerate(distinct)}
    names = [tuple(inputs) for inputs in distinct.values()]
    tensors = TensorTuple(tensor for inputs in distinct.values() for tensor in inputs.values())
    return names, tensors, [place.get(id(sample.inputs), -1) for sample in samples]


def _give_inputs(
    samples: Sequence[Sample], names: Sequence[tuple[str, ...]], tensors: TensorTuple, places: Sequence[int]
) -> None:
    parts = iter(tensors)
    distinct: list[Mapping[str, Tensor]] = [{name: next(parts) for name in each} for each in names]
    for sample, index in zip(samples, places, strict=True):
        sample.inputs = distinct[index] if index >= 0 else {}


class Values(Sequence[Tensor]):
    """What workers say of samples: float32 [T] each, on CPU, end to end."""

    def __init__(self, flat: Tensor, lengths: Sequence[int]) -> None:
        self.flat, self.lengths = flat, list(lengths)

    @classmethod
    def of(cls, parts: Sequence[Tensor]) -> Values:
        """Of every sample."""
        return cls(torch.cat([torch.empty(0), *parts]), list(map(len, parts)))

    @classmethod
    def joined(cls, parts: Sequence[Values]) -> Values:
        """Those of several workers, one after the other."""
        lengths = [length for part in parts for length in part.lengths]
        return cls(torch.cat([part.flat for part in parts]), lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: Any) -> Any:
        return self.flat.split(self.lengths)[index]

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.flat.split(self.lengths))

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _values, (_bytes(protocol, self.flat.numpy()), self.lengths)


def joined_by_name(parts: Sequence[Sequence[Values]]) -> list[Values]:
    """The values of several workers, one after the other, under each of several names."""
    return [Values.joined(own) for own in zip(*parts, strict=True)]


def _values(data: Any, lengths: list[int]) -> Values:
    return Values(_Reader(data).take(sum(lengths), np.float32), lengths)


class ResponseGroups(tuple[Sequence[Response], ...]):
    """The responses to several requests."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        flat = [response for group in self for response in group]
        if not flat:
            return ResponseGroups, (tuple([] for _ in self),)
        token_ids, log_probs, *rest = columns_of(Response, flat)
        ids = np.concatenate([array_of(each, np.int64) for each in token_ids]).astype(np.int32)
        exact = np.concatenate([array_of(each, np.float64) for each in log_probs])
        single = exact.astype(np.float32)  # engines compute with no more, and say it as Python's numbers
        drawn = single if np.array_equal(single, exact) else exact
        sizes = [len(group) for group in self], list(map(len, token_ids))
        return _responses, (_bytes(protocol, drawn, ids), drawn.dtype.char, *sizes, rest)


def _responses(
    data: Any, kind: str, counts: Sequence[int], lengths: Sequence[int], rest: Sequence[Sequence[Any]]
) -> ResponseGroups:
    total, array = sum(lengths), np.frombuffer(data, np.uint8).copy()  # what Ray hands over holds its memory
    drawn = array[: total * np.dtype(kind).itemsize].view(kind)
    ids = array[drawn.nbytes :].view(np.int32)
    ends = np.cumsum(lengths).tolist()
    spans = [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]
    made = map(Response, [Numbers(ids[each]) for each in spans], [Numbers(drawn[each]) for each in spans], *rest)
    return ResponseGroups([next(made) for _ in range(count)] for count in counts)


def array_of(values: Sequence[int] | Sequence[float] | Numbers, dtype: Any) -> np.ndarray:
    """Token ids or log-probs of a response."""
    return np.asarray(values.array if isinstance(values, Numbers) else values, dtype)


def _bytes(protocol: int, *arrays: np.ndarray) -> Any:
    """Arrays as bytes, which pickle hands over as they are where its protocol can."""
    joined = b"".join(arrays)  # type: ignore[arg-type]
    return PickleBuffer(joined) if protocol >= 5 else joined


class _Reader:
    """Takes tensors out of bytes one after the other; they may be written to, which what Ray hands over may not."""

    def __init__(self, data: Any) -> None:
        self._array = np.frombuffer(data, np.uint8).copy()
        self._place = 0

    def take(self, count: int, dtype: Any) -> Tensor:
        end = self._place + count * np.dtype(dtype).itemsize
        part = self._array[self._place : end].view(dtype)
        self._place = end
        return torch.from_numpy(part)
