"""Runs on a cluster that is there already: joined by its address, and as jobs that travel with rlctl, their config and their code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rlctl
from rlctl import runs
from rlctl.cluster.jobs import JobServer
from rlctl.common.errors import RunError
from rlctl.config import Config, Loaded, to_file
from rlctl.documents import write_yaml

pytestmark = pytest.mark.ray
CODE = "from helper import score\n\ndef compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return score(solution_str)\n"


@dataclass(frozen=True)
class ThreeNodes:
    """A cluster with real Ray processes for three nodes of one core each."""

    address: str
    jobs: str


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreeNodes]:
    import ray
    from ray.cluster_utils import Cluster

    before = {name: os.environ.get(name) for name in ("PATH", "RAY_ADDRESS")}
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": True, "dashboard_port": 0})
    for _ in range(2):
        made.add_node(num_cpus=1)
    made.wait_for_nodes()
    context = ray.init(address=made.address, log_to_driver=False, logging_level="error")
    jobs = f"http://{context.dashboard_url}"
    ray.shutdown()
    yield ThreeNodes(made.address, jobs)
    made.shutdown()
    for name, value in before.items():
        os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)


def spread(task: Any, folder: Path, **changes: Any) -> Config:
    """A run with a worker of each role on every node."""
    changes = {"placement": {"nodes": 3, "devices_per_node": 1, "device": "auto"}, **changes}
    changes["batch"] = {"prompts_per_step": 6, "responses_per_prompt": 2}
    config: Config = task.config(folder, schedule={"total_steps": 2, "evaluate_every": None}, **changes)
    return config


@pytest.mark.soak
def test_an_attached_run_has_workers_on_every_node(cluster: ThreeNodes, task: Any, run: Any, tmp_path: Path) -> None:
    nodes: set[str] = set()

    def watch(event: dict[str, Any]) -> None:
        if event["kind"] == "step":
            from ray.util.state import list_actors

            found = list_actors(filters=[("state", "=", "ALIVE"), ("class_name", "=", "Host")], limit=100)
            nodes.update(actor.node_id for actor in found)

    address = {"ray": {"address": cluster.address}}
    ran = run(spread(task, tmp_path, runtime=address, profiling={"ray_timeline": True}), watch=watch)
    assert ran.result.status == "finished", ran.result.cause
    assert len(nodes) == 3
    assert (ran.result.folder / "ray_timeline.json").stat().st_size > 1000
    plan = runs.prepare(Loaded(spread(task, tmp_path, runtime=address)))
    assert plan.device == "cpu", "auto is what the cluster has"


@pytest.mark.soak
def test_what_is_missing_is_told_while_a_run_waits(cluster: ThreeNodes, task: Any, run: Any, tmp_path: Path) -> None:
    placement = {"nodes": 4, "devices_per_node": 1, "device": "cpu"}
    runtime = {"ray": {"address": cluster.address, "startup_timeout": 8}}
    ran = run(task.config(tmp_path, placement=placement, runtime=runtime))
    assert ran.result.status == "failed"
    assert "1 CPU are missing: the cluster's 3 nodes have 3" in ran.result.cause
    assert any("waiting for devices, 8 s at most" in event["message"] for event in ran.kinds("advisory"))


def command(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """``rlctl`` in a process and a working folder of its own."""
    path = str(Path(rlctl.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-m", "rlctl", *words],
        cwd=folder, capture_output=True, text=True, timeout=400, check=False, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


@pytest.mark.soak
def test_a_job_is_submitted_followed_stopped_and_resumed(cluster: ThreeNodes, task: Any, tmp_path: Path) -> None:
    """Its code is gone from the machine that submitted it when it is resumed."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "helper.py").write_text("def score(text):\n    return {'score': 1.0, 'acc': text[:1] == '1'}\n")
    (code / "reward.py").write_text(CODE)
    config = spread(task, tmp_path / "shared", run={"max_steps_this_session": 1})
    plain = to_file(config) | {"rewards": [{"type": "function", "path": "reward.py", "workers": 1}]}
    (code / "run.yaml").write_text(write_yaml(plain))
    first = command("launch", "run.yaml", "--address", cluster.jobs, folder=code)
    assert first.returncode == 3, first.stderr
    assert "0/helper.py, 0/reward.py" in first.stderr
    assert "main: step 1/2" in first.stderr
    for file in code.iterdir():
        file.unlink()
    server = JobServer(cluster.jobs)
    job = server.find("demo")
    assert (job.status, job.folder) == ("stopped", str(tmp_path / "shared" / "demo"))
    second = command("runs", "resume", "demo", "--address", cluster.jobs, folder=tmp_path)
    assert second.returncode == 0, second.stderr
    assert "resumed at step 1" in second.stderr
    listed = command("runs", "list", "--address", cluster.jobs, folder=tmp_path).stdout
    assert [line.split()[:2] for line in listed.splitlines()[2:]] == [["demo", "finished"], ["demo", "stopped"]]
    refused = command("runs", "stop", "demo", "--address", cluster.jobs, folder=tmp_path)
    assert (refused.returncode, "is not running" in refused.stderr) == (1, True)


def test_a_command_runs_on_a_cluster_with_the_rlctl_of_here(tmp_path: Path) -> None:
    """What all commands on jobs are made of, on the smallest cluster that has a job server."""
    import ray

    os.environ.pop("RAY_ADDRESS", None)
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{path}"
    context = ray.init(address="local", num_cpus=1, include_dashboard=True, dashboard_port=0, log_to_driver=False)
    try:
        server = JobServer(f"http://{context.dashboard_url}")
        said: list[str] = []
        (tmp_path / "there.txt").write_text("travelled")
        show = "import os, rlctl; print(open('there.txt').read(), os.environ['MINE'], '_ray_pkg' in rlctl.__file__)"
        identity = server.submit(
            ["python", "-c", show], run="demo", folder="/shared/demo", directory=tmp_path, variables={"MINE": "passed"}
        )
        ended = server.follow(identity, said.append)
        assert "travelled passed True" in "".join(said)
        assert (ended.status, ended.exit_code) == ("finished", 0)
        assert [job.id for job in server.jobs()] == [identity]
        assert server.find("/shared/demo/").id == server.find("demo").id == identity
        with pytest.raises(RunError, match="no job for a run 'dema'"):
            server.find("dema")
        with pytest.raises(RunError, match=r"failed on http\S+: error: there is no run 'nothing'"):
            server.ask(["python", "-m", "rlctl", "runs", "stop", "nothing"])
    finally:
        ray.shutdown()
        os.environ["PATH"] = path
    with pytest.raises(RunError, match="cannot be used"):
        JobServer(server.url)
