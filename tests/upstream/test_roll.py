"""ROLL's own config classes read its examples and what rlctl writes: they accept the texts, and would run the numbers of the canonical config."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.report import Bucket
from rlctl.config import Loaded, stages_of
from rlctl.documents import dotted
from rlctl.translation.translate import read, write

from .frameworks import CHECKOUT, ROOT, Framework, of_roll
from .roll_numbers import ROWS, differences, numbers

pytestmark = [
    pytest.mark.upstream,
    pytest.mark.skipif(not CHECKOUT, reason="no checkout of ROLL: make test-upstream ROLL=/path/to/checkout"),
]
HOME = Path(CHECKOUT) / "examples"
EXAMPLES = sorted(path for path in HOME.rglob("*.yaml") if path.parent != HOME / "config") if CHECKOUT else []
GOLDEN = ROOT / "tests" / "golden"
OURS = [
    *sorted((ROOT / "presets").rglob("*.yaml")),
    *(path for path in sorted(GOLDEN.rglob("*.yaml")) if path.name != "expected.yaml"),
]
VARIABLES = re.compile(r"oc\.env:(\w+)")


def roll() -> Framework:
    return of_roll("drive_roll.py")


def name_of(path: Path) -> str:
    return "/".join(path.parts[-2:])


@cache
def asked(path: Path) -> dict[str, Any]:
    """What ROLL makes of its own example; the test is skipped where it refuses it."""
    answer = roll().ask(path=str(path))
    if not answer["accepted"]:
        pytest.skip(f"ROLL refuses its own example: {answer['error'][:200]}")
    return answer


@cache
def source(path: Path) -> Loaded:
    """A file of any dialect as rlctl reads it."""
    text = path.read_text(encoding="utf-8")
    environment = {**dict.fromkeys(VARIABLES.findall(text), "org/model"), **os.environ}
    loaded, report = read(path, environment=environment, dialect="roll" if path in EXAMPLES else None)
    assert loaded is not None, [finding.message for finding in report.errors]
    return loaded


def written(path: Path) -> tuple[str, list[str]]:
    """The text for ROLL, and the canonical keys that it cannot say."""
    loaded = source(path)
    text, report = write(loaded, "roll", options={"dataset_rows": str(ROWS), "carried": "none"})
    assert text is not None, [finding.message for finding in report.errors]
    said = {entry.key for entry in report.accounting if entry.bucket in (Bucket.UNSUPPORTED, Bucket.APPROXIMATED)}
    return text, [dotted(place) for place, one in loaded.sources.items() if one.key in said]


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_an_example_is_read_as_roll_reads_it(path: Path) -> None:
    answer = asked(path)
    assert differences(source(path).config, answer["numbers"]) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_an_example_written_again_is_accepted_and_runs_the_same_numbers(path: Path) -> None:
    before = asked(path)
    text, lost = written(path)
    answer = roll().ask(text=text)
    assert answer["accepted"], answer["error"]
    assert answer["kind"] == before["kind"]
    trained = {name: value for name, value in answer["numbers"].items() if name in before["numbers"]}
    assert differences(source(path).config, trained, lost) == []


@pytest.mark.parametrize("path", OURS, ids=name_of)
def test_other_texts_written_for_roll_are_accepted_and_run_the_same_numbers(path: Path) -> None:
    if source(path).config.algorithm.objective.choice == "mix":
        pytest.skip("ROLL has no pipeline for it, which rlctl says")
    if len(stages_of(source(path).config)) > 1:
        pytest.skip("ROLL has no stages, which rlctl says")
    text, lost = written(path)
    answer = roll().ask(text=text)
    assert answer["accepted"], answer["error"]
    assert differences(source(path).config, answer["numbers"], lost) == []


def test_roll_refuses_what_is_wrong() -> None:
    """The tests above can fail: ROLL tells a wrong text from a right one, and another number is seen."""
    path = ROOT / "presets" / "grpo-1node.yaml"
    text, lost = written(path)
    assert not roll().ask(text=text + "\nrollout_batch_size: many\n")["accepted"]
    assert not roll().ask(text=re.sub(r"(?m)^rollout_batch_size: .*$", "rollout_batch_size: many", text))["accepted"]
    wrong = roll().ask(text=re.sub(r"(?m)^(\s*learning_rate): .*$", r"\1: 0.5", text))
    assert any(item.startswith("learning rate:") for item in differences(source(path).config, wrong["numbers"], lost))
    assert len(set(numbers(source(path).config)) & set(wrong["numbers"])) > 30
