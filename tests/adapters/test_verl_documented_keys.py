"""Every key that verl's documents name, and every key of its examples, has its place in the table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlctl.adapters import dialect
from rlctl.adapters.engine.rules import version_of
from rlctl.adapters.engine.table import Table
from rlctl.common.report import Bucket
from rlctl.documents import KeyPath, parse_dotted, read_yaml
from rlctl.translation.translate import read_document

SHARED = Path(__file__).parents[3] / "shared"
DOCUMENTED = SHARED / "reference" / "documented_keys.yaml"
EXAMPLES = SHARED / "corpus" / "verl" / "overrides"
KINDS = {"verl": ("ppo",), "verl_evaluation": ("evaluation",), "verl_sft": ("sft", "sft_engine")}
OFTEN = 3
"""A key that so many files use is never carried."""
pytestmark = pytest.mark.skipif(not SHARED.exists(), reason="the corpus of example configs is not beside the checkout")


def fate(table: Table, path: KeyPath) -> str:
    """What the table says of a key, in any release; '' where it does not know it."""
    if table.key_at(path) is not None or any(key[: len(path)] == path for key in table.index):
        return "rule"
    versions = [version_of(release) for release in dialect("verl").versions]
    notes = [note.kind for version in versions if (note := table.note_for(path, version)) is not None]
    if notes:
        return notes[-1]
    return "carried" if table.releases(path) is not None else ""


def test_every_documented_key_is_known_to_the_kind_of_file_it_belongs_to() -> None:
    documented: dict[str, Any] = yaml.safe_load(DOCUMENTED.read_text())
    tables = dialect("verl").tables
    unknown = [
        key
        for section, kinds in KINDS.items()
        for key in documented[section]
        if not any(fate(tables[kind], parse_dotted(key)) for kind in kinds)
    ]
    assert unknown == []


def test_what_many_examples_use_is_not_carried() -> None:
    carried: Counter[str] = Counter()
    for path in sorted(EXAMPLES.glob("*.yaml")):
        lines = [line for line in yaml.safe_load(path.read_text())["overrides"] if not line.startswith("--")]
        _, report = read_document(
            read_yaml("", path.name, allow_empty=True), dialect="verl", overrides=lines, environment={}
        )
        carried.update({entry.key for entry in report.accounting if entry.bucket is Bucket.CARRIED})
    assert [key for key, count in carried.items() if count >= OFTEN] == []
