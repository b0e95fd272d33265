"""Trinity-RFT's own loader refuses the values that rlctl says it refuses, and takes the run without them."""

from __future__ import annotations

import pytest
import yaml

from tests.adapters.test_trinity_arguments import ACCEPTED, LATER, REFUSED, STARTED, over

from .test_trinity import ask

pytestmark = pytest.mark.upstream
BY_LOADER = [
    change
    for key, change in REFUSED
    if not key.startswith(STARTED) and "_workflow" not in change and change not in LATER
]


def _answer(change: str) -> dict[str, object]:
    text = yaml.safe_dump(over(yaml.safe_load(ACCEPTED), yaml.safe_load(change)))
    return ask("0.6", text=text)


def test_the_run_without_them_is_accepted() -> None:
    assert "error" not in _answer("{}")


@pytest.mark.parametrize("change", BY_LOADER)
def test_its_loader_refuses_them(change: str) -> None:
    assert "error" in _answer(change)
