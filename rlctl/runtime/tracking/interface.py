"""What a tracker does, and what it is told of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ShownResponse:
    """A response as people read it."""

    prompt: str
    response: str
    score: float | None = None
    """None where nothing scored it."""


COLUMNS = ("step", "prompt", "response", "score")
"""Of a table of responses; see ``rows``."""


def rows(responses: Sequence[ShownResponse], step: int) -> list[list[Any]]:
    """Responses as the rows of a table with ``COLUMNS``."""
    return [[step, each.prompt, each.response, each.score] for each in responses]


class Tracker(Protocol):
    """A place that metrics are sent to."""

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Send the metrics of a step; steps rise."""
        ...

    def log_responses(self, name: str, responses: Sequence[ShownResponse], *, step: int) -> None:
        """Send some responses of a step as a table called ``name``."""
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
