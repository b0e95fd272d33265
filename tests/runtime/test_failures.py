"""Whatever goes wrong ends the run within seconds; the first cause is named, nothing is left running, and what was saved stays."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from rlctl import runs
from rlctl.common.errors import RunError
from rlctl.runtime.checkpoints.checkpoint import read_checkpoint

from .conftest import marked
from .told import events_of

SECONDS = 15.0
"""From the first cause to the return of the run; the aim is under 10, and the machine may be busy."""


def worker(name: str) -> psutil.Process:
    """The process of a worker of a run in this process: the one whose output goes to its log."""
    for process in psutil.Process().children(recursive=True):
        try:
            if Path(f"/proc/{process.pid}/fd/1").readlink().name == f"{name}.log":
                return process
        except OSError:
            continue
    raise AssertionError(f"there is no process of {name}")


def shared_memory() -> set[str]:
    """What is in the machine's shared memory, by name."""
    return {str(path) for path in Path("/dev/shm").glob("*")}


def unheld(names: set[str]) -> set[str]:
    """Those that no process has open or mapped, and none is named in: the others are of what runs beside this test."""
    found = {name for name in names for number in re.findall(r"\d{2,}", name) if Path("/proc", number).exists()}
    for process in Path("/proc").glob("[0-9]*") if names - found else ():
        with suppress(OSError):
            found |= {name for name in names if name in (process / "maps").read_text()}
            found |= names & {str(file.readlink()) for file in (process / "fd").iterdir()}
    return names - found


