"""Rows, classes, files of an earlier run and settings for an older verl that Trinity-RFT refuses, each on an accepted run."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlctl import check
from rlctl.adapters import dialect
from rlctl.adapters.engine.requirements import refused, requirements_of
from rlctl.adapters.trinity.engine_limits import PARSERS
from rlctl.documents import read_yaml

from .test_trinity_arguments import ACCEPTED, over

ACTOR = "trainer: {%s, trainer_config: {actor_rollout_ref: {%s}}}"
MEGATRON = "trainer_strategy: megatron"
SFT = "mode: train\nalgorithm: {algorithm_type: sft}\nbuffer: {train_batch_size: 8, trainer_input: {experience_buffer: {path: DATA%s}}}"
SET = "buffer: {explorer_input: {taskset: {path: DATA, default_workflow_type: %s}}}"
SERVER = "explorer: {rollout_model: {enable_openai_api: true, enable_auto_tool_choice: true, %s}}"
CLIPS = "algorithm: {policy_loss_fn_args: {clip_range: %s, clip_range_low: 0.2, clip_range_high: 0.28}}"
EVALUATED = (
    "explorer: {eval_interval: 10}\nbuffer: {explorer_input: {eval_tasksets: "
    "[{name: e, path: openai/gsm8k, default_workflow_type: math_workflow, repeat_times: %s, rollout_args: {temperature: %s}}]}}"
)
USER = {"role": "user", "content": "1 + 1?"}


def _told(change: Any, **paths: object) -> list[tuple[str, str]]:
    requirements = requirements_of("trinity")
    assert requirements is not None
    if isinstance(change, str):
        for name, path in paths.items():
            change = change.replace(name, str(path))
        change = yaml.safe_load(change)
    text = yaml.safe_dump(over(yaml.safe_load(ACCEPTED), change))
    document = read_yaml(text, "run.yaml")
    found = refused(requirements, dialect("trinity"), document, release="0.6", environment={})
    return [(row.key, message) for row, message in found]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            ACTOR % ("use_dynamic_bsz: false", "actor: {ppo_micro_batch_size_per_gpu: 5}"),
            "has 64 responses of a step, which",
        ),
        (ACTOR % ("use_dynamic_bsz: false", "actor: {ppo_micro_batch_size_per_gpu: 4}"), ""),
        (
            ACTOR % ("use_dynamic_bsz: true", "actor: {fsdp_config: {fsdp_size: 3}}"),
            "does not divide the 4 trainer GPUs",
        ),
        (ACTOR % (MEGATRON, "ref: {log_prob_micro_batch_size_per_gpu: null}"), "the reference on Megatron stops"),
        (ACTOR % (MEGATRON, "actor: {load_weight: false}"), "but the reference loads its weights"),
        (
            ACTOR % (MEGATRON, "actor: {megatron: {use_mbridge: false, dtype: float16}}"),
            "float16 and multi-token prediction",
        ),
        (
            "trainer: {trainer_strategy: megatron, use_dynamic_bsz: true, megatron: {pipeline_model_parallel_size: 4, "
            "virtual_pipeline_model_parallel_size: 2}}\nbuffer: {train_batch_size: 2}",
            "fewer than its 4 pipeline stages",
        ),
        ("trainer: {trainer_config: {global_profiler: {steps: [1], tool: nsys}}}", "has no worker_nsight_options"),
        ("algorithm: {optimizer: {lr_scheduler_type: linear}}", "FSDP takes constant or cosine"),
        ("algorithm: {optimizer: {lr_scheduler_type: cosine}}", ""),
        ("buffer: {explorer_input: {taskset: {default_workflow_type: null}}}", "the task set t has no workflow"),
        (
            "algorithm: {enable_router_replay: true}\nexplorer: {rollout_model: {engine_type: external}}",
            "returns no routes",
        ),
        (SET % "agentscope_workflow_adapter", "which only a program can pass"),
        (SET % "agentscope_v1_react_workflow", "which Trinity does not register"),
        (SERVER % "", "tool_call_parser is not set"),
        (SERVER % "tool_call_parser: hermess", "tool_call_parser is hermess"),
        (SERVER % "tool_call_parser: hermes", ""),
        ("model: {critic_model_path: org/critic}", "trains no critic"),
        ("trainer: {trainer_config: {critic: {optim: {lr: 0.1}}}}", "trains no critic"),
        (CLIPS % "0.3", "override it"),
        (CLIPS % "0.2", ""),
        (EVALUATED % (4, 0), "all repeat_times responses to a prompt are the same"),
        (EVALUATED % (1, 0), ""),
        (EVALUATED % (4, 0.6), ""),
    ],
)
def test_what_it_refuses_of_settings(change: str, words: str) -> None:
    told = _told(change)
    assert any(words in message for _, message in told) if words else told == []


@pytest.mark.parametrize(
    ("change", "model", "words"),
    [
        ("algorithm: {enable_router_replay: true}", {"num_hidden_layers": 1}, "has no experts to route to"),
        (
            "algorithm: {enable_router_replay: true}",
            {"text_config": {"num_hidden_layers": 1, "num_experts_per_tok": 1, "num_experts": 2}},
            "",
        ),
        ("model: {lora_configs: [{name: a, lora_rank: 8}]}", {"text_config": {"hidden_size": 8}}, "has no vocab_size"),
        (ACTOR % (MEGATRON, "model: {mtp: {enable: true}}"), {"hidden_size": 8}, "no layer that predicts further"),
    ],
)
def test_what_it_refuses_of_a_model(tmp_path: Path, change: str, model: dict[str, Any], words: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(model))
    told = _told(
        over(
            yaml.safe_load(change),
            {"model": {**(yaml.safe_load(change).get("model") or {}), "model_path": str(tmp_path)}},
        )
    )
    assert any(words in message for _, message in told) if words else told == []


@pytest.mark.parametrize(
    ("change", "row", "words"),
    [
        (SFT % ", format: {prompt_type: messages, messages_key: messages}", {"messages": [USER]}, ""),
        (
            SFT % ", format: {prompt_type: messages, messages_key: messages}",
            {"messages": "a"},
            "the column messages of row 1",
        ),
        (
            SFT % ", format: {prompt_type: messages, messages_key: messages, tools_key: tools}",
            {"messages": [USER], "tools": "{"},
            "the column tools of row 1",
        ),
        (
            SFT % ", format: {prompt_type: messages, messages_key: messages, enable_concatenated_multi_turn: true}",
            {"messages": []},
            "row 1 of the data to imitate has no message",
        ),
        (SFT % ", format: {prompt_type: plaintext}", {"prompt": "<image>", "response": "a"}, "row 1 has more <image>"),
        (
            SFT % ", format: {prompt_type: plaintext, image_key: images}",
            {"prompt": "<image>", "response": "a", "images": ["a.png"]},
            "",
        ),
        (SET % "math_eval_workflow", {"problem": "1"}, "math_eval_workflow reads the column question"),
        (SET % "math_eval_workflow", {"question": "1"}, ""),
        (SET % "intercode_sql_workflow", {"query": "1"}, "finds no data_path"),
    ],
)
def test_what_it_refuses_of_rows(tmp_path: Path, change: str, row: dict[str, Any], words: str) -> None:
    (tmp_path / "train.jsonl").write_text("\n".join([json.dumps(row)] * 9))
    told = _told(change, DATA=tmp_path)
    assert any(words in message for _, message in told) if words else told == []


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("explorer_meta.json", '{"latest_task_index": 4}', "are of an old release"),
        ("global_step_4/actor/model_world_size_2_rank_1.pt", "", "but not of the first"),
    ],
)
def test_what_it_refuses_of_a_run_to_continue(tmp_path: Path, name: str, text: str, words: str) -> None:
    file = tmp_path / "p" / "g" / "n" / name
    file.parent.mkdir(parents=True)
    file.write_text(text)
    sets = [{"name": each, "path": "a/b", "default_workflow_type": "math_workflow"} for each in "ab"]
    run = {"checkpoint_root_dir": str(tmp_path), "project": "p", "group": "g", "name": "n"}
    inputs = {"buffer": {"explorer_input": {"taskset": None, "tasksets": sets}}}
    assert any(words in message for _, message in _told({**run, **inputs}))
    assert not any(words in message for _, message in _told({**run, **inputs, "continue_from_checkpoint": False}))


STEPWISE = "from trinity.common.workflows import StepWiseRewardWorkflow\n@WORKFLOWS.register_module('mine')\n"
PLUGIN = "plugins/mine.py"


@pytest.mark.parametrize(
    ("code", "change", "words"),
    [
        (
            f"{STEPWISE}class Mine(StepWiseRewardWorkflow):\n    def step(self, step_num): ...\n    def reward(self, exps, step_num): ...\n",
            SET % "mine",
            "max_step_num is not defined",
        ),
        (
            f"{STEPWISE}class Mine(StepWiseRewardWorkflow):\n    max_step_num = 4\n"
            "    def step(self, step_num): ...\n    def reward(self, exps, step_num): ...\n",
            SET % "mine",
            "",
        ),
        (
            "@REWARD_FUNCTIONS.register_module('mine')\nclass Mine:\n    def __call__(self, response, truth): return {}\n",
            "buffer: {explorer_input: {taskset: {default_reward_fn_type: mine}}}",
            "not a subclass of RewardFn",
        ),
        (
            "@EXPERIENCE_OPERATORS.register_module('mine')\nclass Mine: ...\n",
            "data_processor: {experience_pipeline: {operators: [{name: mine}]}}",
            "has no base class",
        ),
        ("class Mine: ...\n", SET % "plugins.mine.Yours", "defines no Yours"),
        ("class Mine(Workflow):\n    def run(self): ...\n", SET % "plugins.mine.Mine", ""),
    ],
)
def test_what_it_refuses_of_plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, change: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plugins").mkdir()
    (tmp_path / PLUGIN).write_text(code)
    told = _told(change, DATA="org/data")
    assert any(words in message for _, message in told) if words else told == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gsm8k_scores", "which neither Trinity nor a file in plugins registers"),
        ("maths_reward", "which Trinity does not register"),
        ("rm_gallery_reward", "which Trinity registers until 0.5"),
        ("accuracy_reward", ""),
        ("mine", ""),
    ],
)
def test_a_reward_function_is_one_that_something_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plugins").mkdir()
    (tmp_path / PLUGIN).write_text("@REWARD_FUNCTIONS.register_module('mine')\nclass Mine(RewardFn): ...\n")
    told = _told({"buffer": {"explorer_input": {"taskset": {"default_reward_fn_type": name}}}}, DATA="org/data")
    found = [message for _, message in told if "register" in message]
    assert len(found) == bool(words)
    assert all(words in message for message in found)


@pytest.mark.parametrize(("release", "is_known"), [("0.4", False), ("0.5", True), ("0.6", True)])
def test_a_workflow_is_known_from_its_release_on(release: str, is_known: bool) -> None:
    text = yaml.safe_dump(over(yaml.safe_load(ACCEPTED), yaml.safe_load(SET % "sudoku_workflow")))
    found = check(text, dialect=f"trinity@{release}", runner="trinity").report.findings
    assert is_known is not any("registers from 0.5 on" in item.message for item in found)


def test_the_parsers_of_tool_calls_are_those_of_the_installed_vllm() -> None:
    installed = importlib.util.find_spec("vllm")
    assert installed is not None
    assert installed.origin is not None
    registry = Path(installed.origin).parent / "tool_parsers" / "__init__.py"
    names = set(re.findall(r'^    "([^"]+)": \(', registry.read_text(), re.MULTILINE))
    assert "hermes" in names
    assert names - set(PARSERS) == set()
