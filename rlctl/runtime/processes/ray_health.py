"""Whether the Ray that a run is on is still there: without its head or its node process the run ends at once, and says so.

    gcs_server   the head, which knows the actors and the devices
    raylet       the node, which starts the workers and holds shared memory; it ends itself if one of its agents ends

Ray itself notices the end of its head after a minute, and then ends this process without a word; of a node process that ended
it says that a connection is closed. Of a Ray that the run started both are children of this process, which sees at once that one
ended, and of what. The head of another cluster is asked now and then: it may come back within the minute that Ray gives it.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from rlctl.common.messages.reasons import said
from rlctl.runtime.processes.calls import WorkerFailed
from rlctl.runtime.stopping import StopSwitch

HEAD = "gcs_server"
NEEDED = {HEAD: "head", "raylet": "node process"}
"""Ray's processes that a run needs, by Ray's names; it works on without the others."""
EVERY_SECONDS = 0.25
HEAD_EVERY_SECONDS = 5.0
HEAD_AWAY_SECONDS = 40.0
"""A head that takes no connection for so long is gone; Ray ends this process after 60 (gcs_rpc_server_reconnect_timeout_s)."""
LEAVING_SECONDS = 8.0
"""Within which the program has left the work. A call to a Ray without a head may wait for ever, and nothing else ends it."""
LAST_BYTES = 1 << 16
_AGENT = re.compile(rb"Ray agent failed, agent_name = (\w+)")
"""How the node process says in its log that it ends because an agent has; it takes seconds to, in which workers are lost."""


class Health(Protocol):
    """Of a Ray."""

    def look(self) -> RayLost | None:
        """That it is gone, and why; None where it is there."""

    def end_rest(self) -> None:
        """End what is left of it, where it is this run's."""


class RayLost(WorkerFailed):
    """The Ray that the run is on is gone: no call to it comes back. It is told of as a worker's end is."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message, actor="ray", hint=hint)


def ray_of_this_process() -> Health:
    """Of the Ray that this process started, or of the head of the cluster that it joined."""
    from ray._private.worker import _global_node as node

    assert node is not None, "it was started or joined"
    if node.all_processes:
        own = {name: each[0].process for name, each in node.all_processes.items() if each}
        return OwnRay(own, Path(node.get_logs_dir_path()))
    host, _, port = str(node.gcs_address).rpartition(":")
    return Head(host, int(port))


class OwnRay:
    """A Ray that this process started: its processes are children of this one."""

    def __init__(self, processes: Mapping[str, subprocess.Popen[bytes]], logs: Path) -> None:
        """``processes`` are by Ray's names; ``logs`` is the folder of Ray's logs."""
        self._processes, self._logs = processes, logs
        self._killed = killed_for_memory()
        self._read, self._end = 0, b""
        """Of the node process's log: bytes that were read, and the last ones."""

    def look(self) -> RayLost | None:
        if agent := self._agent_that_ended():
            return agent_ended(agent, self._logs, killed_for_memory() - self._killed)
        for name, process in self._processes.items():
            if name in NEEDED and process.poll() is not None:
                return ended(name, process, self._logs, killed_for_memory() - self._killed)
        return None

    def _agent_that_ended(self) -> str:
        """The agent because of which the node process ends, by Ray's name; empty if it does not."""
        with suppress(OSError), (self._logs / "raylet.out").open("rb") as file:
            file.seek(self._read)
            new = file.read()
            self._read, self._end = self._read + len(new), (self._end + new)[-LAST_BYTES:]
            found = _AGENT.search(self._end)
            return found[1].decode() if found else ""
        return ""

    def end_rest(self) -> None:
        """Without a head some would wait a minute for it. The head itself is not ended: leaving Ray asks it a last time."""
        import psutil

        roots = [process for name, process in self._processes.items() if name != HEAD and process.poll() is None]
        found: list[psutil.Process] = []
        for process in roots:
            with suppress(psutil.Error):
                each = psutil.Process(process.pid)
                found += [each, *each.children(recursive=True)]
        for each in found:
            with suppress(psutil.Error):
                each.kill()


def agent_ended(agent: str, logs: Path, killed: int) -> RayLost:
    """Message on an agent of Ray that ended; arguments as of ``ended``."""
    told = said("Ray's {agent} died, and Ray ends its node process with it", agent=agent)
    if killed:
        told += "; the system killed processes for lack of memory in the meantime"
    return RayLost(
        told,
        hint=said(
            "its logs are {logs}/{name}.*; `dmesg` shows whether the system killed it for lack of memory",
            logs=logs,
            name=agent,
        ),
    )


