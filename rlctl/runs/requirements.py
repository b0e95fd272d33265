"""The extras that running a config needs on a device: checked before anything is read, written or started."""

from __future__ import annotations

from collections.abc import Mapping

from rlctl.common import packages
from rlctl.common.messages.reasons import said
from rlctl.config import Config, stages_of
from rlctl.config.sections import output
from rlctl.config.sections.execution import SqlBuffer
from rlctl.planning.arithmetic import Device, needs_rollout
from rlctl.planning.megatron.limits import asked_of
from rlctl.planning.support import generating

TRACKERS = {
    output.SwanlabTracker: "swanlab",
    output.WandbTracker: "wandb",
    output.MlflowTracker: "mlflow",
    output.TensorboardTracker: "tensorboard",
}
"""By kind of tracker, the extra with its package."""


def require_packages(config: Config, device: Device, *, tracks: bool = True) -> None:
    """Check that what a config needs is installed.

    vLLM on a machine without GPUs is another distribution than the extra's: the run refuses it with that name. ``tracks`` is
    whether metrics go to the config's trackers.

    Raises:
        MissingDependency: with everything that is missing, and one command that installs it.
    """
    needs = {packages.RUNTIME: "running"}
    for stage in stages_of(config):
        needs |= _needs(stage.config, device, tracks)
    packages.require(needs)


def _needs(config: Config, device: Device, tracks: bool) -> Mapping[str, str]:
    needs: dict[str, str] = {}
    for asked in asked_of(config):
        needs["megatron"] = f"{asked.section}.engine megatron"
    if device == "cuda" and needs_rollout(config) and generating(config, device) == "vllm":
        needs["vllm"] = "rollout.engine vllm"
    for tracker in config.tracking if tracks else ():
        extra = TRACKERS.get(type(tracker))
        if extra is not None:
            needs[extra] = said("tracking with {name}", name=tracker.choice)
    if any(url.startswith(("postgresql", "postgres")) for url in _databases(config)):
        needs["postgresql"] = "a PostgreSQL database"
    return needs


def _databases(config: Config) -> list[str]:
    """Paths that may be URLs of databases: the buffer's, and those of the data."""
    buffer = [config.buffer.url] if isinstance(config.buffer, SqlBuffer) and config.buffer.url else []
    return [*buffer, *(source.path for source in (*config.data.train, *config.data.eval))]
