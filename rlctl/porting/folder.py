"""A folder of results: whole or not there at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlctl.common.errors import RunError, UsageError
from rlctl.common.messages.reasons import said


@contextmanager
def whole_folder(target: Path, *, force: bool) -> Iterator[Path]:
    """A temporary folder next to ``target``, whose files are moved there at the end; an error removes it.

    A target that is absent or empty appears in one step. With ``force``, files are moved into a folder that has others: those
    of the same name are replaced, the rest stay.

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
        made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent))
        made.chmod(0o777 & ~_umask())
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        yield made
        _move(made, target)
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _move(made: Path, target: Path) -> None:
    if not target.exists() or not any(target.iterdir()):
        made.replace(target)
        return
    for path in sorted(made.rglob("*")):
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
