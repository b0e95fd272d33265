"""Reasons: English texts of the code that are shown in the reader's language."""

from __future__ import annotations

import copy
import pickle

import pytest

from rlctl.common.errors import UsageError
from rlctl.common.language import VARIABLE
from rlctl.common.messages import in_language, reasons
from rlctl.common.messages.reasons import said, together, translated
from rlctl.common.report import Bucket, Entry, Level, finding

WORDS = {
    "ROLL has no {name}. Wrote {value:g}": "ROLL 没有 {name}，已写出 {value:g}",
    "the policy's engine": "策略的引擎",
    "verl has none": "verl 没有",
}


@pytest.fixture(autouse=True)
def chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three reasons with Chinese texts, for a reader of Chinese."""
    monkeypatch.setenv(VARIABLE, "zh")
    monkeypatch.setattr(reasons, "reasons", lambda spoken: WORDS)


def test_a_reason_is_its_english_text() -> None:
    reason = said("ROLL has no {name}. Wrote {value:g}", name="rloo", value=0.5)
    assert reason == "ROLL has no rloo. Wrote 0.5"
    assert Entry("a", Bucket.DERIVED, note=reason).as_data()["note"] == "ROLL has no rloo. Wrote 0.5"


def test_a_reason_is_shown_with_its_values_in_the_language_of_the_reader() -> None:
    reason = said("ROLL has no {name}. Wrote {value:g}", name="the policy's engine", value=0.5)
    assert translated(reason) == "ROLL 没有 策略的引擎，已写出 0.5"
    assert translated(reason, "en") is reason
    assert Entry("a", Bucket.DERIVED, note="verl has none").why == "verl 没有"


def test_several_reasons_keep_their_translations() -> None:
    both = together(
        ["verl has none", "", "verl has none", said("ROLL has no {name}. Wrote {value:g}", name="x", value=1)]
    )
    assert both == "verl has none; ROLL has no x. Wrote 1"
    assert translated(both) == "verl 没有；ROLL 没有 x，已写出 1"
    assert translated(together([both, "unknown text"])) == "verl 没有；ROLL 没有 x，已写出 1；unknown text"
    assert together([]) == ""


def test_a_reason_survives_copies_and_other_processes() -> None:
    reason = said("ROLL has no {name}. Wrote {value:g}", name="x", value=2)
    for other in (copy.deepcopy(reason), pickle.loads(pickle.dumps(reason))):
        assert other == reason
        assert translated(other) == "ROLL 没有 x，已写出 2"


def test_a_reason_without_a_translation_is_shown_in_english() -> None:
    assert translated("no such text") == "no such text"
    assert translated(said("nor {this}", this="one")) == "nor one"


def test_messages_translate_the_reasons_that_they_show() -> None:
    assert in_language("zh", "silent-difference", reason="verl has none") == "verl 没有"
    assert in_language("en", "silent-difference", reason="verl has none") == "verl has none"
    found = finding("silent-difference", Level.NOTE, "a.b", reason="verl has none")
    assert found.message == "verl 没有"
    assert found.as_data()["params"] == {"reason": "verl has none"}


def test_an_error_keeps_its_reason() -> None:
    error = UsageError(said("ROLL has no {name}. Wrote {value:g}", name="x", value=2), hint="verl has none")
    assert translated(error.message) == "ROLL 没有 x，已写出 2"
    assert str(error) == "ROLL has no x. Wrote 2\n  verl has none"
