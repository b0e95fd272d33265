"""Real worker processes for tests: made once for each number of workers, then sent functions to run together."""

from __future__ import annotations

import queue
import socket
import traceback
from collections.abc import Callable
from typing import Any

import torch.multiprocessing as mp

from rlctl.runtime.train.distributed import join

Job = Callable[..., Any]
IMPORTED = ["torch", "transformers.models.auto.modeling_auto", "tests.runtime.train.jobs"]
"""Once, in the process that the workers are forks of: it takes ten seconds of a processor."""


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _serve(rank: int, world: int, port: int, jobs: Any, results: Any) -> None:
    join(rank, world, "127.0.0.1", port, timeout=60, threads=1)
    while (item := jobs.get()) is not None:
        job, args = item
        try:
            results.put((rank, job(*args), None))
        except Exception as error:  # noqa: BLE001 - reported to the test, which expects or raises it
            results.put((rank, error, traceback.format_exc()))


class Workers:
    """A process group of plain processes."""

    def __init__(self, world: int) -> None:
        context = mp.get_context("forkserver")
        context.set_forkserver_preload(IMPORTED)
        port = free_port()
        self.results = context.Queue()
        self.jobs = [context.SimpleQueue() for _ in range(world)]
        self.processes = [
            context.Process(target=_serve, args=(rank, world, port, jobs, self.results), daemon=True)
            for rank, jobs in enumerate(self.jobs)
        ]
        for process in self.processes:
            process.start()

    def run(self, job: Job, *args: Any) -> list[Any]:
        """Call ``job(*args)`` in every worker at the same time; values by rank. The first worker's error is raised."""
        for jobs in self.jobs:
            jobs.put((job, args))
        answers = sorted((self._answer() for _ in self.jobs), key=lambda answer: answer[0])
        for _, value, trace in answers:
            if trace is not None:
                value.add_note(trace)
                raise value
        return [value for _, value, _ in answers]

    def _answer(self) -> Any:
        while True:
            try:
                return self.results.get(timeout=1)
            except queue.Empty:
                assert all(process.is_alive() for process in self.processes), "a worker process died"

    def close(self) -> None:
        """End the processes."""
        for jobs in self.jobs:
            jobs.put(None)
        for process in self.processes:
            process.join(10)
            process.kill()
