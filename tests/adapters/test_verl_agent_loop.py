"""What decides in verl whether a response uses tools: SGLang's own turns up to 0.6, the agent loop in the other cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.common.report import Report
from rlctl.config import Loaded
from rlctl.translation.translate import read, translate_loaded

TEXT = """
data: {train_files: a.parquet, val_files: b.parquet}
actor_rollout_ref:
  rollout:
    name: %s
    multi_turn: {enable: true, tool_config_path: tools.yaml}
"""
LOOP = "actor_rollout_ref.rollout.agent.default_agent_loop"


def loaded_from(folder: Path, text: str, release: str) -> tuple[Loaded, Report]:
    path = folder / "config.yaml"
    path.write_text(text)
    loaded, report = read(path, dialect=f"verl@{release}", environment={})
    assert loaded is not None, report.findings
    return loaded, report


@pytest.mark.parametrize("release", ["0.4", "0.5", "0.6"])
def test_tools_that_sglang_ran_itself_are_run_by_the_agent_loop_of_a_newer_release(
    tmp_path: Path, release: str
) -> None:
    loaded, report = loaded_from(tmp_path, TEXT % "sglang", release)
    assert loaded.config.rollout.agent.default == "tool_agent"
    assert "tools-unused" not in [finding.code for finding in report.findings]
    newer = translate_loaded(loaded, report, "verl")
    assert newer.text is not None
    assert "default_agent_loop: tool_agent" in newer.text


def test_the_way_back_to_a_release_without_agent_loops_loses_nothing(tmp_path: Path) -> None:
    loaded, report = loaded_from(tmp_path, TEXT % "sglang", "0.5")
    again = translate_loaded(loaded, report, "verl@0.5")
    assert again.text is not None
    assert "default_agent_loop" not in again.text
    assert not again.report.loses


@pytest.mark.parametrize(("engine", "release"), [("vllm", "0.6"), ("sglang", "0.7"), ("vllm", "0.9")])
def test_tools_that_no_response_uses_are_warned_of(tmp_path: Path, engine: str, release: str) -> None:
    _, report = loaded_from(tmp_path, TEXT % engine, release)
    found = next(finding for finding in report.warnings if finding.code == "tools-unused")
    assert LOOP in found.message
    assert found.at is not None
    assert found.at.line == 6


def test_a_tool_agent_is_not_warned_of(tmp_path: Path) -> None:
    text = TEXT % "vllm" + "    agent: {default_agent_loop: tool_agent}\n"
    _, report = loaded_from(tmp_path, text, "0.9")
    assert "tools-unused" not in [finding.code for finding in report.findings]
