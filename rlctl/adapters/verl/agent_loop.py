"""verl: what decides whether a response has several turns with tools, which changed between releases.

Up to 0.6, SGLang's synchronous rollout runs turns and tools itself if ``multi_turn.enable`` is true. Otherwise verl only logs
that key and runs the agent loop that the row's ``agent_name`` or ``agent.default_agent_loop`` names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.rules import ABSENT, CustomRule, Flow, Key, Out, Reading, Version, Writing, split
from rlctl.adapters.engine.tree import find
from rlctl.adapters.engine.values import Partly
from rlctl.common.report import Finding, Level, finding

R = "actor_rollout_ref.rollout"
LOOP, ENABLE = f"{R}.agent.default_agent_loop", f"{R}.multi_turn.enable"
SINGLE, TOOLS = "single_turn_agent", "tool_agent"
BY_ENGINE = "SGLang runs turns and tools itself"


def _by_engine(version: Version, enabled: Any, engine: Any, mode: Any) -> bool:
    """Whether the engine runs turns and tools, whatever the agent loop is."""
    return version < (0, 7) and bool(enabled) and engine == "sglang" and mode == "sync"


_KEY = Key(LOOP, "rollout.agent.default", SINGLE, Partly({SINGLE: "single_turn"}), since="0.6")


def _read(view: Reading) -> Iterator[Flow]:
    enabled, mode = view.get(ENABLE), view.get(f"{R}.mode", "sync")
    if _by_engine(view.version, enabled, view.get(f"{R}.name"), mode):
        written = tuple(view.path(key) for key in (ENABLE, LOOP) if view.written(key))
        yield Flow(view.to(_KEY.to), TOOLS, written, "derived", BY_ENGINE)
    else:
        yield from _KEY.read(view)


def _write(view: Writing) -> Iterator[Out]:
    enabled, engine = view.get("rollout.multi_turn.enabled"), view.get("rollout.engine.type")
    if view.get(_KEY.to) == TOOLS and _by_engine(view.version, enabled, engine, "sync"):
        yield Flow((), None, (view.to(_KEY.to),), "derived", BY_ENGINE)
    else:
        yield from _KEY.write(view)


RULE = CustomRule("agent loop", _KEY.keys, _KEY.canonical, _read, _write)


def on_read(values: Mapping[str, Any], version: Version) -> Iterator[Finding]:
    """A warning of tools that no response uses."""

    def value(key: str, default: Any) -> Any:
        found = find(values, split(key))
        return default if found in (ABSENT, None) else found

    enabled, loop = value(ENABLE, default=False), value(LOOP, SINGLE)
    if enabled is not True or loop != SINGLE or version < (0, 6):
        return
    if not _by_engine(version, enabled, value(f"{R}.name", "vllm"), value(f"{R}.mode", "sync")):
        yield finding("tools-unused", Level.WARNING, ENABLE, loop=LOOP)
