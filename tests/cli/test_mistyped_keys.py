"""A mistyped key stops a launch, as Hydra's struct mode does: a near miss of a known key is an error, other unknown keys warn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlctl.adapters.engine.misspelled import is_one_edit
from rlctl.common.report import Level
from rlctl.documents import read_yaml
from rlctl.editing.session import Session
from rlctl.translation.translate import read_document, translate_loaded

GOOD = {
    "verl": "data: {train_files: t.parquet, train_batch_size: 8}\nactor_rollout_ref:\n  actor: {ppo_mini_batch_size: 8}\n",
    "trinity": "algorithm: {algorithm_type: grpo, repeat_times: 8}\nbuffer: {batch_size: 8}\nmodel: {model_path: a/b}\n",
    "roll": "rollout_batch_size: 8\nactor_train:\n  training_args: {learning_rate: 1.0e-6}\npretrain: a/b\nresponse_length: 8\n",
}
NEAR = [
    ("verl", "data.train_batchsize=64", "data.train_batch_size"),
    ("verl", "actor_rollout_ref.actor.optm.lr=1e-6", "actor_rollout_ref.actor.optim.lr"),
    ("verl", "actor.optim.lr=1e-6", "actor_rollout_ref.actor.optim.lr"),
    ("trinity", "buffer.batchsize=64", "buffer.batch_size"),
    ("trinity", "algorithm.optimizer.lrs=1e-6", "algorithm.optimizer.lr"),
    ("roll", "rollout_batchsize=64", "rollout_batch_size"),
    ("roll", "actor_train.training_args.learning_rat=1e-6", "actor_train.training_args.learning_rate"),
]
FAR = [("verl", "trainer.my_plugin=3"), ("trinity", "my_section.switch=3"), ("roll", "my_switch=3")]


def unknown(dialect: str, override: str) -> Any:
    """The finding on the only unknown key."""
    text = read_yaml(GOOD[dialect], "run.yaml")
    _, report = read_document(text, dialect=dialect, overrides=[override], environment={})
    [finding] = [finding for finding in report.findings if finding.code == "unknown-key"]
    return finding


@pytest.mark.parametrize(("dialect", "override", "meant"), NEAR)
def test_a_near_miss_names_the_key_that_was_meant(dialect: str, override: str, meant: str) -> None:
    assert unknown(dialect, override).meant == meant


@pytest.mark.parametrize(("dialect", "override"), FAR)
def test_a_key_that_resembles_nothing_is_no_near_miss(dialect: str, override: str) -> None:
    assert unknown(dialect, override).meant == ""


ELSEWHERE = [
    ("verl", "early_stopping.enabled=true"),
    ("verl", "discriminator.optim.lr=1e-6"),
    ("verl", "hinter.model.path=a/b"),
    ("verl", "actor_rollout_ref.actor.lm=1"),
    ("roll", "segment_infer.device_mapping=[0]"),
    ("trinity", "monitoring.project=x"),
]
"""Keys of sections that forks add; a key of another section by the same last name is none that was meant."""


@pytest.mark.parametrize(("dialect", "override"), ELSEWHERE)
def test_a_key_of_another_section_is_not_suggested(dialect: str, override: str) -> None:
    finding = unknown(dialect, override)
    assert (finding.meant, finding.hint) == ("", "")


@pytest.mark.parametrize(
    ("one", "other", "near"),
    [
        ("batch", "bacth", True),
        ("batch", "batchs", True),
        ("batch", "bath", True),
        ("batch", "bitch", True),
        ("batch", "batch", False),
        ("batch", "bitchs", False),
        ("ab", "ba", True),
        ("abc", "cba", False),
        ("a", "", True),
    ],
)
def test_one_edit(one: str, other: str, near: bool) -> None:
    assert is_one_edit(one, other) is near
    assert is_one_edit(other, one) is near


FORK = """data: {train_files: t.parquet, max_prompt_length: 64, max_start_length: 32, max_obs_length: 16}
actor_rollout_ref:
  actor: {ppo_mini_batch_size: 8, mask_states: true}
  rollout: {name: vllm, agents_per_prompt: 5}