@pytest.fixture(autouse=True)
def nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process of a run, whoever is its parent by then, and no shared memory that nobody holds."""
    mark, before = uuid.uuid4().hex, shared_memory()
    monkeypatch.setenv("RLCTL_TEST_MARK", mark)
    yield
    deadline = time.monotonic() + 5
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == [], "no process outlives its run"
    while (lost := unheld(shared_memory() - before)) and time.monotonic() < deadline:
        time.sleep(0.1)  # others make some and give it back while this test looks
    assert lost == set(), "shared memory is given back"


def ended_well_and_quickly(failed: Any, since: float) -> None:
    """The run is over, its folder says so, and none of its processes is left."""
    assert failed.result.status == "failed"
    print(f"{failed.ended - since:.1f} s from the cause to the end of the run")
    assert failed.ended - since < SECONDS
    assert failed.events[-1]["kind"] == "run_ended"
    assert failed.events[-1]["cause"] == failed.result.cause
    info = runs.inspect(failed.result.folder)
    assert (info.status, info.cause) == ("failed", failed.result.cause)
    assert not ray.is_initialized()
    assert not [
        p.name() for p in psutil.Process().children(recursive=True) if "ray" in p.name() or "raylet" in p.name()
    ]


@pytest.mark.ray
def test_a_reward_that_raises(task: Any, run: Callable[..., Any], tmp_path: Path) -> None:
    reward = tmp_path / "breaks.py"
    reward.write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    if extra_info['split'] == 'train':\n"
        "        raise KeyError('unit_tests')\n"
        "    return 0.0\n"
    )
    rewards = [{"type": "function", "name": "checker", "path": str(reward), "workers": 1, "on_error": "stop"}]
    told = tmp_path / "told"
    settings = {"on_failure": f'echo "$RLCTL_STATUS $RLCTL_ERROR" > {told}', "on_end": f"touch {tmp_path}/ended"}
    began: list[float] = []

    def watch(event: dict[str, Any]) -> None:
        if event["kind"] == "phase" and event["name"] == "reward":
            began.append(time.monotonic())

    config = task.config(tmp_path, run={"name": "raises", "folder": str(tmp_path), **settings}, rewards=rewards)
    failed = run(config, watch=watch)
    ended_well_and_quickly(failed, began[0])
    assert failed.failure["actor"] == "reward-0"
    message = failed.failure["message"]
    assert "the reward 'checker' failed on a response to prompt" in message
    assert "KeyError: 'unit_tests'" in message
    assert f'File "{reward}", line 3' in message
    assert "prompt: <user>" in message
    assert failed.failure["traceback"] == "", "an error of the user's code shows the user's traceback only"
    assert told.read_text().startswith("failed reward-0: the reward 'checker' failed")
    assert not (tmp_path / "ended").exists()


@pytest.mark.soak  # how a run ends on what a reward did is tested above, its time limit in test_reward.py
@pytest.mark.ray
def test_a_reward_that_hangs(task: Any, run: Callable[..., Any], tmp_path: Path) -> None:
    reward = tmp_path / "hangs.py"
    reward.write_text("import time\ndef compute_score(**kwargs):\n    time.sleep(3600)\n")
    rewards = [{"type": "function", "path": str(reward), "timeout": 1.0, "workers": 1, "on_error": "stop"}]
    began: list[float] = []

    def watch(event: dict[str, Any]) -> None:
        if event["kind"] == "phase" and event["name"] == "reward":
            began.append(time.monotonic())

    config = task.config(tmp_path, rewards=rewards, schedule={"evaluate_at_start": False, "total_steps": 1})
    failed = run(config, watch=watch)
    ended_well_and_quickly(failed, began[0])
    assert "took longer than 1 s" in failed.failure["message"]


def a_process_of_rays() -> subprocess.Popen[bytes]:
    """What is known for one by its arguments, and does not end by itself."""
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "/ray/gcs_server"])


def test_a_ray_that_does_not_come_up_leaves_no_process(
    task: Any, run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def comes_up_half(**arguments: Any) -> None:
        started.append(a_process_of_rays())
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", comes_up_half)
    failed = run(task.config(tmp_path, objective="sft"))
    assert "Ray failed to start: The current node timed out" in failed.result.cause
    assert [process.wait(5) for process in started] == [-signal.SIGKILL] * 2, "a busy machine may be too slow once"


def test_ctrl_c_while_ray_comes_up_leaves_no_process(
    task: Any, run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def is_slow(**arguments: Any) -> None:
        started.append(a_process_of_rays())
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(600)

    monkeypatch.setattr(ray, "init", is_slow)
    assert run(task.config(tmp_path, objective="sft")).result.status == "stopped"
    assert [process.wait(5) for process in started] == [-signal.SIGKILL]


MISSING = {
    "model": ({"model": {"path": "/nowhere/model"}}, "/nowhere/model"),
    "training data": ({"data": {"train": [{"path": "/nowhere/train.parquet"}]}}, "/nowhere/train.parquet"),
    "held-out data": ({"data": {"eval": [{"path": "/nowhere/test.parquet"}]}}, "/nowhere/test.parquet"),
    "reward": ({"rewards": [{"type": "function", "path": "/nowhere/reward.py"}]}, "/nowhere/reward.py"),
}


@pytest.mark.parametrize("what", MISSING)
def test_a_missing_file_of_any_stage_ends_the_run_before_ray_starts(
    task: Any, run: Callable[..., Any], tmp_path: Path, what: str
) -> None:
    from rlctl.config import combine

    changes, path = MISSING[what]
    rl = task.config(tmp_path)
    data = (
        {"data": {"train": [{"path": str(task.folder / "train.parquet")}], **changes["data"]}}
        if "data" in changes
        else {}
    )
    broken = task.config(tmp_path, **{**changes, **data})
    failed = run(combine([("good", rl), ("broken", broken)]))
    assert failed.result.status == "failed"
    assert path in failed.failure["message"]
    assert failed.failure["stage"] == "broken"
    assert {event["name"] for event in failed.kinds("phase")} == {"read"}, "no worker is started"
    assert "Traceback" not in failed.result.cause + failed.failure["traceback"]


@pytest.mark.ray
def test_a_worker_that_is_killed_is_named_and_not_the_one_that_waits_for_it(
    task: Any, whole: Any, run: Callable[..., Any], tmp_path: Path
) -> None:
    killed: list[float] = []

    def kill_one(event: dict[str, Any]) -> None:
        if event["kind"] == "phase" and event["name"] == "train" and event["step"] == 1:
            worker("policy-1").kill()
            killed.append(time.monotonic())

    config = task.config(tmp_path, objective="sft", placement={"devices_per_node": 2, "device": "cpu"})
    failed = run(config, watch=kill_one)
    ended_well_and_quickly(failed, killed[0])
    assert failed.failure["actor"] == "policy-1"
    assert "its process died" in failed.failure["message"]
    one, two = whole.numbers[("sft step", 1)], failed.numbers[("main step", 1)]
    for name in ("policy/loss", "policy/grad_norm"):
        assert two[name] == pytest.approx(one[name], rel=1e-5), "two workers compute what one does"
    assert read_checkpoint(failed.result.folder / "checkpoints" / "main" / "step-000001") is not None


@pytest.mark.ray
@pytest.mark.timeout(900)
def test_a_run_whose_workers_are_killed_ends_as_the_one_whose_were_not(
    task: Any, whole: Any, run: Callable[..., Any], tmp_path: Path
) -> None:
    """A rollout engine and a reward worker are replaced; a training worker takes its stage back to the last checkpoint."""
    victims = {("rollout", 1): "rollout-0", ("reward", 1): "reward-0", ("train", 2): "policy-0"}

    def kill(event: dict[str, Any]) -> None:
        victim = (
            event["kind"] == "phase" and event["stage"] == "grpo" and victims.get((event["name"], event.get("step")))
        )
        if victim:
            del victims[event["name"], event["step"]]
            worker(victim).kill()

    settings = {"name": "demo", "folder": str(tmp_path), "seed": 7, "max_restarts": 1}
    survived = run(task.two_stages(tmp_path, run=settings), watch=kill)
    assert survived.result.status == "finished", survived.result.cause
    assert not victims
    told = [event["message"] for event in survived.kinds("advisory") if "its process died" in event["message"]]
    assert [message.split(":")[0] for message in told] == ["rollout-0", "reward-0", "policy-0"]
    assert told[-1].endswith("the stage restarts from its last checkpoint (restart 1 of 1)")
    assert [event["step"] for event in survived.kinds("resumed")] == [2]
    assert survived.numbers == whole.numbers
    for stage in ("sft", "grpo"):
        exported = f"checkpoints/{stage}/hf/model.safetensors"
        assert (survived.result.folder / exported).read_bytes() == (whole.result.folder / exported).read_bytes()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for one checkpoint and a half."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("file systems cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.ray
def test_a_full_disk(task: Any, run: Callable[..., Any], small_disk: Path, tmp_path: Path) -> None:
    began: list[float] = []

    def watch(event: dict[str, Any]) -> None:
        if event["kind"] == "phase" and event["name"] == "save":
            began.append(time.monotonic())

    checkpoint = {"every": 1, "folder": str(small_disk)}
    failed = run(task.config(tmp_path, objective="sft", checkpoint=checkpoint), watch=watch)
    ended_well_and_quickly(failed, began[-1])
    assert "the checkpoint of step 2 could not be written" in failed.failure["message"]
    assert "the disk is full" in failed.failure["message"]
    assert "earlier checkpoints are complete" in failed.failure["hint"]
    place = small_disk / "demo" / "main"
    assert read_checkpoint(place / "step-000001") is not None
    assert not (place / "step-000002").exists()


def test_a_folder_that_cannot_be_written(task: Any, run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written: Not a directory") as refused:
        run(task.config(tmp_path / "file"))
    assert "run.folder" in refused.value.hint


@pytest.mark.ray
@pytest.mark.soak
def test_runs_at_the_same_time_and_other_rays_do_not_meet(
    task: Any, run: Callable[..., Any], session: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    config = task.config(tmp_path / "one", objective="sft", schedule={"total_steps": 1})
    elsewhere = {"RAY_ADDRESS": "127.0.0.1:1"}
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(session, config, env=elsewhere)
        here = run(task.config(tmp_path / "two", objective="sft", schedule={"total_steps": 1}))
        there = beside.result()
    assert here.result.status == "finished"
    assert there.out.splitlines()[-1:] == ["ended finished"], there.err
    assert there.survivors() == []


RAYS = {"gcs_server": "Ray's head died (gcs_server, ", "raylet": "Ray's node process died (raylet, "}
MOMENTS = {"at work": ("phase", "grpo", 2, "train"), "while workers are started": ("phase", "grpo", None, "start")}


@pytest.mark.soak  # what notices it is tested in processes/test_ray_health.py
@pytest.mark.ray
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", RAYS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_process_of_ray_that_is_killed(
    task: Any, whole: Any, run: Callable[..., Any], session: Callable[..., Any], tmp_path: Path, name: str, moment: str
) -> None:
    """It is told as such, and the run goes on from its checkpoint to the same weights."""
    config = task.two_stages(tmp_path)
    ended = session(config, at=MOMENTS[moment], to=name)
    print(f"{ended.seconds:.1f} s from the cause to the end of the run")
    assert ended.seconds < SECONDS
    assert ended.survivors() == []
    info = runs.inspect(runs.folder_of(config))
    assert info.status == "failed"
    assert info.cause.startswith(RAYS[name])
    assert "killed by SIGKILL" in info.cause
    events = events_of(info.folder)
    (failure,) = (event for event in events if event["kind"] == "failure")
    assert (failure["actor"], events[-1]["kind"]) == ("ray", "run_ended")
    resumed = run(config)
    assert resumed.result.status == "finished", resumed.result.cause
    exported = "checkpoints/grpo/hf/model.safetensors"
    assert (resumed.result.folder / exported).read_bytes() == (whole.result.folder / exported).read_bytes()
