"""Writing the files of a run folder: a reader sees the whole new file or the old one, never a part.

Files that a user owns are written by ``rlctl.documents.write_atomic``, which asks before it overwrites and waits for the disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, which replaces the file at the end, and which an error removes.

    Processes that write the same file at the same time use different paths, so the last one that ends wins.

    Raises:
        OSError: the file cannot be written.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write a file as UTF-8, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
