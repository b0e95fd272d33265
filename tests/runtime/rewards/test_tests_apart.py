"""Tests decide about a program from another process: a right program passes as if they shared one, a wrong one cannot make itself pass."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from rlctl import sandbox
from rlctl.common.errors import RunError
from rlctl.runtime.rewards import programs
from rlctl.runtime.rewards.interface import Call
from rlctl.runtime.rewards.programs import Isolation, Limits, Ran, SandboxedProgram, check, run_programs
from rlctl.runtime.rewards.programs.apart import Split
from rlctl.runtime.rewards.trials import IMPORTS, trials_of
from rlctl.sandbox import Result
from tests.runtime.rewards import usual_tests


def _isolated() -> bool:
    try:
        check("namespaces")
    except RunError:
        return False
    return True


needs_sandbox = pytest.mark.skipif(not _isolated(), reason="no sandbox here")


def run(code: str, tests: str, *, isolation: Isolation = "limits", seconds: float = 20.0, entry: str = "") -> Ran:
    program = SandboxedProgram(code, prelude=IMPORTS, tests=tests, entry=entry)
    assert not program.split.together
    ran = run_programs([program], Limits(seconds), isolation)[0]
    assert not ran.together
    return ran


RIGHT = {
    "a value": ("def plus(a, b):\n    return a + b", "assert plus(1, 2) == 3\nassert plus([1], [2]) == [1, 2]"),
    "values of many types": (
        "def same(x): return x",
        """
from decimal import Decimal
from fractions import Fraction
values = [None, True, 1, -0.5, 10**5000, -(1 << 53), float("inf"), "é\\ud800", b"x", 1 + 2j, (1, (2,)), {1, 2}, frozenset({3}),
          {1: [2], (3, 4): None}, range(2, 8, 3), Decimal("0.10"), Fraction(1, 3), [], {}, set(), ""]
for value in values:
    found = same(value)
    assert found == value and type(found) is type(value), value
assert math.isnan(same(math.nan)) and str(same(-0.0)) == "-0.0"
assert same(values) == values
""",
    ),
    "values of subclasses, by what they extend": (
        "from collections import *\nfrom enum import IntEnum\nP = namedtuple('P', 'x y')\nclass E(IntEnum):\n    A = 3\n"
        "def f(): return [Counter('aab'), OrderedDict(a=1), defaultdict(list, a=[1]), P(1, 2), E.A, type('S', (str,), {})('s')]",
        "found = f()\nassert found == [{'a': 2, 'b': 1}, {'a': 1}, {'a': [1]}, (1, 2), 3, 's']\n"
        "assert [type(each) for each in found] == [dict, dict, dict, tuple, int, str]",
    ),
    "iterators, by what they give": (
        "from itertools import chain\ndef upto(n):\n    for i in range(n): yield i\ndef f(xs): return chain(xs, [9])",
        "assert list(upto(3)) == [0, 1, 2] and upto(1) != [0]\ng = upto(2)\nassert next(g) == 0 and next(g) == 1\n"
        "assert next(g, 9) == 9 and list(f(x for x in 'ab')) == ['a', 'b', 9]",
    ),
    "numbers and arrays of numpy": (
        "import numpy as np\ndef f(): return np.int64(3), np.float32(0.5), np.bool_(True), np.arange(3)",
        "assert f() == (3, 0.5, True, [0, 1, 2])",
    ),
    "arguments that are changed, if the result is thrown away": (
        "def order(xs, seen):\n    xs.sort()\n    seen['n'] = len(xs)\n    return xs",
        "xs, seen = [3, 1, 2], {}\norder(xs, seen=seen)\nassert xs == [1, 2, 3] and seen == {'n': 3}",
    ),
    "arguments that are not changed, if it is not": (
        "def order(xs):\n    xs.sort()\n    return xs",
        "xs = [3, 1, 2]\nassert order(xs) == [1, 2, 3]\nassert xs == [3, 1, 2]",
    ),
    "exceptions": (
        "class Negative(ValueError):\n    pass\ndef f(x):\n    if x < 0: raise Negative('negative')\n    return 1 // x",
        """
import pytest
with pytest.raises(ValueError, match="negative"):
    f(-1)
with pytest.raises(ZeroDivisionError):
    f(0)
