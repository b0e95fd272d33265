"""CRC-32 sums of the files of a folder, beside them: whether each is as it was written, and whether all of them are."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from rlctl.common.messages.reasons import said
from rlctl.common.regular_files import read_json

CHECKSUMS = "checksums.json"


def write_checksums(folder: Path) -> None:
    """Write the sums of a folder's own files, not of those in folders within it; to be written last."""
    (folder / CHECKSUMS).write_text(json.dumps(_sums(folder), indent=1))


def damage(folder: Path) -> str:
    """What is wrong with a folder, to follow its name in a sentence; empty where it is as it was written."""
    try:
        expected: dict[str, int] = dict(read_json(folder / CHECKSUMS))
    except (OSError, ValueError, TypeError):
        return said("is incomplete: {file}, which is written last, is missing or damaged", file=CHECKSUMS)
    for name, value in expected.items():
        if not (folder / name).is_file():
            return said("lacks the file {name}", name=name)
        if _sum(folder / name) != value:
            return said("is damaged: {name} does not match its checksum", name=name)
    return ""


def _sums(folder: Path) -> dict[str, int]:
    return {path.name: _sum(path) for path in sorted(folder.iterdir()) if path.is_file() and path.name != CHECKSUMS}


def _sum(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 24):
            value = zlib.crc32(chunk, value)
    return value
