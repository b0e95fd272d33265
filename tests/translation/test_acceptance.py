"""``--runner`` refuses what the framework refuses: each row of the tables by a config of its own, and none of its examples."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlctl.common.report import Bucket, Level, Report
from rlctl.documents import Document, read_yaml, write_yaml
from rlctl.translation.acceptance import findings_of, of_its_own_framework, once, requirements_of, with_unknown_keys
from rlctl.translation.translate import read, read_document, translate_loaded
from tests.adapters.refused import BASES, IGNORED, NULLS, REFUSED, A, R, changed, tree

REMOVE_PADDING = "actor_rollout_ref.model.use_remove_padding"
BUDGET = {
    f"{A}.use_dynamic_bsz": True,
    f"{A}.ppo_max_token_len_per_gpu": 1024,
    f"{R}.log_prob_max_token_len_per_gpu": 4096,
    "data.max_prompt_length": 512,
    "data.max_response_length": 1024,
}
CORPUS = Path(__file__).parents[3] / "shared" / "corpus"


def refused(dialect: str, values: dict[str, Any]) -> list[str]:
    """The keys that a framework refuses a config for."""
    document = read_yaml(write_yaml(values), "run.yaml")
    loaded, report = read_document(document, dialect=dialect, environment={})
    return [item.key for item in findings_of(dialect, loaded, report) if item.level is Level.ERROR]


@pytest.mark.parametrize("dialect", BASES)
def test_a_config_that_the_framework_accepts_is_accepted(dialect: str) -> None:
    assert refused(dialect, tree(BASES[dialect])) == []


@pytest.mark.parametrize(("dialect", "change", "key"), [(d, *case) for d, cases in REFUSED.items() for case in cases])
def test_a_config_that_the_framework_refuses_is_refused_for_its_key(
    dialect: str, change: dict[str, Any], key: str
) -> None:
    assert key in refused(dialect, tree(changed(dialect, change)))


def ignored(dialect: str, values: dict[str, Any]) -> list[str]:
    """The keys that a framework accepts and does not use."""
    document = read_yaml(write_yaml(values), "run.yaml")
    loaded, report = read_document(document, dialect=dialect, environment={})
    found = [item for item in findings_of(dialect, loaded, report) if item.code == "runner-ignores"]
    assert {item.level for item in found} <= {Level.WARNING}
    return [item.key for item in found]


@pytest.mark.parametrize("dialect", BASES)
def test_a_config_without_idle_settings_has_no_such_warning(dialect: str) -> None:
    assert ignored(dialect, tree(BASES[dialect])) == []


@pytest.mark.parametrize(("dialect", "change", "key"), [(d, *case) for d, cases in IGNORED.items() for case in cases])
def test_a_setting_that_another_one_turns_off_is_named(dialect: str, change: dict[str, Any], key: str) -> None:
    assert key in ignored(dialect, tree(changed(dialect, change)))


TOKENS = {"data.max_prompt_length": 4096, "data.max_response_length": 8192, f"{R}.max_num_batched_tokens": 8192}
ASYNC = {f"{R}.mode": "async", "data.return_raw_chat": True}
WEIGHTLESS = {"actor_rollout_ref.model.lora_rank": 32}
OLDER = [
    ("0.4", TOKENS, f"{R}.max_num_batched_tokens", "error"),
    ("0.4", {**TOKENS, f"{R}.max_num_batched_tokens": 12288}, "", ""),
    ("0.5", {**TOKENS, **ASYNC}, "", ""),
    ("0.7", TOKENS, "", ""),
    (
        "0.5",
        {**TOKENS, **ASYNC, f"{R}.enable_chunked_prefill": False},
        f"{R}.max_num_batched_tokens",
        "error",
    ),
    ("0.4", {f"{R}.enforce_eager": False}, f"{R}.enforce_eager", "error"),
    ("0.5", {f"{R}.enforce_eager": False}, "", ""),
    (
        "0.5",
        {"actor_rollout_ref.model.lora_rank": 48, f"{R}.load_format": "auto"},
        "actor_rollout_ref.model.lora_rank",
        "error",
    ),
    ("0.6", {"actor_rollout_ref.model.lora_rank": 48, f"{R}.load_format": "auto"}, "", ""),
    ("0.5", WEIGHTLESS, f"{R}.load_format", "warning"),
    ("0.5", {**WEIGHTLESS, f"{R}.layered_summon": True}, f"{R}.layered_summon", "error"),
    ("0.9", WEIGHTLESS, "", ""),
    (
        "0.7",
        {f"{R}.n": 5, "data.train_batch_size": 36, f"{A}.use_dynamic_bsz": True},
        f"{R}.agent.num_workers",
        "error",
    ),
    (
        "0.7",
        {f"{R}.n": 5, "data.train_batch_size": 36, f"{A}.use_dynamic_bsz": True, f"{R}.agent.num_workers": 4},
        "",
        "",
    ),
    ("0.6", {f"{R}.n": 5, "data.train_batch_size": 36, f"{A}.use_dynamic_bsz": True}, "", ""),
    ("0.5", {f"{R}.val_kwargs.temperature": 0.6}, f"{R}.val_kwargs.do_sample", "warning"),
    ("0.5", {f"{R}.val_kwargs.temperature": 0.6, **ASYNC}, "", ""),
    ("0.7", {f"{R}.val_kwargs.temperature": 0.6}, "", ""),
    ("0.4", {"trainer.logger": ["trackio"]}, "trainer.logger", "error"),
    ("0.6", {"trainer.logger": ["trackio"]}, "", ""),
    ("0.3", {f"{A}.loss_agg_mode": None}, "", ""),
    ("0.3", {f"{R}.mode": "sync"}, "", ""),
    ("0.6", {f"{R}.mode": "sync"}, "", ""),
    ("0.7", {f"{R}.mode": "sync"}, f"{R}.mode", "error"),
    ("0.5", {f"{A}.loss_agg_mode": "token-sum"}, f"{A}.loss_agg_mode", "error"),
    ("0.9", {f"{A}.loss_agg_mode": "token-sum"}, "", ""),
    ("0.4", {f"{A}.use_dynamic_bsz": True, "data.train_batch_size": 33, f"{R}.n": 1}, "data.train_batch_size", "error"),
    ("0.6", {f"{A}.use_dynamic_bsz": True, "data.train_batch_size": 36, f"{R}.n": 1}, "", ""),
    ("0.5", BUDGET, f"{A}.ppo_max_token_len_per_gpu", "error"),
    ("0.8", BUDGET, f"{A}.ppo_max_token_len_per_gpu", "warning"),
    ("0.5", {**BUDGET, f"{A}.ulysses_sequence_parallel_size": 2, REMOVE_PADDING: True}, "", ""),
    ("0.5", {f"{A}.ppo_micro_batch_size_per_gpu": 3}, f"{A}.ppo_micro_batch_size_per_gpu", "error"),
    ("0.9", {f"{A}.ppo_micro_batch_size_per_gpu": 3}, f"{A}.ppo_micro_batch_size_per_gpu", "error"),
    (
        "0.5",
        {"data.train_batch_size": 8, f"{A}.ppo_mini_batch_size": 1, f"{R}.n": 4},
        f"{A}.ppo_mini_batch_size",
        "error",
    ),
    (
        "0.4",
        {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": "/ckpt"},
        "trainer.resume_from_path",
        "error",
    ),
]
"""A release of verl, a change to its base, and the key that this release refuses it for."""


@pytest.mark.parametrize(("release", "change", "key", "level"), OLDER)
def test_a_file_is_held_to_what_its_own_release_refuses(
    release: str, change: dict[str, Any], key: str, level: str
) -> None:
    document = read_yaml(write_yaml(tree(changed("verl", change))), "run.yaml")
    loaded, report = read_document(document, dialect=f"verl@{release}", environment={})
    found = [item for item in findings_of("verl", loaded, report) if item.level is not Level.NOTE]
    assert {(item.key, str(item.level)) for item in found} == ({(key, level)} if key else set())
    assert all(f"verl {release}" in item.message for item in found)


@pytest.mark.parametrize(("budget", "sequences", "is_named"), [(100, 1, True), (100, 2, False), (128, 1, False)])
def test_a_token_budget_of_trinity_holds_the_longest_sequence(budget: int, sequences: int, is_named: bool) -> None:
    change = {"trainer.max_token_len_per_gpu": budget, "trainer.ulysses_sequence_parallel_size": sequences}
    document = read_yaml(write_yaml(tree(changed("trinity", change))), "run.yaml")
    loaded, report = read_document(document, dialect="trinity", environment={})
    found = [item for item in findings_of("trinity", loaded, report) if item.key == "trainer.max_token_len_per_gpu"]
    assert [item.level for item in found] == [Level.WARNING] * is_named


@pytest.mark.parametrize("dialect", BASES)
def test_every_requirement_names_its_source_and_what_to_do(dialect: str) -> None:
    for row in requirements_of(dialect).rows:
        assert row.hint, row
        assert ".py" in row.source or ".yaml" in row.source


KNOWN = {
    "grpo_trainer_run_qwen3_235b_a22b_megatron.yaml": "expert_parallel_size 64, and tensor x data parallel is not",
    "tuning_scaling_run_qwen2_5_32b_megatron.yaml": "actor_rollout_ref.actor.model_engine, which verl does not have",
    **dict.fromkeys(
        ("rollout_correction_run_qwen2_5_7b_fsdp.yaml", "rollout_correction_run_qwen2_5_7b_fsdp_multi_rs.yaml"),
        "a rank's share of a mini-batch is 4 responses, a micro-batch has 8",
    ),
    "tuning_lora_run_qwen3_8b_merge_fsdp.yaml": "+actor_rollout_ref.model.lora.merge, a key that 0.9 has",
    "grpo_trainer_run_qwen3_30b_veomni.yaml": "+trainer.use_legacy_worker_impl, a key that 0.7 has",
    **dict.fromkeys(
        ("video_r1.yaml", "sft_config_megatron.yaml"), "track_with ml_tracker, which ROLL does not register"
    ),
    "countdown-template.yaml": "a template: its taskset has no path",
    "rlvr_qwen2.5_7B_seperate.yaml": "GPUs of a role that are not consecutive",
    **dict.fromkeys(("sft_config_megatron.yaml", "video_r1.yaml"), "ml_tracker, which ROLL does not register"),
    **dict.fromkeys(("bots.yaml", "ref_eval_collect.yaml"), "paths of single files, which load_dataset does not open"),
}
"""Examples that their own framework refuses as they are, and why."""


def examples() -> list[Path]:
    found = [*(CORPUS / "verl" / "overrides").glob("*.yaml")]
    for name in ("trinity", "roll"):
        found += [path for path in (CORPUS / name).rglob("*.yaml") if path.parent.name != "config" or name == "trinity"]
    return sorted(found)


def read_example(path: Path) -> tuple[str, Any, Report]:
    dialect = path.relative_to(CORPUS).parts[0]
    if dialect != "verl":
        return (dialect, *read(path, dialect=dialect))
    lines = yaml.safe_load(path.read_text())["overrides"]
    own = [line for line in lines if not line.startswith(("--", "hydra."))]
    if any(line.startswith("--config-name") and "megatron" in line for line in lines):
        own.insert(0, "model_engine=megatron")  # as a launch script with this option is read
    return (dialect, *read_document(Document("overrides", {}), dialect="verl", overrides=own, environment={}))


@pytest.mark.parametrize("part", range(8))
def test_the_examples_of_a_framework_are_accepted_by_it(part: int) -> None:
    wrong = {}
    for path in examples()[part::8]:
        if path.name == "agentic_val_webshop.yaml":  # includes a file that is not among the examples
            continue
        dialect, loaded, report = read_example(path)
        assert loaded is not None, (path, report.findings)
        found = [*findings_of(dialect, loaded, report), *with_unknown_keys(dialect, report.findings)]
        errors = [item.message for item in found if item.level is Level.ERROR]
        if bool(errors) is not (path.name in KNOWN):
            wrong[path.name] = errors
    assert wrong == {}


@pytest.mark.parametrize(("dialect", "key", "is_refused"), NULLS)
def test_an_empty_section_is_no_unknown_key(dialect: str, key: str, is_refused: bool) -> None:
    """verl takes null for a section; Trinity and ROLL refuse it for most."""
    document = read_yaml(write_yaml(tree(changed(dialect, {key: None}))), "run.yaml")
    _, report = read_document(document, dialect=dialect, environment={})
    [entry] = [entry for entry in report.accounting if entry.key == key]
    assert (entry.bucket, entry.targets) == (Bucket.MAPPED, ())
    assert "unknown-key" not in {item.code for item in report.findings}
    assert (key in [item.key for item in of_its_own_framework(report)]) is is_refused


def test_an_unknown_key_is_refused_where_the_framework_refuses_it() -> None:
    for dialect, override, level in (
        ("verl", "trainer.my_plugin=1", Level.ERROR),
        ("verl", "+trainer.my_plugin=1", Level.WARNING),
        ("trinity", "my_section.x=1", Level.ERROR),
        ("roll", "my_switch=1", Level.WARNING),
    ):
        _, report = read_document(Document("run.yaml", tree(BASES[dialect])), dialect=dialect, overrides=[override])
        [finding] = [item for item in with_unknown_keys(dialect, report.findings) if "has no key" in item.message]
        assert finding.level is level, (dialect, override)


def test_keys_of_another_trainer_are_one_error_that_names_it(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "python3 -m verl.trainer.fsdp_sft_trainer \\\n    algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=8 \\\n"
        "    data.train_files=a.parquet\n"
    )
    _, report = read(str(script))
    [found] = [item for item in with_unknown_keys("verl", report.findings) if item.code == "runner-refuses"]
    assert (found.level, found.at and found.at.line) == (Level.ERROR, 1)
    assert "algorithm.adv_estimator, actor_rollout_ref.rollout.n" in found.message
    assert found.hint.startswith("start verl.trainer.main_ppo")


def test_a_config_of_another_framework_is_checked_as_it_would_be_written(tmp_path: Path) -> None:
    sizes = {"buffer.batch_size": 7, "algorithm.repeat_times": 1, "buffer.train_batch_size": 7}
    sizes |= {
        "explorer.rollout_model.engine_num": 2,
        "explorer.rollout_model.tensor_parallel_size": 2,
    }  # no even number of devices divides the mini-batch
    text = write_yaml(tree(changed("trinity", sizes)))
    loaded, report = read_document(read_yaml(text, "trinity.yaml"), dialect="trinity", environment={})
    assert loaded is not None
    found = [item for item in findings_of("verl", loaded, report) if item.level is Level.ERROR]
    [mini] = [item for item in found if item.key == "actor_rollout_ref.actor.ppo_mini_batch_size"]
    assert "7 prompts x 1 responses" in mini.message
    assert mini.at is not None
    assert mini.at.file == "trinity.yaml"


@pytest.mark.parametrize(
    ("source", "runner", "named"),
    [
        ("verl", "trinity", "fails on single files: train.parquet"),
        ("trinity", "verl", "verl reads files that end in"),
        ("trinity", "roll", "ROLL reads files that end in"),
    ],
)
def test_data_that_another_framework_cannot_open_is_an_error(source: str, runner: str, named: str) -> None:
    change = {"data.train_files": "train.parquet"} if source == "verl" else {}
    text = write_yaml(tree(changed(source, change)))
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect=source, environment={})
    errors = [item for item in findings_of(runner, loaded, report) if item.level is Level.ERROR]
    [found] = [item for item in errors if named in item.message]
    assert found.code == "data-files"
    assert found.at is not None
    assert not [item for item in errors if "names a single file" in item.message], "it is said once"


def test_a_folder_may_be_named_as_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "tasks.parquet").mkdir()
    folder = {"buffer.explorer_input.taskset.path": str(tmp_path / "tasks.parquet")}
    assert refused("trinity", tree(changed("trinity", folder))) == []


def test_devices_are_written_that_divide_a_mini_batch() -> None:
    """Trinity's trainer has devices of its own; verl's roles share all, and it stops at a mini-batch that is not divisible by them."""
    sizes = {"buffer.batch_size": 6, "algorithm.repeat_times": 1, "buffer.train_batch_size": 6}
    text = write_yaml(tree(changed("trinity", sizes)))
    loaded, report = read_document(read_yaml(text, "trinity.yaml"), dialect="trinity", environment={})
    found = findings_of("verl", loaded, report)  # the data of the example is for Trinity's reader
    assert [item for item in found if item.level is Level.ERROR and item.code != "data-files"] == []


def test_the_command_cites_the_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    from rlctl import cli

    path = tmp_path / "verl.yaml"
    path.write_text(write_yaml(tree(changed("verl", {"data.train_batch_size": 16}))))
    before, sys.argv = sys.argv, ["rlctl", "check", str(path), "--runner", "verl", "--json"]
    try:
        assert cli.main() == 1
    finally:
        sys.argv = before
    findings = json.loads(capsys.readouterr().out)["findings"]
    [error] = [item for item in findings if item["level"] == "error"]
    assert (error["code"], error["line"]) == ("runner-refuses", error["line"])
    assert "data.train_batch_size (16) is less than" in error["message"]
    assert "verl/workers/config/actor.py, ActorConfig.validate" in error["message"]
    assert "not-supported" not in {item["code"] for item in findings}


MOMENTS = {
    "when it loads the model": ("start", "load"),
    "at the first rollout": ("generation",),
    "after the first rollout": ("rollout",),
    "at the first training step": ("update",),
    "at its first train step": ("update",),
    "at the first weight sync": ("sync",),
}
"""Words of a message for when a run stops, and the moments that do not contradict them."""


@pytest.mark.parametrize("dialect", REFUSED)
def test_a_message_does_not_contradict_the_moment_of_its_error(dialect: str) -> None:
    requirements = requirements_of(dialect)
    assert requirements is not None
    wrong = [
        f"{row.key}: {row.when}, but {words}"
        for row in requirements.rows
        for words, moments in MOMENTS.items()
        if words in row.message.replace("when it starts, or after the first rollout", "")
        and row.level is Level.ERROR
        and row.when not in moments
    ]
    assert wrong == []


def test_a_value_that_reading_refuses_is_refused_once() -> None:
    text = "algorithm: {adv_estimator: grpo, use_kl_in_reward: true, kl_penalty: k9}\n"
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="verl@0.9", environment={})
    found = [*report.findings, *findings_of("verl", loaded, report)]
    key = "algorithm.kl_penalty"
    assert [item.code for item in found if item.key == key] == ["bad-value", "runner-refuses"]
    assert [item.code for item in once(found) if item.key == key] == ["runner-refuses"]
    assert once(report.findings) == report.findings


def test_a_file_is_checked_for_its_own_framework_without_being_asked() -> None:
    """Log-probs in batches by tokens and training in fixed ones: verl's workers stop, rlctl's would not."""
    disagreeing = {"actor_rollout_ref.rollout.log_prob_use_dynamic_bsz": True}
    text = write_yaml(tree(changed("verl", disagreeing)))
    found = of_its_own_framework(read_document(read_yaml(text, "verl.yaml"), dialect="verl", environment={})[1])
    assert [item.level for item in found] == [Level.WARNING]
    assert found[0].key == "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz"
    older = read_document(read_yaml(text, "verl.yaml"), dialect="verl@0.6", environment={})[1]
    assert of_its_own_framework(older) == [], "this release does not refuse it"


NESTED = """\
mode: both
algorithm: {algorithm_type: grpo, repeat_times: 8}
model: {model_path: m, max_model_len: 2048}
cluster: {node_num: 1, gpu_per_node: 2}
buffer:
  batch_size: 32
  explorer_input:
    default_workflow_type: WORKFLOW
    taskset: {name: train, storage_type: file, path: gone/train.parquet, format: {response_key: a.b}}
    eval_tasksets: [{name: test, storage_type: file, path: gone/test.parquet, format: {response_key: a}}]
