"""The config as a tracker may see it: without secrets."""

from __future__ import annotations

from typing import Any

from rlctl.config import Config, to_plain
from rlctl.config.inspect import secrets

HIDDEN = "<hidden>"


def visible(config: Config) -> dict[str, Any]:
    """The config as plain values, with ``<hidden>`` for every secret that has a value."""
    shown: dict[str, Any] = to_plain(config)
    for path, value in secrets(config):
        if value is not None:
            section: Any = shown
            for part in path[:-1]:
                section = section[part]
            section[path[-1]] = HIDDEN
    return shown
