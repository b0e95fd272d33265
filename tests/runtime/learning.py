"""The tiny task that every algorithm and every engine has to learn: to begin a response with 1."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .conftest import Ran, Task


def check_that_it_learns(
    task: Task, run: Callable[..., Ran], folder: Path, *, per_micro_batch: int = 64, **changes: Any
) -> None:
    """24 steps of two mini-batches; ``changes`` go over the sections of the config."""
    shutil.copytree(task.folder / "model", folder / "model")
    done = run(
        task.config(
            folder,
            model={"path": str(folder / "model")},
            batch={
                "prompts_per_step": 16,
                "responses_per_prompt": 8,
                "mini_batch_responses": 64,
                "micro_batch": {"unit": "responses", "size": per_micro_batch},
            },
            schedule={"total_steps": 24, "evaluate_every": 100},
            checkpoint={"every": None, "export": "never", "at_end": False},
            **changes,
        )
    )
    assert done.result.status == "finished", done.result.cause
    evaluated = done.result.stages["main"]["evaluated"]
    before, after = (evaluated[when]["evaluation/addition/accuracy"] for when in ("first", "last"))
    assert before < 0.2
    assert after > 0.8
