"""A tiny task for runs with real Ray, the configs that run on it, and a way to run them in a process that may be killed."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rlctl import runs
from rlctl.config import Config, Loaded, combine, config_from, to_plain
from tests.runtime.told import numbers_of
from tests.runtime.train.processes import Workers

DRIVER = Path(__file__).with_name("drive.py")
REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": float(solution_str[:1] == "1"), "acc": solution_str[:1] == "1"}
"""


@dataclass(frozen=True)
class Task:
    """Model, data and reward of a task, as files."""

    folder: Path

    def config(self, runs_folder: Path, *, objective: str = "rl", **changes: dict[str, Any]) -> Config:
        """A config of a few short steps; ``changes`` go over its sections, key by key."""
        sft = objective == "sft"
        source = {"path": str(self.folder / ("sft.parquet" if sft else "train.parquet"))}
        base: dict[str, dict[str, Any]] = {
            "run": {"name": "demo", "folder": str(runs_folder), "seed": 7},
            "model": {"path": str(self.folder / "model")},
            "placement": {"devices_per_node": 1, "device": "cpu"},
            "data": {"train": [source | ({"messages_key": "messages"} if sft else {})], "max_prompt_tokens": 16},
            "batch": {"prompts_per_step": 8, "micro_batch": {"unit": "responses", "size": 8}},
            "schedule": {"total_steps": 3, "evaluate_every": 2},
            "algorithm": {"objective": objective},
            "checkpoint": {"every": 1},
            "train": {
                "precision": {"compute": "float32"},
                "memory": {"recompute_activations": False},
                "optimizer": {"lr": 1e-3},
            },
        }
        if sft:
            base["data"]["max_sequence_tokens"] = 32
        else:
            base["batch"] |= {"prompts_per_step": 4, "responses_per_prompt": 4}
            base["data"]["eval"] = [{"path": str(self.folder / "test.parquet"), "name": "addition"}]
            base["rollout"] = {"max_response_tokens": 4, "precision": "float32"}
        plain: dict[str, Any] = {**base, **({} if sft else {"rewards": [self.reward()]})}
        for section, values in changes.items():
            plain[section] = {**plain.get(section, {}), **values} if isinstance(values, dict) else values
        return config_from(plain)

    def reward(self, **settings: Any) -> dict[str, Any]:
        return {"type": "function", "path": str(self.folder / "reward.py"), "workers": 1, **settings}

    def two_stages(self, runs_folder: Path, **changes: dict[str, Any]) -> Config:
        """SFT, then RL from its weights."""
        sft = self.config(runs_folder, objective="sft", **changes)
        return combine([("sft", sft), ("grpo", self.config(runs_folder, **changes))])


