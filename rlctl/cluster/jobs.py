"""A cluster's job server: runs are submitted to it, listed, followed and ended through it.

A job is one process on the cluster that ran, or runs, an ``rlctl`` command there. What it needs of this machine travels as its
runtime environment: the installed rlctl as a module, a folder with the config and the user's files. The packages that rlctl's
runtime needs are part of the cluster's own Python.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import rlctl
from rlctl.common import packages, quoting
from rlctl.common.errors import MissingDependency, RunError, nearest
from rlctl.common.messages.reasons import said
from rlctl.runtime.processes.ray_access import refused, use_token

RUN, FOLDER = "rlctl_run", "rlctl_folder"
"""What a job's metadata says of its run; jobs without it are none of ours."""
LEFT_OUT = ["__pycache__", "*.pyc"]
NO_AGENT = "No available agent"
"""What Ray's job server answers while none of the cluster's nodes is ready for jobs."""
NEW_CONNECTION_SECONDS = 1.0
UNREACHABLE_SECONDS = 60.0
"""For which a job server that is followed may be away, as while its forwarded port is made anew."""
STATUSES = {
    "PENDING": "waiting",
    "RUNNING": "running",
    "STOPPED": "stopped",
    "SUCCEEDED": "finished",
    "FAILED": "failed",
}
_TALKATIVE = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)
"""Loggers of Ray's client that tell of every upload."""
_NO_ID = re.compile(r"[^A-Za-z0-9._-]")
"""Characters that the id of a job, which is part of addresses and of names of files, does not have."""
_OVERRIDES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
"""Variables that Ray's client would take an address from, whatever it is told."""


@dataclass(frozen=True, slots=True)
class Job:
    """A run's process on a cluster, as its job server knows it."""

    id: str
    run: str
    folder: str
    """Of the run, on the cluster."""
    status: str
    """waiting, running, finished, stopped or failed."""
    started: datetime | None
    seconds: float
    exit_code: int | None
    message: str

    @property
    def over(self) -> bool:
        return self.status not in ("waiting", "running")


