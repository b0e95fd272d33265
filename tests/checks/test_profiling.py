"""A profiler that could not do what it is told is refused before the run."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.checks.problem import CheckContext
from rlctl.checks.profiling import profiler
from rlctl.config import config_from
from rlctl.planning.arithmetic import Cluster

ON_GPU, ON_CPU = CheckContext(Cluster(1, 8, "cuda")), CheckContext(Cluster(1, 2, "cpu"))
MEMORY = {"tool": "torch_memory", "steps": [1]}


def found(profiling: dict[str, Any], surroundings: CheckContext = ON_CPU) -> list[tuple[str, str]]:
    return [
        (problem.code, problem.message) for problem in profiler(config_from({"profiling": profiling}), surroundings)
    ]


@pytest.mark.parametrize(
    "profiling",
    [
        {},
        {"tool": "timeline", "steps": [3]},
        {"tool": "torch", "steps": [1], "roles": {"policy": {"enabled": True, "args": {"contents": ["shapes"]}}}},
        {
            "tool": "torch",
            "steps": [1],
            "roles": {"rollout": {"args": {"torch": {"discrete": True}, "nsys": {"x": 1}}}},
        },
        {"tool": "torch", "steps": [1], "worker_args": {"nsys": {"trace": "cuda"}}},
    ],
)
def test_what_can_be_done_is_not_complained_of(profiling: dict[str, Any]) -> None:
    assert found(profiling) == []


def test_memory_is_recorded_on_a_gpu() -> None:
    assert found(MEMORY, ON_GPU) == []
    assert found({**MEMORY, "worker_args": {"trace_alloc_max_entries": 5}}, ON_GPU) == []
    ((code, message),) = found(MEMORY)
    assert code == "not-supported"
    assert "the run is on CPU" in message


def test_without_steps_nothing_is_profiled_and_that_is_said() -> None:
    ((code, message),) = found({"tool": "torch"})
    assert (code, message) == (
        "not-applied",
        "profiling.tool is torch, but profiling.steps lists no step, so nothing is profiled",
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"roles": {"actor": {"enabled": True}}}, "profiling.roles names 'actor'; expected one of policy, rollout"),
        (
            {"worker_args": {"contents": ["shape"]}},
            "'profiling.worker_args.contents' is ['shape']; expected a list of cpu",
        ),
        ({"controller_args": {"trace": "cuda"}}, "torch has no such setting; it has contents"),
        ({"roles": {"policy": {"args": {"torch": {"stacks": 1}}}}}, "'profiling.roles.policy.args.torch.stacks'"),
    ],
)
def test_what_a_tool_does_not_take_is_refused(change: dict[str, Any], said: str) -> None:
    ((code, message),) = found({"tool": "torch", "steps": [1], **change})
    assert code == "not-supported"
    assert said in message


def test_what_a_tool_takes_in_verl_and_here_not_is_told() -> None:
    args = {"torch": {"schedule": {"wait": 1}, "contents": ["cpu"]}}
    ((code, message),) = found({"tool": "torch", "steps": [1], "roles": {"policy": {"args": args}}})
    assert code == "not-used"
    assert message.startswith("'profiling.roles.policy.args.torch.schedule': rlctl profiles whole steps")
