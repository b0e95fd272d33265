"""Weights & Biases, online or as files that are sent later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from rlctl.common import packages
from rlctl.common.errors import MissingDependency
from rlctl.config.sections.output import WandbTracker as Settings
from rlctl.runtime.tracking.interface import COLUMNS, RunInfo, ShownResponse, kept_id, rows


class WandbTracker:
    """One run of Weights & Biases; launching a run again goes on with it.

    Raises:
        MissingDependency: wandb is not installed.
    """

    def __init__(self, settings: Settings, info: RunInfo) -> None:
        try:
            import wandb
        except ImportError as error:
            raise MissingDependency(
                "tracking with wandb needs the package wandb, which is not installed", hint=packages.install("wandb")
            ) from error
        info.folder.mkdir(parents=True, exist_ok=True)
        options = {
            "project": info.project,
            "name": info.name,
            "group": info.group,
            "dir": str(info.folder),
            "mode": settings.mode,
            "id": kept_id(info.folder, uuid4().hex[:8]),
            "resume": "allow",
            "settings": _quiet(wandb.Settings, settings),
        }
        self._teardown, self._table = wandb.teardown, wandb.Table
        self._run = wandb.init(**{**options, **settings.args})

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Send the metrics of a step."""
        self._run.log(dict(metrics), step=step)

    def log_responses(self, name: str, responses: Sequence[ShownResponse], *, step: int) -> None:
        """Send a table."""
        self._run.log({name: self._table(columns=list(COLUMNS), data=rows(responses, step))}, step=step)

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Send the settings."""
        self._run.config.update(dict(config), allow_val_change=True)

    def close(self) -> None:
        """Finish the run, and wait for the process beside this one that writes its files."""
        self._run.finish()
        self._teardown()


def _quiet(kind: Any, settings: Settings) -> Any:
    """The command line and the console may hold secrets, so neither is collected; the key is never written."""
    own = {"api_key": settings.api_key, "base_url": settings.base_url}
    return kind(
        silent=True,
        console="off",
        disable_git=True,
        save_code=False,
        x_disable_meta=True,
        **{name: value for name, value in own.items() if value},
    )
