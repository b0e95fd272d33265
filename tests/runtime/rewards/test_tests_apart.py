"""Tests decide about a program from another process: a right program passes as if they shared one, a wrong one cannot make itself pass."""

from __future__ import annotations

import pytest

from rlctl.common.errors import RunError
from rlctl.runtime.rewards.programs import Isolation, Limits, Ran, SandboxedProgram, check, run_programs, runs_apart
from rlctl.runtime.rewards.trials import IMPORTS


def _isolated() -> bool:
    try:
        check("namespaces")
    except RunError:
        return False
    return True


needs_sandbox = pytest.mark.skipif(not _isolated(), reason="no sandbox here")


def run(code: str, tests: str, *, isolation: Isolation = "limits", seconds: float = 20.0, entry: str = "") -> Ran:
    assert runs_apart(tests)
    program = SandboxedProgram(code, prelude=IMPORTS, tests=tests, entry=entry)
    return run_programs([program], Limits(seconds), isolation)[0]


CLASSES = """
class Node:
    def __init__(self, value, left=None, right=None):
        self.value, self.left, self.right = value, left, right
    def __eq__(self, other):
        return isinstance(other, Node) and self.value == other.value
    def __hash__(self):
        return hash(self.value)
    def __add__(self, other):
        return Node(self.value + (other.value if isinstance(other, Node) else other))
    def __radd__(self, other):
        return self + other
    def __lt__(self, other):
        return self.value < other.value
    def __len__(self):
        return 3
    def __getitem__(self, place):
        return [self.value, self.left, self.right][place]
    def __contains__(self, item):
        return item == self.value
    def __iter__(self):
        return iter([1, 2, 3])
    def __str__(self):
        return f"<{self.value}>"
    def __enter__(self):
        return self.value
    def __exit__(self, *error):
        self.value = "closed"
class Leaf(Node):
    pass
class NotFound(KeyError):
    pass
def find(node, value):
    while node:
        if node.value == value:
            return node
        node = node.left if value < node.value else node.right
    raise NotFound(value)
"""