@pytest.fixture(scope="session", autouse=True)
def no_orphans() -> Iterator[None]:
    """Fails if a process that a test started, or one that it started, is still there when the tests have ended."""
    mark = uuid.uuid4().hex
    os.environ[SESSION_MARK] = mark
    yield
    del os.environ[SESSION_MARK]
    gc.unfreeze()  # what is frozen is not collected
    gc.collect()
    deadline = time.monotonic() + 20
    while (left := _left(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left, f"tests left processes behind: {left}"


def _left(mark: str) -> list[str]:
    """Marked processes but those that end with this one: multiprocessing's that tracks memory and that forks workers, and
    torch's that keep memory under names and that compile."""
    own = ("resource_tracker", "multiprocessing.forkserver", "torch_shm_manager", "_inductor/compile_worker")
    return [command for command in marked(mark, SESSION_MARK) if not any(name in command for name in own)]


SESSION_MARK = "RLCTL_TEST_SESSION"


@pytest.fixture(scope="session")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    """The quickstart's model, untrained, and a part of its data."""
    from datasets import Dataset

    from rlctl.runtime.quickstart import make_quickstart

    made, folder = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("task")
    make_quickstart(made, seed=1)
    (made / "model").rename(folder / "model")
    for name, rows in (("sft", 64), ("train", 64), ("test", 16)):
        whole = Dataset.from_parquet(str(made / f"{name}.parquet"), cache_dir=str(made))
        whole.select(range(rows)).to_parquet(folder / f"{name}.parquet")
    (folder / "reward.py").write_text(REWARD)
    return Task(folder)


@dataclass
class Ran:
    """A run in this process and what it told."""

    result: runs.RunResult
    events: list[dict[str, Any]]
    ended: float = field(default_factory=time.monotonic)

    def kinds(self, *kinds: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] in kinds]

    @property
    def failure(self) -> dict[str, Any]:
        found = self.kinds("failure")
        assert len(found) == 1, found
        return found[0]

    @property
    def numbers(self) -> dict[tuple[str, int], dict[str, float]]:
        return numbers_of(self.events)


@pytest.fixture(scope="session")
def run() -> Callable[..., Ran]:
    """Run a config in this process; ``watch`` sees every event."""

    def start(config: Config, *, watch: Callable[[dict[str, Any]], None] = lambda event: None, **more: Any) -> Ran:
        loaded = Loaded(config, **more)
        events: list[dict[str, Any]] = []

        def observe(event: dict[str, Any]) -> None:
            events.append(event)
            watch(event)

        return Ran(runs.start(loaded, plan=runs.prepare(loaded), observer=observe), events)

    return start


@pytest.fixture(scope="session")
def run_without_ray() -> Callable[..., Ran]:
    """Run a config with one worker of each role, all in this process."""
    from tests.runtime.local import launch_here

    def start(config: Config, **how: Any) -> Ran:
        events: list[dict[str, Any]] = []
        return Ran(launch_here(config, events.append, **how), events)

    return start


@pytest.fixture(scope="session")
def whole(task: Task, run: Callable[..., Ran], tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A run of sft and grpo that nothing disturbed."""
    return run(task.two_stages(tmp_path_factory.mktemp("whole")))


@dataclass
class Session:
    """A run in a process of its own, and every process that came of it."""

    process: subprocess.Popen[str]
    mark: str
    out: str = ""
    err: str = ""
    sent: float = 0.0
    """When the signal was sent; when the process started, where there was none."""
    seconds: float = 0.0
    """From then to the end of the process."""

    def survivors(self, within: float = 10.0) -> list[str]:
        """Processes of the run that are still there after so many seconds."""
        deadline = time.monotonic() + within
        while True:
            found = marked(self.mark)
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.1)


def marked(mark: str, variable: str = "RLCTL_TEST_MARK") -> list[str]:
    """Processes that were started with a mark in their environment, or by such a one."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(variable) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


@pytest.fixture
def session(tmp_path: Path) -> Callable[..., Session]:
    """Run a config in a process group of its own.

    ``at`` is (kind, stage, step, phase) of the event at which ``send`` is sent: SIGKILL to the process, others to its group, as
    a terminal does, ``times`` times. ``after`` is how many seconds after the event. ``to`` names children of the process that
    are killed instead.
    """

    def go(
        config: Config,
        *,
        at: Sequence[Any] = (),
        send: int = signal.SIGKILL,
        times: int = 1,
        after: float = 0.0,
        to: str = "",
        env: dict[str, str] | None = None,
        within: float = 200,
    ) -> Session:
        mark = uuid.uuid4().hex
        order = tmp_path / f"{mark}.json"
        told = {"at": list(at), "send": int(send), "times": times, "after": after, "to": to}
        order.write_text(json.dumps({"config": to_plain(config), **told}))
        process = subprocess.Popen(
            [sys.executable, str(DRIVER), str(order)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "RLCTL_TEST_MARK": mark, **(env or {})},
        )
        found = Session(process, mark)
        began = time.time()
        found.out, found.err = process.communicate(timeout=within)
        sent = [float(line.split()[1]) for line in found.out.splitlines() if line.startswith("sent ")]
        found.sent = sent[0] if sent else began
        found.seconds = time.time() - found.sent
        return found

    return go


@pytest.fixture(scope="session")
def one() -> Iterator[Workers]:
    """One gloo process that does what tests of the session give it."""
    workers = Workers(1)
    yield workers
    workers.close()


@pytest.fixture(scope="session")
def two() -> Iterator[Workers]:
    """Two of them, in one process group."""
    workers = Workers(2)
    yield workers
    workers.close()
