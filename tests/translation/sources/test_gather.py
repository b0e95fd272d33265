"""What people give becomes one document: composed files, what Hydra left, lists of overrides, standard input."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from rlctl.common.errors import DocumentError, Location, UsageError
from rlctl.shell.override_lists import looks_like_overrides, read_override_list
from rlctl.translation import translate
from rlctl.translation.sources import Script, gather, is_script

VERL = "data:\n  train_files: a.parquet\n  train_batch_size: 64\ntrainer:\n  nnodes: 2\n"


def stdin(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_verls_own_config_in_a_defaults_list_is_verls_defaults(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        f"hydra:\n  searchpath:\n    - pkg://verl.trainer.config\ndefaults:\n  - ppo_trainer\n  - _self_\n{VERL}"
    )
    given = gather(file)
    assert given.dialect == "verl"
    assert given.kind == "ppo"
    assert [(note.code, note.at.line if note.at else 0) for note in given.findings] == [("shipped-config", 5)]
    loaded, report = translate.read(file)
    assert loaded is not None
    assert loaded.config.batch.prompts_per_step == 64
    assert "ppo_trainer" in report.reason


def test_a_choice_in_a_defaults_list_is_an_override(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"defaults:\n  - ppo_trainer\n  - override model_engine: megatron\n  - _self_\n{VERL}")
    loaded, report = translate.read(file)
    assert loaded is not None
    assert loaded.config.train.engine.choice == "megatron"
    assert next(entry.at for entry in report.accounting if entry.key == "model_engine") == Location(str(file), 3, 5)


def test_a_config_that_implies_a_choice_makes_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"defaults:\n  - ppo_megatron_trainer\n  - _self_\n{VERL}")
    loaded, _ = translate.read(file)
    assert loaded is not None
    assert loaded.config.train.engine.choice == "megatron"


@pytest.mark.parametrize("entry", ["nowhere", "ppo_trainer\n  - nowhere", "model: nowhere"])
def test_what_no_file_and_no_dialect_has_is_refused_at_its_line(tmp_path: Path, entry: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"defaults:\n  - {entry}\n{VERL}")
    with pytest.raises(DocumentError, match="nowhere") as caught:
        gather(file)
    assert caught.value.at is not None
    assert caught.value.at.line == (3 if "\n" in entry else 2)
    assert str(tmp_path) in caught.value.hint


def test_a_missing_file_is_not_taken_for_verls_because_another_entry_is(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"defaults:\n  - ppo_trainer\n  - ../config/envs@_here_\n{VERL}")
    with pytest.raises(DocumentError, match="envs"):
        gather(file)


# What Hydra left


def hydra_folder(folder: Path, overrides: str | None) -> Path:
    inside = folder / ".hydra"
    inside.mkdir()
    (inside / "config.yaml").write_text(
        "data:\n  train_files: a.parquet\n  train_batch_size: 1024\n  seed: 7\ntrainer:\n  nnodes: 1\n  total_epochs: 30\n"
        "actor_rollout_ref:\n  rollout:\n    n: 1\n"
    )
    if overrides is not None:
        (inside / "overrides.yaml").write_text(overrides)
    return inside


@pytest.mark.parametrize("named", ["folder", "file"])
def test_the_overrides_beside_a_composed_config_say_what_was_written(tmp_path: Path, named: str) -> None:
    inside = hydra_folder(tmp_path, "- data.train_files=a.parquet\n- data.train_batch_size=1024\n- '+data.seed=7'\n")
    loaded, report = translate.read(inside if named == "folder" else inside / "config.yaml", dialect="verl")
    assert loaded is not None
    written = {source.key: source for source in loaded.sources.values() if source.kind != "dialect_default"}
    assert written["data.train_batch_size"].at == Location(str(inside / "overrides.yaml"), 2)
    assert "trainer.nnodes" not in written
    assert "actor_rollout_ref.rollout.n" not in written
    assert [finding.code for finding in report.findings if finding.code == "composed-config"] == ["composed-config"]


def test_without_overrides_beside_it_everything_was_written(tmp_path: Path) -> None:
    loaded, _ = translate.read(hydra_folder(tmp_path, None) / "config.yaml", dialect="verl")
    assert loaded is not None
    assert {"trainer.nnodes", "data.train_batch_size"} <= {
        source.key for source in loaded.sources.values() if source.kind != "dialect_default"
    }


def test_overrides_that_hydra_left_are_a_source_of_their_own(tmp_path: Path) -> None:
    inside = hydra_folder(tmp_path, "- data.train_batch_size=1024\n- trainer.nnodes=3\n")
    loaded, _ = translate.read(inside / "overrides.yaml", dialect="verl")
    assert loaded is not None
    assert loaded.config.placement.nodes == 3


# Lists of overrides

LISTS = {
    "one a line": "a.b=1\n\n# why\n+c.d='x y'\n~e.f\ng=[1, 2]\n",
    "as hydra leaves them": "- a.b=1\n# why\n- +c.d='x y'\n- ~e.f\n- g=[1, 2]\n",
    "as hydra leaves them, quoted": "---\n- 'a.b=1'\n- \"+c.d='x y'\"\n- ~e.f\n- g=[1, 2]\n",
    "as hydra leaves long ones": "- a.b=1\n- +c.d='x\n  y'\n- ~e.f\n- g=[1, 2]\n",
    "pasted from a command line": "a.b=1 +c.d=\"'x y'\" \\\n  ~e.f \\\n  g='[1, 2]' \\\n",
}


@pytest.mark.parametrize("case", LISTS, ids=str)
def test_a_list_of_overrides_is_read(case: str) -> None:
    text = LISTS[case]
    assert looks_like_overrides(text, yaml="hydra" in case)
    assert not is_script(text, "list.txt")
    found = read_override_list(text, "list.txt")
    assert [(item.kind, item.key, item.value) for item in found] == [
        ("set", "a.b", 1),
        ("add", "c.d", "x y"),
        ("delete", "e.f", None),
        ("set", "g", [1, 2]),
    ]
    lines = text.splitlines()
    assert all(item.key in lines[item.at.line - 1] for item in found)


def test_a_list_of_overrides_may_name_what_it_starts_from(tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    file.write_text(
        "--config-path=config\n--config-name=ppo_megatron_trainer.yaml\ntrainer.nnodes=2\ndata.train_files=~/x\n"
    )
    loaded, report = translate.read(file)
    assert loaded is not None
    assert loaded.config.train.engine.choice == "megatron"
    assert "ppo_megatron_trainer" in report.reason
    file.write_text("--config-name=nowhere\ntrainer.nnodes=2\n")
    with pytest.raises(DocumentError, match="nowhere"):
        gather(file)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "nowhere.yaml").write_text(VERL)
    file.write_text("--config-path=conf\n--config-name=nowhere\ntrainer.nnodes=3\n")
    loaded, _ = translate.read(file)
    assert loaded is not None
    assert (loaded.config.placement.nodes, loaded.config.batch.prompts_per_step) == (3, 64)


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\n",
        "a:\n  - b=1\n",
        "- {a: 1}\n",
        "N=4\npython3 -m m a.b=$N\n",
        "export A=1\n",
        "",
        "# a.b=1\n",
        "a.b\n",
        "A=1\nB=2\n",
    ],
)
def test_what_is_no_list_of_overrides(text: str) -> None:
    assert not looks_like_overrides(text, yaml=False)


@pytest.mark.parametrize(
    ("text", "name", "script"),
    [
        ("a: 1", "x.yaml", False),
        ("a: 1", "<stdin>", False),
        ("# run: python\na: 1", "<stdin>", False),
        ("'a b': 1", "<stdin>", False),
        ("{a: 1}", "<stdin>", False),
        ("python3 -m m a.b=1", "<stdin>", True),
        ("N=1\npython3 -m m a.b=1", "<stdin>", True),
        ("#!/bin/bash\na", "<stdin>", True),
        ("#!/usr/bin/env bash\na", "x.yaml", True),
        ("set -x", "run", True),
        ("a: 1", "x.sh", True),
    ],
)
def test_a_script_is_known_by_its_ending_its_first_line_or_what_is_in_it(text: str, name: str, script: bool) -> None:
    assert is_script(text, name) is script


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        (VERL, 2),
        ("trainer.nnodes=2\ndata.train_files=x\n", 2),
        ("- trainer.nnodes=2\n- data.train_files=x\n", 2),
        ("N=2\npython3 -m verl.trainer.main_ppo trainer.nnodes=$N data.train_files=x\n", 2),
    ],
)
def test_standard_input_may_be_any_of_them(text: str, nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin(monkeypatch, text)
    loaded, report = translate.read("-")
    assert loaded is not None
    assert loaded.config.placement.nodes == nodes
    assert report.dialect.startswith("verl@")
    assert "verl" in report.reason
    assert {entry.at.file for entry in report.accounting if entry.at} == {"<stdin>"}


@pytest.mark.parametrize("how", [Script(traced=True), Script(variables={"A": "1"})])
def test_what_only_a_script_takes_is_refused_for_others(how: Script, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(VERL)
    with pytest.raises(UsageError, match="launch script"):
        gather(file, how)
