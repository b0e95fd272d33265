"""The JSON Schema says what ``build_config`` accepts: a file that one takes the other takes, and unknown keys pass neither."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from rlctl.config import Config, build_config, to_file, to_plain
from rlctl.config.fields import OTHER, Choice
from rlctl.config.inspect import fields_of, sections_in, walk
from rlctl.config.schema import json_schema
from rlctl.documents import read_yaml

ROOT = Path(__file__).parents[2]
SCHEMA = json_schema()
PUBLISHED = ROOT / "docs" / "reference" / "rlctl.schema.json"
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
FILES = [
    path
    for folder in ("presets", "tests/translation/golden")
    for path in sorted((ROOT / folder).rglob("*.yaml"))
    if path.read_text(errors="replace").startswith("rlctl:") or "\nrlctl:" in path.read_text(errors="replace")
]


def errors(values: dict[str, Any]) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(values)]


def both_accept(values: dict[str, Any]) -> bool:
    """Whether both accept it; they must agree."""
    _, findings = build_config(values)
    assert bool(findings) == bool(errors(values)), (values, findings, errors(values))
    return not findings


def test_it_is_a_schema_of_its_draft() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"].endswith("2020-12/schema")


def test_the_published_schema_is_this_one() -> None:
    assert json.loads(PUBLISHED.read_text(encoding="utf-8")) == SCHEMA, "make docs"
    assert SCHEMA["$id"].endswith(str(PUBLISHED.relative_to(ROOT)))


@pytest.mark.parametrize("path", sorted((ROOT / "presets").glob("*.yaml")), ids=lambda path: path.stem)
def test_editors_find_the_schema_of_a_preset(path: Path) -> None:
    """By yaml-language-server's comment, which may be any comment line."""
    found = re.findall(r"^#\s+yaml-language-server\s*:\s*\$schema=(\S+)$", path.read_text(), re.MULTILINE)
    assert found == [SCHEMA["$id"]]


def test_the_defaults_validate_whole_and_as_a_file() -> None:
    assert errors(to_plain(Config())) == []
    assert errors(to_file(Config())) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_shipped_canonical_files_validate(path: Path) -> None:
    assert errors(read_yaml(path.read_text(), str(path)).values) == []


def _put(cls: type, pattern: str, value: Any) -> dict[str, Any]:
    """A section that holds ``value`` at a key pattern below it: choices named, lists and mappings with one item."""
    head, _, rest = pattern.partition(".")
    match = re.fullmatch(r"(\w+)(\[\]|\{\})?(?:<(\w+)>)?", head)
    assert match is not None
    if not rest:
        return {match[1]: value}
    (held, _), *_ = sections_in(fields_of(cls)[match[1]].type)
    inside: Any = {}
    if match[3]:
        assert issubclass(held, Choice)
        name = held.further[0] if match[3] == OTHER and held.further else match[3]
        inside, held = {held.tag: name}, held.registry[match[3]]
    required = {name: "x" for name, info in fields_of(held).items() if info.required}
    inside |= required | _put(held, rest, value)
    wrapped = {"[]": [inside], "{}": {"some": inside}}
    return {match[1]: wrapped.get(match[2] or "", inside)}


SECTIONS = sorted({key.pattern.rsplit(".", 1)[0] for key in walk(Config) if "." in key.pattern})


@pytest.mark.parametrize("prefix", SECTIONS)
def test_an_unknown_key_in_any_section_passes_neither(prefix: str) -> None:
    values = _put(Config, f"{prefix}.no_such_key", 1)
    _, findings = build_config(values)
    assert any(finding.code == "unknown-key" for finding in findings), findings
    assert errors(values)


