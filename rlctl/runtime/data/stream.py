"""The endless sequence of step batches, and its position as plain data.

The position is a few integers because every epoch's order is a function of seed and epoch (``order.py``): a stream is
restored anywhere without reading what came before. torchdata's StatefulDataLoader keeps the position of one loader by
replaying its sampler and knows no mixing of sources nor batches that run over an epoch's end; wrapping it took more
code than this, so it is not used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.data.difficulty import DifficultyCursor, Pacing
from rlctl.runtime.data.order import ORDERS, distinct, draw_sources, split_exactly

T = TypeVar("T")
EVENLY = Pacing()
Mixing = Literal["concatenate", "weighted", "weighted_exact"]


class Cursor:
    """A position in the endless sequence of rows: epoch after epoch, each in its order.

    Args:
        rows: number of rows.
        order: a name of ``order.ORDERS``, random, or a fixed order of every epoch.
        seed: of the order.
    """

    def __init__(self, rows: int, order: str | np.ndarray, *, seed: int) -> None:
        self.rows = rows
        self.epoch = 0
        self.position = 0
        self._order = order
        self._seed = seed
        self._cached: tuple[int, np.ndarray] | None = None

    @property
    def left(self) -> int:
        """Rows left in this epoch."""
        return self.rows - self.position

    def take(self, count: int) -> list[int]:
        """The next ``count`` rows, over as many epochs as it takes."""
        taken: list[int] = []
        while len(taken) < count:
            part = self._next(min(count - len(taken), self.left))
            taken += part.tolist()
            self.position += len(part)
            if self.position == self.rows:
                self.skip_epoch()
        return taken

    def skip_epoch(self) -> None:
        """Go to the start of the next epoch."""
        self.epoch, self.position = self.epoch + 1, 0

    def state(self) -> Any:
        """The position, as plain data."""
        return [self.epoch, self.position]

    def restore(self, state: Any) -> None:
        """Go to a position."""
        self.epoch, self.position = state

    def _next(self, count: int) -> np.ndarray:
        """The next rows of this epoch, which has as many left."""
        if isinstance(self._order, str) and self._order == "random":
            return distinct(count, self.rows, seed=self._seed, epoch=self.epoch, position=self.position)
        return self._epoch_order()[self.position : self.position + count]

    def _epoch_order(self) -> np.ndarray:
        if isinstance(self._order, np.ndarray):
            return self._order
        if self._cached is None or self._cached[0] != self.epoch:
            self._cached = self.epoch, ORDERS[self._order](self.rows, seed=self._seed, epoch=self.epoch)
        return self._cached[1]


@dataclass(frozen=True, slots=True)
class Ordering:
    """How a stream draws: the settings that its position depends on."""

    order: str = "shuffle"
    """sequential | shuffle | random, easy_to_hard with ``ranks``, or difficulty with ``features``."""
    seed: int = 0
    last_batch: Literal["drop", "carry"] = "drop"
    """What becomes of an epoch's last rows that fill no batch. Only where sources are concatenated: weighted ones go round
    each on its own, and every batch is full."""
    mixing: Mixing = "concatenate"
    weights: tuple[float, ...] = ()
    """One for each source."""
    keys: tuple[str, ...] = ()
    """Where the config has them, for messages."""
    ranks: tuple[np.ndarray, ...] = ()
    """easy_to_hard: the order of each source's rows."""
    features: tuple[np.ndarray, ...] = ()
    """difficulty: each source's two columns."""
    pacing: Pacing = EVENLY


@runtime_checkable
class MadeTogether(Protocol):
    """A source for which several of what is drawn are less work than one after the other."""

    def several(self, positions: Sequence[int]) -> list[Any]:
        """Those at some positions."""


def _several(source: Sequence[T], rows: Sequence[int]) -> list[T]:
    return source.several(rows) if isinstance(source, MadeTogether) else [source[row] for row in rows]


