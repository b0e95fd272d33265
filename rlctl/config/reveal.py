"""The secrets and the home folder of the environment in a config, for the processes of a run only.

Everywhere else a value that the environment holds as a secret is its expression, ``${oc.env:NAME}``, and paths are as written.
"""

from __future__ import annotations

import os
import re
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, get_type_hints

from rlctl.common.errors import ConfigError
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.config.fields import Local
from rlctl.config.root import Config

_VARIABLE = re.compile(r"\$\{oc\.env:([A-Za-z_]\w*)\}", re.ASCII)
_KEPT = ("extensions",)
"""Sections that no run reads: they hold text of other frameworks."""


def revealed(config: Config) -> Config:
    """The config with the secrets of this process's environment in it, and its home folder. It must not be shown, logged or
    written.

    Raises:
        ConfigError: a variable that it names is not set.
    """
    changes = {
        field.name: _revealed(getattr(config, field.name)) for field in fields(config) if field.name not in _KEPT
    }
    return replace(config, **changes)


def _revealed(value: Any) -> Any:
    if isinstance(value, str):
        return _VARIABLE.sub(_value_of, value) if "${oc.env:" in value else value
    if isinstance(value, dict):
        return {key: _revealed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_revealed(item) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        local = _local(type(value))
        found = {field.name: _revealed(getattr(value, field.name)) for field in fields(value)}
        return replace(value, **{name: at_home(item) if name in local else item for name, item in found.items()})
    return value


@cache
def _local(section: type) -> frozenset[str]:
    """The fields of a section that are paths on this machine."""
    hints = get_type_hints(section, include_extras=True)
    return frozenset(
        name
        for name, hint in hints.items()
        if any(isinstance(each, Local) for each in getattr(hint, "__metadata__", ()))
    )


def at_home(path: Any) -> Any:
    """A path in which a leading ``~`` or ``$HOME`` is the user's folder."""
    if not isinstance(path, str) or not path.startswith(("~", "$HOME/")):
        return path
    return str(expanded(f"~{path.removeprefix('$HOME')}" if path.startswith("$") else path))


def _value_of(match: re.Match[str]) -> str:
    name = match[1]
    if name not in os.environ:
        raise ConfigError(
            said("the environment variable {name}, which the config reads, is not set", name=name),
            hint=f"export {name}=VALUE",
        )
    return os.environ[name]
