"""The config as a tracker may see it: without secrets."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from rlctl.config import Config, to_plain
from rlctl.config.inspect import fields_of
from rlctl.passwords import has_password

HIDDEN = "<hidden>"
_SECRET_NAME = re.compile(r"(key|token|secret|password|passwd|credential)s?$", re.IGNORECASE)


def visible(config: Config) -> dict[str, Any]:
    """Return the config as plain values, with ``<hidden>`` for every secret that has a value.

    Secrets are the fields that the schema marks, and text in free mappings (environment variables, further arguments)
    whose name ends like one: ``WANDB_API_KEY``, ``hf_token``.
    """
    plain = to_plain(config)
    shown = _without_marked(config, plain)
    return _without_named(shown)


def _without_marked(value: Any, plain: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and isinstance(plain, Mapping):
        infos = fields_of(type(value))
        return {
            key: HIDDEN if key in infos and infos[key].secret and held else _descend(value, key, infos, held)
            for key, held in plain.items()
        }
    if isinstance(value, tuple) and isinstance(plain, list | tuple):
        return [_without_marked(item, held) for item, held in zip(value, plain, strict=True)]
    return plain


def _descend(value: Any, key: str, infos: Mapping[str, Any], held: Any) -> Any:
    return _without_marked(getattr(value, infos[key].attribute), held) if key in infos else held


def _without_named(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: HIDDEN
            if has_password(held) or (isinstance(held, str) and held and _is_secret_name(str(key)))
            else _without_named(held)
            for key, held in value.items()
        }
    return [_without_named(item) for item in value] if isinstance(value, list | tuple) else value


def _is_secret_name(name: str) -> bool:
    """Names of columns (``prompt_key``) end in a lower-case ``_key`` too and are no secrets."""
    return bool(_SECRET_NAME.search(name)) and (not name.endswith("_key") or name.endswith("api_key"))
