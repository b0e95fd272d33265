"""Licences of files that a ported folder gets a copy of, as the files or their project name them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

HEAD = 40
"""Lines of a file in which its licence is looked for."""
LONGEST = 80
"""Most characters of a line that stands for a licence without a known name."""
SPDX = re.compile(r"SPDX-License-Identifier:\s*([\w.+-]+(?:\s+(?:AND|OR|WITH)\s+[\w.+-]+)*)")
KNOWN = {
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache License": "Apache-2.0",
    "MIT License": "MIT",
    "GNU AFFERO GENERAL PUBLIC LICENSE": "AGPL-3.0",
    "GNU GENERAL PUBLIC LICENSE": "GPL",
    "BSD 3-Clause": "BSD-3-Clause",
}
"""What texts of licences begin with, and their SPDX names."""


def licence_of(file: Path) -> str | None:
    """The licence of a file: what its head says, else the text in the nearest folder above it; None if there is none."""
    if found := _named(file):
        return found
    for folder in file.resolve().parents:
        text = next((path for path in sorted(folder.glob("LICEN[CS]E*")) if path.is_file()), None)
        if text is not None:
            first = next((line.strip() for line in _head(text) if line.strip()), "")
            return _named(text) or first[:LONGEST] or None
        if (folder / ".git").exists():
            break
    return None


def licences(files: Iterable[tuple[Path, Path]]) -> dict[str, str | None]:
    """By place in the folder of copies, the licence of each file."""
    return {str(place): licence_of(path) for path, place in files}


def _named(file: Path) -> str | None:
    head = "\n".join(_head(file))
    if found := SPDX.search(head):
        return found[1]
    return next((name for text, name in KNOWN.items() if text in head), None)


def _head(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()[:HEAD]
    except OSError:
        return []
