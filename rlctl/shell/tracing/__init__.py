"""Running a launch script in the sandbox, to see which program it starts; the only place where something of an input is executed.

The script sees the system's folders, its own folder as a copy in memory, and stand-ins for python, torchrun, uv, ray and other
programs that reach outside. It gets no variables of the user's environment but those it is given. Where there is no sandbox,
nothing is run.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlctl.common.errors import DocumentError, Location, SandboxUnavailable
from rlctl.common.messages.reasons import said
from rlctl.sandbox import SYSTEM, Limits, Mount, Profile, Result, run
from rlctl.shell.tracing import stand_ins

SECONDS = 60
LIMITS = Limits(memory_mib=512, processes=128, folder_mib=64, output_mib=8)
_HINT = "; or leave out --trace, and rlctl reads the script without running it"
_SHARED = ("/tmp", "/var/tmp", "/dev/shm")
"""A script in one of these is shown without the files next to it, as one in the home folder is."""
_STOPPED = {
    "memory": f"used more than {LIMITS.memory_mib} MiB of memory",
    "processes": f"started more than {LIMITS.processes} processes",
    "output": f"started programs with more than {LIMITS.output_mib:g} MiB of arguments",
    "time": "did not end in time",
}


@dataclass(frozen=True)
class Traced:
    """The result of running a script in the sandbox."""

    calls: tuple[tuple[str, ...], ...]
    """The command lines of the stand-ins, in order."""
    status: int | None
    """The script's exit status; None if it exceeded the time limit."""
    stderr: str
    """The end of what it printed on stderr."""


def trace(
    script: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    fixed: Mapping[str, str] | None = None,
    seconds: int = SECONDS,
) -> Traced:
    """Run a script in the sandbox.

    Args:
        script: path of the file.
        arguments: what it is given.
        environment: the variables it sees.
        fixed: variables that keep their values, whatever the script assigns.
        seconds: when it is ended.

    Raises:
        DocumentError: there is no sandbox here and nothing was run; or the script passed a limit.
    """
    at = Location(script)
    with tempfile.TemporaryDirectory() as folder:
        try:
            command = ["bash", f"{stand_ins.FOLDER}/main.sh", str(seconds), script, *arguments]
            result = run(command, _profile(script, environment, fixed or {}, seconds, Path(folder)))
        except SandboxUnavailable as error:
            raise DocumentError(
                said("cannot be traced: {message}; nothing was run", message=error.message),
                at=at,
                hint=error.hint + _HINT,
            ) from None
        except OSError as error:
            raise DocumentError(said("cannot be traced: {error}; nothing was run", error=error), at=at) from None
    if result.stopped:
        raise DocumentError(
            said("was stopped in the sandbox: it {stopped}", stopped=_STOPPED[result.stopped]), at=at, hint=_HINT[5:]
        )
    return _traced(result, at)


def _profile(
    script: str, environment: Mapping[str, str], fixed: Mapping[str, str], seconds: float, work: Path
) -> Profile:
    here = str(Path.cwd())
    home = environment.get("HOME", "/home/user")
    shown = list(_shown(Path(script), home, work))
    inside = {mount.path for mount in shown if mount.kind == "copy-on-write"}
    return Profile(
        mounts=(*stand_ins.write_stand_ins(work, fixed), *shown),
        folders=("/tmp", stand_ins.RECORD, *_empty_folders({here, home}, inside)),
        folder=here,
        environment={"HOME": home, "LANG": "C.UTF-8", **environment, **fixed, **stand_ins.environment()},
        limits=Limits(
            seconds + 10,
            LIMITS.memory_mib,
            LIMITS.processes,
            folder_mib=LIMITS.folder_mib,
            output_mib=LIMITS.output_mib,
        ),
    )


def _shown(script: Path, home: str, work: Path) -> Iterator[Mount]:
    """The folder of the script, where it is called and where links lead; the script alone if that is the home folder."""
    done = set()
    for path in dict.fromkeys((Path(os.path.abspath(script)), script.resolve())):  # noqa: PTH100 - links are kept
        folder = path.parent
        if folder.resolve() in done:
            continue
        done.add(folder.resolve())
        if not _is_shared(folder.resolve(), home):
            yield Mount(str(folder.resolve()), str(folder), "copy-on-write")
    real = script.resolve()
    readable = stat.S_IMODE(real.stat().st_mode) & stat.S_IROTH
    if not readable or _is_shared(real.parent, home):
        copy = work / "script"
        copy.write_bytes(real.read_bytes())
        copy.chmod(0o644)
        for path in {Path(os.path.abspath(script)).parent / script.name, real}:  # noqa: PTH100 - links are kept
            yield Mount(str(copy), str(path))


def _is_shared(folder: Path, home: str) -> bool:
    """Whether a folder holds much more than what belongs to a script: the home folder, one above it, one for everybody."""
    homes = {Path(home).resolve(), Path.home().resolve()}
    return str(folder) in (*_SHARED, *SYSTEM) or any(folder == path or folder in path.parents for path in homes)


def _empty_folders(wanted: set[str], shown: set[str]) -> Iterator[str]:
    """Folders to show empty: the home folder and the working folder, where they are neither shown nor the system's."""
    taken = (*shown, *SYSTEM, stand_ins.FOLDER, "/proc", "/dev", "/etc")
    for folder in sorted(wanted):
        if folder not in ("/", "/tmp") and not any(
            folder == known or folder.startswith(f"{known}/") for known in taken
        ):
            yield folder


def _traced(result: Result, at: Location) -> Traced:
    status, _, rest = result.stdout.partition(b"\n")
    parts: list[str] = []
    try:
        while rest:
            length, _, rest = rest.partition(b"\n")
            parts.append(rest[: int(length)].decode("utf-8", "replace"))
            rest = rest[int(length) :]
        ended = None if status == b"late" else int(status)
        return Traced(tuple(tuple(call.split("\0")[:-1]) for call in parts[1:]), ended, parts[0])
    except (ValueError, IndexError):
        told = result.stderr.decode("utf-8", "replace").strip()[-300:]
        raise DocumentError(
            said("cannot be traced: the sandbox ended early: {value}", value=told or "no output"), at=at
        ) from None
