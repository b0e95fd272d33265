"""Text from and to files: encodings, sizes and atomic writes. Nothing here knows what the text means."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path

from rlctl.common.errors import DocumentError, Location
from rlctl.common.messages.reasons import said

STDIN = "-"
MAX_BYTES = 16 * 1024 * 1024
"""The largest text that is read; the largest config in use is a hundredth of it."""
REFUSED = ("Permission denied", "Read-only file system")
"""What the system says of a folder in which nothing can be written."""
_BOMS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


def shown_name(path: Path | str) -> str:
    """Return how ``path`` is called in messages: itself, or ``<stdin>`` for ``-``."""
    return "<stdin>" if str(path) == STDIN else str(path)


def read_text(path: Path | str) -> str:
    """Return the text of a file, or of standard input for ``-``, line ends as they are.

    Raises:
        DocumentError: it is missing, not a file, unreadable, larger than 16 MiB, binary, or in no encoding known here.
    """
    name = shown_name(path)
    data = _read_stdin() if str(path) == STDIN else _read_file(Path(path))
    if len(data) > MAX_BYTES:
        raise _too_large(name, "more than 16 MiB")
    return _decode(data, name)


def _read_stdin() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        raise DocumentError(
            "standard input is a terminal", at=Location("<stdin>"), hint="pipe a file into it, or name the file"
        )
    return sys.stdin.buffer.read(MAX_BYTES + 1)


def _read_file(path: Path) -> bytes:
    at = Location(str(path))
    try:
        status = path.stat()
        _check_kind(path, status.st_mode)
        if status.st_size > MAX_BYTES:
            raise _too_large(str(path), f"{status.st_size / 2**20:.0f} MiB")
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise DocumentError("no such file", at=at, hint="check the path; '-' reads standard input") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DocumentError(said("cannot be read: {reason}", reason=reason), at=at) from None


def _check_kind(path: Path, mode: int) -> None:
    if stat.S_ISREG(mode) or (stat.S_ISFIFO(mode) and path.parts[:2] in {("/", "dev"), ("/", "proc")}):
        return
    kind = "a directory" if stat.S_ISDIR(mode) else "a named pipe" if stat.S_ISFIFO(mode) else "a device or socket"
    raise DocumentError(
        said("is {kind}, not a file", kind=kind),
        at=Location(str(path)),
        hint="name a file, or pass '-' to read standard input",
    )


def _too_large(name: str, size: str) -> DocumentError:
    return DocumentError(
        said("is {size}; the limit for a config is 16 MiB", size=size), at=Location(name), hint="is it the right file?"
    )


def _decode(data: bytes, name: str) -> str:
    bom = next((bom for bom in _BOMS if data.startswith(bom)), b"")
    encoding = _BOMS.get(bom, "utf-8")
    data = data[len(bom) :]
    if encoding == "utf-8" and (null := data.find(b"\0")) >= 0:
        at = Location(name, data.count(b"\n", 0, null) + 1)
        raise DocumentError(
            said("is binary: byte {byte} is zero", byte=null), at=at, hint="expected a text file in UTF-8"
        )
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        at = Location(name, data.count(b"\n", 0, error.start) + 1)
        raise DocumentError(
            said(
                "is not {encoding}: byte {start} (0x{data:02x}) cannot be read",
                encoding=encoding.upper(),
                start=error.start,
                data=data[error.start],
            ),
            at=at,
            hint="save the file as UTF-8",
        ) from None


def write_atomic(path: Path, text: str, *, force: bool = False, executable: bool = False) -> None:
    """Write ``text`` as UTF-8 so that a reader sees the whole new file or, after a crash, the old one.

    Args:
        path: where to.
        text: what.
        force: overwrite a file that exists; it keeps its mode.
        executable: whoever may read the file may run it.

    Raises:
        DocumentError: the file exists and ``force`` is off, or it cannot be written.
    """
    if "\0" in str(path):
        raise DocumentError("cannot be written: a file name cannot contain a null byte", at=Location(str(path)))
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:100]}.{os.urandom(4).hex()}.tmp")
    try:
        if target.is_dir():
            raise IsADirectoryError(0, "is a directory")
        if target.exists() and not target.is_file():  # /dev/null, a pipe: there is nothing to replace
            with target.open("wb") as stream:
                stream.write(text.encode("utf-8"))
            return
        _write_synced(temporary, text.encode("utf-8"))
        _put(temporary, target, force=force)
        if executable:
            mode = target.stat().st_mode
            target.chmod(stat.S_IMODE(mode) | (mode & 0o444) >> 2)
        _sync_folder(target.parent)
    except FileExistsError:
        raise DocumentError("exists already", at=Location(str(path)), hint="--force overwrites it") from None
    except FileNotFoundError:
        if target.parent.is_dir():  # such as /proc
            problem, hint = said("no file can be made in {parent}", parent=target.parent), "choose another folder"
        else:
            problem, hint = said("no folder {parent}", parent=target.parent), "create it first"
        raise DocumentError(problem, at=Location(str(path)), hint=hint) from None
    except UnicodeEncodeError as error:
        raise DocumentError(
            said("cannot be written as UTF-8: character {start} is a lone surrogate", start=error.start),
            at=Location(str(path)),
        ) from None
    except OSError as error:
        raise DocumentError(
            said("cannot be written: {value}", value=error.strerror or error),
            at=Location(str(path)),
            hint="choose another folder" if error.strerror in REFUSED else "",
        ) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _write_synced(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _put(temporary: Path, target: Path, *, force: bool) -> None:
    if force:
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        temporary.replace(target)
        return
    try:
        os.link(temporary, target)  # fails where the target exists, without a moment between test and write
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if target.exists():
            raise FileExistsError from None
        temporary.replace(target)


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems refuse to sync a folder; the file itself is safe
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
