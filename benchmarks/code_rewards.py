"""How many test cases of code rewards run in a second on this machine.

python benchmarks/code_rewards.py [--responses 16] [--cases 8] [--workers 1,2]
"""

import argparse
import time

from rlctl.config.sections.rewards import SandboxReward
from rlctl.runtime.types import Prompt
from rlctl.runtime.workers.reward import RewardItem, RewardWorker

PROGRAMS = {
    "output": ("print(2 * int(input()))", "io", [{"stdin": str(n), "expected_stdout": str(2 * n)} for n in range(64)]),
    "function": (
        "def double(n):\n    return 2 * n",
        "io",
        [{"stdin": str(n), "expected_stdout": str(2 * n)} for n in range(64)],
    ),
    "assertion": (
        "def double(n):\n    return 2 * n",
        "assert",
        [{"assert_code": f"assert double({n}) == {2 * n}"} for n in range(64)],
    ),
}


def items(kind: str, responses: int, cases: int) -> list[RewardItem]:
    code, case_type, tests = PROGRAMS[kind]
    columns = {"case_type": case_type, "test_cases": tests[:cases]}
    columns |= {"test_case_function": "double"} if kind == "function" else {}
    prompt = Prompt(0, "code", (1,), "double", None, extra={"columns": columns})
    return [RewardItem(prompt, f"```python\n{code}\n```", 5) for _ in range(responses)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--responses", type=int, default=16)
    parser.add_argument("--cases", type=int, default=8)
    parser.add_argument("--workers", default="1,2")
    arguments = parser.parse_args()
    for workers in map(int, arguments.workers.split(",")):
        with RewardWorker([SandboxReward(name="code", method="roll", workers=workers)]) as worker:
            for kind in PROGRAMS:
                todo = items(kind, arguments.responses, arguments.cases)
                worker.score(todo[:workers])
                began = time.perf_counter()
                scores = worker.score(todo)
                seconds = time.perf_counter() - began
                assert all(score.total == 1.0 for score in scores), scores
                trials = arguments.responses * arguments.cases
                print(f"{workers} workers, {kind}: {trials / seconds:.1f} trials a second")


if __name__ == "__main__":
    main()
