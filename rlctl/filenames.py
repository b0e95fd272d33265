"""What the name of a file says: its ending, whether it is a file or a folder, and which names here may be configs.

Standard library only.
"""

from __future__ import annotations

from pathlib import Path

YAML_ENDINGS = (".yaml", ".yml")
SCRIPT_ENDINGS = (".sh", ".bash")


def is_file(name: Path | str) -> bool:
    """Whether there is a file of that name; a name that no file can have is none."""
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def is_folder(name: Path | str) -> bool:
    """Whether there is a folder of that name; a name that no folder can have is none."""
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):
        return False


def is_there(name: Path | str) -> bool:
    """Whether there is a file or folder of that name; a name that none can have is of none."""
    try:
        return Path(name).exists()
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
