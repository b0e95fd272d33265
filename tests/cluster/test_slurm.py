"""The batch script asks for what the plan needs, starts Ray on its nodes, and is put back into the queue when its time is over.

Slurm itself is not here: ``srun``, ``scontrol``, ``ray`` and ``rlctl`` are small programs that write down how they are called;
this ``ray`` is healthy as soon as its head has started, which may be a while after the script has asked for it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlctl.cluster.machines import Machines
from rlctl.cluster.slurm import Batch, duration, script
from rlctl.common.terminal import UNSEEN_IN_LINE
from rlctl.config import to_plain
from tests.runtime.conftest import marked, task  # noqa: F401 - a fixture
from tests.waiting import until

CALLED = 'echo "$(basename "$0") $*" >> "$CALLS"\n'
FAKES = {
    "srun": 'for last; do :; done\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n',
    "scontrol": "",
    "ray": 'if [ "$1 $2" = "start --head" ]; then echo $$ > "$CALLS.ray"; fi\n'
    'if [ "$1" = start ]; then exec sleep 60; fi\n'
    'if [ "$1" = health-check ]; then until [ -s "$CALLS.ray" ]; do sleep 0.05; done; fi\n',
    "rlctl": 'if [ "$1" = launch ]; then\n'
    '  for _ in $(seq 100); do [ -e "$RUN/stop" ] && exit 3; [ -e "$RUN/end" ] && exit $(cat "$RUN/end"); sleep 0.1; done\n'
    'elif [ "$2" = stop ]; then touch "$3/stop"; fi\n',
}  # fmt: skip


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    for name, body in FAKES.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/bash\n" + CALLED + body)
        path.chmod(0o700)
    (tmp_path / "work dir").mkdir()
    return Batch(
        run="my run",
        folder=str(tmp_path / "run's"),
        machines=Machines(3, "cuda", 8, 16),
        launch=["rlctl", "launch", "a b.yaml", "--set", "x=[1, 2]", "--address", "auto"],
        directory=str(tmp_path / "work dir"),
        path=str(tmp_path / "bin"),
        seconds=3600,
        options=["--partition=gpu"],
        setup=["export MODULE=cuda"],
    )


class Started:
    """The script as Slurm runs it, on the first of three nodes."""

    temp_mode = 0
    """Who may read the folder that Ray was given."""

    def __init__(self, batch: Batch, tmp_path: Path) -> None:
        path = tmp_path / "run.sbatch"
        path.write_text(script(batch))
        self.run, self.calls = Path(batch.folder), tmp_path / "calls"
        slurm = {
            "SLURM_JOB_ID": "12345",
            "SLURM_JOB_NUM_NODES": "3",
            "SLURM_CPUS_PER_TASK": "18",
            "SLURMD_NODENAME": "gpu-7",
        }
        self.process = subprocess.Popen(
            ["bash", str(path)],
            env={**os.environ, **slurm, "CALLS": str(self.calls), "RUN": batch.folder, "RLCTL_HEAD_IP": "10.0.0.1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def called(self, start: str) -> list[str]:
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return [line for line in lines if line.startswith(start)]

    def await_call(self, start: str) -> None:
        until(lambda: self.called(start), f"{start!r} was not called")

    def ended(self) -> int:
        self.process.communicate(timeout=30)
        for temp in set(re.findall(r"--temp-dir=(\S+)", "".join(self.called("ray start --head")))):
            self.temp_mode = Path(temp).stat().st_mode & 0o777
            Path(temp).rmdir()
        return self.process.returncode


def test_it_asks_for_what_the_plan_needs(batch: Batch) -> None:
    asked = [line.removeprefix("#SBATCH ") for line in script(batch).splitlines() if line.startswith("#SBATCH ")]
    assert asked == [
        *(
            "--job-name=my_run",
            "--nodes=3",
            "--ntasks-per-node=1",
            "--cpus-per-task=18",
            "--mem=0",
            "--gpus-per-node=8",
        ),
        *("--time=01:10:00", "--signal=B:USR1@600", "--requeue", "--open-mode=append", "--partition=gpu"),
    ]
    on_cpu = script(replace(batch, machines=Machines(1, "cpu", 4, 4), seconds=None))
    assert "--gpus-per-node" not in on_cpu
    assert "--time" not in on_cpu


@pytest.mark.parametrize(("seconds", "text"), [(1, "00:01:00"), (3600, "01:00:00"), (90061, "1-01:02:00")])
def test_time_is_written_as_slurm_reads_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("authenticate", [True, False])
def test_bash_reads_it(batch: Batch, authenticate: bool) -> None:
    text = script(replace(batch, authenticate=authenticate))
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    assert ("RAY_AUTH_MODE=token" in text) is authenticate


def test_ray_is_on_every_node_and_the_run_on_it(batch: Batch, tmp_path: Path) -> None:
    job = Started(batch, tmp_path)
    job.await_call("rlctl launch")
    job.await_call("ray start --address")
    (job.run / "end").write_text("0")
    assert job.ended() == 0
    head, others = job.called("ray start")
    assert "--head --node-ip-address=10.0.0.1 --port=22345 --num-cpus=16 --num-gpus=8" in head
    assert others == "ray start --address=10.0.0.1:22345 --num-cpus=16 --num-gpus=8 --block"
    steps = job.called("srun")
    assert [re.findall(r"--nodes=(\d)", step) for step in steps] == [["1"], ["2"]]
    assert "--nodelist=gpu-7 " in steps[0]
    assert "--exclude=gpu-7 " in steps[1]
    assert job.called("rlctl") == [f"rlctl {' '.join(batch.launch[1:])}"]
    assert job.called("scontrol") == []
    (temp,) = re.findall(r"--temp-dir=(/tmp/ray-12345-\w{6})(?: |$)", head)
    assert job.temp_mode == 0o700
    assert f" {temp} ray start" in steps[1]
    token = job.run / "ray-token"
    assert re.fullmatch("[0-9a-f]{64}", token.read_text())
    assert token.stat().st_mode & 0o777 == 0o600


def test_it_is_requeued_when_its_time_is_over(batch: Batch, tmp_path: Path) -> None:
    job = Started(batch, tmp_path)
    job.await_call("rlctl launch")
    job.process.send_signal(signal.SIGUSR1)
    assert job.ended() == 3
    assert job.called("rlctl runs stop") == [f"rlctl runs stop {batch.folder}"]
    assert job.called("scontrol") == ["scontrol requeue 12345"]


@pytest.mark.parametrize(("code", "stopped", "requeued"), [(3, False, True), (3, True, False), (1, False, False)])
def test_only_a_run_that_is_to_go_on_is_requeued(
    batch: Batch, tmp_path: Path, code: int, stopped: bool, requeued: bool
) -> None:
    """A time limit of the run's own is one of these; somebody's stop and a failure are none."""
    job = Started(batch, tmp_path)
    job.await_call("rlctl launch")
    if stopped:
        (job.run / "stop").touch()
    else:
        (job.run / "end").write_text(str(code))
    assert job.ended() == code
    assert bool(job.called("scontrol requeue")) is requeued


def test_a_ray_that_ends_ends_the_run_and_the_job(batch: Batch, tmp_path: Path) -> None:
    job = Started(batch, tmp_path)
    job.await_call("rlctl launch")
    os.kill(int((tmp_path / "calls.ray").read_text()), signal.SIGKILL)
    said, _ = job.process.communicate(timeout=30)
    assert job.process.returncode == 1
    assert "Ray has ended on" in said
    assert job.called("scontrol") == []


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.timeout(900)
def test_the_run_is_trained_on_a_ray_that_the_script_starts(task: Any, tmp_path: Path) -> None:  # noqa: F811
    """Ray and rlctl are real; ``srun`` starts here what Slurm would start on two nodes: a Ray of two nodes on this machine."""
    programs, mark = tmp_path / "bin", f"slurm-{tmp_path.name}-{os.getpid()}"
    programs.mkdir()
    for name in ("ray", "rlctl"):
        (programs / name).symlink_to(Path(sys.executable).with_name(name))
    for name in ("srun", "scontrol"):
        (programs / name).write_text("#!/bin/bash\n" + CALLED + FAKES[name])
        (programs / name).chmod(0o700)
    spread = {"nodes": 2, "devices_per_node": 1, "device": "cpu"}
    config = task.config(tmp_path, objective="sft", placement=spread, schedule={"total_steps": 2})
    (tmp_path / "run.yaml").write_text(json.dumps(to_plain(config)))
    batch = Batch(
        run="demo",
        folder=str(tmp_path / "demo"),
        machines=Machines(2, "cpu", 1, 1),
        launch=["rlctl", "launch", "run.yaml", "--address", "auto"],
        directory=str(tmp_path),
        path=str(programs),
    )
    (tmp_path / "run.sbatch").write_text(script(batch))
    slurm = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_PER_TASK": "1"}
    here = {"RLCTL_HEAD_IP": "127.0.0.1", "CALLS": str(tmp_path / "calls"), "RLCTL_TEST_MARK": mark}
    done = subprocess.run(
        ["bash", str(tmp_path / "run.sbatch")],
        env={**os.environ, **slurm, **here}, capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    events = [json.loads(line) for line in (tmp_path / "demo" / "events.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events if event["kind"] == "step"] == [1, 2]
    assert events[-1]["status"] == "finished"
    assert [len(re.findall("ray start", line)) for line in (tmp_path / "calls").read_text().splitlines()] == [1, 1]
    deadline = time.monotonic() + 30
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == [], "Ray ends with the job"


HOSTILE = (
    "x\ntouch {mark} #",
    "x'; touch {mark}; '",
    "$(touch {mark})",
    "x\r\x1b]0;t\x07\n#SBATCH --uid=0\ntouch {mark}",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_config_or_a_path_is_run(batch: Batch, tmp_path: Path, text: str) -> None:
    hostile = text.format(mark=tmp_path / "mark")
    written = script(
        replace(batch, run=hostile, folder=hostile, directory=str(tmp_path), path=hostile, launch=["true", hostile])
    )
    head, _, body = written.partition("set -u")
    assert all(line.startswith("#") for line in head.strip().splitlines())
    assert not any(line.startswith("#SBATCH --uid") for line in head.splitlines())
    only_launch = "\n".join(line for line in body.splitlines() if line.startswith(("export PATH", "run=", "true ")))
    subprocess.run(["bash", "-c", f"{only_launch}\nwait"], cwd=tmp_path, timeout=30, check=False)
    subprocess.run(["bash", "-n"], input=written, text=True, check=True)
    assert not (tmp_path / "mark").exists()
    assert UNSEEN_IN_LINE.search(written.replace("\n", "")) is None
