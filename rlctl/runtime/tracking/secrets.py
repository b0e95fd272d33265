"""The config as a tracker may see it: without secrets."""

from __future__ import annotations

from typing import Any

from rlctl.common.secrets import without_secrets
from rlctl.config import Config, put_at, to_plain
from rlctl.config.inspect import secrets

HIDDEN = "<hidden>"


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
