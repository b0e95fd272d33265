"""Samples of responses that are stored (``stored``), what workers say of such samples, and how both come to other workers.

The samples of a step are a ``Table``: columns of places. A ``StoredSample`` is a row of it that reads as a ``Sample``: the first
look at one of its tensors fetches them and makes it one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from rlctl.runtime.processes.stored import Arrays, StoredArrays
from rlctl.runtime.serialization.stored import LOG_PROBS, TOKEN_IDS
from rlctl.runtime.types import Response, Sample

DRAWN = "rollout_log_probs"
"""The column of a sample that the engine's log-probs make up."""
Column = np.ndarray | str
"""float32 [S], the number of every token of each response; or int64 [S, 3], places of the T numbers of each sample: which
``StoredArrays``, which of their arrays, and the first of the numbers; or the name of a column that is the same."""


class Table:
    """The samples of a step, each a prompt and a response, in their order."""

    def __init__(self, rows: Sequence[tuple[np.ndarray, Response, bool]]) -> None:
        """``rows``, at least one: token ids of the prompt, one array for all samples of a group; the response, whose tokens are
        stored; and whether the loss counts them."""
        prompts, responses, counted = zip(*rows, strict=True)
        spans = [response.token_ids for response in responses]
        self.prompts: list[np.ndarray] = list({id(prompt): prompt for prompt in prompts}.values())
        self.stored: list[StoredArrays] = list({id(span.stored): span.stored for span in spans}.values())
        prompt_of = {id(prompt): place for place, prompt in enumerate(self.prompts)}
        stored_of = {id(stored): place for place, stored in enumerate(self.stored)}
        self.prompt = np.array([prompt_of[id(prompt)] for prompt in prompts])
        """int64 [S], the place of each in ``prompts``."""
        self.responses = np.array([(stored_of[id(span.stored)], span.start, span.length) for span in spans])
        """int64 [S, 3]: which of ``stored``, the first token, and how many."""
        self.counted = np.array(counted)
        """bool [S]: whether the loss counts the response."""
        self.columns: dict[str, Column] = {}
        """In addition to the engine's log-probs."""
        self.left = False
        """Whether a row has turned plain: the samples are no longer what the table says."""
        self.lengths = np.array(list(map(len, self.prompts)))[self.prompt] + self.responses[:, 2]
        """int64 [S], tokens of prompt and response."""

    def number_of(self, stored: StoredArrays) -> int:
        """Its place in ``stored``, where it is put if it is new."""
        if stored not in self.stored:
            self.stored.append(stored)
        return self.stored.index(stored)

    def rows(self, chosen: Sequence[int] | np.ndarray) -> tuple[Rows, list[StoredArrays]]:
        """Some samples as they cross to a relay, and the arrays that must be sent along."""
        index = np.array(chosen, np.int64)
        responses = self.responses[index]
        columns = {name: each if isinstance(each, str) else each[index] for name, each in self.columns.items()}
        places = [responses, *filter(_is_places, columns.values())]
        used = np.unique(np.concatenate([each[:, 0] for each in places]))
        for each in places:
            each[:, 0] = np.searchsorted(used, each[:, 0])
        which, prompt = np.unique(self.prompt[index], return_inverse=True)
        prompts = [self.prompts[number] for number in which.tolist()]
        ids = np.concatenate([np.empty(0, np.int32), *prompts], dtype=np.int32, casting="unsafe")
        lengths = np.array(list(map(len, prompts)), np.int64)
        rows = Rows(ids, lengths, prompt, responses, self.counted[index], columns)
        return rows, [self.stored[number] for number in used]

    def made(self, chosen: Sequence[int]) -> list[tuple[Tensor, Tensor, dict[str, Tensor]]]:
        """Token ids, mask and columns of some samples."""
        rows, stored = self.rows(chosen)
        names, (ids, *further) = rows.laid([each.arrays for each in stored])
        parts = [torch.from_numpy(each).split(rows.lengths) for each in (ids.astype(np.int64), *further)]
        return [(own, mask, dict(zip(names, columns, strict=True))) for own, *columns, mask in zip(*parts, strict=True)]


