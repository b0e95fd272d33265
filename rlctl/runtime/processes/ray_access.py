"""Who can reach a Ray: private files and loopback ports of one that a run starts, the token and the address of one that it joins.

Ray 2.60 asks for a token on every cluster that it starts while a token file exists, but for an explicit address it uses that
file only if RAY_AUTH_MODE is set.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from rlctl.common import packages
from rlctl.common.errors import MissingDependency, RunError
from rlctl.common.messages.reasons import said

MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
ADDRESS = "RAY_ADDRESS"
AUTO = "auto"
_OWN_FOLDER = "rlctl-{user}"
_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's switch for addresses that other machines reach; without them its processes listen on the loopback interface only."""
_RAYS = re.compile(r"\[\d{4}-\d\d-\d\d [\d:,]+ [A-Z] \d+ \d+\] ")
"""How the lines of Ray's C++ code begin."""
_UNREACHED = "check runtime.ray.address, and that the cluster runs the same Ray and Python"
CONNECT_SECONDS = 10.0
"""Longest wait for a cluster's port to answer; ``ray.init`` alone tries for minutes without a word."""
_REFUSED = ("authentication", "unauthenticated", "unauthorized")


def private_folder() -> Path:
    """A folder that only this user can enter, short enough for sockets below it.

    Raises:
        RunError: another user has made it.
    """
    folder = Path(os.environ.get("RAY_TMPDIR") or "/tmp") / _OWN_FOLDER.format(user=os.getuid())
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise RunError(
                said("{folder} belongs to another user; Ray's files would not be private", folder=folder),
                hint="set RAY_TMPDIR to a folder",
            )
        folder.chmod(0o700)
    except OSError as error:
        raise RunError(
            said("{folder} cannot be created: {strerror}", folder=folder, strerror=error.strerror),
            hint="set RAY_TMPDIR to a folder",
        ) from error
    return folder


def make_token_private() -> None:
    """Leave Ray's token file readable by its owner only; make it, because Ray would make it readable by everyone."""
    if os.environ.get(TOKEN) or os.environ.get(MODE, "token").lower() != "token":
        return
    named = os.environ.get(TOKEN_PATH)
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    with suppress(OSError):  # of a home that cannot be written: Ray says so itself
        if not named:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with suppress(FileExistsError):
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(file, "w") as stream:
                    stream.write(secrets.token_hex(32))
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)


def make_session_private() -> None:
    """Let only this user into the folder of the Ray that this process has started, which Ray opens to everyone."""
    from ray._private.worker import _global_node as node

    assert node is not None, "it was started"
    with suppress(OSError):  # of a file system without modes
        Path(node.get_session_dir_path()).chmod(0o700)


def session_logs() -> Path:
    """Where the Ray of this process writes its logs, on every machine of its cluster."""
    from ray._private.worker import _global_node as node

    assert node is not None, "Ray runs"
    return Path(node.get_logs_dir_path())


def address_of_this_machine() -> str:
    """The address at which other machines of the cluster reach this one."""
    import ray

    return str(ray.util.get_node_ip_address())


@contextmanager
def listening(*, loopback: bool) -> Iterator[None]:
    """Within, a Ray that is started listens on the loopback interface only, or is reached at addresses of other machines."""
    from ray._private import ray_constants

    before, was = os.environ.get(_CLUSTERS), ray_constants.ENABLE_RAY_CLUSTER
    if loopback and before is None:
        os.environ[_CLUSTERS], ray_constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = was
        if before is None:
            os.environ.pop(_CLUSTERS, None)


def use_token() -> None:
    """Use the token that there is, as Ray does for a cluster that it finds itself."""
    if MODE in os.environ or not _has_token():
        return
    os.environ[MODE] = "token"
    import ray._raylet

    ray._raylet.Config.initialize("")  # Ray may have read its settings before


def _asks_for_token(address: str) -> bool:
    """Whether the head at an address refuses a call without a token; true where it cannot be asked."""
    if not _is_host_and_port(address):
        return True
    import ray._raylet

    try:
        with _kept_stderr([]):
            ray._raylet.GcsClient(address=address)
    except Exception:  # noqa: BLE001 - it refuses, or why it cannot be used is said where it is joined
        return True
    return False


