"""``convert``: text on stdout, account on stderr, one object with ``--json``, and an exit code that tells of losses."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from rlctl.cli import completion
from rlctl.cli.convert import OnLoss, exit_code
from rlctl.common.errors import ExitCode
from rlctl.common.report import Bucket, Entry, Report
from rlctl.config import load
from rlctl.documents import parse_dotted, read_yaml
from rlctl.translation import translate as translate_module

LOSSY = "actor_rollout_ref: {model: {path: some/model}}\nno_such_section: {no_such_key: 1}\n"


@pytest.fixture
def verl_file(tmp_path: Path) -> Path:
    """A verl config with a key that verl does not have."""
    path = tmp_path / "verl.yaml"
    path.write_text(LOSSY)
    return path


def test_text_goes_to_stdout_and_the_account_to_stderr(rlctl: Any, verl_file: Path) -> None:
    shown = rlctl("convert", str(verl_file), "--from", "verl", "--to", "rlctl")
    assert shown.code == ExitCode.FINDINGS
    loaded, _ = load(read_yaml(shown.out, "out.yaml"))
    assert loaded is not None
    assert loaded.config.model.path == "some/model"
    assert "no_such_section" in shown.err
    assert f"  ? no_such_section.no_such_key = 1  ({verl_file}:2)" in shown.err.splitlines()


def test_json_is_one_object_of_the_documented_shape(rlctl: Any, verl_file: Path) -> None:
    shown = rlctl("convert", str(verl_file), "--from", "verl", "--to", "rlctl", "--json")
    found = json.loads(shown.out)
    assert list(found) == ["dialect", "target", "accounting", "origins", "findings", "text"]
    assert found["dialect"].startswith("verl@")
    unknown = [entry for entry in found["accounting"] if entry["bucket"] == "unknown"]
    assert unknown[0]["line"] == 2
    assert set(unknown[0]) == {"key", "bucket", "rank", "file", "line", "value", "targets", "note"}
    assert "some/model" in found["text"]


def test_on_loss_decides_what_is_written_and_how_it_ends(rlctl: Any, verl_file: Path, tmp_path: Path) -> None:
    command = ("convert", str(verl_file), "--from", "verl", "--to", "rlctl")
    strict = rlctl(*command, "--on-loss", "error", "-o", str(tmp_path / "strict.yaml"))
    assert (strict.code, strict.out) == (1, "")
    assert "Nothing was written" in strict.err
    assert not (tmp_path / "strict.yaml").exists()
    loose = rlctl(*command, "--on-loss", "ignore")
    assert loose.code == 0
    assert "some/model" in loose.out


def test_it_writes_a_file_once_and_overwrites_only_by_force(rlctl: Any, verl_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.yaml"
    command = ("convert", str(verl_file), "--from", "verl", "--to", "rlctl", "-o", str(out))
    assert rlctl(*command).out == ""
    written = out.read_text()
    again = rlctl(*command)
    assert again.code == 1
    assert "--force" in again.err
    assert rlctl(*command, "--force").code == 3
    assert out.read_text() == written


def test_it_ends_with_the_command_to_type_next(rlctl: Any, verl_file: Path, tmp_path: Path) -> None:
    command = ("convert", str(verl_file), "--from", "verl", "--to")
    out = tmp_path / "a b.yaml"
    assert rlctl(*command, "trinity", "-o", str(out)).err.splitlines()[-2:] == [
        f"wrote {out}",
        f"next: rlctl check '{out}'",
    ]
    assert rlctl(*command, "rlctl").err.splitlines()[-1].endswith("-o rlctl.yaml, then rlctl check rlctl.yaml")
    assert rlctl(*command, "verl", "--on-loss", "error").err.splitlines()[-1].endswith("--on-loss warn")
    assert "next:" not in rlctl(*command, "verl", "--json").err


def test_the_report_is_in_the_chosen_language(rlctl: Any, verl_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCTL_LANGUAGE", "zh")
    shown = rlctl("convert", str(verl_file), "--from", "verl", "--to", "trinity").err
    assert "训练前需要确认" in shown
    assert "下一步：" in shown
    assert not re.search(r"\b(next|keys|Decide|converted)\b", shown)


def test_overrides_are_in_the_dialect_of_the_file(rlctl: Any, verl_file: Path) -> None:
    shown = rlctl("convert", str(verl_file), "data.train_batch_size=64", "--from", "verl", "--to", "rlctl", "--json")
    loaded, _ = load(read_yaml(json.loads(shown.out)["text"], "out.yaml"))
    assert loaded is not None
    assert loaded.config.batch.prompts_per_step == 64


def test_overrides_alone_are_read_with_and_without_a_dialect_named(rlctl: Any) -> None:
    overrides = ("data.train_batch_size=64", "actor_rollout_ref.model.path=m")
    shown = rlctl("convert", *overrides, "--from", "verl", "--to", "rlctl")
    loaded, _ = load(read_yaml(shown.out, "out.yaml"))
    assert loaded is not None
    assert loaded.config.batch.prompts_per_step == 64
    unnamed = rlctl("convert", *overrides, "--to", "rlctl")
    assert (unnamed.code, unnamed.out) == (shown.code, shown.out)


def test_set_takes_canonical_keys(rlctl: Any, verl_file: Path) -> None:
    shown = rlctl("convert", str(verl_file), "--from", "verl", "--to", "rlctl", "--set", "run.name=other")
    loaded, _ = load(read_yaml(shown.out, "out.yaml"))
    assert loaded is not None
    assert loaded.config.run.name == "other"


def test_standard_input_is_a_file(rlctl: Any, verl_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(verl_file.read_bytes())))
    shown = rlctl("convert", "-", "--from", "verl", "--to", "rlctl")
    assert "some/model" in shown.out
    assert "<stdin>:2" in shown.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--to", "openrlhf"],
        ["--to", "verl@99.9"],
        ["--to", "rlctl", "--from", "nope"],
        ["--to", "rlctl", "--sidecar", "x.yaml", "--no-carry"],
        ["--to", "rlctl", "--assume", "x"],
        ["--to", "rlctl", "--on-loss", "maybe"],
    ],
)
def test_a_wrong_option_writes_nothing(rlctl: Any, verl_file: Path, arguments: list[str]) -> None:
    shown = rlctl("convert", str(verl_file), *arguments)
    assert shown.code == ExitCode.USAGE
    assert shown.out == ""
    assert "bug in rlctl" not in shown.err


def test_every_dialect_converts_from_the_canonical_one(rlctl: Any, config_file: Path) -> None:
    for name in [dialect.name for dialect in translate_module.dialects()]:
        shown = rlctl("convert", str(config_file), "--to", name)
        assert shown.code in (0, 3), shown.err
        assert "some/model" in shown.out


def test_the_dialects_are_what_completion_offers() -> None:
    known = {dialect.name for dialect in translate_module.dialects()}
    assert {name for name in completion.dialects("") if "@" not in name} == known
    assert all(name.startswith("verl") for name in completion.dialects("verl"))


def accounted(*buckets: Bucket) -> Report:
    return Report("a@1", "b@1", [], [Entry("key", bucket) for bucket in buckets])


@pytest.mark.parametrize(
    ("buckets", "code"),
    [
        ((), ExitCode.OK),
        ((Bucket.MAPPED, Bucket.DERIVED, Bucket.CARRIED, Bucket.DEAD), ExitCode.OK),
        ((Bucket.MAPPED, Bucket.UNSUPPORTED), ExitCode.FINDINGS),
        ((Bucket.UNKNOWN,), ExitCode.FINDINGS),
    ],
)
def test_only_what_is_lost_changes_the_exit_code(buckets: tuple[Bucket, ...], code: ExitCode) -> None:
    report = accounted(*buckets)
    assert exit_code("text", report, OnLoss.WARN) is code
    assert exit_code("text", report, OnLoss.IGNORE) is ExitCode.OK
    assert exit_code(None, report, OnLoss.IGNORE) is ExitCode.FAILED
    assert report.loses is (code is ExitCode.FINDINGS)


def test_what_failed_does_not_look_done(rlctl: Any, config_file: Path) -> None:
    """Where nothing can be written, the first line says so, and no share of the keys is shown."""
    shown = rlctl("convert", str(config_file), "--set", "algorithm.objective=dpo", "--to", "verl")
    assert shown.code == 1
    assert shown.out == ""
    assert "failed with one error" in shown.err.splitlines()[0]
    assert "converted" not in shown.err


ANNOTATED = """
data: {train_files: train.parquet, train_batch_size: 64}
actor_rollout_ref: {model: {path: org/model}, actor: {ppo_mini_batch_size: 16}, rollout: {n: 8}}  # the model
algorithm: {adv_estimator: grpo}
trainer: {n_gpus_per_node: 8, no_such_key: 1, total_training_steps: 5}
"""


def test_the_account_is_written_as_comments(rlctl: Any, tmp_path: Path) -> None:
    """Every key that was written says where it came from; the values are those written without."""
    path = tmp_path / "verl.yaml"
    path.write_text(ANNOTATED)
    plain = rlctl("convert", str(path), "--to", "trinity")
    shown = rlctl("convert", str(path), "--to", "trinity", "--annotate")
    assert read_yaml(shown.out, "a").values == read_yaml(plain.out, "b").values
    document = read_yaml(shown.out, "a")
    told = {place: f"{' '.join(note.above)} {note.beside}" for place, note in document.comments.items()}
    assert f"mapped: {path}:2 data.train_files" in told["buffer", "explorer_input", "taskset", "path"]
    assert "derived: " in told["buffer", "batch_size"]
    assert "data.train_batch_size" in told["buffer", "batch_size"]
    assert "default of verl@0.9, made explicit" in told["algorithm", "bypass_old_logprobs"]
    assert "assumed: " in told["explorer", "rollout_model", "engine_num"]
    assert f"unknown: {path}:5 trainer.no_such_key" in shown.out
    report = json.loads(rlctl("convert", str(path), "--to", "trinity", "--json").out)
    assert all(parse_dotted(entry["key"]) in told for entry in report["origins"])
    again = rlctl("convert", str(path), "--to", "verl", "--format", "sh", "--annotate")
    assert f"data.train_batch_size=64  # mapped: {path}:2 data.train_batch_size" in again.out


OFFLOADING = """\
actor_rollout_ref:
  model: {path: some/model}
  actor:
    fsdp_config: {param_offload: true, optimizer_offload: true}
