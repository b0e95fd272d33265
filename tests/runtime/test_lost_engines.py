"""An engine that is lost while responses are under way: another takes its place, and no prompt is lost or trained on twice.

Its end and its replacement are those that ``RayGroup`` makes of a process that died; what Ray adds is in the last test.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlctl.config import Config
from rlctl.runtime.buffers.sql import SqlBuffer
from rlctl.runtime.processes.calls import WorkerLost
from rlctl.runtime.processes.group import LocalGroup, RetryPolicy
from rlctl.runtime.schedules.exploration import Exploration
from rlctl.runtime.specs.served import rollout_spec
from rlctl.runtime.workers.rollout import RolloutWorker

from . import local
from .conftest import Ran, Task
from .local import Seen, run_here
from .test_failures import worker
from .test_schedules import config_of, steps, unlike


class Mortal(LocalGroup):
    """A rollout worker that dies at some of the calls that collect responses, with all that is under way in it."""

    def __init__(self, worker: Any, make: Callable[[], Any], deaths: Collection[int]) -> None:
        super().__init__("rollout-0", worker)
        self._make, self._deaths, self.streamed = make, set(deaths), 0

    def each(
        self, method: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], *, again: RetryPolicy | None = None
    ) -> list[Any]:
        if method is RolloutWorker.collect:
            self.streamed += 1
            if self.streamed in self._deaths:
                assert again is not None, "who streams may be replaced"
                self._worker.close()
                self._worker = self._make()
                again.tell(WorkerLost("rollout-0: its process died", actor="rollout-0"))
                again.renew(0)
        return super().each(method, arguments, again=again)


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Callable[[Config, Collection[int]], list[Mortal]]:
    """Lets the rollout workers of later runs of a config die at some of their calls; those workers."""

    def arrange(config: Config, deaths: Collection[int]) -> list[Mortal]:
        made: list[Mortal] = []

        def group(name: str, member: Any) -> LocalGroup:
            if name != "rollout":
                return LocalGroup(name, member)
            fresh = lambda: RolloutWorker(rollout_spec(config, "transformers", config.model.path, "cpu"))  # noqa: E731
            made.append(Mortal(member, fresh, deaths))
            return made[-1]

        monkeypatch.setattr(local, "LocalGroup", group)
        return made

    return arrange


def told(seen: Seen) -> list[str]:
    return [
        event["message"] for event in seen if event["kind"] == "advisory" and "starts a replacement" in event["message"]
    ]


FEW_AT_A_TIME = {"max_response_tokens": 8, "precision": "float32", "max_running_prompts": 2}


def test_a_lost_engine_changes_no_number(task: Task, tmp_path: Path, dying: Any) -> None:
    """Where all are waited for: the prompts are rolled out again with the same seeds by the same weights."""
    config = config_of(
        task,
        tmp_path,
        schedule={"total_steps": 3},
        rollout={**FEW_AT_A_TIME, "timeouts": {"retries": 3}},  # on a busy machine all three may hit the same prompt
        reward_loop={"overlap_with_rollout": True},
    )
    whole = run_here(config, tmp_path / "whole")
    group = dying(config, (1, 2, 5))
    survived = run_here(config, tmp_path / "survived")
    assert group[0].streamed > 5
    assert len(told(survived)) == 3
    assert [*steps(whole)] == [1, 2, 3]
    differing = {name for _, name in unlike(steps(survived), steps(whole))}
    assert differing <= {"rollout/again_prompts"}, "that requests were made again is told"
    shown = [[group for e in seen if e["kind"] == "samples" for group in e["samples"]] for seen in (whole, survived)]
    assert shown[0] == shown[1]


@pytest.mark.parametrize("in_flight", ["continue", "wait", pytest.param("abort", marks=pytest.mark.soak)])
def test_a_lost_engine_while_rollout_is_ahead_loses_and_doubles_nothing(
    task: Task, tmp_path: Path, dying: Any, monkeypatch: pytest.MonkeyPatch, in_flight: str
) -> None:
    trained: list[int] = []
    take = Exploration.take

    def recorded(self: Exploration, step: int, phase: Any) -> Any:
        explored = take(self, step, phase)
        trained.extend(group.prompt.index for group in explored.kept)
        assert all(len(group.responses) == 4 for group in explored.kept)
        return explored

    monkeypatch.setattr(Exploration, "take", recorded)
    config = config_of(
        task,
        tmp_path,
        weight_sync={
            "max_steps_ahead": 2,
            "max_staleness_steps": 3,
            "on_stale": "keep",
            "in_flight_requests": in_flight,
        },
        schedule={"total_steps": 5},
        rollout=FEW_AT_A_TIME,
    )
    groups = dying(config, (1, 3, 4, 9, 12))
    seen = run_here(config, tmp_path / "run")
    assert groups[0].streamed >= 12
    assert len(told(seen)) == 5
    assert [*steps(seen)] == [1, 2, 3, 4, 5]
    assert len(trained) == len(set(trained)) == 20
    assert all(metrics["staleness/max"] <= 3 for metrics in steps(seen).values())


def test_a_lost_engine_of_a_run_that_only_explores_has_the_weights_of_the_one_that_trains(
    task: Task, tmp_path: Path, dying: Any
) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    trains = SqlBuffer(url, "sums", "trains")
    config = config_of(
        task,
        tmp_path,
        run={"mode": "rollout_only"},
        buffer={"type": "sql", "url": url, "label": "sums"},
        schedule={"total_steps": 2, "evaluate_at_start": False},
        data={"eval": []},
        rollout=FEW_AT_A_TIME,
    )
    trains.announce(7, Path(config.model.path))
    groups = dying(config, (3,))
    seen = run_here(config, tmp_path / "run")
    assert groups[0].streamed > 3
    assert len(told(seen)) == 1
    explored = trains.take(8)
    trains.close()
    assert {response.weight_version for group in explored for response in group.responses} == {7}


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.timeout(900)
def test_engines_that_are_killed_are_replaced_while_rollout_is_ahead(
    task: Task, run: Callable[..., Ran], tmp_path: Path
) -> None:
    """Real processes, killed in training, while training waits, and at new weights."""
    victims = {("train", 1): "rollout-1", ("wait_for_rollout", 2): "rollout-0", ("sync", 3): "rollout-1"}

    def kill(event: dict[str, Any]) -> None:
        victim = event["kind"] == "phase" and victims.pop((event["name"], event.get("step")), None)
        if victim:
            worker(victim).kill()

    config: Any = task.config(
        tmp_path,
        placement={"layout": "split", "devices_per_node": 3, "rollout_devices": 2, "device": "cpu"},
        schedule={"total_steps": 6, "evaluate_every": 100},
        weight_sync={"max_steps_ahead": 2, "max_staleness_steps": 3, "in_flight_requests": "continue"},
        rollout={**FEW_AT_A_TIME, "timeouts": {"retries": 3}},
        checkpoint={"every": None, "at_end": False, "export": "never"},
    )
    ran = run(config, watch=kill)
    assert ran.result.status == "finished", ran.result.cause
    assert not victims
    lost = told(ran.events)
    assert len(lost) == 3, lost
    metrics = [event["metrics"] for event in ran.kinds("step")]
    assert len(metrics) == 6
    assert all(each["staleness/max"] <= 4 for each in metrics)
