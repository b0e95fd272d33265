"""The data section of a config becomes streams and held-out sets that follow its every key."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.config import config_from
from rlctl.runtime.data.open import DataSpec, open_evaluation, open_prompt_stream, open_sft_stream
from rlctl.runtime.specs.data import data_spec


def opened_with(folder: Path, objective: str = "rl", **data: Any) -> DataSpec:
    for name, count in (("a", 6), ("b", 4)):
        rows = [
            {"prompt": f"{name}{i}", "answer": i, "response": "yes", "hard": -i, "weak": 0.1 * i, "strong": 1.0}
            for i in range(count)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    sources = {"train": [{"path": str(folder / f"{name}.jsonl")} for name in "ab"], "max_prompt_tokens": 64}
    algorithm, batch = {"objective": objective}, {"prompts_per_step": 5}
    return data_spec(config_from({"data": {**sources, **data}, "algorithm": algorithm, "batch": batch}))


def test_sources_mix_and_have_indices_of_their_own(tmp_path: Path, tokenizer: Any) -> None:
    stream, reports = open_prompt_stream(opened_with(tmp_path), tokenizer)
    drawn = stream.next_batch() + stream.next_batch()
    assert sorted(prompt.index for prompt in drawn) == list(range(10))
    assert {(p.source, p.answer) for p in drawn} == {("a", i) for i in range(6)} | {("b", i) for i in range(4)}
    assert [(report.name, report.rows) for report in reports] == [("a", 6), ("b", 4)]


@pytest.mark.parametrize("opens", [open_prompt_stream, open_evaluation])
def test_prompts_that_leave_a_response_no_room_are_refused_before_the_run(
    tmp_path: Path, tokenizer: Any, opens: Any
) -> None:
    spec = opened_with(tmp_path, eval=[{"path": str(tmp_path / "a.jsonl")}])
    longest = max(len(prompt.token_ids) for prompt in open_prompt_stream(spec, tokenizer)[0].next_batch())
    opens(replace(spec, context_tokens=longest + 9, max_response_tokens=9), tokenizer)
    with pytest.raises(RunError, match=f"has {longest} tokens; .* = 10 that is {longest + 10}, but only") as refused:
        opens(replace(spec, context_tokens=longest + 9, max_response_tokens=10), tokenizer)
    assert refused.value.hint == "set rollout.max_response_tokens to at most 9"


def test_the_context_is_that_of_the_config_or_of_the_model(tmp_path: Path) -> None:
    def limit(**model: Any) -> int | None:
        config = {"model": {"path": str(tmp_path), **model}, "rollout": {"max_response_tokens": 7}}
        return data_spec(config_from(config)).context_tokens

    shape = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    known = {"model_type": "qwen2", "vocab_size": 64, "max_position_embeddings": 128, "num_key_value_heads": 2, **shape}
    (tmp_path / "config.json").write_text(json.dumps(known))
    assert limit() == 128
    assert limit(max_context_tokens=64) == 64
    assert limit(rope={"scaling": {"rope_type": "yarn", "factor": 4.0}}) is None
    (tmp_path / "config.json").write_text(json.dumps({**known, "rope_parameters": {"rope_type": "default"}}))
    assert limit() == 128
    (tmp_path / "config.json").write_text(json.dumps({**known, "rope_scaling": {"type": "yarn", "factor": 4.0}}))
    assert limit() is None


def test_the_seed_is_the_datas_or_the_runs(tmp_path: Path, tokenizer: Any) -> None:
    def first(**data: Any) -> list[int]:
        return [p.index for p in open_prompt_stream(opened_with(tmp_path, **data), tokenizer)[0].next_batch()]

    assert first() == first(seed=42) != first(seed=43)


def test_easy_to_hard_reads_its_columns(tmp_path: Path, tokenizer: Any) -> None:
    curriculum = {"order": "easy_to_hard", "keys": ["hard"]}
    one = opened_with(tmp_path, train=[{"path": str(tmp_path / "a.jsonl")}], curriculum=curriculum)
    assert [p.index for p in open_prompt_stream(one, tokenizer)[0].next_batch()] == [0, 1, 2, 3, 4]


def test_difficulty_reads_its_columns_and_arguments(tmp_path: Path, tokenizer: Any) -> None:
    curriculum = {"order": "difficulty", "keys": ["weak", "strong"], "args": {"tau": 0, "target_reward": 0.5}}
    stream, _ = open_prompt_stream(opened_with(tmp_path, curriculum=curriculum), tokenizer)
    first = [p.index for p in stream.next_batch()]
    stream.feedback(dict.fromkeys(first, 0.0))
    assert not set(first) & {p.index for p in stream.next_batch()}, "what is never passed is far from the target"


def test_an_order_that_cannot_be_measured_is_refused(tmp_path: Path, tokenizer: Any) -> None:
    def refusal(**curriculum: Any) -> str:
        with pytest.raises(RunError) as refused:
            open_prompt_stream(opened_with(tmp_path, curriculum=curriculum), tokenizer)
        return str(refused.value)

    pair = ["weak", "strong"]
    assert "names 1 columns; it takes two" in refusal(order="difficulty", keys=["weak"])
    assert "has no argument tua" in refusal(order="difficulty", keys=pair, args={"tua": 1})
    assert "args.do_sample is 1; expected true or false" in refusal(
        order="difficulty", keys=pair, args={"do_sample": 1}
    )
    assert "args are only for the order difficulty" in refusal(order="shuffle", args={"tau": 1})
    measured = opened_with(tmp_path, "sft", curriculum={"order": "difficulty", "keys": pair})
    with pytest.raises(RunError, match="sft has no rewards"):
        open_sft_stream(measured, tokenizer)


def test_held_out_sets(tmp_path: Path, tokenizer: Any) -> None:
    held = [{"path": str(tmp_path / "a.jsonl"), "name": "held", "responses_per_prompt": 2, "max_samples": 3}]
    (opened,), _ = open_evaluation(opened_with(tmp_path, eval=held), tokenizer)
    assert (opened.name, opened.source.responses_per_prompt) == ("held", 2)
    assert [prompt.answer for prompt in opened.prompts] == [0, 1, 2]
    whole = [{"path": str(tmp_path / "a.jsonl")}]
    (shuffled,), _ = open_evaluation(opened_with(tmp_path, eval=whole, shuffle_evaluation=True), tokenizer)
    assert sorted(prompt.answer for prompt in shuffled.prompts) == list(range(6))
    assert [prompt.answer for prompt in shuffled.prompts] != list(range(6))


def test_supervised_stream_and_its_default_limit(tmp_path: Path, tokenizer: Any) -> None:
    stream, reports = open_sft_stream(opened_with(tmp_path), tokenizer)
    batch = stream.next_batch()
    assert len(batch) == 5
    assert all(tokenizer.decode(s.token_ids[s.mask]) == "yes<|im_end|>" for s in batch)
    assert sum(report.rows for report in reports) == 10


def opened_by_domain(folder: Path, weights: dict[str, float], *, per_step: int = 8, **data: Any) -> DataSpec:
    """Two files with rows of three tags in turn, and two rewards with one tag each."""
    for name, count in (("a", 12), ("b", 9)):
        rows = [
            {
                "prompt": f"{name}{i}",
                "answer": i,
                "tag": ("math", "code", "chat")[i % 3],
                "weak": 0.1 * i / 2,
                "strong": 1.0,
            }
            for i in range(count)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    sources = [{"path": str(folder / f"{name}.jsonl"), "tag_key": "tag"} for name in "ab"]
    rewards = [{"type": "rule", "name": name, "applies_to": [name]} for name in ("code", "math")]
    section = {"train": sources, "max_prompt_tokens": 64, "domain_weights": weights, **data}
    return data_spec(config_from({"data": section, "rewards": rewards, "batch": {"prompts_per_step": per_step}}))


def tags(batch: list[Any]) -> list[str]:
    return [prompt.extra["tag"] for prompt in batch]


def test_domain_weights_split_each_batch_by_the_reward_of_its_rows(tmp_path: Path, tokenizer: Any) -> None:
    """Shares of 0.7 and 0.3 of 8 prompts: int(5.6), and the rest to the last; rows of neither reward are not drawn."""
    stream, reports = open_prompt_stream(opened_by_domain(tmp_path, {"math": 0.7, "code": 0.3}), tokenizer)
    batches = [stream.next_batch() for _ in range(6)]
    assert all(tags(batch) == ["math"] * 5 + ["code"] * 3 for batch in batches)
    assert stream.rows == 14
    assert [(report.rows, report.undrawn) for report in reports] == [(8, 4), (6, 3)]
    assert "4 of no reward in data.domain_weights not used" in str(reports[0])
    drawn = [prompt for batch in batches for prompt in batch]
    assert {(p.source, p.answer) for p in drawn} == {
        (name, i) for name, count in (("a", 12), ("b", 9)) for i in range(count) if i % 3 < 2
    }
    assert {p.index for p in drawn} == set(range(14))
    assert len({(p.index, p.text) for p in drawn}) == 14
    even, _ = open_prompt_stream(opened_by_domain(tmp_path, {"math": 1, "code": 1}), tokenizer)
    assert tags(even.next_batch()) == ["math"] * 4 + ["code"] * 4


@pytest.mark.parametrize(
    "order",
    [
        {"order": "shuffle"},
        {"order": "easy_to_hard", "keys": ["weak"]},
        {"order": "difficulty", "keys": ["weak", "strong"]},
    ],
)
def test_a_resumed_run_draws_the_same_rows_of_each_domain(tmp_path: Path, tokenizer: Any, order: Any) -> None:
    spec = opened_by_domain(tmp_path, {"math": 2, "code": 1}, per_step=5, curriculum=order)
    whole, resumed = open_prompt_stream(spec, tokenizer)[0], open_prompt_stream(spec, tokenizer)[0]
    for _ in range(4):
        whole.feedback({prompt.index: 0.25 for prompt in whole.next_batch()})
    resumed.restore(json.loads(json.dumps(whole.state())))
    for _ in range(6):
        batch = whole.next_batch()
        assert resumed.next_batch() == batch
        for each in (whole, resumed):
            each.feedback({prompt.index: 0.5 for prompt in batch})
    other = opened_by_domain(tmp_path, {"math": 1, "code": 1}, per_step=5, curriculum=order)
    with pytest.raises(RunError, match="weights: was"):
        open_prompt_stream(other, tokenizer)[0].restore(whole.state())


def test_a_domain_that_draws_nothing_is_refused(tmp_path: Path, tokenizer: Any) -> None:
    spec = opened_by_domain(tmp_path, {"math": 1, "code": 0.01})
    with pytest.raises(RunError, match=r"weighs code, but no training row .* the rows are of a, b"):
        open_prompt_stream(replace(spec, section=replace(spec.section, train=without_tags(spec))), tokenizer)
    narrow = opened_by_domain(tmp_path, {"code": 0.01, "math": 1})
    with pytest.raises(RunError, match=r"data\.domain_weights\.code gets 0\.0099 of 8 prompts: none"):
        open_prompt_stream(narrow, tokenizer)


def without_tags(spec: DataSpec) -> Any:
    first, second = spec.section.train
    return replace(first, reward="math", tag_key=None), replace(second, tag_key=None)


def test_a_reward_for_all_rows_takes_what_the_others_leave(tmp_path: Path, tokenizer: Any) -> None:
    spec = opened_by_domain(tmp_path, {"all": 0.5, "code": 0.5})
    rewards = config_from(
        {"rewards": [{"type": "rule", "name": "all"}, {"type": "rule", "name": "code", "applies_to": ["code"]}]}
    ).rewards
    stream, _ = open_prompt_stream(replace(spec, rewards=rewards), tokenizer)
    drawn = [stream.next_batch() for _ in range(9)]
    assert {tag for batch in drawn for tag in tags(batch[:4])} == {"math", "chat"}
    assert {tag for batch in drawn for tag in tags(batch[4:])} == {"code"}
