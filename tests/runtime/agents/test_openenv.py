"""OpenEnv servers that are not there; ``tests/external`` has a real one."""

from __future__ import annotations

import pytest

from rlctl.common.errors import RunError
from rlctl.runtime.agents.openenv import OpenEnv


def test_a_server_that_does_not_answer_is_told() -> None:
    with pytest.raises(RunError, match=r"no OpenEnv server answers at http://127\.0\.0\.1:9"):
        OpenEnv("http://127.0.0.1:9")
