"""Trinity's experience operators in both directions: every operator of 0.6.0 with its arguments and their defaults."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rlctl.config import to_plain
from rlctl.documents import read_yaml
from rlctl.translation.translate import convert, read_document

from .test_trinity import PLAIN

PIPELINE = [
    {"name": "invalid_reward_filter"},
    {"name": "reward_filter", "args": {"threshold": 0.5}},
    {"name": "reward_std_filter", "args": {"threshold": 0.1}},
    {"name": "dapo_dynamic_sampling", "args": {"metric_key": "right", "correct_threshold": 0.5}},
    {
        "name": "reward_shaping_mapper",
        "args": {"reward_shaping_configs": [{"stats_key": "llm_quality_score", "op_type": "MUL", "weight": 2.0}]},
    },
    {"name": "pass_rate_calculator"},
    {"name": "my_plugin", "args": {"depth": {"a": 1}}},
]


def file_with(operators: list[dict[str, Any]]) -> str:
    return yaml.safe_dump({**PLAIN, "data_processor": {"experience_pipeline": {"operators": operators}}})


def read(operators: list[dict[str, Any]]) -> dict[str, Any]:
    loaded, report = read_document(read_yaml(file_with(operators), "run.yaml"), dialect="trinity@0.6", environment={})
    assert loaded is not None
    assert [entry.key for entry in report.accounting if entry.loses] == []
    return dict(to_plain(loaded.config)["algorithm"])


def written(operators: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What Trinity's file becomes when it is read and written again."""
    result = convert(file_with(operators), "trinity@0.6", dialect="trinity@0.6", environment={})
    assert result.text is not None
    found = yaml.safe_load(result.text)["data_processor"]["experience_pipeline"]["operators"]
    return list(found)


def test_every_operator_is_read() -> None:
    assert read(PIPELINE)["experience_operators"] == [
        {"type": "invalid_reward_filter", "refill": False},
        {"type": "reward_filter", "threshold": 0.5, "refill": False},
        {"type": "reward_std_filter", "threshold": 0.1, "refill": False},
        {"type": "dapo_dynamic_sampling", "metric": "right", "correct_threshold": 0.5, "refill": False},
        {
            "type": "reward_shaping_mapper",
            "reward_shaping_configs": [{"stats_key": "llm_quality_score", "op_type": "MUL", "weight": 2.0}],
        },
        {"type": "pass_rate_calculator"},
        {"type": "external", "kind": "my_plugin", "args": {"depth": {"a": 1}}},
    ]


def test_defaults_are_trinitys() -> None:
    names = ("reward_filter", "reward_std_filter", "dapo_dynamic_sampling", "reward_shaping_mapper")
    assert read([{"name": name} for name in names])["experience_operators"] == [
        {"type": "reward_filter", "threshold": 0.0, "refill": False},
        {"type": "reward_std_filter", "threshold": 0.0, "refill": False},
        {"type": "dapo_dynamic_sampling", "metric": "accuracy", "correct_threshold": 0.0, "refill": False},
        {"type": "reward_shaping_mapper", "reward_shaping_configs": []},
    ]


def test_masking_of_cut_responses_is_the_filter_that_runs_have() -> None:
    found = read([{"name": "mask_response_truncated"}, {"name": "reward_filter"}])
    assert [item["type"] for item in found["filters"]] == ["overlong"]
    assert [item["type"] for item in found["experience_operators"]] == ["reward_filter"]


def test_operators_survive_a_round_trip() -> None:
    operators = written([*PIPELINE, {"name": "mask_response_truncated"}])
    assert [item["name"] for item in operators] == [item["name"] for item in PIPELINE] + ["mask_response_truncated"]
    given = {item["name"]: item.get("args", {}) for item in PIPELINE}
    assert {item["name"]: item.get("args", {}) for item in operators[:-1]} == given


@pytest.mark.parametrize("dialect", ["verl", "roll"])
def test_other_frameworks_say_what_they_lose(dialect: str) -> None:
    result = convert(file_with(PIPELINE[:2]), dialect, dialect="trinity@0.6", environment={})
    lost = [entry.note for entry in result.report.accounting if "experience_pipeline" in entry.key and entry.loses]
    assert lost
    assert all("has no experience operators" in note for note in lost)
