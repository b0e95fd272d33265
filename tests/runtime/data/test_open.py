"""The data section of a config becomes streams and held-out sets that follow its every key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlctl.config import Config, config_from
from rlctl.runtime.data.open import open_evaluation, open_prompt_stream, open_sft_stream


def config(folder: Path, **data: Any) -> Config:
    for name, count in (("a", 6), ("b", 4)):
        rows = [{"prompt": f"{name}{i}", "answer": i, "response": "yes", "hard": -i} for i in range(count)]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    sources = {"train": [{"path": str(folder / f"{name}.jsonl")} for name in "ab"], "max_prompt_tokens": 64}
    return config_from({"rlctl": 1, "data": {**sources, **data}, "batch": {"prompts_per_step": 5}})


def test_sources_mix_and_have_indices_of_their_own(tmp_path: Path, tokenizer: Any) -> None:
    stream, reports = open_prompt_stream(config(tmp_path), tokenizer)
    drawn = stream.next_batch() + stream.next_batch()
    assert sorted(prompt.index for prompt in drawn) == list(range(10))
    assert {(p.source, p.answer) for p in drawn} == {("a", i) for i in range(6)} | {("b", i) for i in range(4)}
    assert [(report.name, report.rows) for report in reports] == [("a", 6), ("b", 4)]


def test_the_seed_is_the_datas_or_the_runs(tmp_path: Path, tokenizer: Any) -> None:
    def first(**data: Any) -> list[int]:
        return [p.index for p in open_prompt_stream(config(tmp_path, **data), tokenizer)[0].next_batch()]

    assert first() == first(seed=42) != first(seed=43)


def test_easy_to_hard_reads_its_columns(tmp_path: Path, tokenizer: Any) -> None:
    curriculum = {"order": "easy_to_hard", "keys": ["hard"]}
    one = config(tmp_path, train=[{"path": str(tmp_path / "a.jsonl")}], curriculum=curriculum)
    assert [p.index for p in open_prompt_stream(one, tokenizer)[0].next_batch()] == [5, 4, 3, 2, 1]


def test_held_out_sets(tmp_path: Path, tokenizer: Any) -> None:
    held = [{"path": str(tmp_path / "a.jsonl"), "name": "held", "responses_per_prompt": 2, "max_samples": 3}]
    (opened,), _ = open_evaluation(config(tmp_path, eval=held), tokenizer)
    assert (opened.name, opened.source.responses_per_prompt) == ("held", 2)
    assert [prompt.answer for prompt in opened.prompts] == [0, 1, 2]
    whole = [{"path": str(tmp_path / "a.jsonl")}]
    (shuffled,), _ = open_evaluation(config(tmp_path, eval=whole, shuffle_evaluation=True), tokenizer)
    assert sorted(prompt.answer for prompt in shuffled.prompts) == list(range(6))
    assert [prompt.answer for prompt in shuffled.prompts] != list(range(6))


def test_supervised_stream_and_its_default_limit(tmp_path: Path, tokenizer: Any) -> None:
    stream, reports = open_sft_stream(config(tmp_path), tokenizer)
    batch = stream.next_batch()
    assert len(batch) == 5
    assert all(tokenizer.decode(s.token_ids[s.mask]) == "yes<|im_end|>" for s in batch)
    assert sum(report.rows for report in reports) == 10
