"""What a tracker does, and what it is told of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


class Tracker(Protocol):
    """A place that metrics are sent to."""

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Send the metrics of a step; steps rise."""
        ...

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Send the settings of the run, secrets left out; see ``secrets.visible``."""
        ...

    def close(self) -> None:
        """Send what is left and end."""
        ...


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a tracker is told of the run."""

    project: str
    name: str
    group: str | None
    folder: Path
    """Where the tracker keeps its files, its own."""


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted key, for services that take a flat mapping."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def kept_id(folder: Path, new: str) -> str:
    """Return the id that the service knows this run by: the one kept in ``folder``, else ``new``, which is then kept."""
    file = folder / "run_id"
    if file.exists():
        return file.read_text(encoding="utf-8").strip()
    folder.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".new")
    temporary.write_text(new, encoding="utf-8")
    temporary.replace(file)
    return new
