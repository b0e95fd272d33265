"""Reading files that anyone may have written, such as those of a run folder: only regular files, and of bounded size.

Opening a named pipe would wait for a writer, and a device such as ``/dev/zero`` never ends. Standard library only.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from rlctl.common.messages.reasons import said

LONGEST_LINE = 1 << 24
"""Bytes of a line, or of a JSON file; a longer one is damaged."""


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading.

    Raises:
        OSError: it cannot be opened, or is a folder, a device, a pipe or a socket.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def read_json(path: Path, longest: int = LONGEST_LINE) -> Any:
    """Read a JSON file.

    Raises:
        OSError: it cannot be read, or is no regular file.
        ValueError: it is not JSON, or is too large.
    """
    with open_regular(path) as file:
        data = file.read(longest + 1)
    if len(data) > longest:
        raise ValueError(said("it is larger than {limit} MiB", limit=longest >> 20))
    return from_json(data)


def from_json(text: str | bytes) -> Any:
    """Parse JSON text.

    Raises:
        ValueError: it is not JSON, or is nested too deep.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
