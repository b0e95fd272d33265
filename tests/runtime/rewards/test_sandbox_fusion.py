"""Programs in responses run in a real service over HTTP, a process each, against the test cases of the row."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rlctl.config.sections.rewards import SandboxReward
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.rewards.sandbox_fusion import cases_of, program_of
from rlctl.runtime.types import Prompt
from rlctl.runtime.workers.reward import RewardItem, RewardWorker
from tests.runtime.rewards.servers import Served, meeting, run_code, serve

DOUBLE = {"inputs": ["1\n", "2\n", "3\n", "x\n"], "outputs": ["2\n", "4", "6\n", "8\n"]}
RIGHT = "Here it is:\n```python\nprint(2 * int(input()))\n```\nDone."


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Served]:
    with serve(run_code) as served:
        yield served


def score(url: str, *pairs: tuple[str, Any], **settings: Any) -> list[Score]:
    items = [RewardItem(Prompt(i, "apps", (1,), "double it", cases), text, 5) for i, (text, cases) in enumerate(pairs)]
    with RewardWorker([SandboxReward(name="code", url=f"{url}/run_code", **settings)]) as worker:
        return worker.score(items)


def test_the_share_of_passed_cases(sandbox: Served) -> None:
    (found,) = score(sandbox.url, (RIGHT, DOUBLE), partial_credit=True)
    assert found == Score(0.75, {"code": 0.75, "code/passed_share": 0.75}, correct=False)
    assert score(sandbox.url, (RIGHT, json.dumps(DOUBLE)))[0].total == 0.0
    three = {name: values[:3] for name, values in DOUBLE.items()}
    assert score(sandbox.url, (RIGHT, three))[0] == Score(1.0, {"code": 1.0, "code/passed_share": 1.0}, correct=True)


def test_assertions_run_with_the_program_in_a_service(sandbox: Served) -> None:
    """So a program can end before them, and the record says that they ran there."""
    cases = {"assert_case": ["assert f(1) == 2"]}
    (found,) = score(sandbox.url, ("```python\nimport os\nos._exit(0)\n```", cases))
    assert found == Score(1.0, {"code": 1.0, "code/passed_share": 1.0, "code/tests_together": 1.0}, correct=True)
    (refused,) = score(sandbox.url, ("```python\nx = 1\n```", cases), tests_together="refuse")
    assert refused.total == 0.0
    assert "tests_together is refuse" in (refused.error or "")
    assert score(sandbox.url, (RIGHT, DOUBLE), tests_together="refuse", partial_credit=True)[0].total == 0.75


def test_requests_are_those_of_sandbox_fusion(sandbox: Served) -> None:
    sandbox.bodies.clear()
    score(sandbox.url, (RIGHT, {"inputs": ["4"], "outputs": ["8"]}), memory_limit_mib=512)
    assert sandbox.bodies == [
        {
            "path": "/run_code",
            "compile_timeout": 10,
            "run_timeout": 10,
            "code": "\nprint(2 * int(input()))\n\n\n",
            "stdin": "4",
            "memory_limit_MB": 512,
            "language": "python",
            "files": {},
            "fetch_files": [],
        }
    ]


@pytest.mark.parametrize(
    "program",
    [
        "def add(a, b):\n    return a + b",
        "class Solution:\n    def add(self, a, b):\n        return a + b",
        "def add(*numbers):\n    return reduce(operator.add, numbers)",
    ],
)
def test_functions_are_called_with_lines_of_json(sandbox: Served, program: str) -> None:
    cases = {"fn_name": "add", "inputs": ["1\n2", "[1]\n[2]", '"a"\n"b"'], "outputs": ["3", "[1, 2]", "ab"]}
    assert score(sandbox.url, (f"```python\n{program}\n```", cases))[0].total == 1.0


def test_assertions(sandbox: Served) -> None:
    cases = {"assert_case": ["assert f(1) == 2", "assert f(2) == 5"], "inputs": None, "outputs": None, "fn_name": None}
    (found,) = score(sandbox.url, ("```\ndef f(x): return 2 * x\n```", cases), partial_credit=True)
    assert found.total == 0.5


def test_programs_that_raise_hang_or_take_all_memory_pass_nothing(sandbox: Served) -> None:
    one = {"inputs": [""], "outputs": ["1"]}
    bodies = ["1 / 0", "while True: pass", "x = [0] * 10**9\nprint(1)", "print(1"]
    began = time.monotonic()
    found = score(
        sandbox.url, *((f"```python\n{body}\n```", one) for body in bodies), timeout=3.0, memory_limit_mib=256
    )
    assert time.monotonic() - began < 20
    assert [(one.total, one.correct, one.error) for one in found] == [(0.0, False, None)] * 4


def test_a_response_without_a_program_is_wrong_and_a_row_without_cases_is_a_failure(sandbox: Served) -> None:
    one = {"inputs": [""], "outputs": ["1"]}
    silent, nothing, uneven = score(
        sandbox.url, ("print(1)", one), (RIGHT, {"x": 1}), (RIGHT, {"inputs": ["1"], "outputs": []})
    )
    assert (silent.total, silent.error) == (0.0, None)
    assert "the test cases have x; expected inputs and outputs" in (nothing.error or "")
    assert "there are 1 inputs, 0 outputs" in (uneven.error or "")


def test_so_many_requests_at_once_and_no_more() -> None:
    answer = {"status": "Success", "run_result": {"status": "Finished", "stdout": "1", "return_code": 0}}
    cases = {"inputs": ["1"] * 6, "outputs": ["1"] * 6}
    with serve(meeting(5, answer)) as served:
        found = score(served.url, *((RIGHT, cases) for _ in range(4)), max_concurrent=5)
        assert [one.total for one in found] == [1.0] * 4
        assert served.most_at_once == 5


def test_a_service_that_fails_costs_the_response_and_is_told() -> None:
    with serve(lambda body: (200, {"status": "SandboxError", "message": "no room"})) as served:
        (found,) = score(served.url, (RIGHT, DOUBLE))
        assert (found.total, found.error) == (0.0, "code: the sandbox answered with status 'SandboxError': no room")


@pytest.mark.parametrize(
    ("response", "program"),
    [
        ("```python\na\n```\n```python\nb\n```", "\nb\n"),
        ("```\na\n```", "\na\n"),
        ("```py\na\n```", "a\n"),
        ("```a```", "a"),
        ("no block", None),
    ],
)
def test_the_program_in_a_response(response: str, program: str | None) -> None:
    assert program_of(response) == program


def test_cases_of_numbers_are_text() -> None:
    assert [(case.stdin, case.expected) for case in cases_of({"inputs": [1], "outputs": [2]}, "p")] == [("1", "2")]