def _is_host_and_port(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and port.isdecimal()


def _has_token() -> bool:
    if os.environ.get(TOKEN):
        return True
    try:
        return bool(_token_file().read_bytes().strip())
    except OSError:
        return False


def _token_file() -> Path:
    return Path(os.environ.get(TOKEN_PATH) or Path.home() / ".ray" / "auth_token")


class _NotTheCurrent(list[str]):
    """Folders without the current one."""

    def extend(self, folders: Iterable[str]) -> None:
        super().extend(folder for folder in folders if folder != str(Path.cwd()))


def job_config() -> Any:
    """What Ray is initialized with so that workers do not look for modules in the current folder first, before Python's own.

    Ray adds that folder to the path of every worker, and has no option that leaves it out; the release of Ray is fixed. Workers
    put it last (``environment.enter``).
    """
    from ray.job_config import JobConfig

    config = JobConfig()
    config._py_driver_sys_path = _NotTheCurrent()
    return config


def join(address: str, **arguments: Any) -> None:
    """Join the cluster at an address, with the token that there is.

    Raises:
        RunError: it cannot be reached, or asks for another token.
    """
    import ray

    _connect(address)
    what = said("the Ray cluster at {address} cannot be used", address=address)
    if os.environ.get(MODE, "").lower() == "token" and not _has_token():
        raise _without_right_token(what)  # Ray's C++ code would end this process, without a word
    # A process with a token refuses the calls of a head without one, which then ends every actor of that process.
    if _asks_for_token(address):
        use_token()
    written: list[str] = []
    try:
        with _kept_stderr(written):
            ray.init(address=address, **arguments, job_config=job_config())
    except Exception as error:
        raise (
            refused(what, error, "".join(written))
            or RunError(said("{what}: {error}", what=what, error=error), hint=_UNREACHED)
        ) from error


def _connect(address: str) -> None:
    """Refuse a HOST:PORT at which nothing listens."""
    if not _is_host_and_port(address):
        return
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS):
            pass
    except (OSError, OverflowError) as error:
        raise RunError(
            said("nothing answers at {address}: {error}", address=address, error=error), hint=_UNREACHED
        ) from error


@contextmanager
def _kept_stderr(written: list[str]) -> Iterator[None]:
    """Within, the lines of Ray's C++ code on stderr are kept: why a cluster refuses is only there, once a second for ten."""
    sys.stderr.flush()
    shown = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(shown, 2)
            os.close(shown)
            kept.seek(0)
            lines = kept.read().decode(errors="replace").splitlines(keepends=True)
            written += [line for line in lines if _RAYS.match(line)]
            os.write(2, "".join(line for line in lines if not _RAYS.match(line)).encode())


def refused(what: str, error: BaseException, written: str = "") -> RunError | None:
    """What to do about a token that a cluster asks for; None for an error of another kind.

    Args:
        what: what is not possible.
        error: of Ray.
        written: what Ray has written to stderr meanwhile.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    text = f"{error} {written}".lower()
    if "AuthenticationError" not in kinds and not any(word in text for word in _REFUSED):
        return None
    return _without_right_token(what)


def _without_right_token(what: str) -> RunError:
    hint = said(
        "set {token_path} to a file with the cluster's token; `ray get-auth-token` on its head prints the token",
        token_path=TOKEN_PATH,
    )
    if os.environ.get(MODE, "token").lower() != "token":
        held, hint = (
            said("{variable} is {value}", variable=MODE, value=os.environ[MODE]),
            said("unset {variable}", variable=MODE),
        )
    elif _has_token():
        held = said("the one in {place} does not match", place=TOKEN if os.environ.get(TOKEN) else _token_file())
    else:
        empty = os.access(_token_file(), os.R_OK)
        held = said(
            "you have none: {path} is empty" if empty else "you have none: {path} cannot be read", path=_token_file()
        )
    return RunError(said("{what}: it requires Ray's token, but {held}", what=what, held=held), hint=hint)


def address_to_join(address: str) -> str:
    """The cluster that an address means: ``auto`` is the one of RAY_ADDRESS, or that this user has started on this node.

    Raises:
        RunError: there is none, or there are several.
    """
    if address != AUTO:
        return address
    if named := os.environ.get(ADDRESS):
        return named
    found = clusters_of_this_node()
    if len(found) == 1:
        return found[0]
    hint = "start one with `ray start --head`, name its address, or set runtime.ray.address to null for a private Ray"
    if not found:
        raise RunError("runtime.ray.address is auto, but you have no Ray cluster on this machine", hint=hint)
    listed = ", ".join(found)
    raise RunError(
        said(
            "runtime.ray.address is auto, but you have {count} Ray clusters on this machine: {listed}",
            count=len(found),
            listed=listed,
        ),
        hint="name one with --address",
    )


def has_cluster() -> bool:
    """Whether ``auto`` means a cluster."""
    return bool(os.environ.get(ADDRESS)) or bool(clusters_of_this_node())


def clusters_of_this_node() -> list[str]:
    """Addresses of the Ray clusters that processes of this user on this machine belong to, without those of runs."""
    import psutil

    found: set[str] = set()
    for process in psutil.process_iter(["name", "uids", "cmdline"]):
        info: Mapping[str, Any] = process.info
        if info["name"] != "raylet" or info["uids"] is None or info["uids"].real != os.getuid():
            continue
        options = dict(word.lstrip("-").partition("=")[::2] for word in info["cmdline"] or () if word.startswith("--"))
        address = options.get("gcs-address") or options.get("gcs_address")
        session = options.get("session_dir") or options.get("session-dir") or ""
        if address and _OWN_FOLDER.format(user=os.getuid()) not in Path(session).parts:  # under any RAY_TMPDIR
            found.add(address)
    return sorted(found)


def device_of(address: str) -> Literal["cuda", "cpu"]:
    """What a device is on the cluster at an address: GPUs where any node has one.

    Raises:
        MissingDependency: Ray is not installed.
        RunError: the cluster cannot be reached.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingDependency(
            "rlctl needs Ray to run, but Ray is not installed", hint=packages.install(packages.RUNTIME)
        ) from error
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        join(address_to_join(address), log_to_driver=False, logging_level="error", configure_logging=False)
        return "cuda" if ray.cluster_resources().get("GPU") else "cpu"
    finally:
        ray.shutdown()
