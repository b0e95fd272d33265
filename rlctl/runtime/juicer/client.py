"""Rows to a Data-Juicer service and back, over Trinity-RFT's HTTP protocol (``trinity/service/data_juicer``).

    rows ──POST /create (operators)──▶ session ──POST /process_experience (Arrow stream)──▶ rows that are left

The service is one that runs already (``service.data_juicer.url``), or a child of this process, which is started when it is
first needed and used by all operators of the run. A row is known by a column of its own, so operators may drop, change and add.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import httpx

from rlctl.common.errors import RunError
from rlctl.common.filenames import expanded, is_file
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import is_number
from rlctl.config.sections.execution import DataJuicer
from rlctl.runtime.processes.process_group import end_group, status_of

SERVER = Path(__file__).with_name("server.py")
CONFIG_PATH = "config_path"
"""What names a file of Data-Juicer's in place of operators."""
TOKEN = "RLCTL_JUICER_TOKEN"
"""The variable with a service's token, since its operators can run code. A service that is started here gets a new one."""
START_SECONDS = 600.0
"""Within which a service that is started here answers: Data-Juicer may install packages for an operator first."""
SECONDS = 3600.0
"""Of one call."""
PROCESSES = 4
"""For each operator, as Trinity-RFT has by default."""
NUMBER = "rlctl_row"
"""The column that says which row is which."""
STATISTICS = "__dj__stats__"
OWN = "__dj__"
"""How the columns begin that Data-Juicer adds."""
LINES = 6
"""Last lines of a failure that a message has."""

Row = dict[str, Any]


@dataclass
class Processed:
    """What the operators left."""

    rows: list[Row]
    """In the service's order, without the columns that were added."""
    places: list[int | None]
    """Of each among the rows that were sent; None for a row that an operator made."""
    statistics: list[dict[str, float]]
    numbers: dict[str, float]


class Service:
    """A service, and the sessions of this process in it."""

    def __init__(
        self,
        url: str,
        token: str,
        process: subprocess.Popen[bytes] | None = None,
        folder: tempfile.TemporaryDirectory[str] | None = None,
    ) -> None:
        """
        Args:
            url: of the service.
            token: that it expects; empty if it expects none.
            process: of a service that was started here, which ``close`` ends.
            folder: that this process runs in, which ``close`` removes.
        """
        self.url = url.rstrip("/")
        self._process, self._folder = process, folder
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._sessions: dict[str, str] = {}

    def process(self, asked: Mapping[str, Any], rows: Sequence[Row], *, where: str) -> Processed:
        """Run operators on rows.

        Args:
            asked: ``operators`` or ``config_path``, and ``np``.
            rows: of equal columns.
            where: the operator's key, for messages.

        Raises:
            RunError: the service cannot be reached, or an operator fails.
        """
        if not rows:
            return Processed([], [], [], {})
        table = _table([{**row, NUMBER: number} for number, row in enumerate(rows)], where)
        found = _read(self._processed(asked, _stream(table), where), where)
        sent = table.to_pylist()  # Arrow gives all mappings of a column the same keys
        for index, (row, place) in enumerate(zip(found.rows, found.places, strict=True)):
            if place is not None:
                changed = {k: v for k, v in row.items() if k not in sent[place] or v != sent[place][k]}
                kept = {name: value for name, value in rows[place].items() if name in row}
                found.rows[index] = {**kept, **changed}
        return found

    def _processed(self, asked: Mapping[str, Any], stream: bytes, where: str) -> httpx.Response:
        body: dict[str, Any] = {"pipeline_type": "experience", "np": PROCESSES, **asked}
        name = json.dumps(body, sort_keys=True)
        if is_file(file := expanded(str(asked.get(CONFIG_PATH) or ""))):
            body[CONFIG_PATH] = str(file.absolute())  # a service has a working folder of its own
            name += file.read_text(encoding="utf-8", errors="replace")
        for attempt in range(2):
            if name not in self._sessions:
                self._sessions[name] = self._post("/create", where, json=body).json()["session_id"]
            answer = self._post(
                "/process_experience",
                where,
                data={"session_id": self._sessions[name]},
                files={"arrow_data": ("rows.arrow", stream, "application/octet-stream")},
                lost=attempt == 0,
            )
            if answer.status_code == 200:
                return answer
            del self._sessions[name]  # the service was started again meanwhile
        raise AssertionError("a second session that is lost raises")

    def _post(self, path: str, where: str, *, lost: bool = False, **content: Any) -> httpx.Response:
        """Post; what is not 200 raises, but for a session that the service does not know if it may be ``lost``."""
        try:
            answer = httpx.post(
                f"{self.url}{path}", headers=self._headers, timeout=httpx.Timeout(SECONDS, connect=30.0), **content
            )
        except httpx.HTTPError as error:
            ended = status_of(self._process) if self._process is not None else None
            what = (
                said("ended with status {ended}", ended=ended)
                if ended is not None
                else str(error) or type(error).__name__
            )
            raise RunError(
                said(
                    "{where}: the Data-Juicer service at {url} cannot be reached: {what}",
                    where=where,
                    url=self.url,
                    what=what,
                ),
                hint="check that it still runs; service.data_juicer.url names one, auto_start starts one",
            ) from None
        if answer.status_code == 200 or (lost and answer.status_code == 404):
            return answer
        refused = answer.status_code == 401
        raise RunError(
            said(
                "{where}: Data-Juicer at {url} answered {path} with {status_code}: {problem}",
                where=where,
                url=self.url,
                path=path,
                status_code=answer.status_code,
                problem=_problem(answer),
            ),
            hint=said("set {token} to the token of the service", token=TOKEN)
            if refused
            else "check the operator's name and args in Data-Juicer's documentation",
        )

    def close(self) -> None:
        """Forget the sessions, and end a service that was started here."""
        for session in self._sessions.values():
            with suppress(httpx.HTTPError):
                httpx.post(f"{self.url}/close", json={"session_id": session}, headers=self._headers, timeout=5.0)
        self._sessions.clear()
        if self._process is not None:
            end_group(self._process)
        if self._folder is not None:
            self._folder.cleanup()


