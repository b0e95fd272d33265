"""Rows are drawn as Trinity-RFT's own selectors draw them, and an order by difficulty moves with the rewards as Trinity's does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlctl.runtime.data.difficulty import Pacing
from rlctl.runtime.data.order import easy_to_hard, numbers_of
from rlctl.runtime.data.stream import Ordering, Stream

from .frameworks import framework

pytestmark = pytest.mark.upstream
ROWS, SIZE, BATCHES = 40, 8, 12
chance = np.random.default_rng(0)
COLUMNS = {
    "weak": (chance.random(ROWS) * 0.6).round(1).tolist(),
    "strong": (0.4 + chance.random(ROWS) * 0.6).round(2).tolist(),
}
PASSED = (chance.integers(0, 9, ROWS) / 8).tolist()


def theirs(release: str, selector: str, args: dict[str, Any]) -> list[list[int]]:
    keys = [] if selector == "sequential" else list(COLUMNS)
    asked = {"selector": selector, "keys": keys, "args": args, "seed": 5, "columns": COLUMNS, "passed": PASSED}
    drawn: list[list[int]] = framework(f"trinity-{release}", "drive_selectors.py").ask(
        **asked, batches=BATCHES, size=SIZE
    )["drawn"]
    return drawn


def ours(**ordering: Any) -> list[list[int]]:
    stream = Stream([range(ROWS)], per_step=SIZE, ordering=Ordering(seed=5, last_batch="carry", **ordering))
    drawn = []
    for _ in range(BATCHES):
        drawn.append(stream.next_batch())
        stream.feedback({row: PASSED[row] for row in drawn[-1]})
    return drawn


@pytest.mark.parametrize("release", ["0.5.2", "0.6.0"])
@pytest.mark.parametrize(
    "args",
    [
        {},
        {"tau": 0, "target_reward": 0.8},
        {"tau": 0.1, "target_reward": 0.5, "m": 8, "lamb": 0.1, "rho": 0.4},
        {"tau": 0.2, "do_sample": True, "adaptive_rho": True, "rho": 0.9},
    ],
)
def test_by_difficulty(args: dict[str, Any], release: str) -> None:
    features = numbers_of(list(COLUMNS.values()))
    assert ours(order="difficulty", features=(features,), pacing=Pacing.of(args)) == theirs(
        release, "difficulty_based", args
    )


@pytest.mark.parametrize("release", ["0.5.2", "0.6.0"])
def test_easy_to_hard_and_in_file_order(release: str) -> None:
    ranks = easy_to_hard(list(COLUMNS.values()))
    assert ours(order="easy_to_hard", ranks=(ranks,)) == theirs(release, "offline_easy2hard", {})
    assert ours(order="sequential") == theirs(release, "sequential", {})
