"""verl -> rlctl -> verl: what a release and an engine make of a key, and what of it comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlctl.adapters.engine.carried import kept_in
from rlctl.adapters.engine.tree import find
from rlctl.common.report import Bucket, Report
from rlctl.config import Loaded, to_plain
from rlctl.config.fields import Interval
from rlctl.documents import parse_dotted, read_yaml
from rlctl.translation.rendering import write_out
from rlctl.translation.translate import read as read_file
from rlctl.translation.translate import read_document, translate_loaded

from .corpus import ROWS, Example, examples
from .test_verl import A, R, bucket, read, written


@pytest.mark.parametrize(("version", "mode"), [("0.7", "seq_mean_token_mean"), ("0.9", "token_mean")])
def test_gspo_means_over_responses_until_verl_hands_it_its_mode(version: str, mode: str) -> None:
    loaded, _ = read(f"{A}.policy_loss.loss_mode=gspo", f"{A}.loss_agg_mode=token-mean", dialect=f"verl@{version}")
    assert loaded.config.algorithm.loss_aggregation.mode == mode


@pytest.mark.parametrize(("switch", "on"), [("true", False), ("false", True)])
def test_verl_0_3_subtracts_kl_from_rewards_unless_it_is_in_the_loss(switch: str, on: bool) -> None:
    loaded, _ = read(f"{A}.use_kl_loss={switch}", dialect="verl@0.3")
    assert (loaded.config.algorithm.kl_in_reward is not None) is on


def test_verl_0_3_is_told_where_no_kl_is_wanted() -> None:
    values, _ = written(*read(), "verl@0.3")
    assert values["algorithm"]["kl_ctrl"]["kl_coef"] == 0.0


@pytest.mark.parametrize(
    ("overrides", "unread"),
    [
        ([f"{A}.ppo_micro_batch_size_per_gpu=4"], f"{A}.ppo_max_token_len_per_gpu"),
        ([f"{A}.use_dynamic_bsz=true", f"{A}.ppo_micro_batch_size_per_gpu=4"], f"{A}.ppo_micro_batch_size_per_gpu"),
        ([], f"{A}.ppo_max_token_len_per_gpu"),
    ],
)
def test_the_size_that_the_switch_leaves_unread_is_dead(overrides: list[str], unread: str) -> None:
    _, report = read(*overrides, f"{A}.ppo_max_token_len_per_gpu=9000")
    assert bucket(report, unread) is Bucket.DEAD


@pytest.mark.parametrize("engine", ["megatron", "veomni", "torchtitan"])
def test_an_engine_of_all_roles_is_chosen_by_its_group(engine: str) -> None:
    """Without the group, Hydra composes FSDP's blocks and refuses those of the engine."""
    values, _ = written(*read(f"model_engine={engine}"), "verl@0.9")
    assert values["model_engine"] == engine
    assert "strategy" not in values["actor_rollout_ref"]["actor"]


def test_npu_is_told_and_comes_back() -> None:
    loaded, report = read("trainer.device=npu")
    assert loaded.config.placement.device == "cuda"
    assert bucket(report, "trainer.device") is Bucket.DERIVED
    assert written(loaded, report, "verl")[0]["trainer"]["device"] == "npu"


def test_what_a_person_wrote_comes_back_or_the_report_says_what_became_of_it() -> None:
    """Every leaf of every shared example through the canonical file and back: the leaf itself, or the values it stands for."""
    chosen = [example for example in examples("verl") if not example.is_default]
    gone = {example.name: lost for example in chosen if (lost := _gone(example))}
    assert gone == {}


def _gone(example: Example) -> list[str]:
    """The leaves that neither come back nor are reported as lost, dead, unknown, or what verl does anyway."""
    loaded, report = example.read()
    assert loaded is not None
    kept, _ = read_document(read_yaml(_text(loaded, "rlctl"), "rlctl.yaml"), dialect="rlctl", environment={})
    assert kept is not None
    facts = {"dataset_rows": str(ROWS)}
    written = write_out(kept, "verl", {})
    lost = {path[-1] for _, part in written.file.parts for path, fate in part.fates.items() if fate.lost}
    text = read_yaml(written.text(), "verl.yaml")
    home, account = read_document(text, dialect="verl", environment={}, options=facts)
    assert home is not None
    before, after = to_plain(loaded.config), to_plain(home.config)
    said = {entry.key: entry.value for entry in account.accounting}
    return [
        entry.key
        for entry in report.accounting
        if entry.bucket not in (Bucket.DEAD, Bucket.UNKNOWN)
        and entry.key not in lost  # a key of older releases, which the report names
        and (entry.key not in said or said[entry.key] != entry.value)
        and not (entry.bucket is Bucket.MAPPED and not entry.targets)
        and not _same([key for key, _ in entry.targets if not key.startswith("extensions")], before, after)
    ]


def _same(keys: list[str], before: Any, after: Any) -> bool:
    paths = [parse_dotted(key) for key in keys]
    return bool(paths) and all(find(before, path) == find(after, path) for path in paths)


def _text(loaded: Loaded, target: str) -> str:
    return write_out(loaded, target, {}).text()


def test_devices_that_do_not_divide_a_mini_batch_are_warned_of() -> None:
    """verl's check before it trains: a mini-batch must divide by the replicas."""
    loaded, report = read(
        "data.train_batch_size=96", f"{A}.ppo_mini_batch_size=96", f"{R}.n=5", "trainer.n_gpus_per_node=7"
    )
    told = written(loaded, report, "verl")[1].findings
    assert [item.hint for item in told if item.code == "devices-uneven"] == ["use 6 devices, or 8"]


