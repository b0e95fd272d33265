"""Programs of responses run on this machine: what ROLL's and verl's test cases ask for, and what a program cannot do."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from rlctl import sandbox
from rlctl.common.errors import RunError
from rlctl.config.sections.rewards import SandboxReward
from rlctl.runtime.rewards.interface import Call
from rlctl.runtime.rewards.local_programs import LocalPrograms
from rlctl.runtime.rewards.programs import Isolation, Limits, Ran, SandboxedProgram, check, run_programs
from rlctl.runtime.rewards.trials import prints, returns, solution_of, trials_of
from rlctl.runtime.types import Prompt
from rlctl.runtime.workers.reward import RewardItem, RewardWorker, scorer_of
from rlctl.sandbox import bubblewrap

DOUBLE = "```python\nprint(2 * int(input()))\n```"


def isolated() -> bool:
    try:
        check("namespaces")
    except RunError:
        return False
    return True


needs_namespaces = pytest.mark.skipif(not isolated(), reason="no user namespaces here")


def ran(*codes: str, isolation: Isolation = "namespaces", **limits: Any) -> list[Ran]:
    return run_programs([SandboxedProgram(code) for code in codes], Limits(**{"seconds": 20.0, **limits}), isolation)


def hangs(isolation: Isolation) -> bool:
    """Whether a program without end is ended; the others get more time, because a busy machine may start them late."""
    return ran("while True: pass", isolation=isolation, seconds=2.0)[0].how == "late"


@needs_namespaces
def test_a_program_that_fills_its_disk_takes_no_room_from_the_next() -> None:
    """It would fail too, or, where its input finds no room, end the run."""
    fill = """
import os
for number in range(6):
    try:
        open(f"/tmp/{number}", "wb").write(b"x" * (60 << 20))
    except OSError:
        pass