@dataclass(frozen=True, slots=True)
class Rows:
    """Samples as they cross to a relay; as in ``Table``, with places in the arrays that are sent along."""

    prompt_ids: np.ndarray
    """int32, the different prompts end to end."""
    prompt_lengths: np.ndarray
    prompt: np.ndarray
    responses: np.ndarray
    counted: np.ndarray
    columns: Mapping[str, Column]

    @property
    def lengths(self) -> list[int]:
        found: list[int] = (self._before + self.responses[:, 2]).tolist()
        return found

    @property
    def _before(self) -> np.ndarray:
        found: np.ndarray = self.prompt_lengths[self.prompt]
        return found

    def laid(self, given: Sequence[Arrays]) -> tuple[list[str], list[np.ndarray]]:
        """The names of all columns; token ids in 32 bits, the columns, and the mask, each of all samples end to end."""
        before, tokens = self._before, self.responses[:, 2]
        counts = np.stack([before, tokens], 1).reshape(-1)
        zeros = [np.zeros(length, np.float32) for length in before.tolist()]
        prompts = np.split(self.prompt_ids, self.prompt_lengths.cumsum()[:-1])
        ids = [np.empty(0, np.int32)]
        drawn = [np.empty(0, np.float32)]
        for prompt, (block, start, length), zero in zip(
            self.prompt.tolist(), self.responses.tolist(), zeros, strict=True
        ):
            span = slice(start, start + length)
            ids += [prompts[prompt], given[block][TOKEN_IDS][span]]
            drawn += [zero, given[block][LOG_PROBS][span]]
        named = {DRAWN: np.concatenate(drawn)}
        for name, column in self.columns.items():
            if isinstance(column, str):
                named[name] = named[column]
            elif _is_places(column):
                places = zip(column.tolist(), self.lengths, strict=True)
                parts = [given[block][which][start : start + length] for (block, which, start), length in places]
                named[name] = np.concatenate([np.empty(0, np.float32), *parts])
            else:
                named[name] = _of_responses(column, counts)
        names = sorted(named)
        return names, [np.concatenate(ids), *(named[name] for name in names), _of_responses(self.counted, counts)]


def _is_places(column: Column) -> TypeGuard[np.ndarray]:
    return not isinstance(column, str) and column.ndim > 1


