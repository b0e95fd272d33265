"""User code that hangs, dies or shouts costs its own call and nothing else, and leaves no process behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlctl.common.errors import RunError
from rlctl.runtime.rewards.interface import Call, Failure, Outcome
from rlctl.runtime.rewards.pool import CallPool
from rlctl.runtime.rewards.scorers import FunctionScorer
from tests.waiting import has_ended, until

CODE = """
import os, pathlib, signal, subprocess, sys, threading, time
def start(file, command, **options):
    pathlib.Path(file).write_text(str(subprocess.Popen(command, **options).pid))
def compute_score(data_source, solution_str, ground_truth, extra_info):
    if solution_str == "hang":
        start(ground_truth, ["sleep", "1000"])
        while True: pass
    if solution_str == "escape":
        start(ground_truth, ["sleep", "1000"], start_new_session=True)
        time.sleep(1000)
    if solution_str == "orphan":
        subprocess.run(["sh", "-c", f"sleep 1000 & echo $! > {ground_truth}"])
        time.sleep(1000)
    if solution_str == "daemon":
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                pathlib.Path(ground_truth).write_text(str(os.getpid()))
                time.sleep(1000)
            os._exit(0)
        os.wait()
        return 1.0
    if solution_str == "flood":
        print("x" * (1 << 20), flush=True)
        return 1.0
    if solution_str == "exit": os._exit(7)
    if solution_str == "segfault": os.kill(os.getpid(), signal.SIGSEGV)
    if solution_str == "raise": raise ValueError("bad " + ground_truth)
    if solution_str == "pid": return os.getpid()
    if solution_str == "main": return float(threading.current_thread() is threading.main_thread())
    if solution_str == "fork":
        copy = os.fork()
        return -1.0 if not copy else float(os.waitpid(copy, 0)[0] == copy)
    if solution_str == "later": time.sleep(0.4); return 2.0
    print("noise", solution_str)
    return float(solution_str)
