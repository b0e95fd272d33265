"""Supervised training learns the assistant's words and the token that ends them, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from datasets import Dataset

from rlctl.common.errors import RunError
from rlctl.config.sections.data import Data, DataSource
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.data.sft import SampleSet
from rlctl.runtime.types import Sample

TALK = [
    {"role": "system", "content": "hello"},
    {"role": "user", "content": "one plus two?"},
    {"role": "assistant", "content": "three"},
    {"role": "user", "content": "two plus two?"},
    {"role": "assistant", "content": "four."},
]


def samples(
    tokenizer: Any, row: dict[str, Any], *, max_tokens: int = 512, data: Data | None = None, **source: Any
) -> SampleSet:
    rows = Dataset.from_list([row])
    made = DataSource(path="rows.jsonl", **source)
    return SampleSet(rows, made, Chat(tokenizer), data or Data(), max_tokens=max_tokens, key="data.train[0]")


def learnt(tokenizer: Any, sample: Sample) -> str:
    return tokenizer.decode(sample.token_ids[sample.mask])


def test_all_turns_are_those_that_transformers_marks(tokenizer: Any) -> None:
    sample = samples(tokenizer, {"messages": TALK}, messages_key="messages")[0]
    upstream = tokenizer.apply_chat_template(TALK, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    whole = upstream["input_ids"]
    assert sample.token_ids.tolist() == whole[: len(sample)]
    assert tokenizer.decode(whole[len(sample) :]) in ("", "\n")
    assert sample.mask.int().tolist() == upstream["assistant_masks"][: len(sample)]
    assert learnt(tokenizer, sample) == "three<|im_end|>four.<|im_end|>"


def test_last_turn_only(tokenizer: Any) -> None:
    data = Data(multi_turn_loss="last_assistant")
    sample = samples(tokenizer, {"messages": TALK}, messages_key="messages", data=data)[0]
    assert learnt(tokenizer, sample) == "four.<|im_end|>"


def test_turns_after_the_last_answer_are_left_out(tokenizer: Any) -> None:
    row = {"messages": [*TALK, {"role": "user", "content": "more"}]}
    assert "more" not in tokenizer.decode(samples(tokenizer, row, messages_key="messages")[0].token_ids)


def test_prompt_and_response_columns(tokenizer: Any) -> None:
    sample = samples(tokenizer, {"prompt": "one plus two?", "response": "three"})[0]
    assert learnt(tokenizer, sample) == "three<|im_end|>"
    before = tokenizer.decode(sample.token_ids[~sample.mask])
    assert before.startswith("<|im_start|>user\none plus two?<|im_end|>\n<|im_start|>assistant\n")


def test_messages_that_end_with_the_response(tokenizer: Any) -> None:
    assert learnt(tokenizer, samples(tokenizer, {"prompt": TALK[1:3]})[0]) == "three<|im_end|>"


def test_raw_text_gets_the_end_token(tokenizer: Any) -> None:
    sample = samples(tokenizer, {"prompt": "one plus ", "out": "two"}, prompt_type="raw", response_key="out")[0]
    assert tokenizer.decode(sample.token_ids) == "one plus two<|im_end|>"
    assert learnt(tokenizer, sample) == "two<|im_end|>"


def test_a_template_that_ends_turns_with_nothing_gets_the_end_token_last(tokenizer: Any) -> None:
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m['content'] }}]{% endfor %}{% if add_generation_prompt %}[{% endif %}"
    )
    assert learnt(tokenizer, samples(tokenizer, {"prompt": "x", "response": "yes"})[0]) == "yes]<|im_end|>"


def test_a_template_that_changes_earlier_turns_is_refused_where_they_are_learnt(tokenizer: Any) -> None:
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
        "{% if m['role'] == 'assistant' and loop.last %}<think></think>{% endif %}{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    with pytest.raises(RunError, match=r"message 2 .*\n.*last_assistant"):
        samples(tokenizer, {"messages": TALK}, messages_key="messages")
    data = Data(multi_turn_loss="last_assistant")
    last = samples(tokenizer, {"messages": TALK}, messages_key="messages", data=data)[0]
    assert learnt(tokenizer, last) == "<think></think>four.<|im_end|>"


def test_overlong_sequences(tokenizer: Any) -> None:
    row = {"messages": TALK}
    whole = samples(tokenizer, row, messages_key="messages")[0]
    with pytest.raises(RunError, match=r"1 of 1 sequences of rows\.jsonl are longer than 12 tokens"):
        samples(tokenizer, row, messages_key="messages", max_tokens=12)
    for side, kept in (("left", slice(-12, None)), ("right", slice(12))):
        data = Data(sequence_truncation=side)  # type: ignore[arg-type]
        made = samples(tokenizer, row, messages_key="messages", max_tokens=12, data=data)
        assert made[0].token_ids.tolist() == whole.token_ids[kept].tolist()
        assert made[0].mask[1:].tolist() == whole.mask[kept][1:].tolist()
        assert made.report.cut == 1


def test_the_first_token_is_never_learnt(tokenizer: Any) -> None:
    sample = samples(tokenizer, {"prompt": "", "response": "yes"}, prompt_type="raw")[0]
    assert tokenizer.decode(sample.token_ids) == "yes<|im_end|>"
    assert not sample.mask[0]
    assert sample.mask[1:].all()


def test_a_conversation_without_an_answer(tokenizer: Any) -> None:
    with pytest.raises(RunError, match="no assistant message to train on"):
        samples(tokenizer, {"prompt": TALK[:2]})
    with pytest.raises(RunError, match="starts with an assistant message"):
        samples(tokenizer, {"prompt": TALK[2:]})
    with pytest.raises(RunError, match=r"no column 'reponse'"):
        samples(tokenizer, {"prompt": "x", "response": "y"}, response_key="reponse")
