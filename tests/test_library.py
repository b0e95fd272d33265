"""rlctl as a library: ``rlctl.convert`` takes a text or a path, and importing the package loads nothing."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

import rlctl
from rlctl.common.errors import RlctlError, UsageError
from tests.porting import runs

VERL = """data: {train_files: a.parquet, train_batch_size: 64}
actor_rollout_ref: {model: {path: "${oc.env:MODEL,m}"}, actor: {ppo_mini_batch_size: 16}, rollout: {n: 8}}
algorithm: {adv_estimator: grpo}
trainer: {n_gpus_per_node: 8, total_epochs: 2, no_such_key: 1}
"""


def test_a_text_is_converted() -> None:
    made = rlctl.convert(VERL, to="trinity")
    assert made.text is not None
    assert "repeat_times: 8" in made.text
    assert made.report.dialect.startswith("verl@")
    assert made.report.target.startswith("trinity@")
    assert [entry.key for entry in made.report.accounting if entry.bucket == "unknown"] == ["trainer.no_such_key"]


def test_its_data_is_what_json_prints() -> None:
    data = rlctl.convert(VERL, "trinity").as_data()
    assert list(data) == ["dialect", "target", "accounting", "origins", "findings", "text"]
    assert json.loads(json.dumps(data, default=str))["accounting"][0]["file"] == "<text>"


def test_a_path_an_override_list_and_a_script_are_sources(tmp_path: Path) -> None:
    path = tmp_path / "verl.yaml"
    path.write_text(VERL)
    from_path = rlctl.convert(path, "rlctl").text
    assert from_path == rlctl.convert(str(path), "rlctl").text == rlctl.convert(VERL, "rlctl").text
    one = rlctl.convert("data.train_batch_size=32\nactor_rollout_ref.model.path=x\n", "rlctl", dialect="verl")
    assert "prompts_per_step: 32" in str(one.text)
    script = rlctl.convert(str(rlctl.convert(VERL, "verl", form="sh").text), "rlctl", environment={})
    assert "prompts_per_step: 64" in str(script.text)


def test_options_do_what_those_of_the_command_do() -> None:
    assert str(rlctl.convert(VERL, "verl", form="sh").text).startswith("#!/usr/bin/env bash")
    assert "default of verl" in str(rlctl.convert(VERL, "trinity", annotate=True).text)
    changed = rlctl.convert(VERL, "rlctl", overrides=["data.train_batch_size=128"], assignments=["run.seed=7"])
    assert "prompts_per_step: 128" in str(changed.text)
    assert "seed: 7" in str(changed.text)
    assumed = rlctl.convert(VERL, "trinity", assume={"explorer_gpus": "6"})
    assert "engine_num: 3" in str(assumed.text)


def test_what_cannot_be_said_is_in_the_report_and_what_cannot_be_read_is_raised(tmp_path: Path) -> None:
    made = rlctl.convert(VERL, "verl", assignments=["algorithm.objective=dpo"])
    assert made.text is None
    assert made.report.errors
    with pytest.raises(RlctlError, match="no such file"):
        rlctl.convert(str(tmp_path / "none.yaml"), "verl")
    with pytest.raises(RlctlError, match="is not closed"):
        rlctl.convert("a: [1\nb: 2\n", "verl")
    with pytest.raises(UsageError, match="this conversion does not need it"):
        rlctl.convert(VERL, "verl", assume={"weather": "fine"})
    with pytest.raises(UsageError, match="unknown format"):
        rlctl.convert(VERL, "openrlhf")


SURFACE = {
    "convert": "source to dialect overrides assignments environment assume form annotate carry",
    "check": "source runner cluster dialect overrides assignments",
    "plan": "source cluster runner rows dialect overrides assignments",
    "diff": "first second dialect",
    "port": "source to out folder plugins dialect overrides assignments environment assume map_data force",
}
"""The public functions and their arguments: one that goes or is renamed breaks programs of users."""


def test_the_surface_is_what_it_was() -> None:
    assert sorted(SURFACE) == sorted(set(rlctl.__all__) - {"__version__"})
    for name, arguments in SURFACE.items():
        signature = inspect.signature(getattr(rlctl, name))
        assert list(signature.parameters) == arguments.split(), name
        assert "" not in (
            str(signature.return_annotation),
            *(str(each.annotation) for each in signature.parameters.values()),
        )


def test_a_run_is_ported(tmp_path: Path) -> None:
    runs.write(tmp_path)
    ported = rlctl.port(tmp_path / "run.sh", "roll", tmp_path / "out", folder=tmp_path)
    assert (ported.moved.written, ported.folder) == (10, tmp_path / "out")
    assert json.loads(json.dumps(ported.as_data(), default=str))["rows"]["splits"] == {"train": 5, "test": 5}
    with pytest.raises(UsageError, match="is not empty"):
        rlctl.port(tmp_path / "run.sh", "roll", tmp_path / "out", folder=tmp_path)
