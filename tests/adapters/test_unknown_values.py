"""A word that a key of a framework does not have is refused or kept: never read as another one of its words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from rlctl.adapters import dialect, names
from rlctl.adapters.engine.dialect import Detection
from rlctl.adapters.engine.reading import Read
from rlctl.adapters.engine.rules import DialectKey, version_of
from rlctl.adapters.engine.tree import put
from rlctl.common.report import Bucket
from rlctl.config import to_plain
from rlctl.documents import Document

WORD = "no_word_of_any_key"
TABLES = [(name, kind) for name in names() if name != "rlctl" for kind in dialect(name).tables]
NEEDED: dict[str, dict[str, Any]] = {
    "verl": {"actor_rollout_ref.model.path": "m", "model.partial_pretrain": "m", "model.path": "m"},
    "trinity": {"model.model_path": "m", "algorithm.algorithm_type": "grpo"},
    "roll": {"pretrain": "m", "student_pretrain": "m", "reward_pretrain": "m"},
}
ITSELF = ("trainer.resume_mode",)
"""Keys of which the framework itself takes any other word for one of its own."""


def _release(name: str, kind: str) -> str:
    table = dialect(name).tables[kind]
    return max(table.releases_with, key=version_of) if table.releases_with else dialect(name).newest


def _keys(name: str, kind: str) -> Iterator[DialectKey]:
    version, table = version_of(_release(name, kind)), dialect(name).tables[kind]
    for path, key in table.index.items():
        if (
            table.has(key, path, version)
            and key.name not in ITSELF
            and not any(part in ("*", "**") or isinstance(part, int) for part in path)
        ):
            yield key


def _read(name: str, kind: str, values: dict[str, Any]) -> Read:
    taken = Detection(_release(name, kind), kind, 0, 0)
    return dialect(name).read(Document("f.yaml", values), taken, environment={}, options={}, restored={})


def _replaced(name: str, kind: str, key: DialectKey) -> str:
    """What a text with the word at a key was read as, if nothing says that the word is none; else empty."""
    values: dict[str, Any] = {}
    for needed, value in NEEDED[name].items():
        if needed.split(".")[0] in dialect(name).tables[kind].tops:
            put(values, tuple(needed.split(".")), value)
    values = deepcopy(values)
    put(values, key.path, WORD)
    read = _read(name, kind, values)
    if read.report.errors or any(item.key == key.name for item in read.report.warnings):
        return ""
    entry = next(entry for entry in read.report.accounting if entry.key == key.name)
    kept = read.config is not None and WORD in json.dumps(to_plain(read.config), default=str)
    without_effect = all(value in (None, [], {}, False, "off") for _, value in entry.targets) and entry.targets
    if kept or without_effect or entry.bucket not in (Bucket.MAPPED, Bucket.DERIVED):
        return ""
    return f"{key.name}: {entry.bucket} {entry.targets} {entry.note}"


@pytest.mark.parametrize(("name", "kind"), TABLES)
def test_an_unknown_word_is_never_another_one(name: str, kind: str) -> None:
    replaced = [found for key in _keys(name, kind) if (found := _replaced(name, kind, key))]
    assert replaced == []