RIGHT = {
    "a value": ("def plus(a, b):\n    return a + b", "assert plus(1, 2) == 3\nassert plus([1], [2]) == [1, 2]"),
    "values of many types": (
        "def same(x): return x",
        """
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
import datetime
values = [None, True, 1, -0.5, 10**5000, float("inf"), "é\\ud800", b"x", bytearray(b"y"), 1 + 2j, (1, (2,)), {1, 2}, frozenset({3}),
          {1: [2], (3, 4): None}, range(2, 8, 3), Counter("aab"), OrderedDict(a=1), deque([1]), Decimal("0.1"), Fraction(1, 3),
          datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3), datetime.timedelta(1, 2), int, ValueError, math, len]
for value in values:
    found = same(value)
    assert found == value and type(found) is type(value), value
assert math.isnan(same(math.nan))
assert same(defaultdict(list, a=[1]))["a"] == [1]
assert same(values) == values
""",
    ),
    "arguments that are changed": (
        "def order(xs, seen):\n    xs.sort()\n    seen['n'] = len(xs)\n    return xs",
        "xs, seen = [3, 1, 2], {}\nassert order(xs, seen=seen) is xs\nassert xs == [1, 2, 3] and seen == {'n': 3}",
    ),
    "generators and iterators": (
        "def count(n):\n    for i in range(n): yield i",
        "assert list(count(3)) == [0, 1, 2]\ng = count(2)\nassert next(g) == 0 and next(g) == 1\nassert next(g, 9) == 9",
    ),
    "classes": (
        CLASSES,
        """
tree = Node(5, Leaf(2), Node(8))
assert isinstance(tree.left, Leaf) and isinstance(tree.left, Node) and not isinstance(tree.right, Leaf)
assert issubclass(Leaf, Node) and not isinstance(3, Node)
assert find(tree, 8) is tree.right and find(tree, 2).value == 2
assert tree == Node(5) and tree != Node(6) and Node(1) < Node(2) and sorted([Node(3), Node(1)])[0] == Node(1)
assert (Node(1) + Node(2)).value == 3 and (Node(1) + 4).value == 5 and (4 + Node(1)).value == 5 and sum([Node(1), Node(2)]) == Node(3)
assert len(tree) == 3 and tree[0] == 5 and 5 in tree and 6 not in tree and list(tree) == [1, 2, 3] and str(tree) == "<5>"
tree.value = 7
assert tree.value == 7 and len({Node(1), Node(1), Node(2)}) == 2
with tree as value:
    assert value == 7
assert tree.value == "closed"
tree.value = 5
import copy
assert copy.deepcopy(tree) == tree
try:
    find(tree, 99)
except NotFound as error:
    assert error.args == (99,)
else:
    assert False
try:
    find(tree, 98)
except KeyError:
    pass
""",
    ),
    "exceptions": (
        "def f(x):\n    if x < 0: raise ValueError('negative')\n    return 1 // x",
        """
import pytest
with pytest.raises(ValueError, match="negative"):
    f(-1)
with pytest.raises(ZeroDivisionError):
    f(0)
assert f(1) == pytest.approx(1.0)
""",
    ),
    "functions as arguments and results": (
        "def twice(f):\n    return lambda x: f(f(x))\ndef apply(f, xs):\n    return [f(x) for x in xs]",
        "seen = []\nassert twice(lambda x: x + 3)(1) == 7\nassert apply(lambda x: seen.append(x) or len(seen), 'ab') == [1, 2]",
    ),
    "objects of the tests": (
        "def depth(node):\n    return 0 if node is None else 1 + depth(node.next)\ndef cut(node):\n    node.next = None",
        """
class ListNode:
    def __init__(self, next=None):
        self.next = next
chain = ListNode(ListNode(ListNode()))
assert depth(chain) == 3
cut(chain)
assert chain.next is None
""",
    ),
    "named tuples": (
        "from collections import namedtuple\nPoint = namedtuple('Point', 'x y')\ndef f(): return Point(1, 2)",
        "p = f()\nassert p == (1, 2) and p.x == 1 and p[1] == 2 and list(p) == [1, 2]\nx, y = p",
    ),
    "arrays": (
        "import numpy as np\ndef double(a): return a * 2\ndef fill(a): a[:] = 1",
        """
import numpy as np
a = np.arange(4.0).reshape(2, 2)
assert np.array_equal(double(a), a * 2) and double(np.float32(2)) == 4 and double(a).dtype == a.dtype
fill(a)
assert a.sum() == 4
""",
    ),
    "a name of a builtin or import, if it is what is tested": (
        "def sum(a, b): return a * b\ndef helper(): pass",
        "assert sum(2, 5) == 10",
    ),
    "test functions": ("def f(): return 1", "def test_f():\n    assert f() == 1\ntest_f()"),
    "modules that the program imported": ("import math as m\nx = m.pi", "assert m.floor(x) == 3"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_passes(name: str) -> None:
    code, tests = RIGHT[name]
    if name == "arrays":
        pytest.importorskip("numpy")
    ran = run(code, tests)
    assert ran.how == "ended", ran
    wrong = run("", tests)
    assert wrong.how == "raised", wrong


TEST = "assert plus(1, 1) == 2"
FORGE = """
import gc, json, os, struct, sys, threading
frame = sys._getframe()
found = []
while frame:
    found += [repr(value) for value in frame.f_locals.values()] + list(map(str, frame.f_locals.values()))
    frame = frame.f_back
found += [str(each) for each in gc.get_objects() if isinstance(each, dict)]
assert not any("plus" + "(1, 1" in text for text in found), "the tests can be read"
report = json.dumps({"how": "ended", "status": 0, "result": "", "error": ""}).encode()
def frames(*messages):
    return b"".join(struct.pack("!I", len(text)) + text for text in (json.dumps(m).encode() for m in messages))
def write(data):
    for fd in range(64):
        try:
            os.write(fd, data)
        except OSError:
            pass
"""
WRONG = {
    "reports for the tests": (FORGE + "write(report)\nos._exit(0)", TEST),
    "reports while it is called": (FORGE + "def plus(a, b):\n    write(report)\n    os._exit(0)", TEST),
    "forges answers": (FORGE + "write(frames(*[['done', {'m': [['plus', 2]]}, []]] * 3))\ntime.sleep(60)", TEST),
    "has code called here": (
        FORGE
        + """
def plus(a, b):
    for code in ("__import__('os').write(2, b'ended')", "raise SystemExit(0)"):
        for builtin in ("exec", "eval", "setattr", "getattr", "print"):
            write(frames(["do", "call", [{"builtin": builtin}, code, {"m": []}], {}]))
    write(frames(["do", "get", [{"yours": 0}, "__globals__"], {}]))
    return 3
""",
        "def f(): pass\nassert plus(f, 1) == 2",
    ),
    "equals everything": (
        "class Any:\n    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: True\n    def __sub__(self, other): return self\n"
        "    __abs__ = __rsub__ = __sub__\ndef plus(a, b): return Any()",
        TEST,
    ),
    "is near everything, and no number": (
        "class Any:\n    def __sub__(self, other): return 0.0\n    __rsub__ = __sub__\n    def __abs__(self): return 0.0\n"
        "def plus(a, b): return Any()",
        "assert abs(plus(1, 1) - 2) < 1e-6",
    ),
    "is near everything": (
        "class Any(float):\n    def __sub__(self, other): return 0.0\n    __rsub__ = __eq__ = __sub__\n    def __abs__(self): return 0.0\n"
        "def plus(a, b): return Any(9)",
        "assert abs(plus(1, 1) - 2) < 1e-6",
    ),
    "changes builtins": (
        "import builtins\nbuiltins.AssertionError = ValueError\nbuiltins.abs = lambda x: 0\ndef abs(x): return 0\ndef isclose(a, b): return True\n"
        "def plus(a, b): return 9",
        "assert abs(plus(1, 1) - 2) < 1 and isclose(plus(1, 1), 2)",
    ),
    "defines the check": (
        "def check(f): pass\ndef plus(a, b): return 9",
        "def check(f):\n    assert f(1, 1) == 2\ncheck(plus)",
    ),
    "exits": ("import sys\ndef plus(a, b): sys.exit(0)", TEST),
    "exits before": ("import os\nos._exit(0)", TEST),
    "raises what is no exception": ("def plus(a, b): raise type('Error', (BaseException,), {})", TEST),
    "ends its parent": ("import os\nos.kill(os.getppid(), 9)\ndef plus(a, b): return 9", TEST),
    "sends too much": ("def plus(a, b): return 'x' * (100 << 20)", TEST),
    "is recursive": ("def plus(a, b):\n    x = []\n    x.append(x)\n    return x", TEST),
}


@needs_sandbox
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_program_does_not_pass(name: str) -> None:
    code, tests = WRONG[name]
    ran = run(code, tests, isolation="namespaces", seconds=10.0)
    assert ran.how != "ended", ran
    assert "the tests can be read" not in ran.error


@needs_sandbox
def test_a_program_that_never_answers_is_late() -> None:
    assert run("def plus(a, b):\n    while True: pass", TEST, isolation="namespaces", seconds=1.5).how == "late"


@pytest.mark.parametrize(
    ("tests", "apart"),
    [
        ("assert f(1) == 2", True),
        ("import math\nassert math.isclose(f(1), 2)", True),
        ("assert 1 +", True),
        ("import io, sys\nsys.stdout = io.StringIO()\nf()", False),
        ("from unittest.mock import patch", False),
        ("import pandas as pd", False),
        ("def test_f(capsys): pass", False),
        ("eval('f(1)')", False),
    ],
)
def test_tests_that_reach_into_the_process_share_it(tests: str, *, apart: bool) -> None:
    assert runs_apart(tests) is apart


def test_tests_that_capture_output_work() -> None:
    tests = "import io, contextlib\nout = io.StringIO()\nwith contextlib.redirect_stdout(out):\n    f()\nassert out.getvalue() == 'x\\n'"
    found = run_programs(
        [SandboxedProgram("def f(): print('x')", tests=tests), SandboxedProgram("def f(): print('y')", tests=tests)],
        Limits(),
        "limits",
    )
    assert [ran.how for ran in found] == ["ended", "raised"]
