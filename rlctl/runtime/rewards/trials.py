"""What the program in a response is tested with, and what passes, where programs run on this machine.

ROLL's rows have columns of their own (``test_cases`` may be JSON text):

    case_type     each of test_cases                  passes where
    check_based   import_prefix, assert_code,         ``check(entry_point)`` returns, once for each line of the assertions
                  entry_point                         after the first; only the first of the cases counts
    text          assert_code with ``{response}``     it runs to its end; no program is looked for
    assert,       assert_code                         it runs to its end behind the program, its ``test_`` functions called
    pytest
    any other     stdin, expected_stdout              what is written is as expected, line by line or in numbers; with
                                                      ``test_case_function``: what the function returns

These are the rules of ROLL's local path (roll/pipeline/rlvr/rewards/code_sandbox_reward_worker.py, roll/utils/local_code). They
differ where ROLL can be misled: a program that ends its process before the assertions has not passed, an object that claims to
equal everything equals nothing, and a program that defines ``abs`` changes no test that calls it. And a program runs as a script,
where ROLL puts it into a function.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlctl.common.messages.reasons import said
from rlctl.runtime.rewards.interface import Call
from rlctl.runtime.rewards.programs import Ran, SandboxedProgram
from rlctl.runtime.rewards.sandbox_fusion import NAMES_BEFORE, cases_of, code_of, program_of

IMPORTS = "".join(
    [
        *(f"from {module} import *\n" for module in NAMES_BEFORE),
        *(f"import {module}\n" for module in NAMES_BEFORE),
        "from typing import Any, Dict, List, Optional, Tuple\nfrom math import inf\nsys.setrecursionlimit(600000)\n",
    ]
)
"""What ROLL puts before every program."""
BLOCK = re.compile(r"```([\w+#.\-]*)\s*\n*(.*?)```", re.DOTALL)
LONGEST_RESULT = 4 << 20
"""Characters of a result that is read: to read one takes much more memory."""
TEST_FUNCTION = re.compile(r"^\s*def (test_[^(]*)\(", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a program, and whether it was right."""

    program: SandboxedProgram
    passes: Callable[[Ran], bool]


def trials_of(call: Call, method: str) -> list[Trial] | None:
    """The tests of a response; None where it has no program.

    Raises:
        ValueError: the row has no test cases, or they cannot be read.
    """
    return _roll_trials(call) if method == "roll" else _verl_trials(call)


def _verl_trials(call: Call) -> list[Trial] | None:
    program = program_of(call.response)
    if program is None:
        return None
    return [
        Trial(
            SandboxedProgram(code_of(case, with_assertion=False), case.stdin or "", tests=case.assertion),
            _writes(case.expected, tested=bool(case.assertion)),
        )
        for case in cases_of(call.answer, program)
    ]


def _writes(expected: str | None, *, tested: bool) -> Callable[[Ran], bool]:
    """Ended well, and wrote what is expected but for newlines at the end; with an assertion, reached the end of it."""

    def passes(ran: Ran) -> bool:
        well = ran.how == "ended" or (ran.how == "exited" and ran.status == 0 and not tested)
        return well and (expected is None or ran.stdout.rstrip("\n") == expected.rstrip("\n"))

    return passes


def _roll_trials(call: Call) -> list[Trial] | None:
    cases = _cases(call.columns.get("test_cases"))
    kind = str(call.columns.get("case_type"))
    said = _after(_after(call.response, "<|begin_of_solution|>"), "</think>")
    if not call.response:
        return None
    if kind == "text":
        return [Trial(SandboxedProgram(_about(_assertion(case), said)), _ended) for case in cases]
    code = solution_of(said)
    if kind == "check_based":
        return _checks(code, cases[0])
    if kind in ("assert", "pytest"):
        return [
            Trial(SandboxedProgram(code, prelude=IMPORTS, tests=_with_tests_called(_assertion(case))), _ended)
            for case in cases
        ]
    name = call.columns.get("test_case_function")
    function = "" if name in (None, "None") else str(name)
    return [_function_trial(code, function, case) if function else _script_trial(code, case) for case in cases]


def _cases(value: Any) -> Sequence[Any]:
    cases = json.loads(value) if isinstance(value, str) else value
    if not isinstance(cases, Sequence) or not cases:
        raise ValueError(
            said(
                "the column test_cases contains {short}; expected a list of test cases, or its JSON text",
                short=_short(value),
            )
        )
    return cases


def solution_of(text: str) -> str:
    """The first block of code with a function, else the first block, else all of the text."""
    if "```" not in text:
        return text.strip()
    blocks = [found[1] for found in BLOCK.findall(text)]
    with_functions = [block for block in blocks if "def " in block]
    return (with_functions or blocks or [""])[0]


