"""The only writer of stdout: what was asked for, and nothing else.

A reader that closes the pipe early (``| head``) is no error: the rest is thrown away and the command goes on.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlctl.common.errors import DocumentError, Location
from rlctl.common.messages.reasons import said
from rlctl.common.terminal import escaped, safe

if TYPE_CHECKING:
    from rich.console import RenderableType

_UNBOUNDED = 100_000
"""Columns of output that goes to a file or a pipe, where nothing is wrapped."""


def text(content: str) -> None:
    """Write text as UTF-8, whatever the terminal's encoding, with a line end after it; as it is where no terminal reads it."""
    if not content.endswith("\n"):
        content += "\n"
    _write(safe(content) if sys.stdout.isatty() else content)


def is_changed(content: str) -> bool:
    """Whether ``text`` shows it in another form, because a terminal reads it."""
    return sys.stdout.isatty() and safe(content) != content


def _write(content: str) -> None:
    try:
        data = content.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DocumentError(
            said("cannot be written as UTF-8: character {start} is a lone surrogate", start=error.start),
            at=Location("<stdout>"),
        ) from None
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        silence(sys.stdout.fileno())
    except OSError as error:
        raise DocumentError(
            said("cannot be written: {value}", value=error.strerror or error), at=Location("<stdout>")
        ) from None


def data(value: Any) -> None:
    """Write plain data as one JSON object."""
    text(as_json(value))


def line(value: Any) -> None:
    """Write plain data as one line of JSON, for readers that take one record at a time."""
    text(escaped(json.dumps(_strict(value), ensure_ascii=False, default=str, allow_nan=False)))


def as_json(value: Any) -> str:
    """Plain data as strict JSON text; numbers that JSON has not (``inf``, ``nan``) become text."""
    return escaped(json.dumps(_strict(value), indent=2, ensure_ascii=False, default=str, allow_nan=False))


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return str(value) if isinstance(value, float) and value - value != 0 else value


def show(*renderables: RenderableType) -> None:
    """Write tables and styled text: styled and fitted on a terminal, plain and never wrapped elsewhere."""
    from rlctl.cli.console import SafeConsole

    terminal = sys.stdout.isatty()
    buffer = io.StringIO()
    console = SafeConsole(
        file=buffer,
        force_terminal=terminal,
        color_system="auto" if terminal else None,
        width=shutil.get_terminal_size().columns if terminal else _UNBOUNDED,
        highlight=False,
    )
    console.print(*renderables, sep="\n")
    _write("\n".join(line.rstrip() for line in buffer.getvalue().rstrip("\n").split("\n")) + "\n")


def laid_out(lines: Iterable[str]) -> None:
    """Write lines that are laid out for the screen: safe and coloured already."""
    _write("".join(f"{line.rstrip()}\n" for line in lines))


STANDARD_OUTPUT = Path("-")
"""What ``-o`` names for no file."""


def file(path: Path, content: str, *, force: bool, executable: bool = False) -> None:
    """Write a file atomically, a script so that it can be run; one that exists is overwritten only with ``force``.
    ``-`` is standard output.

    Raises:
        DocumentError: it exists, or cannot be written.
    """
    from rlctl.documents import write_atomic

    if path == STANDARD_OUTPUT:
        text(content.removesuffix("\n"))
        return
    write_atomic(path, content, force=force, executable=executable)


def silence(descriptor: int) -> None:
    """Send what is still written to a closed stream nowhere."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, descriptor)
    os.close(devnull)
