"""Every shared example reads: no key unknown that its framework knows, and each leaf in one bucket, once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rlctl.adapters import names
from rlctl.common.report import Bucket
from rlctl.documents import dotted

from .corpus import Example, examples, leaves

UNKNOWN = {
    "actor_rollout_ref.actor.model_engine": "no release of verl has it: its own launcher refuses tuning_scaling_run_qwen2_5_32b_megatron",
}
"""Keys of examples that their framework itself does not know, and why."""
SHIPPED_GROUPS = ("sft_trainer_engine", "v0.7.0/sft_trainer")
"""Defaults of releases that name groups of files which are in the framework's package and not beside them."""
DIALECTS = [name for name in names() if name != "rlctl"]


def _of(name: str, *, old: bool = False) -> list[Example]:
    """The examples of a dialect, with the defaults of its newest release, or those of the older ones."""
    every = [item for item in examples(name) if not item.name.endswith(SHIPPED_GROUPS)]
    found = [item for item in every if (item.is_default and "v0.9.0" not in item.path.parts) is old]
    if not found:
        pytest.skip("the shared examples are not here, or there are no older ones")
    return found


def _check_keys(chosen: list[Example]) -> None:
    problems = {}
    for example in chosen:
        loaded, report = example.read()
        unknown = [
            entry.key for entry in report.accounting if entry.bucket is Bucket.UNKNOWN and entry.key not in UNKNOWN
        ]
        if loaded is None or unknown:
            problems[example.name] = unknown or [finding.message for finding in report.errors]
    assert problems == {}


def _check_leaves(chosen: list[Example]) -> None:
    problems = {}
    for example in chosen:
        _, report = example.read()
        accounted = Counter(entry.key for entry in report.accounting)
        there = {dotted(path) for path in leaves(example)}
        twice = [key for key, count in accounted.items() if count > 1]
        if twice or set(accounted) != there:
            missing, made_up = sorted(there - set(accounted)), sorted(set(accounted) - there)
            problems[example.name] = {"twice": twice, "missing": missing, "made up": made_up}
        assert sum(report.shares().values()) == len(report.accounting)
    assert problems == {}


@pytest.mark.parametrize("name", DIALECTS)
def test_every_example_reads_without_an_unknown_key(name: str) -> None:
    _check_keys(_of(name))


@pytest.mark.parametrize("name", DIALECTS)
def test_every_leaf_of_an_example_is_in_one_bucket(name: str) -> None:
    _check_leaves(_of(name))


@pytest.mark.soak
def test_the_defaults_of_older_releases_read_whole() -> None:
    _check_keys(_of("verl", old=True))
    _check_leaves(_of("verl", old=True))


@pytest.mark.parametrize("name", DIALECTS)
def test_what_is_said_of_an_unkept_key_has_a_reason(name: str) -> None:
    silent: list[Any] = []
    for example in _of(name):
        _, report = example.read()
        silent += [
            (example.name, entry.key)
            for entry in report.accounting
            if entry.bucket in (Bucket.DEAD, Bucket.UNSUPPORTED, Bucket.CARRIED) and not entry.note
        ]
    assert silent == []
