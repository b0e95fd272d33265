"""Who can reach a Ray: one that a run starts, one with a token, and what an auto address means."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from rlctl.checks.here.services import ray_cluster
from rlctl.common.errors import RunError
from rlctl.config import Loaded, config_from
from rlctl.config.load import Source
from rlctl.runs import with_ray_that_is_there
from rlctl.runtime.processes import ray_access

OWN = """
import os, sys
from pathlib import Path
from rlctl.runtime.launch import _init, OWN_RAY
from rlctl.runtime.processes import ray_access
from rlctl.runtime.stopping import StopSwitch
import psutil
os.environ.update(OWN_RAY)
os.umask(0o022)
ray_access.make_token_private()
_init({"address": "local", "num_cpus": 1, "include_dashboard": False, "log_to_driver": False, "logging_level": "error",
       "configure_logging": False, "_temp_dir": str(ray_access.private_folder() / "ray")}, StopSwitch(Path(sys.argv[1]), None, None))
ray_access.make_session_private()
import ray
ray.get(ray.remote(lambda: 1).remote())
me = psutil.Process()
ports = [c.laddr.ip for p in [me, *me.children(recursive=True)] for c in p.net_connections("tcp") if c.status == "LISTEN"]
session = Path(ray._private.worker._global_node.get_session_dir_path())
print("PORTS", len(ports), sorted(set(ports)))
print("MODES", *(oct(path.stat().st_mode & 0o777) for path in (session, session.parents[1], Path.home() / ".ray" / "auth_token")))
print("FOUND", ray_access.clusters_of_this_node())
ray.shutdown()
"""
JOIN = """
import sys
from rlctl.cluster.jobs import JobServer
from rlctl.common.errors import RlctlError
from rlctl.runtime.processes.ray_access import device_of
for address in sys.argv[1:]:
    try:
        print(address, "IS", JobServer(address).jobs() if "://" in address else device_of(address))
    except RlctlError as error:
        print(address, "REFUSES", str(error).replace("\\n", " "))
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("RAY_ADDRESS", ray_access.MODE, ray_access.TOKEN, ray_access.TOKEN_PATH):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with TemporaryDirectory(
        prefix="rlctl-", dir="/tmp", ignore_cleanup_errors=True
    ) as short:  # of sockets: 107 characters
        monkeypatch.setenv("RAY_TMPDIR", short)
        yield tmp_path


def answer(program: str, *words: str) -> dict[str, str]:
    ran = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=240, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "gcs_client" not in ran.stderr
    return {line.split(" ")[0]: line for line in ran.stdout.splitlines() if line}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("port", [1, 99999])
def test_an_address_at_which_nothing_listens_is_refused_at_once(port: int) -> None:
    began = time.monotonic()
    with pytest.raises(RunError, match=f"nothing answers at 127.0.0.1:{port}"):
        ray_access.join(f"127.0.0.1:{port}")
    assert time.monotonic() - began < ray_access.CONNECT_SECONDS


def test_files_are_private_before_ray_makes_them(home: Path) -> None:
    ray_access.make_token_private()
    token = home / ".ray" / "auth_token"
    assert (mode(token), mode(token.parent)) == (0o600, 0o700)
    assert len(token.read_text()) == 64
    token.chmod(0o644)
    before = token.read_text()
    ray_access.make_token_private()
    assert (mode(token), token.read_text()) == (0o600, before)
    folder = ray_access.private_folder()
    folder.chmod(0o777)
    assert mode(ray_access.private_folder()) == 0o700
    folder.rmdir()
    folder.symlink_to(home)
    with pytest.raises(RunError, match="another user"):
        ray_access.private_folder()
    folder.unlink()


