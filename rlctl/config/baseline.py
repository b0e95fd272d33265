"""A stage before the others that answers the held-out prompts with the weights a run starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from rlctl.config.load import Loaded
from rlctl.config.root import Config
from rlctl.config.stages import combine, stages_of
from rlctl.documents.paths import KeyPath

T = TypeVar("T")


def with_baseline(loaded: Loaded) -> Loaded:
    """Add a stage ``baseline`` before the run's other stages.

    It evaluates on the held-out prompts of the first stage that has any; without one, ``loaded`` is returned as it is.
    """
    config = _with_stage(loaded.config)
    if config is None:
        return loaded
    return replace(
        loaded,
        config=config,
        sources=_moved(loaded.sources),
        expressions=_moved(loaded.expressions),
        comments=_moved(loaded.comments),
    )


def _with_stage(config: Config) -> Config | None:
    stages = stages_of(config)
    evaluating = next(filter(lambda config: config.data.eval, (_answering(stage.config) for stage in stages)), None)
    if evaluating is None:
        return None
    first = stages[0].config.model
    baseline = replace(evaluating, model=first, run=replace(evaluating.run, mode="evaluate_only"))
    combined = combine([("baseline", baseline), *((stage.name, stage.config) for stage in stages)])
    before, starting, *others = combined.stages
    starting = {**starting, "model": {**starting.get("model", {}), "path": first.path}}
    return replace(combined, stages=(before, starting, *others))


def _answering(config: Config) -> Config:
    """A stage with the held-out prompts that it answers; sft only measures its loss on rows that bring their answers."""
    if config.algorithm.objective.choice != "sft":
        return config
    prompts = tuple(each for each in config.data.eval if each.response_key is None and each.messages_key is None)
    return replace(config, data=replace(config.data, eval=prompts))


def _moved(items: Mapping[KeyPath, T]) -> dict[KeyPath, T]:
    """Move entries by key to where the keys are now: each stage one place later, a run without stages in the second."""
    found: dict[KeyPath, T] = {}
    for path, item in items.items():
        if path[:1] == ("stages",) and len(path) > 1:
            found["stages", int(path[1]) + 1, *path[2:]] = item
        else:
            found[path] = item
    return found
