"""Presets can be listed, printed and written from the command line, as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlctl.config.presets import names, published, text


def test_they_are_listed_with_what_they_are_for(rlctl: Any) -> None:
    listed = json.loads(rlctl("presets", "list", "--json").out)
    assert [preset["name"] for preset in listed] == [preset.name for preset in (*published(), *names())]
    shown = " ".join(rlctl("presets", "list").out.split())
    assert all(preset.name in shown and preset.title in shown for preset in names())
    assert all(run.name in shown and run.result in shown and run.cited in shown for run in published())
    assert "rlctl[megatron]" in shown, "brackets are text"


def test_the_list_is_filtered_by_words_of_a_preset(rlctl: Any) -> None:
    listed = json.loads(rlctl("presets", "list", "DAPO", "32b", "--json").out)
    assert {"dapo-qwen2.5-32b", "dapo-32b-4node"} <= {preset["name"] for preset in listed}
    assert all("dapo" in json.dumps(preset).lower() for preset in listed)
    none = rlctl("presets", "list", "no-such-word")
    assert (none.code, none.out) == (0, "")
    assert "no preset contains no-such-word" in none.err


def test_a_published_run_is_written_and_converted(rlctl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert rlctl("presets", "write", "simplerl-zoo-qwen2.5-7b").code == 0
    assert rlctl("convert", "simplerl-zoo-qwen2.5-7b.yaml", "--to", "verl", "-o", "run.sh").code == 3
    assert "ppo_mini_batch_size=256" in (tmp_path / "run.sh").read_text()


def test_one_is_printed_and_written_as_it_is(rlctl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = names()[0].name
    assert rlctl("presets", "show", name).out == text(name)
    assert rlctl("presets", "write", name).code == 0
    assert (tmp_path / f"{name}.yaml").read_text() == text(name)
    assert rlctl("presets", "write", name).code == 1
    assert rlctl("presets", "write", name, "-o", "other.yaml").code == 0
    assert rlctl("check", "other.yaml").code in (0, 1, 3)


@pytest.mark.parametrize("command", ["show", "write"])
def test_an_unknown_one_names_the_others(rlctl: Any, command: str) -> None:
    shown = rlctl("presets", command, "no-such-preset")
    assert shown.code == 2
    assert names()[0].name in shown.err