assert f(1) == pytest.approx(1.0)
""",
    ),
    "a name of the prelude, if the tests are about it": ("def median(xs): return 7", "assert median([1, 2]) == 7"),
    "a name of Python, if the tests are about it": (
        "def sum(a, b): return a * b\ndef helper(): pass",
        "assert abs(sum(2, 5) - 10) < 1",
    ),
    "a result that nothing reads": ("def f(): return object()", "f()"),
    "objects that go back": (
        "class Node:\n    def __init__(self, v, next=None): self.v, self.next = v, next\n"
        "def length(n): return 0 if n is None else 1 + length(n.next)",
        "node = Node(1, Node(2))\nassert length(node) == 2\nassert node.next.v == 2",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_passes(name: str) -> None:
    code, tests = RIGHT[name]
    ran = run(code, tests)
    assert ran.how == "ended", ran
    assert run("", tests).how == "raised"


TEST = "assert plus(1, 1) == 2"
OWN_SIDE = """
import gc, json, os, struct, sys, threading, time
def walk():
    frame, found = sys._getframe(), {}
    while frame:
        found = {**frame.f_locals, **found}
        frame = frame.f_back
    return found
own = walk()
socket, wire = own["socket"], own["wire"]
texts = [str(value) for value in own.values()] + [str(each) for each in gc.get_objects() if isinstance(each, dict)]
assert not any("plus" + "(1, 1" in text for text in texts), "the tests can be read"
def told(*messages):
    for message in messages:
        text = message if isinstance(message, bytes) else json.dumps(message).encode()
        os.write(socket, struct.pack("!I", len(text)) + text)
def everywhere(data):
    for fd in range(64):
        try:
            os.write(fd, data)
        except OSError:
            pass
REPORT = json.dumps({"how": "ended", "status": 0, "result": "", "error": ""}).encode()
def plus(a, b):
    return 3
