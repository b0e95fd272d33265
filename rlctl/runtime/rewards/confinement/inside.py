"""Runs in the namespaces that this package makes, as a program of its own: makes a root in which there is nothing of this
machine but its system, takes the privileges away, runs programs, and prints what they did. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

from rlctl.runtime.processes.process_group import end_group, status_of
from rlctl.tracing.inside import LIBC, RefusedError, mount, read_only_root

_BIND, _REC, _PRIVATE, _DETACH = 0x1000, 0x4000, 0x40000, 2
_CAPBSET_DROP, _NO_NEW_PRIVILEGES = 24, 38
_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_USER_NAMESPACES = "/proc/sys/user/max_user_namespaces"
_MOST_PROCESSES, _PROCESSES_BY_NAMESPACE = "/proc/sys/kernel/pid_max", (6, 14)
"""How many there may be, and the Linux from which on that is of the namespace: before it, it is the whole machine's."""
_FILE_BYTES = 64 << 20
"""Of one file that a program writes, its output among them; the folder holds four of them."""
_SHOWN_BYTES = 16 << 20
"""Of the output, what is compared: a program that writes more is wrong."""
_REPORT_BYTES = 1 << 20
_PROGRAM = Path(__file__).with_name("program.py").read_text()


def _isolate(python: list[str]) -> Path:
    """A root with the system and Python in it, read-only, and an empty folder; nothing else of this machine is left."""
    mount("none", "/", None, _REC | _PRIVATE)
    root = Path(tempfile.mkdtemp())
    mount("tmpfs", str(root), "tmpfs", 0, f"size={4 * _FILE_BYTES},mode=0755")
    for path in (*_SYSTEM, *python, *_DEVICES):
        _show(root, path)
    for name in ("proc", "box", "old"):
        (root / name).mkdir(exist_ok=True)
    if not (root / "tmp").exists():
        (root / "tmp").symlink_to("box")
    with contextlib.suppress(OSError):  # where the machine hides parts of /proc from us
        mount("proc", str(root / "proc"), "proc")
    os.chdir(root)
    if LIBC.pivot_root(b".", b"old"):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "pivot_root")
    os.chdir("/")
    Path("/old", *root.parts[1:]).rmdir()
    if LIBC.umount2(b"/old", _DETACH):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "umount")
    for path, value in _settings(os.uname().release).items():
        with contextlib.suppress(OSError):
            Path(path).write_text(value)
    read_only_root()
    mount("tmpfs", "/box", "tmpfs", 0, f"size={4 * _FILE_BYTES},mode=0777")
    _check()
    return Path("/box")


def _settings(release: str) -> dict[str, str]:
    """Of the namespaces of a Linux, never of the machine, where the kernel lets them be set."""
    settings = {_USER_NAMESPACES: "0"}  # or a program would have privileges in one of its own
    found = re.match(r"(\d+)\.(\d+)", release)
    if found and (int(found[1]), int(found[2])) >= _PROCESSES_BY_NAMESPACE:
        settings[_MOST_PROCESSES] = "364"  # for root, whom RLIMIT_NPROC does not hold
    return settings


def _show(root: Path, path: str) -> None:
    """A file or folder of the machine at its place in the new root; a link as the link that it is."""
    source, target = Path(path), root / path.lstrip("/")
    if not source.exists() or target.exists() or target.is_symlink():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.symlink_to(source.readlink())
        _show(root, str(source.resolve()))
        return
    if source.is_dir():
        target.mkdir()
    else:
        target.touch()
    mount(path, str(target), None, _BIND | _REC)


def _check() -> None:
    """That it is as it should be: the isolation is looked at, not trusted."""
    if any(name != "lo" for _, name in socket.if_nameindex()):
        raise RefusedError("the network could not be taken away")
    for folder in ("/", "/usr"):
        with contextlib.suppress(OSError):
            (Path(folder) / ".rlctl").touch()
            raise RefusedError(f"{folder} could not be made read-only")
    if any(Path("/old").iterdir()):
        raise RefusedError("the files of this machine could not be hidden")


def _limit(order: dict[str, Any]) -> None:
    """What a program may take; runs in its process, before Python starts anew."""
    memory = order["memory_mib"] << 20
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: int(order["seconds"]) + 1,
        resource.RLIMIT_FSIZE: _FILE_BYTES,
        resource.RLIMIT_CORE: 0,
        **({resource.RLIMIT_NPROC: order["processes"]} if order["isolated"] else {}),
    }
    for kind, most in limits.items():
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))
    if order["isolated"]:
        for capability in range(64):
            LIBC.prctl(_CAPBSET_DROP, capability, 0, 0, 0)
        LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def _run(program: dict[str, Any], order: dict[str, Any], place: Path, seconds: float) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(dir=place))
    nonce = secrets.token_hex(16)
    job = json.dumps({**program, "nonce": nonce}).encode()
    with contextlib.ExitStack() as files:
        asked, stdin, stdout, told = (files.enter_context(tempfile.TemporaryFile(dir=place)) for _ in range(4))
        asked.write(job)
        stdin.write(program["stdin"].encode("utf-8", "replace"))
        for file in (asked, stdin):
            file.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", _PROGRAM, str(asked.fileno()), str(told.fileno())],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=_environment(folder),
            pass_fds=(asked.fileno(), told.fileno()),
            start_new_session=True,
            preexec_fn=lambda: _limit(order),
        )
        late = status_of(process, within=seconds) is None
        _end(process, isolated=order["isolated"])
        report = _report(told, nonce)
        stdout.seek(0)
        written = stdout.read(_SHOWN_BYTES + 1)
    _clear(place)
    if late:
        return {"how": "late"}
    if not report or len(written) > _SHOWN_BYTES:
        return {"how": "killed", "error": f"the process ended with status {process.returncode}"}
    return {**report, "stdout": written.decode("utf-8", "replace")}


def _clear(place: Path) -> None:
    """Take away what a program has left, so that the next one has the room that it had."""
    for left in place.iterdir():
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                left.unlink()


def _environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LANG": "C.UTF-8",
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    }


def _end(process: subprocess.Popen[bytes], *, isolated: bool) -> None:
    """End a program and what it started."""
    end_group(process)
    if isolated and os.getpid() == 1:  # the first process of a namespace of its own: all others are the program's
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    if isolated:
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)


def _report(told: IO[bytes], nonce: str) -> dict[str, Any]:
    """What the process said of the program; empty where it said nothing, or the program spoke in its place."""
    told.seek(0)
    try:
        report = json.loads(told.read(_REPORT_BYTES))
        return report if report.pop("nonce") == nonce else {}
    except (ValueError, KeyError, AttributeError):
        return {}


def _run_all(order: dict[str, Any], place: Path) -> list[dict[str, Any]]:
    end = time.monotonic() + order["all_seconds"]
    ran: list[dict[str, Any]] = []
    for program in order["programs"]:
        left = min(order["seconds"], end - time.monotonic())
        ran.append(_run(program, order, place, left) if left > 0 else {"how": "late"})
        if ran[-1]["how"] in order["stop_at"]:
            break
    return ran


def main() -> None:
    """Take the order from stdin, print the answer on stdout."""
    order = json.loads(sys.stdin.read())
    try:
        if not order["isolated"]:
            with tempfile.TemporaryDirectory() as folder:
                print(json.dumps({"ran": _run_all(order, Path(folder))}))
            return
        print(json.dumps({"ran": _run_all(order, _isolate(order["python"]))}))
    except (OSError, RefusedError) as error:
        print(json.dumps({"refused": str(error)}))
