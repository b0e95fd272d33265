"""Presets can be listed, printed and written from the command line, as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlctl.config.presets import names, text


def test_they_are_listed_with_what_they_are_for(rlctl: Any) -> None:
    listed = json.loads(rlctl("presets", "list", "--json").out)
    assert [preset["name"] for preset in listed] == [preset.name for preset in names()]
    shown = " ".join(rlctl("presets", "list").out.split())
    assert all(preset.name in shown and preset.title in shown for preset in names())
    assert "rlctl[megatron]" in shown, "brackets are text"


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
