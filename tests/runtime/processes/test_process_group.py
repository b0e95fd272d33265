"""A child and its group are ended once, while the child's number is still its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from rlctl.runtime.processes.process_group import end_group, status_of
from tests.waiting import has_ended, until


def child(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, start_new_session=True)


def test_a_child_that_ended_keeps_its_number_until_its_group_is_ended() -> None:
    process = child("import os, subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True); os._exit(3)")
    assert process.stdout is not None
    other = int(process.stdout.readline())
    process.stdout.close()
    assert status_of(process, within=20.0) == 3
    assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
    end_group(process)
    assert process.returncode == 3
    until(lambda: has_ended(other), "what the child left goes on")


@pytest.mark.parametrize("waited", ["once", "by somebody else"])
def test_no_signal_goes_to_a_number_that_was_given_back(waited: str, monkeypatch: pytest.MonkeyPatch) -> None:
    process = child("import os; os.kill(os.getpid(), 9)")
    assert process.stdout is not None
    process.stdout.close()
    if waited == "once":
        assert status_of(process, within=20.0) == -signal.SIGKILL
        end_group(process)
    else:
        os.waitpid(process.pid, 0)
    monkeypatch.setattr("os.killpg", lambda *_: pytest.fail("a signal was sent"))
    end_group(process)


def test_one_that_goes_on_is_ended() -> None:
    process = child("import time; time.sleep(600)")
    assert process.stdout is not None
    assert status_of(process) is None
    end_group(process)
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL
