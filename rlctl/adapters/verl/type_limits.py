"""Types of values that verl tests: lists, names of classes, settings of profilers. Read from the source of 0.9.1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlctl.adapters.engine.requirements import Requirement
from rlctl.adapters.verl.combination_limits import pair_row
from rlctl.adapters.verl.requirement_values import ACTOR, CRITIC, MODEL, REF, ROLLOUT
from rlctl.adapters.verl.value_limits import IN_CONFIG, count_rows, name_row, value_row
from rlctl.common.messages.reasons import said

CONTENTS = {
    "torch": ("cuda", "cpu", "memory", "shapes", "stack"),
    "npu": ("npu", "cpu", "memory", "shapes", "module", "stack"),
}
LEVELS = ("level_none", "level0", "level1", "level2")
SKIPPED = ("rollout", "rollout_tq", "async_rollout")
PROFILER = "verl/utils/profiler/config.py"


def _lists(value: Any) -> bool:
    return isinstance(value, list)


def _types() -> Iterator[Requirement]:
    """Types of values that verl's config classes test."""
    for name in SKIPPED:
        section, source = f"skip.{name}", "verl/utils/skip/config.py"
        yield name_row(f"{section}.action", ("cache", "repeat"), source)
        yield value_row(f"{section}.enable", lambda value: isinstance(value, bool), "true or false", source, "false")
        yield value_row(
            f"{section}.dump_dir", lambda value: isinstance(value, str), "a string", source, "~/.verl/rollout_dump"
        )
        yield value_row(
            f"{section}.steps",
            lambda value: _lists(value) and all(isinstance(step, int) for step in value),
            "a list of steps",
            source,
            "[]",
        )
    for profiler in ("global_profiler", *(f"{role}.profiler" for role in (ACTOR, REF, CRITIC, ROLLOUT))):
        source = f"{PROFILER}, ProfilerConfig.__post_init__"
        yield value_row(f"{profiler}.finish_hook_ranks", _lists, "a list of ranks", source, "[]")
        yield value_row(f"{profiler}.finish_hook_cmd", lambda value: isinstance(value, str), "a string", source, "null")
        if profiler != "global_profiler":
            yield value_row(f"{profiler}.ranks", _lists, "a list of ranks", source, "[0]")
    for role in (ACTOR, ROLLOUT):
        yield from _tools(f"{role}.profiler.tool_config")
    for key in (f"{MODEL}.target_modules", "critic.model.target_modules"):
        yield value_row(
            key,
            lambda value: isinstance(value, str) or (_lists(value) and all(isinstance(name, str) for name in value)),
            "a string or a list of strings",
            f"{IN_CONFIG}/model.py, HFModelConfig.__post_init__",
            "all-linear",
        )
    yield value_row(
        f"{ROLLOUT}.disaggregation",
        lambda value: hasattr(value, "keys"),
        "a section",
        f"{IN_CONFIG}/rollout.py, RolloutConfig.__post_init__",
        "{}",
    )
    for key in (f"{ROLLOUT}.agent.agent_loop_manager_class", f"{ROLLOUT}.checkpoint_manager_class"):
        yield _class_row(key)
    yield _class_row("trainer.checkpoint_callback_class")


def _class_row(key: str) -> Requirement:
    return value_row(
        key,
        lambda value: "." in str(value),
        "the module and the class, as package.module.Class",
        "verl/utils/import_utils.py, load_class_from_fqn",
        "package.module.Class",
    )


def _token_range(section: str) -> Iterator[Requirement]:
    start, end = f"{section}.profile_token_start", f"{section}.profile_token_end"
    yield pair_row(
        end,
        start,
        lambda v: v[start] is not None and v[end] is not None and v[end] <= v[start],
        PROFILER,
        "null",
    )


def _tools(section: str) -> Iterator[Requirement]:
    """Settings of profilers."""
    for tool, names in CONTENTS.items():
        yield value_row(
            f"{section}.{tool}.contents",
            lambda value, names=names: _lists(value) and set(value) <= set(names),  # type: ignore[misc]
            said("a list of names from {names}", names=", ".join(names)),
            f"{PROFILER}, {tool}",
            "[]",
        )
        yield from _token_range(f"{section}.{tool}")
        for end in ("start", "end"):
            yield from count_rows((f"{section}.{tool}.profile_token_{end}",), 0, f"{PROFILER}, {tool}")
    yield name_row(f"{section}.npu.level", LEVELS, f"{PROFILER}, NPUToolConfig.__post_init__")
    yield value_row(
        f"{section}.npu.analysis", lambda value: isinstance(value, bool), "true or false", PROFILER, "false"
    )
    schedule = ("skip_first", "wait", "warmup", "active", "repeat")
    yield from count_rows(tuple(f"{section}.torch.schedule.{name}" for name in schedule), 0, PROFILER)
    memory = ("trace_alloc_max_entries", "stack_depth", "memory_snapshot_num_steps")
    yield from count_rows(tuple(f"{section}.torch_memory.{name}" for name in memory), 1, PROFILER)
    precision = f"{section}.precision_debugger"
    yield value_row(f"{precision}.config_path", lambda value: isinstance(value, str), "a string", PROFILER, "null")
    yield value_row(f"{precision}.strict", lambda value: isinstance(value, bool), "true or false", PROFILER, "false")
    for name in ("steps", "stages"):
        yield value_row(f"{precision}.{name}", _lists, "a list", PROFILER, "null")


ROWS: tuple[Requirement, ...] = tuple(_types())