def _of_responses(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The value of each response at all its tokens, and 0 at those of its prompt. ``counts``: tokens of both, in turns."""
    both = np.zeros((len(values), 2), values.dtype)
    both[:, 1] = values
    return np.repeat(both.reshape(-1), counts)


_ROW: Any = Sample.__dict__["token_ids"]


def _turn_plain(sample: StoredSample) -> None:
    table, number = sample.row
    (made,), table.left = table.made([number]), True
    sample.__class__ = Sample  # type: ignore[assignment]
    sample.token_ids, sample.mask, sample.columns = made


def _tensor_of(name: str) -> property:
    """The tensor of a sample, which turns plain for it."""

    def read(sample: StoredSample) -> Any:
        _turn_plain(sample)
        return getattr(sample, name)

    def write(sample: StoredSample, value: Any) -> None:
        _turn_plain(sample)
        setattr(sample, name, value)

    return property(read, write)


class StoredSample(Sample):
    """A row of a table. The first look at one of its tensors makes it a plain ``Sample``."""

    __slots__ = ()  # the place of the token ids holds the table and the row, so that it can turn into a Sample
    token_ids, mask, columns = map(_tensor_of, ("token_ids", "mask", "columns"))  # type: ignore[assignment]

    @classmethod
    def of(cls, table: Table, number: int) -> StoredSample:
        found = cls.__new__(cls)
        _ROW.__set__(found, (table, number))
        found.counted, found.expert, found.inputs, found.trajectory, found.routed_experts = True, False, {}, None, None
        return found

    @property
    def row(self) -> tuple[Table, int]:
        found: tuple[Table, int] = _ROW.__get__(self, StoredSample)
        return found

    def __len__(self) -> int:
        table, number = self.row
        return int(table.lengths[number])

    def __reduce__(self) -> Any:
        (found,) = plain([self])
        return Sample, (found.token_ids, found.mask, found.columns, found.counted)


class StoredSamples(tuple[Sample, ...]):
    """Rows of one table."""

    table: Table
    rows: np.ndarray
    """int64 [B]."""

    @classmethod
    def of(cls, table: Table) -> StoredSamples:
        """All rows."""
        return cls._made(
            table, np.arange(len(table.lengths)), (StoredSample.of(table, n) for n in range(len(table.lengths)))
        )

    @classmethod
    def _made(cls, table: Table, rows: np.ndarray, samples: Iterable[Sample]) -> StoredSamples:
        found = cls(samples)
        found.table, found.rows = table, rows
        return found

    def taken(self, places: Sequence[int]) -> StoredSamples:
        """Those at some places."""
        return self._made(self.table, self.rows[places], [self[place] for place in places])

    def __reduce__(self) -> Any:
        return tuple, (list(self),)

    @property
    def lengths(self) -> np.ndarray:
        """int64 [B]."""
        return self.table.lengths[self.rows]

    @property
    def whole(self) -> bool:
        """Whether they are all samples of the table, in order."""
        return len(self) == len(self.table.lengths) and bool((np.diff(self.rows) == 1).all())


def stored_rows(samples: Sequence[Sample]) -> StoredSamples | None:
    """The samples, if they are rows of a table, none of which has turned plain."""
    return samples if isinstance(samples, StoredSamples) and samples and not samples.table.left else None


def taken(samples: Sequence[Sample], places: Sequence[int]) -> Sequence[Sample]:
    """The samples at some places; those of a table stay rows of it."""
    return samples.taken(places) if isinstance(samples, StoredSamples) else [samples[place] for place in places]


def lengths_of(samples: Sequence[Sample]) -> list[int]:
    """The tokens of each sample, as ``len`` gives them."""
    found = stored_rows(samples)
    return list(map(len, samples)) if found is None else found.lengths.tolist()


def copy_column(source: str, target: str, samples: Sequence[Sample]) -> None:
    """Give samples a column that is the same as another."""
    found = stored_rows(samples)
    if found is not None and found.whole:
        found.table.columns[target] = source
        return
    for sample in samples:
        sample.columns[target] = sample.columns[source]


def plain(samples: Sequence[Sample]) -> list[Sample]:
    """The samples with their numbers here, for a reader that must not turn those of the step plain."""
    stored = [sample for sample in samples if isinstance(sample, StoredSample)]
    made: dict[int, Iterator[Any]] = {}
    for table in {id(sample.row[0]): sample.row[0] for sample in stored}.values():
        made[id(table)] = iter(table.made([number for own, number in (each.row for each in stored) if own is table]))
    found = []
    for sample in samples:
        if isinstance(sample, StoredSample):
            token_ids, mask, columns = next(made[id(sample.row[0])])
            found.append(Sample(token_ids, mask, columns, sample.counted))
        else:
            found.append(sample)
    return found


@dataclass(frozen=True, slots=True)
class StoredLengths:
    """Values of samples under one name or several, without their numbers."""

    lengths: Sequence[Sequence[int]]
    """Of each name, the numbers of each sample."""
    named: bool
    """Whether there are several names, in a list."""

    def attached(self, stored: StoredArrays) -> list[StoredValues] | StoredValues:
        """The values, with places for their numbers."""
        found = [StoredValues([(stored, which, own)]) for which, own in enumerate(self.lengths)]
        return found if self.named else found[0]


class StoredValues(Sequence[Tensor]):
    """What workers say of samples, as ``sequences.Values``."""

    def __init__(self, parts: Sequence[tuple[StoredArrays, int, Sequence[int]]]) -> None:
        """``parts``: where they are one after the other, as arrays, which of them, and the numbers of each sample."""
        self.parts = parts

    def places(self, table: Table) -> np.ndarray:
        """As a column of a table has them. int64 [len, 3]."""
        found = [np.empty((0, 3), np.int64)]
        for stored, which, lengths in self.parts:
            starts = np.cumsum(lengths) - lengths
            own = np.full(len(lengths), table.number_of(stored)), np.full(len(lengths), which), starts
            found.append(np.stack(own, 1))
        return np.concatenate(found)

    def __len__(self) -> int:
        return sum(len(lengths) for *_, lengths in self.parts)

    def __getitem__(self, index: Any) -> Any:
        return [
            torch.from_numpy(stored.arrays[which][start : start + length].copy())
            for stored, which, lengths in self.parts
            for start, length in zip(accumulate(lengths, initial=0), lengths, strict=False)
        ][index]