def service_of(chosen: DataJuicer | None, where: str) -> Service:
    """The service that ``service.data_juicer`` names, reached or started, for the operator with the key ``where``.

    Raises:
        RunError: none is named, it cannot be reached, or the one to start does not start.
    """
    if chosen is None or not (chosen.url or chosen.auto_start):
        raise RunError(
            said("{where} is an operator of Data-Juicer, but service.data_juicer names no service", where=where),
            hint="set service.data_juicer.url to one that runs, or auto_start: true and python: the Python with py-data-juicer",
        )
    return _started(chosen) if chosen.auto_start else _attached(chosen.url or "")


@cache
def _attached(url: str) -> Service:
    service = Service(url, os.environ.get(TOKEN, ""))
    problem = _health(service.url)
    if problem:
        raise RunError(
            said(
                "service.data_juicer.url: the Data-Juicer service at {url} does not answer: {problem}",
                url=url,
                problem=problem,
            ),
            hint="start it, or set service.data_juicer.auto_start to true",
        )
    atexit.register(service.close)
    return service


@cache
def _started(chosen: DataJuicer) -> Service:
    """A service of this process; the program ends with it, however it ends."""
    port, python = chosen.port or _free_port(), str(expanded(chosen.python or sys.executable))
    if os.sep in python:
        python = os.path.abspath(python)  # noqa: PTH100  # it runs in another folder; links of an environment stay
    token = secrets.token_urlsafe(24)
    log = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the service
    folder = tempfile.TemporaryDirectory(prefix="rlctl-juicer-", ignore_cleanup_errors=True)
    line = [python, str(SERVER), "--port", str(port), "--parent", str(os.getpid())]
    try:
        process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=folder.name,
            env={**os.environ, TOKEN: token},
        )
    except OSError as error:
        raise RunError(
            said(
                "service.data_juicer.python is {python}, which cannot be started: {strerror}",
                python=python,
                strerror=error.strerror,
            ),
            hint="set it to the Python of an environment with py-data-juicer, such as /path/to/env/bin/python",
        ) from None
    service = Service(f"http://127.0.0.1:{port}", token, process, folder)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and status_of(process) is None:
        if not _health(service.url):
            atexit.register(service.close)
            return service
        time.sleep(0.2)
    ended = status_of(process)
    service.close()
    shown = _last_lines(log)
    if "No module named 'data_juicer'" in shown:
        raise RunError(
            said("py-data-juicer is not installed for {python}", python=python),
            hint="install it in a separate environment (pip install py-data-juicer aiohttp), and set "
            "service.data_juicer.python to its Python",
        )
    what = (
        said("ended with status {ended}", ended=ended)
        if ended is not None
        else said("did not answer within {start_seconds:g} s", start_seconds=START_SECONDS)
    )
    raise RunError(
        said("the Data-Juicer service that was started {what}: {shown}", what=what, shown=shown),
        hint=said("run {names} to see why", names=" ".join(line[:4])),
    )


def _health(url: str) -> str:
    """What is wrong with a service; empty for one that answers."""
    try:
        answer = httpx.get(f"{url}/health", timeout=10.0)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return str(error) or type(error).__name__
    return "" if answer.status_code == 200 else f"it answers /health with {answer.status_code}"


def _table(rows: Sequence[Row], where: str) -> Any:
    """Rows as an Arrow table."""
    import pyarrow as pa

    try:
        return pa.Table.from_pylist(list(rows))
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise RunError(
            said(
                "{where}: a column has values of several types, which Data-Juicer cannot read: {error}",
                where=where,
                error=error,
            ),
            hint="give the column one type, or drop it with an operator of type function before",
        ) from None


def _stream(table: Any) -> bytes:
    import pyarrow as pa

    written = io.BytesIO()
    with pa.ipc.new_stream(written, table.schema) as writer:
        writer.write_table(table)
    return written.getvalue()


def _read(answer: httpx.Response, where: str) -> Processed:
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(io.BytesIO(answer.content)) as reader:
            rows: list[Row] = reader.read_all().to_pylist()
        told = json.loads(answer.headers.get("X-Metrics") or "{}")
    except (pa.ArrowInvalid, ValueError) as error:
        raise RunError(
            said("{where}: Data-Juicer answered with something other than rows: {error}", where=where, error=error)
        ) from None
    found = Processed([], [], [], {name: float(value) for name, value in told.items() if is_number(value)})
    for row in rows:
        number, statistics = row.pop(NUMBER, None), row.get(STATISTICS) or {}
        statistics = json.loads(statistics) if isinstance(statistics, str) else statistics  # as 1.6 exports them
        found.places.append(number)
        found.statistics.append({name: float(value) for name, value in statistics.items() if is_number(value)})
        found.rows.append({name: value for name, value in row.items() if not name.startswith(OWN)})
    return found


def _problem(answer: httpx.Response) -> str:
    try:
        shown = str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        shown = answer.text
    return "\n".join(shown.strip().splitlines()[-LINES:])[:500]


def _last_lines(log: IO[bytes]) -> str:
    log.seek(0)
    return "\n".join(log.read().decode(errors="replace").strip().splitlines()[-LINES:])[:500]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
