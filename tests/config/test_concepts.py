"""The concept table has a home, a unit and every dialect's answer for each concept, and leaves out no documented key.

It is ``docs/reference/concepts.yaml``; with the schema it is printed as the page ``concepts.md``:

    python tests/config/test_concepts.py > docs/reference/concepts.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlctl.config import Config
from rlctl.config.fields import Choice
from rlctl.config.inspect import KeyInfo, option_patterns, type_text, walk
from rlctl.documents import read_yaml

HERE = Path(__file__).parent
DOCUMENTED = HERE.parents[2] / "shared" / "reference" / "documented_keys.yaml"
FOLDER = Path(__file__).parents[2] / "docs" / "reference"
DIALECTS = {"verl": "verl", "trinity": "Trinity-RFT", "roll": "ROLL"}


@dataclass(frozen=True)
class Concepts:
    """The table as read."""

    rows: list[dict[str, Any]]
    extensions: list[dict[str, str]]

    def keys(self, dialect: str) -> set[str]:
        """Every key of a dialect that the table names."""
        named = {key for row in self.rows if row[dialect] != "none" for key in row[dialect]}
        return named | {row["key"] for row in self.extensions if row["dialect"] == dialect}


def read() -> Concepts:
    values = read_yaml((FOLDER / "concepts.yaml").read_text(encoding="utf-8"), "concepts.yaml").values
    return Concepts(list(values["concepts"]), list(values["extensions"]))


def schema() -> dict[str, KeyInfo | None]:
    """Every key pattern of the schema, and every option of a choice (which has no key of its own)."""
    return {**dict.fromkeys(option_patterns(Config)), **{key.pattern: key for key in walk(Config)}}


def page() -> str:
    """The page as Markdown."""
    table = read()
    lines = [
        "# Concepts",
        "",
        "What verl, Trinity-RFT and ROLL configure, and under which key it is found here. Each dialect's cell has its keys with",
        "what they hold when nobody sets them: *none* is no such key, *unset* no default, *gone* a documented key that its code has",
        "no more. A concept with several keys is computed from them together. Printed from `concepts.yaml` and the schema.",
    ]
    section = ""
    keys = schema()
    for row in table.rows:
        head = row["key"].split(".")[0].split("<")[0].split("[")[0]
        if head != section:
            section = head
            lines += ["", f"## {head}", "", "| key | holds | default | verl | Trinity-RFT | ROLL |", "| --- " * 6 + "|"]
        cells = [f"`{row['key']}`", *_facts(keys[row["key"]]), *(_cell(row[dialect]) for dialect in DIALECTS)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, *_extensions(table)]) + "\n"


def _facts(key: KeyInfo | None) -> tuple[str, str]:
    if key is None:
        return "an option", "off"
    default = key.info.default
    shown = "must be set" if key.info.required else _shown(default)
    return _escaped(key.info.unit or type_text(key.info.type)), _escaped(shown)


def _shown(value: Any) -> str:
    if isinstance(value, Choice):
        return value.choice
    if isinstance(value, tuple):
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else f'"{value}"' if value == "" else str(value)


def _cell(keys: Mapping[str, str] | str) -> str:
    if isinstance(keys, str):
        return f"*{keys}*"
    return "<br>".join(f"`{key}` {_escaped(str(value))}" for key, value in keys.items())


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _extensions(table: Concepts) -> Iterator[str]:
    yield from ("", "## Without a canonical key", "", "Kept under `extensions.<dialect>`, for the way back.", "")
    yield from ("| dialect | key | default | why |", "| --- | --- | --- | --- |")
    for row in table.extensions:
        yield f"| {DIALECTS[row['dialect']]} | `{row['key']}` | {_escaped(row['default'])} | {row['reason']} |"


TABLE = read()


def test_every_concept_has_a_key_of_the_schema_and_only_one_row() -> None:
    keys = [row["key"] for row in TABLE.rows]
    assert set(keys) - set(schema()) == set()
    assert len(keys) == len(set(keys))


def test_no_cell_is_empty() -> None:
    for row in TABLE.rows:
        assert set(row) == {"key", *DIALECTS}
        for dialect in DIALECTS:
            cell = row[dialect]
            assert cell == "none" or (cell and all(isinstance(value, str) and value for value in cell.values())), row


def test_every_concept_of_no_dialect_is_a_rule_that_they_do_not_write_down() -> None:
    silent = {row["key"] for row in TABLE.rows if all(row[dialect] == "none" for dialect in DIALECTS)}
    assert silent == {
        "data.last_batch",
        "algorithm.train_temperature",
        "train.lr_scheduler.step_unit",
        "checkpoint.at_end",
    }


def test_extensions_say_why() -> None:
    for row in TABLE.extensions:
        assert set(row) == {"dialect", "key", "default", "reason"}
        assert row["dialect"] in DIALECTS
        assert len(row["reason"].split()) > 3
    keys = [(row["dialect"], row["key"]) for row in TABLE.extensions]
    mapped = {
        (dialect, key) for dialect in DIALECTS for row in TABLE.rows if row[dialect] != "none" for key in row[dialect]
    }
    assert set(keys) & mapped == set()


def test_the_page_is_printed_from_the_table() -> None:
    printed = (FOLDER / "concepts.md").read_text(encoding="utf-8")
    assert printed == page(), "python tests/config/test_concepts.py > docs/reference/concepts.md"


@pytest.mark.skipif(not DOCUMENTED.exists(), reason="the reference documents are not here")
@pytest.mark.parametrize(
    ("section", "dialect", "prefix"),
    [
        ("verl", "verl", ""),
        ("verl_sft", "verl", "sft/"),
        ("verl_evaluation", "verl", "evaluation/"),
        ("trinity", "trinity", ""),
        ("roll", "roll", ""),
    ],
)
def test_every_documented_key_is_in_the_table(section: str, dialect: str, prefix: str) -> None:
    documented = read_yaml(DOCUMENTED.read_text(encoding="utf-8"), "documented_keys.yaml").values[section]
    named = TABLE.keys(dialect)
    missing = [key for key in documented if not _is_named(f"{prefix}{key}", named)]
    assert missing == []


def _is_named(key: str, named: set[str]) -> bool:
    """Whether the table names a key, or, of a key that only holds others, one of these."""
    return key in named or any(other.startswith((f"{key}.", f"{key}[")) for other in named)


if __name__ == "__main__":
    sys.stdout.write(page())
