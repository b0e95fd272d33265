"""Calls of rewards that take too long, told while the others are still scored: by a file among the logs of the run.

reward worker ──note──▶ logs/reward-late.jsonl ──▶ controller, which waits for the scores and reads it now and then
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rlctl.common.messages.reasons import said
from rlctl.common.messages.recorded import with_reasons, with_templates

FILE = "reward-late.jsonl"
EVERY_SECONDS = 1.0


def note(logs: Path | None, name: str, limit: float, left: int, count: int) -> None:
    """Say of a reward that a call took too long.

    Args:
        logs: folder of the run's logs; without it nothing is logged.
        name: of the reward.
        limit: seconds of a call.
        left: responses that are not scored yet.
        count: responses that are scored together.
    """
    if logs is None:
        return
    told = said(
        "a call of the reward {name!r} took longer than {limit:g} s; {left} of {count} responses are not scored yet",
        name=name,
        limit=limit,
        left=left,
        count=count,
    )
    with suppress(OSError), (logs / FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(with_templates({"message": told}), ensure_ascii=False) + "\n")


@contextmanager
def told(logs: Path | None, tell: Callable[[str], None]) -> Iterator[None]:
    """Within, ``tell`` gets what workers note."""
    if logs is None:
        yield
        return
    path, over = logs / FILE, threading.Event()
    at = path.stat().st_size if path.is_file() else 0

    def pass_on() -> None:
        nonlocal at
        with suppress(OSError, ValueError), path.open("rb") as file:
            file.seek(at)
            for line in file.read().splitlines(keepends=True):
                if line.endswith(b"\n"):
                    at += len(line)
                    tell(with_reasons(json.loads(line))["message"])

    def watch() -> None:
        while not over.wait(EVERY_SECONDS):
            pass_on()

    thread = threading.Thread(target=watch, name="late-rewards", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        pass_on()
