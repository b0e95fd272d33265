"""The critic as the controller sees it, whole, as the roles in ``roles`` are."""

from __future__ import annotations

from collections.abc import Sequence

from rlctl.runtime.roles import TrainedRole, add_column
from rlctl.runtime.train.losses import totals_of
from rlctl.runtime.types import Sample
from rlctl.runtime.workers.critic import Critic
from rlctl.runtime.workers.sharding import mini_batches_of
from rlctl.runtime.workers.trainer import Part


class ValueModel(TrainedRole):
    """Expects what is still to come of a response."""

    name = "critic"

    def add_values(self, samples: Sequence[Sample]) -> None:
        """Write the column ``old_values``: the values under the weights of now."""
        add_column(self._group, Critic.values, samples, "old_values")

    def train(self, samples: Sequence[Sample], *, step: int) -> dict[str, float]:
        """All optimizer steps on a step's samples, none where there are none. Returns the means of their metrics."""
        samples = [_learned(sample) for sample in samples]
        mini_batches = mini_batches_of(samples, self._batch, seed=self._seed, step=step)
        return self._train(Critic.train_step, samples, [self._shares(samples, part) for part in mini_batches])

    def _shares(self, samples: Sequence[Sample], members: Sequence[int]) -> list[Part]:
        """The share of every worker in one mini-batch, which has the samples ``members``."""
        chosen = [samples[index] for index in members]
        totals = totals_of(chosen)
        return [Part([members[place] for place in places], totals) for places in self._split(chosen)]


def _learned(sample: Sample) -> Sample:
    """What the critic learns of a sample: every response is a sequence, those too that the policy is not trained on."""
    columns = {name: sample.columns[name] for name in ("old_values", "returns")}
    mask = sample.columns["critic_tokens"] > 0
    return Sample(sample.token_ids, mask, columns, trajectory=sample.trajectory)