"""
"""What an attacker starts with: the socket of the process, and how to write to it."""


def answers(*replies: str, before: str = "") -> str:
    """A program that writes answers of its own instead of the one that it is asked for."""
    return f"{OWN_SIDE}{before}\ndef plus(a, b):\n    told({', '.join(replies)})\n    time.sleep(60)"


FRAME = "def plus(a, b):\n    def frames(): yield\n    return {}"
WRONG = {
    # (a) a value that holds a frame, and all that is no plain data
    "returns a generator": (FRAME.format("frames()"), TEST),
    "returns a generator in a list": (FRAME.format("[2, frames()]"), "assert plus(1, 1)[1].gi_frame"),
    "returns a frame": ("import sys\ndef plus(a, b): return sys._getframe()", TEST),
    "returns a function": ("def plus(a, b): return lambda *args: 2", TEST),
    "returns a class": ("def plus(a, b): return type", TEST),
    "returns a module": ("import os\ndef plus(a, b): return os", TEST),
    "returns itself in a list": ("def plus(a, b):\n    x = []\n    x.append(x)\n    return x", TEST),
    "returns what grows": ("def plus(a, b):\n    x = []\n    for _ in range(99): x = [x, x]\n    return x", TEST),
    "returns too much": ("def plus(a, b): return 'x' * (100 << 20)", TEST),
    "names a generator": ("plus = (x for x in [2])", TEST),
    "wants callbacks": ("class Sum:\n    def __radd__(self, other): return 2\ndef plus(a, b): return Sum()", "assert 0 + plus(1, 1) == 2"),
    # (b) messages that the program writes itself
    "asks the tests": (answers('["do", "call", [{"builtin": "exec"}, "raise SystemExit"], {}]', '[2, "call", 0, [], False]'), TEST),
    "names a builtin": (answers('[2, ["raised", "__dict__", [["l", 0]], ""]]', '[2, ["raised", "SystemExit", [["l", 0]], ""]]'), TEST),
    "raises KeyboardInterrupt there": (answers('[2, ["raised", "KeyboardInterrupt", [["l", 0]], ""]]'), "try:\n    plus(1, 1)\nexcept BaseException:\n    pass"),
    "makes the decoder fail": (answers('[2, ["plain", [["?", 0]]]]'), "try:\n    plus(1, 1)\nexcept BaseException:\n    pass"),
    "sends steps of objects": (answers('[2, ["plain", [["o", 0]]]]'), "plus(1, 1)"),
    "sends parts that are not there": (answers('[2, ["plain", [["l", -1]]]]'), "plus(1, 1)"),
    "sends a dict as a key": (answers('[2, ["plain", [["d", 0], ["s", 1]]]]'), "plus(1, 1)"),
    "sends JSON in a step": (answers('[2, ["plain", [{"__class__": "x"}]]]'), "plus(1, 1)"),
    "sends two values": (answers('[2, ["plain", [2, 2]]]'), "plus(1, 1)"),
    "sends a deep message": (answers('b"[" * (1 << 20)'), "plus(1, 1)"),
    "sends an endless number": (answers("""b'[2, ["plain", [' + b"9" * 5000 + b"]]]" """), "plus(1, 1)"),
    "sends no JSON": (answers('b"\\xff"'), "plus(1, 1)"),
    "announces too much": (answers(before="os.write(socket, b'\\xff' * 8)"), TEST),
    "answers before it is asked": (OWN_SIDE + 'told(*[[n, ["plain", [2]]] for n in range(9, 99)])', TEST),
    "answers twice": (answers('[2, ["plain", [3]]]', '[2, ["plain", [2]]]'), f"plus(1, 1)\n{TEST}"),
    "changes what it was not given to change": (answers('[2, ["plain", [2], [0, ["l", 0], ["d", 1]]]]'), "xs = [1]\nassert plus(xs, 1) == 2"),
    "changes a number": (answers('[2, ["plain", [2], [0, 0, ["d", 1]]]]'), "plus(1, 1)"),
    "ends loops": ("def plus(a, b): raise StopIteration", "for found in map(plus, [1], [1]):\n    assert found == 2"),
    "says that the tests are over": (OWN_SIDE + "everywhere(b'\\0')\neverywhere(REPORT)\nos._exit(0)", TEST),
    "reports while it is called": (OWN_SIDE + "def plus(a, b):\n    everywhere(REPORT)\n    os._exit(0)", TEST),
    "reports from a thread": (OWN_SIDE + "threading.Thread(target=lambda: [everywhere(REPORT) for _ in range(999)], daemon=True).start()", TEST),
    "reports from a child that outlives it": (
        OWN_SIDE + "if not os.fork():\n    while True:\n        everywhere(REPORT)\n        time.sleep(0.01)\nos._exit(0)",
        TEST,
    ),
    # (c) names that nobody asked for
    "sends more names": (
        OWN_SIDE + 'told([1, ["ran", ["plain", [2]], ["plain", [2]]]])\ntime.sleep(60)',
        TEST,
    ),
    "sends names instead of places": (OWN_SIDE + 'told([1, {"plus": 2, "__builtins__": {"AssertionError": 0}}])\ntime.sleep(60)', TEST),
    "defines __builtins__": (
        "__builtins__ = {'AssertionError': SystemExit, '__import__': lambda *args: None}\ndef plus(a, b): return 9",
        f"import math\n{TEST}",
    ),
    # (d) names that the tests have, and objects that answer "yes"
    "defines names of the prelude": (
        "def isclose(a, b): return True\nsqrt = reduce = Counter = isclose\ndef plus(a, b): return 9",
        "assert isclose(plus(1, 1), 2) and Counter(str(plus(1, 1))) == Counter('2') and sqrt(plus(1, 1)) == sqrt(2)",
    ),
    "defines names of Python": (
        "import builtins\nbuiltins.AssertionError = ValueError\nbuiltins.abs = lambda x: 0\ndef abs(x): return 0\ndef plus(a, b): return 9",
        "assert abs(plus(1, 1) - 2) < 1",
    ),
    "defines the check": ("def check(f): pass\ndef plus(a, b): return 9", "def check(f):\n    assert f(1, 1) == 2\ncheck(plus)"),
    **{
        f"answers yes to {method}": (f"class Yes:\n    def {method}(self, *args): return True\ndef plus(a, b): return Yes()", test)
        for method, test in {
            "__contains__": "assert 2 in plus(1, 1)",
            "__eq__": TEST,
            "__bool__": "assert plus(1, 1)",
            "issubset": "assert plus(1, 1).issubset({2})",
            "endswith": "assert plus('a', 'b').endswith('b')",
            "count": "found = plus(1, 1)\nassert found.count(2)",
            "__instancecheck__": "assert isinstance(plus(1, 1), int)",
            "__ne__": "assert plus(1, 1) != 3",
            "near": "assert getattr(plus(1, 1), 'near')(2)",
        }.items()
    },
    **{
        f"extends {kind}": (
            f"class Any({kind}):\n    def __eq__(self, other): return True\n    __ne__ = __lt__ = __contains__ = __eq__\n"
            f"    def __sub__(self, other): return 0.0\n    __rsub__ = __sub__\n    def endswith(self, x): return True\n"
            f"    def __hash__(self): return 1\n    issubset = endswith\ndef plus(a, b): return Any({value})",
            test,
        )
        for kind, value, test in [
            ("int", 9, TEST),
            ("float", 9, "assert abs(plus(1, 1) - 2) < 1e-6"),
            ("str", "'x'", "assert plus('a', 'b').endswith('b')"),
            ("list", "[]", "assert 2 in plus(1, 1)"),
            ("set", "[9]", "assert plus(1, 1).issubset({2})"),
            ("dict", "a=1", "assert plus(1, 1) == {}"),
        ]
    },
    "calls its own object numpy": (
        "class np:\n    allclose = isclose = staticmethod(lambda *args: True)\ndef plus(a, b): return 9",
        "assert np.allclose(plus(1, 1), 2) and np.isclose(plus(1, 1), 2)",
    ),
    "has attributes that answer yes": (
        "class Yes:\n    def __getattr__(self, name): return lambda *args: True\nclass Box:\n    text = Yes()\n    def plus(self): return Yes()",
        "box = Box()\nassert box.text.endswith('b')",
    ),
    "has attributes of attributes that answer yes": (
        "class Yes:\n    def __getattr__(self, name): return lambda *args: True\nclass Box:\n    text = Yes()",
        "box = Box()\nassert box.text.near(2)",
    ),
    "has methods that return what answers yes": (
        "class Yes:\n    def __getattr__(self, name): return lambda *args: True\nclass Box:\n    def text(self): return Yes()",
        "box = Box()\nassert box.text().endswith('b')",
    ),
    "names an object that answers yes": (
        "class Yes:\n    def count(self, x): return 1\nfound = Yes()",
        "assert found.count(2) == 1",
    ),
    "defines what a result in a variable is compared with": (
        "def isclose(a, b): return True\ndef f(a, b): return 9",
        "found = f(1, 1)\nassert isclose(found, 2)",
    ),
    "leaves the call in a variable to the prelude": ("", "found = add(1, 1)\nassert found == 2"),
    "leaves it to the prelude": ("", "assert add(1, 1) == 2"),
    "leaves it to Python": ("x = 1", "assert sum([1, 1]) == 2"),
    # the rest
    "exits": ("import sys\ndef plus(a, b): sys.exit(0)", TEST),
    "exits before": ("import os\nos._exit(0)", TEST),
    "exits at the last call": ("import os\ndef plus(a, b): os._exit(0)", "try:\n    plus(1, 1)\nexcept Exception:\n    pass"),
    "raises what is no exception": ("def plus(a, b): raise type('Error', (BaseException,), {})", TEST),
    "raises an exception of an odd class": ("class Odd(type(OSError)):\n    __name__ = 3\nclass E(Exception, metaclass=Odd): pass\ndef plus(a, b): raise E", TEST),
    "fails before": ("def plus(a, b): return 2\nraise ValueError", TEST),
    "ends its parent": ("import os\nos.kill(os.getppid(), 9)\ndef plus(a, b): return 9", TEST),
    "ends all that it sees": ("import os\nfor pid in map(int, filter(str.isdigit, os.listdir('/proc'))):\n    if pid != os.getpid(): os.kill(pid, 9)", TEST),
    "clears its argument": ("def plus(xs): xs.clear(); return []", "xs = [2, 1]\nassert plus(xs) == sorted(xs)"),
    "leaves files": (
        "import os\nfor folder in ('/box', '/tmp', '.', '/dev/shm'):\n"
        "    for name in ('math.py', 'conftest.py', 'sitecustomize.py', 'x.pth'):\n"
        "        try: open(f'{folder}/{name}', 'w').write('import os; os._exit(0)')\n        except OSError: pass\ndef plus(a, b): return 9",
        f"import math\n{TEST}",
    ),
    "reads the tests": (OWN_SIDE + "assert not sys.stdin.read()\nfor fd in range(64):\n    try: assert b'assert' not in os.pread(fd, 999, 0)\n    except OSError: pass", TEST),
    "is not there": ("", TEST),
    "is no text": ("\\x00\\ud800", TEST),
    "looks like the name": ("def ｐlus2(a, b): return 2", TEST),
}  # fmt: skip


@needs_sandbox
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_program_does_not_pass(name: str) -> None:
    code, tests = WRONG[name]
    ran = run(code, tests, isolation="namespaces", seconds=6.0)
    assert ran.how != "ended", ran
    assert "can be read" not in ran.error


@needs_sandbox
def test_a_program_that_never_answers_is_late() -> None:
    assert run("def plus(a, b):\n    while True: pass", TEST, isolation="namespaces", seconds=1.5).how == "late"


@needs_sandbox
@pytest.mark.parametrize(
    "tests",
    [
        "import os\nos._exit(0)",
        "import json, os\nfor fd in range(3, 64):\n    try: os.write(fd, json.dumps({'how': 'ended'}).encode())\n"
        "    except OSError: pass\nos._exit(0)",
        "import os\nos.kill(os.getpid(), 9)",
    ],
)
def test_only_a_process_that_says_so_when_the_program_has_ended_and_then_ends_well_has_passed(
    tests: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happens in the process of the tests: to leave it is not to pass, and before the end there is nowhere to report."""
    monkeypatch.setattr(programs, "split", lambda *args: Split())
    assert run("", tests, isolation="namespaces").how == "killed"