class Stream(Generic[T]):
    """Step batches drawn from one or more sources, without end.

    Args:
        sources: each a sequence of what is drawn.
        per_step: size of a batch.
        ordering: how it is drawn.
        ahead: threads that make the next batch while this one is worked on; 0 makes each when it is asked for, as it is where
            the next batch depends on what is told of this one.

    Raises:
        RunError: not one batch fits, or the order is none that can be drawn here.
    """

    def __init__(self, sources: Sequence[Sequence[T]], *, per_step: int, ordering: Ordering, ahead: int = 0) -> None:
        if not sources or not all(len(source) for source in sources):
            raise RunError("there is no training data", hint="set data.train to at least one source that has rows")
        self._sources = sources
        self._ordering = ordering
        self._lengths = [len(source) for source in sources]
        self._starts = np.cumsum([0, *self._lengths]).tolist()
        self.per_step = per_step
        self.rows = sum(self._lengths)
        self._drawn = 0
        foreseen = ahead and ordering.order != "difficulty"
        self._threads = ThreadPoolExecutor(ahead, thread_name_prefix="data") if foreseen else None
        self._ready: dict[tuple[int, int], Future[T]] = {}
        """Rows that are made ahead, or being made."""
        self._cursors = self._make_cursors()
        if ordering.mixing == "concatenate" and ordering.last_batch == "drop" and self.rows < per_step:
            raise RunError(
                said(
                    "the training data has {rows} prompts and a step needs {per_step}: an epoch would have no step",
                    rows=self.rows,
                    per_step=per_step,
                ),
                hint=said("set batch.prompts_per_step to {rows} or less, or data.last_batch to carry", rows=self.rows),
            )
        total = sum(ordering.weights) or 1.0
        self._shares = [weight / total for weight in ordering.weights]
        if ordering.mixing == "weighted_exact":
            split_exactly(per_step, self._shares, ordering.keys)

    @property
    def epoch(self) -> int:
        """Epochs that are over: passes over all rows; where sources are weighted, as many draws as there are rows."""
        if self._ordering.mixing == "concatenate":
            return self._cursors[0].epoch
        return self._drawn // self.rows

    def __iter__(self) -> Iterator[list[T]]:
        while True:
            yield self.next_batch()

    def next_batch(self) -> list[T]:
        """The next step's batch, ``per_step`` long."""
        return self.take(self.per_step)

    def take(self, count: int) -> list[T]:
        """The next ``count`` of the sequence, for a batch that is filled up.

        Where sources are weighted, a count other than ``per_step`` is drawn by weight, not split exactly.
        """
        batch = self._made(self._next_rows(count))
        self._drawn += count
        if self._threads is not None:
            self._prepare(count, self._threads)
        return batch

    def _made(self, rows: Sequence[tuple[int, int]]) -> list[T]:
        """What the rows say, in order; those that are not ready are made together."""
        waiting: dict[int, list[int]] = {}
        for source, row in rows:
            if (source, row) not in self._ready:
                waiting.setdefault(source, []).append(row)
        made = {source: iter(_several(self._sources[source], own)) for source, own in waiting.items()}
        return [self._ready[each].result() if each in self._ready else next(made[each[0]]) for each in rows]

    def _prepare(self, count: int, threads: ThreadPoolExecutor) -> None:
        """Begin to make what comes next, where as many are taken again; the position stays."""
        here = [cursor.state() for cursor in self._cursors]
        rows = self._next_rows(count)
        for cursor, position in zip(self._cursors, here, strict=True):
            cursor.restore(position)
        self._ready = {
            (source, row): self._ready.get((source, row)) or threads.submit(self._sources[source].__getitem__, row)
            for source, row in rows
        }

    def state(self) -> dict[str, Any]:
        """The position, as plain data that JSON holds."""
        return {
            "of": self._identity(),
            "drawn": self._drawn,
            "cursors": [cursor.state() for cursor in self._cursors],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a position that ``state`` gave: what is drawn next is what would have been.

        Raises:
            RunError: it is a position in other data, or in another order.
        """
        own = self._identity()
        saved = state["of"]
        differing = [f"{name}: was {saved.get(name)}, is {own[name]}" for name in own if saved.get(name) != own[name]]
        if differing:
            raise RunError(
                said("the saved data position belongs to other data ({names})", names="; ".join(differing)),
                hint="restore the data section of the config and its files, or start a new run",
            )
        self._drawn = state["drawn"]
        for cursor, position in zip(self._cursors, state["cursors"], strict=True):
            cursor.restore(position)

    def feedback(self, rewards: Mapping[int, float]) -> None:
        """Tell the mean reward of each prompt answered, by its number over all sources; an order by difficulty goes by it."""
        told: dict[int, dict[int, float]] = {}
        for number, reward in rewards.items():
            source = int(np.searchsorted(self._starts, number, side="right")) - 1
            index, first = (source, self._starts[source]) if len(self._cursors) > 1 else (0, 0)
            told.setdefault(index, {})[number - first] = reward
        for index, found in told.items():
            cursor = self._cursors[index]
            if isinstance(cursor, DifficultyCursor):
                cursor.feedback(found)

    def _identity(self) -> dict[str, Any]:
        ordering = self._ordering
        return {
            "rows": self._lengths,
            "order": ordering.order,
            "seed": ordering.seed,
            "mixing": ordering.mixing,
            "weights": list(ordering.weights) if ordering.mixing != "concatenate" else [],
        }

    def _make_cursors(self) -> Sequence[Cursor | DifficultyCursor]:
        ordering, ranks = self._ordering, self._ordering.ranks
        if ordering.order == "difficulty":
            features = ordering.features
            if ordering.mixing == "concatenate":
                features = (np.concatenate(features),)
            return [DifficultyCursor(each, ordering.pacing, seed=ordering.seed + i) for i, each in enumerate(features)]
        if ordering.mixing == "concatenate" and not ranks:
            return [Cursor(self.rows, ordering.order, seed=ordering.seed)]
        if ordering.mixing == "concatenate":
            if len(ranks) > 1:
                raise RunError(
                    "data.curriculum.order is easy_to_hard with several sources, whose difficulties cannot be compared",
                    hint="put them in one file, or set data.mixing to weighted",
                )
            return [Cursor(self.rows, ranks[0], seed=ordering.seed)]
        return [
            Cursor(rows, ranks[i] if ranks else ordering.order, seed=ordering.seed + i)
            for i, rows in enumerate(self._lengths)
        ]

    def _next_rows(self, count: int) -> list[tuple[int, int]]:
        """Source and row of each of the next ``count``."""
        if self._ordering.mixing == "concatenate":
            return self._next_concatenated(count)
        if self._ordering.mixing == "weighted_exact" and len(self._sources) > 1 and count == self.per_step:
            counts = split_exactly(count, self._shares, self._ordering.keys)
            return [(i, row) for i, size in enumerate(counts) for row in self._cursors[i].take(size)]
        chosen = draw_sources(count, self._shares, seed=self._ordering.seed, start=self._drawn)
        rows = {i: iter(self._cursors[i].take(size)) for i, size in sorted(Counter(chosen).items())}
        return [(i, next(rows[i])) for i in chosen]

    def _next_concatenated(self, count: int) -> list[tuple[int, int]]:
        cursor = self._cursors[0]
        if self._ordering.last_batch == "drop" and cursor.left < count:
            cursor.skip_epoch()
        rows = cursor.take(count)
        sources = np.searchsorted(self._starts, rows, side="right") - 1
        return [(int(i), row - self._starts[i]) for i, row in zip(sources, rows, strict=True)]
