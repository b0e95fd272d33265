"""``--trace-steps`` is a timeline of these steps, and nothing beside a profiler that writes one anyway."""

from __future__ import annotations

import pytest

from rlctl.cli.launch import _traced
from rlctl.common.errors import UsageError
from rlctl.config import Loaded, config_from


def test_steps_become_those_of_a_timeline() -> None:
    profiling = _traced(Loaded(config_from({"run": {"name": "kept"}})), "3, 4").config.profiling
    assert (profiling.tool, profiling.steps) == ("timeline", (3, 4))


@pytest.mark.parametrize("steps", ["", "0", "3,", "a", "-1", "3;4"])
def test_what_is_no_list_of_steps_is_refused(steps: str) -> None:
    with pytest.raises(UsageError, match="expected step numbers from 1"):
        _traced(Loaded(config_from({})), steps)


def test_a_profiler_has_its_own_steps() -> None:
    with pytest.raises(UsageError, match=r"profiling\.tool torch"):
        _traced(Loaded(config_from({"profiling": {"tool": "torch", "steps": [1]}})), "3")
