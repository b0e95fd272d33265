"""Python files that a config names are read as text: what is wrong with them is found, and nothing of them runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from rlctl.checks import LEVELS, check
from rlctl.checks.user_code import RULES
from rlctl.common.errors import RlctlError
from rlctl.common.report import Finding
from rlctl.config import config_from
from rlctl.runtime.rewards.function import load_function
from rlctl.runtime.rewards.signatures import bind

VERL = "def compute_score(data_source, solution_str, ground_truth, extra_info): return 1\n"


def found(tmp_path: Path, text: str, **reward: Any) -> list[Finding]:
    path = tmp_path / "reward.py"
    path.write_text(text)
    reward = {"type": "function", "path": str(path), **reward}
    return [item for item in check(config_from({"rewards": [reward]}), more=RULES) if item.code.startswith("code-")]


GOOD = {
    "verl": VERL,
    "keywords": "def compute_score(**kwargs): return 1\n",
    "batch": "def compute_score(data_sources, solution_strs, ground_truths, extra_infos): return []\n",
    "a mapping": VERL.replace("1", "{'score': 1, 'acc': 1}"),
    "rlctl": "async def compute_score(response, answer): return 1\n",
    "a class": "class compute_score:\n    def __call__(self, response, truth): return {'a': 1}\n",
    "a decorator": "import functools\n@functools.cache\ndef compute_score(x): return 1\n",
    "under try": "try:\n    import fast\nexcept ImportError:\n    fast = None\n" + VERL,
    "another name": "def score(response): return 1\ncompute_score = score\n",
    "an import": "from os.path import join as compute_score\n",
    "a star": "from os.path import *\n",
    "an import inside": "def compute_score(response):\n    import nosuchmodule\n",
}


@pytest.mark.parametrize("name", GOOD)
def test_a_reward_that_a_run_takes_is_without_findings(tmp_path: Path, name: str) -> None:
    assert found(tmp_path, GOOD[name]) == []


BAD = [
    ("code-syntax", "def compute_score(:\n", {}, "reward.py:1 is not valid Python"),
    ("code-name", VERL.replace("score", "scor"), {}, "has no function 'compute_score'; it has compute_scor"),
    ("code-name", "x = 1\n", {}, "and no other function either"),
    (
        "code-signature",
        "def compute_score(text): return 1\n",
        {},
        "compute_score(text) has parameters that rlctl cannot call",
    ),
    (
        "code-signature",
        "\ndef compute_score(solution_str, ground_truth): return 1\n",
        {},
        "reward.py:2: compute_score(ground_truth, solution_str) does not accept data_source, extra_info",
    ),
    ("code-signature", "def compute_score(response): return 1\n", {"signature": "verl"}, "does not accept data_source"),
    ("code-signature", VERL, {"args": {"weight": 2}}, "does not accept weight, which rewards[0].args passes"),
    ("code-returns", VERL.replace("return 1", "return '1'"), {}, "can return text, which is no reward: rlctl scores"),
    (
        "code-returns",
        VERL.replace("return 1", "x = 1"),
        {"on_error": "stop"},
        "nothing, which is no reward: rlctl stops",
    ),
    ("code-returns", VERL.replace("1", "{'reward': 1}"), {}, "reward.py:1: compute_score can return a mapping without"),
    ("code-returns", "def compute_score(response, answer): return [1]\n", {}, "can return a list"),
    ("code-import", f"import os, nosuchmodule.part\n{VERL}", {}, "reward.py:1 imports nosuchmodule"),
    ("code-import", f"from nosuchmodule.part import x\n{VERL}", {}, "imports nosuchmodule"),
]


@pytest.mark.parametrize(("code", "text", "reward", "said"), BAD)
def test_what_is_wrong_is_named_with_its_line(
    tmp_path: Path, code: str, text: str, reward: dict[str, Any], said: str
) -> None:
    [finding] = found(tmp_path, text, **reward)
    assert (finding.code, finding.level) == (code, LEVELS[code])
    assert said in finding.message
    assert finding.hint
    assert finding.key.startswith("rewards[0]")


def is_taken(path: Path) -> bool:
    """Whether a run takes the function of a file."""
    try:
        bind(load_function(str(path), "compute_score"), "auto", {}, str(path), 1.0)
    except RlctlError:
        return False
    return True


COMPARED = [
    *(text for text in GOOD.values() if "@" not in text and "os.path" not in text),
    *(text for code, text, reward, _ in BAD if code not in ("code-import", "code-returns") and not reward),
]


@pytest.mark.parametrize("text", COMPARED)
def test_a_run_refuses_what_the_check_calls_an_error(tmp_path: Path, text: str) -> None:
    errors = found(tmp_path, text)
    assert is_taken(tmp_path / "reward.py") is not bool(errors)


def test_nothing_is_run_or_imported(tmp_path: Path) -> None:
    (tmp_path / "helper_of_reward.py").write_text("raise SystemExit('imported')\n")
    text = f"import helper_of_reward\nopen({str(tmp_path / 'ran')!r}, 'w')\n{VERL}"
    assert found(tmp_path, text) == []
    assert not (tmp_path / "ran").exists()
    assert "helper_of_reward" not in sys.modules


def test_a_dataset_class_is_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "data.py"
    path.write_text("class Rows: ...\n")
    config = config_from({"data": {"custom": {"path": str(path), "class_name": "Row"}}})
    [finding] = [item for item in check(config, more=RULES) if item.code.startswith("code-")]
    assert (finding.code, finding.key) == ("code-name", "data.custom.class_name")
    assert "did you mean 'Rows'?" in finding.hint


def test_an_operator_is_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("def keep(responses): ...\n")
    operator = {"type": "function", "path": str(path), "function": "kep"}
    config = config_from({"algorithm": {"experience_operators": ["reward_filter", operator]}})
    [finding] = [item for item in check(config, more=RULES) if item.code.startswith("code-")]
    assert (finding.code, finding.key) == ("code-name", "algorithm.experience_operators[1].function")
    assert "did you mean 'keep'?" in finding.hint
