"""Rules on what is profiled: where a tool runs, what it takes, and whom it can record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.checks.problem import CheckContext, Problem
from rlctl.common.errors import nearest
from rlctl.config import Config
from rlctl.documents.paths import KeyPath, dotted

SETTINGS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "torch": {"contents": ("cpu", "cuda", "memory", "shapes", "stack")},
    "torch_memory": {"trace_alloc_max_entries": ()},
    "timeline": {},
}
"""What each tool takes, by the names of verl; with the values that a list may hold."""
UNUSED: Mapping[str, tuple[str, ...]] = {
    "torch": ("profile_token_start", "profile_token_end", "schedule", "step_start", "step_end", "name"),
    "torch_memory": ("stack_depth", "name"),
}
"""What it takes in verl and here not: whole steps are profiled, and the steps are named by ``profiling.steps``."""
ROLES = ("policy", "rollout", "reference", "critic", "reward", "reward_model", "judge")


def profiler(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """A profiler is told steps, roles that there are, and settings that it takes, and finds the device that it needs."""
    profiling = config.profiling
    tool = profiling.tool
    if tool is None or tool not in SETTINGS:
        return
    if not profiling.steps:
        message = f"profiling.tool is {tool}, and profiling.steps names no step: nothing is profiled"
        yield Problem("not-applied", ("profiling", "steps"), message)
    known = surroundings.cluster
    on_cpu = config.placement.device == "cpu" or (
        config.placement.device == "auto" and known is not None and known.device == "cpu"
    )
    if tool == "torch_memory" and on_cpu:
        message = "profiling.tool torch_memory records what PyTorch allocates on a GPU, and the run is on CPU"
        yield Problem(
            "not-supported", ("profiling", "tool"), message, "set profiling.tool to torch, with contents [memory]"
        )
    for name in profiling.roles:
        if name not in ROLES:
            message = f"profiling.roles names {name!r}; expected one of {', '.join(ROLES)}"
            yield Problem("not-supported", ("profiling", "roles", name), message, nearest(name, ROLES))
    given: dict[KeyPath, Mapping[str, Any]] = {
        ("profiling", "controller_args"): profiling.controller_args,
        ("profiling", "worker_args"): profiling.worker_args,
        **{("profiling", "roles", name, "args"): own.args for name, own in profiling.roles.items()},
    }
    for path, settings in given.items():
        yield from _settings(tool, path, settings)


def _settings(tool: str, path: KeyPath, settings: Mapping[str, Any]) -> Iterator[Problem]:
    takes = SETTINGS[tool]
    if settings.keys() & {"nsys", "npu", *SETTINGS}:  # of several tools, each under its name
        settings, path = settings.get(tool) or {}, (*path, tool)
    for name, value in settings.items():
        if name == "discrete" and path[1] == "roles":
            continue
        if name in UNUSED.get(tool, ()):
            message = f"'{dotted((*path, name))}': whole steps are profiled, those of profiling.steps"
            yield Problem("not-used", (*path, name), message, "remove it, or leave it")
        elif name not in takes:
            message = f"'{dotted((*path, name))}': {tool} takes no such setting; it takes {', '.join(takes) or 'none'}"
            yield Problem("not-supported", (*path, name), message, nearest(name, takes))
        elif takes[name] and not set(value if isinstance(value, list | tuple) else [value]) <= set(takes[name]):
            message = f"'{dotted((*path, name))}' is {value!r}; expected a list of {', '.join(takes[name])}"
            yield Problem("not-supported", (*path, name), message, "")


RULES = (profiler,)
