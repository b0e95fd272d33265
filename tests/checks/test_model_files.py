"""A local model folder that cannot be loaded is found before anything is started."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from rlctl.checks import LEVELS, RULES_OF_FILES, check
from rlctl.checks.model_files import POINTER, fault_of
from rlctl.config import config_from


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    for number in (1, 2):
        save_file({f"w{number}": torch.zeros(64)}, folder / f"model-{number}.safetensors", metadata={"format": "pt"})
    index = {"weight_map": {"w1": "model-1.safetensors", "w2": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def no_weights(folder: Path) -> None:
    for file in folder.glob("model*"):
        file.unlink()


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "its config.json is missing"),
    "broken config": (lambda folder: (folder / "config.json").write_text('{"a": '), "config.json is not JSON"),
    "another config": (lambda folder: (folder / "config.json").write_text("[]"), "is not a JSON object"),
    "no weights": (no_weights, "it has no weights"),
    "no part": (lambda folder: (folder / "model-2.safetensors").unlink(), "it lacks model-2.safetensors"),
    "broken index": (lambda folder: (folder / "model.safetensors.index.json").write_text("3"), "cannot be read"),
    "pointer": (
        lambda folder: (folder / "model-2.safetensors").write_bytes(POINTER + b"v1\noid sha256:4d7a\nsize 12345\n"),
        "model-2.safetensors is a Git LFS pointer",
    ),
    "pointer to a tokenizer": (lambda folder: (folder / "tokenizer.json").write_bytes(POINTER), "tokenizer.json is a"),
    "cut off": (
        lambda folder: (folder / "model-1.safetensors").write_bytes((folder / "model-1.safetensors").read_bytes()[:-1]),
        "model-1.safetensors is cut off",
    ),
    "empty": (lambda folder: (folder / "model-1.safetensors").write_bytes(b""), "model-1.safetensors is cut off"),
    "no safetensors": (lambda folder: (folder / "model-1.safetensors").write_bytes(b"\xff" * 99), "cut off or damaged"),
}


def test_a_whole_folder_has_no_fault(model: Path) -> None:
    assert fault_of(model) == ""


@pytest.mark.parametrize("how", DAMAGE)
def test_what_is_wrong_with_a_folder_is_said_with_its_key(model: Path, how: str) -> None:
    damage, message = DAMAGE[how]
    damage(model)
    for section in ({"model": {"path": str(model)}}, {"rewards": [{"type": "model", "path": str(model)}]}):
        found = [item for item in check(config_from(section), more=RULES_OF_FILES) if item.code == "model-files"]
        (finding,) = found
        assert message in finding.message
        assert finding.level is LEVELS["model-files"]
        assert str(finding.key) in finding.hint


def test_a_tokenizer_is_there_with_a_template_where_prompts_need_one(model: Path) -> None:
    def found(runner: str = "rlctl", **sections: object) -> list[str]:
        config = config_from({"model": {"path": str(model), **sections.pop("model", {})}, **sections})  # type: ignore[dict-item]
        codes = check(config, more=RULES_OF_FILES, runner=runner)
        return [item.id for item in codes if item.code == "model-tokenizer"]

    assert found() == ["model-tokenizer"]
    (model / "tokenizer.json").write_text("{}")
    (model / "tokenizer_config.json").write_text("{}")
    assert [found(runner) for runner in ("verl", "trinity")] == [["model-tokenizer_template"]] * 2
    assert [found(runner) for runner in ("roll", "rlctl")] == [[], []]
    assert found("verl", model={"chat_template": "{{ messages }}"}) == []
    for kind, runner, missing in (("raw", "verl", 0), ("raw", "rlctl", 0), ("messages", "rlctl", 1)):
        data = {"train": [{"path": "a.jsonl", "prompt_type": kind}]}
        assert len(found(runner, data=data)) == missing
    (model / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    assert found("verl") == []
    (model / "tokenizer_config.json").write_text("{}")
    (model / "chat_template.jinja").touch()
    assert found("verl") == []
