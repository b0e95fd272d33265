"""What Trinity's explorer asks of a config beyond its validators: each task becomes a workflow with its reward function."""

from __future__ import annotations

from typing import Any
from unittest import mock

EXPLORES = ("both", "explore", "bench", "colocate")
AWAY = (ImportError, FileNotFoundError, OSError)
"""What a workflow raises for a package or an environment that is not installed: no refusal of the config."""


def asked(config: Any) -> None:
    """Raise what the explorer would raise at its first task."""
    if config.mode not in EXPLORES:
        return
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


def _row(form: Any) -> dict[str, Any]:
    """A row of the data, with the columns that the format names."""
    messages = str(getattr(form.prompt_type, "value", form.prompt_type)) == "messages"
    row: dict[str, Any] = {form.prompt_key: [{"role": "user", "content": "1 + 1"}] if messages else "1 + 1"}
    row[form.response_key] = "2"
    return row