@pytest.mark.parametrize(
    ("session", "found"), [("/scratch/rlctl-{user}/ray/session_1", []), ("/scratch/ray/session_1", ["10.0.0.1:6379"])]
)
def test_the_ray_of_a_run_is_no_cluster_to_join_wherever_its_folder_is(
    session: str, found: list[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["raylet", "--gcs-address=10.0.0.1:6379", "--session-dir=" + session.format(user=os.getuid())]
    info = {"name": "raylet", "uids": SimpleNamespace(real=os.getuid()), "cmdline": words}
    monkeypatch.setattr("psutil.process_iter", lambda fields: [SimpleNamespace(info=info)])
    assert ray_access.clusters_of_this_node() == found


def test_what_an_auto_address_means(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    monkeypatch.setattr(ray_access, "clusters_of_this_node", lambda: found)
    written = Loaded(config_from({"runtime": {"ray": {"address": "auto"}}}))
    default = Loaded(written.config, {("runtime", "ray", "address"): Source("dialect_default")})
    with pytest.raises(RunError, match="no Ray cluster"):
        ray_access.address_to_join("auto")
    assert with_ray_that_is_there(default).config.runtime.ray.address is None
    assert with_ray_that_is_there(written).config.runtime.ray.address == "auto"
    found.append("10.0.0.1:6379")
    assert ray_access.address_to_join("auto") == "10.0.0.1:6379"
    assert with_ray_that_is_there(default).config.runtime.ray.address == "auto"
    found.append("10.0.0.1:6380")
    with pytest.raises(RunError, match="2 Ray clusters on this machine"):
        ray_access.address_to_join("auto")
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.2:1")
    assert ray_access.address_to_join("auto") == "10.0.0.2:1"
    assert ray_access.address_to_join("10.0.0.3:1") == "10.0.0.3:1"


@pytest.mark.ray
def test_a_ray_that_a_run_starts_is_private(home: Path) -> None:
    told = answer(OWN, str(home))
    count, addresses = told["PORTS"].removeprefix("PORTS ").split(" ", 1)
    assert int(count) >= 6
    assert set(eval(addresses)) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    assert told["MODES"] == "MODES 0o700 0o700 0o600"
    assert "127.0.0.1" not in told["FOUND"], "the Ray of a run is not one to join"


CLUSTER = """
import sys
import ray
found = ray.init(address="local", num_cpus=1, include_dashboard=True, dashboard_port=0, log_to_driver=False)
print(found.address_info["gcs_address"], "http://" + found.dashboard_url, flush=True)
sys.stdin.read()
"""


@contextmanager
def cluster(home: Path, **environment: str) -> Iterator[tuple[str, str, Path]]:
    """Of a Ray in another process: the addresses of its head and of its job server; and the token file of this home."""
    token = home / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("a" * 64)
    with subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **environment},
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            head, jobs = process.stdout.readline().split()
            yield head, jobs, token
        finally:
            process.stdin.close()
            process.wait(60)


@pytest.mark.ray
def test_a_cluster_with_a_token_is_joined_with_it_and_refuses_clearly_without(home: Path) -> None:
    with cluster(home) as (address, server, token):
        found = answer(JOIN, address, server)
        assert found[address].endswith("IS cpu")
        assert found[server].endswith("IS []")
        assert [*ray_cluster(address)] == [], "check --here asks with the token"
        token.write_text("b" * 64)
        with pytest.raises(OSError, match="InvalidAuthToken"):
            [*ray_cluster(address)]
        for why in ("the one in ", "you have none"):
            refused = answer(JOIN, address, server)
            for name in (address, server):
                assert f"it requires Ray's token, but {why}" in refused[name]
                assert ("does not match" in refused[name]) == (why == "the one in ")
                assert ray_access.TOKEN_PATH in refused[name]
            token.unlink(missing_ok=True)


def test_a_token_that_is_not_there_is_told_before_ray_ends_the_process(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = home / ".ray" / "auth_token"
    monkeypatch.setenv(ray_access.MODE, "token")
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        with pytest.raises(RunError, match=f"you have none: {token} cannot be read"):
            ray_access.join(address)
        token.parent.mkdir()
        token.touch()
        with pytest.raises(RunError, match=f"you have none: {token} is empty"):
            ray_access.join(address)
    monkeypatch.setenv(ray_access.MODE, "disabled")
    error = ray_access.refused("it cannot be used", OSError("Unauthenticated"))
    assert error is not None
    assert (f"{ray_access.MODE} is disabled" in str(error), error.hint) == (True, f"unset {ray_access.MODE}")


ACTOR = """
import os, sys
import ray
from rlctl.runtime.processes import ray_access
os.chdir(here := os.environ["HOME"])
ray_access.join(sys.argv[1], log_to_driver=False)
class Worker:
    def answer(self):
        assert here not in sys.path, sys.path
        return "answered"
print("ACTOR", ray.get(ray.remote(Worker).remote().answer.remote(), timeout=60))
"""


@pytest.mark.ray
def test_a_cluster_without_tokens_is_joined_without_the_token_of_this_home(home: Path) -> None:
    """Its head could not call a process that uses one, and would end the actors of that process.

    Its workers look for no modules in the current folder.
    """
    with cluster(home, **{ray_access.MODE: "disabled"}) as (address, _, _):
        assert answer(ACTOR, address)["ACTOR"] == "ACTOR answered"
