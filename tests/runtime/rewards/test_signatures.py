"""A reward function is called in the form that its parameters tell, or that the config names."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.runtime.rewards.interface import Call, Failure, Outcome
from rlctl.runtime.rewards.pool import CallPool
from rlctl.runtime.rewards.scorers import FunctionScorer

CALL = Call(
    "math", "resp", "42", extra={"level": 3}, tokens=7, truncated=True, args={"k": 2}, prompt="ask",
    messages=({"role": "user", "content": "ask"},), tag="easy",
)  # fmt: skip


def outcome(folder: Path, text: str, signature: str = "auto", name: str = "score", **args: Any) -> Outcome:
    (folder / "mine.py").write_text(text)
    loaded = FunctionScorer(str(folder / "mine.py"), name, args, signature).load()
    assert loaded.one is not None
    return loaded.one(CALL)


def test_rlctls_own(tmp_path: Path) -> None:
    text = """
def score(response, answer, *, prompt, source, tag, extra, messages, tokens, truncated, k, weight):
    assert (response, answer, prompt, source, tag) == ("resp", "42", "ask", "math", "easy")
    assert (extra, messages, truncated) == ({"level": 3}, [{"role": "user", "content": "ask"}], True)
    return {"score": tokens * k * weight, "acc": 1}
"""
    assert outcome(tmp_path, text, weight=0.5) == Outcome(7.0, correct=True, metrics={"acc": 1.0})


def test_coroutines_run_at_the_same_time_each_within_its_limit(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("""
import asyncio
async def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    if solution_str == "bad": raise ValueError("mine")
    await asyncio.sleep(float(solution_str))
    return {"score": 1, "acc": 1}
""")
    scorer = FunctionScorer(str(tmp_path / "mine.py"), "compute_score", timeout=3.0)
    with CallPool(scorer, processes=1, timeout=3.0) as pool:
        began = time.monotonic()
        found = pool.map([Call("s", text) for text in ("0.5", "bad", "30", *["0.5"] * 20)])
        assert time.monotonic() - began < 8
    assert found[0] == Outcome(1.0, correct=True, metrics={"acc": 1.0})
    assert isinstance(found[1], Failure)
    assert found[1].message.endswith("ValueError: mine")
    assert found[2] == Failure("the call took longer than 3 s")
    assert found[3:] == [found[0]] * 20


TRINITY = """
class Mine:
    def __init__(self, bonus=0.0):
        self.bonus = bonus
    def __call__(self, response, truth, prompt=None, response_token=None, k=0, **kwargs):
        assert (response, truth, prompt) == ("resp", "42", "ask")
        return {"accuracy": 1.0, "format_score": -0.1 + self.bonus, "length": 0.001 * len(response_token)}
"""


def test_trinitys_class(tmp_path: Path) -> None:
    found = outcome(tmp_path, TRINITY, name="Mine", bonus=0.5)
    assert found.score == pytest.approx(1.407)
    assert found.correct is True
    assert found.metrics == pytest.approx({"accuracy": 1.0, "format_score": 0.4, "length": 0.007})
    plain = outcome(tmp_path, "def score(response, truth, k): return {'a': k, 'b': 1}", signature="trinity")
    assert plain == Outcome(3.0, metrics={"a": 2.0, "b": 1.0})
    with pytest.raises(RunError, match=r"class of .*mine\.py cannot be instantiated: .*'typo'"):
        outcome(tmp_path, TRINITY, name="Mine", typo=1)
    with pytest.raises(TypeError, match="not all numbers: a"):
        outcome(tmp_path, "def score(response, truth, k): return {'a': 'x'}")


def test_rolls_functions(tmp_path: Path) -> None:
    text = """
def score(response, ground_truth, k=None, reward_type=None):
    assert (response, ground_truth, reward_type) == ("resp", "42", "soft")
    return "B", -0.5, True, False
"""
    assert outcome(tmp_path, text, reward_type="soft") == Outcome(-0.5, correct=False, metrics={"format": 1.0})
    assert outcome(tmp_path, "def score(response, **kwargs): return kwargs['tag'] == 'easy'", "roll").score == 1.0


def test_a_named_form_goes_over_what_parameters_tell(tmp_path: Path) -> None:
    assert outcome(tmp_path, "def score(**kwargs): return kwargs['tokens']", "rlctl").score == 7.0
    assert outcome(tmp_path, "def score(**kwargs): return len(kwargs['solution_str'])").score == 4.0
    with pytest.raises(RunError, match=r"takes \(response\) and not data_source, solution_str"):
        outcome(tmp_path, "def score(response): return 1", "verl")
    with pytest.raises(RunError, match=r"takes \(text\), which matches no supported signature"):
        outcome(tmp_path, "def score(text): return 1")


def test_a_module_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package_of_mine").mkdir()
    (tmp_path / "package_of_mine" / "__init__.py").write_text("")
    (tmp_path / "package_of_mine" / "inner.py").write_text(
        "from . import __name__ as n\ndef score(response, k): return 5"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for path in ("pkg://package_of_mine.inner", "pkg://package_of_mine/inner"):
        loaded = FunctionScorer(path, "score").load()
        assert loaded.one is not None
        assert loaded.one(CALL).score == 5.0
    with pytest.raises(RunError, match=r"importing the reward's module nowhere\.at fails"):
        FunctionScorer("pkg://nowhere.at", "score").load()


def test_verls_prefix_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def score(response, k): return 3")
    loaded = FunctionScorer(f"file://{tmp_path}/mine.py", "score").load()
    assert loaded.one is not None
    assert loaded.one(CALL).score == 3.0