@pytest.mark.parametrize(
    ("values", "accepted"),
    [
        ({"batch": {"prompts_per_step": 1}}, True),
        ({"batch": {"prompts_per_step": 0}}, False),
        ({"batch": {"prompts_per_step": "8"}}, False),
        ({"batch": {"prompts_per_step": True}}, False),
        ({"batch": None}, False),
        ({"critic": None}, True),
        ({"train": {"optimizer": {"lr": 1}}}, True),
        ({"train": {"optimizer": {"lr": "1e-6"}}}, False),
        ({"train": {"optimizer": {"betas": [0.9, 0.99]}}}, True),
        ({"train": {"optimizer": {"betas": [0.9]}}}, False),
        ({"data": {"overlong_prompts": "drop"}}, True),
        ({"data": {"overlong_prompts": "dropp"}}, False),
        ({"algorithm": {"advantage": "rloo"}}, True),
        ({"algorithm": {"advantage": "rlo"}}, False),
        ({"algorithm": {"advantage": "other"}}, False),
        ({"algorithm": {"advantage": {"type": "gdpo", "args": {"a": 1}}}}, True),
        ({"algorithm": {"advantage": {"type": "verl.mine", "args": {"a": 1}}}}, True),
        ({"algorithm": {"advantage": {"type": "gdpo", "normalize_by_std": True}}}, False),
        ({"train": {"engine": "fsdp"}}, False),
        ({"train": {"engine": "verl.mine"}}, True),
        ({"algorithm": {"advantage": {"normalize_by_std": True}}}, False),
        ({"algorithm": {"advantage": {"type": "grpo", "normalize_by_std": False}}}, True),
        ({"algorithm": {"advantage": {"type": "rloo", "normalize_by_std": False}}}, False),
        ({"checkpoint": {"every": 20}}, True),
        ({"checkpoint": {"every": {"optimizer_steps": 100}}}, True),
        ({"checkpoint": {"every": {"optimizer_steps": 100, "epochs": 1}}}, False),
        ({"checkpoint": {"every": {}}}, False),
        ({"rollout": {"parallel": {"replicas": "auto"}}}, True),
        ({"rollout": {"parallel": {"replicas": 2}}}, True),
        ({"rollout": {"parallel": {"replicas": "some"}}}, False),
        ({"rewards": [{"type": "rule", "rule": "math"}]}, True),
        ({"rewards": {"type": "rule"}}, False),
        ({"rlctl": 2}, False),
        ({"extensions": {"verl": {"a.b": 1}}}, True),
        ({"extensions": {"openrlhf": {"a.b": 1}}}, True),
        ({"extensions": {"verl": 1}}, False),
    ],
)
def test_schema_and_builder_agree(values: dict[str, Any], accepted: bool) -> None:
    assert both_accept(values) is accepted


def test_an_interpolation_may_stand_for_any_value() -> None:
    values = {"batch": {"prompts_per_step": "${oc.env:PROMPTS,8}"}, "reference": {"model": "${model}"}}
    assert errors(values) == []


def test_units_ranges_defaults_and_help_are_there() -> None:
    node = SCHEMA["$defs"]["Batch"]["properties"]["prompts_per_step"]
    assert node["x-unit"] == "prompts"
    assert node["minimum"] == 1
    assert node["default"] == Config().batch.prompts_per_step
    assert node["description"]


def test_every_section_closes_itself_and_every_property_is_described() -> None:
    for name, node in {**SCHEMA["$defs"], "root": SCHEMA}.items():
        if "properties" in node:
            assert node["additionalProperties"] is False, name
            described = {key for key, held in node["properties"].items() if held.get("description") or "const" in held}
            assert described == set(node["properties"]), name


def test_every_section_class_is_in_it() -> None:
    classes = {held.__name__ for key in walk(Config) for held, _ in sections_in(key.info.type)}
    assert classes <= set(SCHEMA["$defs"])
    assert all(dataclasses.is_dataclass(key.owner) for key in walk(Config))


def test_a_stage_may_hold_any_section_in_part() -> None:
    assert errors({"stages": [{"name": "warm", "algorithm": {"advantage": {"normalize_by_std": False}}}]}) == []
    assert errors({"stages": [{"name": "warm", "algoritm": {}}]})
