"""A user's reward function is called as verl calls it, and its mistakes are shown as the user's, without ours around them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlctl.common.errors import RunError
from rlctl.runtime.rewards.interface import Call, Failure, Outcome
from rlctl.runtime.rewards.outcome import as_outcome, attempt
from rlctl.runtime.rewards.scorers import FunctionScorer


def scorer(folder: Path, text: str, function: str = "compute_score", **args: object) -> FunctionScorer:
    (folder / "mine.py").write_text(text)
    return FunctionScorer(str(folder / "mine.py"), function, args)


CALL = Call("math", "resp", {"a": 1}, extra={"level": 3})


def test_verls_arguments(tmp_path: Path) -> None:
    text = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, bonus=0.0):
    assert (data_source, solution_str, ground_truth) == ("math", "resp", {"a": 1})
    return extra_info["level"] + bonus
"""
    assert scorer(tmp_path, text, bonus=0.5).load().one(CALL) == Outcome(3.5)


def test_arguments_of_the_source_go_over_those_of_the_reward(tmp_path: Path) -> None:
    text = "def compute_score(**kwargs): return kwargs['a'] * 10 + kwargs['b']"
    call = Call("s", "r", args={"b": 2})
    assert scorer(tmp_path, text, a=1, b=1).load().one(call).score == 12.0


def test_coroutines_are_run(tmp_path: Path) -> None:
    text = "import asyncio\nasync def compute_score(**kwargs):\n    await asyncio.sleep(0)\n    return 1"
    assert scorer(tmp_path, text).load().together([CALL, CALL]) == [Outcome(1.0), Outcome(1.0)]


def test_mappings_bring_metrics() -> None:
    outcome = as_outcome({"score": True, "acc": 0.0, "pred": "x", "n": np.int64(3)})
    assert outcome == Outcome(1.0, correct=False, metrics={"acc": 0.0, "n": 3.0}, vote="x")
    assert as_outcome(np.float32(0.5)) == Outcome(0.5)


@pytest.mark.parametrize("result", [None, "1", {"reward": 1}, [1.0], {"score": "x"}])
def test_what_is_no_reward(result: object) -> None:
    with pytest.raises(TypeError, match="the reward is"):
        as_outcome(result)


@pytest.mark.parametrize("result", [float("nan"), {"score": float("inf")}])
def test_rewards_are_finite(result: object) -> None:
    with pytest.raises(ValueError, match="expected a finite number"):
        as_outcome(result)


def test_modules_beside_the_file_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "helper_of_mine.py").write_text("ONE = 1")
    text = "from helper_of_mine import ONE\ndef compute_score(**kwargs): return ONE"
    assert scorer(tmp_path, text).load().one(CALL).score == 1.0


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no reward file .*nowhere\.py"):
        FunctionScorer(str(tmp_path / "nowhere.py"), "f").load()
    with pytest.raises(
        RunError, match=r"no function 'compute_scor'; it has compute_score\n.*did you mean 'compute_score'"
    ):
        scorer(tmp_path, "def compute_score(**kwargs): return 1", "compute_scor").load()
    with pytest.raises(RunError, match=r"(?s)importing the reward file .*mine\.py fails:.*line 2.*ZeroDivisionError"):
        scorer(tmp_path, "\n1 / 0").load()
    with pytest.raises(RunError, match=r"takes \(solution, truth\), which matches no supported signature"):
        scorer(tmp_path, "def compute_score(solution, truth): return 1").load()
    with pytest.raises(RunError, match=r"takes \(extra_info, solution_str\) and not data_source, ground_truth"):
        scorer(tmp_path, "def compute_score(solution_str, extra_info): return 1").load()


def test_what_user_code_raises_is_a_failure_with_its_traceback(tmp_path: Path) -> None:
    score = scorer(tmp_path, "def compute_score(**kwargs):\n    return kwargs['ground_truth']['b']").load().one
    failure = attempt(score, CALL)
    assert isinstance(failure, Failure)
    assert failure.message.startswith("Traceback")
    assert 'mine.py", line 2, in compute_score' in failure.message
    assert failure.message.endswith("KeyError: 'b'")
    exits = scorer(tmp_path, "import sys\ndef compute_score(**kwargs): sys.exit(3)").load().one
    assert isinstance(attempt(exits, CALL), Failure)
