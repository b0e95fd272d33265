"""Probes of this machine: its GPUs and driver, shared memory, disk and folders, ports, and the sandbox."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from rlctl.checks.here.probing import Probe
from rlctl.checks.problem import Problem, problem
from rlctl.common import packages
from rlctl.common.errors import SandboxUnavailable
from rlctl.common.filenames import expanded
from rlctl.common.records import record
from rlctl.config import Config
from rlctl.config.sections.rewards import SandboxReward
from rlctl.config.sections.train import Megatron
from rlctl.documents.paths import KeyPath, dotted
from rlctl.planning import arithmetic
from rlctl.planning.models import read_shape

QUERY = ("--query-gpu=index,name,memory.total,memory.used,driver_version", "--format=csv,noheader,nounits")
OTHER_TOOLS = ("rocm-smi", "npu-smi", "mthreads-gmi")
"""Tools of other vendors' drivers, whose devices are not counted."""
IDLE_MIB = 1024
"""MiB of a GPU that a driver and a desktop may hold."""
SMALL_SHM = 1 << 30
"""Bytes of /dev/shm below which NCCL and Ray's object store run out; Docker gives 64 MiB unasked."""
SHM = Path("/dev/shm")
GIB = 2**30


def probes(config: Config) -> Iterator[Probe]:
    """What is asked of this machine."""
    if config.placement.device != "cpu":
        yield Probe("nvidia-smi", ("placement", "devices_per_node"), partial(gpus, config))
    yield Probe(str(SHM), ("placement", "devices_per_node"), partial(shared_memory, config))
    yield Probe("the disk", ("checkpoint", "folder"), partial(disk, config))
    for key, number in _ports(config):
        yield Probe(f"port {number}", key, partial(port, key, number))
    for index, reward in enumerate(config.rewards):
        if isinstance(reward, SandboxReward) and reward.url is None and reward.isolation == "namespaces":
            yield Probe("bwrap", ("rewards", index), partial(sandbox, ("rewards", index)))
            break


@record
class Gpu:
    """A GPU as the driver tells it."""

    index: str
    name: str
    mib: int
    used_mib: int
    driver: str


def gpus(config: Config) -> Iterator[Problem]:
    """This machine has the GPUs of a node, with a driver for the installed torch, and other processes leave their memory free."""
    key: KeyPath = ("placement", "devices_per_node")
    needed = config.placement.devices_per_node
    tool = shutil.which("nvidia-smi")
    if tool is None:
        if not any(map(shutil.which, OTHER_TOOLS)):
            yield problem("here-gpus_none", key, needed=needed)
        return
    told = subprocess.run([tool, *QUERY], capture_output=True, text=True, timeout=6, check=False)
    found = [gpu for line in told.stdout.splitlines() if (gpu := _gpu(line))]
    if told.returncode or not found:
        said = (told.stderr or told.stdout).strip().splitlines() or [f"exit {told.returncode}"]
        yield problem("here-gpus_driver", key, reason=said[0][:200])
        return
    visible = _visible(found)
    if len(visible) < needed:
        yield problem(
            "here-gpus",
            key,
            [(key, len(visible))] if visible else [],
            needed=needed,
            found=len(visible),
            hidden=len(found) - len(visible),
        )
    share = config.rollout.memory.gpu_memory_utilization if arithmetic.needs_rollout(config) else None
    for gpu in visible[:needed]:
        free = gpu.mib - gpu.used_mib
        if gpu.used_mib > IDLE_MIB and (share is None or free < share * gpu.mib):
            yield problem("here-busy", key, gpu=gpu.index, used=round(gpu.used_mib / 1024), total=round(gpu.mib / 1024))
    yield from _driver(tool, key)


def _gpu(line: str) -> Gpu | None:
    parts = [part.strip() for part in line.split(",")]
    if len(parts) != 5 or not parts[2].isdigit():
        return None
    return Gpu(parts[0], parts[1], int(parts[2]), int(parts[3]) if parts[3].isdigit() else 0, parts[4])