def canonical(text: str, *, target: str = "verl", **options: str) -> tuple[dict[str, Any], Report]:
    loaded, report = read_document(read_yaml(f"rlctl: 1\n{text}", "run.yaml"), dialect="rlctl", environment={})
    assert loaded is not None, report.findings
    made = translate_loaded(loaded, report, target, options={"carried": "none", **options})
    assert made.text is not None
    return read_yaml(made.text, "written").values, made.report


DATA = "model: {path: org/model}\ndata: {train: [{path: a.parquet}], eval: [{path: b.parquet}]}\n"


def test_a_linear_decay_becomes_the_cosine_that_ends_where_it_does() -> None:
    values, report = canonical(f"{DATA}train: {{lr_scheduler: {{type: linear}}}}\nschedule: {{total_steps: 9}}\n")
    assert values["actor_rollout_ref"]["actor"]["optim"]["lr_scheduler_type"] == "cosine"
    assert bucket(report, "train.lr_scheduler.type") is Bucket.UNSUPPORTED


@pytest.mark.parametrize(("mini", "warmup", "told"), [(64, 10, True), (128, 10, False), (64, 0, False)])
def test_ticks_within_a_step_are_told_only_where_the_rate_moves_in_it(mini: int, warmup: int, told: bool) -> None:
    batch = f"batch: {{prompts_per_step: 16, responses_per_prompt: 8, mini_batch_responses: {mini}}}\n"
    rate = f"train: {{lr_scheduler: {{step_unit: optimizer_step, warmup_steps: {warmup}}}}}\n"
    _, report = canonical(f"{DATA}{batch}{rate}schedule: {{total_steps: 100}}\n")
    lost = bucket(report, "train.lr_scheduler.step_unit") is Bucket.UNSUPPORTED
    assert lost is told


def test_names_that_nobody_gave_are_left_to_verl() -> None:
    values, _ = canonical(DATA)
    assert not {"project_name", "experiment_name"} & set(values["trainer"])


def test_what_no_result_hangs_on_is_carried() -> None:
    _, report = canonical(f"{DATA}weight_sync: {{timeout: 77.0}}\nrun: {{group: night}}\n")
    assert {bucket(report, key) for key in ("weight_sync.timeout", "run.group")} == {Bucket.CARRIED}


def test_kept_values_are_told_in_one_line(tmp_path: Path) -> None:
    text = f"rlctl: 1\n{DATA}buffer: {{type: memory, replay: {{enabled: true, cooldown: 4}}}}\n"
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="rlctl", environment={})
    assert loaded is not None
    made = translate_loaded(loaded, report, "verl")
    assert made.text is not None
    (tmp_path / "verl.yaml").write_text(made.text)
    _, told = read_file(tmp_path / "verl.yaml", environment={})
    (line,) = [item.message for item in told.findings if item.code == "restored"]
    assert line.startswith("2 values come from the keys that an earlier conversion kept at the end of the file: ")


def test_of_a_source_only_what_differs_is_kept() -> None:
    text = f"rlctl: 1\n{DATA}".replace("{path: a.parquet}", "{path: a.parquet, split: test}")
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="rlctl", environment={})
    assert loaded is not None
    made = translate_loaded(loaded, report, "verl")
    assert made.text is not None
    assert kept_in(made.text) == {"rlctl": {"data.train": [{"path": "a.parquet", "split": "test"}]}}


def test_a_lone_teacher_keeps_its_name() -> None:
    teacher = "distillation.teacher_models.math"
    loaded, report = read("distillation.enabled=true", f"+{teacher}.model_path=org/teacher", f"+{teacher}.key=math")
    distillation = loaded.config.algorithm.distillation
    assert distillation is not None
    assert distillation.teacher == "org/teacher"
    values, _ = written(loaded, report, "verl@0.9")
    assert values["distillation"]["teacher_models"] == {"math": {"model_path": "org/teacher", "key": "math"}}


def test_sft_once_an_epoch_is_an_interval_in_epochs() -> None:
    """``SFTTrainer`` replaces the word by its steps per epoch."""
    word = "after_each_epoch"
    loaded = _sft(f"{{save_freq: {word}, test_freq: {word}}}")
    assert loaded.config.checkpoint.every == loaded.config.schedule.evaluate_every == Interval(epochs=1)
    values, _ = written(loaded, Report(), "verl@0.9")
    assert values["trainer"]["save_freq"] == values["trainer"]["test_freq"] == word


def test_sft_saves_at_the_end_without_an_interval() -> None:
    assert _sft("{save_freq: -1}").config.checkpoint.at_end


def _sft(trainer: str) -> Loaded:
    text = f"model: {{path: org/model}}\ndata: {{train_files: a.parquet}}\nengine: {{_target_: x}}\ntrainer: {trainer}"
    loaded, _ = read_document(read_yaml(text, "sft.yaml"), dialect="verl", environment={})
    assert loaded is not None
    return loaded


@pytest.mark.parametrize(("version", "trained"), [("0.7", False), ("0.9", True)])
def test_a_vision_tower_is_frozen_by_the_releases_that_read_the_switch(version: str, trained: bool) -> None:
    loaded, report = read(f"{A}.freeze_vision_tower=true", dialect=f"verl@{version}")
    assert loaded.config.model.freeze == (() if trained else ("visual*", "model.visual*"))
    assert (bucket(report, f"{A}.freeze_vision_tower") is Bucket.DEAD) is trained
    values, _ = written(loaded, Report(), "verl@0.7")
    assert values["actor_rollout_ref"]["actor"].get("freeze_vision_tower", False) is not trained