data: {train_files: data/train.parquet, filter_overlong_prompts: true}
trainer: {total_training_steps: 8, val_before_train: true}
"""


def test_verbose_says_a_reason_once_with_every_key_and_its_line(rlctl: Any, tmp_path: Path) -> None:
    file = tmp_path / "verl.yaml"
    file.write_text(OFFLOADING)
    lines = rlctl("convert", str(file), "--from", "verl", "--to", "roll", "-v").err.splitlines()
    assert lines.count("    ROLL always does this") == 1
    [place] = [number for number, line in enumerate(lines) if line == "    ROLL always does this"]
    assert "data.filter_overlong_prompts = true" in lines[place - 1]
    assert "trainer.val_before_train = true" in lines[place - 1]
    assert f"({file}:" in lines[place - 1]
    assert "(line " in lines[place - 1]


def test_advice_to_rewrite_data_links_the_script_of_the_guide(rlctl: Any, tmp_path: Path) -> None:
    file = tmp_path / "verl.yaml"
    file.write_text(OFFLOADING)
    shown = rlctl("convert", str(file), "--from", "verl", "--to", "roll").err
    [link] = re.findall(r"rewrite the data .*\(a script that does it: (\S+)\)", shown)
    page, _, heading = link.rpartition("/docs/")[2].partition("#")
    text = (Path(__file__).parents[2] / "docs" / page).read_text()
    assert heading == "data"
    assert "## Data" in text.splitlines()
    assert "This script rewrites them" in text
