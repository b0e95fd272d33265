"""Files, rows of images and classes that verl refuses, each on a run that is otherwise accepted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import yaml

from rlctl.adapters import dialect
from rlctl.adapters.engine.requirements import refused, requirements_of
from rlctl.documents import read_yaml
from tests.adapters.refused import MEGATRON, VERL, tree

ROLLOUT, MODEL = "actor_rollout_ref.rollout", "actor_rollout_ref.model"


def _told(changes: dict[str, Any], kind: str = "ppo") -> list[str]:
    requirements = requirements_of("verl")
    assert requirements is not None
    text = yaml.safe_dump(tree({**VERL, **changes}) if kind == "ppo" else tree(changes))
    found = refused(
        requirements, dialect("verl"), read_yaml(text, "run.yaml"), release="0.9", environment={}, kind=kind
    )
    return [message for _, message in found]


def _about(told: list[str], words: str) -> bool:
    return any(words in message for message in told)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("adapter_config.json", '{"r": 8}', ""),
        ("adapter_config.json", '{"lora_alpha": 8}', "states no rank r"),
        ("adapter_config.json", "{", "states no rank r"),
        ("adapter_model.safetensors", "", "has no adapter_config.json"),
    ],
)
def test_a_folder_of_an_adapter_states_its_rank(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    told = _told({f"{MODEL}.lora_adapter_path": str(tmp_path), f"{MODEL}.lora_rank": 8})
    assert _about(told, words) if words else not _about(told, "adapter")


def test_an_adapter_that_is_not_here() -> None:
    assert _about(_told({f"{MODEL}.lora_adapter_path": "/none/adapter"}), "which is not on this machine")
    assert not _about(_told({f"{MODEL}.lora_adapter_path": "org/adapter"}), "adapter")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"architectures": ["A"]}, ""),
        ({"architectures": ["A", "B"]}, "names 2 architectures"),
        ({}, ""),
        ({"architectures": ["A"], "auto_map": {"AutoConfig": "c.C"}}, "has no max_position_embeddings"),
    ],
)
def test_a_model_has_one_architecture(tmp_path: Path, config: dict[str, Any], words: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    told = _told({f"{MODEL}.path": str(tmp_path)})
    assert _about(told, words) if words else not _about(told, "architectures")


TOOL = "@function_tool\ndef search(query: str): ...\n"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (TOOL, ""),
        (TOOL + TOOL, "registers the tool search a second time"),
        (TOOL + '@function_tool("search")\ndef other(query: str): ...\n', "registers the tool search a second time"),
        ("@function_tool\ndef search(**kwargs): ...\n", "takes *args or **kwargs"),
        ("@function_tool(schema=SCHEMA)\ndef search(**kwargs): ...\n", ""),
        ("def search(**kwargs): ...\n", ""),
    ],
)
def test_functions_that_are_tools(tmp_path: Path, code: str, words: str) -> None:
    file = tmp_path / "tools.py"
    file.write_text(code)
    told = _told({f"{ROLLOUT}.multi_turn.function_tool_path": str(file)})
    assert _about(told, words) if words else not _about(told, str(file))
    assert _about(_told({f"{ROLLOUT}.multi_turn.function_tool_path": f"{file}x"}), "is not on this machine")


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        (
            f"{ROLLOUT}.multi_turn.tool_config_path",
            "tools: [{class_name: a.B, config: {type: mcp}}]",
            "a tool of type mcp",
        ),
        (f"{ROLLOUT}.multi_turn.tool_config_path", "tools: [{class_name: a.B, config: {type: native}}]", ""),
        (f"{ROLLOUT}.router_config_path", "defaults: [a]", "has a section defaults"),
        (f"{ROLLOUT}.router_config_path", "size: 1", "has no router_class"),
        (f"{ROLLOUT}.router_config_path", "router_class: Router", "is not a class path"),
        (f"{ROLLOUT}.router_config_path", "router_class: uni_agent.Router", ""),
        (
            "actor_rollout_ref.actor.fsdp_config.qat.quantization_config_path",
            "quant_method: awq",
            "has quant_method awq",
        ),
    ],
)
def test_files_of_tools_routers_and_quantization(tmp_path: Path, key: str, text: str, words: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    told = _told({key: str(file), "actor_rollout_ref.actor.fsdp_config.qat.enable": True})
    assert _about(told, words) if words else not _about(told, str(file))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("actor/dist_ckpt/a", "has the folder dist_ckpt of older releases"),
        ("actor/adapter_checkpoint/a", "as older releases wrote adapters"),
        ("actor/model/huggingface/adapter/adapter_config.json", "has an exported adapter only"),
        ("actor/model/dist_ckpt/a", ""),
    ],
)
def test_a_checkpoint_of_megatron_has_the_new_layout(tmp_path: Path, name: str, words: str) -> None:
    file = tmp_path / "global_step_4" / name
    file.parent.mkdir(parents=True)
    file.touch()
    resumed = {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": str(tmp_path / "global_step_4")}
    told = _told({**MEGATRON, **resumed, f"{MODEL}.lora.rank": 8})
    assert _about(told, words) if words else not _about(told, "cannot continue")


def test_stages_of_the_precision_debugger() -> None:
    section = "global_profiler.global_tool_config.precision_debugger"
    given = {"global_profiler.tool": "precision_debugger", f"{section}.stages": ["actor_update", "train"]}
    assert _about(_told({**given, f"{section}.strict": True}), "names train, which verl does not have")
    assert not _about(_told(given), "names train")


def test_classes_of_data_and_loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("class Rows: ...\nclass Good(Dataset): ...\n")
    for name, is_told in (("Rows", True), ("Good", False)):
        told = _told({"data.custom_cls.path": "mine.py", "data.custom_cls.name": name})
        assert _about(told, "has no base class") is is_told
    for name, is_told in (("mine.Loop", True), ("mine.Good", False), ("Loop", True), ("other.Loop", False)):
        told = _told({f"{ROLLOUT}.agent.agent_loop_manager_class": name})
        assert _about(told, "verl cannot import") is is_told


def _message(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


IMAGE = {"bytes": b"x", "path": "a.png"}
VIDEO = {"video": "a.mp4"}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"prompt": _message("<video> 1?"), "videos": [VIDEO]}, ""),
        ({"prompt": _message("1?"), "videos": [VIDEO]}, "has <video> 0 times, and 1 of these"),
        ({"prompt": _message("<audio><audio>"), "audios": ["a.wav"]}, "has <audio> 2 times"),
        ({"prompt": _message("1?"), "videos": []}, ""),
        ({"prompt": _message("<image>"), "images": [4]}, "has int in the column that data.image_key names"),
        ({"prompt": _message("<video>"), "videos": [4]}, "has int in the column that data.video_key names"),
    ],
)
@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_places_of_videos_and_audio_in_prompts(tmp_path: Path, row: dict[str, Any], words: str, ending: str) -> None:
    file = tmp_path / f"train.{ending}"
    if ending == "parquet":
        parquet.write_table(pa.Table.from_pylist([row] * 3), file)
    else:
        file.write_text("\n".join(json.dumps(row, default=str) for _ in range(3)))
    told = _told({"data.train_files": str(file)})
    assert _about(told, words) if words else not _about(told, "row 1 of")


def test_videos_of_supervised_rows(tmp_path: Path) -> None:
    file = tmp_path / "train.parquet"
    for row, words in (
        ({"messages": _message("<video>"), "videos": [{"path": "a.mp4"}]}, "is not a mapping with the key video"),
        ({"messages": _message("1?"), "images": [IMAGE]}, "has <image> 0 times"),
        ({"messages": _message("<image>"), "images": [IMAGE]}, ""),
    ):
        parquet.write_table(pa.Table.from_pylist([row] * 3), file)
        told = _told({"data.train_files": str(file), "data.messages_key": "messages"}, kind="sft_engine")
        assert _about(told, words) if words else not _about(told, "row 1 of")


def test_rows_name_one_of_several_teachers(tmp_path: Path) -> None:
    file = tmp_path / "train.parquet"
    parquet.write_table(pa.Table.from_pylist([{"data_source": "math", "prompt": _message("1?")}] * 3), file)
    teachers = "distillation.teacher_models"
    given = {"data.train_files": str(file), "distillation.enabled": True, f"{teachers}.a.key": "code"}
    assert _about(_told({**given, f"{teachers}.b.key": "text"}), "names none of the teachers code, text")
    assert not _about(_told({**given, f"{teachers}.b.key": "math"}), "names none of the teachers")
