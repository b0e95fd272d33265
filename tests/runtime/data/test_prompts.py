"""A row becomes the very tokens that the tokenizer's chat template gives, and no prompt is truncated or dropped in silence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from datasets import Dataset

from rlctl.common.errors import RunError
from rlctl.config.sections.data import DataSource
from rlctl.runtime.data.chat import AgentPrompt, Chat
from rlctl.runtime.data.prompts import Limits, PromptSet, cut

USER = [{"role": "user", "content": "what is one plus two?"}]


def prompts(tokenizer: Any, rows: list[dict[str, Any]], limits: Limits | None = None, **source: Any) -> PromptSet:
    return PromptSet(
        Dataset.from_list(rows),
        DataSource(path="rows.jsonl", **source),
        Chat(tokenizer),
        limits or Limits(512),
        key="data.train[0]",
    )


def test_messages_are_the_templates_tokens(tokenizer: Any) -> None:
    made = prompts(tokenizer, [{"prompt": USER}])[0]
    expected = tokenizer.apply_chat_template(USER, add_generation_prompt=True, tokenize=True)["input_ids"]
    assert list(made.token_ids) == expected
    assert made.text == tokenizer.decode(expected)


def test_text_is_put_in_a_user_message_and_raw_is_not(tokenizer: Any) -> None:
    rows = [{"prompt": USER[0]["content"]}]
    assert prompts(tokenizer, rows)[0] == prompts(tokenizer, [{"prompt": USER}])[0]
    assert list(prompts(tokenizer, rows, prompt_type="raw")[0].token_ids) == tokenizer(rows[0]["prompt"])["input_ids"]


def test_messages_as_json_text(tokenizer: Any) -> None:
    made = prompts(tokenizer, [{"prompt": json.dumps(USER)}], prompt_type="messages")[0]
    assert made.token_ids == prompts(tokenizer, [{"prompt": USER}])[0].token_ids


def test_fields_that_arrow_fills_in_do_not_reach_the_template(tokenizer: Any) -> None:
    rows = [{"prompt": USER}, {"prompt": [{"role": "user", "content": "x", "name": "bob"}]}]
    tokenizer.chat_template = "{% for m in messages %}{{ m.items() | list | length }} {% endfor %}"
    assert [p.text for p in prompts(tokenizer, rows)] == ["2 ", "3 "]


def test_system_prompts(tokenizer: Any) -> None:
    rows = [{"prompt": "x", "sys": "mine"}, {"prompt": "x", "sys": None}]
    texts = [p.text for p in prompts(tokenizer, rows, system_prompt="common", system_prompt_key="sys")]
    assert ["system\nmine<" in texts[0], "system\ncommon<" in texts[1]] == [True, True]
    with pytest.raises(RunError, match=r"row 0 of rows\.jsonl, prompt starts with its own system message"):
        prompts(tokenizer, [{"prompt": [{"role": "system", "content": "own"}, *USER]}], system_prompt="common")


def test_template_arguments_and_tools_reach_the_template(tokenizer: Any) -> None:
    rows = Dataset.from_list([{"prompt": "x", "tools": json.dumps([{"name": "calculator"}])}])
    source = DataSource(path="r", tools_key="tools")
    chat = Chat(tokenizer, template_args={"no_think": True})
    assert PromptSet(rows, source, chat, Limits(99), key="k")[0].text.endswith("<think></think>")
    tokenizer.chat_template = "{{ tools[0]['name'] }}"
    assert PromptSet(rows, source, chat, Limits(99), key="k")[0].text == "calculator"


def test_a_row_names_its_agent_whose_tools_its_prompt_shows(tokenizer: Any) -> None:
    rows = Dataset.from_list(
        [{"prompt": "x", "who": "solver"}, {"prompt": "x", "who": None}, {"prompt": "x", "who": "other"}]
    )
    tokenizer.chat_template = "{{ tools[0]['name'] if tools else 'none' }}"
    agents = {"solver": AgentPrompt([{"name": "calculator"}])}
    chat = Chat(tokenizer, default=AgentPrompt([{"name": "default"}]), agents=agents)
    found = PromptSet(rows, DataSource(path="r", agent_key="who"), chat, Limits(99), key="k")
    assert [(each.extra.get("agent"), each.text) for each in found] == [
        ("solver", "calculator"),
        (None, "default"),
        ("other", "none"),
    ]
    named = PromptSet(rows, DataSource(path="r", agent="solver", agent_key="who"), chat, Limits(99), key="k")
    assert [each.extra["agent"] for each in named] == ["solver", "solver", "other"]


def test_rows_choose_among_the_tools_of_their_agent_and_give_them_arguments(tokenizer: Any) -> None:
    schemas = [{"function": {"name": name}} for name in ("add", "look")]
    shown = AgentPrompt(schemas, "Use tools.", "extra_info.tool_selection", "extra_info.tools_kwargs")
    given = {"look": {"create_kwargs": {"page": 3}}, "add": None}
    rows = [
        {"prompt": "x", "extra_info": {"tool_selection": ["look"], "tools_kwargs": given}},
        {"prompt": "x", "extra_info": {"tool_selection": None, "tools_kwargs": {"look": {"page": 4}}}},
    ]
    tokenizer.chat_template = "{{ messages[0].content }}{% for t in tools %} {{ t.function.name }}{% endfor %}"
    chat = Chat(tokenizer, default=shown)
    found = PromptSet(Dataset.from_list(rows), DataSource(path="r"), chat, Limits(99), key="k")
    assert [each.text for each in found] == ["Use tools. look", "Use tools. add look"]
    assert found[0].extra["tools"] == ["look"]
    assert [each.extra["tool_args"]["look"]["page"] for each in found] == [3, 4]
    rows[0]["extra_info"]["tool_selection"] = ["loook"]
    with pytest.raises(RunError, match="'loook'; the agent has add, look"):
        PromptSet(Dataset.from_list(rows), DataSource(path="r"), chat, Limits(99), key="k")


def test_no_template_and_a_template_that_refuses(tokenizer: Any) -> None:
    tokenizer.chat_template = None
    with pytest.raises(RunError, match="no chat template"):
        prompts(tokenizer, [{"prompt": "x"}])
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(RunError, match=r"rejects the messages \(user\): roles must alternate"):
        prompts(tokenizer, [{"prompt": "x"}])


@pytest.mark.parametrize(
    ("row", "answer"),
    [
        ({"reward_model": {"ground_truth": "a", "style": "rule"}, "ground_truth": "b", "answer": "c"}, "a"),
        ({"reward_model": {"style": "rule"}, "ground_truth": "b", "answer": "c"}, "b"),
        ({"answer": "c"}, "c"),
        ({}, None),
    ],
)
def test_where_the_answer_is_found(tokenizer: Any, row: dict[str, Any], answer: str | None) -> None:
    assert prompts(tokenizer, [{"prompt": "x", **row}])[0].answer == answer


def test_a_named_answer_column(tokenizer: Any) -> None:
    row = {"prompt": "x", "solution": {"final": 4}, "answer": 5}
    assert prompts(tokenizer, [row], answer_key="solution.final")[0].answer == 4
    with pytest.raises(RunError, match=r"no column 'solutoin'.*\n.*data\.train\[0\]\.answer_key"):
        prompts(tokenizer, [row], answer_key="solutoin")
    with pytest.raises(RunError, match="no column 'fin'"):
        prompts(tokenizer, [row], answer_key="solution.fin")[0]


def test_source_tag_and_extra(tokenizer: Any) -> None:
    row = {"prompt": "x", "data_source": "gsm8k", "kind": "easy", "extra_info": {"level": 3}}
    made = prompts(tokenizer, [row], tag_key="kind", reward="mine", reward_args={"a": 1})[0]
    assert made.source == "gsm8k"
    assert made.extra == {"extra_info": {"level": 3}, "tag": "easy", "reward": "mine", "reward_args": {"a": 1}}
    named = prompts(tokenizer, [{**row, "mine": {"level": 7}}], extra_key="mine")[0]
    assert named.extra["extra_info"] == {"level": 7}
    bare = prompts(tokenizer, [{"prompt": "x"}])[0]
    assert (bare.source, bare.extra) == ("rows", {"extra_info": {}})
    with pytest.raises(RunError, match=r"data\.train\[0\]\.source_key"):
        prompts(tokenizer, [row], source_key="origin")


def test_overlong_prompts_stop_the_run_before_it_starts(tokenizer: Any) -> None:
    rows = [{"prompt": "hi"}, {"prompt": "hello " * 50}]
    with pytest.raises(
        RunError, match=r"1 of 2 prompts of rows\.jsonl are longer than data\.max_prompt_tokens = 30 .*row 1"
    ):
        prompts(tokenizer, rows, Limits(30))


def test_overlong_prompts_are_dropped_and_counted(tokenizer: Any) -> None:
    rows = [{"prompt": "hello " * 50}, {"prompt": "hi"}, {"prompt": "ho"}]
    made = prompts(tokenizer, rows, Limits(30, "drop"))
    assert [p.index for p in made] == [0, 1]
    assert "user\nhi<" in made[0].text
    assert (made.report.rows, made.report.dropped) == (2, 1)
    assert str(made.report) == "rows: 2 prompts from rows.jsonl, 1 overlong dropped"
    with pytest.raises(RunError, match="all 3 prompts"):
        prompts(tokenizer, rows, Limits(1, "drop"))


def test_rows_without_an_answer_or_a_prompt_are_counted(tokenizer: Any) -> None:
    rows = [
        {"prompt": "hi", "reward_model": {"ground_truth": "1"}},
        {"prompt": "  ", "reward_model": {"ground_truth": None}},
        {"prompt": "ho", "reward_model": None},
        {"prompt": "hello " * 50, "reward_model": None},
    ]
    made = prompts(tokenizer, rows, Limits(30, "drop"))
    assert [each.answer for each in made] == ["1", None, None]
    assert str(made.report) == (
        "rows: 3 prompts from rows.jsonl, 1 overlong dropped, 2 without an answer, 1 with an empty prompt"
    )
    assert "without" not in str(prompts(tokenizer, [{"prompt": "hi"}]).report), "this data has no answers"
    asked = [[{"role": "system", "content": "be brief"}, {"role": "user", "content": ""}]]
    assert prompts(tokenizer, [{"prompt": each} for each in asked]).report.empty == 1
    assert prompts(tokenizer, [{"prompt": "\n"}], prompt_type="raw").report.empty == 1


@pytest.mark.parametrize("side", ["left", "right", "middle"])
def test_overlong_prompts_are_cut_and_marked(tokenizer: Any, side: Any) -> None:
    rows = [{"prompt": "one plus two " * 20}, {"prompt": "hi"}]
    whole = prompts(tokenizer, rows)[0].token_ids
    made = prompts(tokenizer, rows, Limits(21, truncation=side))
    expected = {"left": whole[-21:], "right": whole[:21], "middle": (*whole[:10], *whole[-11:])}[side]
    assert made[0].token_ids == expected
    assert made[0].text == tokenizer.decode(expected)
    assert (made[0].extra.get("truncated"), made[1].extra.get("truncated")) == (True, None)
    assert made.report.cut == 1


def test_cut_keeps_as_many_as_the_limit() -> None:
    assert [cut(list(range(9)), 4, side) for side in ("left", "right", "middle")] == [
        [5, 6, 7, 8],
        [0, 1, 2, 3],
        [0, 1, 7, 8],
    ]


@pytest.mark.parametrize(
    "value", [[], [{"content": "x"}], "no json", {"role": "user"}, [{"role": "user", "content": None}]]
)
def test_what_is_no_list_of_messages(tokenizer: Any, value: Any) -> None:
    with pytest.raises(RunError, match=r"row 0 of rows\.jsonl, prompt"):
        prompts(tokenizer, [{"prompt": value}], prompt_type="messages")


@pytest.mark.parametrize("field", ["image_key", "video_key", "audio_key"])
def test_a_column_that_is_not_text_is_refused_and_its_absence_is_not(tokenizer: Any, field: str) -> None:
    """A dialect's default names a column that most data does not have."""
    assert len(prompts(tokenizer, [{"prompt": USER}], **{field: "media"})) == 1
    with pytest.raises(RunError, match=rf"column 'media' \(data\.train\[0\]\.{field}\), (but|and) "):
        prompts(tokenizer, [{"prompt": USER, "media": "x.png"}], **{field: "media"})