def test_the_program_has_ended_before_its_tests_can_report(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[sandbox.Process] = []
    had_ended: list[bool] = []

    class Watched(sandbox.Process):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            started.append(self)

    def send_fds(*args: Any) -> int:
        had_ended.append(started[0].result is not None)
        return real(*args)

    real = socket.send_fds
    monkeypatch.setattr(programs.sandbox, "Process", Watched)
    monkeypatch.setattr(programs.socket, "send_fds", send_fds)
    assert run("def plus(a, b): return a + b", TEST).how == "ended"
    assert had_ended == [True]


def test_a_report_counts_if_its_process_ended_well() -> None:
    report = json.dumps({"how": "ended"}).encode()
    assert programs._ran(Result(0), report, Result(0)).how == "ended"
    assert programs._ran(Result(139), report, Result(0)).how == "killed"
    assert programs._ran(Result(0, "time"), report, Result(0)).how == "late"
    for other in (b"", b"[]", b"[" * 99_999, b'{"how": "passed"}', b'{"how": "ended", "error": 1}', report * 2):
        assert programs._ran(Result(0), other, Result(0)).how == "killed"


@pytest.mark.parametrize(
    ("tests", "together"),
    [
        ("assert f(1) == 2", False),
        ("import math\nassert math.isclose(f(1), 2)", False),
        ("import sys\nsys.setrecursionlimit(9999)\nassert f(1) < sys.maxsize", False),
        ("assert 1 +", False),
        ("assert list(map(f, [1])) == sorted([2], key=lambda x: x)", False),
        ("import sys\nsys.stdout = None\nf()", True),
        ("from sys import stdout\nf()", True),
        ("import io\nf()", True),
        ("from unittest.mock import patch", True),
        ("import unittest\nunittest.mock.patch('f')", True),
        ("import pandas as pd", True),
        ("import numpy as np\nassert np.allclose(f(1), 2)", False),
        ("import numpy as np\nassert f(np.zeros(3)) == 2", True),
        ("eval('f(1)')", True),
        ("from collections import deque\nassert f(deque([1])) == 2", True),
        ("assert f(date(2020, 1, 1)) == 2", True),
        ("assert f(lambda x: x) == 2", True),
        ("assert f(x for x in [1]) == f(map(str, [1])) == f(math.pi) == 2", False),
        ("assert f(len, [1]) == 2", True),
        ("assert f(sqrt, 1) == 2", True),
        ("import math\nassert f([math.sqrt]) == 2", True),
        ("def g(x): return x\nassert f(g) == 2", True),
        ("class A: pass\na = A()\nassert f([a]) == 2", True),
        ("f.cache = {}\nassert f(1) == 2", True),
        ("class B(Base): pass\nassert B().f() == 2", True),
        ("@f\ndef g(): pass\nassert g() == 2", True),
        ("assert isinstance(f(1), Node)", True),
        ("assert len(Stack()) == 0", True),
        ("s = Stack()\nassert str(s) == ''", True),
        ("s = Stack()\nassert 3 in s", True),
        ("assert f(1).all()", True),
        ("r = f(1)\nassert r.left.v == 2", True),
        ("assert f(1).count(2) == f(1).real", False),
        ("assert f(1)(2) == 3", False),
        ("found = add(1, 2)\nassert found == 3", False),
        ("found = add(1, 2)\nassert isclose(found, 3)", True),
        ("x = randint(0, 9)\nassert add(x, 1) == x + 1", True),
        ("assert isclose(add(1, 2), 3)", False),
        ("xs = Counter(list('aab'))\nassert add(1, 2) == 3", False),
        (
            "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.s = Stack()\n        self.assertRaises(IndexError, self.s.pop)\n"
            "T('test').debug()",
            False,
        ),
        ("assert np.zeros(3) is f(1)", True),
        ("with Timer() as t:\n    f(1)", True),
        ("import asyncio\nassert asyncio.run(f(1)) == 2", True),
        ("async def g():\n    assert await f(1) == 2", True),
    ],
)
def test_the_tests_alone_decide_whether_they_run_apart(tests: str, *, together: bool) -> None:
    assert bool(SandboxedProgram("", prelude=IMPORTS, tests=tests).split.together) is together


def test_objects_of_the_preludes_classes_are_shared() -> None:
    prelude = "class ListNode:\n    pass\ndef node(xs) -> ListNode:\n    return ListNode()\ndef same(a: 'ListNode', b): return a == b\n"
    assert SandboxedProgram("", prelude=prelude, tests="assert f(node([1])) == 1").split.together
    assert not SandboxedProgram("", prelude=prelude, tests="assert f([1]) == 1").split.together


def _usual() -> list[tuple[Call, str]]:
    """The usual tests, as rows of ROLL and verl with the right program as their response."""

    def roll(code: str, kind: str, *, function: str | None = None, **case: str) -> tuple[Call, str]:
        columns = {"case_type": kind, "test_cases": [case], "test_case_function": function}
        return Call("code", f"```python\n{code}\n```", columns=columns), "roll"

    return [
        *(roll(code, "assert", assert_code=f"{test}\ncheck({name})") for code, test, name in usual_tests.HUMANEVAL),
        *(
            roll(code, "check_based", assert_code=test, entry_point=name)
            for code, test, name in usual_tests.HUMANEVAL + usual_tests.LEETCODE
            if all(line.startswith(("def", "    assert")) for line in test.split("\n"))
        ),
        *(roll(code, "assert", assert_code=f"{test}\ncheck({name})") for code, test, name in usual_tests.LEETCODE),
        *(roll(code, "assert", assert_code=test) for code, test in usual_tests.MBPP + usual_tests.TOGETHER),
        *(roll(code, "pytest", assert_code=test) for code, test in usual_tests.PYTEST),
        *(
            roll(code, "io", function=name, stdin=given, expected_stdout=found)
            for code, name, given, found in usual_tests.CALLS
        ),
        *(roll(code, "io", stdin=given, expected_stdout=found) for code, given, found in usual_tests.PRINTS),
        *(
            (Call("code", f"```python\n{code}\n```", answer={"assert_case": [test]}), "verl")
            for code, test in usual_tests.ASSERT_CASE
        ),
    ]


def test_nine_in_ten_of_the_usual_tests_run_apart() -> None:
    trials = [trials_of(call, method) or [] for call, method in _usual()]
    together = [each for each in trials if any(trial.program.split.together for trial in each)]
    assert len(trials) >= 60
    assert len(together) == len(usual_tests.TOGETHER)
    assert len(together) <= 0.1 * len(trials)


@needs_sandbox
@pytest.mark.parametrize("index", range(len(_usual())))
def test_right_programs_pass_the_usual_tests(index: int) -> None:
    call, method = _usual()[index]
    trials = trials_of(call, method) or []
    ran = run_programs([trial.program for trial in trials], Limits(), "namespaces")
    assert ran
    assert all(trial.passes(each) for trial, each in zip(trials, ran, strict=True)), ran


def test_tests_that_capture_output_work_together() -> None:
    tests = "import io, contextlib\nout = io.StringIO()\nwith contextlib.redirect_stdout(out):\n    f()\nassert out.getvalue() == 'x\\n'"
    found = run_programs(
        [SandboxedProgram("def f(): print('x')", tests=tests), SandboxedProgram("def f(): print('y')", tests=tests)],
        Limits(),
        "limits",
    )
    assert [(ran.how, ran.together) for ran in found] == [("ended", True), ("raised", True)]
