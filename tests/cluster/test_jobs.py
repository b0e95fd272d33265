"""A job is followed through what breaks on the way, and known by the folder of its run."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from rlctl.cli import jobs as commands
from rlctl.cluster import jobs
from rlctl.cluster.address import Address
from rlctl.cluster.jobs import JobServer
from rlctl.common.errors import RunError
from rlctl.config import Loaded, config_from


class Disconnected(Exception):
    """As aiohttp's, which is neither a RuntimeError nor an OSError."""


class Client:
    """What Ray's client says, call by call; an exception is raised."""

    def __init__(self, *statuses: str | Exception) -> None:
        self.statuses = list(statuses)

    async def tail_job_logs(self, identity: str) -> AsyncIterator[str]:
        yield "one\n"
        raise Disconnected

    def get_job_info(self, identity: str) -> Any:
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if isinstance(status, Exception):
            raise status
        return SimpleNamespace(
            metadata={jobs.RUN: "demo", jobs.FOLDER: "/runs/demo"}, start_time=1, end_time=None, driver_exit_code=0,
            status=SimpleNamespace(value=status), submission_id=identity, job_id=None, message="",
        )  # fmt: skip

    def get_job_logs(self, identity: str) -> str:
        return "one\ntwo\n"


def server(*statuses: str | Exception) -> JobServer:
    made = JobServer.__new__(JobServer)
    made.url, made._client = "http://head:8265", Client(*statuses)  # type: ignore[assignment]
    return made


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "NEW_CONNECTION_SECONDS", 0.01)


def test_a_job_server_that_is_away_for_a_while_ends_no_following() -> None:
    told: list[str] = []
    ended = server("RUNNING", ConnectionError("refused"), "RUNNING", "SUCCEEDED").follow("job-1", told.append)
    assert (ended.status, "".join(told)) == ("finished", "one\ntwo\n")


def test_one_that_stays_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "UNREACHABLE_SECONDS", 0.1)
    began = time.monotonic()
    with pytest.raises(RunError, match="cannot be queried: refused"):
        server(ConnectionError("refused")).follow("job-1", lambda text: None)
    assert time.monotonic() - began < 10


def test_a_job_beside_others_of_its_name_is_known_by_the_folder_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it cannot be asked to stop or to save, and who resumes it resumes the other."""
    submitted: dict[str, Any] = {}

    def submit(command: list[str], **told: Any) -> str:
        submitted.update(told, command=command)
        return "job-3"

    there = SimpleNamespace(
        url="http://head:8265", jobs=lambda: [SimpleNamespace(run=name) for name in ("demo", "demo-2")], submit=submit
    )
    monkeypatch.setattr(commands, "_server", lambda where: there)
    monkeypatch.setattr(commands, "watch", lambda server, identity, **how: None)
    loaded = Loaded(
        config_from({"run": {"name": "demo", "folder": "/runs"}, "data": {"train": [{"path": "/d/train.parquet"}]}})
    )
    for flags, name in ((["--new"], "demo-3"), ([], "demo")):
        commands.submit(
            loaded, Address("x", "http://head:8265"), flags=flags, passed=(), plan_file=None, detach=True, json=False
        )
        assert (submitted["run"], submitted["folder"]) == (name, f"/runs/{name}")
        assert submitted["command"][-2:] == (["--name", name] if flags else ["--address", "auto"])
