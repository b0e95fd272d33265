"""Ported rewards, as each framework's own reader and reward classes call them, give the numbers of the source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlctl.porting.assemble import port
from rlctl.porting.proof import prove
from rlctl.translation.translate import read_many
from tests.porting import runs

from .frameworks import CHECKOUT, ENVIRONMENTS

pytestmark = pytest.mark.upstream


FILES = {"run.sh": "verl", "trinity.yaml": "trinity", "roll.yaml": "roll", "own.yaml": "rlctl"}
PLUGINS = {"trinity.yaml": Path("plugins"), "roll.yaml": Path()}
ENVIRONMENT = {"verl": "verl-0.9.1", "trinity": "trinity-0.6.0", "roll": "roll"}
PAIRS = [(file, target) for file, source in FILES.items() for target in (*ENVIRONMENT, "rlctl") if source != target]


@pytest.mark.parametrize(("file", "target"), PAIRS)
def test_the_proof_of_a_port_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, target: str) -> None:
    python = Path(sys.executable)
    if target != "rlctl":
        python = ENVIRONMENTS / ENVIRONMENT[target] / "bin" / "python"
    if not python.exists() or (target == "roll" and not CHECKOUT):
        pytest.skip(f"no {target} here: make test-upstream installs it")
    monkeypatch.chdir(tmp_path)
    runs.write(tmp_path)
    if target == "roll":
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (CHECKOUT, os.environ.get("PYTHONPATH")))))
    loaded, report = read_many([file])
    assert loaded is not None
    port(loaded, report, target, tmp_path / "out", file=file, here=tmp_path, plugins=PLUGINS.get(file))
    found = prove(tmp_path / "out", str(python))
    assert isinstance(found, dict), found
    assert found["problems"] == []
    checks = {check["check"]: check for check in found["checks"]}
    assert set(checks) == {"config", "rows", "batch", "messages", "tokens", "rewards"}
    assert checks["rewards"]["lowest"] < checks["rewards"]["highest"]


MATH_OF_ROLL = "roll.pipeline.rlvr.rewards.math_rule_reward_worker.MathRuleRewardWorker"
SOURCES = {
    "trinity.yaml": ["trinity.yaml", "plugins"],
    "roll.yaml": ['words=my_workers.words.WordsWorker={"format_pattern": "so"}', f"sums={MATH_OF_ROLL}={{}}"],
}


@pytest.mark.parametrize("file", SOURCES)
def test_the_classes_of_the_source_give_the_rewards_of_the_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    source = FILES[file]
    python = ENVIRONMENTS / ENVIRONMENT[source] / "bin" / "python"
    if not python.exists() or (source == "roll" and not CHECKOUT):
        pytest.skip(f"no {source} here: make test-upstream installs it")
    monkeypatch.chdir(tmp_path)
    runs.write(tmp_path)
    Path("sums/train.jsonl").write_text('{"q": "20 + 1?", "a": "21"}\n' * 2)  # a date is no text in Trinity-RFT
    loaded, report = read_many([file])
    assert loaded is not None
    port(loaded, report, "verl", tmp_path / "out", file=file, here=tmp_path, plugins=PLUGINS.get(file))
    around = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    around["PYTHONPATH"] = os.pathsep.join(filter(None, (CHECKOUT, str(tmp_path))))
    words = [str(python), str(Path(__file__).parent / "drive_port_source.py"), source, "out", *SOURCES[file]]
    done = subprocess.run(words, env=around, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.strip().splitlines()[-1])
    assert [each for each in told if abs(each[0] - each[1]) > 1e-6] == []
    assert len({each[0] for each in told}) > 1