class JobServer:
    """The job server at an URL.

    Raises:
        MissingDependency: Ray is not installed here.
        RunError: nothing answers there, or it refuses.
    """

    def __init__(self, url: str) -> None:
        try:
            from ray.job_submission import JobSubmissionClient
        except ImportError as error:
            raise MissingDependency(
                "contacting a job server needs Ray, which is not installed",
                hint=packages.install(packages.RUNTIME),
            ) from error
        self.url = url
        use_token()
        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.WARNING)
        with _told(said("the job server at {url} cannot be used", url=url)), _without(_OVERRIDES):
            self._client = JobSubmissionClient(url)

    def submit(
        self,
        command: Sequence[str],
        *,
        run: str = "",
        folder: str = "",
        directory: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """Start a command on the cluster's head; the id of its job.

        Args:
            command: its words.
            run: the name of the run that it is; empty for one that only helps.
            folder: of that run.
            directory: what it finds in its working folder.
            variables: further variables of its processes.
        """
        environment: dict[str, Any] = {"py_modules": [str(Path(rlctl.__file__).parent)], "excludes": LEFT_OUT}
        if directory is not None:
            environment["working_dir"] = str(directory)
        if variables:
            environment["env_vars"] = dict(variables)
        with _told("the job cannot be submitted"):
            return _once_an_agent_answers(
                lambda: self._client.submit_job(
                    entrypoint=quoting.command(command),
                    runtime_env=environment,
                    metadata={RUN: run, FOLDER: folder} if run else {},
                    submission_id=f"rlctl-{_NO_ID.sub('_', run)[:40] or 'helper'}-{secrets.token_hex(4)}",
                )
            )

    def jobs(self) -> list[Job]:
        """The jobs that are runs, newest first."""
        with _told("the jobs cannot be listed"):
            found = [_job(details) for details in self._client.list_jobs() if RUN in (details.metadata or {})]
        return sorted(found, key=lambda job: job.started or datetime.now(UTC), reverse=True)

    def job(self, identity: str) -> Job:
        """The job's status now."""
        with _told(said("job {identity} cannot be queried", identity=identity)):
            return _job(self._client.get_job_info(identity))

    def find(self, name: str) -> Job:
        """The newest job of a run by the run's name, the path of its folder, or the job's own id.

        Raises:
            RunError: there is none; the nearest name is suggested.
        """
        known = self.jobs()
        for job in known:
            if name.rstrip("/") in (job.run, job.folder, job.id):
                return job
        hint = nearest(name, {job.run for job in known}) or said(
            "the cluster has {count} jobs that are runs", count=len(known)
        )
        raise RunError(said("{url} has no job for a run {name!r}", url=self.url, name=name), hint=hint)

    def follow(self, identity: str, tell: Callable[[str], None]) -> Job:
        """Pass on a job's output as it comes, until the job is over; a connection that breaks is made anew.

        Raises:
            RunError: the job server has not answered for ``UNREACHABLE_SECONDS``.
        """
        told, answered = _Told(tell), time.monotonic()
        while True:
            with suppress(Exception):  # of kinds of the client's own too; whether the server is there is asked next
                asyncio.run(self._tail(identity, told))
            try:
                job = self.job(identity)
                if job.over:
                    told.take(0, self.output(identity))
                    return job
                answered = time.monotonic()
            except RunError:
                if time.monotonic() - answered > UNREACHABLE_SECONDS:
                    raise
            time.sleep(NEW_CONNECTION_SECONDS)

    async def _tail(self, identity: str, told: _Told) -> None:
        """Pass on the output from its beginning, until it ends or the connection does."""
        position = 0
        async for text in self._client.tail_job_logs(identity):
            told.take(position, text)
            position += len(text)

    def output(self, identity: str) -> str:
        """All that a job has printed."""
        with _told(said("the output of job {identity} cannot be read", identity=identity)):
            return str(self._client.get_job_logs(identity) or "")

    def end(self, identity: str) -> None:
        """End a job's process at once: it is sent SIGTERM."""
        with _told(said("job {identity} cannot be stopped", identity=identity)):
            self._client.stop_job(identity)

    def ask(self, command: Sequence[str], *, within: float = 120.0) -> str:
        """Run a short command on the cluster's head; what it printed.

        Raises:
            RunError: it failed, or was not over in time.
        """
        identity = self.submit(command)
        deadline = time.monotonic() + within
        while not (job := self.job(identity)).over:
            if time.monotonic() > deadline:
                raise RunError(
                    said(
                        "`{command}` was not finished after {within:g} s on {url}: job {identity}",
                        command=quoting.command(command),
                        within=within,
                        url=self.url,
                        identity=identity,
                    )
                )
            time.sleep(0.5)
        output = self.output(identity)
        if job.status != "finished":
            lines = output.rpartition("Running entrypoint for job")[2].strip().splitlines()[1:]
            last = "\n".join(lines[-5:]) or job.message
            command_line = quoting.command(command)
            raise RunError(said("`{command}` failed on {url}: {last}", command=command_line, url=self.url, last=last))
        return output


class _Told:
    """Passes on the lines of a job's output, each once."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._seen = 0

    def take(self, position: int, text: str) -> None:
        """Pass on what is new of a text that stands at a position of the output."""
        new = text[max(0, self._seen - position) :]
        if new:
            self._tell(new)
            self._seen = position + len(text)


def _job(details: Any) -> Job:
    metadata = details.metadata or {}
    started = datetime.fromtimestamp(details.start_time / 1000, tz=UTC) if details.start_time else None
    ended = details.end_time / 1000 if details.end_time else time.time()
    status = STATUSES.get(details.status.value, "running")
    if status == "failed" and details.driver_exit_code == 3:
        status = "stopped"
    return Job(
        id=details.submission_id or details.job_id,
        run=metadata.get(RUN, ""),
        folder=metadata.get(FOLDER, ""),
        status=status,
        started=started,
        seconds=max(0.0, ended - started.timestamp()) if started else 0.0,
        exit_code=details.driver_exit_code,
        message=details.message or "",
    )


def _once_an_agent_answers(submit: Callable[[], Any]) -> str:
    """Submit a job to a head that has just been started, or is busy, again until one of its agents takes the job.

    Raises:
        RuntimeError: the head refuses it, or no agent has answered for ``UNREACHABLE_SECONDS``.
    """
    until = time.monotonic() + UNREACHABLE_SECONDS
    while True:
        try:
            return str(submit())
        except RuntimeError as error:
            if NO_AGENT not in str(error) or time.monotonic() > until:
                raise
        time.sleep(NEW_CONNECTION_SECONDS)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Errors of Ray's client as ours."""
    try:
        yield
    except MissingDependency:
        raise
    except Exception as error:
        if (refusal := refused(what, error)) is not None:
            raise refusal from error
        if not isinstance(error, (ConnectionError, RuntimeError, OSError, ValueError)):
            raise
        answer = " ".join(str(error).split())[:600]
        raise RunError(
            said("{what}: {answer}", what=what, answer=answer),
            hint="--address http://HOST:8265 is the dashboard of a cluster with ray[default]; on Kubernetes or behind a "
            "firewall forward its port",
        ) from error


@contextmanager
def _without(names: Sequence[str]) -> Iterator[None]:
    """Environment variables out of the way for a moment."""
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)
