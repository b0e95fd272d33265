"""Running a script in isolation: its command is seen, and nothing outside of it changes."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from pathlib import Path

import pytest

from rlctl import tracing
from rlctl.errors import DocumentError
from rlctl.tracing import Traced, trace


def possible() -> str:
    """Why nothing can be isolated here; empty where it can."""
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "probe.sh"
        probe.write_text("true\n")
        try:
            trace(str(probe), [], {"HOME": "/nowhere"})
        except DocumentError as error:
            return error.message
    return ""


WHY_NOT = possible()
isolated = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


def run(folder: Path, script: str, *arguments: str, seconds: float = 20, **environment: str) -> Traced:
    file = folder / "run.sh"
    file.write_text(script)
    return trace(str(file), arguments, {"HOME": str(folder), **environment}, seconds=seconds)


def calls(ran: Traced) -> list[list[str]]:
    return [list(call) for call in ran.calls]


@isolated
def test_the_command_line_is_seen_as_it_is(tmp_path: Path) -> None:
    ran = run(tmp_path, 'A=(x="a b" \'[1, 2]\' "")\npython3 -m m "${A[@]}" "$@" $X\n', "k=é", X="$HOME y")
    assert calls(ran) == [["python3", "-m", "m", "x=a b", "[1, 2]", "", "k=é", "$HOME", "y"]]
    assert ran.status == 0


@isolated
@pytest.mark.parametrize(
    "program", ["torchrun", "uv", "ray", "accelerate", "trinity", "wget", "pip", "git", "/usr/bin/env python3"]
)
def test_programs_that_reach_outside_have_stand_ins(program: str, tmp_path: Path) -> None:
    assert calls(run(tmp_path, f"{program} a b\n"))[-1][-2:] == ["a", "b"]


@isolated
def test_python_of_the_system_is_not_run_by_its_path_either(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        '[ -x /usr/bin/python3 ] || exit 0\n/usr/bin/python3 -c \'open("x", "w")\'\n/usr/bin/python3 -m m a=1\n',
    )
    assert not (tmp_path / "x").exists()
    assert not ran.calls or calls(ran)[-1][1:] == ["-m", "m", "a=1"]


@isolated
def test_nothing_outside_changes(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("as it was")
    places = [
        tmp_path / "made",
        Path("/etc/rlctl-made"),
        Path("/tmp") / f"rlctl-made-{os.getpid()}",
        Path.home() / "rlctl-made",
    ]
    script = "".join(f"echo x > {place}\n/bin/mkdir -p {place}.d\n" for place in places)
    script += "rm -rf kept\n/bin/rm -f kept\necho changed > kept\npython3 -m m end=1\n"
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        ran = run(tmp_path, script)
    finally:
        os.chdir(here)
    assert calls(ran)[-1] == ["python3", "-m", "m", "end=1"]
    assert (tmp_path / "kept").read_text() == "as it was"
    assert not any(place.exists() or Path(f"{place}.d").exists() for place in places)


@isolated
def test_there_is_no_network(tmp_path: Path) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.2)
    port = server.getsockname()[1]
    ran = run(
        tmp_path, f"(echo hello > /dev/tcp/127.0.0.1/{port}) 2>/dev/null && python3 -m m sent=1\npython3 -m m end=1\n"
    )
    assert calls(ran) == [["python3", "-m", "m", "end=1"]]
    with pytest.raises(TimeoutError):
        server.accept()
    server.close()


@isolated
def test_other_processes_are_not_seen(tmp_path: Path) -> None:
    ran = run(
        tmp_path, f"kill -0 {os.getpid()} 2>/dev/null; /bin/kill -9 {os.getpid()} 2>/dev/null\npython3 -m m end=1\n"
    )
    assert calls(ran)[-1][-1] == "end=1"


@isolated
def test_its_time_ends(tmp_path: Path) -> None:
    began = time.monotonic()
    ran = run(tmp_path, "python3 -m m a=1\nwhile :; do :; done\n", seconds=1)
    assert ran.status is None
    assert calls(ran) == [["python3", "-m", "m", "a=1"]]
    assert time.monotonic() - began < 15


@isolated
def test_a_script_that_fails_says_so(tmp_path: Path) -> None:
    ran = run(tmp_path, "set -u\necho $NOT_SET\n")
    assert ran.status == 1
    assert "NOT_SET" in ran.said


@isolated
def test_what_often_stops_a_script_does_not(tmp_path: Path) -> None:
    script = "set -e\nulimit -n 1048576\nsleep 100\nmkdir -p ~/x logs /opt/y\npython3 -m m a=1 2>&1 | tee logs/x.log\n"
    assert calls(run(tmp_path, script))[-1] == ["python3", "-m", "m", "a=1"]


def test_without_namespaces_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"touch {tmp_path}/ran\n")
    monkeypatch.setattr(tracing.shutil, "which", lambda name: None)
    with pytest.raises(DocumentError, match="unshare") as caught:
        trace(str(script), [], {})
    assert "--trace" in caught.value.hint
    assert not (tmp_path / "ran").exists()


def test_where_namespaces_are_forbidden_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, unshare = tmp_path / "run.sh", tmp_path / "unshare"
    script.write_text(f"touch {tmp_path}/ran\n")
    unshare.write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n")
    unshare.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(DocumentError, match="Operation not permitted"):
        trace(str(script), [], {})
    assert not (tmp_path / "ran").exists()
