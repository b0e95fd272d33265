"""Models, tokenizers and a checkpoint that a config names by URL: brought here before anything of the run starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlctl.common.messages.reasons import said
from rlctl.config import Config, config_from, to_plain
from rlctl.runtime.remote.files import bring, is_remote

NAMES = ("path", "tokenizer")
"""Keys of a model, or of a reward that is one, that name folders."""


def with_files_here(config: Config, tell: Callable[[str], None]) -> Config:
    """The config with folders on this machine where URLs of models and of a checkpoint were, in its stages too.

    Args:
        config: of the run.
        tell: is told of each.

    Raises:
        MissingDependency: what reads such URLs is not installed.
        RunError: one cannot be brought.
    """
    plain = to_plain(config)
    return config_from(plain) if _bring_below(plain, "", tell) else config


def _bring_below(value: Any, where: str, tell: Callable[[str], None]) -> bool:
    """Replace such URLs anywhere in plain values; returns whether there was one."""
    if isinstance(value, list):
        brought = [_bring_below(item, f"{where}[{index}]", tell) for index, item in enumerate(value)]
        return any(brought)
    if not isinstance(value, dict):
        return False
    found, is_model = False, where.rpartition(".")[2] == "model" or value.get("type") == "model"
    for name, item in value.items():
        at = f"{where}.{name}".lstrip(".")
        named = (is_model and name in NAMES) or at.endswith("checkpoint.resume_path")
        if named and isinstance(item, str) and is_remote(item):
            value[name] = str(bring(item, key=at))
            tell(said("{item} ({at}) is at {value}", item=item, at=at, value=value[name]))
            found = True
        else:
            found |= _bring_below(item, at, tell)
    return found
