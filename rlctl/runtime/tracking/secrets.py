"""The config as a tracker may see it: without secrets."""

from __future__ import annotations

from typing import Any

from rlctl.config import Config, put_at, to_plain
from rlctl.config.inspect import secrets

HIDDEN = "<hidden>"


def visible(config: Config) -> dict[str, Any]:
    """The config as plain values, with ``<hidden>`` for every secret that has a value."""
    shown: dict[str, Any] = to_plain(config)
    for path, value in secrets(config):
        if value is not None:
            put_at(shown, path, HIDDEN)
    return shown
