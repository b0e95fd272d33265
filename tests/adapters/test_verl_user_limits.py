"""What verl refuses of the user's data and reward function, and of the command that starts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from rlctl.common.report import Finding, Level
from rlctl.config.reward_returns import returns_of
from rlctl.documents import read_yaml, write_yaml
from rlctl.planning.parquet_footer import parquet_texts
from rlctl.translation.acceptance import findings_of
from rlctl.translation.translate import read, read_document
from tests.adapters.refused import CRITIC, VERL, A, R, changed, tree

KEY, SOURCES, IMAGES = "custom_reward_function.path", "data.train_files", "data.image_key"
CORRECTION = "algorithm.rollout_correction"
PROMPT = [{"role": "user", "content": "<image>How long is AB?"}]


def found_in(values: dict[str, Any], release: str) -> list[Finding]:
    document = read_yaml(write_yaml(tree(values)), "run.yaml")
    loaded, report = read_document(document, dialect=f"verl@{release}", environment={})
    return [item for item in findings_of("verl", loaded, report) if item.level is not Level.NOTE]


def rows(path: Path, *, source: str = "openai/gsm8k", image: str = "") -> Path:
    answers = [{"style": "rule", "ground_truth": "4"}] * 2
    columns: dict[str, Any] = {"data_source": [source, source], "prompt": [PROMPT, PROMPT], "reward_model": answers}
    columns |= {image: [[{"image": "a.png"}], [{"image": "b.png"}]]} if image else {}
    parquet.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    ("source", "release", "is_refused"),
    [
        ("openai/gsm8k", "0.3", False),
        ("", "0.6", True),
        ("mine/sums", "0.9", True),
        ("math_dapo", "0.3", True),
        ("math_dapo", "0.4", False),
        ("aime2024", "0.4", False),
        ("HuggingFaceH4/MATH-500", "0.4", True),
        ("HuggingFaceH4/MATH-500", "0.5", False),
    ],
)
def test_a_data_source_that_a_release_does_not_score_is_refused(
    tmp_path: Path, source: str, release: str, is_refused: bool
) -> None:
    values = changed("verl", {SOURCES: str(rows(tmp_path / "train.parquet", source=source)), IMAGES: "prompt"})
    assert (SOURCES in [item.key for item in found_in(values, release)]) is is_refused
    (tmp_path / "score.py").write_text("def compute_score(data_source, solution_str, **kwargs):\n    return 0.0\n")
    own = {**values, KEY: str(tmp_path / "score.py")}
    assert SOURCES not in [item.key for item in found_in(own, release if release != "0.9" else "0.7")]


@pytest.mark.parametrize(
    ("image", "key", "is_lost"), [("image", "images", True), ("image", "image", False), ("", "images", True)]
)
def test_a_prompt_with_a_place_for_an_image_needs_its_column(
    tmp_path: Path, image: str, key: str, is_lost: bool
) -> None:
    path = rows(tmp_path / "train.parquet", image=image)
    found = [item for item in found_in(changed("verl", {SOURCES: str(path), IMAGES: key}), "0.6") if item.key == IMAGES]
    assert [item.code for item in found] == ["runner-ignores"] * is_lost
    assert all((image or "images") in item.hint for item in found)


def test_the_footer_of_a_parquet_file_holds_some_values(tmp_path: Path) -> None:
    path = rows(tmp_path / "a.parquet", source="x/y")
    assert parquet_texts(path, ("data_source",)) == ["x/y"]
    assert parquet_texts(path, ("prompt", "*", "content")) == ["<image>How long is AB?"]
    assert parquet_texts(path, ("missing",)) == []


MIXED = "    if not ground_truth:\n        return 0.0\n    return {'score': 1.0, 'acc': 1.0}\n"
UNEVEN = "    if not ground_truth:\n        return {'score': 0.0}\n    return {'score': 1.0, 'acc': 1.0}\n"
EVEN = "    if not ground_truth:\n        return {'score': 0.0, 'acc': 0.0}\n    return {'score': 1.0, 'acc': 1.0}\n"
NOTHING = "    if not ground_truth:\n        return\n    return 1.0\n"
NUMBERS = "    score = float(solution_str == ground_truth)\n    return score if ground_truth else -1\n"
UNKNOWN = "    def inner():\n        return {}\n    total = inner\n    return total(solution_str)\n"


@pytest.mark.parametrize(
    ("body", "release", "named"),
    [
        (MIXED, "0.3", "a dict in line 4, a number in line 3"),
        (MIXED, "0.9", "a dict in line 4, a number in line 3"),
        (UNEVEN, "0.6", "a dict with score in line 3"),
        (EVEN, "0.6", ""),
        (NOTHING, "0.6", "nothing in line 3"),
        (NUMBERS, "0.6", ""),
        (UNKNOWN, "0.6", ""),
    ],
)
def test_a_reward_function_returns_one_kind_of_value(tmp_path: Path, body: str, release: str, named: str) -> None:
    file = tmp_path / "score.py"
    file.write_text(f"def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n{body}")
    key = KEY if release != "0.9" else f"reward.{KEY}"
    found = [item for item in found_in(changed("verl", {key: str(file)}), release) if "reward function" in item.message]
    assert [named in item.message for item in found] == [True] * bool(named)
    assert all(item.level is Level.ERROR for item in found)


def test_a_coroutine_is_no_reward_before_the_reward_loop(tmp_path: Path) -> None:
    file = tmp_path / "score.py"
    file.write_text(
        "async def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 1.0\n"
    )
    assert returns_of(file, "other") is None
    for release, is_refused in (("0.5", True), ("0.7", False)):
        found = found_in(changed("verl", {KEY: str(file)}), release)
        assert any("without awaiting" in item.message for item in found) is is_refused


def of_script(tmp_path: Path, command: str, release: str, values: dict[str, Any]) -> list[Finding]:
    script = tmp_path / "run.sh"
    overrides = " \\\n    ".join(f"{key}={value}" for key, value in values.items())
    script.write_text(f"{command} \\\n    {overrides}\n")
    loaded, report = read(script, dialect=f"verl@{release}")
    return [item for item in findings_of("verl", loaded, report) if item.level is not Level.NOTE]


@pytest.mark.parametrize(
    ("program", "hybrid", "is_refused"),
    [
        ("verl.trainer.main_ppo", "False", True),
        ("verl.trainer.main_ppo", "True", False),
        ("recipe.one_step_off_policy.main_ppo", "False", False),
        ("recipe.one_step_off_policy.main_ppo", "True", True),
    ],
)
def test_the_program_decides_whether_roles_share_devices(
    tmp_path: Path, program: str, hybrid: str, is_refused: bool
) -> None:
    values = {**VERL, "actor_rollout_ref.hybrid_engine": hybrid}
    found = of_script(tmp_path, f"python3 -m {program}", "0.5", values)
    assert ("actor_rollout_ref.hybrid_engine" in [item.key for item in found]) is is_refused


def test_filters_that_the_trainer_never_reads_are_named(tmp_path: Path) -> None:
    values = {**VERL, "algorithm.filter_groups.enable": "True"}
    for program, is_named in (("verl.trainer.main_ppo", True), ("recipe.dapo.main_dapo", False)):
        found = of_script(tmp_path, f"python3 -m {program}", "0.6", values)
        assert any(item.key == "algorithm.filter_groups.enable" for item in found) is is_named


TORCHRUN = "torchrun --standalone --nnodes=1 --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer"
SFT = {"data.train_files": "/data/a.parquet", "data.micro_batch_size_per_gpu": 4, "model.partial_pretrain": "org/model"}


@pytest.mark.parametrize(
    ("batch", "key"), [(60, "data.train_batch_size"), (48, "data.micro_batch_size_per_gpu"), (64, "")]
)
def test_a_batch_of_the_sft_trainer_is_shared_by_ranks_and_micro_batches(tmp_path: Path, batch: int, key: str) -> None:
    found = of_script(tmp_path, TORCHRUN, "0.4", {**SFT, "data.train_batch_size": batch})
    assert [item.key for item in found if item.code == "runner-refuses"] == ([key] if key else [])


@pytest.mark.parametrize(
    ("release", "values", "is_refused"),
    [
        ("0.4", {"model.fsdp_config.cpu_offload": True}, True),
        ("0.7", {"model.fsdp_config.cpu_offload": True, "model.strategy": "fsdp2"}, True),
        ("0.7", {"model.fsdp_config.cpu_offload": True, "model.strategy": "fsdp"}, False),
        ("0.7", {"model.fsdp_config.cpu_offload": False}, False),
        ("0.3", {"model.fsdp_config.cpu_offload": True}, False),
    ],
)
def test_the_sft_trainer_offloads_with_fsdp1(
    tmp_path: Path, release: str, values: dict[str, Any], is_refused: bool
) -> None:
    found = of_script(tmp_path, TORCHRUN, release, {**SFT, "data.train_batch_size": 64, **values})
    keys = [item.key for item in found if item.code == "runner-refuses"]
    assert keys == (["model.fsdp_config.cpu_offload"] if is_refused else [])


ACTOR_POLICY, CRITIC_POLICY = f"{A}.fsdp_config.offload_policy", "critic.fsdp.offload_policy"
OLD_POLICY = "critic.model.fsdp_config.offload_policy"


@pytest.mark.parametrize(
    ("release", "values", "ignored"),
    [
        ("0.4", {ACTOR_POLICY: True}, ACTOR_POLICY),
        ("0.9", {ACTOR_POLICY: True}, ACTOR_POLICY),
        ("0.9", {ACTOR_POLICY: True, f"{A}.strategy": "fsdp2"}, ""),
        ("0.9", {ACTOR_POLICY: False}, ""),
        ("0.6", {**CRITIC, OLD_POLICY: True}, OLD_POLICY),
        ("0.9", {**CRITIC, CRITIC_POLICY: True}, CRITIC_POLICY),
        ("0.9", {**CRITIC, CRITIC_POLICY: True, "critic.strategy": "fsdp2"}, ""),
    ],
)
def test_only_fsdp2_offloads_by_its_policy(release: str, values: dict[str, Any], ignored: str) -> None:
    found = found_in(changed("verl", values), release)
    assert [item.key for item in found if "only fsdp2 reads it" in item.message] == ([ignored] if ignored else [])


def test_the_size_that_fits_is_suggested() -> None:
    values = changed("verl", {"actor_rollout_ref.model.path": "Qwen/Qwen2.5-14B-Instruct", f"{A}.strategy": "fsdp"})
    values |= {"trainer.nnodes": 2, f"{A}.ulysses_sequence_parallel_size": 16, f"{R}.tensor_model_parallel_size": 16}
    values |= {"actor_rollout_ref.model.use_remove_padding": True}
    hints = [item.hint for item in found_in(values, "0.6") if "cannot split" in item.message]
    assert hints == [f"set {R}.tensor_model_parallel_size to 8", f"set {A}.ulysses_sequence_parallel_size to 8"]


COMPLETE = {"reward_model": [{"style": "rule", "ground_truth": "4"}]}


@pytest.mark.parametrize(
    ("columns", "change", "key"),
    [
        ({"data_source": ["openai/gsm8k"], "prompt": [PROMPT[:1]], **COMPLETE}, {IMAGES: "prompt"}, ""),
        ({"prompt": [PROMPT], **COMPLETE}, {IMAGES: "prompt"}, "data.reward_fn_key"),
        ({"prompt": [PROMPT], **COMPLETE}, {IMAGES: "prompt", "data.custom_cls.path": "own.py"}, ""),
        ({"data_source": ["openai/gsm8k"], "prompt": ["2 + 2?"], **COMPLETE}, {}, "data.prompt_key"),
        ({"data_source": ["openai/gsm8k"], "prompt": [PROMPT]}, {IMAGES: "prompt"}, SOURCES),
    ],
)
def test_rows_have_what_the_reward_manager_reads(
    tmp_path: Path, columns: dict[str, Any], change: dict[str, Any], key: str
) -> None:
    file = tmp_path / "train.parquet"
    parquet.write_table(pa.table(columns), file)
    found = found_in(changed("verl", {SOURCES: str(file), **change}), "0.6")
    assert [item.key for item in found] == ([key] if key else [])


LONG = {"data.max_response_length": 60000, f"{R}.max_num_batched_tokens": 99000}
ROWS: list[tuple[str, dict[str, Any], str]] = [
    ("0.5", {"reward_model.reward_manager": "batch"}, "reward_model.reward_manager"),
    ("0.5", {"reward_model.reward_manager": "batch", KEY: "gone.py"}, ""),
    ("0.4", {"algorithm.adv_estimator": "gpg"}, "algorithm.adv_estimator"),
    ("0.5", {"algorithm.adv_estimator": "gpg"}, ""),
    ("0.9", {"algorithm.adv_estimator": "grpo_pass"}, "algorithm.adv_estimator"),
    ("0.4", {f"{R}.multi_turn.enable": True}, f"{R}.multi_turn.tool_config_path"),
    ("0.5", {f"{R}.multi_turn.enable": True}, ""),
    ("0.3", {f"{R}.name": "hf"}, f"{R}.n"),
    ("0.4", {f"{R}.name": "hf"}, ""),
    ("0.6", {f"{R}.name": "vlm"}, f"{R}.name"),
    ("0.6", {f"{R}.dtype": "fp16"}, f"{R}.dtype"),
    ("0.6", {f"{A}.strategy": "fsdp3"}, f"{A}.strategy"),
    ("0.6", {f"{A}.fsdp_config.fsdp_size": 3}, f"{A}.fsdp_config.fsdp_size"),
    ("0.6", {f"{A}.fsdp_config.fsdp_size": 4}, ""),
    ("0.5", {"reward_model.enable": True, "data.return_raw_chat": True}, "reward_model.micro_batch_size_per_gpu"),
    (
        "0.5",
        {"reward_model.enable": True, "data.return_raw_chat": True, "reward_model.micro_batch_size_per_gpu": 4},
        "",
    ),
    ("0.5", {"actor_rollout_ref.model.path": "Qwen/Qwen3-8B", **LONG}, "data.max_response_length"),
    ("0.7", {"actor_rollout_ref.model.path": "Qwen/Qwen3-8B", **LONG}, ""),
]


@pytest.mark.parametrize(("release", "change", "key"), ROWS)
def test_what_a_release_lacks_is_refused(release: str, change: dict[str, Any], key: str) -> None:
    found = [item.key for item in found_in(changed("verl", change), release) if item.level is Level.ERROR]
    assert found == ([key] if key else [])


@pytest.mark.parametrize(
    ("change", "release", "key"),
    [
        ({"critic.optim.lr": 1e-5}, "0.5", "critic.optim.lr"),
        ({"critic.model.path": "org/critic"}, "0.9", "critic.model.path"),
        ({"critic.optim.lr": 1e-5, "algorithm.adv_estimator": "gae"}, "0.9", ""),
        ({f"{CORRECTION}.rollout_is_threshold": 3.0}, "0.9", f"{CORRECTION}.rollout_is_threshold"),
        ({f"{CORRECTION}.rollout_is_threshold": 3.0, f"{CORRECTION}.rollout_is": "token"}, "0.9", ""),
        ({f"{CORRECTION}.rollout_rs_threshold": 3.0}, "0.7", f"{CORRECTION}.rollout_rs_threshold"),
    ],
)
def test_settings_that_another_one_turns_off_are_named(change: dict[str, Any], release: str, key: str) -> None:
    found = [item for item in found_in({**VERL, **change}, release) if item.key.startswith(("critic", CORRECTION))]
    assert [item.key for item in found if item.code == "runner-ignores"] == [key] * bool(key)


@pytest.mark.parametrize(
    ("returned", "metric", "manager", "is_refused"),
    [
        ('{"score": 1.0, "correct": 1.0}', "acc", "dapo", True),
        ('{"score": 1.0, "acc": 1.0}', "acc", "dapo", False),
        ("1.0", "acc", "dapo", False),
        ("1.0", "acc", "naive", True),
        ("1.0", "seq_reward", "naive", False),
        ("score(solution_str)", "acc", "naive", False),
    ],
)
def test_groups_are_filtered_by_what_the_reward_function_returns(
    tmp_path: Path, returned: str, metric: str, manager: str, is_refused: bool
) -> None:
    (tmp_path / "score.py").write_text(
        f"def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return {returned}\n"
    )
    filters = {"algorithm.filter_groups.enable": True, "algorithm.filter_groups.metric": metric}
    values = {**VERL, **filters, KEY: str(tmp_path / "score.py"), "reward_model.reward_manager": manager}
    found = of_script(tmp_path, "python3 -m recipe.dapo.main_dapo", "0.5", values)
    assert any(item.key == "algorithm.filter_groups.metric" for item in found) is is_refused
