"""Code rewards: the program in a response runs in a Sandbox Fusion service, one request a test case.

The test cases are the answer of the row, as an object or as its JSON text:

    inputs, outputs   what a program reads and must write; trailing newlines do not count
    fn_name           with it, an input is the arguments, a line of JSON each, and an output what the function returns
    assert_case       lines that are put behind the program; it passes where they run to their end

Requests, answers, the wrapped function, and the share of the first 10 cases are those of verl
(verl/utils/reward_score/sandbox_fusion). Where the service itself fails, the response has failed to be scored; verl counts the
case as not passed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlctl.common.messages.reasons import said
from rlctl.runtime.rewards.interface import Call, Outcome
from rlctl.runtime.rewards.service import Service, ServiceError, one_by_one

TestsTogether = Literal["run", "refuse"]
SHARED_CASES = 10
"""Cases that the share of passed ones is of."""
NAMES_BEFORE = (
    *(
        "string",
        "re",
        "datetime",
        "collections",
        "heapq",
        "bisect",
        "copy",
        "math",
        "random",
        "statistics",
        "itertools",
    ),
    *("functools", "operator", "io", "sys", "json", "builtins", "typing"),
)
"""Modules whose names a wrapped function finds, in the order in which they hide each other."""
CALL_FUNCTION = """
def __call():
    import json, sys
    read = sys.stdin.read()
    arguments = [json.loads(line) for line in read.split("\\n")] if read.strip() else []
    name = {name!r}
    target = globals()[name] if name in globals() else getattr(globals()["Solution"](), name)
    result = target(*arguments)
    print(json.dumps(result) if result is None or isinstance(result, (dict, list, tuple, bool)) else str(result))

__call()
"""


@dataclass(frozen=True, slots=True)
class Case:
    """One run of the program."""

    program: str
    assertion: str
    """Code behind it; empty if there is none."""
    function: str
    """The function of it that is called; empty if none is."""
    stdin: str | None
    expected: str | None
    """What it must write; None where it only has to end well."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A Sandbox Fusion service."""

    url: str
    """Address that runs code, ``.../run_code``."""
    timeout: float
    """Seconds of a request: a third to compile, a third to run, a third for the way."""
    memory_limit_mib: int = 1024
    partial_credit: bool = False
    """Score the share of the first cases instead of all or nothing."""
    tests_together: TestsTogether = "run"
    """What happens with assertions: a service runs them in the process of the program."""

    def groups(self, calls: Sequence[Call]) -> list[list[int]]:
        """See ``ServiceScorer``."""
        return one_by_one(calls)

    async def score(self, calls: Sequence[Call], service: Service) -> list[Outcome]:
        """See ``ServiceScorer``."""
        program = program_of(calls[0].response)
        if program is None:
            return [Outcome(0.0, correct=False)]
        cases = cases_of(calls[0].answer, program)
        cases = cases[:SHARED_CASES] if self.partial_credit else cases
        asserted = [case.assertion for case in cases if case.assertion]
        together = together_metric(
            len(asserted), [said("the service runs them there")] * len(asserted), self.tests_together
        )
        passed = await asyncio.gather(*(self._passes(case, service) for case in cases))
        share = sum(passed) / len(passed)
        score = share if self.partial_credit else float(share == 1.0)
        return [Outcome(score, share == 1.0, {"passed_share": share, **together})]

    async def _passes(self, case: Case, service: Service) -> bool:
        seconds = max(1, int(self.timeout // 3))
        body = {
            "compile_timeout": seconds,
            "run_timeout": seconds,
            "code": code_of(case, with_assertion=True),
            "stdin": case.stdin,
            "memory_limit_MB": self.memory_limit_mib,
            "language": "python",
            "files": {},
            "fetch_files": [],
        }
        return passes(await service.post(self.url, body), case.expected)


def together_metric(tests: int, reasons: Sequence[str], allowed: TestsTogether) -> dict[str, float]:
    """The share of tests that run in the process of the program, where it can forge their verdict; nothing if there are no tests.

    Args:
        tests: how many there are.
        reasons: why some of them run there.
        allowed: whether they may.

    Raises:
        ValueError: they may not.
    """
    if reasons and allowed == "refuse":
        raise ValueError(
            said(
                "tests_together is refuse, and tests of this row need the process of the program: {reason}; use tests that "
                "only pass and compare plain data, or set tests_together to run",
                reason=reasons[0],
            )
        )
    return {"tests_together": len(reasons) / tests} if tests else {}


def program_of(response: str) -> str | None:
    """The program in a response: its last Python block, else its first block; None where it has none."""
    if "```python" in response:
        return response.split("```python")[-1].split("```")[0]
    parts = response.split("```")
    if len(parts) < 2:
        return None
    label, newline, rest = parts[1].partition("\n")
    return rest if newline and label.strip().isalpha() else parts[1]


def cases_of(answer: Any, program: str) -> list[Case]:
    """The runs of a program that the test cases of a row ask for.

    Raises:
        ValueError: the row has no test cases, or they do not fit each other.
    """
    tests = json.loads(answer) if isinstance(answer, str) else answer
    if not isinstance(tests, Mapping):
        raise ValueError(
            said("the test cases are a {kind}; expected an object with inputs and outputs", kind=type(tests).__name__)
        )
    asserts = tests.get("assert_case")
    asserts = None if asserts is None else list(asserts)
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    if asserts is not None:
        inputs = [""] * len(asserts) if inputs is None else inputs
        outputs = [None] * len(asserts) if outputs is None else outputs
    if inputs is None or outputs is None:
        raise ValueError(
            said(
                "the test cases have {names}; expected inputs and outputs, or assert_case",
                names=", ".join(map(str, tests)),
            )
        )
    asserts = [""] * len(inputs) if asserts is None else asserts
    if not len(inputs) == len(outputs) == len(asserts) or not len(inputs):
        raise ValueError(
            said(
                "there are {count} inputs, {count2} outputs and {count3} assertions",
                count=len(inputs),
                count2=len(outputs),
                count3=len(asserts),
            )
        )
    name = tests.get("fn_name")
    return [
        Case(program, str(one), name or "", None if given is None else str(given), None if out is None else str(out))
        for given, out, one in zip(inputs, outputs, asserts, strict=True)
    ]


def code_of(case: Case, *, with_assertion: bool) -> str:
    """The text that a case runs."""
    code = f"{case.program}\n\n{case.assertion}" if with_assertion else case.program
    if not case.function:
        return code
    before = "".join(f"from {module} import *\n" for module in NAMES_BEFORE) + "".join(
        f"import {module}\n" for module in NAMES_BEFORE
    )
    return f"{before}\n{code}\n{CALL_FUNCTION.format(name=case.function)}"


def passes(answer: Mapping[str, Any], expected: str | None) -> bool:
    """Whether the service says that a program ended well and wrote what is expected.

    Raises:
        ServiceError: the service itself failed, or answers something else.
    """
    status, ran = answer.get("status"), answer.get("run_result") or {}
    if status == "Failed":
        return False
    if status != "Success" or ran.get("status") != "Finished":
        message = str(answer.get("message") or answer)[:300]
        raise ServiceError(
            said("the sandbox answered with status {status!r}: {message}", status=status, message=message)
        )
    written = ran.get("stdout") or ""
    return expected is None or written.rstrip("\n") == expected.rstrip("\n")
