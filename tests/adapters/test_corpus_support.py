"""What of the shared examples a run does: nothing is refused but what comes later, and the rest has a plan."""

from __future__ import annotations

import pytest

from rlctl.adapters import names
from rlctl.checks import check
from rlctl.planning.plan import make_plan
from rlctl.planning.support import ONE_DEVICE, OTHER, REFUSED_VALUES, because
from tests.later import is_later, is_never

from .corpus import ROWS, at_least, examples

VALUES = {
    "trinity/examples/opd_gsm8k/opd_gsm8k_jsd": "algorithm.advantage",
}
"""Estimators that are not computed under their own name, in the examples that show them."""
OTHER_ENGINES = ("train.engine<other>", "reference.engine<other>", "rollout.engine<other>")
OF_OTHERS = (
    *map(because, (OTHER, "other-agent", "other-environment", ONE_DEVICE, "external-reward")),
    *(because(reason) for key in OTHER_ENGINES for reason in REFUSED_VALUES[key].values()),
    *("Megatron", "SGLang"),
)
"""In the message of what is of later parts, of one framework only, or beyond what Megatron-core and SGLang do here."""


@pytest.mark.parametrize("dialect", [name for name in names() if name != "rlctl"])
def test_examples_are_refused_for_what_comes_later_only_and_the_others_have_a_plan(dialect: str) -> None:
    chosen = [example for example in examples(dialect) if not example.is_default]
    refused, planned = {}, 0
    for example in chosen:
        loaded, _ = example.read()
        assert loaded is not None, example.name
        found = check(loaded.config, silent=loaded.silent)
        told = {finding.key: finding.message for finding in found if finding.code == "not-supported"}
        refused[example.name] = [
            key
            for key, message in told.items()
            if not (is_later(key) or is_never(key) or any(part in message for part in OF_OTHERS))
            and VALUES.get(example.name) != key
        ]
        if not told:
            assert make_plan(loaded.config, rows=ROWS).stages
            planned += 1
    assert {name: keys for name, keys in refused.items() if keys} == {}
    assert planned >= at_least(5)
