"""The tokens of a step's samples that the loss counts, as one tensor a column."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlctl.runtime.algorithms.packed import marked, spread
from rlctl.runtime.types import Sample, trajectories_of


class CountedTokens:
    """The counted tokens of samples, sequence after sequence, as ``algorithms.packed`` has them.

    A trajectory is one sequence, whatever number of samples it has: estimators and statistics see each trajectory once.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples
        self._sizes = [len(sample) for sample in samples]
        self._mask = torch.cat([sample.mask for sample in samples])
        by_sample = marked(self._mask, torch.tensor(self._sizes))
        self.owners = trajectories_of(samples)
        owners = torch.tensor(self.owners)
        self.lengths = by_sample.new_zeros(self.owners[-1] + 1).index_add(0, owners, by_sample)
        self.count = int(self.lengths.sum())
        self._starts = self.lengths.cumsum(0) - self.lengths

    def read(self, column: str) -> Tensor:
        """A column, [N]."""
        return torch.cat([sample.columns[column] for sample in self._samples])[self._mask]

    def write(self, column: str, values: Tensor) -> None:
        """Set a column of every sample from [N]; 0 where no token is counted."""
        whole = torch.zeros(len(self._mask)).masked_scatter(self._mask, values)
        for sample, part in zip(self._samples, whole.split(self._sizes), strict=True):
            sample.columns[column] = part

    def narrow(self, kept: Tensor) -> None:
        """Count only the tokens that are marked, bool [N]."""
        whole = self._mask.masked_scatter(self._mask, kept)
        for sample, part in zip(self._samples, whole.split(self._sizes), strict=True):
            sample.mask = part

    def tokens_of(self, indices: list[int]) -> Tensor | slice:
        """The places in [N] of the tokens of some samples, in order."""
        if len(indices) == len(self.lengths):
            return slice(None)
        lengths, starts = self.lengths[indices], self._starts[indices]
        return torch.arange(int(lengths.sum())) + spread(starts - lengths.cumsum(0) + lengths, lengths)

    def segments(self) -> Tensor:
        """The lengths of all runs of counted tokens, sample after sample. [S]."""
        return torch.bincount(self.runs())

    def runs(self) -> Tensor:
        """The number of each token's run of counted tokens. int64 [N]."""
        before = self._mask.roll(1)
        before[torch.tensor([0, *self._sizes[:-1]]).cumsum(0)] = False
        begins = self._mask & ~before
        return begins.cumsum(0)[self._mask] - 1

    def moments(self, values: Tensor, trained: Tensor) -> tuple[float, float]:
        """Mean and standard deviation of [N] over the tokens that are marked."""
        chosen = values[trained]
        return (float(chosen.mean()), float(chosen.std(correction=0))) if len(chosen) else (0.0, 0.0)