def test_tools_are_optional_under_their_usual_name_only(tokenizer: Any) -> None:
    assert len(prompts(tokenizer, [{"prompt": USER}], tools_key="tools")) == 1
    with pytest.raises(RunError, match="schemas"):
        prompts(tokenizer, [{"prompt": USER}], tools_key="schemas")


def test_processes_measure_what_one_would(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlctl.runtime.data.prompts.BATCH_ROWS", 3)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    rows = Dataset.from_list([{"prompt": "x" * (1 + 7 * i % 11)} for i in range(8)])
    source, limits = DataSource(path="rows.jsonl"), Limits(16, overlong="drop")
    one, two = (PromptSet(rows, source, Chat(tokenizer), limits, key="k", workers=n) for n in (1, 2))
    assert list(one) == list(two)
    assert one.report == two.report
    assert 0 < one.report.dropped < 8


@pytest.mark.soak
def test_an_error_in_another_process_names_the_row(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlctl.runtime.data.prompts.BATCH_ROWS", 2)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    rows = Dataset.from_list([{"prompt": text} for text in ("a", "b", "c", None)])
    with pytest.raises(RunError, match=r"row 3 of rows\.jsonl, prompt is None"):
        PromptSet(rows, DataSource(path="rows.jsonl"), Chat(tokenizer), Limits(16), key="k", workers=2)


def test_rows_keep_their_numbers_when_others_are_dropped(tokenizer: Any) -> None:
    rows = [{"prompt": "x" * 60, "hard": 9}, {"prompt": "a", "hard": 1}, {"prompt": "b", "hard": 2}]
    made = prompts(tokenizer, rows, Limits(20, overlong="drop"))
    assert [(p.index, p.text.count("b<")) for p in made] == [(0, 0), (1, 1)]
    assert made.column("hard") == [1, 2]


def test_a_row_without_text_and_one_that_the_template_refuses_are_named(tokenizer: Any) -> None:
    with pytest.raises(RunError, match=r"row 1 of rows\.jsonl, prompt is empty"):
        prompts(tokenizer, [{"prompt": "a"}, {"prompt": ""}], prompt_type="raw")
    tokenizer.chat_template = "{% if messages[0].content == 'b' %}{{ raise_exception('no b') }}{% endif %}x"
    with pytest.raises(RunError, match=r"row 1 of rows\.jsonl, prompt: the chat template rejects .*no b"):
        prompts(tokenizer, [{"prompt": "a"}, {"prompt": "b"}])