algorithm: {adv_estimator: grpo}
trainer: {total_epochs: 1, nnodes: 1, logger: [console]}
"""
"""Keys that a fork of verl added beside those of verl that resemble them."""


def test_a_key_that_is_set_as_well_was_not_meant() -> None:
    _, report = read_document(read_yaml(FORK, "run.yaml"), dialect="verl", environment={})
    unknown = [finding for finding in report.findings if finding.code == "unknown-key"]
    assert len(unknown) == 4
    assert {(finding.meant, finding.hint) for finding in unknown} == {("", "")}


def test_unknown_keys_are_reported_together(rlctl: Any, tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(FORK)
    shown = rlctl("check", str(config), "--runner", "rlctl")
    lines = [line for line in shown.err.splitlines() if "[unknown-key]" in line]
    assert len(lines) == 1
    assert "4 keys: data.max_start_length (line 1), data.max_obs_length (line 1)" in lines[0]
    assert "actor_rollout_ref.rollout.agents_per_prompt (line 4)" in lines[0]
    shown = rlctl("convert", str(config), "--to", "verl", "-o", str(tmp_path / "out.yaml"))
    assert shown.err.count("verl has no such key") <= 3, "one line a rank"
    assert "data.max_start_length = 32, data.max_obs_length = 16" in shown.err


def test_verl_itself_refuses_the_keys_of_a_fork(rlctl: Any, tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(
        "python3 -m verl.trainer.main_ppo "
        "data.train_files=a data.train_batch_size=8 actor_rollout_ref.model.path=m rllm.agent.name=a" + "\n"
    )
    shown = rlctl("check", str(file), "--runner", "verl")
    assert shown.code == 1
    assert "rLLM" in shown.err
    assert "runner-refuses" in shown.err
    assert "mistyped-key" not in shown.err


@pytest.mark.parametrize("mark", ["+", "++"])
def test_a_key_that_hydra_is_told_to_add_is_no_near_miss(mark: str) -> None:
    finding = unknown("verl", f"{mark}data.train_batchsize=64")
    assert finding.meant == ""
    assert "data.train_batch_size" in finding.hint


@pytest.fixture
def mistyped(tmp_path: Path) -> Path:
    """A config with a near miss and an unknown key; its data is missing, so that no command starts anything."""
    path = tmp_path / "verl.yaml"
    path.write_text(
        f"data: {{train_files: {tmp_path}/t.parquet, train_batch_size: 4, train_batchsize: 64}}\n"
        f"actor_rollout_ref:\n  actor: {{ppo_mini_batch_size: 4}}\n  model: {{path: {tmp_path}}}\n"
        "trainer: {total_epochs: 1, logger: [console], my_plugin: 3}\n"
    )
    return path


@pytest.mark.parametrize("command", ["launch", "try", "check"])
def test_a_near_miss_is_an_error_that_names_line_key_and_option(rlctl: Any, mistyped: Path, command: str) -> None:
    shown = rlctl(command, str(mistyped))
    assert shown.code == 1
    lines = shown.err.splitlines()
    place = next(number for number, line in enumerate(lines) if "mistyped-key" in line)
    assert lines[place].startswith(f"{mistyped}:1: error: ")
    assert "rename it to 'data.train_batch_size'; or pass --allow-unknown data.train_batchsize" in lines[place + 1]
    other = next(line for line in shown.err.splitlines() if "my_plugin" in line)
    assert ("error" if command == "check" else "warning") in other, "verl refuses it, rlctl ignores it"


@pytest.mark.parametrize("command", ["launch", "try", "check"])
def test_an_allowed_key_is_a_warning(rlctl: Any, mistyped: Path, command: str) -> None:
    shown = rlctl(
        command, str(mistyped), "--allow-unknown", "data.train_batchsize", "--allow-unknown", "trainer.my_plugin"
    )
    assert "mistyped-key" not in shown.err
    assert "has no key 'data.train_batchsize'" in shown.err


def test_a_key_that_is_not_unknown_cannot_be_allowed(rlctl: Any, mistyped: Path) -> None:
    shown = rlctl("launch", str(mistyped), "--allow-unknown", "data.train_batchsizes")
    assert shown.code == 2
    assert "did you mean 'data.train_batchsize'?" in shown.err


def test_a_slurm_script_allows_what_its_writer_allowed(rlctl: Any, mistyped: Path, tmp_path: Path) -> None:
    assert rlctl("cluster", "slurm", str(mistyped), "-o", str(tmp_path / "no.sbatch")).code == 1
    allowed = ("--allow-unknown", "data.train_batchsize")
    made = rlctl("cluster", "slurm", str(mistyped), *allowed, "-o", str(tmp_path / "run.sbatch"))
    assert made.code == 0, made.err
    assert " ".join(allowed) in (tmp_path / "run.sbatch").read_text().replace("\\\n", "").replace("'", "")


def test_convert_still_warns(rlctl: Any, mistyped: Path) -> None:
    shown = rlctl("convert", str(mistyped), "--to", "rlctl", "--json")
    codes = {finding["code"]: finding["level"] for finding in json.loads(shown.out)["findings"]}
    assert codes["unknown-key"] == "warning"


@pytest.mark.parametrize(
    ("written", "rank"),
    [
        ("actor_rollout_ref.rolout.temperature=0.5", "data"),
        ("actor_rollout_ref.rollout.gpu_memory_utilisation=0.5", "resources"),
        ("actor_rollout_ref.actor.entropy_coef=0.5", "objective"),
    ],
)
def test_a_mistyped_key_matters_as_much_as_the_key_that_was_meant(written: str, rank: str) -> None:
    text = read_yaml(GOOD["verl"], "run.yaml")
    loaded, report = read_document(text, dialect="verl", overrides=[written], environment={})
    entries = {entry.key: entry.rank for entry in translate_loaded(loaded, report, "roll").report.accounting}
    assert entries[written.partition("=")[0]] == rank


def test_the_app_shows_the_error(mistyped: Path) -> None:
    findings = Session.open(mistyped).findings()
    [finding] = [finding for finding in findings if finding.code == "mistyped-key"]
    assert finding.level is Level.ERROR
    assert "--" not in finding.hint