"""


@pytest.mark.parametrize(("workflow", "nested"), [("math_workflow", True), ("mine.OwnWorkflow", False)])
def test_an_answer_inside_another_column_is_named_if_the_framework_cannot_read_it(
    tmp_path: Path, workflow: str, nested: bool
) -> None:
    """Only a workflow of the user's may read an answer inside another column."""
    path = tmp_path / "trinity.yaml"
    path.write_text(NESTED.replace("WORKFLOW", workflow))
    loaded, report = read(path)
    found = [item for item in findings_of("trinity", loaded, report) if item.code == "data-columns"]
    assert [str(item.at) for item in found] == ([f"{path}:9"] if nested else [])
    assert not [item for item in findings_of("verl", loaded, report) if item.code == "data-columns"]


@pytest.mark.parametrize("dialect", BASES)
def test_a_run_without_training_data_is_reported_once(dialect: str) -> None:
    keys = {
        "verl": "data.train_files",
        "trinity": "buffer.explorer_input.taskset.path",
        "roll": "actor_train.data_args.file_name",
    }
    document = read_yaml(write_yaml(tree(changed(dialect, {keys[dialect]: None}))), "run.yaml")
    loaded, report = read_document(document, dialect=dialect, environment={})
    assert loaded is not None
    assert keys[dialect] in [item.key for item in findings_of(dialect, loaded, report)]
    assert keys[dialect] not in [item.key for item in findings_of(dialect, loaded, report, checked={"no-data"})]
    for target in BASES:  # the written run must not train on data that nobody named
        made = translate_loaded(loaded, replace(report, findings=[], accounting=[*report.accounting]), target)
        refusals = [item for item in made.report.findings if item.code == "target-refuses"]
        assert keys[target] in [item.key for item in refusals], target
