"""Trinity: workflows of several turns as agents."""

from __future__ import annotations

from typing import Any

from rlctl.config import Loaded, to_plain
from rlctl.documents import read_yaml
from rlctl.translation.translate import read_document, translate_loaded

TEXT = """
project: p
name: n
checkpoint_root_dir: c
model: {model_path: org/model, max_prompt_tokens: 512, max_response_tokens: 512}
algorithm: {algorithm_type: grpo, repeat_times: 8}
cluster: {node_num: 1, gpu_per_node: 2}
buffer:
  batch_size: 16
  explorer_input:
    default_workflow_type: DEFAULT
    tasksets:
      - {name: a, path: a, workflow_args: {max_env_steps: 30}}
      - {name: b, path: b, workflow_args: {max_env_steps: 8}}
      - {name: c, path: c, default_workflow_type: OTHER, default_reward_fn_type: math_reward}
explorer: {rollout_model: {engine_num: 1}}
"""


def loaded_from(default: str, other: str) -> tuple[Loaded, Any]:
    text = TEXT.replace("DEFAULT", default).replace("OTHER", other)
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="trinity", environment={})
    assert loaded is not None, report.errors
    return loaded, report


def test_a_workflow_with_two_sets_of_arguments_is_two_agents() -> None:
    loaded, _ = loaded_from("alfworld_workflow", "math_workflow")
    agents = [(one["name"], one["kind"], one["args"]) for one in to_plain(loaded.config)["rollout"]["agents"]]
    assert agents == [
        ("alfworld_workflow", "alfworld_workflow", {"max_env_steps": 30}),
        ("alfworld_workflow_2", "alfworld_workflow", {"max_env_steps": 8}),
    ]
    assert loaded.config.rollout.default_agent == "alfworld_workflow"
    assert [source.agent for source in loaded.config.data.train] == [None, "alfworld_workflow_2", "single_turn"]


def test_workflows_are_written_back_where_they_were() -> None:
    loaded, report = loaded_from("alfworld_workflow", "own.package.Workflow")
    written = read_yaml(translate_loaded(loaded, report, "trinity").text or "", "again.yaml").values
    given = written["buffer"]["explorer_input"]
    assert given["default_workflow_type"] == "alfworld_workflow"
    assert given["tasksets"][2]["default_workflow_type"] == "own.package.Workflow"
    assert [one.get("workflow_args") for one in given["tasksets"][:2]] == [{"max_env_steps": 30}, {"max_env_steps": 8}]


def test_a_limit_of_one_answer_is_the_response_length() -> None:
    text = TEXT.replace("DEFAULT", "math_workflow").replace("OTHER", "math_workflow")
    text = text.replace("workflow_args: {max_env_steps: 30}", "rollout_args: {max_tokens: 256}")
    text = text.replace(", workflow_args: {max_env_steps: 8}", "")
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="trinity", environment={})
    assert loaded is not None, report.errors
    assert loaded.config.rollout.max_response_tokens == 256
