"""What is read of a request to the OpenAI API, and which requests are refused."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.runtime.serving.protocol import ApiError, read_chat, read_completion

HELLO = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "add", "strict": True}}


def test_messages_are_read_as_chat_templates_want_them() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    asked = read_chat(
        {
            "model": "any",
            "messages": [
                {"role": "developer", "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}]},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "2"},
            ],
            "tools": [TOOL],
            "max_tokens": 9,
            "max_completion_tokens": 7,
            "stop": "END",
            "temperature": 0,
        }
    )
    assert asked.messages == [
        {"role": "system", "content": "be brief"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}],
        },
        {"role": "tool", "content": "2", "tool_call_id": "c1", "name": "add"},
    ]
    assert asked.max_tokens == 7
    assert asked.stop == ("END",)
    assert asked.sampling == {"temperature": 0}
    assert asked.tools[0]["function"] == {
        "name": "add",
        "description": "",
        "parameters": {"type": "object", "properties": {}},
    }
    assert not read_chat({"messages": HELLO, "tools": [TOOL], "tool_choice": "none"}).tools


@pytest.mark.parametrize(
    ("request_", "param", "message"),
    [
        ({"messages": []}, "messages", "missing or empty"),
        ({"messages": [{"role": "owner", "content": ""}]}, "messages[0].role", "is 'owner'; expected system, user"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content",
            "a part of type 'image_url'; only text",
        ),
        ({"messages": HELLO, "logit_bias": {"5": 1}}, "logit_bias", "is not supported"),
        ({"messages": HELLO, "response_format": {"type": "json_object"}}, "response_format", "is not supported"),
        ({"messages": HELLO, "top_logprobs": 3}, "top_logprobs", "is not supported"),
        ({"messages": HELLO, "max_tokens": 0}, "max_tokens", "expected a whole number above 0"),
        ({"messages": HELLO, "temperature": "hot"}, "temperature", "expected a number"),
        ({"messages": HELLO, "stop": [3]}, "stop", "expected a string or a list of strings"),
        ({"messages": HELLO, "tools": [TOOL], "tool_choice": "required"}, "tool_choice", "a call cannot be forced"),
        ({"messages": HELLO, "tools": [{"type": "custom"}]}, "tools", r"tools\[0\] is not a function"),
    ],
)
def test_what_is_not_supported_is_refused(request_: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(ApiError, match=message) as refused:
        read_chat(request_)
    assert refused.value.status == 400
    assert refused.value.body()["error"]["param"] == param


def test_a_completion_has_one_prompt() -> None:
    assert read_completion({"prompt": ["one"]}).prompt == "one"
    assert read_completion({"prompt": [1, 2]}).prompt == (1, 2)
    assert read_completion({"prompt": [[1, 2]]}).prompt == (1, 2)
    with pytest.raises(ApiError, match="one request per prompt"):
        read_completion({"prompt": ["one", "two"]})


def test_an_error_is_answered_in_the_language_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ApiError) as raised:
        read_chat({"messages": HELLO, "n": -1})
    assert raised.value.body()["error"]["message"] == "n is -1; expected a whole number above 0"
    monkeypatch.setenv("RLCTL_LANGUAGE", "zh")
    assert raised.value.body()["error"]["message"] == "n 为 -1；应为大于 0 的整数"
