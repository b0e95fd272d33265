"""What a person chose for good, in ``$XDG_CONFIG_HOME/rlctl/tui.json``, by default under ``~/.config``: theme and language."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

NAMES = ("theme", "language")


def place() -> Path:
    """The file."""
    config = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(config) / "rlctl" / "tui.json"


def read() -> dict[str, str]:
    """What was chosen; nothing where the file cannot be read, as nobody should be kept out by it."""
    try:
        data = json.loads(place().read_text())
    except (OSError, ValueError):
        return {}
    return {name: data[name] for name in NAMES if isinstance(data, dict) and isinstance(data.get(name), str)}


def choose(name: str, value: str) -> None:
    """Remember one choice; a disk that is full or read only is no reason to stop."""
    from rlctl.common.errors import RlctlError
    from rlctl.documents import write_atomic

    known = read()
    if known.get(name) == value:
        return
    with suppress(OSError, RlctlError):
        place().parent.mkdir(parents=True, exist_ok=True)
        write_atomic(place(), json.dumps({**known, name: value}, indent=2) + "\n", force=True)
