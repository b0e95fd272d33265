"""Runs in the namespaces that ``rlctl.tracing`` makes, as a program of its own: makes the root read-only, puts stand-ins on
PATH, runs the script, and prints what they were called with. Uses nothing but the standard library.
"""

import contextlib
import ctypes
import json
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
_BIND, _REC, _PRIVATE = 0x1000, 0x4000, 0x40000
_REMOUNT, _READ_ONLY = 0x20, 0x1
_SET_ATTRIBUTES, _HERE, _RECURSIVE = 442, -100, 0x8000
_STATE_FLAGS = {"nosuid": 0x2, "nodev": 0x4, "noexec": 0x8, "noatime": 0x400, "nodiratime": 0x800, "relatime": 0x200000}

_ANSWERS_NO = ("nvidia-smi", "rocm-smi", "npu-smi", "ping", "nc", "ssh", "pgrep", "squeue", "scontrol")
_STARTED_NAMES = (
    "python python2 python3 python3.8 python3.9 python3.10 python3.11 python3.12 python3.13 python3.14 torchrun uv uvx ray "
    "accelerate deepspeed trinity srun sbatch mpirun mpiexec pip pip3 conda mamba huggingface-cli hf modelscope wget curl git "
    "docker sudo apt apt-get yum kill pkill killall tmux screen nvidia-cuda-mps-control systemctl sysctl modprobe scp rsync "
    "aws gsutil hdfs wandb swanlab mount umount"
)
_STARTED = _STARTED_NAMES.split()
_TRIES = ("mkdir", "rm", "cp", "mv", "ln", "touch", "chmod", "chown", "tee", "unzip", "tar")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_STAND_IN = """#!/bin/sh
name=${0##*/}
file=WORK/calls/$(/bin/date +%s%N).$$
printf '%s\\0' "$name" "$@" > "$file"
case $name in
  python*) case " $* " in *" -c "*) exit 1 ;; esac ;;
esac
exit 0
"""
_NO = "#!/bin/sh\nexit 1\n"
_TRY = '#!/bin/sh\nPATH=%s\n"${0##*/}" "$@" 2>/dev/null\nexit 0\n'
_BASH_ENV = "ulimit() { :; }\nsleep() { :; }\nexport -f ulimit sleep\n"


class RefusedError(Exception):
    """The script cannot be isolated."""


class _Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    done = LIBC.mount(
        *(os.fsencode(text) if text is not None else None for text in (source, target, kind)),
        ctypes.c_ulong(flags),
        data.encode() if data else None,
    )
    if done:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))


def read_only_root() -> None:
    attributes = _Attributes(set=_READ_ONLY)
    if LIBC.syscall(
        _SET_ATTRIBUTES, _HERE, b"/", _RECURSIVE, ctypes.byref(attributes), ctypes.c_size_t(ctypes.sizeof(attributes))
    ):
        _read_only_one_by_one()


