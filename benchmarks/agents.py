"""What agents cost beside the engines: 1,000 trajectories at the same time, answered by a scripted engine.

Measures the processor time of an agent loop a turn, with what crosses to it and back pickled as Ray does, and its memory.

    python benchmarks/agents.py [trajectories] [turns]
"""

from __future__ import annotations

import pickle
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rlctl.planning import arithmetic
from rlctl.runtime.agents.loop import AgentLoop
from rlctl.runtime.agents.making import make_agent
from rlctl.runtime.types import Prompt, Request, Response, Sampling
from tests.runtime.agents.made import chat, config_of, tokenizer

TOKENS = 64
"""Generated a turn."""
WORLD = "benchmarks/agents.py"


class World:
    """An environment that answers at once, for so many turns."""

    def __init__(self, turns: int) -> None:
        self.left = turns

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        return "0", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return "1234567890" * 4, 0.1, not self.left, False, {}


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _played(trajectories: int, turns: int, isolation: str) -> tuple[float, float, float]:
    """Milliseconds of processor time a turn, of all processes; seconds; and MiB of memory more than before."""
    environment = {"type": "python", "path": WORLD, "name": "World", "args": {"turns": turns}, "isolation": isolation}
    config = config_of({"type": "environment", "environment": environment})
    agent = arithmetic.agent_of(config)
    assert agent is not None
    said = tuple(tokenizer()("7" * TOKENS, add_special_tokens=False)["input_ids"])
    answer = Response(said, (-0.5,) * len(said), "stop", 0)
    row = Prompt(0, "benchmark", (1,), "", messages=({"role": "user", "content": ""},))
    sampling = Sampling(100_000, stop_token_ids=(tokenizer().eos_token_id,))
    before, calls, finished = _memory(), 0, 0
    with ThreadPoolExecutor(128) as threads:
        loop = AgentLoop({agent.name: make_agent(config, agent, chat(), threads)}, agent.name, max_context_tokens=None)
        began, began_cpu = time.monotonic(), _processor()
        loop.submit({n: Request(row.token_ids, sampling, 1, seed=n, row=row) for n in range(trajectories)}, {})
        while finished < trajectories:
            progress = pickle.loads(pickle.dumps(loop.collect(1.0)))
            calls += len(progress.calls)
            finished += len(progress.finished)
            loop.submit({}, pickle.loads(pickle.dumps({each.number: answer for each in progress.calls})))
        seconds, cpu = time.monotonic() - began, _processor() - began_cpu
        loop.close()
    cpu += resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime * (isolation == "process")
    assert calls == trajectories * turns
    return 1000 * cpu / calls, seconds, _memory() - before


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    trajectories, turns = (int(each) for each in (*sys.argv[1:3], *("1000", "8")[len(sys.argv) - 1 :]))
    for isolation in ("thread", "process"):
        cost, seconds, memory = _played(trajectories, turns, isolation)
        print(
            f"{trajectories} trajectories of {turns} turns, environments by {isolation}: {cost:.2f} ms of processor time a turn, "
            f"{seconds:.1f} s, {memory:.0f} MiB"
        )


if __name__ == "__main__":
    main()
