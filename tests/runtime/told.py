"""What two runs have in common that compute the same: their metrics, without those of time and memory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

OF_THE_MACHINE = ("time/", "throughput/", "memory/", "worker/")
Numbers = dict[tuple[str, int], dict[str, float]]


def numbers_of(events: Iterable[dict[str, Any]]) -> Numbers:
    """Metrics of every step and evaluation; what was done twice counts as it was done last."""
    return {
        (f"{event['stage']} {event['kind']}", event["step"]): {
            name: value for name, value in event["metrics"].items() if not name.startswith(OF_THE_MACHINE)
        }
        for event in events
        if event["kind"] in ("step", "evaluation")
    }


def events_of(folder: Path) -> list[dict[str, Any]]:
    """All that a run's folder tells."""
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
