"""A reward function of the user's, loaded from its file or from an installed package. ``signatures`` says how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rlctl.common.errors import RunError, nearest_and
from rlctl.common.messages.reasons import said
from rlctl.runtime.user_code import import_file, import_module, last_lines

PACKAGE, FILE = "pkg://", "file://"
"""verl's prefixes: ``pkg://package.module``, or a file."""


def load_function(path: str, name: str) -> Callable[..., Any]:
    """Import a Python file or module and return a function of it. Modules beside a file can be imported by it.

    Raises:
        RunError: there is no such file, module or function, or importing it raises.
    """
    module = _import_module(path) if path.startswith(PACKAGE) else _import_file(file_of(path))
    function = getattr(module, name, None)
    if not callable(function):
        names = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise RunError(
            said(
                "{path} has no function {name!r}; it has {value}",
                path=path,
                name=name,
                value=", ".join(names) or "none",
            ),
            hint=nearest_and(name, names, "set the function of the reward"),
        )
    return function


def file_of(path: str) -> Path:
    """The file that a path names.

    Raises:
        RunError: there is none.
    """
    file = Path(path.removeprefix(FILE)).expanduser().resolve()
    if not file.is_file():
        raise RunError(
            said("there is no reward file {file}", file=file),
            hint="set the path of the reward; relative paths start at the working directory",
        )
    return file


def _import_module(path: str) -> ModuleType:
    name = path.removeprefix(PACKAGE).strip("/").replace("/", ".")
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:
        raise RunError(
            said("importing the reward's module {name} fails:\n{error}", name=name, error=last_lines(error))
        ) from error


def _import_file(file: Path) -> ModuleType:
    return import_file(file, prefix="rlctl_reward", what=said("the reward file {file}", file=file))
