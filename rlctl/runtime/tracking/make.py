"""The config's trackers, made for one run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rlctl.common.errors import RlctlError, RunError
from rlctl.common.messages.reasons import said
from rlctl.common.secrets import without_secrets
from rlctl.config import Config, put_at, to_plain
from rlctl.config.inspect import secrets
from rlctl.config.sections import output
from rlctl.runtime.tracking.interface import RunInfo, Tracker
from rlctl.runtime.tracking.mlflow import MlflowTracker
from rlctl.runtime.tracking.safe import HURRY, SafeTracker
from rlctl.runtime.tracking.swanlab import SwanlabTracker
from rlctl.runtime.tracking.tensorboard import TensorboardTracker
from rlctl.runtime.tracking.wandb import WandbTracker

HIDDEN = "<hidden>"


def make_trackers(
    config: Config, run_folder: Path, log: Callable[[str], None], *, stage: str = ""
) -> list[SafeTracker]:
    """Make the trackers of a run and send them its config. The console is left to the front end.

    Args:
        config: the run's.
        run_folder: gets ``tracking/<name>`` for the files of each.
        log: called with a sentence when a tracker fails: the run goes on without it.
        stage: one of several, which a service knows as a run of its own: its steps count from 1 again, and steps have to rise.

    Raises:
        MissingDependency: a tracker's package is not installed.
        RunError: a tracker is one that the runtime does not know.
    """
    trackers: list[SafeTracker] = []
    for settings in config.tracking:
        if isinstance(settings, output.ConsoleTracker | output.OtherTracker):
            continue  # the console shows events, and of one framework's own tracker the run is told
        try:
            trackers.append(
                SafeTracker(
                    settings.choice, partial(_make, settings, run_info(config, settings, run_folder, stage)), log
                )
            )
        except RlctlError:
            for made in trackers:
                made.close(HURRY)
            raise
        trackers[-1].log_config(visible(config))
    return [tracker for tracker in trackers if tracker.enabled]


def run_info(config: Config, settings: output.Tracker, run_folder: Path, stage: str) -> RunInfo:
    """What a tracker is told of the run, or of one of its several stages."""
    folder = run_folder / "tracking" / settings.choice
    if isinstance(settings, output.TensorboardTracker | output.SwanlabTracker) and settings.folder:
        folder = Path(settings.folder).expanduser()
    run = config.run
    if stage:
        return RunInfo(run.project, f"{run.name}-{stage}", run.group or run.name, folder / stage)
    return RunInfo(run.project, run.name, run.group, folder)


def _make(settings: output.Tracker, info: RunInfo) -> Tracker:
    if isinstance(settings, output.TensorboardTracker):
        return TensorboardTracker(info)
    if isinstance(settings, output.SwanlabTracker):
        return SwanlabTracker(settings, info)
    if isinstance(settings, output.WandbTracker):
        return WandbTracker(settings, info)
    if isinstance(settings, output.MlflowTracker):
        return MlflowTracker(settings, info)
    raise RunError(
        said("rlctl has no tracker {type_name}", type_name=settings.type_name),
        hint="use console, tensorboard, swanlab, wandb or mlflow",
    )


def visible(config: Config) -> dict[str, Any]:
    """The config as plain values, with ``<hidden>`` for every secret that has a value, also in other text."""
    shown: dict[str, Any] = to_plain(config)
    for path, value in secrets(config):
        if value is not None:
            put_at(shown, path, HIDDEN)
    return {key: _without_secrets(value) for key, value in shown.items()}


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_secrets(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(item) for item in value]
    return without_secrets(value) if isinstance(value, str) else value
