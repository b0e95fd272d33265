"""Test cases of code rewards in a second, against starting Python for each of them without any isolation, in turns.

    python benchmarks/code_rewards.py [--cases 16] [--rounds 3]

Both sides run one program at a time, behind the imports that ROLL puts before every program.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

from rlctl.runtime.rewards.programs import Limits, SandboxedProgram, run_programs
from rlctl.runtime.rewards.trials import IMPORTS

DOUBLE = "def double(n):\n    return 2 * n"
PROGRAMS = {
    "output": SandboxedProgram("print(2 * int(input()))", stdin="3", prelude=IMPORTS),
    "function": SandboxedProgram(DOUBLE, function="double", arguments=(3,), prelude=IMPORTS),
    "assertion": SandboxedProgram(DOUBLE, tests="assert double(3) == 6", prelude=IMPORTS),
}


def in_sandbox(program: SandboxedProgram, cases: int) -> None:
    ran = run_programs([program] * cases, Limits(), "namespaces")
    assert {each.how for each in ran} == {"ended"}, ran


def bare(program: SandboxedProgram, cases: int) -> None:
    code = f"{program.prelude}\n{program.code}\n{program.tests}"
    for _ in range(cases):
        subprocess.run(
            [sys.executable, "-I", "-c", code], input=program.stdin.encode(), stdout=subprocess.DEVNULL, check=True
        )


def seconds(work: Callable[[SandboxedProgram, int], None], program: SandboxedProgram, cases: int) -> float:
    began = time.perf_counter()
    work(program, cases)
    return (time.perf_counter() - began) / cases


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for kind, program in PROGRAMS.items():
        in_sandbox(program, 1)
        pairs = [
            (seconds(in_sandbox, program, arguments.cases), seconds(bare, program, arguments.cases))
            for _ in range(arguments.rounds)
        ]
        ours, plain = (median(side) for side in zip(*pairs, strict=True))
        print(
            f"{kind}: {1 / ours:.1f} cases a second, {1 / plain:.1f} without isolation, {ours / plain:.1f} times the time"
        )


if __name__ == "__main__":
    main()