def ended(name: str, process: subprocess.Popen[bytes], logs: Path, killed: int) -> RayLost:
    """What is told of a process of Ray's that ended.

    Args:
        name: Ray's.
        process: which ended.
        logs: folder of Ray's logs.
        killed: processes that the system has killed for lack of memory since Ray was started.
    """
    code = int(process.returncode)
    how = said("killed by {name}", name=signal.Signals(-code).name) if code < 0 else said("exit code {code}", code=code)
    if killed and code == -signal.SIGKILL:
        how += "; the system killed processes for lack of memory in the meantime"
    words = last_words(logs / f"{name}.out")
    return RayLost(
        said(
            "Ray's {needed} died ({name}, process {pid}, {how}){value}",
            needed=NEEDED[name],
            name=name,
            pid=process.pid,
            how=how,
            value=f": {words}" if words else "",
        ),
        hint=said(
            "its logs are {logs}/{name}.*; `dmesg` shows whether the system killed it for lack of memory",
            logs=logs,
            name=name,
        ),
    )


def killed_for_memory() -> int:
    """Processes that the system has killed for lack of memory since it began; 0 where it does not tell."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def last_words(log: Path) -> str:
    """The line of Ray's own log in which a process gives itself up; empty where there is none."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LAST_BYTES))
        for line in file.read().decode(errors="replace").splitlines():
            head, bracket, text = line.partition("] ")
            if bracket and " C " in head:  # "[time C process thread] (raylet) file:line:  text"
                return text.rpartition(" Check failed: ")[2].strip()[:300]
    return ""


class Head:
    """The head of a cluster that this process joined; it may be away for a while."""

    def __init__(
        self, host: str, port: int, *, every: float = HEAD_EVERY_SECONDS, away: float = HEAD_AWAY_SECONDS
    ) -> None:
        """Ask whatever listens there ``every`` so many seconds, and take it for gone after so many ``away``."""
        self._at, self._every, self._away = (host, port), every, away
        self._answered = self._asked = time.monotonic()

    def look(self) -> RayLost | None:
        if time.monotonic() - self._asked < self._every:
            return None
        try:
            socket.create_connection(self._at, timeout=self._every).close()
            self._answered = time.monotonic()
        except OSError:
            if time.monotonic() - self._answered > self._away:
                return RayLost(
                    said(
                        "the head of the Ray cluster at {host}:{port} has been unresponsive for {away:g} s",
                        host=self._at[0],
                        port=self._at[1],
                        away=self._away,
                    ),
                    hint="restart the cluster, or check why this machine cannot reach it",
                )
        self._asked = time.monotonic()
        return None

    def end_rest(self) -> None:
        """The cluster is not this run's."""


@contextmanager
def watched(health: Health, stop: StopSwitch, gone: Callable[[RayLost], None]) -> Iterator[None]:
    """Within, that Ray is gone is what the run fails of; whoever waits for workers is asked to end.

    Args:
        health: of the Ray.
        stop: of the run.
        gone: called where the program does not leave the work, to tell it; the process ends then.

    Raises:
        RayLost: it is.
    """
    watch = _Watch(health, stop, gone)
    watch.start()
    try:
        yield
    except BaseException as error:
        if (lost := watch.reason(error)) is not None:
            raise lost from None
        raise
    finally:
        watch.over()


class _Watch:
    """Looks from a thread of its own."""

    def __init__(self, health: Health, stop: StopSwitch, gone: Callable[[RayLost], None]) -> None:
        self._health, self._stop, self._gone = health, stop, gone
        self._lost: RayLost | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ray-health", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def over(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def reason(self, error: BaseException) -> RayLost | None:
        """The end of Ray, where that is what the work was left for; not where the user had it left before."""
        if self._lost is None and isinstance(error, Exception) and not self._stop.now():
            self._lost = self._health.look()  # whoever noticed that a worker is gone may have been quicker
        return self._lost

    def _run(self) -> None:
        while not self._over.wait(EVERY_SECONDS):
            lost = None if self._stop.now() else self._health.look()
            if lost is not None:
                self._lost = lost
                break
        else:
            return
        self._stop.fail()
        with suppress(Exception):  # what is left would not be the cause
            self._health.end_rest()
        until = time.monotonic() + LEAVING_SECONDS
        while not self._over.wait(EVERY_SECONDS):
            self._stop.fail()  # again, as work in the background that fails of it takes this back
            if time.monotonic() > until:
                self._gone(lost)
                os._exit(lost.exit_code)
