"""Files that are elsewhere, by fsspec URL: brought here before a worker starts, and sent there.

    bring("hdfs://host/models/small") ──▶ ~/.cache/rlctl/<key>/small     once for each state of the files there
    send(Path("step-000040"), "s3://bucket/demo/main/step-000040")

What is brought is kept under a key made of its URL, sizes and times, so that a file which has changed is brought anew.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from typing import Any, TypeVar

from rlctl.common.errors import MissingDependency, RunError
from rlctl.common.messages.reasons import said

T = TypeVar("T")
CACHE_VARIABLE = "RLCTL_CACHE"
"""Environment variable with the folder that keeps what was brought; set it to a shared one for runs on several machines."""
PAUSES = (1.0, 4.0, 16.0)
"""Seconds before what failed on the way is tried again."""
WHAT_TO_INSTALL = {
    "hdfs": "install Hadoop's client and Java, and set HADOOP_HOME, JAVA_HOME and CLASSPATH (hadoop classpath --glob)",
    "s3": "pip install s3fs",
    "gs": "pip install gcsfs",
    "gcs": "pip install gcsfs",
    "oss": "pip install ossfs",
    "az": "pip install adlfs",
    "abfs": "pip install adlfs",
}
_STATE = ("size", "mtime", "LastModified", "last_modified", "updated", "created", "ETag", "etag")
"""Fields of a file's description that tell one state of it from another, by the names that file systems give them."""


def is_remote(path: str) -> bool:
    """Whether a path is a URL of something that is not on this machine."""
    return "://" in path and not path.startswith("file://")


def bring(url: str, *, key: str, only_file: bool = False) -> Path:
    """Return a local copy of a file or folder.

    Args:
        url: of it.
        key: of the config that names it, for messages.
        only_file: refuse a folder.

    Raises:
        MissingDependency: what reads such URLs is not installed.
        RunError: it is not there, or cannot be read.
    """
    system, path = file_system(url, key=key)
    with _told(url, key):
        folder = _is_folder(system, path)
        files = sorted(system.find(path)) if folder else [path]
        states = [system.info(file) for file in files]
    if not files:
        raise RunError(said("{url} ({key}) contains no file", url=url, key=key), hint=said("check {key}", key=key))
    if folder and only_file:
        raise RunError(
            said("{url} ({key}) is a folder; expected a file", url=url, key=key),
            hint=said("name one file in {key}", key=key),
        )
    told = [
        (file, *(str(state[name]) for name in _STATE if name in state))
        for file, state in zip(files, states, strict=True)
    ]
    name = PurePosixPath(path.rstrip("/")).name or "files"
    place = cache() / hashlib.sha256(repr((url, told)).encode()).hexdigest()[:24] / name
    if not place.exists():
        place.parent.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(mkdtemp(prefix="partial-", dir=place.parent.parent))
        try:
            with _told(url, key):
                for file in files:
                    _get(system, file, partial / name / _inside(file, path, url) if folder else partial / name)
            with suppress(OSError):  # another process was quicker
                partial.rename(place.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return place


def bring_into(url: str, folder: Path, *, key: str) -> None:
    """Copy what is in a folder at a URL into a folder here.

    Raises:
        MissingDependency: what reads such URLs is not installed.
        RunError: it is not there, or cannot be read.
    """
    system, path = file_system(url, key=key)
    with _told(url, key):
        for file in system.find(path):
            _get(system, file, folder / _inside(file, path, url))


def send(folder: Path, url: str, *, key: str, last: Sequence[str] = ()) -> None:
    """Copy a folder to a URL; the files named ``last`` go last, so that they tell whether the copy is whole.

    Raises:
        MissingDependency: what writes to such URLs is not installed.
        RunError: it cannot be written.
    """
    system, path = file_system(url, key=key)
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    files.sort(key=lambda file: file.name in last)
    with _told(url, key):
        for file in files:
            target = f"{path.rstrip('/')}/{file.relative_to(folder).as_posix()}"
            _put(system, file, target)


def remove(url: str, *, key: str) -> None:
    """Delete a folder at a URL.

    Raises:
        RunError: it cannot be deleted.
    """
    system, path = file_system(url, key=key)
    with _told(url, key):
        system.rm(path, recursive=True)


def names_in(url: str, *, key: str) -> list[str]:
    """Names of what is in a folder at a URL; none where there is no such folder.

    Raises:
        RunError: it cannot be read.
    """
    system, path = file_system(url, key=key)
    with _told(url, key):
        try:
            return sorted(PurePosixPath(name.rstrip("/")).name for name in system.ls(path, detail=False))
        except FileNotFoundError:
            return []


def file_system(url: str, *, key: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it.

    Raises:
        MissingDependency: it needs a package or a program that is not there.
        RunError: there is no such file system.
    """
    import fsspec

    kind = url.split("://", 1)[0]
    try:
        return fsspec.core.url_to_fs(url, use_listings_cache=False)
    except ValueError as error:
        raise RunError(
            said("{url} ({key}): {error}", url=url, key=key, error=error),
            hint=said("set {key} to a path, or to a URL that fsspec knows", key=key),
        ) from error
    except (ImportError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise MissingDependency(
            said("{url} ({key}) cannot be reached: {reason}", url=url, key=key, reason=reason),
            hint=WHAT_TO_INSTALL.get(kind, f"install the package that fsspec needs for {kind}://"),
        ) from error


def cache() -> Path:
    """The folder that keeps what was brought."""
    return Path(os.environ.get(CACHE_VARIABLE) or "~/.cache/rlctl").expanduser()


def again(action: Callable[[], T]) -> T:
    """Do something that may fail on the way, and try it again after pauses; what is not there is not waited for."""
    for pause in PAUSES:
        try:
            return action()
        except (FileNotFoundError, PermissionError):
            raise
        except OSError:
            time.sleep(pause)
    return action()


def _is_folder(system: Any, path: str) -> bool:
    """Whether a path is a folder; a web server has none."""
    protocols = {system.protocol} if isinstance(system.protocol, str) else set(system.protocol)
    return not protocols & {"http", "https"} and system.isdir(path)


def _inside(file: str, path: str, url: str) -> str:
    """The name of a file in the folder at a URL; object stores take any name, and it becomes a path here.

    Raises:
        RunError: it is none in the folder.
    """
    name = os.path.relpath(file, path)
    if ".." in Path(name).parts:
        raise RunError(
            said("{url} names a file outside of it: {file}", url=url, file=file),
            hint="nothing was copied; delete that file at the remote location",
        )
    return name


def _get(system: Any, file: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    again(lambda: system.get_file(file, str(target)))


def _put(system: Any, file: Path, target: str) -> None:
    again(lambda: system.makedirs(target.rsplit("/", 1)[0], exist_ok=True))
    again(lambda: system.put_file(str(file), target))


@contextmanager
def _told(url: str, key: str) -> Iterator[None]:
    """Tell what goes wrong at a URL as the user's own error."""
    try:
        yield
    except FileNotFoundError as error:
        raise RunError(
            said("{key}: {url} does not exist", key=key, url=url), hint=said("correct the URL in {key}", key=key)
        ) from error
    except Exception as error:  # file systems raise errors of their own kinds
        if isinstance(error, RunError):
            raise
        text = str(error).strip().splitlines()
        raise RunError(
            said(
                "{url} ({key}) cannot be used: {kind}: {value}",
                url=url,
                key=key,
                kind=type(error).__name__,
                value=text[0] if text else "",
            ),
            hint=said("check {key}", key=key),
        ) from error
