"""Trinity's task pipeline in both directions: Data-Juicer's operators, priorities and their defaults."""

from __future__ import annotations

from typing import Any

import yaml

from rlctl.config import to_plain
from rlctl.documents import read_yaml
from rlctl.translation.translate import convert, read_document

from .test_trinity import PLAIN

PIPELINE: dict[str, Any] = {
    "inputs": ["raw.jsonl"],
    "target_fields": ["question"],
    "operators": [
        {"name": "text_length_filter", "args": {"min_len": 5, "max_len": 900}},
        {"name": "document_deduplicator", "args": {"lowercase": True}},
        {"name": "character_repetition_filter", "args": {"rep_len": 8, "max_ratio": 0.4}},
        {"name": "alphanumeric_filter", "args": {"text_key": "answer"}},
        {"name": "llm_quality_score_filter", "args": {"api_or_hf_model": "m", "min_score": 0.5}},
    ],
    "priority_weights": {"difficulty": -0.5, "quality": 2.0},
    "top_k": 100,
}


def file_with(pipeline: dict[str, Any]) -> str:
    return yaml.safe_dump({**PLAIN, "data_processor": {"task_pipeline": pipeline}})


def read(pipeline: dict[str, Any]) -> dict[str, Any]:
    loaded, report = read_document(read_yaml(file_with(pipeline), "run.yaml"), dialect="trinity@0.6", environment={})
    assert loaded is not None
    assert [(entry.key, entry.note) for entry in report.accounting if entry.loses] == []
    return dict(to_plain(loaded.config)["data"])


def test_operators_priorities_and_files_are_read() -> None:
    data = read(PIPELINE)
    assert data["operators"] == [
        {"type": "length", "column": "question", "min": 5, "max": 900, "unit": "characters"},
        {"type": "duplicates", "column": "question", "lowercase": True, "ignore_non_character": False},
        {"type": "repetition", "column": "question", "rep_len": 8, "min_ratio": 0.0, "max_ratio": 0.4},
        {"type": "alphanumeric", "column": "answer", "min_ratio": 0.25, "max_ratio": None},
        {
            "type": "external",
            "column": "question",
            "kind": "llm_quality_score_filter",
            "args": {"api_or_hf_model": "m", "min_score": 0.5},
        },
    ]
    assert data["operators_input"] == ["raw.jsonl"]
    weights = {"difficulty": -0.5, "diversity": 0.0, "usage_frequency": 0.0, "quality": 2.0}
    assert data["priority"] == {"weights": weights, "keep": 100}


def test_a_file_of_data_juicers_replaces_the_operators() -> None:
    pipeline = {**PIPELINE, "config_path": "dj.yaml"}
    data = read(pipeline)
    assert data["operators"] == [
        {"type": "external", "column": None, "kind": "data_juicer", "args": {"config_path": "dj.yaml"}}
    ]
    assert data["operators_input"] in ([], None)
    result = convert(file_with(pipeline), "trinity@0.6", dialect="trinity@0.6", environment={})
    written = yaml.safe_load(result.text or "")["data_processor"]["task_pipeline"]
    assert written["config_path"] == "dj.yaml"
    assert "operators" not in written


def test_an_unknown_order_of_rows_is_no_order() -> None:
    text = yaml.safe_dump(PLAIN)
    selector = ["buffer.explorer_input.taskset.data_selector.selector_type=mine"]
    loaded, report = read_document(
        read_yaml(text, "run.yaml"), dialect="trinity@0.6", environment={}, overrides=selector
    )
    assert loaded is None
    assert ["'mine'; expected one of sequential, shuffle" in finding.message for finding in report.errors] == [True]


def test_defaults_are_data_juicers_and_trinitys() -> None:
    names = ("text_length_filter", "document_deduplicator", "character_repetition_filter", "alphanumeric_filter")
    data = read({"operators": [{"name": name} for name in names]})
    assert [(item["type"], item.get("min"), item.get("max")) for item in data["operators"][:1]] == [
        ("length", 10, None)
    ]
    assert (data["operators"][2]["rep_len"], data["operators"][2]["max_ratio"]) == (10, 0.5)
    weights = {"difficulty": -0.7, "diversity": 0.0, "usage_frequency": -0.5, "quality": 1.0}
    assert data["priority"] == {"weights": weights, "keep": None}
    assert read({})["operators"] == []


def test_an_argument_that_rlctl_does_not_have_keeps_the_operator_as_it_is() -> None:
    [operator] = read({"operators": [{"name": "alphanumeric_filter", "args": {"tokenization": True}}]})["operators"]
    assert (operator["type"], operator["kind"], operator["args"]) == (
        "external",
        "alphanumeric_filter",
        {"tokenization": True},
    )


def test_a_pipeline_survives_a_round_trip() -> None:
    result = convert(file_with(PIPELINE), "trinity@0.6", dialect="trinity@0.6", environment={})
    assert result.text is not None
    found = yaml.safe_load(result.text)["data_processor"]["task_pipeline"]
    assert read(found) == read(PIPELINE)
    assert [item["name"] for item in found["operators"]] == [item["name"] for item in PIPELINE["operators"]]


def lost(inputs: list[str]) -> dict[str, str]:
    """What is lost on the way to Trinity, and why."""
    canonical = {
        "rlctl": 1,
        "model": {"path": "org/model"},
        "data": {
            "train": [{"path": "a.parquet"}],
            "operators": [{"type": "language", "scripts": ["latin"]}, {"type": "length", "min": 3}],
            "operators_input": inputs,
            "priority": {"weights": {"diversity": 0.5}},
        },
    }
    result = convert(yaml.safe_dump(canonical), "trinity@0.6", environment={})
    return {entry.key: entry.note for entry in result.report.accounting if entry.loses}


def test_what_trinity_lacks_is_told() -> None:
    found = lost(["raw.jsonl"])
    assert "has no equal of language" in found["data.operators[0].scripts"]
    assert "never computes the diversity" in found["data.priority.weights.diversity"]
    assert "data.operators[1].min" not in found
    assert "set data.operators_input" in lost([])["data.operators[1].min"]
