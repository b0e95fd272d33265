"""The rows of all sources by the reward that scores them, each domain a source of its own for ``Stream``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.rewards import Reward
from rlctl.runtime.data.prompts import PromptSet
from rlctl.runtime.rewards.routing import rewards_for
from rlctl.runtime.types import Prompt


class DomainRows(Sequence[Prompt]):
    """The prompts of one domain: some of the rows of each source, renumbered so that an order by difficulty finds them.

    Args:
        parts: sources, and which of their tasks belong to the domain.
        first_index: ``Prompt.index`` of the first one, so that domains put together have no index twice.
    """

    def __init__(self, parts: Iterable[tuple[PromptSet, np.ndarray]], *, first_index: int) -> None:
        self._sets, self._positions = zip(*parts, strict=True)
        self._starts = np.cumsum([0, *map(len, self._positions)])
        self._first_index = first_index

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.several(range(*index.indices(len(self))))
        return self.several([index if index >= 0 else len(self) + index])[0]

    def count_of(self, source: int) -> int:
        """How many of them come from a source, by its place."""
        return len(self._positions[source])

    def several(self, positions: Sequence[int]) -> list[Prompt]:
        """The prompts at some positions; those of one source are made together."""
        wanted = np.asarray(positions)
        sources = np.searchsorted(self._starts, wanted, side="right") - 1
        made: dict[int, Prompt] = {}
        for source in np.unique(sources).tolist():
            own = wanted[sources == source]
            rows = self._positions[source][own - self._starts[source]]
            made |= zip(own.tolist(), self._sets[source].several(rows.tolist()), strict=True)
        return [replace(made[each], index=self._first_index + each) for each in wanted.tolist()]

    def column(self, name: str) -> list[Any]:
        """The values of one column, in the order of the prompts.

        Raises:
            RunError: a source has no such column.
        """
        parts = zip(self._sets, self._positions, strict=True)
        columns = [(rows.column(name), positions.tolist()) for rows, positions in parts if len(positions)]
        return [values[position] for values, positions in columns for position in positions]


def split_by_domain(
    sets: Sequence[PromptSet], weights: Mapping[str, float], rewards: Sequence[Reward]
) -> list[DomainRows]:
    """Split rows by the rewards that ``data.domain_weights`` names.

    A row that several of them score belongs to the first one that names its data source or tag in ``applies_to``; a reward
    for all rows takes what these leave.

    Raises:
        RunError: no row belongs to a domain.
    """
    named = [reward for reward in rewards if reward.name in weights]
    named.sort(key=lambda reward: reward.applies_to is None)

    @cache
    def domain(source: str, tag: str | None, reward: str | None) -> str | None:
        extra = {"tag": tag} | ({"reward": reward} if reward is not None else {})
        prompt = Prompt(index=0, source=source, token_ids=(), text="", extra=extra)
        among = named if reward is None else rewards
        covering = [among[i].name for i in rewards_for(prompt, among, required=False)]
        return covering[0] if covering else None

    found = [np.array([domain(*label, rows.source.reward) for label in rows.labels()], dtype=object) for rows in sets]
    domains: list[DomainRows] = []
    first = 0
    for name in weights:
        parts = [(rows, np.flatnonzero(names == name)) for rows, names in zip(sets, found, strict=True)]
        domains.append(DomainRows(parts, first_index=first))
        first += len(domains[-1])
        if not len(domains[-1]):
            seen = dict.fromkeys(
                str(tag if tag is not None else source) for rows in sets for source, tag in rows.labels()
            )
            raise RunError(
                said(
                    "data.domain_weights weighs {name}, but no training row belongs to that reward; the rows are of {seen}",
                    name=name,
                    seen=", ".join([*seen][:10]),
                ),
                hint="set applies_to of that reward to tags or data sources of its rows, or remove its weight",
            )
    return domains
