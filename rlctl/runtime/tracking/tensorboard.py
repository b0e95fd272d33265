"""TensorBoard event files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlctl.common import packages
from rlctl.common.errors import MissingDependency
from rlctl.runtime.tracking.interface import COLUMNS, RunInfo, ShownResponse, rows


class TensorboardTracker:
    """Writes event files into the tracker's folder.

    Raises:
        MissingDependency: tensorboard is not installed.
    """

    def __init__(self, info: RunInfo) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingDependency(
                "tracking with tensorboard needs the package tensorboard, which is not installed",
                hint=packages.install("tensorboard"),
            ) from error
        self._writer = SummaryWriter(log_dir=str(info.folder))

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Write one scalar a metric, and flush: the files are watched while the run goes on."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, global_step=step)
        self._writer.flush()

    def log_responses(self, name: str, responses: Sequence[ShownResponse], *, step: int) -> None:
        """Write a table in Markdown."""
        lines = [list(COLUMNS), ["---"] * len(COLUMNS), *rows(responses, step)]
        text = "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)
        self._writer.add_text(name, text, global_step=step)
        self._writer.flush()

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Write the settings as a text."""
        self._writer.add_text("config", f"```json\n{json.dumps(config, indent=2, default=str)}\n```")

    def close(self) -> None:
        """Close the files."""
        self._writer.close()


def _cell(value: Any) -> str:
    """A value that breaks no table."""
    return str(value).replace("|", "\\|").replace("\n", "<br>")
