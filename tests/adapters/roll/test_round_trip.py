"""ROLL's own examples through rlctl and back: each leaf comes back with its value, or the account says what became of it."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.adapters.engine.rules import ABSENT
from rlctl.adapters.engine.tree import find
from rlctl.common.report import Bucket, Entry
from rlctl.documents import parse_dotted, read_yaml, resolve
from rlctl.translation.translate import translate_loaded

from ..corpus import Example, examples

TOLD = (Bucket.DEAD, Bucket.UNSUPPORTED, Bucket.UNKNOWN)
"""Buckets that say by themselves that a value may be gone."""


def _changed(example: Example) -> list[str]:
    """The leaves that come back otherwise, or not at all, and of which the account says nothing."""
    loaded, report = example.read()
    away = translate_loaded(loaded, report, "roll")
    assert away.text is not None, [finding.message for finding in away.report.errors]
    before, after = example.plain(), resolve(read_yaml(away.text, "written.yaml"), environment={}).values
    pairs = [(entry, *_values(entry, before, after)) for entry in away.report.accounting if entry.bucket not in TOLD]
    return [
        f"{example.name}: {entry.key}: {was!r} became {now!r}"
        for entry, was, now in pairs
        if was != now and not _said(entry, now)
    ]


def _values(entry: Entry, before: Any, after: Any) -> tuple[Any, Any]:
    path = parse_dotted(entry.key)
    was = find(before, path)
    return entry.value if was is ABSENT else was, find(after, path)


def _said(entry: Entry, now: Any) -> bool:
    """Whether the account says where a leaf went: a note, another key for it, or the same key with the value written now."""
    elsewhere = any(key != entry.key for key, _ in entry.targets)
    return bool(entry.note) or elsewhere or (entry.key, now) in entry.targets


def _check(chosen: tuple[Example, ...]) -> None:
    wrong = [line for example in chosen for line in _changed(example)]
    assert wrong == [], "\n".join(wrong)


def test_every_leaf_of_an_example_comes_back_or_is_accounted_for() -> None:
    _check(examples("roll")[::12])


@pytest.mark.soak
def test_every_leaf_of_every_example_comes_back_or_is_accounted_for() -> None:
    _check(examples("roll"))
