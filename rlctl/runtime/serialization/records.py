"""Many instances of one dataclass as they cross processes: field by field. Loads no torch, as workers that score text do not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any


class Records(tuple[Any, ...]):
    """Instances of one dataclass: a plain tuple to whoever reads it, which pickles as a few lists."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        if not self:
            return Records, ()
        kind = type(self[0])
        return _records, (kind, columns_of(kind, self))


def _records(kind: Callable[..., Any], columns: Sequence[Sequence[Any]]) -> Records:
    return Records(map(kind, *columns))


def columns_of(kind: Any, records: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The fields of instances of ``kind``, field by field; there is at least one."""
    return list(zip(*map(_fields(kind), records), strict=True))


@cache
def _fields(kind: Any) -> Callable[[Any], tuple[Any, ...]]:
    return attrgetter(*(field.name for field in dataclasses.fields(kind)))
