"""The end of a Ray that a run is on is noticed, told, and what the run ends of. The processes here are real, and not Ray's."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from rlctl.runtime.processes import ray_health
from rlctl.runtime.processes.calls import StopRequested, WorkerLost
from rlctl.runtime.processes.ray_health import Head, OwnRay, RayLost, last_words, watched
from rlctl.runtime.stopping import StopSwitch

Processes = dict[str, "subprocess.Popen[bytes]"]


@pytest.fixture
def processes() -> Iterator[Processes]:
    """A head, a node process with a worker, and one that Ray works on without."""
    found = {name: subprocess.Popen(["sleep", "600"]) for name in ("gcs_server", "log_monitor")}
    found["raylet"] = subprocess.Popen(["sh", "-c", "sleep 600 & wait"])
    while not (workers := psutil.Process(found["raylet"].pid).children()):
        time.sleep(0.01)
    yield found
    for worker in workers:  # it outlives a raylet that a test kills
        with suppress(psutil.NoSuchProcess):
            worker.kill()
    for process in found.values():
        process.kill()
        process.wait()


@pytest.fixture
def own(processes: Processes, tmp_path: Path) -> OwnRay:
    return OwnRay(processes, tmp_path)


@pytest.fixture
def stop(tmp_path: Path) -> StopSwitch:
    return StopSwitch(tmp_path)


def ends(process: subprocess.Popen[bytes], number: int = signal.SIGKILL) -> None:
    process.send_signal(number)
    process.wait()


def never(lost: RayLost) -> None:
    raise AssertionError(lost)


def wait_as_a_run(stop: StopSwitch) -> None:
    """As whoever waits for workers does."""
    until = time.monotonic() + 20
    while not stop.now():
        assert time.monotonic() < until
        time.sleep(0.01)
    raise StopRequested


def error_of(run: Callable[[], None], own: OwnRay, stop: StopSwitch, kind: type[Exception]) -> Exception:
    """What a run on such a Ray ends of."""
    with pytest.raises(kind) as raised, watched(own, stop, never):
        run()
    return raised.value


@pytest.mark.parametrize(("name", "what"), [("gcs_server", "head"), ("raylet", "node process")])
def test_which_process_died_and_how_is_told(
    processes: Processes, own: OwnRay, tmp_path: Path, name: str, what: str
) -> None:
    assert own.look() is None
    ends(processes[name])
    lost = own.look()
    assert lost is not None
    assert lost.message == f"Ray's {what} died ({name}, process {processes[name].pid}, killed by SIGKILL)"
    assert lost.actor == "ray"
    assert str(tmp_path / name) in lost.hint
    assert "dmesg" in lost.hint


def test_what_it_said_last_is_told(tmp_path: Path) -> None:
    (tmp_path / "raylet.out").write_text(
        "[2026-11-22 21:10:17,548 I 17 17] (raylet) main.cc:3: fine\n"
        "[2026-11-22 21:10:18,548 C 17 17] (raylet) node_manager.cc:3576:  An unexpected system state has occurred. "
        "Check failed: has_value() Timed out waiting for file metrics_agent_port\n"
        "*** StackTrace Information ***\n"
    )
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
    process.wait()
    lost = OwnRay({"raylet": process}, tmp_path).look()
    assert lost is not None
    assert lost.message.endswith("exit code 7): has_value() Timed out waiting for file metrics_agent_port")
    assert last_words(tmp_path / "gcs_server.out") == ""


def test_an_agent_whose_end_ends_ray_is_the_cause_of_what_is_lost_with_it(
    own: OwnRay, stop: StopSwitch, tmp_path: Path
) -> None:
    """The node process says so in its log, and works on for seconds, in which placement groups are gone already."""
    log = tmp_path / "raylet.out"
    log.write_text(
        "[2026-11-29 01:50:25,528 I 9 9] (raylet) agent_manager.cc:83: Agent process with name dashboard_agent exi"
    )
    assert own.look() is None

    def run() -> None:
        with log.open("a") as more:
            more.write(
                "ted.\n[2026-11-29 01:50:25,528 E 9 9] (raylet) agent_manager.cc:87: The raylet exited immediately because "
            )
            more.flush()
            assert own.look() is None
            more.write("one Ray agent failed, agent_name = dashboard_agent.\n")
        raise Exception("Placement group PlacementGroupID(8ec4) does not exist.")

    lost = error_of(run, own, stop, RayLost)
    assert str(lost).startswith("Ray's dashboard_agent died, and Ray ends its node process with it")
    assert f"{tmp_path}/dashboard_agent.*" in str(lost)


def test_lack_of_memory_is_told_where_the_system_killed_for_it(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = [3]
    monkeypatch.setattr(ray_health, "killed_for_memory", lambda: killed[0])
    own = OwnRay(processes, tmp_path)
    killed[0] = 4
    ends(processes["raylet"])
    lost = own.look()
    assert lost is not None
    assert "SIGKILL; the system killed processes for lack of memory in the meantime" in lost.message


def test_a_run_goes_on_without_what_it_does_not_need(processes: Processes, own: OwnRay) -> None:
    ends(processes["log_monitor"])
    assert own.look() is None


def test_a_run_ends_of_it_and_leaves_nothing_of_its_ray(processes: Processes, own: OwnRay, stop: StopSwitch) -> None:
    (worker,) = psutil.Process(processes["raylet"].pid).children()

    def run() -> None:
        ends(processes["gcs_server"])
        wait_as_a_run(stop)

    assert "Ray's head died" in str(error_of(run, own, stop, RayLost))
    assert processes["raylet"].wait(5) == -signal.SIGKILL
    assert processes["log_monitor"].wait(5) == -signal.SIGKILL
    worker.wait(5)


def test_it_is_the_cause_of_a_worker_that_is_lost_with_it(processes: Processes, own: OwnRay, stop: StopSwitch) -> None:
    def run() -> None:
        ends(processes["raylet"])
        raise WorkerLost("policy-0: its process died", actor="policy-0")

    assert "node process died" in str(error_of(run, own, stop, RayLost))


def test_a_worker_that_is_lost_alone_is_the_cause_itself(own: OwnRay, stop: StopSwitch) -> None:
    def run() -> None:
        raise WorkerLost("policy-0: its process died", actor="policy-0")

    assert "policy-0" in str(error_of(run, own, stop, WorkerLost))


def test_a_run_that_was_asked_to_end_before_ends_so(processes: Processes, own: OwnRay, stop: StopSwitch) -> None:
    def run() -> None:
        stop.fail()
        ends(processes["gcs_server"])
        wait_as_a_run(stop)

    error_of(run, own, stop, StopRequested)


def test_work_in_the_background_that_fails_of_it_hides_it_not(
    processes: Processes, own: OwnRay, stop: StopSwitch
) -> None:
    def run() -> None:
        ends(processes["gcs_server"])
        with suppress(StopRequested):
            wait_as_a_run(stop)
        stop.fail(False)
        wait_as_a_run(stop)

    assert "head" in str(error_of(run, own, stop, RayLost))


STUCK = """
import subprocess, sys, time
from pathlib import Path
from rlctl.runtime.processes import ray_health
from rlctl.runtime.stopping import StopSwitch

ray_health.LEAVING_SECONDS = 0.5
head = subprocess.Popen(["sleep", "600"])
own = ray_health.OwnRay({"gcs_server": head}, Path("."))
with ray_health.watched(own, StopSwitch(Path(".")), lambda lost: print(lost.message, flush=True)):
    head.kill()
    time.sleep(600)
"""


def test_a_run_that_waits_for_a_ray_that_is_gone_is_ended(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", STUCK], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1, ended.stderr
    assert "Ray's head died" in ended.stdout


def test_a_head_elsewhere_may_be_away_for_a_while() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        head = Head("127.0.0.1", port, every=0.1, away=1.0)
        time.sleep(1.1)
        assert head.look() is None, "it answers"
    time.sleep(0.15)
    assert head.look() is None, "away, and not for long"
    time.sleep(1.1)
    lost = head.look()
    assert lost is not None
    assert lost.message == f"the head of the Ray cluster at 127.0.0.1:{port} has been unresponsive for 1 s"
