"""The reaper ends as its command does, and leaves nothing of it behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlctl.sandbox import REAPER
from tests.waiting import until

COMMAND = (sys.executable, "-I", "-S", str(REAPER))
DAEMON = "setsid sh -c 'echo $$ > {}; exec sleep 1000' & while [ ! -s {} ]; do :; done"


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize(
    ("code", "status"), [("exit 7", 7), ("kill -SEGV $$", -signal.SIGSEGV), ("kill -9 $$", -signal.SIGKILL)]
)
def test_it_ends_as_its_command(code: str, status: int) -> None:
    assert subprocess.run([*COMMAND, "--", "sh", "-c", code], check=False).returncode == status


@pytest.mark.parametrize("end", ["ends", "is told to end", "loses its parent"])
def test_what_a_command_left_is_killed(end: str, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    words = [*COMMAND, "--", "sh", "-c", DAEMON.format(mark, mark) + ("" if end == "ends" else "; exec sleep 1000")]
    if end == "ends":
        subprocess.run(words, check=True)
    elif end == "is told to end":
        reaper = subprocess.Popen(words)
        until(lambda: mark.exists() and mark.read_text(), "the command does not run")
        reaper.terminate()
        reaper.wait()
    else:
        parent = subprocess.Popen([sys.executable, "-c", f"import subprocess; subprocess.run({words!r})"])
        until(lambda: mark.exists() and mark.read_text(), "the command does not run")
        parent.kill()
        parent.wait()
        until(lambda: not alive(int(mark.read_text())), "what the command left lives on")
    assert not alive(int(mark.read_text()))


def test_it_waits_until_it_is_let_go(tmp_path: Path) -> None:
    read, write = os.pipe()
    reaper = subprocess.Popen([*COMMAND, "--held", str(read), "--", "touch", str(tmp_path / "made")], pass_fds=[read])
    assert reaper.poll() is None
    assert not (tmp_path / "made").exists()
    os.write(write, b"x")
    assert reaper.wait() == 0
    assert (tmp_path / "made").exists()
    os.close(read)
    os.close(write)


def test_a_full_log_is_renamed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "for n in 1 2 3 4 5 6 7 8 9; do head -c 3000 /dev/zero | tr '\\0' $n; sleep 0.02; done"
    subprocess.run([*COMMAND, "--log", str(log), "--log-bytes", "10000", "--", "sh", "-c", code], check=True)
    assert log.stat().st_size <= 10000
    assert (tmp_path / "log.1").stat().st_size <= 10000
    assert log.read_text().endswith("9")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1"]
