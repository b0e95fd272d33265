"""The rewards of the guides from verl give a function of verl's all that it reads, and return one number."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

GUIDES = Path(__file__).parents[2] / "docs" / "migrate"
ROW = {
    "data_source": "my/sums",
    "prompt": [{"role": "user", "content": "What is 20 + 22?"}],
    "reward_model": {"style": "rule", "ground_truth": "42"},
    "extra_info": {"index": 7, "bonus": 0.5},
}


def _block(target: str, wanted: str) -> str:
    text = (GUIDES / f"verl-to-{target}.md").read_text(encoding="utf-8")
    (found,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if wanted in block]
    return str(found)


def _rows_of_verl(folder: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (folder / "data" / "verl").mkdir(parents=True)
    for split in ("train", "test"):
        pq.write_table(pa.Table.from_pylist([ROW]), folder / "data" / "verl" / f"{split}.parquet")


def _score(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compute_score: Any, response: str) -> Any:
    """What the class of the guide returns for the row of the guide's script, with Trinity's base class and registry."""
    monkeypatch.chdir(tmp_path)
    _rows_of_verl(tmp_path)
    exec(_block("trinity", 'Path("data/trinity")'), {})
    pq = pytest.importorskip("pyarrow.parquet")
    (row,) = pq.read_table("data/trinity/train.parquet").to_pylist()

    registry = types.SimpleNamespace(register_module=lambda name: lambda cls: cls)
    rewards = types.SimpleNamespace(REWARD_FUNCTIONS=registry, RewardFn=object)
    for name, module in (
        ("reward", types.SimpleNamespace(compute_score=compute_score)),
        ("trinity", types.SimpleNamespace()),
        ("trinity.common", types.SimpleNamespace()),
        ("trinity.common.rewards", rewards),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    scope: dict[str, Any] = {}
    exec(_block("trinity", "REWARD_FUNCTIONS.register_module"), scope)
    return scope["MyReward"]()(response=response, truth=row["ground_truth"])


def test_a_reward_that_reads_extra_info_gets_that_of_its_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> float:
        assert (data_source, extra_info["index"]) == ("my/sums", 7)
        return float(solution_str.endswith(ground_truth)) + extra_info["bonus"]

    assert _score(monkeypatch, tmp_path, compute_score, "It is 42") == {"score": 1.5}


def test_a_dictionary_gives_its_score_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> Any:
        return {"score": True, "acc": 1.0, "pred": solution_str}

    made = _score(monkeypatch, tmp_path, compute_score, "42")
    assert made == {"score": 1.0}
    assert sum(made.values()) == 1.0


def test_the_worker_for_roll_passes_the_row_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    _rows_of_verl(tmp_path)
    exec(_block("roll", 'open("data/roll/train.jsonl"'), {})
    row = json.loads((tmp_path / "data" / "roll" / "train.jsonl").read_text())

    def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> Any:
        return {"score": float(solution_str == ground_truth) + extra_info["bonus"], "acc": data_source}

    def same(**_: Any) -> Any:
        return lambda function: function

    empty = types.SimpleNamespace
    modules = {
        "reward": empty(compute_score=compute_score),
        "roll.distributed.executor.worker": empty(Worker=object),
        "roll.distributed.scheduler.decorator": empty(Dispatch=empty(ONE_TO_ALL=0, DP_MP_COMPUTE=1), register=same),
        "roll.distributed.scheduler.protocol": empty(DataProto=empty(from_dict=lambda tensors: tensors)),
        "roll.models.model_providers": empty(default_tokenizer_provider=None),
    }
    for name in ("roll", "roll.distributed", "roll.distributed.executor", "roll.distributed.scheduler", "roll.models"):
        modules[name] = empty()
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    scope: dict[str, Any] = {}
    exec(_block("roll", "class MyRewardWorker"), scope)
    worker = scope["MyRewardWorker"].__new__(scope["MyRewardWorker"])
    worker.tokenizer = empty(batch_decode=lambda responses, **_: ["42", "41"])
    columns = {name: [row[name]] * 2 for name in ("ground_truth", "tag", "extra_info")}
    made = worker.compute_rewards(empty(batch={"responses": torch.zeros(2, 3)}, non_tensor_batch=columns))
    assert made["scores"].tolist() == [1.5, 0.5]
