"""What a process of a run uses and does: it tells so itself, every few seconds, in a file of its own in the run folder.

    processes/policy-0.json   {"name": "policy-0", "node": "host", "pid": 17, "cpu": 98.5, "memory": 1073741824, ...}

A file that is not renewed is a process that is gone, or that hangs as a whole. Nobody asks and nobody waits, so it takes none
of the controller's time; a machine that does not share the run folder tells nothing.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rlctl.common.whole_files import write_whole

FOLDER = "processes"
EVERY_SECONDS = 5.0
CONTROLLER = "controller"


class Vitals:
    """Tells of this process until it ends; children count with it."""

    def __init__(self, run: Path, name: str, *, every: float = EVERY_SECONDS) -> None:
        self._path, self._name, self._every = run / FOLDER / f"{name}.json", name, every
        self._doing: tuple[str, float] = ("", time.time())
        self._seconds: dict[tuple[int, float], float] = {}
        """CPU time of each process when it was last looked at, by number and beginning."""
        self._looked = time.monotonic()
        self._gpus = Gpus()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="vitals", daemon=True)

    def start(self) -> Vitals:
        """Begin to tell."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Tell no more; what was told last stays."""
        self._over.set()
        self._thread.join()

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Within, this is what the process does."""
        self._doing = (what, time.time())
        try:
            yield
        finally:
            self._doing = ("", time.time())

    def _run(self) -> None:
        while True:
            with suppress(Exception):  # whatever goes wrong here is no reason to disturb the run
                self._write(self.look())
            if self._over.wait(self._every):
                return

    def _write(self, told: dict[str, Any]) -> None:
        self._path.parent.mkdir(exist_ok=True, mode=0o700)
        write_whole(self._path, json.dumps(told))

    def look(self) -> dict[str, Any]:
        """What the process uses now; its CPU in percent of one core, since it was last looked at."""
        import psutil

        own = psutil.Process()
        memory, seconds = 0, {}
        for process in (own, *own.children(recursive=True)):
            with suppress(psutil.Error), process.oneshot():
                times = process.cpu_times()
                seconds[process.pid, process.create_time()] = times.user + times.system
                memory += process.memory_info().rss
        now = time.monotonic()
        new = sum(value - self._seconds.get(key, 0.0) for key, value in seconds.items()) if self._seconds else 0.0
        cpu = 100 * new / max(now - self._looked, 1e-3)
        self._seconds, self._looked = seconds, now
        doing, since = self._doing
        return {
            "name": self._name,
            "node": socket.gethostname(),
            "pid": own.pid,
            "began": own.create_time(),
            "cpu": round(cpu, 1),
            "memory": memory,
            "children": len(seconds) - 1,
            "gpus": self._gpus.used_by({pid for pid, _ in seconds}),
            "doing": doing,
            "since": since,
            "every": self._every,
        }


class Gpus:
    """The GPUs of this machine, asked through NVIDIA's management library, which disturbs nothing that is computed."""

    def __init__(self, library: Any = None) -> None:
        self._library = library
        self._missing = False

    def used_by(self, pids: Collection[int]) -> list[dict[str, Any]]:
        """Number, memory (all that is in use, and all there is, in bytes) and load in percent of the GPUs that processes use."""
        if not self._loaded():
            return []
        found, own, library = [], _reserved(), self._library
        for place, number in enumerate(self._visible()):
            handle = library.nvmlDeviceGetHandleByIndex(number)
            running = {process.pid for process in library.nvmlDeviceGetComputeRunningProcesses(handle)}
            if place in own or running & set(pids):
                memory = library.nvmlDeviceGetMemoryInfo(handle)
                busy = library.nvmlDeviceGetUtilizationRates(handle).gpu
                found.append({"number": number, "used": memory.used, "total": memory.total, "busy": busy})
        return found

    def _loaded(self) -> bool:
        """Whether the library is there; it is looked for once."""
        if self._library is None and not self._missing:
            try:
                import pynvml

                pynvml.nvmlInit()
                self._library = pynvml
            except Exception:  # noqa: BLE001 - no package, no driver, no GPU: there is nothing to tell
                self._missing = True
        return self._library is not None

    def _visible(self) -> list[int]:
        """The numbers of the GPUs that this process may use."""
        named = os.environ.get("CUDA_VISIBLE_DEVICES")
        if named is None:
            return list(range(self._library.nvmlDeviceGetCount()))
        return [int(number) for number in named.split(",") if number.strip().isdigit()]


def _reserved() -> set[int]:
    """The places of the GPUs on which this process's PyTorch holds memory; it is not loaded for this."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return set()
    return {place for place in range(cuda.device_count()) if cuda.memory_reserved(place)}


@contextmanager
def controller(run: Path) -> Iterator[None]:
    """Within, this process tells of itself as the controller; what processes before it told is forgotten."""
    for told in (run / FOLDER).glob("*.json"):
        told.unlink(missing_ok=True)
    vitals = Vitals(run, CONTROLLER).start()
    try:
        yield
    finally:
        vitals.stop()


def of_worker(log: str) -> Vitals:
    """Of the worker's process with this log, ``<run>/logs/<name>.log``; of one without, nothing is told."""
    path = Path(log)
    vitals = Vitals(path.parent.parent, path.stem)
    return vitals.start() if path.parent.name == "logs" else vitals


def forget(run: Path, name: str) -> None:
    """A process was ended: nobody waits for it to tell more."""
    with suppress(OSError):
        (run / FOLDER / f"{name}.json").unlink(missing_ok=True)