def _after(text: str, mark: str) -> str:
    return text.rpartition(mark)[2].strip() if mark in text else text


def _field(case: Any, name: str) -> str:
    """A text of a test case; a list is its lines."""
    value = case.get(name) if isinstance(case, Mapping) else None
    if value is None:
        raise ValueError(said("a test case has no {name}: {short}", name=name, short=_short(case)))
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _assertion(case: Any) -> str:
    return case if isinstance(case, str) else _field(case, "assert_code")


def _about(assertion: str, response: str) -> str:
    """An assertion with the response in the place of ``{response}``, always as data, also where the mark is in quotes."""

    class Fill(ast.NodeTransformer):
        def visit_Set(self, node: ast.Set) -> ast.AST:
            is_mark = len(node.elts) == 1 and isinstance(node.elts[0], ast.Name) and node.elts[0].id == "response"
            return node.elts[0] if is_mark else self.generic_visit(node)

        def visit_Constant(self, node: ast.Constant) -> ast.Constant:
            text = node.value
            return ast.Constant(text.replace("{response}", repr(response))) if isinstance(text, str) else node

    try:
        filled = ast.unparse(Fill().visit(ast.parse(assertion)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return assertion  # it fails there too
    return f"response = {response!r}\n{filled}"


def _ended(ran: Ran) -> bool:
    return ran.how == "ended"


def _checks(code: str, case: Any) -> list[Trial]:
    first, *others = [line for line in _field(case, "assert_code").split("\n") if line]
    name, before = case.get("entry_point") or "candidate", case.get("import_prefix") or ""
    ends = [f"{first}\n{line}" for line in others] or [first]
    prelude = f"{before}\n{IMPORTS}"
    return [
        Trial(SandboxedProgram(code, prelude=prelude, tests=f"{end}\ncheck({name})", entry=name), _ended)
        for end in ends
    ]


def _with_tests_called(assertion: str) -> str:
    return "\n".join([assertion, *(f"{name}()" for name in TEST_FUNCTION.findall(assertion))])


def _function_trial(code: str, function: str, case: Any) -> Trial:
    arguments = tuple(_whole_keys(json.loads(line)) for line in _field(case, "stdin").split("\n"))
    expected = json.loads(_field(case, "expected_stdout"))

    def passes(ran: Ran) -> bool:
        return ran.how == "ended" and returns(ran.result, expected)

    return Trial(SandboxedProgram(code, prelude=IMPORTS, function=function, arguments=arguments), passes)


def returns(result: str, expected: Any) -> bool:
    """Whether a function's result, as Python text, is what is expected; a tuple is a list, and a list of one may stand for it."""
    if len(result) > LONGEST_RESULT:
        return False
    try:
        found = ast.literal_eval(result)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    found = list(found) if isinstance(found, tuple) else found
    expected = [_whole_keys(expected)] if isinstance(expected, dict) else expected
    if not isinstance(expected, list) or not expected:
        return bool(found == expected)
    expected = [_whole_keys(expected[0]), *expected[1:]]
    if found in (expected, expected[0]):
        return True
    of_tuples = isinstance(found, list) and bool(found) and isinstance(found[0], tuple)
    return of_tuples and [list(each) for each in found] == expected[0]


def _whole_keys(value: Any) -> Any:
    """JSON has texts for keys; where all of them are whole numbers, they are meant."""
    try:
        return {int(key): each for key, each in value.items()} if isinstance(value, dict) else value
    except ValueError:
        return value


def _script_trial(code: str, case: Any) -> Trial:
    expected = _field(case, "expected_stdout")

    def passes(ran: Ran) -> bool:
        return ran.how in ("ended", "exited") and prints(ran.stdout, expected)

    return Trial(SandboxedProgram(code, prelude=IMPORTS, stdin=_field(case, "stdin")), passes)


def prints(written: str, expected: str) -> bool:
    """Whether the output is what is expected: the same text but for spaces around it or its lines, or the same numbers."""
    lines = written.splitlines()
    if expected.strip() in (written.strip(), "\n".join(line.strip() for line in lines).strip()):
        return True
    wanted = [line.strip() for line in expected.split("\n") if line]
    return lines == wanted or _numbers_close([line for line in lines if line], wanted)


def _numbers_close(lines: Sequence[str], wanted: Sequence[str]) -> bool:
    """One number a line, within numpy's tolerance; whole numbers would have been equal as text."""
    if len(lines) != len(wanted) or all(line.isdigit() for line in (*lines, *wanted)):
        return False
    try:
        pairs = [(float(a), float(b)) for a, b in zip(lines, wanted, strict=True)]
    except ValueError:
        return False
    return all(a == b or (math.isfinite(b) and abs(a - b) <= 1e-8 + 1e-5 * abs(b)) for a, b in pairs)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