os.mkdir("/tmp/left")
os.chmod("/tmp/left", 0)
"""
    first, second = run_programs(
        [
            SandboxedProgram(fill),
            SandboxedProgram("import os; print(len(input()), os.listdir('/tmp'))", "x" * (1 << 20)),
        ],
        Limits(),
        "namespaces",
    )
    assert (second.how, second.stdout.split()[0]) == ("ended", str(1 << 20)), (first, second)
    assert "left" not in second.stdout


@needs_namespaces
def test_a_program_sees_nothing_of_this_machine_and_changes_nothing(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        read, write, connect, mount, home = ran(
            f"open({str(secret)!r}).read()",
            "open('/usr/rlctl-was-here', 'w')",
            f"import socket; socket.create_connection({address!r}, 2)",
            "import ctypes; assert ctypes.CDLL(None).mount(b'none', b'/', None, 0x20 | 0x1000, None) == 0",
            "import os; print(sorted(os.environ)); open('mine', 'w').write('x'); print(os.listdir('.'))",
        )
    assert read.error.startswith("FileNotFoundError")
    assert write.error.startswith("OSError: [Errno 30]")
    assert connect.error.startswith("OSError: [Errno 97]"), "no family of sockets"
    assert mount.error.startswith("AssertionError")
    assert home.how == "ended"
    assert "['mine']" in home.stdout
    assert "USER" not in home.stdout
    assert not Path("/usr/rlctl-was-here").exists()


@needs_namespaces
def test_time_memory_and_processes_have_limits_and_nothing_is_left_behind() -> None:
    assert hangs("namespaces")
    huge, forks, after = ran(
        "x = bytearray(1 << 30)",
        "import os\nfor _ in range(1000):\n    if not os.fork():\n        import time; time.sleep(60)",
        "import os; print(sum(name.isdigit() for name in os.listdir('/proc')))",
        memory_mib=512,
    )
    assert huge.error.startswith("MemoryError")
    assert after.stdout.strip() == "2", "the first process of the sandbox, and the program that asks"
    assert forks.how in ("raised", "killed")


def test_limits_hold_without_namespaces_too() -> None:
    assert hangs("limits")
    huge, right = ran("x = bytearray(1 << 30)", "print(1)", isolation="limits", memory_mib=512)
    assert (huge.how, right) == ("raised", Ran("ended", stdout="1\n"))


def test_where_nothing_can_be_isolated_nothing_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    monkeypatch.setattr(bubblewrap, "_candidates", lambda: iter(()))
    monkeypatch.setattr(sandbox, "find_bwrap", sandbox.find_bwrap.__wrapped__)
    with pytest.raises(RunError, match="cannot isolate") as refused:
        ran(f"open({str(mark)!r}, 'w')")
    assert "isolation: limits" in (refused.value.hint or "")
    assert not mark.exists()
    with pytest.raises(RunError, match="cannot isolate"):
        scorer_of(SandboxReward(name="code"))
    assert isinstance(scorer_of(SandboxReward(name="code", isolation="limits")), LocalPrograms)


def call(response: str, kind: str = "io", cases: Any = (), function: str | None = None) -> Call:
    columns = {"case_type": kind, "test_cases": cases, "test_case_function": function}
    return Call("code", response, columns={name: value for name, value in columns.items() if value is not None})


def roll(response: str, *args: Any) -> bool:
    outcome = LocalPrograms(20.0, method="roll", isolation="limits").load()
    assert outcome.one is not None
    found = outcome.one(call(response, *args))
    assert found.score == float(bool(found.correct))
    return bool(found.correct)


def test_rolls_kinds_of_cases() -> None:
    io = [{"stdin": "1\n", "expected_stdout": "2\n"}, {"stdin": "4", "expected_stdout": "8"}]
    assert roll(f"<think>```python\nx\n```</think>{DOUBLE}", "io", json.dumps(io))
    assert not roll(DOUBLE, "io", [*io, {"stdin": "1", "expected_stdout": "3"}])
    pair = [{"stdin": "[3, 1]\n2", "expected_stdout": "[1, 3]"}]
    function = "```python\nclass Solution:\n    def order(self, xs, k):\n        return tuple(sorted(xs)[:k])\n```"
    assert roll(function, "io", pair, "order")
    assert not roll(function.replace("order", "sort"), "io", pair, "order")
    add = "```python\ndef add(a, b):\n    return a + b\n```"
    assert roll(add, "assert", [{"assert_code": "assert add(1, 2) == 3"}])
    tested = [{"assert_code": "def test_add():\n    assert add(1, 2) == 4"}]
    assert not roll(add, "pytest", tested)
    assert roll(add.replace("a + b", "a + b + 1"), "pytest", tested)
    checks = {"assert_code": "def check(f):\n    assert f(1, 2) == 3", "entry_point": "add", "import_prefix": ""}
    flat = {**checks, "assert_code": "check = lambda f: f\nassert add(1, 1) == 2\nassert add(2, 2) == 4"}
    assert roll(add, "check_based", [flat])
    assert not roll(add.replace("+", "*"), "check_based", [flat])
    assert roll("it is Paris", "text", [{"assert_code": "assert 'Paris' in {response}"}])
    assert not roll("it is 'Rome", "text", [{"assert_code": "assert 'Paris' in {response}"}])


@pytest.mark.parametrize(
    "assertion",
    [
        "assert 'Paris' in {response}",
        "assert 'Paris' in \"{response}\"",
        "assert 'Paris' in '{response}'",
        "assert 'Paris' in '''{response}'''",
        "text = f'{response}'\nassert 'Paris' in text and len({response}) > 3",
    ],
)
def test_a_response_is_data_of_the_assertion_also_in_quotes(assertion: str) -> None:
    assert roll('it\'s "Paris"', "text", [assertion])
    for quote in ("'", '"', "'''", "'\\n", '"\\n', "\\"):
        assert not roll(f"{quote} or True or {quote}", "text", [assertion])
        assert not roll(f"x{quote}\nexit()\n{quote}", "text", [assertion])


def test_tests_that_need_the_programs_process_are_counted_and_can_be_refused() -> None:
    apply = "```python\ndef apply(f, xs):\n    return [f(x) for x in xs]\n```"
    shared, apart = "assert apply(lambda x: x, [1]) == [1]", "assert apply(None, []) == []"
    run = LocalPrograms(20.0, method="roll", isolation="limits").load().one
    refuse = LocalPrograms(20.0, method="roll", isolation="limits", tests_together="refuse").load().one
    assert run is not None
    assert refuse is not None
    assert run(call(apply, "assert", [apart, shared])).metrics == {"passed_share": 1.0, "tests_together": 0.5}
    assert refuse(call(apply, "assert", [apart])).metrics == {"passed_share": 1.0, "tests_together": 0.0}
    assert run(call(DOUBLE, "io", [{"stdin": "1", "expected_stdout": "2"}])).metrics == {"passed_share": 1.0}
    with pytest.raises(ValueError, match="lambda x: x"):
        refuse(call(apply, "assert", [apart, shared]))


def test_a_program_that_ends_before_the_assertions_has_not_passed() -> None:
    for end in ("import sys; sys.exit(0)", "import os; os._exit(0)", "import os; os.close(1); quit()"):
        assert not roll(f"```python\ndef add(a, b): pass\n{end}\n```", "assert", ["assert add(1, 1) == 2"])


@pytest.mark.parametrize(
    ("written", "expected", "right"),
    [
        (" 1 \n2\n", "1\n2", True),
        ("1\n2", "1\n\n2\n", True),
        ("1\n\n2", "1\n2", False),
        ("0.3333333", "0.33333333", True),
        ("3", "3.0", True),
        ("1", "2", False),
        ("-1", "-1.1", False),
        ("a b", "b a", False),
        ("1\n2", "1", False),
        ("1", "inf", False),
        ("3\n3", "3", False),
    ],
)
def test_output_is_compared_as_roll_does(written: str, expected: str, *, right: bool) -> None:
    assert prints(written, expected) is right


@pytest.mark.parametrize(
    ("result", "expected", "right"),
    [
        ("(1, 2)", [1, 2], True),
        ("1", [1], True),
        ("{1: 2}", {"1": 2}, True),
        ("[(1, 2)]", [[[1, 2]]], True),
        ("[1, 2]", [2, 1], False),
        ("", 1, False),
        ("__import__('os').getcwd()", 1, False),
    ],
)
def test_results_are_compared_as_roll_does(result: str, expected: Any, *, right: bool) -> None:
    assert returns(result, expected) is right


def test_results_that_cannot_be_read_are_wrong() -> None:
    for result in ("[" + "[]," * (2 << 20) + "]", "-" * (1 << 20) + "1", "[" * (1 << 20)):
        assert not returns(result, None)


def test_the_program_of_a_response_as_roll_finds_it() -> None:
    assert solution_of("```python\nx = 1\n```\n```py\ndef f(): pass\n```\n```\ndef g(): pass\n```") == "def f(): pass\n"
    assert (solution_of(" print(1) "), solution_of("```open"), solution_of("```\nx\n```")) == ("print(1)", "", "x\n")
    assert trials_of(Call("code", "", columns={"test_cases": [{"stdin": "", "expected_stdout": ""}]}), "roll") is None


def test_cases_of_the_row_reach_the_reward_and_a_reward_without_cases_fails() -> None:
    extra = {"columns": {"case_type": "io", "test_cases": '[{"stdin": "3", "expected_stdout": "6"}]'}}
    items = [
        RewardItem(Prompt(0, "code", (1,), "double", None, extra=extra), DOUBLE, 5),
        RewardItem(Prompt(1, "code", (1,), "double", None), DOUBLE, 5),
    ]
    reward = SandboxReward(name="code", method="roll", isolation="limits", timeout=20.0, workers=2)
    with RewardWorker([reward]) as worker:
        right, failed = worker.score(items)
        assert (right.total, right.correct) == (1.0, True)
        assert "test_cases" in (failed.error or "")
        assert failed.total == 0.0


def test_verls_cases_run_here_too() -> None:
    cases = {"inputs": ["1\n", "2\n", "3\n"], "outputs": ["2\n", "4", "7\n"]}
    item = RewardItem(Prompt(0, "apps", (1,), "double it", json.dumps(cases)), DOUBLE, 5)
    settings: dict[str, Any] = {"name": "code", "isolation": "limits", "timeout": 20.0}
    with RewardWorker([SandboxReward(**settings, partial_credit=True)]) as worker:
        assert worker.score([item])[0].total == pytest.approx(2 / 3)
    with RewardWorker([SandboxReward(**settings)]) as worker:
        assert worker.score([item])[0].total == 0.0


def test_a_service_is_not_asked_in_rolls_way() -> None:
    with pytest.raises(RunError, match="verl's protocol"):
        scorer_of(SandboxReward(name="code", url="http://a/run_code", method="roll"))
