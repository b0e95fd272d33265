"""What the name of a file says: whether there is one or a folder, its ending, whose ``~`` it has, and which names may be configs.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

YAML_ENDINGS = (".yaml", ".yml")
SCRIPT_ENDINGS = (".sh", ".bash")


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


def configs_here() -> list[Path]:
    """Files of the folder that one is in that may be configs or launch scripts; none where it cannot be listed, or is gone."""
    try:
        return sorted(path for path in Path.cwd().iterdir() if path.suffix in (*YAML_ENDINGS, *SCRIPT_ENDINGS))
    except OSError:
        return []
