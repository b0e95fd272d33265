"""What decides in verl whether a response uses tools: SGLang's own turns up to 0.6, the agent loop in the other cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import PlanError
from rlctl.common.report import Bucket, Level, Report
from rlctl.config import Loaded, to_plain
from rlctl.documents import read_yaml
from rlctl.planning.plan import make_plan
from rlctl.translation.translate import convert, read, read_document, translate_loaded

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
    assert loaded.config.rollout.default_agent == "tool_agent"
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
@pytest.mark.parametrize(
    ("row", "levels"),
    [
        ({}, [Level.NOTE]),
        ({"prompt": "1 + 1"}, [Level.WARNING]),
        ({"prompt": "1 + 1", "agent_name": "tool_agent"}, []),
    ],
)
def test_tools_that_no_response_uses_are_warned_of(
    tmp_path: Path, engine: str, release: str, row: dict[str, str], levels: list[Level]
) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) if row else "")
    _, report = loaded_from(tmp_path, (TEXT % engine).replace("a.parquet", str(tmp_path / "rows.jsonl")), release)
    told = [finding for finding in report.findings if finding.code == "tools-unused"]
    assert [finding.level for finding in told] == levels
    if not told:
        return
    [found] = told
    assert LOOP in found.message
    assert found.at is not None
    assert found.at.line == 6


def test_a_tool_agent_is_not_warned_of(tmp_path: Path) -> None:
    text = TEXT % "vllm" + "    agent: {default_agent_loop: tool_agent}\n"
    _, report = loaded_from(tmp_path, text, "0.9")
    assert "tools-unused" not in [finding.code for finding in report.findings]


def plain_agents(loaded: Loaded) -> list[dict[str, Any]]:
    return list(to_plain(loaded.config)["rollout"]["agents"])


def test_the_tool_agent_comes_back_with_its_files_and_limits(tmp_path: Path) -> None:
    text = TEXT % "vllm" + "    agent: {default_agent_loop: tool_agent}\n"
    text = text.replace("tools.yaml}", "tools.yaml, function_tool_path: own.py, max_assistant_turns: 4, format: glm}")
    loaded, report = loaded_from(tmp_path, text, "0.9")
    [agent] = plain_agents(loaded)
    assert (agent["type"], agent["name"], agent["max_turns"], agent["tool_format"]) == ("tools", "tool_agent", 4, "glm")
    assert [(tool["type"], tool["path"]) for tool in agent["tools"]] == [("file", "tools.yaml"), ("file", "own.py")]
    assert (loaded.config.rollout.default_agent, loaded.config.data.train[0].agent_key) == ("tool_agent", "agent_name")
    again = translate_loaded(loaded, report, "verl")
    assert not again.report.loses
    for line in ("default_agent_loop: tool_agent", "function_tool_path: own.py", "max_assistant_turns: 4"):
        assert line in (again.text or "")


def test_an_agent_loop_of_the_users_is_kept_by_its_name(tmp_path: Path) -> None:
    text = TEXT % "vllm" + "    agent: {default_agent_loop: mine, agent_loop_config_path: loops.yaml}\n"
    loaded, report = loaded_from(tmp_path, text, "0.9")
    [agent] = plain_agents(loaded)
    assert (agent["type"], agent["framework"], agent["kind"]) == ("other", "verl", "mine")
    assert agent["args"]["agent_loop_config_path"] == "loops.yaml"
    again = translate_loaded(loaded, report, "verl").text or ""
    assert "default_agent_loop: mine" in again
    assert "agent_loop_config_path: loops.yaml" in again


@pytest.mark.parametrize("default", ["tool_agent", "single_turn_agent"])
def test_a_parser_of_the_users_keeps_the_tool_agent_by_its_name(tmp_path: Path, default: str) -> None:
    """As in recipes that register one, or for rows that name the agent: the file converts, and is written with the parser."""
    text = (TEXT % "vllm").replace("tools.yaml}", "tools.yaml, format: spo}")
    loaded, report = loaded_from(tmp_path, f"{text}    agent: {{default_agent_loop: {default}}}\n", "0.9")
    [agent] = plain_agents(loaded)
    assert (agent["type"], agent["kind"], agent["args"]["multi_turn.format"]) == ("other", "tool_agent", "spo")
    if default == "tool_agent":
        message = "the agent 'tool_agent' uses tool_agent, a class of verl that rlctl can convert but not run"
        with pytest.raises(PlanError, match=message):
            make_plan(loaded.config)
    again = translate_loaded(loaded, report, "verl")
    assert not again.report.loses
    for line in (f"default_agent_loop: {default}", "format: spo", "tool_config_path: tools.yaml"):
        assert line in (again.text or "") or line.endswith("single_turn_agent")


def test_settings_of_tools_without_a_tool_agent_have_no_effect(tmp_path: Path) -> None:
    text = (TEXT % "vllm").replace("enable: true, tool_config_path: tools.yaml", "max_assistant_turns: 4")
    loaded, report = loaded_from(tmp_path, text, "0.9")
    assert loaded.config.rollout.agents == ()
    assert [entry.bucket for entry in report.accounting if entry.key.endswith("max_assistant_turns")] == [Bucket.DEAD]


@pytest.mark.parametrize("target", ["trinity", "roll"])
def test_another_framework_loses_the_tool_agent_and_says_what_it_does_instead(tmp_path: Path, target: str) -> None:
    text = TEXT % "vllm" + "    agent: {default_agent_loop: tool_agent}\n"
    loaded, report = loaded_from(tmp_path, text, "0.9")
    entries = translate_loaded(loaded, report, target).report.accounting
    told = next(entry.note for entry in entries if "calls tools" in entry.note)
    assert "one answer per row" in told if target == "trinity" else "answer each prompt once" in told


@pytest.mark.parametrize(("release", "kept"), [("0.3", False), ("0.4", True), ("0.5", True)])
def test_a_tool_file_is_written_for_releases_that_read_it_and_comes_back(release: str, kept: bool) -> None:
    """verl 0.4 has tool files but no key for the format of calls; verl 0.3 has neither."""
    agent = "{type: tools, name: mine, tools: [{type: file, path: tools.yaml}]}"
    text = f"rlctl: 1\nmodel: {{path: org/model}}\ndata: {{train: [{{path: a.parquet}}]}}\nrollout: {{agents: [{agent}]}}\n"
    made = convert(text, to=f"verl@{release}", dialect="rlctl", options={"carried": "none"})
    assert made.text is not None
    assert ("tool_config_path: tools.yaml" in made.text) == kept
    (entry,) = (entry for entry in made.report.accounting if entry.key == "rollout.agents[0].tools[0].path")
    assert (entry.bucket is Bucket.MAPPED) == kept
    back, _ = read_document(read_yaml(made.text, "back.yaml"), dialect=f"verl@{release}", environment={})
    assert back is not None
    tools = [tool for agent in to_plain(back.config)["rollout"]["agents"] for tool in agent.get("tools", [])]
    assert [tool["path"] for tool in tools] == (["tools.yaml"] if kept else [])