def _read_only_one_by_one() -> None:
    """For kernels before 5.12: each mount with the flags it has."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        flags = sum(_STATE_FLAGS.get(option, 0) for option in fields[5].split(","))
        if "ro" not in fields[5].split(","):
            target = fields[4].encode().decode("unicode_escape")
            with contextlib.suppress(OSError):
                mount("none", target, None, _REMOUNT | _BIND | _READ_ONLY | flags)


def _place(order: dict[str, Any]) -> Path:
    """A folder to mount on that no path of the script leads through."""
    used = [Path(order["folder"]), Path(order["script"]).parent, Path(order["environment"].get("HOME", "/root"))]
    for name in ("/mnt", "/media", "/srv", "/opt", "/var/tmp", "/tmp"):
        folder = Path(name)
        if folder.is_dir() and not any(folder == path or folder in path.parents for path in used):
            return folder
    raise RefusedError("there is no folder to put the stand-ins on: /mnt, /media, /srv and /opt are all in use")


def _check_isolation(place: Path) -> None:
    probe = f".rlctl-{os.getpid()}"
    for folder in ("/", "/etc", "/usr", "/home", "/root", "/var"):
        try:
            with open(os.path.join(folder, probe), "x"):  # noqa: PTH118, PTH123
                pass
        except OSError:
            continue
        os.unlink(os.path.join(folder, probe))  # noqa: PTH108, PTH118
        raise RefusedError(f"{folder} could not be made read-only")
    if any(name != "lo" for _, name in socket.if_nameindex()):
        raise RefusedError("the network could not be taken away")
    if not os.access(place, os.W_OK):
        raise RefusedError(f"{place} could not be made writable for the stand-ins")


def _writable_copies(order: dict[str, Any], work: Path) -> None:
    """What the script writes where it runs and at home goes to memory; where that is not possible those stay read-only."""
    done: list[Path] = []
    for index, path in enumerate(
        (order["environment"].get("HOME"), order["folder"], str(Path(order["script"]).parent))
    ):
        if not path or not Path(path).is_dir() or Path(path) == Path("/"):
            continue
        target = Path(path).resolve()
        if any(target == known or known in target.parents for known in done):
            continue
        upper, other = work / f"upper{index}", work / f"work{index}"
        upper.mkdir()
        other.mkdir()
        with contextlib.suppress(OSError):
            mount("overlay", str(target), "overlay", 0, f"lowerdir={target},upperdir={upper},workdir={other},userxattr")
            done.append(target)


def _stand_ins(work: Path) -> None:
    folder = work / "bin"
    folder.mkdir()
    (work / "calls").mkdir()
    (work / "tmp").mkdir()
    texts = {name: _STAND_IN.replace("WORK", str(work)) for name in _STARTED}
    texts |= dict.fromkeys(_ANSWERS_NO, _NO)
    texts |= dict.fromkeys(_TRIES, _TRY % _PATH)
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (work / "env.sh").write_text(_BASH_ENV)
    for folder_name in _PATH.split(":"):
        for name in _STARTED:
            real = Path(folder_name) / name
            if name not in _TRIES and real.is_file():
                with contextlib.suppress(OSError):
                    mount(str(folder / name), str(real.resolve()), None, _BIND)


def _isolate(order: dict[str, Any]) -> Path:
    mount("none", "/", None, _REC | _PRIVATE)
    place = _place(order)
    read_only_root()
    mount("tmpfs", str(place), "tmpfs", 0, "size=256m,mode=0755")
    work = place / "rlctl"
    work.mkdir()
    _check_isolation(place)
    with contextlib.suppress(OSError):
        mount("proc", "/proc", "proc")
    _stand_ins(work)
    _writable_copies(order, work)
    return work


def _limits() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))


def _run(order: dict[str, Any], work: Path) -> dict[str, Any]:
    environment = order["environment"] | {
        "PATH": f"{work}/bin:{_PATH}",
        "BASH_ENV": f"{work}/env.sh",
        "TMPDIR": f"{work}/tmp",
    }
    said = work / "said"
    with said.open("wb") as stderr:
        process = subprocess.Popen(
            ["bash", order["name"], *order["arguments"]],
            cwd=order["folder"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            preexec_fn=_limits,
        )
        try:
            status: int | None = process.wait(order["seconds"])
        except subprocess.TimeoutExpired:
            process.kill()
            status = None
    calls = [
        file.read_bytes().decode("utf-8", "replace").split("\0")[:-1] for file in sorted((work / "calls").iterdir())
    ]
    tail = said.read_bytes()[-4000:].decode("utf-8", "replace")
    return {"calls": calls, "status": status, "said": tail}


def main() -> None:
    """Take the order from stdin, print the answer on stdout."""
    order = json.loads(sys.stdin.read())
    try:
        work = _isolate(order)
    except (OSError, RefusedError) as error:
        print(json.dumps({"refused": str(error)}))
        return
    print(json.dumps(_run(order, work)))


if __name__ == "__main__":
    main()
