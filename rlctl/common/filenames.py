"""What the name of a file says: whether there is one or a folder, its ending, whose ``~`` it has, and which names may be configs.

Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

YAML_ENDINGS = (".yaml", ".yml")
SCRIPT_ENDINGS = (".sh", ".bash")
CONFIG_ENDINGS = (*YAML_ENDINGS, *SCRIPT_ENDINGS)
DEPTH = 4
"""Levels of folders that are looked through for configs and runs."""
MOST_LOOKED_AT = 20_000
"""Names after which no further folder is looked into."""
NO_CONFIGS = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "env", "wandb", "checkpoints"})
"""Folders that hold no configs of the user's."""


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
