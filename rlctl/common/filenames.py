"""What the name of a file says: whether there is one or a folder, its ending, whose ``~`` it has, and which names may be configs.

The standard library, and the reasons of messages.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rlctl.common.messages.reasons import said
from rlctl.common.terminal import UNSEEN_IN_LINE

YAML_ENDINGS = (".yaml", ".yml")
SCRIPT_ENDINGS = (".sh", ".bash")
CONFIG_ENDINGS = (*YAML_ENDINGS, *SCRIPT_ENDINGS)
DEPTH = 4
"""Levels of folders that are looked through for configs and runs."""
MOST_LOOKED_AT = 20_000
"""Names after which no further folder is looked into."""
NO_CONFIGS = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "env", "wandb", "checkpoints"})
"""Folders that hold no configs of the user's."""


LONGEST_NAME = 255
"""Bytes of a file's name."""
_NAMES = "/"
"""Between the names of a path."""


def unfit(name: str) -> str:
    """Why a folder should not be named so, if a config says it; empty if it may. Folders in folders, as in ``a/b``, are fine."""
    if not name.strip():
        return "it is empty"
    if UNSEEN_IN_LINE.search(name) or not name.isprintable():
        return "it contains a line end, a control character or another one that cannot be seen"
    if name.startswith("-"):
        return "it starts with '-', as options of commands do"
    if name.startswith(("/", "~")):
        return said("it starts with {sign!r}, so the folder would be somewhere else", sign=name[0])
    parts = name.split(_NAMES)
    if not {".", ".."}.isdisjoint(parts):
        return "a part of it is '.' or '..', so the folder would be somewhere else"
    if any(len(part.encode()) > LONGEST_NAME for part in parts):
        return said("a part of it is longer than {most} bytes", most=LONGEST_NAME)
    return ""


def fit(name: str) -> str:
    """The nearest name that a folder may have."""
    seen = "".join(letter if letter.isprintable() else "_" for letter in UNSEEN_IN_LINE.sub("_", name))
    parts = [part.encode()[:LONGEST_NAME].decode(errors="ignore") for part in seen.strip("/~ ").split(_NAMES)]
    return _NAMES.join(part for part in parts if part not in ("", ".", "..")).lstrip("-").strip() or "run"


def is_file(name: Path | str) -> bool:
    """Whether there is a file of that name; a name that no file can have is none."""
    return _holds(Path.is_file, name)


def is_folder(name: Path | str) -> bool:
    """Whether there is a folder of that name; a name that no folder can have is none."""
    return _holds(Path.is_dir, name)


def is_there(name: Path | str) -> bool:
    """Whether there is a file or folder of that name; a name that none can have is of none."""
    return _holds(Path.exists, name)


def _holds(is_so: Callable[[Path], bool], name: Path | str) -> bool:
    try:
        return is_so(Path(name))
    except (OSError, ValueError):
        return False


def expanded(name: Path | str) -> Path:
    """A name with ``~`` as the person's folder; as it is where it begins with that of somebody who is not known here."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)


def configs_and_runs(folder: Path) -> tuple[list[Path], list[Path]]:
    """Files below a folder that may be configs or launch scripts, and the folders of runs; the nearest first, then by name.

    Hidden folders, and those of installed packages, are not looked into, nor is what is in a run's own folder.
    """
    configs: list[Path] = []
    found_runs: list[Path] = []
    level, looked = [folder], 0
    for _ in range(DEPTH):
        below: list[Path] = []
        for place in level:
            names = _names_in(place)
            looked += len(names)
            if "run.json" in names:
                found_runs.append(place)
                continue
            configs += [
                place / name for name, is_dir in names.items() if not is_dir and Path(name).suffix in CONFIG_ENDINGS
            ]
            below += [
                place / name for name, is_dir in names.items() if is_dir and name[0] != "." and name not in NO_CONFIGS
            ]
            if looked > MOST_LOOKED_AT:
                return configs, found_runs
        level = below
    return configs, found_runs


def _names_in(folder: Path) -> dict[str, bool]:
    """The names in a folder, sorted, and whether each is a folder; none where it cannot be listed, or is gone."""
    try:
        with os.scandir(folder) as found:
            return dict(sorted((entry.name, _is_folder(entry)) for entry in found))
    except OSError:
        return {}


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder, and no link to one, which may lead back up."""
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
