"""Findings that an option or a comment silences are counted, and no others."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rlctl import cli
from rlctl.checks.silence import divided, refuse_unknown, silence_of
from rlctl.common.errors import Location, UsageError
from rlctl.common.report import Finding, Level
from rlctl.documents import write_yaml
from tests.adapters.refused import VERL, A, tree

TEXT = """\
# rlctl: ignore never-saved
a: 1
b: 2  # rlctl: ignore kl-off, memory
# rlctl: ignore tracker
c: 3
"""


def test_a_comment_holds_for_its_line_the_next_one_or_the_file() -> None:
    silence = silence_of(TEXT)
    assert silence.everywhere == {"never-saved"}
    assert dict(silence.lines) == {3: {"kl-off", "memory"}, 5: {"tracker"}}


def test_a_finding_without_a_place_is_silenced_at_the_head_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(TEXT)
    placed = [Finding("kl-off", Level.WARNING, "message", "b", Location(str(file), line)) for line in (3, 5)]
    found = [*placed, Finding("never-saved", Level.WARNING, "message"), Finding("tracker", Level.NOTE, "message")]
    shown, silenced = divided(found, (), str(file))
    assert [item.code for item in shown] == ["kl-off", "tracker"]
    assert [item.code for item in silenced] == ["kl-off", "never-saved"]
    assert divided(found, ("kl-off", "tracker"), str(file))[0] == []


def test_a_code_that_no_finding_has_is_refused() -> None:
    refuse_unknown(["runner-ignores", "memory"])
    with pytest.raises(UsageError, match="no finding has this code") as error:
        refuse_unknown(["runner-ignore"])
    assert "runner-ignores" in error.value.hint


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["rlctl", "check", *arguments])
    return cli.main()


def test_the_command_counts_what_it_does_not_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "verl.yaml"
    values = {**VERL, "trainer.save_freq": 10, "trainer.total_epochs": 1, f"{A}.kl_loss_coef": 0.01}
    file.write_text(write_yaml(tree(values)))
    asked = (str(file), "--runner", "verl", "--ignore", "path-missing")
    assert run(monkeypatch, *asked) == 3
    assert "findings ignored: path-missing" in capsys.readouterr().err
    assert run(monkeypatch, *asked, "--strict") == 1
    capsys.readouterr()
    assert run(monkeypatch, *asked, "--ignore", "runner-ignores", "--strict", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert {item["code"] for item in printed["ignored"]} == {"path-missing", "runner-ignores"}
    file.write_text(f"# rlctl: ignore path-missing, runner-ignores\n{file.read_text()}")
    assert run(monkeypatch, str(file), "--runner", "verl", "--strict") == 0
    assert run(monkeypatch, str(file), "--strict", "--fail-on", "error") == 2
