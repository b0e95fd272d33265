"""A folder of results: whole or not there at all."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rlctl.common.errors import RunError, UsageError
from rlctl.common.messages.reasons import said

SETTLED = 10
"""Seconds until an unlocked folder counts as left over from a killed process; a new folder is locked within less."""


@contextmanager
def whole_folder(target: Path, *, force: bool, last: Sequence[str] = ()) -> Iterator[Path]:
    """A temporary folder next to ``target``, whose files are moved there at the end; an error removes it.

    A target that is absent or empty appears in one step. With ``force``, files are moved into a folder that has others: those
    of the same name are replaced, the rest stay. Of a process that was killed, a hidden folder is left, which the next call
    removes.

    Args:
        target: the folder.
        force: whether it may have files.
        last: files without which it does not look finished. They are gone while others are replaced.

    Raises:
        UsageError: the target has files and ``force`` is off, or it is no folder.
        RunError: a folder cannot be written.
    """
    if target.exists() and not target.is_dir():
        raise UsageError(said("{target} is a file; expected a folder", target=target), hint="name a new folder with -o")
    if target.is_dir() and any(target.iterdir()) and not force:
        raise UsageError(
            said("the folder {target} is not empty", target=target),
            hint="name a new folder, or pass --force to replace files of the same names in it",
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_left(target)
        made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent))
        made.chmod(0o777 & ~_umask())
        held = _locked(made)
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        yield made
        _move(made, target, last)
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
        if held is not None:
            os.close(held)


def _locked(folder: Path) -> int | None:
    """A lock of a folder, which ends with this process; None if another process has it, or the disk has no locks."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _remove_left(target: Path) -> None:
    """Remove what killed processes left of the same target."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):
        if time.time() - left.stat().st_mtime < SETTLED:
            continue
        if (held := _locked(left)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(held)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _move(made: Path, target: Path, last: Sequence[str]) -> None:
    if not target.exists() or not any(target.iterdir()):
        made.replace(target)
        return
    for name in last:
        (target / name).unlink(missing_ok=True)
    paths = sorted(made.rglob("*"), key=lambda path: (path.name in last and path.parent == made, path))
    for path in paths:
        place = target / path.relative_to(made)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            path.replace(place)


def _unwritable(target: Path, error: OSError) -> RunError:
    return RunError(
        said("{target} cannot be written: {reason}", target=target, reason=error.strerror or str(error)),
        hint="name a folder that this user can write to, on a disk with free space",
    )
