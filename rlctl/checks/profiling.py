"""Rules on what is profiled: where a tool runs, what it takes, and whom it can record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.checks.placement import ROLES
from rlctl.checks.problem import CheckContext, Problem, problem
from rlctl.common.errors import closest
from rlctl.config import Config
from rlctl.documents.paths import KeyPath

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


def profiler(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """A profiler is told steps, roles that there are, and settings that it takes, and finds the device that it needs."""
    profiling = config.profiling
    tool = profiling.tool
    if tool is None or tool not in SETTINGS:
        return
    if not profiling.steps:
        yield problem("not-applied_profiler", ("profiling", "steps"), tool=tool)
    known = surroundings.cluster
    on_cpu = config.placement.device == "cpu" or (
        config.placement.device == "auto" and known is not None and known.device == "cpu"
    )
    if tool == "torch_memory" and on_cpu:
        yield problem("not-supported_profiler-gpu", ("profiling", "tool"))
    for name in profiling.roles:
        if name not in ROLES:
            yield problem(
                "not-supported_profiler-role",
                ("profiling", "roles", name),
                role=name,
                known=", ".join(ROLES),
                near=closest(name, ROLES) or "none",
            )
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
            if value is None:
                continue
            yield problem("not-used_profiler", (*path, name))
        elif name not in takes:
            yield problem(
                "not-supported_profiler-setting",
                (*path, name),
                tool=tool,
                known=", ".join(takes) or "none",
                near=closest(name, takes) or "none",
            )
        elif takes[name] and not set(value if isinstance(value, list | tuple) else [value]) <= set(takes[name]):
            yield problem(
                "not-supported_profiler-value", (*path, name), value=repr(value), known=", ".join(takes[name])
            )


RULES = (profiler,)
