"""Faults that people reported: reward managers, images of rows, agent loops, splits of folders, adapters, overwritten arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlctl.common.report import Finding, Level
from rlctl.translation.translate import read
from tests.adapters.refused import TRINITY, VERL, A, R, tree
from tests.adapters.test_user_data_limits import ROW, found_in, roll, written
from tests.adapters.test_verl_user_limits import of_script

MANAGER, FUNCTION = "reward_model.reward_manager", "custom_reward_function.path"
OVERLONG, LIMIT = "reward_model.reward_kwargs.overlong_buffer_cfg", "reward_model.reward_kwargs.max_resp_len"
PENALTY = {f"{OVERLONG}.enable": False, f"{OVERLONG}.len": 64, f"{OVERLONG}.penalty_factor": 1.0}
SINGLE = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
TOOLS, LOOP = f"{R}.multi_turn.tool_config_path", f"{R}.agent.default_agent_loop"


def new(found: list[Finding], plain: list[Finding]) -> list[str]:
    known = {item.message for item in plain}
    return [f"{item.key}: {item.message}" for item in found if item.message not in known]


MANAGERS: list[tuple[dict[str, Any], str, str]] = [
    ({MANAGER: "mine"}, "0.6", "verl has naive, prime, batch, dapo"),
    ({MANAGER: "dapo"}, "0.3", "verl has naive, prime"),
    ({MANAGER: "prime"}, "0.5", ""),
    ({MANAGER: "prime", FUNCTION: "gone.py"}, "0.5", "every response gets the reward 0"),
    ({MANAGER: "prime", FUNCTION: "gone.py"}, "0.6", ""),
    ({MANAGER: "dapo"}, "0.5", "overlong_buffer_cfg is not set"),
    ({MANAGER: "dapo"}, "0.7", ""),
    ({MANAGER: "dapo", **PENALTY}, "0.6", "even if its penalty is off"),
    ({MANAGER: "dapo", **PENALTY, LIMIT: 64}, "0.6", ""),
    ({MANAGER: "dapo", **PENALTY, LIMIT: 32}, "0.6", "is more than"),
    ({MANAGER: "dapo", **PENALTY, LIMIT: 32}, "0.4", ""),
    ({MANAGER: "dapo", **PENALTY, LIMIT: 32, f"{OVERLONG}.enable": True}, "0.4", "every response loses"),
    ({f"{R}.multi_turn.enable": True, TOOLS: __file__}, "0.5", "no tool is called"),
    ({f"{R}.multi_turn.enable": True, TOOLS: __file__, f"{R}.mode": "async", "data.return_raw_chat": True}, "0.5", ""),
    ({TOOLS: "/gone/tools.yaml"}, "0.6", "is not a file on this machine"),
    ({LOOP: "tool_agnt"}, "0.7", "tool_agnt; expected one of single_turn_agent, tool_agent"),
    ({LOOP: "tool_agnt", f"{R}.agent.agent_loop_config_path": __file__}, "0.7", ""),
    ({"data.train_batch_size": 36, f"{R}.n": 2}, "0.4", "a step sends 36 prompts to 8 GPUs"),
    ({"data.train_batch_size": 36, f"{R}.n": 2}, "0.6", ""),
]


@pytest.mark.parametrize(("change", "release", "words"), MANAGERS)
def test_managers_and_agent_loops_of_verl(tmp_path: Path, change: dict[str, Any], release: str, words: str) -> None:
    found, plain = (found_in(tmp_path, "verl", tree(values), release) for values in ({**VERL, **change}, VERL))
    assert [words in message for message in new(found, plain)] == [True] * bool(words), new(found, plain)


IMAGE, NAMES = [{"bytes": b"x", "path": "a.png"}], ["a.png"]
PLACED = {"prompt": [{"role": "user", "content": "<image>How long is AB?"}]}
IMAGES: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({**PLACED, "images": IMAGE}, {}, "0.6", ""),
    ({"images": IMAGE}, {}, "0.6", "has <image> 0 times in its prompt, and 1 images"),
    ({"images": IMAGE}, {}, "0.9", "has <image> 0 times in its prompt, and 1 images"),
    ({**PLACED, "images": NAMES}, {}, "0.8", "takes no plain paths"),
    ({**PLACED, "images": NAMES}, {}, "0.9", ""),
    ({**PLACED, "images": IMAGE[0]}, {}, "0.6", "takes a list of images"),
    (
        {**PLACED, "images": IMAGE},
        {f"{R}.mode": "async", "data.return_raw_chat": True},
        "0.5",
        "sends the engine text alone",
    ),
]


@pytest.mark.parametrize(("row", "change", "release", "words"), IMAGES)
def test_images_of_rows(tmp_path: Path, row: dict[str, Any], change: dict[str, Any], release: str, words: str) -> None:
    file = written(tmp_path / "train.parquet", [{**ROW, **row, "extra_info": {"index": at}} for at in range(64)])
    found = found_in(tmp_path, "verl", tree({**VERL, "data.train_files": file, **change}), release)
    told = [item.message for item in found if "image" in item.message]
    assert [words in message for message in told] == [True] * bool(words), told


def test_files_that_are_no_parquet_need_a_newer_verl(tmp_path: Path) -> None:
    file = written(tmp_path / "train.jsonl", [ROW] * 64)
    for release, is_refused in (("0.6", True), ("0.7", False)):
        found = found_in(tmp_path, "verl", tree({**VERL, "data.train_files": file}), release)
        assert any("reads Parquet alone" in item.message for item in found) is is_refused


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("    if solution_str:\n        return 1.0\n", "nothing in line 2"),
        ("    for word in solution_str:\n        return 1.0\n", "nothing in line 2"),
        ("    score = 1.0\n", "nothing in line 2"),
        ("    if solution_str:\n        return 1.0\n    else:\n        raise ValueError\n", ""),
        ("    try:\n        return 1.0\n    finally:\n        print(1)\n", ""),
        ("    while True:\n        return 1.0\n", ""),
    ],
)
def test_a_reward_function_returns_on_every_path(tmp_path: Path, body: str, named: str) -> None:
    (tmp_path / "score.py").write_text(SINGLE + body)
    found = found_in(tmp_path, "verl", tree({**VERL, FUNCTION: str(tmp_path / "score.py")}), "0.6")
    told = [item.message for item in found if "reward function returns" in item.message]
    assert [named in message for message in told] == [True] * bool(named)


MAIN, MEGATRON = "python3 -m verl.trainer.main_ppo", {f"{A}.strategy": "megatron"}


@pytest.mark.parametrize(
    ("command", "change", "release", "words"),
    [
        (MAIN, MEGATRON, "0.6", "starts from the config of FSDP"),
        (f"{MAIN} --config-name=ppo_megatron_trainer", MEGATRON, "0.6", ""),
        (MAIN, {"data.gen_batch_size": 128}, "0.5", "takes that many prompts a step"),
        (MAIN, {"data.gen_batch_size": 64}, "0.5", ""),
        ("python3 -m recipe.spin.main_spin", {"algorithm.adv_estimator": None}, "0.5", ""),
        (MAIN, {"algorithm.adv_estimator": "gdpo"}, "0.7", ""),
    ],
)
def test_the_command_decides(tmp_path: Path, command: str, change: dict[str, Any], release: str, words: str) -> None:
    values = {key: value for key, value in {**VERL, **change}.items() if value is not None}
    told = [item.message for item in of_script(tmp_path, command, release, values)]
    named = [message for message in told if words and words in message]
    assert bool(named) is bool(words)
    assert words or not told


def test_a_search_path_of_hydra_may_bring_any_key(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    for more, is_refused in (("", True), (" hydra.searchpath=[pkg://mine]", False), (" hydra.run.dir=out", True)):
        overrides = " ".join(f"{key}={value}" for key, value in VERL.items())
        script.write_text(f"{MAIN} {overrides} trainer.val_generations_to_log_to_wandb=1{more}\n")
        _, report = read(script, dialect="verl@0.4")
        told = [item.key for item in report.findings if item.code == "no-release-key"]
        assert told == ["trainer.val_generations_to_log_to_wandb"] * is_refused


CONTEXT = {"model.max_prompt_tokens": None, "model.max_model_len": 64}
TRINITY_FOUND: list[tuple[dict[str, Any], str]] = [
    ({"model.lora_configs": [{"name": "a", "lora_rank": 24}]}, "lora_rank of model.lora_configs is 24"),
    ({"model.lora_configs": [{"name": "a", "lora_rank": 16}]}, ""),
    ({**CONTEXT, "model.max_response_tokens": 64}, "leaves one token for the prompt"),
    ({**CONTEXT, "model.max_response_tokens": 32}, ""),
]


@pytest.mark.parametrize(("change", "words"), TRINITY_FOUND)
def test_adapters_and_lengths_of_trinity(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    found = found_in(tmp_path, "trinity", tree({**TRINITY, **change}))
    told = [item.message for item in found if "lora_rank" in item.message or "one token" in item.message]
    assert [words in message for message in told] == [True] * bool(words)


@pytest.mark.parametrize(
    ("files", "split", "named"),
    [
        (("train.jsonl", "test.jsonl"), "validation", "it has test, train"),
        (("train.jsonl", "test.jsonl"), "test", ""),
        (("rows.jsonl",), "train", ""),
        (("rows.jsonl",), "test", "it has train"),
        (("sums-dev/rows.jsonl",), "validation", ""),
        (("train.jsonl", "README.md"), "validation", ""),
    ],
)
def test_a_folder_has_the_split(tmp_path: Path, files: tuple[str, ...], split: str, named: str) -> None:
    for name in files:
        written(tmp_path / "data" / name, [{"question": "1 + 1?", "answer": "2"}])
    task = "buffer.explorer_input.taskset"
    values = {**TRINITY, f"{task}.path": str(tmp_path / "data"), f"{task}.split": split, f"{task}.storage_type": "file"}
    told = [item.message for item in found_in(tmp_path, "trinity", tree(values)) if "has no split" in item.message]
    assert [named in message for message in told] == [True] * bool(named)


ROLL_FOUND: list[tuple[dict[str, Any], str]] = [
    ({"actor_infer__generating_args__num_return_sequences": 4}, "overwrites it with 8"),
    ({"actor_infer__generating_args__num_return_sequences": 8}, ""),
    ({"actor_infer__generating_args__max_new_tokens": 32}, "overwrites it with 64"),
    ({"init_kl_coef": 0.2, "add_token_level_kl": False}, "rewards have no KL penalty"),
    ({"init_kl_coef": 0.2, "add_token_level_kl": True}, ""),
    ({"actor_train__model_args__lora_rank": 8}, "adds no adapter"),
    ({"actor_train__model_args__lora_rank": 8, "actor_train__model_args__lora_target": "all-linear"}, ""),
]


@pytest.mark.parametrize(("change", "words"), ROLL_FOUND)
def test_arguments_that_roll_overwrites_or_ignores(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    found = found_in(tmp_path, "roll", roll(**change))
    told = [item.message for item in found if item.code == "runner-ignores"]
    assert [words in message for message in told] == [True] * bool(words), told
    assert all(item.level is Level.WARNING for item in found if item.message in told)


SFT = {"data.train_files": "/data/a.parquet", "data.train_batch_size": 64, "trainer.n_gpus_per_node": 8}
OLD, NEW = "verl.trainer.fsdp_sft_trainer", "verl.trainer.sft_trainer"


@pytest.mark.parametrize(
    ("program", "release", "rows", "words"),
    [
        (OLD, "0.5", 31, "stops at its first validation"),
        (OLD, "0.5", 32, ""),
        (NEW, "0.9", 63, "validation is NaN"),
        (NEW, "0.9", 64, ""),
    ],
)
def test_validation_of_sft_has_a_whole_batch(tmp_path: Path, program: str, release: str, rows: int, words: str) -> None:
    file = written(tmp_path / "val.parquet", [{"messages": [{"role": "user", "content": "1"}]}] * rows)
    values = {**SFT, "data.micro_batch_size_per_gpu": 4, "data.val_files": file}
    command = f"torchrun --standalone --nnodes=1 --nproc_per_node=8 -m {program}"
    told = [
        item.message for item in of_script(tmp_path, command, release, values) if "data.val_files have" in item.message
    ]
    assert [words in message for message in told] == [True] * bool(words)


MODEL = {"reward_model.enable": True, "reward_model.model.path": "org/rm", "reward_model.micro_batch_size_per_gpu": 2}


@pytest.mark.parametrize(
    ("program", "change", "words"),
    [
        ("verl.trainer.main_ppo", MODEL, "in its own template"),
        ("verl.trainer.main_ppo", {**MODEL, "data.return_raw_chat": True}, ""),
        ("verl.trainer.main_ppo", {**MODEL, "reward_model.model.input_tokenizer": "null"}, ""),
        (
            "recipe.dapo.main_dapo",
            {f"{R}.mode": "async", "data.return_raw_chat": True},
            "asks the workers of the engine",
        ),
    ],
)
def test_what_programs_of_older_releases_need(tmp_path: Path, program: str, change: dict[str, Any], words: str) -> None:
    told = [item.message for item in of_script(tmp_path, f"python3 -m {program}", "0.5", {**VERL, **change})]
    named = [message for message in told if "template" in message or "asks the workers" in message]
    assert [words in message for message in named] == [True] * bool(words)
