"""A text that is written for several says one thing of a count of 1."""

from __future__ import annotations

import pytest

from rlctl.common.messages import in_language
from rlctl.common.messages.reasons import said, translated
from rlctl.common.messages.singular import after_one, of_one


@pytest.mark.parametrize(
    ("template", "values", "expected"),
    [
        ("{n} epochs take {m:g} optimizer steps", {"n": 1, "m": 1.0}, "1 epoch takes 1 optimizer step"),
        ("{n} epochs take {m:g} optimizer steps", {"n": 2, "m": 0.5}, "2 epochs take 0.5 optimizer steps"),
        ("{n} mini-batches are {m} trajectories", {"n": 1, "m": 1}, "1 mini-batch is 1 trajectory"),
        ("{n} does, {m} steps", {"n": True, "m": 1}, "True does, 1 step"),
        ("{n} stepsize {n} ranks-by", {"n": 1}, "1 stepsize 1 ranks-by"),
        ("{path} steps", {"path": "1"}, "1 steps"),
        ("{n} prompts of {path} with images are long", {"n": 1, "path": "a.b"}, "1 prompt of a.b with images is long"),
        ("{m} of {n} rows of {path} are long", {"m": 1, "n": 1, "path": "a"}, "1 of 1 rows of a are long"),
        ("all {n} rows are long; there are {n} inputs", {"n": 1}, "all 1 rows are long; there are 1 inputs"),
    ],
)
def test_nouns_and_verbs_after_one_are_singular(template: str, values: dict[str, object], expected: str) -> None:
    assert said(template, **values) == expected


def test_the_template_of_a_reason_stays_so_that_it_is_translated() -> None:
    made = said("{count} devices", count=1)
    assert made == "1 device"
    assert translated(made, "zh") == translated(said("{count} devices", count=2), "zh").replace("2", "1")
    assert of_one("{count} devices", {"count": 2}) == "{count} devices"
    assert after_one(" of 2 devices") == " of 2 devices"


def test_messages_of_the_catalogue_are_singular_too() -> None:
    told = in_language("en", "staleness_sync", every=1, behind=1, most=2)
    assert "every 1 step, so responses are up to 1 step old" in told
    assert "1 步" in in_language("zh", "staleness_sync", every=1, behind=1, most=2)
