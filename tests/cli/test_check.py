"""``check`` names each problem with its code, line and remedy, and its exit code says how bad it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlctl.cli.check import exit_code, verdict
from rlctl.errors import ExitCode
from rlctl.report import Finding, Level, Report


def test_an_error_has_its_line_and_code(rlctl: Any, config_file: Path) -> None:
    config_file.write_text(config_file.read_text() + "rollout:\n  parallel: {tensor: 3}\n")
    shown = rlctl("check", str(config_file))
    assert shown.code == 1
    assert shown.out == ""
    assert any(line.startswith(f"{config_file}:9: error: ") for line in shown.err.splitlines()), shown.err


def test_json_holds_the_findings(rlctl: Any, config_file: Path) -> None:
    config_file.write_text(config_file.read_text() + "rollout:\n  parallel: {tensor: 3}\n")
    found = json.loads(rlctl("check", str(config_file), "--json").out)
    assert {"code", "level", "key", "file", "line", "message", "hint"} == set(found["findings"][0])
    assert any(finding["level"] == "error" and finding["line"] == 9 for finding in found["findings"])


def test_an_unknown_key_is_an_error_with_the_nearest(rlctl: Any, config_file: Path) -> None:
    config_file.write_text(config_file.read_text().replace("prompts_per_step", "prompt_per_step"))
    shown = rlctl("check", str(config_file))
    assert shown.code == 1
    assert "did you mean 'prompts_per_step'?" in shown.err


def test_it_can_be_held_against_machines(rlctl: Any, config_file: Path) -> None:
    without = rlctl("check", str(config_file), "--json")
    small = rlctl("check", str(config_file), "--json", "--cluster", "1x1:H100")
    found = [{finding["code"] for finding in json.loads(shown.out)["findings"]} for shown in (without, small)]
    assert found[1] - found[0]


def reported(*levels: Level) -> Report:
    return Report("rlctl@1", "", [Finding("code", level, "message") for level in levels])


def test_exit_codes_follow_the_gravest_finding() -> None:
    assert exit_code(reported(), readable=True) is ExitCode.OK
    assert exit_code(reported(Level.NOTE), readable=True) is ExitCode.OK
    assert exit_code(reported(Level.NOTE, Level.WARNING), readable=True) is ExitCode.FINDINGS
    assert exit_code(reported(Level.WARNING, Level.ERROR), readable=True) is ExitCode.FAILED
    assert exit_code(reported(), readable=False) is ExitCode.FAILED


def test_the_verdict_counts() -> None:
    assert verdict(reported(Level.ERROR, Level.WARNING, Level.WARNING), readable=True) == "rlctl@1: 1 error, 2 warnings"
    assert verdict(reported(), readable=True) == "rlctl@1: nothing to complain about"
