"""Databases for tests of buffers: SQLite, and a PostgreSQL server that is started here where its programs are installed."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


def _program(name: str) -> str | None:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(installed[-1]) if installed else shutil.which(name)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a PostgreSQL server, on a socket in a temporary folder."""
    pytest.importorskip("psycopg", reason="psycopg, the driver of PostgreSQL, is not installed")
    initdb, postgres = _program("initdb"), _program("postgres")
    if initdb is None or postgres is None:
        pytest.skip("PostgreSQL's initdb and postgres are not installed")
    user = "nobody" if os.geteuid() == 0 else None  # the server refuses to be root
    folder = Path(tempfile.mkdtemp(prefix="rlctl-pg-"))
    if user is not None:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    subprocess.run(
        [initdb, "-D", folder / "data", "-U", "rlctl", "-A", "trust", "--no-sync"],
        check=True, capture_output=True, user=user, cwd="/",
    )  # fmt: skip
    options = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=40"]
    server = subprocess.Popen(
        [postgres, "-D", folder / "data", "-k", folder, *options],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=user, cwd="/",
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not any(folder.glob(".s.PGSQL.*[0-9]")):
            assert server.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.05)
        yield f"postgresql://rlctl@/postgres?host={folder}"
    finally:
        server.send_signal(signal.SIGINT)  # it ends without waiting for who is connected
        server.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/buffer.db"
    url: str = request.getfixturevalue("postgresql")
    return url
