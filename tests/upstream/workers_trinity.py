"""What Trinity's workers ask of a config beyond its validators.

The explorer makes a workflow with its reward function of each task; the trainer deals a train batch to its data-parallel ranks.
"""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

EXPLORES = ("both", "explore", "bench", "colocate")
TRAINS = ("both", "train")
AWAY = (ImportError, FileNotFoundError, OSError)
"""What a workflow raises for a package or an environment that is not installed: no refusal of the config."""

FROZEN_LAKE = {"size": 4, "p": 0.8, "seed": 0}
"""Columns of FrozenLake's data: without a size, Trinity looks for two different tiles of a map of one, forever."""


def asked(config: Any) -> None:
    """Raise what the explorer would raise at its first task, or the trainer at its first step."""
    if config.mode in EXPLORES:
        _explorer(config)
    if config.mode in TRAINS and config.trainer.trainer_type == "verl" and config.cluster.trainer_gpu_num:
        _trainer(config)


def _explorer(config: Any) -> None:
    tasksets = config.buffer.explorer_input.tasksets
    for taskset in [*tasksets, *config.buffer.explorer_input.eval_tasksets]:
        if taskset.default_workflow_type or taskset.format.workflow_key is None:
            _first_task(taskset, len(config.explorer.auxiliary_models))


def _first_task(taskset: Any, judges: int) -> None:
    from trinity.buffer.schema.formatter import TaskFormatter

    try:
        task = TaskFormatter(taskset).format(_row(taskset.format))
    except AWAY:
        return
    model = mock.MagicMock()
    try:
        task.to_workflow(model=model, auxiliary_models=[mock.MagicMock() for _ in range(judges)])
    except AWAY:
        return


def _trainer(config: Any) -> None:
    """As verl's ``TrainingWorker.train_mini_batch``; what ``too_few`` tells comes before it."""
    actor, share = _shape(config)
    ranks, rest = divmod(config.cluster.trainer_gpu_num, share)
    if not rest and actor.ppo_mini_batch_size % ranks:
        raise ValueError(f"Got mini_batch_size={actor.ppo_mini_batch_size} and {ranks} data-parallel ranks")


def too_few(config: Any) -> str:
    """What is wrong where the trainer's GPUs are no whole number of data-parallel ranks: a model that no split of them fits."""
    if config.mode not in TRAINS or config.trainer.trainer_type != "verl" or not config.cluster.trainer_gpu_num:
        return ""
    devices, share = config.cluster.trainer_gpu_num, _shape(config)[1]
    return f"{devices} GPUs are no whole number of ranks of {share}" if devices % share else ""


def _shape(config: Any) -> tuple[Any, int]:
    """The actor's config, and the GPUs of one data-parallel rank."""
    try:
        from trinity.trainer.verl.config import build_verl_config
    except ImportError:
        actor = config.trainer.trainer_config.actor_rollout_ref.actor
    else:
        actor = build_verl_config(config).actor
    if not str(actor.strategy).startswith("megatron"):
        return actor, actor.ulysses_sequence_parallel_size
    sizes = (f"{name}_parallel_size" for name in ("tensor_model", "pipeline_model", "context"))
    return actor, math.prod(getattr(actor.megatron, size) for size in sizes)


def _row(form: Any) -> dict[str, Any]:
    """A row of the data, with the columns that the format names."""
    messages = str(getattr(form.prompt_type, "value", form.prompt_type)) == "messages"
    row: dict[str, Any] = {form.prompt_key: [{"role": "user", "content": "1 + 1"}] if messages else "1 + 1"}
    row[form.response_key] = "2"
    return row | FROZEN_LAKE
