"""Small tests in the formats of the usual data sets, each with a right program; written here, in the style of each.

HUMANEVAL   ROLL's check_based: a function ``check``, and the name of what it checks
LEETCODE    the same, of a method of ``Solution``
MBPP        ROLL's assert: lines of assertions        (verl's assert_case is the same without a prelude)
PYTEST      ROLL's pytest: test functions
CALLS       APPS, LiveCodeBench, prime_code: a function or method, arguments, result
PRINTS      APPS, LiveCodeBench, CodeContests: input and output
"""

from __future__ import annotations

HUMANEVAL = [
    (
        "def below(xs, t):\n    return all(x < t for x in xs)",
        "def check(candidate):\n    assert candidate([1, 2], 5)\n    assert not candidate([1, 20], 5)",
        "below",
    ),
    (
        "def add(x, y):\n    return x + y",
        "def check(candidate):\n    import random\n    for _ in range(5):\n        x, y = random.randint(0, 9), random.randint(0, 9)\n        assert candidate(x, y) == x + y",
        "add",
    ),
    (
        "def mad(xs):\n    m = sum(xs) / len(xs)\n    return sum(abs(x - m) for x in xs) / len(xs)",
        "METADATA = {'author': 'x'}\ndef check(candidate):\n    assert abs(candidate([1.0, 2.0, 3.0]) - 2.0 / 3.0) < 1e-6",
        "mad",
    ),
    (
        "def parse(s):\n    return s.split()",
        "def check(candidate):\n    assert candidate('(()) ()') == ['(())', '()'], 'the example'\n    assert candidate('') == []",
        "parse",
    ),
    (
        "def encode(s):\n    return s[::-1]\ndef decode(s):\n    return s[::-1]",
        "def check(candidate):\n    from random import choice\n    import string\n    letters = string.ascii_lowercase\n    for _ in range(5):\n        text = ''.join(choice(letters) for _ in range(9))\n        assert candidate(encode(text)) == text",
        "decode",
    ),
    (
        "import math\ndef poly(xs, x):\n    return sum(c * x ** i for i, c in enumerate(xs))\ndef find_zero(xs):\n    return -xs[0] / xs[1]",
        "def check(candidate):\n    import copy\n    for xs in ([2, 1], [3, -4]):\n        assert math.fabs(poly(xs, candidate(copy.deepcopy(xs)))) < 1e-4",
        "find_zero",
    ),
    (
        "def median(xs):\n    xs = sorted(xs)\n    return (xs[len(xs) // 2] + xs[(len(xs) - 1) // 2]) / 2",
        "def check(candidate):\n    assert candidate([3, 1, 2]) == 2\n    assert candidate([5]) == 5",
        "median",
    ),
    (
        "def search(xs):\n    return max([x for x in xs if xs.count(x) >= x], default=-1)",
        "def check(candidate):\n    assert candidate([5, 5, 5, 5, 1]) == 1, 'first'\n    assert True",
        "search",
    ),
    (
        "def unique(xs):\n    return sorted(set(xs))",
        "def check(candidate):\n    assert tuple(candidate([5, 3, 5])) == (3, 5)",
        "unique",
    ),
    (
        "def rounded(s):\n    return round(float(s))",
        "def check(candidate):\n    assert candidate('10') == 10, f'got {candidate(\"10\")}'",
        "rounded",
    ),
    (
        "def both(a, b):\n    return {k: v for k, v in a.items() if k in b}",
        "def check(candidate):\n    assert candidate({'a': 1, 'b': 2}, {'a': 0}) == {'a': 1}",
        "both",
    ),
    (
        "def first(xs):\n    return xs[0] if xs else None",
        "def check(candidate):\n    assert candidate([]) is None\n    assert candidate([1]) == 1",
        "first",
    ),
    (
        "def near(x):\n    return x / 3",
        "import numpy as np\ndef is_floats(x):\n    return isinstance(x, float)\ndef assertion(out, exp, atol):\n    if is_floats(exp):\n        assert np.allclose(out, exp, rtol=1e-7, atol=atol)\n    else:\n        assert out == exp\ndef check(candidate):\n    inputs, results = [[1], [2]], [1 / 3, 2 / 3]\n    for i, (inp, exp) in enumerate(zip(inputs, results)):\n        assertion(candidate(*inp), exp, 1e-6)",
        "near",
    ),
]
LEETCODE = [
    (
        "class Solution:\n    def twoSum(self, nums, target):\n        return [(i, j) for j in range(len(nums)) for i in range(j) if nums[i] + nums[j] == target][0]",
        "def check(candidate):\n    assert candidate(nums = [3, 3], target = 6) == (0, 1)\n    assert candidate(nums = [1, 2], target = 3) == (0, 1)",
        "Solution().twoSum",
    ),
    (
        "class Solution:\n    def longest(self, s: str) -> str:\n        return max(s.split(), key=len)",
        "def check(candidate):\n    assert candidate('a bcd ef') == 'bcd'",
        "Solution().longest",
    ),
    (
        "class Solution:\n    def rotate(self, nums: List[int], k: int) -> None:\n        nums[:] = nums[-k:] + nums[:-k]",
        "def check(candidate):\n    nums = [1, 2, 3]\n    candidate(nums, 1)\n    assert nums == [3, 1, 2]",
        "Solution().rotate",
    ),
    (
        "class Solution:\n    def groups(self, words):\n        found = defaultdict(list)\n        for word in words:\n            found[''.join(sorted(word))].append(word)\n        return list(found.values())",
        "def check(candidate):\n    assert sorted(map(sorted, candidate(words=['ab', 'ba', 'c']))) == [['ab', 'ba'], ['c']]",
        "Solution().groups",
    ),
    (
        "class Solution:\n    def grid(self, g):\n        return [row[::-1] for row in g]",
        "def check(candidate):\n    assert candidate(g = [[1, 2], [3, 4]]) == [[2, 1], [4, 3]]",
        "Solution().grid",
    ),
]
MBPP = [
    (
        "def similar(a, b):\n    return tuple(set(a) & set(b))",
        "assert similar((3, 4, 5), (5, 7, 4)) == (4, 5) or set(similar((3, 4, 5), (5, 7, 4))) == {4, 5}",
    ),
    (
        "def is_not_prime(n):\n    return any(n % i == 0 for i in range(2, n))",
        "assert is_not_prime(2) == False\nassert is_not_prime(10) == True",
    ),
    (
        "import heapq\ndef largest(xs, n):\n    return heapq.nlargest(n, xs)",
        "assert largest([25, 35, 22], 2) == [35, 25]",
    ),
    (
        "from collections import Counter\ndef freq_count(xs):\n    return Counter(xs)",
        "assert freq_count([10, 10, 20]) == ({10: 2, 20: 1})",
    ),
    (
        "def volume(r):\n    return 4 / 3 * 3.141592653589793 * r ** 3",
        "assert math.isclose(volume(10), 4188.790204786391, rel_tol=0.001)",
    ),
    ("def area(r):\n    return 3.14 * r * r", "assert isclose(area(1), 3.14)"),
    ("def gcd(a, b):\n    return a if not b else gcd(b, a % b)", "assert gcd(12, 17) == 1\nassert gcd(4, 6) == 2"),
    (
        "def sum(a, b):\n    return a + b if a + b not in range(10, 20) else 20",
        "assert sum(2, 3) == 5\nassert sum(5, 9) == 20",
    ),
    (
        "def Find_Max(lst):\n    return max((len(x), x) for x in lst)[1]",
        "assert Find_Max([['A'], ['A', 'B']]) == ['A', 'B']",
    ),
    ("def Extract(lst):\n    return [x[0] for x in lst]", "assert Extract([[1, 2], [3]]) == [1, 3]"),
    (
        "def check_email(s):\n    return 'Valid' if '@' in s else 'Invalid'",
        "assert check_email('a@b') == 'Valid'\nassert check_email('ab') == 'Invalid'",
    ),
    (
        "import cmath\ndef convert(n):\n    return cmath.polar(n)",
        "assert convert(1) == (1.0, 0.0)\nassert convert(3j)[0] == 3.0",
    ),
    (
        "import re\ndef match_word(s):\n    return bool(re.match('a', s))",
        "assert match_word('ab') is True and not match_word('b')",
    ),
    (
        "def flip(d):\n    return {v: k for k, v in d.items()}",
        "assert flip({'a': 1}) == {1: 'a'}\nassert list(flip({'b': 2, 'a': 1})) == [2, 1]",
    ),
    ("def merge(a, b):\n    return {**a, **b}", "assert merge({'R': 1}, {'B': 2}) == {'B': 2, 'R': 1}"),
    (
        "class Pair(object):\n    def __init__(self, a, b):\n        self.a, self.b = a, b\ndef longest(pairs):\n    return len(pairs)",
        "assert longest([(5, 24), (15, 25)]) == 2",
    ),
    (
        "def nested(xs):\n    return any(x in y if isinstance(y, list) else x == y for y in xs for x in [5])",
        "assert nested([1, [5]]) == True",
    ),
    (
        "def square(xs):\n    return list(map(lambda x: x ** 2, xs))",
        "assert square([1, 2]) == [1, 4]\nassert len(square(range(3))) == 3",
    ),
    (
        "def positive(x):\n    if x < 0:\n        raise ValueError('negative')\n    return x",
        "try:\n    positive(-1)\n    assert False\nexcept ValueError as e:\n    assert str(e) == 'negative'",
    ),
    (
        "def fractions(a, b):\n    from fractions import Fraction\n    return Fraction(a, b)",
        "from fractions import Fraction\nassert fractions(2, 4) == Fraction(1, 2)",
    ),
    (
        "def remove(s, c):\n    return s.replace(c, '')",
        "assert remove('hello', 'l') == 'heo'\nassert remove('', 'l') == ''",
    ),
    ("def data():\n    return b'x', {1}, frozenset({2}), None", "assert data() == (b'x', {1}, frozenset({2}), None)"),
    ("PI = 3\ndef twice(x):\n    return 2 * x", "result = twice(PI)\nassert result == 6"),
]
PYTEST = [
    (
        "def add(a, b):\n    return a + b",
        "def test_add():\n    assert add(1, 2) == 3\ndef test_negative():\n    assert add(-1, 1) == 0",
    ),
    (
        "def div(a, b):\n    return a / b",
        "import pytest\ndef test_div():\n    assert div(4, 2) == 2\n    with pytest.raises(ZeroDivisionError):\n        div(1, 0)",
    ),
    (
        "def need(x):\n    if not isinstance(x, int):\n        raise TypeError('need a number')\n    return x",
        "import pytest\ndef test_need():\n    with pytest.raises(TypeError, match='number'):\n        need('a')\n    assert need(3) == pytest.approx(3.0)",
    ),
    (
        "class Stack:\n    def __init__(self):\n        self.items = []\n    def push(self, x):\n        self.items.append(x)\n    def pop(self):\n        return self.items.pop()\n    def is_empty(self):\n        return not self.items",
        "def test_stack():\n    s = Stack()\n    s.push(1)\n    s.push(2)\n    assert s.pop() == 2\n    assert s.items == [1]\n    assert not s.is_empty()",
    ),
    (
        "class LRUCache:\n    def __init__(self, n):\n        self.n, self.d = n, {}\n    def get(self, k):\n        if k not in self.d:\n            return -1\n        self.d[k] = self.d.pop(k)\n        return self.d[k]\n    def put(self, k, v):\n        self.d.pop(k, None)\n        self.d[k] = v\n        if len(self.d) > self.n:\n            del self.d[next(iter(self.d))]",
        "def test_lru():\n    cache = LRUCache(2)\n    cache.put(1, 1)\n    cache.put(2, 2)\n    assert cache.get(1) == 1\n    cache.put(3, 3)\n    assert cache.get(2) == -1",
    ),
    (
        "class Account:\n    def __init__(self, owner, balance=0):\n        self.owner, self.balance = owner, balance\n    def withdraw(self, n):\n        if n > self.balance:\n            raise ValueError('too much')\n        self.balance -= n",
        "import pytest\ndef test_account():\n    account = Account('ann', balance=5)\n    account.withdraw(2)\n    assert account.balance == 3 and account.owner.startswith('a')\n    with pytest.raises(ValueError):\n        account.withdraw(9)",
    ),
    (
        "class Node:\n    def __init__(self, v):\n        self.v, self.next = v, None\nclass Linked:\n    def __init__(self):\n        self.head = None\n    def push(self, v):\n        n = Node(v)\n        n.next, self.head = self.head, n",
        "def test_linked():\n    linked = Linked()\n    linked.push(1)\n    linked.push(2)\n    assert linked.head.v == 2\n    assert linked.head.next.v == 1\n    assert linked.head.next.next is None",
    ),
    (
        "def words(s):\n    return {w: s.split().count(w) for w in s.split()}",
        "def test_words():\n    cases = [('a b a', {'a': 2, 'b': 1}), ('', {})]\n    for text, expected in cases:\n        assert words(text) == expected",
    ),
    (
        "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)",
        "def test_fib():\n    assert [fib(i) for i in range(6)] == [0, 1, 1, 2, 3, 5]\n    assert all(isinstance(fib(i), int) for i in range(3))",
    ),
    (
        "def sort_by(xs, reverse=False):\n    return sorted(xs, reverse=reverse)",
        "def test_sort():\n    xs = [3, 1, 2]\n    assert sort_by(xs, reverse=True) == sorted(xs, reverse=True)\n    assert xs == [3, 1, 2]",
    ),
    (
        "class Shapes:\n    SIDES = 4\n    @staticmethod\n    def area(a, b):\n        return a * b",
        "def test_shapes():\n    assert Shapes.area(2, 3) == 6\n    assert Shapes.SIDES == 4",
    ),
    (
        "import json\ndef load(s):\n    return json.loads(s)",
        "import json\nimport math\ndef test_load():\n    assert load(json.dumps({'a': [1, None]})) == {'a': [1, None]}\n    assert math.isnan(load('NaN'))",
    ),
    (
        "def f(x):\n    return x",
        "import unittest\ncase = unittest.TestCase()\ndef test_f():\n    case.assertEqual(f([1]), [1])\n    case.assertRaises(TypeError, f)",
    ),
]
CALLS = [
    ("class Solution:\n    def order(self, xs, k):\n        return sorted(xs)[:k]", "order", "[3, 1]\n2", "[1, 3]"),
    ("def order(xs, k):\n    return sorted(xs)[:k]", "order", "[3, 1]\n1", "[1]"),
    ("def rev(s):\n    return s[::-1]", "rev", '"abc"', '"cba"'),
    (
        "class Solution:\n    def ok(self, s: str) -> bool:\n        return s.count('(') == s.count(')')",
        "ok",
        '"()"',
        "true",
    ),
    ("def half(x):\n    return x / 2", "half", "3", "1.5"),
    (
        "class Solution:\n    def grid(self, g: List[List[int]]) -> List[List[int]]:\n        return list(zip(*g))",
        "grid",
        "[[1, 2], [3, 4]]",
        "[[[1, 3], [2, 4]]]",
    ),
]
PRINTS = [
    ("print(2 * int(input()))", "4\n", "8\n"),
    ("n = int(input())\nprint(*sorted(map(int, input().split())))", "3\n3 1 2\n", "1 2 3\n"),
    ("import sys\nfor line in sys.stdin:\n    print(line.strip()[::-1])", "ab\ncd\n", "ba\ndc"),
    ("def main():\n    print('YES' if int(input()) % 2 == 0 else 'NO')\nmain()", "3", "NO\n"),
    ("print(1 / 3)", "", "0.33333333"),
]
ASSERT_CASE = [
    ("def f(x):\n    return x + 1", "assert f(1) == 2"),
    ("import math\ndef root(x):\n    return math.sqrt(x)", "assert math.isclose(root(2), 1.41421356, rel_tol=1e-6)"),
    ("def add(a, b):\n    return a + b", "assert add(1, 2) == 3\nassert add('a', 'b') == 'ab'"),
    (
        "class Solution:\n    def two(self, xs):\n        return xs[:2]",
        "s = Solution()\nassert s.two([1, 2, 3]) == [1, 2]",
    ),
    ("def f(xs):\n    return max(xs)", "candidate = f\nassert candidate([1, 2]) == 2"),
]
TOGETHER = [
    (
        "class ListNode:\n    def __init__(self, v, next=None):\n        self.v, self.next = v, next\ndef length(n):\n    return 0 if n is None else 1 + length(n.next)",
        "assert length(ListNode(1, ListNode(2))) == 2\nassert str(ListNode(3))",
    ),
    ("def apply(f, xs):\n    return [f(x) for x in xs]", "assert apply(lambda x: x + 1, [1]) == [2]"),
    (
        "class Vector:\n    def __init__(self, x, y):\n        self.x, self.y = x, y\n    def __add__(self, o):\n        return Vector(self.x + o.x, self.y + o.y)\n    def __eq__(self, o):\n        return (self.x, self.y) == (o.x, o.y)",
        "assert Vector(1, 2) + Vector(3, 4) == Vector(4, 6)",
    ),
    (
        "class Missing(Exception):\n    pass\ndef find(x):\n    raise Missing(x)",
        "def test_find():\n    try:\n        find(1)\n    except Missing:\n        return\n    assert False",
    ),
    (
        "def show():\n    print('x')",
        "import io, contextlib\nout = io.StringIO()\nwith contextlib.redirect_stdout(out):\n    show()\nassert out.getvalue() == 'x\\n'",
    ),
]
"""Tests that need objects of the program, in the format of MBPP."""
