"""The critic as the controller sees it, whole, as the roles in ``roles`` are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from rlctl.config import Config
from rlctl.planning import arithmetic
from rlctl.runtime.processes.group import Group, first_of_all
from rlctl.runtime.roles import add_column
from rlctl.runtime.train.losses import totals_of
from rlctl.runtime.types import Sample
from rlctl.runtime.workers.critic import Critic
from rlctl.runtime.workers.sharding import cost, linear_tokens, mini_batches_of, split_over_replicas
from rlctl.runtime.workers.trainer import Part, shard_mini_batches


class ValueModel:
    """Expects what is still to come of a response."""

    def __init__(self, group: Group, config: Config) -> None:
        self._group = group
        self._batch = arithmetic.critic_batch(config)
        self._seed = config.run.seed
        self._checkpoint = config.checkpoint
        own = config.critic.model if config.critic is not None else None
        self._linear = linear_tokens(own.path if own is not None and own.path else config.model.path)

    def add_values(self, samples: Sequence[Sample]) -> None:
        """Write the column ``old_values``: the values under the weights of now."""
        add_column(self._group, Critic.values, samples, "old_values")

    def train(self, samples: Sequence[Sample], *, step: int) -> dict[str, float]:
        """All optimizer steps on a step's samples, none where there are none. Returns the means of their metrics."""
        samples = [_learned(sample) for sample in samples]
        parts = mini_batches_of(samples, self._batch, seed=self._seed, step=step)
        shares = [self._shares(samples, part) for part in parts]
        calls = shard_mini_batches(samples, shares, len(self._group))
        metrics: list[dict[str, float]] = self._group.joined(Critic.train_step, calls, first_of_all)
        return {f"critic/{name}": fmean(each[name] for each in metrics) for name in (metrics[0] if metrics else ())}

    def _shares(self, samples: Sequence[Sample], members: Sequence[int]) -> list[Part]:
        """The share of every worker in one mini-batch, which has the samples ``members``."""
        chosen = [samples[index] for index in members]
        totals, costs = totals_of(chosen), [cost(len(sample), self._linear) for sample in chosen]
        split = split_over_replicas(costs, len(self._group), balance=self._batch.balance)
        return [Part([members[place] for place in places], totals) for places in split]

    def save(self, folder: Path) -> None:
        """As ``Policy.save``."""
        self._group.all(Critic.save, folder, self._checkpoint)

    def is_saved(self, *, wait: bool = False) -> bool:
        """Whether it is written; ``wait`` until it is."""
        return all(self._group.all(Critic.is_saved, wait))

    def load(self, folder: Path) -> None:
        """Go on from what ``save`` wrote."""
        self._group.all(Critic.load, folder, self._checkpoint)


def _learned(sample: Sample) -> Sample:
    """What the critic learns of a sample: every response is a sequence, those too that the policy is not trained on."""
    columns = {name: sample.columns[name] for name in ("old_values", "returns")}
    mask = sample.columns["critic_tokens"] > 0
    return Sample(sample.token_ids, mask, columns, trajectory=sample.trajectory)
