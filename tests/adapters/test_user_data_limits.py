"""What each framework refuses of the user's data and code: columns, their types, domains, names and classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import yaml

from rlctl.common.report import Finding, Level
from rlctl.planning.column_types import column_types
from rlctl.translation.acceptance import findings_of, with_moments
from rlctl.translation.translate import read
from tests.adapters.refused import VERL, A, R, tree

PROMPT = [{"role": "user", "content": "1 + 1?"}]
ROW: dict[str, Any] = {
    "data_source": "openai/gsm8k",
    "prompt": PROMPT,
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"index": 1},
}


def found_in(folder: Path, runner: str, values: dict[str, Any], release: str = "") -> list[Finding]:
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump(values, sort_keys=False))
    loaded, report = read(file, dialect=f"{runner}@{release}" if release else runner)
    return with_moments(item for item in findings_of(runner, loaded, report) if item.level is not Level.NOTE)


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


@pytest.mark.parametrize(
    ("change", "release", "words"),
    [
        ({}, "0.6", ""),
        ({"prompt": PROMPT[0]}, "0.6", "(column 'prompt') are struct<content: text, role: text>"),
        ({"prompt": [{"from": "human", "value": "1 + 1?"}]}, "0.6", "list<struct<from: text, value: text>>"),
        ({"reward_model": '{"ground_truth": "2"}'}, "0.6", "'reward_model' of"),
        ({"reward_model": {"answer": "2"}}, "0.9", "is struct<answer: text>"),
        ({"extra_info": "1"}, "0.6", "'extra_info' of"),
        ({"extra_info": None}, "0.6", ""),
    ],
)
def test_columns_of_verl_have_types(tmp_path: Path, change: dict[str, Any], release: str, words: str) -> None:
    file = written(tmp_path / "train.parquet", [{**ROW, **change}] * 64)
    found = found_in(tmp_path, "verl", tree({**VERL, "data.train_files": file, f"{R}.mode": "async"}), release)
    told = [item for item in found if "column" in item.message]
    assert [words in item.message for item in told] == [True] * bool(words)
    assert all(item.when for item in told)


def test_rows_without_extra_info_stop_old_releases(tmp_path: Path) -> None:
    file = written(tmp_path / "train.parquet", [ROW, {**ROW, "extra_info": None}] * 32)
    for release, is_refused in (("0.5", True), ("0.6", False)):
        found = found_in(tmp_path, "verl", tree({**VERL, "data.train_files": file}), release)
        assert any("32 rows" in item.message for item in found) is is_refused


def test_files_that_cannot_be_joined_are_named(tmp_path: Path) -> None:
    first = written(tmp_path / "a.parquet", [ROW] * 64)
    other = written(tmp_path / "b.parquet", [{**ROW, "reward_model": {"style": "rule", "ground_truth": ["2"]}}] * 64)
    for files, is_refused in (([first, other], True), ([first, first], False)):
        found = found_in(tmp_path, "verl", tree({**VERL, "data.train_files": files}), "0.6")
        assert any("cannot join" in item.message for item in found) is is_refused


def test_steps_that_the_rows_do_not_last_for(tmp_path: Path) -> None:
    file = written(tmp_path / "train.parquet", [ROW] * 640)
    values = {**VERL, "data.train_files": file, "trainer.total_epochs": 2}
    for steps, is_named in ((20, False), (21, True)):
        found = found_in(tmp_path, "verl", tree({**values, "trainer.total_training_steps": steps}), "0.6")
        assert any("last for 20 steps" in item.message for item in found) is is_named


def test_types_of_null_columns_and_of_json(tmp_path: Path) -> None:
    rows = [{"a": None, "b": [{"c": 1}], "d": True}, {"a": "x", "b": [], "d": False}]
    shown = {"a": "text", "b": "list<struct<c: number>>", "d": "boolean"}
    for name in ("rows.jsonl", "rows.parquet"):
        written(tmp_path / name, rows)
        assert {column: str(kind) for column, kind in column_types(tmp_path / name).items()} == shown
    nothing = column_types(Path(written(tmp_path / "null.parquet", [{"a": None}])))["a"]
    assert str(nothing) == "null"
    assert nothing.joins(column_types(tmp_path / "rows.parquet")["a"])


IGNORED: list[tuple[dict[str, Any], str, str]] = [
    ({f"{A}.clip_ratio_high": 0.28, f"{A}.ppo_mini_batch_size": 64}, "0.6", "clip_ratio_high has no effect"),
    ({f"{A}.clip_ratio_high": 0.28}, "0.6", ""),
    ({f"{A}.clip_ratio_high": 0.28, f"{A}.ppo_mini_batch_size": 64, f"{A}.ppo_epochs": 2}, "0.6", ""),
    ({"algorithm.norm_adv_by_std_in_grpo": False, "algorithm.adv_estimator": "rloo"}, "0.6", "does not read it"),
    ({"algorithm.norm_adv_by_std_in_grpo": False}, "0.6", ""),
    ({"algorithm.rollout_correction.rollout_is": "token"}, "0.7", "returns no log-probs"),
    ({"algorithm.rollout_correction.rollout_is": "token", f"{R}.calculate_log_probs": True}, "0.7", ""),
    ({"data.return_raw_chat": False, f"{R}.mode": "async"}, "0.5", "return_raw_chat is false"),
    ({"data.return_raw_chat": True, f"{R}.mode": "async"}, "0.5", ""),
    ({f"{A}.policy_loss.loss_mode": "cispo"}, "0.6", "which verl does not have"),
    ({f"{A}.policy_loss.loss_mode": "cispo"}, "0.7", ""),
    ({f"{R}.name": "hf"}, "0.8", "rollout.name is hf"),
    ({f"{R}.name": "hf", f"{R}.n": 1}, "0.4", ""),
    ({"algorithm.adv_estimator": "gae", "critic.ppo_micro_batch_size_per_gpu": 2}, "0.5", "deepseek-llm-7b-chat"),
    (
        {
            "actor_rollout_ref.model.lora_rank": 8,
            "actor_rollout_ref.model.target_modules": "all_linear",
            f"{R}.load_format": "safetensors",
        },
        "0.6",
        "target_modules is all_linear",
    ),
]


@pytest.mark.parametrize(("change", "release", "words"), IGNORED)
def test_settings_of_verl(tmp_path: Path, change: dict[str, Any], release: str, words: str) -> None:
    found = found_in(tmp_path, "verl", tree({**VERL, **change}), release)
    plain = {item.message for item in found_in(tmp_path, "verl", tree(VERL), release)}
    new = [item.message for item in found if item.message not in plain]
    assert [words in message for message in new] == [True] * bool(words), new


def test_a_choice_from_a_config_group_is_no_key(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "python3 -m verl.trainer.sft_trainer data.train_files=/data/a.parquet engine=megatron optim=megatron\n"
    )
    _, report = read(script, dialect="verl@0.9")
    assert "no-release-key" not in [item.code for item in report.findings]


def test_a_script_sets_only_keys_that_the_config_has(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    for program, override, is_refused in (
        ("verl.trainer.main_ppo", "reward_model.reward_kwargs.votes=4", True),
        ("verl.trainer.main_ppo", "+reward_model.reward_kwargs.votes=4", False),
        ("verl.trainer.main_ppo", f"{A}.fsdp_config.grad_offload=False", True),
        ("verl.trainer.main_ppo", "trainer.val_generations_to_log_to_wandb=1", True),
        ("recipe.dapo.main_dapo", "reward_model.reward_kwargs.votes=4", False),
    ):
        script.write_text(f"python3 -m {program} {' '.join(f'{k}={v}' for k, v in VERL.items())} {override}\n")
        _, report = read(script, dialect="verl@0.4")
        assert ("no-release-key" in [item.code for item in report.findings]) is is_refused, override


LISTS = "def compute_score(data_sources, solution_strs, ground_truths, extra_infos):\n    return [0.0]\n"
SINGLE = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return "


@pytest.mark.parametrize(
    ("code", "change", "words"),
    [
        (SINGLE + "1.0\n", {}, ""),
        (SINGLE + "(1.0, 'why')\n", {}, "a list or tuple in line 2"),
        (SINGLE + "{'reward': 1.0}\n", {}, "a dict with reward in line 2"),
        (SINGLE + "{'score': 1.0, 'reward': 1.0}\n", {}, ""),
        (LISTS, {}, "takes data_sources, extra_infos"),
        (LISTS, {"reward_model.reward_manager": "batch"}, ""),
        (SINGLE + "1.0\n", {"reward_model.reward_manager": "batch"}, "takes data_source, extra_info"),
    ],
)
def test_reward_functions_of_verl(tmp_path: Path, code: str, change: dict[str, Any], words: str) -> None:
    (tmp_path / "score.py").write_text(code)
    values = {**VERL, "custom_reward_function.path": str(tmp_path / "score.py"), **change}
    found = [item for item in found_in(tmp_path, "verl", tree(values), "0.5") if "function" in item.message]
    told = [item.message for item in found if words and words in item.message]
    assert bool(told) is bool(words)
    assert words or not found


# ROLL


def roll(**change: Any) -> dict[str, Any]:
    worker = "roll.pipeline.rlvr.rewards.math_rule_reward_worker.MathRuleRewardWorker"
    values: dict[str, Any] = {
        "exp_name": "sums",
        "rollout_batch_size": 8,
        "prompt_length": 64,
        "response_length": 64,
        "num_return_sequences_in_group": 8,
        "pretrain": "org/model",
        "actor_train": {
            "training_args": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8},
            "data_args": {"template": "qwen2_5", "messages": "messages", "file_name": ["rows.jsonl"]},
            "strategy_args": {"strategy_name": "megatron_train", "strategy_config": {}},
            "device_mapping": "list(range(0,8))",
        },
        "actor_infer": {
            "generating_args": {"top_p": 0.9},
            "strategy_args": {"strategy_name": "vllm", "strategy_config": {}},
            "device_mapping": "list(range(0,8))",
        },
        "reference": {
            "strategy_args": {"strategy_name": "megatron_infer", "strategy_config": {}},
            "device_mapping": "list(range(0,8))",
        },
        "rewards": {"math_rule": {"worker_cls": worker, "tag_included": ["sums"], "world_size": 8}},
    }
    values["actor_train"]["data_args"] |= {"domain_interleave_probs": {"math_rule": 1.0}}
    for path, value in change.items():
        *sections, last = path.split("__")
        at = values
        for section in sections:
            at = at.setdefault(section, {})
        at[last] = value
    return values


ASKED = {"id": "1", "messages": json.dumps(PROMPT), "ground_truth": "2", "tag": "sums", "prompt": "1 + 1?"}
CODE = "roll.pipeline.rlvr.rewards.code_sandbox_reward_worker.CodeSandboxRewardWorker"
DATA = "actor_train__data_args__"
ROLL_FOUND: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {}, ""),
    (
        {f"{DATA}domain_interleave_probs": {"math_rule": 0.5, "code": 0.5}},
        {},
        "no row of actor_train.data_args.file_name is",
    ),
    ({"rollout_batch_size": 64}, {}, "a step takes 64 prompts of the domain math_rule, which has 64 rows"),
    ({f"{DATA}domain_interleave_probs": {"math_rule": 0.9}}, {}, "sum to 0.9"),
    ({}, {"tag": "other"}, "scores these rows by the reward math_rule"),
    ({f"{DATA}template": "qwen3_thinking"}, {}, "template is qwen3_thinking"),
    ({f"{DATA}messages": None}, {}, "ROLL finds no prompts"),
    ({"rewards__math_rule__worker_cls": CODE}, {}, "reads the columns case_type, test_cases, test_case_function"),
    ({"rewards__math_rule__worker_cls": CODE.removesuffix("er")}, {}, "which ROLL does not have"),
    ({"pg_clip_high": 0.28}, {}, "use_pg_clip_range is false"),
]


@pytest.mark.parametrize(("change", "columns", "words"), ROLL_FOUND)
def test_data_and_rewards_of_roll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], columns: dict[str, Any], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "rows.jsonl", [{**ASKED, **columns}] * 64)
    told = [item.message for item in found_in(tmp_path, "roll", roll(**change))]
    assert any(words in message for message in told) if words else told == [], told


def test_a_judge_of_roll_says_where_it_runs(tmp_path: Path) -> None:
    judge = {"worker_cls": "roll.pipeline.rlvr.rewards.llm_judge_reward_worker.LLMJudgeRewardWorker", "world_size": 1}
    for kind, words in (({}, "neither api nor inference"), ({"judge_model_type": "api"}, "judge_api_key is not set")):
        found = found_in(tmp_path, "roll", roll(rewards={"math_rule": {**judge, **kind}}))
        assert any(words in item.message for item in found)


# Trinity-RFT


def trinity(**change: Any) -> dict[str, Any]:
    inputs: dict[str, Any] = {
        "taskset": {"path": "rows", "format": {"prompt_key": "question", "response_key": "answer"}},
        "default_workflow_type": "math_workflow",
    }
    return {
        "mode": "both",
        "algorithm": {"algorithm_type": "grpo", "repeat_times": 8},
        "model": {"model_path": "org/model", "max_response_tokens": 64, "max_model_len": 128},
        "cluster": {"node_num": 1, "gpu_per_node": 8},
        "buffer": {"batch_size": 8, "train_batch_size": 64, "explorer_input": {**inputs, **change}},
        "explorer": {"rollout_model": {"engine_num": 4, "tensor_parallel_size": 1}},
    }


START = "def __init__(self, *, task, model, auxiliary_models=None):\n        pass\n    "
TRINITY_FOUND = [
    (START + "def run(self):\n        return []", "Workflow", ""),
    (
        "def __init__(self, task, model):\n        pass\n    def run(self):\n        return []",
        "Workflow",
        "auxiliary_models",
    ),
    ("is_async = True\n    " + START + "def run(self):\n        return []", "Workflow", "run_async is not defined"),
    (START + "async def run(self):\n        return []", "Workflow", "run is async"),
    (START + "pass", "Workflow", "run is not defined"),
    (START + "pass", "MathWorkflow", ""),
    (
        "can_repeat = True\n    " + START + "def run(self):\n        return []",
        "Workflow",
        "set_repeat_times is not defined",
    ),
]


@pytest.mark.parametrize(("body", "base", "words"), TRINITY_FOUND)
def test_workflows_of_trinity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, base: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"flow_{len(body)}"
    (tmp_path / "flows.py").write_text(f'@WORKFLOWS.register_module("{name}")\nclass Flow({base}):\n    {body}\n')
    told = [item.message for item in found_in(tmp_path, "trinity", trinity(default_workflow_type=name))]
    assert [words in message for message in told if "Flow:" in message] == [True] * bool(words), told


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("def __call__(self, response, truth, **kwargs):\n        return {'accuracy': 1.0}", ""),
        ("def __call__(self, response, truth, **kwargs):\n        return 1.0", "returns no dict"),
        ("def __call__(self, response, answer):\n        return {'accuracy': 1.0}", "does not take truth"),
    ],
)
def test_rewards_of_trinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, words: str) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"reward_{len(call)}"
    (tmp_path / "own.py").write_text(f'@REWARD_FUNCTIONS.register_module("{name}")\nclass Own(RewardFn):\n    {call}\n')
    told = [item.message for item in found_in(tmp_path, "trinity", trinity(default_reward_fn_type=name))]
    assert [words in message for message in told if "Own:" in message] == [True] * bool(words), told


def test_a_name_near_one_of_trinity_is_suggested(tmp_path: Path) -> None:
    for field, name, near in (
        ("default_workflow_type", "math_workfow", "math_workflow"),
        ("default_reward_fn_type", "math_rewards", "math_reward"),
    ):
        found = found_in(tmp_path, "trinity", trinity(**{field: name}))
        assert [item.hint for item in found if item.key.endswith(field)] == [f"did you mean {near}?"]


def test_expert_data_of_the_mixed_algorithms_has_its_columns(tmp_path: Path) -> None:
    written(tmp_path / "expert" / "train.jsonl", [{"messages": PROMPT}])
    for column, is_refused in (("messages", False), ("conversation", True)):
        values = trinity()
        buffer = {"path": str(tmp_path / "expert"), "format": {"prompt_type": "messages", "messages_key": column}}
        values["algorithm"] = {"algorithm_type": "mix", "repeat_times": 8}
        values["buffer"]["trainer_input"] = {"auxiliary_buffers": {"sft_dataset": buffer}}
        found = found_in(tmp_path, "trinity", values)
        assert any("has no column conversation" in item.message for item in found) is is_refused
