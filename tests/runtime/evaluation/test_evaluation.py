"""Held-out prompts are answered the same however many at once, with a real engine and a real reward in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from rlctl.common.errors import RunError
from rlctl.runtime.data.tokenizer import load_tokenizer
from rlctl.runtime.evaluation.evaluation import Evaluator, HeldOut
from rlctl.runtime.evaluation.response_files import JsonLines, ParquetFile
from rlctl.runtime.processes.group import LocalGroup
from rlctl.runtime.roles import Rewards, RolloutEngines
from rlctl.runtime.specs.served import rollout_spec
from rlctl.runtime.types import Prompt, Sampling
from rlctl.runtime.workers.reward import RewardWorker
from rlctl.runtime.workers.rollout import RolloutWorker


@pytest.fixture(scope="module")
def evaluator(task: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    config = task.config(tmp_path_factory.mktemp("runs"))
    tokenizer = load_tokenizer(config.model)
    texts = [f"<user>{number}+{number}=<assistant>" for number in range(10, 17)]
    prompts = [Prompt(row, "sums", tuple(tokenizer(text).input_ids), text, "1") for row, text in enumerate(texts)]
    sampled = HeldOut("sampled", prompts, Sampling(4, stop_token_ids=(tokenizer.eos_token_id,)), 3)
    greedy = replace(sampled, name="greedy", sampling=Sampling(4, temperature=0.0), responses_per_prompt=1)
    engine = LocalGroup("rollout-0", RolloutWorker(rollout_spec(config, "transformers", config.model.path, "cpu")))
    scorer = LocalGroup("reward-0", RewardWorker(config.rewards, None))
    yield Evaluator([sampled, greedy], RolloutEngines(engine), Rewards(scorer, tokenizer), 7, None)
    engine.close()
    scorer.close()


def test_the_size_of_a_batch_changes_no_number(evaluator: Evaluator) -> None:
    whole = evaluator.run()
    assert whole == evaluator.run()
    for size in (1, 3, 7, 100):
        assert replace(evaluator, batch_prompts=size).run() == whole
    assert {name.split("/")[1] for name in whole} == {"sampled", "greedy"}
    assert 0 < whole["evaluation/sampled/length_mean"] <= 4


def test_another_seed_draws_other_responses_and_greedy_ones_stay(evaluator: Evaluator) -> None:
    def responses(seed: int) -> list[Any]:
        found = []
        engines = evaluator.rollout

        class Watched(RolloutEngines):
            def generate(self, requests: Any) -> Any:
                found.append([[each.token_ids for each in group] for group in engines.generate(requests)])
                return engines.generate(requests)

        replace(evaluator, seed=seed, rollout=Watched(LocalGroup("unused", None))).run()
        return found

    one, two = responses(7), responses(8)
    assert one[0] != two[0]
    assert one[1] == two[1]


def test_recorded_responses_are_scored_without_a_model(evaluator: Evaluator, tmp_path: Path) -> None:
    prompts = [
        Prompt(index, source, (), "", "1", {"responses": list(texts)})
        for index, (source, texts) in enumerate([("a", ("1", "2")), ("b", ("2", "3")), ("a", ("1", "1"))])
    ]
    rewards = Rewards(evaluator.rewards.group, None) if evaluator.rewards else None
    recorded = Evaluator([HeldOut("file", prompts, None)], None, rewards, 7, 2, keeper=JsonLines(tmp_path / "kept"))
    found = recorded.run(step=4)
    assert found["evaluation/file/accuracy"] == found["evaluation/file/reward"] == 0.5
    assert (found["evaluation/file/a/accuracy"], found["evaluation/file/b/accuracy"]) == (0.75, 0.0)
    assert (found["evaluation/file/pass@2"], found["evaluation/file/b/pass@2"]) == (pytest.approx(2 / 3), 0.0)
    assert "evaluation/file/length_mean" not in found
    lines = [json.loads(line) for line in (tmp_path / "kept" / "4.jsonl").read_text().splitlines()]
    assert [(line["output"], line["score"], line["step"]) for line in lines[:3]] == [
        ("1", 1.0, 4),
        ("2", 0.0, 4),
        ("2", 0.0, 4),
    ]


def test_responses_are_written_beside_the_rows_that_asked(evaluator: Evaluator, tmp_path: Path) -> None:
    one = Dataset.from_dict({"prompt": [f"p{i}" for i in range(7)], "extra": [{"a": i} for i in range(7)]})
    two = Dataset.from_dict({"prompt": [f"q{i}" for i in range(7)], "other": list(range(7))})
    tables = [
        lambda start, stop, rows=rows: rows.select(range(start, stop)).with_format("arrow")[:] for rows in (one, two)
    ]
    path = tmp_path / "out" / "responses.parquet"
    keeper = ParquetFile(path, tables, scored=True)
    source = replace(evaluator.sources[0], responses_per_prompt=2)
    tokenizer = evaluator.rewards.tokenizer if evaluator.rewards else None
    written = replace(
        evaluator, sources=[source, replace(source, name="b")], batch_prompts=3, tokenizer=tokenizer, keeper=keeper
    )
    assert not path.exists()
    written.run()
    rows = Dataset.from_parquet(str(path), cache_dir=str(tmp_path))
    assert rows.column_names == ["prompt", "extra", "other", "responses", "rewards"]
    assert list(rows["prompt"]) == [*one["prompt"], *two["prompt"]]
    assert rows[3]["extra"] == {"a": 3}
    assert rows[10]["other"] == 3
    assert all(
        len(texts) == len(rewards) == 2 for texts, rewards in zip(rows["responses"], rows["rewards"], strict=True)
    )
    assert any(text for texts in rows["responses"] for text in texts)
    with pytest.raises(RunError, match="already has a column 'responses'"):
        ParquetFile(path, [lambda start, stop: rows.select(range(start, stop)).with_format("arrow")[:]], scored=False)
