"""What a tool may answer and write: results of a bounded size, files of the server's folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from rlctl.cli import output
from rlctl.common import quoting
from rlctl.common.errors import DocumentError, Location, UsageError
from rlctl.common.filenames import is_file
from rlctl.common.messages.reasons import said
from rlctl.common.terminal import safe

LIMIT = 40_000
"""Characters of a result as JSON, about 10,000 tokens; agents refuse or cut longer ones."""
LEAST = 200
"""Characters of a text that is never cut."""

Place = tuple[str | int, ...]


def bounded(result: dict[str, Any], limit: int = LIMIT) -> dict[str, Any]:
    """A result as strict JSON data of a bounded size.

    Lists and texts are cut at their ends, the longest first. ``omitted`` says for each what it lacks, as ``findings: 12 of 80``.

    Args:
        result: plain data.
        limit: most characters of its JSON.
    """
    data: dict[str, Any] = json.loads(output.as_json(result))
    whole: dict[Place, tuple[int, str]] = {}
    while len(json.dumps(data, ensure_ascii=False)) > limit:
        place = max(_cuttable(data), key=lambda found: found[1], default=((), 0))[0]
        if not place:
            break
        holder = _at(data, place[:-1])
        value = holder[place[-1]]
        whole.setdefault(place, (len(value), "characters" if isinstance(value, str) else "items"))
        holder[place[-1]] = value[: max(LEAST if isinstance(value, str) else 0, len(value) // 2)]
    if whole:
        data["omitted"] = [
            f"{'.'.join(map(str, place))}: {count - len(_at(data, place))} of {count} {unit}"
            for place, (count, unit) in whole.items()
            if _exists(data, place)
        ]
    return data


def _cuttable(value: Any, place: Place = ()) -> Iterator[tuple[Place, int]]:
    """The lists and long texts in a value, with their sizes as JSON."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _cuttable(item, (*place, key))
    elif isinstance(value, list):
        if value:
            yield place, len(json.dumps(value, ensure_ascii=False))
        if len(value) == 1:  # the one item is cut before it is left out
            yield from ((at, size + 2) for at, size in _cuttable(value[0], (*place, 0)))
    elif isinstance(value, str) and len(value) > LEAST:
        yield place, len(value)


def _at(value: Any, place: Place) -> Any:
    for part in place:
        value = value[part]
    return value


def _exists(value: Any, place: Place) -> bool:
    try:
        _at(value, place)
    except (LookupError, TypeError):
        return False
    return True


_readable: ContextVar[tuple[Path, ...]] = ContextVar("readable folders", default=())


@contextmanager
def reading(folders: Sequence[Path]) -> Iterator[None]:
    """Within this context tools read only what is in these folders, links followed."""
    before = _readable.set(tuple(folder.resolve() for folder in folders))
    try:
        yield
    finally:
        _readable.reset(before)


def is_readable(path: Path) -> bool:
    """Whether a path, with links followed, is in a folder that tools read."""
    try:
        place = path.resolve()
    except (OSError, RuntimeError, ValueError):
        return False
    return any(place.is_relative_to(folder) for folder in _readable.get())


def inside(path: Path) -> Path:
    """A file or folder that a tool may read.

    Raises:
        UsageError: it is outside the folders that tools read.
    """
    if not is_readable(path):
        raise UsageError(
            said("{file} is outside the folders that rlctl mcp reads", file=str(path)),
            hint=said("start it as rlctl mcp --allow {folder}", folder=quoting.word(str(path.absolute().parent))),
        )
    return path


def readable(file: str) -> str:
    """A file that a tool may read: not standard input, on which the agent speaks, nor a device or a pipe.

    Raises:
        UsageError: it is none.
    """
    inside(Path(file))
    if is_file(file) or (Path(file).name == ".hydra" and Path(file).is_dir()):
        return file
    if not Path(file).exists():
        raise UsageError(said("{file} does not exist", file=file), hint="paths start from the folder of the server")
    raise UsageError(said("{file} is not a regular file", file=file), hint="name one config or launch script")


def writable(root: Path, file: str) -> Path:
    """The file below the server's folder that a path names, with links followed.

    Raises:
        UsageError: it is outside, or hidden: a file in ``.git`` or the like may be executed.
        DocumentError: the path cannot be followed.
    """
    try:
        target = (root / file).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise DocumentError(said("cannot be written: {value}", value=error), at=Location(file)) from None
    if not target.is_relative_to(root):
        raise UsageError(
            said("{file} is outside {root}, the folder of the server", file=file, root=root),
            hint="name a file inside it, or start rlctl mcp in another folder",
        )
    if any(part.startswith(".") for part in target.relative_to(root).parts):
        raise UsageError(
            said("{file} is hidden, and rlctl mcp writes no hidden files", file=file), hint="choose another name"
        )
    return target


def shortened(value: Any, most: int) -> Any:
    """A value of a data file with texts of a bounded length, and without characters that show nothing."""
    if isinstance(value, str):
        text = safe(value)
        return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
    if isinstance(value, dict):
        return {safe(str(key)): shortened(item, most) for key, item in list(value.items())[:50]}
    if isinstance(value, list | tuple):
        return [shortened(item, most) for item in value[:20]]
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return value
