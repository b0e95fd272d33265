"""A preference pair is two sequences with one prompt; of each only the response is counted."""

from __future__ import annotations

from typing import Any

import pytest
from datasets import Dataset

from rlctl.common.errors import PlanError, RunError
from rlctl.config import config_from
from rlctl.config.sections.data import Data, DataSource
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.data.experts import ExpertSpec, check_experts_last, expert_source
from rlctl.runtime.data.pairs import PairSet
from rlctl.runtime.data.stream import Ordering, Stream
from rlctl.runtime.specs.data import expert_spec

USER = {"role": "user", "content": "one plus two?"}
GOOD, BAD = {"role": "assistant", "content": "three"}, {"role": "assistant", "content": "four."}


def pairs(
    tokenizer: Any, *rows: dict[str, Any], max_tokens: int = 512, data: Data | None = None, **source: Any
) -> PairSet:
    made = DataSource(path="rows.jsonl", **source)
    return PairSet(
        Dataset.from_list(list(rows)), made, Chat(tokenizer), data or Data(), max_tokens=max_tokens, key="data.train[0]"
    )


@pytest.mark.parametrize(
    ("row", "source"),
    [
        ({"prompt": "one plus two?", "chosen": "three", "rejected": "four."}, {}),
        ({"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]}, {}),
        ({"prompt": [USER], "chosen": [USER, GOOD], "rejected": [USER, BAD]}, {}),
        ({"chosen": [USER, GOOD], "rejected": [USER, BAD]}, {}),
        ({"instruction": "one plus two?", "yes": "three", "no": "four."},
         {"prompt_key": "instruction", "chosen_key": "yes", "rejected_key": "no"}),
        ({"messages": [USER], "chosen": [GOOD], "rejected": [BAD]}, {"messages_key": "messages"}),
    ],
    ids=["text", "messages", "messages with the prompt", "conversations", "other columns", "trinity"],
)  # fmt: skip
def test_every_form_of_a_pair(tokenizer: Any, row: dict[str, Any], source: dict[str, Any]) -> None:
    chosen, rejected = pairs(tokenizer, row, **source)[0]
    prompt = "<|im_start|>user\none plus two?<|im_end|>\n<|im_start|>assistant\n"
    for sample, answer in ((chosen, "three"), (rejected, "four.")):
        assert tokenizer.decode(sample.token_ids[: int(sample.mask.int().argmax())]) == prompt
        assert tokenizer.decode(sample.token_ids[sample.mask]) == f"{answer}<|im_end|>"


def test_raw_text(tokenizer: Any) -> None:
    row = {"prompt": "one plus ", "chosen": "two", "rejected": "three"}
    chosen, rejected = pairs(tokenizer, row, prompt_type="raw")[0]
    assert [tokenizer.decode(each.token_ids) for each in (chosen, rejected)] == [
        "one plus two<|im_end|>",
        "one plus three<|im_end|>",
    ]


def test_a_pair_is_dropped_where_one_of_the_two_is_overlong(tokenizer: Any) -> None:
    long = "and so on and so forth " * 20
    rows = [
        {"prompt": "one plus two?", "chosen": chosen, "rejected": rejected}
        for chosen, rejected in (("three", long), ("three", "four."), (long, "four."))
    ]
    found = pairs(tokenizer, *rows, max_tokens=60, data=Data(overlong_prompts="drop"))
    assert (len(found), found.report.dropped) == (1, 2)
    assert "four." in tokenizer.decode(found[0][1].token_ids)
    with pytest.raises(RunError, match=r"1 of 3 sequences of rows.jsonl are longer than 60 tokens"):
        pairs(tokenizer, *rows, max_tokens=60)
    with pytest.raises(RunError, match="all 1 sequences"):
        pairs(tokenizer, rows[0], max_tokens=60, data=Data(overlong_prompts="drop"))


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ({"prompt": "x", "chosen": "a"}, "rejected"),
        ({"prompt": "x", "chosen": 3, "rejected": 4}, "chosen is a int; expected text or a list of messages"),
        ({"prompt": [USER], "chosen": [GOOD, USER], "rejected": [BAD]}, r"\(assistant, user\); expected one assistant"),
    ],
)
def test_rows_that_are_no_pairs_are_told(tokenizer: Any, row: dict[str, Any], wrong: str) -> None:
    with pytest.raises(RunError, match=wrong):
        pairs(tokenizer, row)


def mix(**buffer: Any) -> ExpertSpec:
    spec = expert_spec(config_from({"algorithm": {"objective": "mix"}, "buffer": {"type": "memory", **buffer}}))
    assert spec is not None
    return spec


def test_experts_are_read_from_the_auxiliary_buffer() -> None:
    given = {"path": "e.parquet", "messages_key": "messages", "settings": {"split": "train", "schema_type": "sft"}}
    source, key = expert_source(mix(auxiliary={"sft_dataset": given}))
    assert (source.path, source.messages_key, source.split) == ("e.parquet", "messages", "train")
    assert key == "buffer.auxiliary.sft_dataset"
    columns = {"prompt_key": "q", "response_key": "a", "prompt_type": "raw"}
    read = expert_source(mix(auxiliary={"sft_dataset": {"path": "e.json", **columns}}))[0]
    assert {name: getattr(read, name) for name in columns} == columns
    assert expert_source(mix(auxiliary={"other": {"path": "o.json"}}))[0].path == "o.json"
    with pytest.raises(RunError, match=r"in buffer.auxiliary.sft_dataset; the config has none"):
        expert_source(mix())
    with pytest.raises(RunError, match=r"settings.sub_set is not a known setting"):
        expert_source(mix(auxiliary={"sft_dataset": {"path": "e.json", "settings": {"sub_set": 1}}}))


def test_experts_are_not_passed_over_more_often_than_they_may_be() -> None:
    experts = mix(auxiliary={"sft_dataset": {"path": "e.json", "settings": {"total_epochs": 2}}})
    stream: Any = Stream([list(range(10))], per_step=4, ordering=Ordering(last_batch="carry"))
    check_experts_last(experts, stream, steps=5)
    with pytest.raises(PlanError, match="24 expert responses, 3 passes over 10"):
        check_experts_last(experts, stream, steps=6)
