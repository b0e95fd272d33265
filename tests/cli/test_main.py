"""stdout is the product, stderr the conversation, exit codes an enum: whatever happens, the way out is a clean one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from rlctl import cli
from rlctl.__main__ import main as command_main
from rlctl.cli import output
from rlctl.common.errors import (
    DocumentError,
    Location,
    MissingDependency,
    PlanError,
    RlctlError,
    RunError,
    UsageError,
)
from rlctl.config import explain as explain_module

Process = Callable[..., subprocess.CompletedProcess[str]]
ROOT = Path(__file__).parents[2]


def commands() -> dict[str, Any]:
    """Every command by its full name."""
    root: Any = get_command(cli.app)
    inner = {name: getattr(command, "commands", {"": command}) for name, command in root.commands.items()}
    return {f"{name} {sub}".strip(): command for name, held in inner.items() for sub, command in held.items()}


def raising(problem: BaseException) -> Callable[[str], None]:
    def fail(key: str) -> None:
        raise problem

    return fail


def test_help_lists_the_commands_in_the_order_of_work(rlctl: Any) -> None:
    shown = rlctl("--help")
    assert shown.code == 0
    assert shown.err == ""
    places = [shown.out.index(f" {name} ") for name in ("convert", "check", "plan", "try", "launch", "runs", "explain")]
    assert places == sorted(places)


def test_alone_it_shows_what_to_type_first(rlctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = rlctl()
    assert (shown.code, shown.err) == (2, "")
    assert len(shown.out.splitlines()) == 5
    typed = [line.split()[1] for line in shown.out.splitlines() if line.startswith("  rlctl ")]
    assert set(typed) <= commands().keys()
    monkeypatch.setenv("RLCTL_LANGUAGE", "zh")
    assert "从这里开始" in rlctl().out


@pytest.mark.parametrize("name", commands())
def test_every_command_teaches(rlctl: Any, name: str) -> None:
    shown = rlctl(*name.split(), "--help")
    assert shown.code == 0
    assert "Examples" in shown.out
    assert f"rlctl {name.split()[0]}" in shown.out.split("Examples")[1]


@pytest.mark.parametrize(
    "arguments", [["nope"], ["check"], ["plan", "a.yaml", "--rows", "x"], ["convert", "a.yaml"], ["explain"]]
)
def test_a_wrong_command_line_is_a_usage_error(rlctl: Any, arguments: list[str]) -> None:
    shown = rlctl(*arguments)
    assert shown.code == 2
    assert shown.out == ""
    assert "rlctl" in shown.err


def test_an_error_says_where_what_and_what_to_do(rlctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = PlanError("7 does not divide 2", at=Location("run.yaml", 3), hint="use 6 or 8")
    monkeypatch.setattr(explain_module, "explain", raising(problem))
    shown = rlctl("explain", "batch")
    assert shown.code == 1
    assert shown.out == ""
    assert shown.err == "error: run.yaml:3: 7 does not divide 2\n  use 6 or 8\n"


@pytest.mark.parametrize(
    ("problem", "step"),
    [
        (UsageError("--a is not key=value"), "rlctl explain --help"),
        (DocumentError("a quote is opened and never closed", at=Location("run.sh", 3)), "--trace"),
        (DocumentError("cannot be read", at=Location("run.yaml")), "choose another file"),
        (PlanError("7 does not divide 2"), "rlctl explain KEY"),
        (MissingDependency("the tokenizer needs a package"), "rlctl doctor"),
        (RunError("it ended"), "rlctl check"),
    ],
)
def test_an_error_without_advice_names_a_next_step(
    rlctl: Any, monkeypatch: pytest.MonkeyPatch, problem: RlctlError, step: str
) -> None:
    monkeypatch.setattr(explain_module, "explain", raising(problem))
    first, second = rlctl("explain", "batch").err.splitlines()
    assert problem.message in first
    assert step in second


def test_an_unexpected_error_is_called_a_bug_and_kept_in_a_file(rlctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_module, "explain", raising(ZeroDivisionError("one over none")))
    shown = rlctl("explain", "batch")
    assert shown.code == 1
    assert "this is a bug in rlctl" in shown.err
    assert "Traceback" not in shown.err
    path = Path(shown.err.split("the traceback is in ")[1].splitlines()[0])
    assert "ZeroDivisionError: one over none" in path.read_text()
    path.unlink()


def test_debugging_shows_the_traceback_itself(rlctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_module, "explain", raising(ZeroDivisionError("one over none")))
    monkeypatch.setenv("RLCTL_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        rlctl("explain", "batch")


def test_an_interrupt_ends_with_130(rlctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_module, "explain", raising(KeyboardInterrupt()))
    assert rlctl("explain", "batch").code == 130


@pytest.mark.parametrize("arguments", [("schema",), ("--help",), ("explain", "train")])
def test_a_reader_that_leaves_early_is_no_error(arguments: tuple[str, ...]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "rlctl", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        complaint = process.stderr.read().decode()
    assert complaint == ""
    assert process.returncode in (0, 1)


def test_version_is_the_same_both_ways(rlctl: Any) -> None:
    assert rlctl("version").out == rlctl("--version").out
    assert rlctl("version").out.startswith("rlctl ")


def test_completion_can_be_installed(process: Process) -> None:
    shown = process("--show-completion", "bash", environment={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    assert "_RLCTL_COMPLETE=complete_bash" in shown.stdout


def test_keys_are_completed(process: Process) -> None:
    environment = {
        "_RLCTL_COMPLETE": "complete_bash",
        "COMP_WORDS": "rlctl explain train.optimizer.l",
        "COMP_CWORD": "2",
    }
    assert process(environment=environment).stdout.split() == ["train.optimizer.lr"]


def test_numbers_that_json_has_not_become_text() -> None:
    assert output.as_json({"a": float("nan"), "b": [float("inf")], 3: None}).split() == [
        "{", '"a":', '"nan",', '"b":', "[", '"inf"', "],", '"3":', "null", "}",
    ]  # fmt: skip


def test_text_is_utf8_in_any_locale(process: Process, tmp_path: Path) -> None:
    shown = process("explain", "数学", environment={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert shown.returncode == 1
    assert "no framework has the key" in shown.stderr


def test_an_interrupt_while_the_command_is_loaded_shows_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupts:
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "rlctl.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "rlctl.cli")
    monkeypatch.setattr(sys, "meta_path", [Interrupts(), *sys.meta_path])
    assert command_main() == 130


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("stop", "rlctl runs stop"),
        ("resume", "rlctl runs resume"),
        ("logs", "rlctl runs follow"),
        ("run", "rlctl launch"),
    ],
)
def test_a_word_of_another_tool_names_the_command(rlctl: Any, word: str, command: str) -> None:
    shown = rlctl(word, "runs/x")
    assert shown.code == 2
    assert f"use {command}" in shown.err


def test_every_command_that_a_word_names_exists() -> None:
    names = {each.name for each in cli.COMMANDS}
    assert not names & cli.OTHER_WORDS.keys(), "a command of that name would never be reached"
    assert {command.split()[1] for command in cli.OTHER_WORDS.values()} <= names
