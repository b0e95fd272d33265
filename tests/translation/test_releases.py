"""A file that fits several releases: which, and what their defaults change."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.adapters import dialect
from rlctl.common.ranks import Rank
from rlctl.common.report import Bucket, Finding, Report
from rlctl.documents import read_yaml
from rlctl.translation.releases import spoken
from rlctl.translation.translate import convert, read, read_document

SCRIPT = """
data: {train_files: train.parquet, val_files: test.parquet, train_batch_size: 1024}
actor_rollout_ref:
  model: {path: Qwen/Qwen2-7B-Instruct}
  actor: {ppo_mini_batch_size: 256, ppo_micro_batch_size_per_gpu: 40}
  rollout: {name: vllm, n: 5}
algorithm: {adv_estimator: grpo}
trainer: {total_epochs: 15}
"""


def _read(text: str, asked: str = "verl") -> tuple[Report, list[Finding]]:
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect=asked, environment={})
    assert loaded is not None, report.errors
    return report, [finding for finding in report.findings if finding.code == "releases-differ"]


def test_a_file_that_fits_an_old_release_says_what_differs_there() -> None:
    report, (told,) = _read(SCRIPT)
    assert "0.3 to 0.8 also fit" in report.reason
    assert "entropy_coeff = 0.001 (0.9: 0" in told.message
    assert "use_kl_in_reward = true (0.9: false)" in told.message
    assert "kl_order" not in told.message
    assert told.rank is Rank.OBJECTIVE
    assert told.option == "--from verl@0.3"
    assert told.advice == "if it is for verl 0.3, add --from verl@0.3"


def test_a_file_that_writes_the_values_or_names_its_release_is_told_nothing() -> None:
    said = SCRIPT.replace("ppo_mini_batch_size: 256", "entropy_coeff: 0, clip_ratio_c: 3.0, ppo_mini_batch_size: 256")
    assert _read(said)[1] == []
    report, told = _read(SCRIPT, "verl@0.9")
    assert told == []
    assert "also fit" not in report.reason


def test_a_key_of_the_newest_release_leaves_no_other() -> None:
    newest = SCRIPT.replace("trainer: {", "distillation: {enabled: false}\ntrainer: {")
    report, told = _read(newest)
    assert told == []
    assert "0.3" not in report.reason


def test_keys_of_the_asynchronous_trainers_leave_the_releases_that_have_them() -> None:
    report, told = _read(SCRIPT + "async_training: {staleness_threshold: 0.5}\n")
    assert told == []
    assert "0.7 to 0.8 also fit" in report.reason


def test_releases_in_a_row_are_said_as_a_range() -> None:
    versions = dialect("verl").versions
    assert spoken(["0.3"], versions) == "0.3"
    assert spoken(["0.3", "0.4", "0.5", "0.7"], versions) == "0.3 to 0.5 and 0.7"


@pytest.mark.parametrize(
    ("program", "fits"),
    [
        ("verl.trainer.main_ppo", "0.3 to 0.8 also fit"),
        ("verl.experimental.one_step_off_policy.main_ppo", "0.7 to 0.8 also fit"),
        ("verl.trainer.main_ppo_sync", "0.8 also fit"),
    ],
)
def test_releases_without_a_script_s_program_do_not_fit(tmp_path: Path, program: str, fits: str) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"python3 -m {program} data.train_files=a.parquet actor_rollout_ref.rollout.n=4\n")
    _, report = read(script, environment={})
    assert f"; {fits}" in report.reason


def test_a_key_that_only_old_releases_have_is_lost_and_named(tmp_path: Path) -> None:
    """verl 0.9 builds its sections from the keys, and refuses one that they do not have."""
    file = tmp_path / "old.yaml"
    file.write_text(SCRIPT + "critic: {checkpoint: {contents: [model]}}\n")
    outcome = convert(file, "verl@0.9", dialect="verl@0.3")
    assert outcome.text is not None
    assert " contents" not in outcome.text.partition("# rlctl: kept")[0]
    (entry,) = [entry for entry in outcome.report.accounting if entry.key == "critic.checkpoint.contents"]
    assert (entry.bucket, entry.note) == (Bucket.UNSUPPORTED, "verl 0.9 has no such key")
    assert "  contents: [model]" in str(convert(file, "verl@0.3", dialect="verl@0.3").text)


def test_the_release_that_was_assumed_and_the_key_that_decided_are_told_once() -> None:
    text = SCRIPT + "custom_reward_function: {path: r.py, name: f}\n"
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="verl", environment={})
    assert loaded is not None
    assert report.dialect == "verl@0.8"
    (told,) = [item for item in report.findings if item.code == "release-assumed"]
    assert (told.key, told.option) == ("custom_reward_function.path", "--from verl@0.9")
    assert "assumed verl 0.8, because 0.9" in told.message
    (plain,) = [item for item in _read(SCRIPT)[0].findings if item.code == "release-assumed"]
    assert "assumed verl 0.9, the newest" in plain.message
    for asked in ("verl@0.8", "verl@0.9"):
        assert not [item for item in _read(text, asked)[0].findings if item.code == "release-assumed"]


def test_a_key_of_a_newer_release_outweighs_one_that_it_does_not_read() -> None:
    text = SCRIPT.replace("total_epochs: 15", "total_epochs: 15, v1: {trainer_mode: colocate_async}")
    loaded, report = read_document(
        read_yaml(text + "custom_reward_function: {path: r.py, name: f}\n", "run.yaml"), dialect="verl", environment={}
    )
    assert loaded is not None
    assert report.dialect == "verl@0.9"
    assert [item.key for item in report.findings if item.code == "key-unread"] == ["custom_reward_function"]
