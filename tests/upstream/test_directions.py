"""What ``rlctl convert`` writes runs in the target as the source runs, or the report says what differs: every direction, every corpus file."""

from __future__ import annotations

import os

import pytest

from .directions import CORPUS, DIRECTIONS, row, run, save

ASKED = os.environ.get("DIRECTION", "")
pytestmark = [
    pytest.mark.upstream,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not CORPUS.exists(), reason="no corpus beside the repository"),
]


@pytest.mark.parametrize("direction", [name for name in DIRECTIONS if ASKED in ("", name)])
def test_a_converted_config_runs_as_its_source(direction: str) -> None:
    outcomes = list(run(direction))
    save(direction, outcomes)
    print(row(direction, outcomes))
    assert [f"{one.name}: {one.error}" for one in outcomes if one.judged and one.error] == []
    assert [f"{one.name}: {difference}" for one in outcomes for difference in one.silent] == []
