"""Reading what somebody else wrote: a folder of files, no variables of this process, and nothing outside the folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KEPT = ("PATH", "TMPDIR", "LANG", "LC_ALL", "LC_MESSAGES", "RLCTL_LANGUAGE")
"""Variables that a reading keeps. A config cannot read any other, such as a token."""
HOME = "/home/user"
"""The home folder of a reading; it need not exist."""
_folder = ""
"""Outside this folder and the libraries of Python no file is opened; empty outside of ``isolated``."""
_libraries: tuple[str, ...] = ()
_watched = False


@contextmanager
def isolated(folder: Path) -> Iterator[None]:
    """Work in a folder, without the environment's variables, and open no files outside it.

    Opening another file raises ``PermissionError``, so a script that sources ``/proc/self/environ`` reads nothing.
    """
    global _folder, _libraries, _watched
    if not _watched:  # an audit hook cannot be removed
        sys.addaudithook(_refuse)
        _watched = True
    before, around, outer = Path.cwd(), dict(os.environ), _folder
    paths = {sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]), *(path for path in sys.path if path)}
    _libraries = tuple(os.path.realpath(path) + os.sep for path in paths)
    kept = {name: around[name] for name in KEPT if name in around}
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(kept, HOME=HOME)
    _folder = os.path.realpath(folder) + os.sep
    try:
        yield
    finally:
        _folder = outer
        os.environ.clear()
        os.environ.update(around)
        os.chdir(before)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """The audit hook: refuse to open what is neither in the folder nor one of Python's own files."""
    if not _folder or event != "open" or not isinstance(arguments[0], str | bytes | os.PathLike):
        return
    path = os.path.realpath(os.fsdecode(arguments[0]))
    if not f"{path}{os.sep}".startswith((_folder, *_libraries)):
        raise PermissionError(13, "outside the repository", path)