"""


@pytest.fixture
def scorer(tmp_path: Path) -> FunctionScorer:
    (tmp_path / "mine.py").write_text(CODE)
    return FunctionScorer(str(tmp_path / "mine.py"), "compute_score")


def calls(*responses: str) -> list[Call]:
    return [Call("s", response, "truth") for response in responses]


def descendants() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True) if not has_ended(child.pid)}


def test_a_copy_of_its_process_that_comes_back_answers_nothing(scorer: FunctionScorer) -> None:
    """Else its answer would be taken for the one of the next call, and all after it would be moved."""
    with CallPool(scorer, processes=1, timeout=20) as pool:
        assert pool.map(calls("fork", "5", "fork", "6")) == [Outcome(value) for value in (1.0, 5.0, 1.0, 6.0)]


@pytest.mark.parametrize("processes", [1, 3])
def test_results_are_in_order(scorer: FunctionScorer, processes: int) -> None:
    with CallPool(scorer, processes=processes, timeout=10) as pool:
        results = pool.map(calls(*map(str, range(200))))
        assert results == [Outcome(float(i)) for i in range(200)]
        assert pool.map([]) == []


def test_all_processes_work(scorer: FunctionScorer) -> None:
    with CallPool(scorer, processes=3, timeout=10) as pool:
        found = pool.map(calls(*["pid"] * 60))
        assert {int(r.score) for r in found if isinstance(r, Outcome)} == set(pool.pids)


def test_user_code_runs_in_the_main_thread(scorer: FunctionScorer) -> None:
    with CallPool(scorer, processes=1, timeout=10) as pool:
        assert pool.map(calls("main")) == [Outcome(1.0)]


@pytest.mark.parametrize("kind", ["hang", "escape", "orphan"])
def test_a_hanging_call_is_killed_in_time_with_what_it_started(
    scorer: FunctionScorer, kind: str, tmp_path: Path
) -> None:
    before, pid = descendants(), tmp_path / "pid"
    with CallPool(scorer, processes=1, timeout=1.0) as pool:
        stopped = Failure("the call took longer than 1 s and was stopped")
        results = pool.map([*calls("1"), Call("s", kind, str(pid)), *calls("2")])
        assert results == [Outcome(1.0), stopped, Outcome(2.0)]
        until(lambda: has_ended(int(pid.read_text())), "what it started goes on", seconds=10)
        start = time.monotonic()
        assert pool.map([Call("s", kind, str(pid))]) == [stopped]
        assert time.monotonic() - start < 1.0 + 2.0, "in a process that is there already"
    assert descendants() == before
    until(lambda: has_ended(int(pid.read_text())), "what it started goes on", seconds=10)


def test_every_call_has_the_whole_limit(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\ndef compute_score(**kwargs):\n    time.sleep(0.9)\n    return 1")
    with CallPool(FunctionScorer(str(tmp_path / "slow.py"), "compute_score"), processes=1, timeout=2.5) as pool:
        assert pool.map(calls(*"abc")) == [Outcome(1.0)] * 3


@pytest.mark.parametrize(("kind", "ending"), [("exit", "with status 7"), ("segfault", "by signal SIGSEGV")])
def test_a_process_that_dies_fails_its_call_and_is_replaced(scorer: FunctionScorer, kind: str, ending: str) -> None:
    with CallPool(scorer, processes=1, timeout=10) as pool:
        results = pool.map(calls("1", kind, "2", kind))
        assert [results[0], results[2]] == [Outcome(1.0), Outcome(2.0)]
        assert results[1] == results[3] == Failure(f"the call ended its process {ending}")
        assert pool.map(calls("3")) == [Outcome(3.0)]


def test_a_process_killed_from_outside_between_calls_is_replaced(scorer: FunctionScorer) -> None:
    with CallPool(scorer, processes=1, timeout=10) as pool:
        psutil.Process(pool.pids[0]).kill()
        time.sleep(0.2)
        first, second = pool.map(calls("1", "later"))
        assert isinstance(first, Failure)
        assert second == Outcome(2.0)


def test_stopping_at_a_failure_leaves_the_rest_unanswered(scorer: FunctionScorer) -> None:
    with CallPool(scorer, processes=1, timeout=10) as pool:
        results = pool.map(calls("1", "raise", "hang", "2"), stop_on_failure=True)
        assert isinstance(results[1], Failure)
        assert results[1].message.endswith("ValueError: bad truth")
        assert [r.unanswered for r in results if isinstance(r, Failure)] == [False, True, True]
        assert pool.map(calls("5")) == [Outcome(5.0)]


def test_an_interrupted_batch_does_not_answer_the_next(scorer: FunctionScorer, monkeypatch: pytest.MonkeyPatch) -> None:
    with CallPool(scorer, processes=1, timeout=10) as pool:
        step, seen = pool._step, []

        def interrupted(batch: object) -> None:
            seen.append(1)
            if len(seen) == 2:
                raise KeyboardInterrupt
            step(batch)  # type: ignore[arg-type]

        monkeypatch.setattr(pool, "_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.map(calls(*"123456"))
        assert pool.map(calls("7", "8")) == [Outcome(7.0), Outcome(8.0)]


def test_noise_goes_to_the_log_and_not_to_stdout(
    scorer: FunctionScorer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "reward.log"
    with CallPool(scorer, processes=1, timeout=10, log=log) as pool:
        pool.map(calls("4"))
    with CallPool(scorer, processes=1, timeout=10) as pool:
        pool.map(calls("5"))
    assert "noise 4" in log.read_text()
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_a_daemon_that_a_reward_started_ends_with_it(scorer: FunctionScorer, end: str, tmp_path: Path) -> None:
    """It is a child of no process that could be asked for its children: it left its session, and its parents have ended."""
    pid = tmp_path / "pid"
    with CallPool(scorer, processes=1, timeout=10) as pool:
        assert pool.map([Call("s", "daemon", str(pid))]) == [Outcome(1.0)]
        until(lambda: pid.exists() and pid.read_text(), "the daemon does not run")
        assert not has_ended(int(pid.read_text()))
        if end == "killed":
            psutil.Process(pool.pids[0]).kill()
            until(lambda: has_ended(int(pid.read_text())), "the daemon lives on")
    until(
        lambda: has_ended(int(pid.read_text())), "the daemon outlives the pool"
    )  # a killed process may take a moment to end


def test_a_log_does_not_grow_without_end(
    scorer: FunctionScorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlctl.runtime.rewards.pool.LOG_BYTES", 3 << 20)
    log = tmp_path / "reward.log"
    with CallPool(scorer, processes=2, timeout=10, log=log) as pool:
        pool.map(calls(*["flood"] * 12, "7"))
    sizes = {path.name: path.stat().st_size for path in tmp_path.glob("reward.log*")}
    assert set(sizes) == {"reward.log", "reward.log.1"}
    assert all(size <= 3 << 20 for size in sizes.values())
    assert sum(sizes.values()) > 2 << 20, "what was printed last is kept"


def test_a_scorer_that_cannot_be_loaded_is_told_at_once(tmp_path: Path) -> None:
    before = descendants()
    with pytest.raises(RunError, match="no reward file"):
        CallPool(FunctionScorer(str(tmp_path / "nowhere.py"), "f"), processes=2, timeout=1)
    (tmp_path / "dies.py").write_text("import os\nos._exit(5)")
    with pytest.raises(RunError, match=r"lost while it loaded the reward: it ended its process with status 5"):
        CallPool(FunctionScorer(str(tmp_path / "dies.py"), "f"), processes=1, timeout=1)
    assert descendants() == before


def test_a_scorer_that_loads_too_long_is_told_with_the_limit_of_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlctl.runtime.rewards.pool.LOAD_SECONDS", 0.5)
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(60)")
    with pytest.raises(RunError, match=r"while it loaded the reward: it took longer than 0\.5 s and was stopped"):
        CallPool(FunctionScorer(str(tmp_path / "slow.py"), "f"), processes=1, timeout=7)


def test_an_answer_that_was_in_time_counts_where_it_is_read_late(
    scorer: FunctionScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process answered first, and dealing with its answer took longer than the limit of this one."""
    with CallPool(scorer, processes=2, timeout=1) as pool:
        receive, first = pool._receive, iter([True])

        def slowly(child: Any, batch: Any) -> None:
            if next(first, False):
                time.sleep(1.2)
            receive(child, batch)

        monkeypatch.setattr(pool, "_receive", slowly)
        results = pool.map(calls("1", "later"))
    assert [getattr(result, "score", result) for result in results] == [1.0, 2.0]


def test_children_load_no_torch(tmp_path: Path) -> None:
    text = "import sys\ndef compute_score(**kwargs):\n    return float(any(m in sys.modules for m in ('torch', 'ray', 'datasets')))"
    (tmp_path / "mine.py").write_text(text)
    with CallPool(FunctionScorer(str(tmp_path / "mine.py"), "compute_score"), processes=1, timeout=10) as pool:
        assert pool.map(calls("x")) == [Outcome(0.0)]


def test_children_die_with_a_killed_parent(scorer: FunctionScorer, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom rlctl.runtime.rewards.pool import CallPool\nfrom rlctl.runtime.rewards.interface import Call\n"
        "from rlctl.runtime.rewards.scorers import FunctionScorer\n"
        f"pool = CallPool(FunctionScorer({scorer.path!r}, 'compute_score'), processes=1, timeout=100)\n"
        f"print(pool.pids[0], flush=True)\npool.map([Call('s', 'hang', {str(tmp_path / 'pid')!r})])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    while not (family := child.children()):
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs([child, *family], timeout=5)
    assert not [process for process in alive if not has_ended(process.pid)]