def _visible(found: list[Gpu]) -> list[Gpu]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` leaves; all where it names them in another way than by number."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return found
    wanted = [part.strip() for part in named.split(",") if part.strip()]
    if not all(part.isdigit() for part in wanted):
        return found
    return [gpu for gpu in found if gpu.index in wanted]


def _driver(tool: str, key: KeyPath) -> Iterator[Problem]:
    """The driver runs the CUDA that the installed torch is built for: a driver runs its own and older ones."""
    shown = subprocess.run([tool], capture_output=True, text=True, timeout=6, check=False).stdout
    match = re.search(r"CUDA (?:UMD )?Version:\s*(\d+)\.", shown)
    wanted = _cuda_of_torch()
    if match and wanted and int(match[1]) < wanted:
        yield problem("here-gpus_cuda", key, driver=match[1], wanted=wanted)


def _cuda_of_torch() -> int | None:
    """The major version of the CUDA that torch brings; None without one."""
    if packages.version_of("torch") is None:
        return None
    for name in ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"):
        if version := packages.version_of(name):
            return int(version.split(".")[0])
    return None


def shared_memory(config: Config) -> Iterator[Problem]:
    """Shared memory is large enough for what processes of one machine exchange through it."""
    if not SHM.is_dir() or arithmetic.devices(config) < 2:
        return
    total = shutil.disk_usage(SHM).total
    if total < SMALL_SHM:
        yield problem("here-shm", ("placement", "devices_per_node"), mib=total >> 20)


def disk(config: Config) -> Iterator[Problem]:
    """The run can write its folders, and its checkpoints fit the disk."""
    run: KeyPath = ("run", "folder")
    folders = {run: expanded(config.run.folder) / config.run.name}
    if config.checkpoint.folder is not None and "://" not in config.checkpoint.folder:
        folders["checkpoint", "folder"] = expanded(config.checkpoint.folder)
    for key, folder in folders.items():
        if reason := _unwritable(folder):
            yield problem("here-folder", key, key=dotted(key), path=str(folder), reason=reason)
    place = _existing(folders.get(("checkpoint", "folder"), folders[run]))
    size, kept = checkpoint_bytes(config), checkpoints_kept(config)
    free = shutil.disk_usage(place).free
    if size and kept and size * kept > free:
        yield problem(
            "here-disk",
            ("checkpoint", "keep_last"),
            [(("checkpoint", "keep_last"), int(free // size) - 1)] if free >= 2 * size else [],
            kept=kept,
            each=_gib(size),
            needed=_gib(size * kept),
            free=_gib(free),
            path=str(place),
        )


def _gib(size: float) -> str:
    return f"{size / GIB:.0f}" if size >= 10 * GIB else f"{size / GIB:.1f}"


def _existing(path: Path) -> Path:
    """The nearest folder above a path, or itself, that exists."""
    path = path.absolute()
    return next((each for each in (path, *path.parents) if each.exists()), Path("/"))


def _unwritable(folder: Path) -> str:
    """Why nothing can be written to a folder that may have to be made; empty if it can."""
    try:
        with tempfile.TemporaryFile(dir=_existing(folder)):
            return ""
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)


def checkpoints_kept(config: Config) -> int:
    """How many checkpoints are on the disk at once; at least one where that needs the length of the data, 0 without any."""
    checkpoint = config.checkpoint
    if not arithmetic.trains(config) or (checkpoint.every is None and not checkpoint.at_end):
        return 0
    steps = arithmetic.total_steps(config, None)
    every = checkpoint.every.steps if checkpoint.every is not None else None
    saved = max(1, steps // every) if steps and every else 1
    if checkpoint.delete_previous:
        return 1
    # the new one is written before the oldest goes
    return min(saved, checkpoint.keep_last + 1) if checkpoint.keep_last is not None else saved


def checkpoint_bytes(config: Config) -> int:
    """Bytes of one checkpoint of the policy, and of the critic if there is one; 0 if the model's size is not known.

    FSDP saves weights as they are trained, in 4 bytes, and two moments of Adam in 8; Megatron-core saves weights in 2, and the
    optimizer's own copy with the moments in 12. A Hugging Face copy takes 2.
    """
    shape = read_shape(config.model.path)
    if shape is None or config.model.lora is not None:
        return 0
    is_megatron = isinstance(config.train.engine, Megatron)
    sizes = {"model": 2 if is_megatron else 4, "optimizer": 12 if is_megatron else 8, "hf_model": 2}
    each = sum(sizes.get(content, 0) for content in config.checkpoint.save_contents)
    models = 1 + arithmetic.needs_critic(config)
    return shape.parameters * each * models


def _ports(config: Config) -> Iterator[tuple[KeyPath, int]]:
    """Ports on which the run itself will listen."""
    juicer = config.service.data_juicer
    if juicer is not None and juicer.auto_start and juicer.url is None and juicer.port:
        yield ("service", "data_juicer", "port"), juicer.port
    named = config.runtime.env_vars.get("MASTER_PORT", "")
    if str(named).isdigit():
        yield ("runtime", "env_vars", "MASTER_PORT"), int(named)
    if config.runtime.ray.address is None:
        board = config.runtime.ray.init_args.get("dashboard_port")
        if isinstance(board, int):
            yield ("runtime", "ray", "init_args", "dashboard_port"), board


def port(key: KeyPath, number: int) -> Iterator[Problem]:
    """No process listens on a port."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("", number))
        except (OSError, OverflowError) as error:
            taken = getattr(error, "errno", None) == errno.EADDRINUSE
            yield problem("here-port" if taken else "here-port_refused", key, port=number)


def sandbox(key: KeyPath) -> Iterator[Problem]:
    """Programs of responses can be isolated here."""
    from rlctl.sandbox import find_bwrap

    try:
        find_bwrap()
    except SandboxUnavailable as error:
        yield problem("here-sandbox", key, reason=error.message, advice=error.hint)
